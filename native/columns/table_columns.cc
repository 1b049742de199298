#include "columns/table_columns.h"

#include <utility>

#include "columns/chunks.h"
#include "core/error.h"

namespace warpjoin {
ColumnStretch stretch_of(const ResidentTable& table, size_t column, size_t device) {
  const ResidentColumn& from = table.columns.at(column);
  const DeviceStretch& at = from.stretches[device];
  return {from.type, at.values, from.nullable ? at.validity : nullptr, table.rows[device]};
}

std::vector<ValueRange> value_ranges(const ResidentTable& table, const std::vector<size_t>& columns, const Job& job) {
  std::vector<size_t> unread;
  for (const size_t column : columns) {
    if (!table.columns.at(column).range) unread.push_back(column);
  }
  const std::vector<Device*>& devices = table.devices;
  std::vector<std::vector<ValueRange>> found(devices.size(), std::vector<ValueRange>(unread.size()));
  const Streams streams = create_streams(devices);
  for (size_t d = 0; d < devices.size(); ++d) {
    for (size_t i = 0; i < unread.size(); ++i) {
      devices[d]->primitives().value_range(stretch_of(table, unread[i], d), &found[d][i], job, *streams[d]);
    }
  }
  synchronize_all(streams);
  job.check();
  for (size_t i = 0; i < unread.size(); ++i) {
    ValueRange all;
    for (const std::vector<ValueRange>& of_device : found) all.add(of_device[i]);
    table.columns[unread[i]].range = all;
  }
  std::vector<ValueRange> ranges;
  ranges.reserve(columns.size());
  for (const size_t column : columns) ranges.push_back(*table.columns[column].range);
  return ranges;
}

std::vector<const void*> keys_in(const ResidentTable& table, size_t column) {
  std::vector<const void*> keys;
  for (const DeviceStretch& stretch : table.columns.at(column).stretches) keys.push_back(stretch.values);
  return keys;
}

std::vector<const void*> make_keys(const ResidentTable& table, unsigned bits, std::vector<Buffer>& made, const Job& job,
                                   const std::function<void(size_t device, void* keys, Stream& stream)>& make) {
  if (bits > kMostKeyBits) {
    throw Error(ErrorCode::not_supported, "A key of " + std::to_string(bits) + " bits is not supported yet on devices, where " +
                                              std::to_string(kMostKeyBits) + " are the most");
  }
  const Streams streams = create_streams(table.devices);
  std::vector<const void*> keys(table.devices.size());
  for (size_t d = 0; d < keys.size(); ++d) {
    if (table.rows[d] == 0) continue;
    void* const to = made.emplace_back(table.devices[d]->memory().allocate(table.rows[d] * key_bytes_for(bits))).data();
    make(d, to, *streams[d]);
    keys[d] = to;
  }
  synchronize_all(streams);
  job.check();
  return keys;
}

TupleLayout tuple_layout(const ResidentTable& table, uint8_t key_bytes, const std::optional<size_t>& payload) {
  const size_t value_bytes = payload ? table.columns.at(*payload).type.width : columns::row_bytes_for(table.size());
  return {key_bytes, static_cast<uint8_t>(value_bytes)};
}

std::vector<TupleView> tuples_of(const ResidentTable& table, const std::vector<const void*>& keys,
                                 const std::optional<size_t>& payload) {
  std::vector<TupleView> tuples;
  uint64_t begin = 0;
  for (size_t d = 0; d < keys.size(); ++d) {
    const void* const values = payload ? table.columns.at(*payload).stretches[d].values : nullptr;
    tuples.push_back({keys[d], values, begin, table.rows[d]});
    begin += table.rows[d];
  }
  return tuples;
}

void check_payload(const ResidentColumn& column) {
  const bool fits = column.type.kind == ColumnKind::fixed && (column.type.width == 4 || column.type.width == 8);
  if (!column.nullable && fits) return;
  throw Error(ErrorCode::not_supported, "Column '" + column.name + "' can't be carried along on devices");
}

std::vector<Buffer> reserve_beside_tables(const std::vector<Device*>& devices, size_t bytes) {
  std::vector<Buffer> held;
  for (Device* device : devices) {
    StackAllocator& memory = device->memory();
    // What an earlier call has left larger may be in the way of the result, which is about as large as what the call takes.
    if (memory.resident_bytes() + memory.reserved_bytes() + bytes > memory.limit_bytes()) memory.release();
    memory.reserve(bytes);
    held.push_back(memory.allocate(1));
  }
  return held;
}

void decode_columns(const ResidentTable& table, const std::vector<HeldColumn>& held, uint8_t key_bytes,
                    const std::vector<TupleView>& keys, ResidentTable& result, const Streams& streams, const Job& job) {
  if (held.empty()) return;  // there may be no keys then
  for (const auto& [column, field, to] : held) {
    const ResidentColumn& like = table.columns.at(column);
    result.columns.at(to) = {like.name, like.type, field.nulls, {}};
  }
  for (size_t d = 0; d < keys.size(); ++d) {
    const uint64_t rows = keys[d].size;
    const auto take = [&](size_t bytes) {
      return bytes ? result.memory.emplace_back(table.devices[d]->memory().allocate_resident(bytes)).data() : nullptr;
    };
    std::vector<DecodedPart> parts;
    parts.reserve(held.size());
    for (const auto& [column, field, to] : held) {
      ResidentColumn& made = result.columns[to];
      const DeviceStretch stretch{take(values_bytes(made.type, rows)), made.nullable ? take(bitmap_bytes(rows)) : nullptr};
      made.stretches.push_back(stretch);
      parts.push_back({field, made.type, stretch.values, stretch.validity});
    }
    table.devices[d]->primitives().decode_fields(keys[d].keys, key_bytes, rows, parts, job, *streams[d]);
  }
}

TableGather::TableGather(const Engine& engine, const ResidentTable& from, std::vector<RowNumbers> rows, bool may_be_missing,
                         const Job& job)
    : from_(from),
      sharding_(Sharding::of(from.size(), from.devices.size())),
      rows_(std::move(rows)),
      may_be_missing_(may_be_missing),
      job_(job) {
  if (!spread_evenly(from_)) throw Error(ErrorCode::not_supported, "Columns of a result can't be gathered on devices");
  for (const Device* a : from_.devices) {
    for (const Device* b : from_.devices) {
      if (a == b || engine.topology.link(a->info().ordinal, b->info().ordinal).direct) continue;
      throw Error(ErrorCode::not_supported,
                  "Device '" + a->info().name + "' does not read the memory of '" + b->info().name + "'");
    }
  }
  streams_ = create_streams(from_.devices);
  if (may_be_missing) fill_ones();
}

ResidentColumn TableGather::gather(const ResidentColumn& column, std::vector<Buffer>& memory) {
  ResidentColumn made{column.name, column.type, may_be_missing_ || column.nullable, {}};
  ShardedColumn values{sharding_, {}}, validity{sharding_, {}};
  for (size_t d = 0; d < streams_.size(); ++d) {
    values.shards.push_back(column.stretches[d].values);
    validity.shards.push_back(column.nullable ? column.stretches[d].validity : may_be_missing_ ? ones_[d].data() : nullptr);
  }
  for (size_t d = 0; d < streams_.size(); ++d) {
    Device& device = *from_.devices[d];
    const RowNumbers& rows = rows_[d];
    const auto allocate = [&](size_t bytes) {
      return bytes ? memory.emplace_back(device.memory().allocate_resident(bytes)).data() : nullptr;
    };
    const DeviceStretch to{allocate(values_bytes(column.type, rows.size)),
                           made.nullable ? allocate(bitmap_bytes(rows.size)) : nullptr};
    made.stretches.push_back(to);
    if (rows.size == 0) continue;
    if (to.validity) device.primitives().gather_bits(validity, rows, nullptr, to.validity, job_, *streams_[d]);
    if (column.type.kind == ColumnKind::boolean) {
      device.primitives().gather_bits(values, rows, to.validity, to.values, job_, *streams_[d]);
    } else {
      device.primitives().gather(values, static_cast<uint8_t>(column.type.width), rows, to.validity, to.values, job_,
                                 *streams_[d]);
    }
  }
  return made;
}

void TableGather::wait() const { synchronize_all(streams_); }

// Columns without nulls have a valid value in every row but those that are not there.
void TableGather::fill_ones() {
  for (size_t d = 0; d < streams_.size(); ++d) {
    Device& device = *from_.devices[d];
    const size_t bytes = bitmap_bytes(from_.rows[d]);
    device.memory().reserve(bytes);
    ones_.push_back(device.memory().allocate(bytes));
    device.fill(ones_[d].data(), 0xFF, bytes, *streams_[d]);
  }
  wait();
}

}  // namespace warpjoin
