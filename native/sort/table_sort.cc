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
#include "sort/parts.h"
#include "sort/resident_top.h"
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

/// What a sort of all takes on each device while it runs.
size_t working_bytes(const TableSortKeys& keys, TupleLayout layout) {
  const std::vector<Device*>& devices = keys.table().devices;
  const uint64_t own = longest(keys.table());
  return StackAllocator::kAlignment + StackAllocator::aligned(keys.made_bytes(own)) +
         sorting::sort_resident_bytes(*devices.at(0), layout, own, own * devices.size(), devices.size());
}

/// What finding the rows of a window takes.
size_t working_bytes(const TableSortKeys& keys, TupleLayout layout, const RowWindow& window) {
  const std::vector<Device*>& devices = keys.table().devices;
  const uint64_t own = longest(keys.table());
  return StackAllocator::kAlignment + StackAllocator::aligned(keys.made_bytes(own)) +
         sorting::top_resident_bytes(*devices.at(0), layout, own, window, devices.size());
}

bool is_all(const RowWindow& rows, const ResidentTable& table) { return rows.rows == table.size(); }

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

/// Sorts on the table's devices.
class StretchSort {
 public:
  StretchSort(Engine& engine, const TableSortKeys& keys, TupleLayout layout, Job& job)
      : engine_(engine), keys_(keys), layout_(layout), devices_(keys.table().devices), job_(job) {}

  Stretches all() const {
    Stretches stretches(devices_.size());
    const std::vector<Buffer> held = reserve_beside_tables(devices_, working_bytes(keys_, layout_));
    std::vector<Buffer> made;
    const std::vector<TupleView> chunks = keys_.chunks(made, job_);
    const uint64_t bits = keys_.is_column() ? varying_bits(devices_, layout_, chunks, job_) : columns::low_bits(keys_.bits());
    sorting::sort_resident(engine_, layout_, devices_, chunks, keys_.flip(), bits, room_in(stretches), job_);
    return stretches;
  }

  /// Few rows.
  Stretches top(const RowWindow& window) const {
    Stretches stretches(devices_.size());
    {
      const std::vector<Buffer> held = reserve_beside_tables(devices_, working_bytes(keys_, layout_, window));
      std::vector<Buffer> made;
      const std::vector<TupleView> chunks = keys_.chunks(made, job_);
      const uint64_t bits = columns::low_bits(keys_.bits());
      if (sorting::top_resident(layout_, devices_, chunks, keys_.flip(), bits, window, room_in(stretches), job_))
        return stretches;
    }
    return cut(all(), window);
  }

  /// Rows of stretches, spread as load_table() does it.
  Stretches cut(const Stretches& from, const RowWindow& window) const {
    Stretches stretches(devices_.size());
    const auto room = room_in(stretches);
    const Streams streams = create_streams(devices_);
    for (size_t d = 0; d < devices_.size(); ++d) {
      const Shard shard = Shard::of(window.rows, devices_.size(), d);
      const uint64_t begin = window.first + shard.begin, end = window.first + shard.end;
      const TupleSpan to = room(d, end - begin);
      uint64_t at = 0;
      for (const Stretch& stretch : from) {
        const uint64_t first = std::max(begin, at), last = std::min(end, at + stretch.size);
        if (first < last) {
          const TupleSpan part = to.slice(layout_, first - begin, last - begin);
          const TupleView source =
              TupleView{stretch.keys.data(), stretch.values.data(), 0, stretch.size}.slice(layout_, first - at, last - at);
          sorting::copy_tuples(*devices_[d], layout_, part, source, *streams[d]);
        }
        at += stretch.size;
      }
    }
    synchronize_all(streams);
    return stretches;
  }

