#include "columns/device_gather.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "columns/column_source.h"
#include "core/error.h"
#include "core/sharding.h"
#include "flow/budget.h"
#include "flow/lanes.h"
#include "flow/steps.h"
#include "primitives/primitives.h"
#include "transfer/arrival.h"
#include "transfer/host_transfer.h"

namespace warpjoin {
namespace {

constexpr size_t kSlots = 2;                         // columns on the devices at a time: one arrives, one is gathered
constexpr uint64_t kLeastPiece = uint64_t{1} << 16;  // rows: less only costs launches
constexpr uint64_t kRowAlignment = 1024;             // of pieces and shares: their bits are whole words, their memory is aligned

constexpr uint64_t rounded_up(uint64_t rows, uint64_t to) { return (rows + to - 1) / to * to; }

bool nullable(const Column& column) {
  return std::any_of(column.chunks.begin(), column.chunks.end(),
                     [](const ColumnChunk& chunk) { return chunk.length && chunk.validity; });
}

/// How many rows go together, and bytes of what a device keeps.
struct Sizes {
  uint64_t share = 0;  ///< row numbers
  uint64_t piece = 0;  ///< rows
  size_t slots = 0, outputs = 0;
  size_t rows = 0;                                // bytes, as all of the following
  size_t slot_values = 0, slot_validity = 0;      // of each slot
  size_t output_values = 0, output_validity = 0;  // of each output

  Sizes(const std::vector<const Column*>& columns, const RowList& list, size_t devices) {
    size_t width = 1;
    share = rounded_up((list.size + devices - 1) / devices, kRowAlignment);
    for (const Column* column : columns) width = std::max<size_t>(width, column->type.width);
    piece = std::clamp(rounded_up(share / 8, kRowAlignment), kLeastPiece, uint64_t{kHomePartBytes / width});
    piece = std::min(piece, share);
    slots = std::min(columns.size(), kSlots);
    outputs = std::min<size_t>(kHomeParts, piece ? (share + piece - 1) / piece : 0);
    rows = share * list.row_bytes;
    for (const Column* column : columns) {
      const uint64_t held = Sharding::of(column->length, devices).shard_rows;
      slot_values = std::max(slot_values, values_bytes(column->type, held));
      output_values = std::max(output_values, values_bytes(column->type, piece));
      if (!list.may_be_missing && !nullable(*column)) continue;
      slot_validity = std::max(slot_validity, bitmap_bytes(held));
      output_validity = bitmap_bytes(piece);
    }
  }
};

/// Memory for a DeviceStretch.
struct StretchRoom {
  Buffer values, validity;

  StretchRoom(StackAllocator& memory, size_t values, size_t validity)
      : values(allocate(memory, values)), validity(allocate(memory, validity)) {}
};

/// What a device keeps.
struct Room {
  Buffer rows;  // numbers
  std::vector<StretchRoom> slots, outputs;

  Room(StackAllocator& memory, const Sizes& sizes) : rows(allocate(memory, sizes.rows)) {
    for (size_t s = 0; s < sizes.slots; ++s) slots.emplace_back(memory, sizes.slot_values, sizes.slot_validity);
    for (size_t o = 0; o < sizes.outputs; ++o) outputs.emplace_back(memory, sizes.output_values, sizes.output_validity);
  }
};

/// A device's share of the row numbers.
struct Share {
  Room room;
  uint64_t begin, size;
  Events gathered;  // by output
};
using Lane = flow::Lane<Share>;

/// A column on its way through the devices.
struct Passage {
  ColumnSource source;  // with validity where rows may be missing, too
  Sharding sharding;
  OwnedColumn result;
  HostBuffer validity;  // of the result

  Passage(const Column& of, size_t devices, bool may_be_missing)
      : source(of, may_be_missing || nullable(of)), sharding(Sharding::of(of.length, devices)) {}
};

class DeviceGather {
 public:
  DeviceGather(Engine& engine, const std::vector<Device*>& devices, const Sizes& sizes, RowList rows, Job& job)
      : engine_(engine), sizes_(sizes), rows_(rows), job_(job), lanes_(devices, 1, [&](Device& device, size_t i) {
          const uint64_t begin = std::min(rows.size, i * sizes.share);
          device.memory().reserve(bytes(sizes));
          return Share{Room(device.memory(), sizes), begin, std::min(rows.size - begin, sizes.share),
                       create_events(device, sizes.outputs)};
        }) {}

