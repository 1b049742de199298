#include "columns/table_sort_keys.h"

#include <bit>
#include <utility>

#include "columns/chunks.h"
#include "columns/encode.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin {
namespace {

void require_order(const ResidentColumn& column) {
  const bool ordered = column.type.order != KeyOrder::none && column.type.order != KeyOrder::bytes;
  if (!ordered) throw Error(ErrorCode::key_type, "Column '" + column.name + "' can't be sorted by on devices");
}

}  // namespace

TableSortKeys::TableSortKeys(const ResidentTable& table, std::vector<TableSortColumn> by, std::optional<size_t> payload,
                             const Job& job)
    : table_(&table), by_(std::move(by)) {
  if (by_.empty()) throw Error(ErrorCode::option, "A sort needs at least one column to sort by");
  for (const TableSortColumn& column : by_) require_order(table.columns.at(column.column));
  const ResidentColumn& first = table.columns[by_[0].column];
  if (by_.size() == 1 && are_integer_keys(first.type) && !first.nullable) {
    column_ = KeyedTable{&table, by_[0].column, payload};
    column_->check();
    bits_ = 8 * first.type.width;
    flip_ = integer_flip(first.type, by_[0].descending);
    return;
  }
  if (payload) {
    throw Error(ErrorCode::not_supported,
                "Column '" + table.columns.at(*payload).name + "' can't be carried along with keys that are made of columns");
  }
  lay_out(ranges(job));
}

TupleLayout TableSortKeys::layout() const {
  if (column_) return column_->layout();
  return {static_cast<uint8_t>(bits_ <= 32 ? 4 : 8), columns::row_bytes_for(table_->size())};
}

std::vector<TupleView> TableSortKeys::chunks(std::vector<Buffer>& made, const Job& job) const {
  if (column_) return column_->chunks();
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
    made.push_back(rows ? devices[d]->memory().allocate(made_bytes(rows)) : Buffer());
    make(d, made.back().data(), job, *streams[d]);
    chunks.push_back({made.back().data(), nullptr, begin, rows});
    begin += rows;
  }
  synchronize_all(streams);
  job.check();
  return chunks;
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
    if (range.empty()) continue;
    const uint64_t farthest = range.greatest - range.least;
    const bool nulls = range.nulls > 0;
    const unsigned shift = bits_;
    bits_ += nulls && farthest == ~uint64_t{0} ? kMostBits + 1 : static_cast<unsigned>(std::bit_width(farthest + nulls));
    if (bits_ == shift || bits_ > kMostBits) continue;  // all rows are the same in it, or no key can be made
    KeyField field{.flip = 0, .base = range.least, .shift = shift, .null_part = 0};
    if (descending) field.flip = ~uint64_t{0}, field.base = ~range.greatest;
    if (nulls && nulls_last) field.null_part = (farthest + 1) << shift;
    if (nulls && !nulls_last) --field.base;
    parts_.push_back({column, field});
  }
}

void TableSortKeys::make(size_t device, void* keys, const Job& job, Stream& stream) const {
  const uint64_t rows = table_->rows[device];
  if (rows == 0) return;
  Device& on = *table_->devices[device];
  const uint8_t key_bytes = layout().key_bytes;
  if (parts_.empty()) on.fill(keys, 0, rows * key_bytes, stream);
  for (const Part& part : parts_) {
    on.primitives().encode_field(stretch(part.column, device), part.field, &part == parts_.data(), key_bytes, keys, job, stream);
  }
}

}  // namespace warpjoin