 private:
  sorting::StretchOf room_in(Stretches& stretches) const {
    return [this, &stretches](size_t d, uint64_t size) {
      const auto take = [&](size_t bytes) { return bytes ? devices_[d]->memory().allocate_resident(bytes) : Buffer(); };
      stretches[d] = {size, take(size * layout_.key_bytes), take(size * layout_.value_bytes)};
      return TupleSpan{stretches[d].keys.data(), stretches[d].values.data(), size};
    };
  }

  Engine& engine_;
  const TableSortKeys& keys_;
  const TupleLayout layout_;
  const std::vector<Device*>& devices_;
  Job& job_;
};

}  // namespace

ResidentTable sort_table(Engine& engine, const TableSortKeys& keys, const std::vector<size_t>& columns, Job& job,
                         const RowWindow& window) {
  check(keys, columns);
  const ResidentTable& table = keys.table();
  const std::vector<Device*>& devices = table.devices;
  const TupleLayout layout = layout_of(keys, columns);
  const RowWindow rows = window.within(table.size());
  const StretchSort sort(engine, keys, layout, job);
  Stretches stretches = is_all(rows, table)                                    ? sort.all()
                        : sorting::are_few(rows, table.size(), devices.size()) ? sort.top(rows)
                                                                               : sort.cut(sort.all(), rows);
  ResidentTable result{devices, {}, {}, {}};
  for (const Stretch& stretch : stretches) result.rows.push_back(stretch.size);
  result.columns.resize(columns.size());
  std::unique_ptr<TableGather> gathering;
  std::vector<HeldColumn> held;
  for (size_t i = 0; i < columns.size(); ++i) {
    const ResidentColumn& from = table.columns.at(columns[i]);
    if (const auto part = part_for(keys, columns[i])) {
      result.columns[i] = column_of(from, stretches, part);
    } else if (keys.give(columns[i])) {
      held.push_back({columns[i], keys.field(columns[i]), i});
    } else {
      if (!gathering) {
        std::vector<RowNumbers> rows;
        for (const Stretch& stretch : stretches) rows.push_back({stretch.values.data(), layout.value_bytes, stretch.size});
        gathering = std::make_unique<TableGather>(engine, table, std::move(rows), false, job);
      }
      result.columns[i] = gathering->gather(from, result.memory);
    }
  }
  if (gathering || !held.empty()) {
    const PhaseTimer timer(job, "make columns");
    std::vector<TupleView> sorted;
    for (const Stretch& stretch : stretches) sorted.push_back({stretch.keys.data(), nullptr, 0, stretch.size});
    const Streams decoding = create_streams(devices);
    decode_columns(table, held, layout.key_bytes, sorted, result, decoding, job);
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

size_t sort_table_device_bytes(const TableSortKeys& keys, const std::vector<size_t>& columns, const RowWindow& window) {
  const ResidentTable& from = keys.table();
  const size_t devices = from.devices.size();
  const TupleLayout layout = layout_of(keys, columns);
  const RowWindow rows = window.within(from.size());
  const auto stays = [&](size_t bytes) { return bytes ? from.devices[0]->memory().resident_size(bytes) : 0; };
  const auto sorted = [&](uint64_t stretch) { return stays(stretch * layout.key_bytes) + stays(stretch * layout.value_bytes); };
  uint64_t stretch = sorting::most_in_stretch(longest(from) * devices, devices);
  size_t bytes = 0;
  if (is_all(rows, from)) {
    bytes = working_bytes(keys, layout) + sorted(stretch);
  } else {
    const bool few = sorting::are_few(rows, from.size(), devices);
    bytes = few ? working_bytes(keys, layout, rows) : working_bytes(keys, layout) + sorted(stretch);
    stretch = Shard::of(rows.rows, devices, 0).end;
    bytes += sorted(stretch);
  }
  for (const size_t c : columns) {
    if (part_for(keys, c)) continue;
    const ResidentColumn& column = from.columns.at(c);
    bytes += stays(values_bytes(column.type, stretch)) + (column.nullable ? stays(bitmap_bytes(stretch)) : 0);
  }
  return bytes;
}

}  // namespace warpjoin
