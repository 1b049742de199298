#include "columns/table_sort_keys.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "columns/encode.h"
#include "core/error.h"

namespace warpjoin {
namespace {

void require_order(const ResidentColumn& column) {
  const bool ordered = column.type.order != KeyOrder::none && column.type.order != KeyOrder::bytes;
  if (!ordered) throw Error(ErrorCode::key_type, "Column '" + column.name + "' can't be sorted by on devices");
}

}  // namespace

TableSortKeys::TableSortKeys(const ResidentTable& table, std::vector<TableSortColumn> by, std::optional<size_t> payload,
                             const Job& job)
    : table_(&table), by_(std::move(by)), payload_(payload) {
  if (by_.empty()) throw Error(ErrorCode::option, "A sort needs at least one column to sort by");
  for (const TableSortColumn& column : by_) require_order(table.columns.at(column.column));
  if (payload_) check_payload(table.columns.at(*payload_));
  const ResidentColumn& first = table.columns[by_[0].column];
  column_ = by_.size() == 1 && are_integer_keys(first.type) && !first.nullable;
  if (column_) {
    bits_ = 8 * first.type.width;
    flip_ = integer_flip(first.type, by_[0].descending);
  } else {
    std::vector<size_t> columns;
    for (const TableSortColumn& column : by_) columns.push_back(column.column);
    lay_out(value_ranges(table, columns, job));
    if (!give_columns_) payload_.reset();
  }
  if (payload_ && give(*payload_)) payload_.reset();
}

bool TableSortKeys::give(size_t column) const {
  const auto is = [&](const TableSortColumn& by) { return by.column == column; };
  return give_columns_ && std::any_of(by_.begin(), by_.end(), is);
}

TupleLayout TableSortKeys::layout() const { return tuple_layout(*table_, key_bytes_for(bits_), payload_); }

std::vector<TupleView> TableSortKeys::chunks(std::vector<Buffer>& made, const Job& job) const {
  if (column_) return tuples_of(*table_, keys_in(*table_, by_[0].column), payload_);
  const auto make_there = [&](size_t device, void* keys, Stream& stream) { make(device, keys, job, stream); };
  return tuples_of(*table_, make_keys(*table_, bits_, made, job, make_there), payload_);
}

const KeyField& TableSortKeys::field(size_t column) const {
  return std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.column == column; })->field;
}

// From the last column, whose bits are the lowest, to the first.
void TableSortKeys::lay_out(const std::vector<ValueRange>& ranges) {
  for (size_t i = by_.size(); i-- > 0;) {
    const auto& [column, descending, nulls_last] = by_[i];
    const ValueRange& range = ranges[i];
    if (range.canonicalized) give_columns_ = false;
    KeyField& field = parts_.emplace_back(Part{column, {}}).field;
    field.nulls = range.nulls > 0;
    if (range.empty()) continue;
    const uint64_t farthest = range.greatest - range.least;
    if (field.nulls && farthest == ~uint64_t{0}) {
      bits_ += kMostKeyBits + 1;
      continue;
    }
    field.bits = static_cast<unsigned>(std::bit_width(farthest + field.nulls));
    if (field.bits) field.shift = bits_;
    if (descending) field.flip = ~uint64_t{0};
    field.base = descending ? ~range.greatest : range.least;
    // Nulls are as far from values as there is room: then leading bits tell them apart.
    if (field.nulls) {
      const uint64_t last = ~uint64_t{0} >> (64 - field.bits);
      if (nulls_last) {
        field.null_code = last;
      } else {
        field.base -= last - farthest;
      }
    }
    bits_ += field.bits;
  }
}

void TableSortKeys::make(size_t device, void* keys, const Job& job, Stream& stream) const {
  std::vector<KeyPart> parts;
  for (const Part& part : parts_) {
    if (part.field.bits) parts.push_back({stretch_of(*table_, part.column, device), part.field});
  }
  table_->devices[device]->primitives().encode_keys(parts, table_->rows[device], layout().key_bytes, keys, job, stream);
}

}  // namespace warpjoin
