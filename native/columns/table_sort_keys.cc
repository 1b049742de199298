#include "columns/table_sort_keys.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "columns/chunks.h"
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
    lay_out(ranges(job));
    if (!give_columns_) payload_.reset();
  }
}

bool TableSortKeys::give(size_t column) const {
  const auto is = [&](const TableSortColumn& by) { return by.column == column; };
  return give_columns_ && std::any_of(by_.begin(), by_.end(), is);
}

TupleLayout TableSortKeys::layout() const {
  const size_t value_bytes = payload_ ? table_->columns[*payload_].type.width : columns::row_bytes_for(table_->size());
  return {static_cast<uint8_t>(bits_ <= 32 ? 4 : 8), static_cast<uint8_t>(value_bytes)};
}

std::vector<TupleView> TableSortKeys::chunks(std::vector<Buffer>& made, const Job& job) const {
  if (bits_ > kMostBits) {
    throw Error(ErrorCode::not_supported, "A key of " + std::to_string(bits_) + " bits is not supported yet on devices, where " +
                                              std::to_string(kMostBits) + " are the most");
  }
  const std::vector<Device*>& devices = table_->devices;
  const Streams streams = create_streams(devices);
  std::vector<TupleView> chunks;
  uint64_t begin = 0;
  for (size_t d = 0; d < devices.size(); ++d) {
    const uint64_t rows = table_->rows[d];
    const void* keys = table_->columns[by_[0].column].stretches[d].values;
    if (!column_) {
      made.push_back(rows ? devices[d]->memory().allocate(made_bytes(rows)) : Buffer());
      make(d, made.back().data(), job, *streams[d]);
      keys = made.back().data();
    }
    chunks.push_back({keys, payload_ ? table_->columns[*payload_].stretches[d].values : nullptr, begin, rows});
    begin += rows;
  }
  synchronize_all(streams);
  job.check();
  return chunks;
}

void TableSortKeys::decode(size_t column, const void* keys, const ColumnRoom& out, Device& device, const Job& job,
                           Stream& stream) const {
  device.primitives().decode_field(keys, layout().key_bytes, part_of(column).field, out, job, stream);
}

const TableSortKeys::Part& TableSortKeys::part_of(size_t column) const {
  return *std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.column == column; });
}

ColumnStretch TableSortKeys::stretch(size_t column, size_t device) const {
  const ResidentColumn& from = table_->columns[column];
  const DeviceStretch& at = from.stretches[device];
  return {from.type, at.values, from.nullable ? at.validity : nullptr, table_->rows[device]};
}

// Of each column, on all devices together.
std::vector<ValueRange> TableSortKeys::ranges(const Job& job) const {
  const std::vector<Device*>& devices = table_->devices;
  std::vector<std::vector<ValueRange>> found(devices.size(), std::vector<ValueRange>(by_.size()));
  const Streams streams = create_streams(devices);
  for (size_t d = 0; d < devices.size(); ++d) {
    for (size_t i = 0; i < by_.size(); ++i) {
      devices[d]->primitives().value_range(stretch(by_[i].column, d), &found[d][i], job, *streams[d]);
    }
  }
  synchronize_all(streams);
  job.check();
  std::vector<ValueRange> ranges(by_.size());
  for (const std::vector<ValueRange>& of_device : found) {
    for (size_t i = 0; i < by_.size(); ++i) ranges[i].add(of_device[i]);
  }
  return ranges;
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
      bits_ += kMostBits + 1;
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
  const uint64_t rows = table_->rows[device];
  if (rows == 0) return;
  Device& on = *table_->devices[device];
  const uint8_t key_bytes = layout().key_bytes;
  bool first = true;
  for (const Part& part : parts_) {
    if (part.field.bits == 0) continue;
    on.primitives().encode_field(stretch(part.column, device), part.field, std::exchange(first, false), key_bytes, keys, job,
                                 stream);
  }
  if (first) on.fill(keys, 0, rows * key_bytes, stream);  // all rows are the same
}

}  // namespace warpjoin
