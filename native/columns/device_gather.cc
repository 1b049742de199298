#include "columns/device_gather.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "columns/column_source.h"
#include "core/error.h"
#include "core/sharding.h"
#include "device/streams.h"
#include "primitives/primitives.h"
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

/// Sizes of what a device keeps.
struct Room {
  uint64_t share = 0;  ///< row numbers
  uint64_t piece = 0;  ///< rows
  size_t slots = 0, outputs = 0;
  size_t rows = 0;                                // bytes, as all of the following
  size_t slot_values = 0, slot_validity = 0;      // of each slot
  size_t output_values = 0, output_validity = 0;  // of each output

  Room(const std::vector<const Column*>& columns, const RowList& list, size_t devices) {
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

  size_t bytes() const {
    constexpr auto aligned = StackAllocator::aligned;
    return aligned(rows) + slots * (aligned(slot_values) + aligned(slot_validity)) +
           outputs * (aligned(output_values) + aligned(output_validity));
  }
};

Buffer allocate(Device& device, size_t bytes) { return bytes ? device.memory().allocate(bytes) : Buffer(); }

/// What holds a DeviceStretch.
struct Stretch {
  Buffer values, validity;
};

/// One device's work. The stream comes last: it waits for its work before what that refers to goes.
struct Lane {
  Device* device = nullptr;
  uint64_t begin = 0, size = 0;  // of the row numbers
  Buffer rows;
  std::vector<Stretch> slots, outputs;
  std::vector<std::unique_ptr<Event>> gathered;  // by output
  std::unique_ptr<Stream> compute;
};

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
  DeviceGather(Engine& engine, const std::vector<Device*>& devices, const Room& room, RowList rows, Job& job)
      : engine_(engine), room_(room), rows_(rows), job_(job), lanes_(devices.size()) {
    for (size_t i = 0; i < devices.size(); ++i) {
      Lane& lane = lanes_[i];
      Device& device = *devices[i];
      lane.device = &device;
      lane.begin = std::min(rows.size, i * room.share);
      lane.size = std::min(rows.size - lane.begin, room.share);
      device.memory().reserve(room.bytes());
      lane.rows = allocate(device, room.rows);
      for (size_t s = 0; s < room.slots; ++s) {
        lane.slots.push_back({allocate(device, room.slot_values), allocate(device, room.slot_validity)});
      }
      for (size_t o = 0; o < room.outputs; ++o) {
        lane.outputs.push_back({allocate(device, room.output_values), allocate(device, room.output_validity)});
        lane.gathered.push_back(device.create_event());
      }
      lane.compute = device.create_stream();
    }
  }

  // Before any lane's memory goes: the others read it.
  ~DeviceGather() {
    for (Lane& lane : lanes_) lane.compute.reset();
  }

  std::vector<OwnedColumn> run(const std::vector<const Column*>& columns) {
    std::vector<OwnedColumn> results;
    std::optional<Passage> arriving, leaving;
    for (size_t c = 0; c <= columns.size(); ++c) {
      leaving = std::exchange(arriving, std::nullopt);
      if (c < columns.size()) arriving.emplace(*columns[c], lanes_.size(), rows_.may_be_missing);
      std::vector<HostQueue> queues;
      queues.reserve(2 * lanes_.size());  // callbacks refer to them
      if (arriving) {
        arriving->source.pack(engine_, job_);
        for (size_t i = 0; i < lanes_.size(); ++i) arrive(*arriving, c, i, queues.emplace_back());
      }
      if (leaving) {
        allocate_result(*leaving);
        for (Lane& lane : lanes_) leave(*leaving, c - 1, lane, queues.emplace_back());
      }
      transfer(engine_, queues, job_);
      wait();
      if (arriving) arriving->source.take_bits();  // the devices have them
      if (leaving) results.push_back(finished(*leaving));
    }
    return results;
  }

 private:
  void wait() const {
    std::vector<Stream*> streams;
    for (const Lane& lane : lanes_) streams.push_back(lane.compute.get());
    synchronize_all(streams);
  }

