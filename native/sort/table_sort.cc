#include "sort/table_sort.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "columns/bits.h"
#include "core/error.h"
#include "device/streams.h"
#include "primitives/primitives.h"
#include "sort/sample_sort.h"

namespace warpjoin {
namespace {

/// Whether the sorted tuples make a column; others are gathered by row number.
bool is_sorted_along(const TableSortKeys& keys, size_t column) { return keys.give(column) || column == keys.payload(); }

/// With values where the result needs some.
TupleLayout layout_of(const TableSortKeys& keys, const std::vector<size_t>& columns) {
  TupleLayout layout = keys.layout();
  if (std::all_of(columns.begin(), columns.end(), [&](size_t column) { return keys.give(column); })) layout.value_bytes = 0;
  return layout;
}

void check(const TableSortKeys& keys, const std::vector<size_t>& columns) {
  const bool gathers = !std::all_of(columns.begin(), columns.end(), [&](size_t c) { return is_sorted_along(keys, c); });
  if (gathers && keys.payload()) throw Error(ErrorCode::not_supported, "A sort that carries a payload along has no row numbers");
}

/// Which key bits differ, on all devices together.
uint64_t varying_bits(const std::vector<Device*>& devices, TupleLayout layout, const std::vector<TupleView>& chunks,
                      const Job& job) {
  const auto some = std::find_if(chunks.begin(), chunks.end(), [](const TupleView& chunk) { return chunk.size > 0; });
  if (some == chunks.end()) return 0;
  uint64_t any_key = 0;
  std::vector<uint64_t> bits(devices.size());
  const Streams streams = create_streams(devices);
  const auto holder = static_cast<size_t>(some - chunks.begin());
  devices[holder]->copy(&any_key, some->keys, layout.key_bytes, *streams[holder]);
  streams[holder]->synchronize();
  for (size_t d = 0; d < devices.size(); ++d) {
    devices[d]->primitives().varying_bits(layout, chunks[d], &any_key, &bits[d], job, *streams[d]);
  }
  synchronize_all(streams);
  return std::accumulate(bits.begin(), bits.end(), uint64_t{0}, std::bit_or<>());
}

/// Rows of the longest stretch; plans count with as many on each device.
uint64_t longest(const ResidentTable& table) { return *std::max_element(table.rows.begin(), table.rows.end()); }

/// What the sort takes on each device while it runs.
size_t working_bytes(const TableSortKeys& keys, TupleLayout layout) {
  const std::vector<Device*>& devices = keys.table().devices;
  const uint64_t own = longest(keys.table());
  return StackAllocator::kAlignment + StackAllocator::aligned(keys.made_bytes(own)) +
         sorting::sort_resident_bytes(*devices.at(0), layout, own, own * devices.size(), devices.size());
}

/// Sorted tuples of a device.
struct Stretch {
  uint64_t size = 0;
  Buffer keys, values;
};
using Stretches = std::vector<Stretch>;

/// Which part of the tuples is a column of the result; null: none.
Buffer Stretch::*part_for(const TableSortKeys& keys, size_t column) {
  if (keys.is_column() && keys.give(column)) return &Stretch::keys;
  return column == keys.payload() ? &Stretch::values : nullptr;
}

ResidentColumn column_of(const ResidentColumn& like, const Stretches& stretches, Buffer Stretch::*part) {
  ResidentColumn column{like.name, like.type, false, {}};
  for (const Stretch& stretch : stretches) column.stretches.push_back({(stretch.*part).data(), nullptr});
  return column;
}

}  // namespace

ResidentTable sort_table(Engine& engine, const TableSortKeys& keys, const std::vector<size_t>& columns, Job& job) {
  check(keys, columns);
  const ResidentTable& table = keys.table();
  const std::vector<Device*>& devices = table.devices;
  const TupleLayout layout = layout_of(keys, columns);
  Stretches stretches(devices.size());
  const auto stretch_of = [&](size_t d, uint64_t size) {
    const auto take = [&](size_t bytes) { return bytes ? devices[d]->memory().allocate_resident(bytes) : Buffer(); };
    stretches[d] = {size, take(size * layout.key_bytes), take(size * layout.value_bytes)};
    return TupleSpan{stretches[d].keys.data(), stretches[d].values.data(), size};
  };
  {
    const std::vector<Buffer> held = reserve_beside_tables(devices, working_bytes(keys, layout));
    std::vector<Buffer> made;
    const std::vector<TupleView> chunks = keys.chunks(made, job);
    const uint64_t bits = keys.is_column() ? varying_bits(devices, layout, chunks, job) : columns::low_bits(keys.bits());
    sorting::sort_resident(engine, layout, devices, chunks, keys.flip(), bits, stretch_of, job);
  }

  ResidentTable result{devices, {}, {}, {}};
  for (const Stretch& stretch : stretches) result.rows.push_back(stretch.size);
  Streams decoding;
  std::unique_ptr<TableGather> gathering;
  for (const size_t column : columns) {
    const ResidentColumn& from = table.columns.at(column);
    if (const auto part = part_for(keys, column)) {
      result.columns.push_back(column_of(from, stretches, part));
    } else if (keys.give(column)) {
      if (decoding.empty()) decoding = create_streams(devices);
      std::vector<TupleView> sorted;
      for (const Stretch& stretch : stretches) sorted.push_back({stretch.keys.data(), nullptr, 0, stretch.size});
      result.columns.push_back(
          decode_column(table, column, keys.field(column), layout.key_bytes, sorted, result.memory, decoding, job));
    } else {
      if (!gathering) {
        std::vector<RowNumbers> rows;
        for (const Stretch& stretch : stretches) rows.push_back({stretch.values.data(), layout.value_bytes, stretch.size});
        gathering = std::make_unique<TableGather>(engine, table, std::move(rows), false, job);
      }
      result.columns.push_back(gathering->gather(from, result.memory));
    }
  }
  if (gathering || !decoding.empty()) {
    const PhaseTimer timer(job, "make columns");
    synchronize_all(decoding);
    if (gathering) gathering->wait();
    job.check();
  }
  const auto stays = [&](Buffer Stretch::*part) {
    return std::any_of(columns.begin(), columns.end(), [&](size_t column) { return part_for(keys, column) == part; });
  };
  for (const auto part : {&Stretch::keys, &Stretch::values}) {
    if (!stays(part)) continue;
    for (Stretch& stretch : stretches) {
      if (stretch.*part) result.memory.push_back(std::move(stretch.*part));
    }
  }
  return result;
}

size_t sort_table_device_bytes(const TableSortKeys& keys, const std::vector<size_t>& columns) {
  const ResidentTable& from = keys.table();
  const TupleLayout layout = layout_of(keys, columns);
  const uint64_t stretch = sorting::most_in_stretch(longest(from) * from.devices.size(), from.devices.size());
  const auto stays = [&](size_t bytes) { return bytes ? from.devices[0]->memory().resident_size(bytes) : 0; };
  size_t bytes = working_bytes(keys, layout) + stays(stretch * layout.key_bytes) + stays(stretch * layout.value_bytes);
  for (const size_t c : columns) {
    if (part_for(keys, c)) continue;
    const ResidentColumn& column = from.columns.at(c);
    bytes += stays(values_bytes(column.type, stretch)) + (column.nullable ? stays(bitmap_bytes(stretch)) : 0);
  }
  return bytes;
}

}  // namespace warpjoin