  static size_t bytes(const Sizes& sizes) {
    return flow::counted_bytes([&](StackAllocator& memory) { flow::count<Room>(memory, sizes); });
  }

  std::vector<OwnedColumn> run(const std::vector<const Column*>& columns) {
    std::vector<OwnedColumn> results;
    std::array<std::optional<Passage>, 3> passages;  // one for each stage
    const auto passage_of = [&](size_t c) -> std::optional<Passage>& { return passages[c % passages.size()]; };
    const auto arrives = [&](size_t c, std::vector<HostQueue>& queues) {
      Passage& passage = passage_of(c).emplace(*columns[c], lanes_.size(), rows_.may_be_missing);
      passage.source.pack(engine_, job_);
      for (size_t i = 0; i < lanes_.size(); ++i) arrive(passage, c, i, queues.emplace_back());
    };
    const auto leaves = [&](size_t c, std::vector<HostQueue>& queues) {
      Passage& passage = *passage_of(c);
      passage.source.take_bits();  // the devices have them
      allocate_result(passage);
      queues.reserve(2 * lanes_.size());  // callbacks refer to them
      for (Lane& lane : lanes_) leave(passage, c, lane, queues.emplace_back());
    };
    const auto is_home = [&](size_t c, std::vector<HostQueue>&) {
      results.push_back(finished(*passage_of(c)));
      passage_of(c).reset();
    };
    flow::run_steps(engine_, columns.size(), {arrives, leaves, is_home}, job_, [&] { lanes_.wait(job_); });
    return results;
  }

 private:
  // Takes a device's share of the row numbers, with the first column, and its shard of the column to it.
  void arrive(const Passage& passage, size_t c, size_t lane_index, HostQueue& queue) {
    Lane& lane = lanes_[lane_index];
    const StretchRoom& shard = lane.room.slots[c % sizes_.slots];
    queue.device = lane.device;
    queue.direction = HostQueue::Direction::to_device;
    if (c == 0) {
      const auto* rows = static_cast<const char*>(rows_.rows) + lane.begin * rows_.row_bytes;
      queue.copies.push_back({{{lane.room.rows.data(), rows, lane.size * rows_.row_bytes}}});
    }
    const uint64_t total = passage.source.rows();
    const uint64_t begin = std::min(total, lane_index * passage.sharding.shard_rows);
    const uint64_t end = std::min(total, begin + passage.sharding.shard_rows);
    queue.copies.push_back(passage.source.copy(begin, end, {shard.values.data(), shard.validity.data()}));
  }

  void allocate_result(Passage& passage) {
    OwnedColumn& result = passage.result;
    result.type = passage.source.type();
    result.length = rows_.size;
    result.values =
        engine_.memory->allocate(std::max<uint64_t>(1, values_bytes(passage.source.type(), rows_.size)), "a gathered column");
    if (passage.source.nullable()) {
      passage.validity = engine_.memory->allocate(bitmap_bytes(rows_.size), "a gathered column's validity");
    }
  }

  // Gathers a device's share of the result piece by piece, and takes each home while the next ones are gathered.
  void leave(Passage& passage, size_t c, Lane& lane, HostQueue& queue) {
    queue.device = lane.device;
    queue.direction = HostQueue::Direction::to_host;
    queue.depth = std::max<size_t>(1, sizes_.outputs);
    const ColumnType& type = passage.source.type();
    for (uint64_t at = 0; at < lane.size; at += sizes_.piece) {
      const StretchRoom& output = lane.room.outputs[queue.copies.size() % sizes_.outputs];
      const uint64_t rows = std::min(sizes_.piece, lane.size - at), begin = lane.begin + at;
      HostCopy& home = queue.copies.emplace_back();
      home.stretches.push_back(
          {passage.result.values.as<char>() + values_bytes(type, begin), output.values.data(), values_bytes(type, rows)});
      if (passage.source.nullable()) {
        home.stretches.push_back({passage.validity.as<char>() + bitmap_bytes(begin), output.validity.data(), bitmap_bytes(rows)});
      }
    }
    const auto prepare = [this, &passage, c, &lane, &queue](size_t piece) {
      gather_piece(passage, c, lane, piece);
      queue.copies[piece].after = lane.gathered[piece % sizes_.outputs].get();
    };
    for (size_t piece = 0; piece < std::min(sizes_.outputs, queue.copies.size()); ++piece) prepare(piece);
    queue.enqueued = [this, &lane, &queue, prepare](size_t piece, std::span<Event* const> done) {
      const size_t next = piece + sizes_.outputs;
      if (next >= queue.copies.size()) return;
      for (Event* event : done) lane.stream().wait(*event);
      prepare(next);
    };
  }

