#include "sort/table_sort.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "columns/encode.h"
#include "core/error.h"
#include "device/streams.h"
#include "primitives/primitives.h"
#include "sort/sample_sort.h"

namespace warpjoin {
namespace {

/// Whether the sort makes a column, or it is gathered by row number.
bool is_sorted_along(const KeyedTable& table, size_t column) { return column == table.key || column == table.payload; }

/// With values where the result needs some.
TupleLayout layout_of(const KeyedTable& table, const std::vector<size_t>& columns) {
  TupleLayout layout = table.layout();
  if (std::all_of(columns.begin(), columns.end(), [&](size_t column) { return column == table.key; })) layout.value_bytes = 0;
  return layout;
}

void check(const KeyedTable& table, const std::vector<size_t>& columns) {
  table.check();
  const bool gathers = !std::all_of(columns.begin(), columns.end(), [&](size_t c) { return is_sorted_along(table, c); });
  if (gathers && table.payload) throw Error(ErrorCode::not_supported, "A sort that carries a payload along has no row numbers");
}

/// Which key bits differ, on all devices together.
uint64_t varying_bits(const std::vector<Device*>& devices, TupleLayout layout, const std::vector<TupleView>& chunks,
                      const Job& job) {
  const auto some = std::find_if(chunks.begin(), chunks.end(), [](const TupleView& chunk) { return chunk.size > 0; });
  if (some == chunks.end()) return 0;
  uint64_t any_key = 0;
  std::vector<uint64_t> bits(devices.size());
  std::vector<std::unique_ptr<Stream>> streams(devices.size());
  std::transform(devices.begin(), devices.end(), streams.begin(), [](Device* device) { return device->create_stream(); });
  const auto holder = static_cast<size_t>(some - chunks.begin());
  devices[holder]->copy(&any_key, some->keys, layout.key_bytes, *streams[holder]);
  streams[holder]->synchronize();
  for (size_t d = 0; d < devices.size(); ++d) {
    devices[d]->primitives().varying_bits(layout, chunks[d], &any_key, &bits[d], job, *streams[d]);
  }
  for (const auto& stream : streams) stream->synchronize();
  return std::accumulate(bits.begin(), bits.end(), uint64_t{0}, std::bit_or<>());
}

/// Rows of the longest stretch; plans count with as many on each device.
uint64_t longest(const ResidentTable& table) { return *std::max_element(table.rows.begin(), table.rows.end()); }

/// What the sort takes on each device while it runs.
size_t working_bytes(const KeyedTable& table, TupleLayout layout) {
  const std::vector<Device*>& devices = table.table->devices;
  const uint64_t own = longest(*table.table);
  return StackAllocator::kAlignment +
         sorting::sort_resident_bytes(*devices.at(0), layout, own, own * devices.size(), devices.size());
}

struct Stretch {
  uint64_t size = 0;
  Buffer keys, values;
};

}  // namespace

ResidentTable sort_table(Engine& engine, const KeyedTable& table, bool descending, const std::vector<size_t>& columns, Job& job) {
  check(table, columns);
  const std::vector<Device*>& devices = table.table->devices;
  const TupleLayout layout = layout_of(table, columns);
  std::vector<Buffer> held = reserve_beside_tables(devices, working_bytes(table, layout));
  std::vector<TupleView> chunks = table.chunks();
  std::vector<Stretch> stretches(devices.size());
  const auto stretch_of = [&](size_t d, uint64_t size) {
    const auto take = [&](size_t bytes) { return bytes ? devices[d]->memory().allocate_resident(bytes) : Buffer(); };
    stretches[d] = {size, take(size * layout.key_bytes), take(size * layout.value_bytes)};
    return TupleSpan{stretches[d].keys.data(), stretches[d].values.data(), size};
  };
  sorting::sort_resident(engine, layout, devices, chunks, integer_flip(table.key_column().type, descending),
                         varying_bits(devices, layout, chunks, job), stretch_of, job);
  held.clear();

  ResidentTable result{devices, {}, {}, {}};
  for (const Stretch& stretch : stretches) result.rows.push_back(stretch.size);
  result.columns.resize(columns.size());
  std::unique_ptr<TableGather> gathering;
  for (size_t i = 0; i < columns.size(); ++i) {
    const ResidentColumn& from = table.table->columns.at(columns[i]);
    if (is_sorted_along(table, columns[i])) {
      const auto made = columns[i] == table.key ? &Stretch::keys : &Stretch::values;
      result.columns[i] = {from.name, from.type, false, {}};
      for (const Stretch& stretch : stretches) result.columns[i].stretches.push_back({(stretch.*made).data(), nullptr});
      continue;
    }
    if (!gathering) {
      std::vector<RowNumbers> rows(stretches.size());
      std::transform(stretches.begin(), stretches.end(), rows.begin(), [&](const Stretch& stretch) {
        return RowNumbers{stretch.values.data(), layout.value_bytes, stretch.size};
      });
      gathering = std::make_unique<TableGather>(engine, *table.table, std::move(rows), false, job);
    }
    result.columns[i] = gathering->gather(from, result.memory);
  }
  if (gathering) {
    const PhaseTimer timer(job, "gather");
    gathering->wait();
    job.check();
  }
  const auto is_wanted = [&](size_t column) { return std::find(columns.begin(), columns.end(), column) != columns.end(); };
  for (Stretch& stretch : stretches) {
    if (stretch.keys && is_wanted(table.key)) result.memory.push_back(std::move(stretch.keys));
    if (stretch.values && table.payload && is_wanted(*table.payload)) result.memory.push_back(std::move(stretch.values));
  }
  return result;
}

size_t sort_table_device_bytes(const KeyedTable& table, const std::vector<size_t>& columns) {
  const ResidentTable& from = *table.table;
  const TupleLayout layout = layout_of(table, columns);
  const uint64_t stretch = sorting::most_in_stretch(longest(from) * from.devices.size(), from.devices.size());
  const auto stays = [&](size_t bytes) { return bytes ? from.devices[0]->memory().resident_size(bytes) : 0; };
  size_t bytes = working_bytes(table, layout) + stays(stretch * layout.key_bytes) + stays(stretch * layout.value_bytes);
  for (const size_t c : columns) {
    if (is_sorted_along(table, c)) continue;
    const ResidentColumn& column = from.columns.at(c);
    bytes += stays(values_bytes(column.type, stretch)) + (column.nullable ? stays(bitmap_bytes(stretch)) : 0);
  }
  return bytes;
}

}  // namespace warpjoin
