#include "columns/keyed_table.h"

#include <utility>

#include "columns/chunks.h"
#include "columns/encode.h"
#include "core/error.h"

namespace warpjoin {
namespace {

[[noreturn]] void refuse(const ResidentColumn& column, const char* what) {
  throw Error(ErrorCode::not_supported, "Column '" + column.name + "' can't be " + what + " on devices");
}

}  // namespace

TupleLayout KeyedTable::layout() const {
  const size_t value_bytes = payload ? table->columns.at(*payload).type.width : columns::row_bytes_for(table->size());
  return {static_cast<uint8_t>(key_column().type.width), static_cast<uint8_t>(value_bytes)};
}

std::vector<TupleView> KeyedTable::chunks() const {
  std::vector<TupleView> chunks;
  uint64_t begin = 0;
  for (size_t d = 0; d < table->devices.size(); ++d) {
    const void* const values = payload ? table->columns[*payload].stretches[d].values : nullptr;
    chunks.push_back({key_column().stretches[d].values, values, begin, table->rows[d]});
    begin += table->rows[d];
  }
  return chunks;
}

void KeyedTable::check() const {
  if (key_column().nullable || !are_integer_keys(key_column().type)) refuse(key_column(), "a key");
  if (payload) check_payload(table->columns.at(*payload));
}

void check_payload(const ResidentColumn& column) {
  const bool fits = column.type.kind == ColumnKind::fixed && (column.type.width == 4 || column.type.width == 8);
  if (column.nullable || !fits) refuse(column, "carried along");
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