  void gather_piece(const Passage& passage, size_t c, Lane& lane, size_t piece) {
    const size_t slot = piece % sizes_.outputs;
    const uint64_t begin = piece * sizes_.piece;
    const RowNumbers rows{lane.room.rows.as<char>() + begin * rows_.row_bytes, rows_.row_bytes,
                          std::min(sizes_.piece, lane.size - begin)};
    ShardedColumn values{passage.sharding, {}}, validity{passage.sharding, {}};
    for (const Lane& other : lanes_) {
      const StretchRoom& shard = other.room.slots[c % sizes_.slots];
      values.shards.push_back(shard.values.data());
      validity.shards.push_back(shard.validity.data());
    }
    const StretchRoom& output = lane.room.outputs[slot];
    Primitives& primitives = lane.primitives();
    const void* const valid = passage.source.nullable() ? output.validity.data() : nullptr;
    if (valid) primitives.gather_bits(validity, rows, nullptr, output.validity.data(), job_, lane.stream());
    if (passage.source.boolean()) {
      primitives.gather_bits(values, rows, valid, output.values.data(), job_, lane.stream());
    } else {
      primitives.gather(values, static_cast<uint8_t>(passage.source.type().width), rows, valid, output.values.data(), job_,
                        lane.stream());
    }
    lane.stream().record(*lane.gathered[slot]);
    job_.add_done(rows.size);
  }

  OwnedColumn finished(Passage& passage) {
    OwnedColumn& result = passage.result;
    if (passage.source.boolean()) result.values.shrink(std::max<uint64_t>(1, (rows_.size + 7) / 8));
    if (passage.source.nullable()) set_validity(engine_, result, std::move(passage.validity), job_);
    return std::move(result);
  }

  Engine& engine_;
  const Sizes sizes_;
  const RowList rows_;
  Job& job_;
  flow::Lanes<Share> lanes_;
};

void check(const Engine& engine, const std::vector<Device*>& devices, const std::vector<const Column*>& columns) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::not_supported, what + " can't be gathered on devices");
  };
  for (const Column* column : columns) {
    if (!gathers_on_devices(column->type)) refuse("Column '" + column->name + "'");
  }
  if (devices.empty() || devices.size() > Primitives::kMostShards) {
    refuse("A column in the memory of " + std::to_string(devices.size()) + " devices");
  }
  for (const Device* from : devices) {
    for (const Device* to : devices) {
      if (from != to && !engine.topology.link(from->info().ordinal, to->info().ordinal).direct) {
        refuse("A column that device '" + from->info().name + "' shares with '" + to->info().name +
               "', whose memory it does not address,");
      }
    }
  }
}

}  // namespace

bool gathers_on_devices(const ColumnType& type) {
  return type.kind == ColumnKind::boolean ||
         (type.kind == ColumnKind::fixed && std::has_single_bit(type.width) && type.width <= 16);
}

size_t device_gather_bytes(const std::vector<const Column*>& columns, RowList rows, size_t devices) {
  return DeviceGather::bytes(Sizes(columns, rows, devices));
}

std::vector<OwnedColumn> gather_on_devices(Engine& engine, const std::vector<Device*>& devices,
                                           const std::vector<const Column*>& columns, RowList rows, Job& job) {
  check(engine, devices, columns);
  job.check();
  job.add_planned(columns.size() * rows.size);
  const Sizes sizes(columns, rows, devices.size());
  return DeviceGather(engine, devices, sizes, rows, job).run(columns);
}

}  // namespace warpjoin