  // Takes a device's share of the row numbers, with the first column, and its shard of the column to it.
  void arrive(const Passage& passage, size_t c, size_t lane_index, HostQueue& queue) {
    Lane& lane = lanes_[lane_index];
    const Stretch& shard = lane.slots[c % lane.slots.size()];
    queue.device = lane.device;
    queue.direction = HostQueue::Direction::to_device;
    if (c == 0) {
      const auto* rows = static_cast<const char*>(rows_.rows) + lane.begin * rows_.row_bytes;
      queue.copies.push_back({{{lane.rows.data(), rows, lane.size * rows_.row_bytes}}});
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
    queue.depth = std::max<size_t>(1, lane.outputs.size());
    const ColumnType& type = passage.source.type();
    for (uint64_t at = 0; at < lane.size; at += room_.piece) {
      const Stretch& output = lane.outputs[queue.copies.size() % lane.outputs.size()];
      const uint64_t rows = std::min(room_.piece, lane.size - at), begin = lane.begin + at;
      HostCopy& home = queue.copies.emplace_back();
      home.stretches.push_back(
          {passage.result.values.as<char>() + values_bytes(type, begin), output.values.data(), values_bytes(type, rows)});
      if (passage.source.nullable()) {
        home.stretches.push_back({passage.validity.as<char>() + bitmap_bytes(begin), output.validity.data(), bitmap_bytes(rows)});
      }
    }
    const auto prepare = [this, &passage, c, &lane, &queue](size_t piece) {
      gather_piece(passage, c, lane, piece);
      queue.copies[piece].after = lane.gathered[piece % lane.outputs.size()].get();
    };
    for (size_t piece = 0; piece < std::min(lane.outputs.size(), queue.copies.size()); ++piece) prepare(piece);
    queue.enqueued = [&lane, &queue, prepare](size_t piece, std::span<Event* const> done) {
      const size_t next = piece + lane.outputs.size();
      if (next >= queue.copies.size()) return;
      for (Event* event : done) lane.compute->wait(*event);
      prepare(next);
    };
  }

  void gather_piece(const Passage& passage, size_t c, Lane& lane, size_t piece) {
    const size_t slot = piece % lane.outputs.size();
    const uint64_t begin = piece * room_.piece;
    const RowNumbers rows{lane.rows.as<char>() + begin * rows_.row_bytes, rows_.row_bytes,
                          std::min(room_.piece, lane.size - begin)};
    ShardedColumn values{passage.sharding, {}}, validity{passage.sharding, {}};
    for (const Lane& other : lanes_) {
      const Stretch& shard = other.slots[c % other.slots.size()];
      values.shards.push_back(shard.values.data());
      validity.shards.push_back(shard.validity.data());
    }
    const Stretch& output = lane.outputs[slot];
    Primitives& primitives = lane.device->primitives();
    const void* const valid = passage.source.nullable() ? output.validity.data() : nullptr;
    if (valid) primitives.gather_bits(validity, rows, nullptr, output.validity.data(), job_, *lane.compute);
    if (passage.source.boolean()) {
      primitives.gather_bits(values, rows, valid, output.values.data(), job_, *lane.compute);
    } else {
      primitives.gather(values, static_cast<uint8_t>(passage.source.type().width), rows, valid, output.values.data(), job_,
                        *lane.compute);
    }
    lane.compute->record(*lane.gathered[slot]);
    job_.add_done(rows.size);
  }

  OwnedColumn finished(Passage& passage) {
    OwnedColumn& result = passage.result;
    if (passage.source.boolean()) result.values.shrink(std::max<uint64_t>(1, (rows_.size + 7) / 8));
    if (passage.source.nullable()) set_validity(engine_, result, std::move(passage.validity), job_);
    return std::move(result);
  }

  Engine& engine_;
  const Room room_;
  const RowList rows_;
  Job& job_;
  std::vector<Lane> lanes_;
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
  return Room(columns, rows, devices).bytes();
}

std::vector<OwnedColumn> gather_on_devices(Engine& engine, const std::vector<Device*>& devices,
                                           const std::vector<const Column*>& columns, RowList rows, Job& job) {
  check(engine, devices, columns);
  job.check();
  job.add_planned(columns.size() * rows.size);
  const Room room(columns, rows, devices.size());
  return DeviceGather(engine, devices, room, rows, job).run(columns);
}

}  // namespace warpjoin
