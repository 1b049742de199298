#include "columns/resident_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "columns/device_gather.h"
#include "core/error.h"
#include "core/sharding.h"

namespace warpjoin {
namespace {

/// Where the columns' stretches of so many rows lie in one buffer.
class Layout {
 public:
  Layout(const std::vector<ColumnSource>& columns, uint64_t rows) {
    for (const ColumnSource& column : columns) {
      values_.push_back(add(values_bytes(column.type(), rows)));
      validity_.push_back(add(column.nullable() ? bitmap_bytes(rows) : 0));
    }
  }

  size_t bytes() const { return bytes_; }
  DeviceStretch stretch(size_t column, bool nullable, void* memory) const {
    char* const base = static_cast<char*>(memory);
    return {base + values_[column], nullable ? base + validity_[column] : nullptr};
  }

 private:
  size_t add(size_t bytes) { return std::exchange(bytes_, bytes_ + StackAllocator::aligned(bytes)); }

  std::vector<size_t> values_, validity_;  // offsets
  size_t bytes_ = 0;
};

std::vector<ColumnSource> sources_of(const std::vector<const Column*>& columns) {
  std::vector<ColumnSource> sources;
  sources.reserve(columns.size());
  for (const Column* column : columns) sources.emplace_back(*column, columns::ChunkIndex(*column).nullable());
  return sources;
}

}  // namespace

uint64_t ResidentTable::size() const { return std::accumulate(rows.begin(), rows.end(), uint64_t{0}); }

bool stays_on_devices(const ColumnType& type) { return gathers_on_devices(type); }

bool spread_evenly(const ResidentTable& table) {
  const uint64_t shard = Sharding::of(table.size(), table.rows.size()).shard_rows;
  uint64_t left = table.size();
  return std::all_of(table.rows.begin(), table.rows.end(), [&](uint64_t rows) {
    const uint64_t expected = std::min(left, shard);
    left -= expected;
    return rows == expected;
  });
}

size_t resident_table_bytes(const std::vector<const Column*>& columns, uint64_t rows, const std::vector<Device*>& devices) {
  const uint64_t shard = std::min(rows, Sharding::of(rows, devices.size()).shard_rows);
  const size_t bytes = Layout(sources_of(columns), shard).bytes();
  return bytes ? devices.at(0)->memory().resident_size(bytes) : 0;
}

ResidentTable load_table(Engine& engine, const std::vector<Device*>& devices, const std::vector<const Column*>& columns,
                         uint64_t rows, Job& job) {
  job.check();
  job.add_planned(columns.size() * rows);
  ResidentTable table{devices, {}, {}, {}};
  std::vector<ColumnSource> sources = sources_of(columns);
  for (size_t c = 0; c < columns.size(); ++c) {
    const Column& column = *columns[c];
    if (!stays_on_devices(column.type))
      throw Error(ErrorCode::not_supported, "Column '" + column.name + "' can't stay on devices");
    sources[c].pack(engine, job);
    sources[c].drop_validity_without_nulls(engine, job);
    table.columns.push_back({column.name, column.type, sources[c].nullable(), {}});
  }
  const uint64_t shard = Sharding::of(rows, devices.size()).shard_rows;
  std::vector<HostQueue> queues(devices.size());
  for (size_t d = 0; d < devices.size(); ++d) {
    const uint64_t begin = std::min(rows, d * shard), end = std::min(rows, begin + shard);
    const Layout layout(sources, end - begin);
    table.rows.push_back(end - begin);
    table.memory.push_back(layout.bytes() ? devices[d]->memory().allocate_resident(layout.bytes()) : Buffer());
    queues[d].device = devices[d];
    for (size_t c = 0; c < sources.size(); ++c) {
      const DeviceStretch stretch =
          begin < end ? layout.stretch(c, sources[c].nullable(), table.memory.back().data()) : DeviceStretch();
      table.columns[c].stretches.push_back(stretch);
      queues[d].copies.push_back(sources[c].copy(begin, end, stretch));
    }
    queues[d].enqueued = [&job, rows = end - begin](size_t, std::span<Event* const>) { job.add_done(rows); };
  }
  transfer(engine, queues, job);
  return table;
}

std::vector<OwnedColumn> bring_home(Engine& engine, const ResidentTable& table, const std::vector<size_t>& columns, Job& job) {
  const uint64_t rows = table.size();
  job.check();
  job.add_planned(columns.size() * rows);
  std::vector<OwnedColumn> results(columns.size());
  std::vector<Column> bits(columns.size());  // bitmaps as they come: a chunk a stretch
  std::vector<HostBuffer> held;
  std::vector<HostQueue> queues(table.devices.size());
  for (size_t d = 0; d < queues.size(); ++d) {
    queues[d].device = table.devices[d];
    queues[d].direction = HostQueue::Direction::to_host;
    queues[d].enqueued = [&job, rows = table.rows[d]](size_t, std::span<Event* const>) { job.add_done(rows); };
  }
  for (size_t c = 0; c < columns.size(); ++c) {
    const ResidentColumn& column = table.columns.at(columns[c]);
    const bool boolean = column.type.kind == ColumnKind::boolean;
    OwnedColumn& result = results[c];
    bits[c].name = column.name;
    bits[c].type = column.type;
    bits[c].length = rows;
    result.type = column.type;
    result.length = rows;
    if (!boolean)
      result.values = engine.memory->allocate(std::max<size_t>(1, values_bytes(column.type, rows)), "a column from devices");
    uint64_t begin = 0;
    for (size_t d = 0; d < queues.size(); ++d) {
      const uint64_t size = table.rows[d];
      const DeviceStretch& from = column.stretches[d];
      HostCopy& copy = queues[d].copies.emplace_back();
      ColumnChunk& chunk = bits[c].chunks.emplace_back();
      chunk.length = size;
      const auto bring_bits = [&](const void* source) {
        held.push_back(engine.memory->allocate(bitmap_bytes(size), "a column's bits"));
        copy.stretches.push_back({held.back().data(), source, bitmap_bytes(size)});
        return held.back().data();
      };
      if (column.nullable) chunk.validity = static_cast<const uint8_t*>(bring_bits(from.validity));
      if (boolean) {
        chunk.values = bring_bits(from.values);
      } else {
        copy.stretches.push_back(
            {result.values.as<char>() + values_bytes(column.type, begin), from.values, values_bytes(column.type, size)});
      }
      begin += size;
    }
  }
  transfer(engine, queues, job);
  for (size_t c = 0; c < columns.size(); ++c) {
    const ResidentColumn& column = table.columns[columns[c]];
    ColumnSource source(bits[c], column.nullable);
    source.pack(engine, job);
    ColumnSource::Bits packed = source.take_bits();
    if (source.boolean()) {
      results[c].values = std::move(packed.values);
      results[c].values.shrink(std::max<uint64_t>(1, (rows + 7) / 8));
    }
    if (column.nullable) set_validity(engine, results[c], std::move(packed.validity), job);
  }
  return results;
}

}  // namespace warpjoin
