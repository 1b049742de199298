#include "join/match_parts.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "device/streams.h"
#include "primitives/primitives.h"
#include "transfer/host_transfer.h"

namespace warpjoin {
namespace {

constexpr size_t kPartBytes = size_t{128} << 20;    // of keys: enough for their blocks to keep a link busy
constexpr uint64_t kLeastPart = uint64_t{1} << 20;  // rows: a step takes longer than less of them
constexpr uint64_t kParts = 16;                     // of a device at least, for there are two steps more than parts
constexpr size_t kStreams = 3;                      // of a host device
constexpr size_t kSlots = 2;                        // of a device beyond a link: one arrives or leaves, one is matched

constexpr const char* kRanges = "the match ranges of a merge join";

uint64_t most_ranges(const JoinPart& part) { return std::min(part.build_rows(), part.probe_rows()); }

uint8_t row_bytes(const JoinPart& part) { return match_row_bytes(part.build_rows(), part.probe_rows()); }

size_t range_bytes(const JoinPart& part, uint64_t ranges) { return ranges * 4 * row_bytes(part); }

TupleLayout keys_alone(TupleLayout layout) { return {layout.key_bytes, 0}; }

TupleView keys_of(TupleLayout layout, const TupleView& side, uint64_t begin, uint64_t end) {
  return {static_cast<const char*>(side.keys) + begin * layout.key_bytes, nullptr, 0, end - begin};
}

/// What parts and devices there are, and what was found.
class Matching {
 public:
  Matching(Engine& engine, const SortedSides& sides, const std::vector<JoinPart>& parts, size_t devices, size_t per_device,
           Job& job)
      : engine_(engine), sides_(sides), parts_(parts), per_device_(per_device), job_(job), rows_(devices) {
    found_.lists.resize(parts.size());
    for (const JoinPart& part : parts) {
      if (most_ranges(part) == 0) job.add_done(part.rows());
    }
  }

  PartMatches take() {
    uint64_t most = 0, all = 0;
    for (const uint64_t rows : rows_) {
      most = std::max(most, rows);
      all += rows;
    }
    if (all) found_.skew = static_cast<double>(most) * static_cast<double>(rows_.size()) / static_cast<double>(all);
    return std::move(found_);
  }

 protected:
  /// The part that a device matches as its n-th; nothing where there is none, or none that can match.
  std::optional<size_t> part_of(size_t device, size_t n) {
    const size_t part = device * per_device_ + n;
    if (n >= per_device_ || part >= parts_.size() || most_ranges(parts_[part]) == 0) return {};
    return part;
  }
  TupleView build(const JoinPart& part) const {
    return keys_of(sides_.build_layout, sides_.build, part.build_begin, part.build_end);
  }
  TupleView probe(const JoinPart& part) const {
    return keys_of(sides_.probe_layout, sides_.probe, part.probe_begin, part.probe_end);
  }
  void match(size_t device, size_t part, TupleView build, TupleView probe, Primitives& primitives, void* ranges, uint64_t* count,
             void* scratch, Stream& stream) {
    primitives.match_ranges(keys_alone(sides_.build_layout), build, keys_alone(sides_.probe_layout), probe, ranges,
                            row_bytes(parts_[part]), count, scratch, job_, stream);
    rows_[device] += build.size + probe.size;
  }
  void keep(size_t part, HostBuffer ranges, uint64_t count) {
    const JoinPart& of = parts_[part];
    found_.lists[part] = {count ? std::move(ranges) : HostBuffer(), row_bytes(of), count, of.build_begin, of.probe_begin};
    job_.add_done(of.rows());
  }

  Engine& engine_;
  const SortedSides& sides_;
  const std::vector<JoinPart>& parts_;
  const size_t per_device_;
  Job& job_;
  PartMatches found_;

 private:
  std::vector<uint64_t> rows_;  // that each device matched
};

/// Devices that read the keys where they are and write the ranges where they belong, on a few streams each.
class HostMatching : public Matching {
 public:
  using Matching::Matching;

  void run(const std::vector<Device*>& devices) {
    std::vector<std::array<Lane, kStreams>> lanes(devices.size());
    for (size_t g = 0; g < devices.size(); ++g) {
      for (Lane& lane : lanes[g]) lane.stream = devices[g]->create_stream();
    }
    for (size_t n = 0; n < per_device_; ++n) {
      for (size_t g = 0; g < devices.size(); ++g) {
        Lane& lane = lanes[g][n % kStreams];
        finish(lane);
        if (const auto part = part_of(g, n)) start(lane, g, *part, devices[g]->primitives());
      }
    }
    for (auto& of_device : lanes) {
      for (Lane& lane : of_device) finish(lane);
    }
  }

 private:
  /// The stream comes last: it waits for its work before what that refers to goes.
  struct Lane {
    HostBuffer ranges;
    uint64_t count = 0;
    std::optional<size_t> part;  // under way
    std::unique_ptr<Stream> stream;
  };

  void start(Lane& lane, size_t device, size_t part, Primitives& primitives) {
    const JoinPart& of = parts_[part];
    // As many as there can be; what was too much goes back when the lane is done, before it takes the next part.
    lane.ranges = engine_.memory->allocate(range_bytes(of, most_ranges(of)), kRanges);
    match(device, part, build(of), probe(of), primitives, lane.ranges.data(), &lane.count, nullptr, *lane.stream);
    lane.part = part;
  }

  void finish(Lane& lane) {
    if (!lane.part) return;
    lane.stream->synchronize();
    lane.ranges.shrink(range_bytes(parts_[*lane.part], lane.count));
    keep(*lane.part, std::move(lane.ranges), lane.count);
    lane.part.reset();
  }
};

/// Sizes of what a device beyond a link keeps, in bytes.
struct Room {
  size_t keys, ranges;  // of each slot
  size_t scratch;

  Room(Device& device, TupleLayout build_layout, TupleLayout probe_layout, uint64_t most_rows)
      : keys(StackAllocator::aligned(most_rows * build_layout.key_bytes) + StackAllocator::kAlignment),
        ranges(StackAllocator::aligned(most_rows / 2 * 4 * match_row_bytes(most_rows, 0))),
        scratch(StackAllocator::aligned(device.primitives().match_ranges_scratch_bytes(
            keys_alone(build_layout), most_rows / 2, keys_alone(probe_layout), most_rows - most_rows / 2))) {}

  size_t bytes() const { return kSlots * (keys + ranges) + scratch; }
};

/// Devices beyond a link, in steps: while the keys of one part arrive, the one before is matched, and the ranges of the one
/// before that go home. As many go home as were found.
class LinkMatching : public Matching {
 public:
  using Matching::Matching;

  void run(const std::vector<Device*>& devices, uint64_t most_rows, bool count_only) {
    std::vector<Lane> lanes;
    lanes.reserve(devices.size());
    for (Device* device : devices) {
      lanes.emplace_back(*device, Room(*device, sides_.build_layout, sides_.probe_layout, most_rows));
    }
    for (size_t step = 0; step < per_device_ + 2; ++step) {
      std::vector<HostQueue> queues;
      std::vector<Stream*> streams;
      for (size_t g = 0; g < lanes.size(); ++g) {
        Lane& lane = lanes[g];
        streams.push_back(lane.compute.get());
        if (const auto part = part_of(g, step)) arrive(lane, step, *part, queues);
        if (step < 1) continue;
        if (const auto part = part_of(g, step - 1)) start(lane, g, step - 1, *part);
        if (step < 2) continue;
        if (const auto part = part_of(g, step - 2)) {
          if (count_only && row_bytes(parts_[*part]) == sizeof(uint32_t)) {
            add_up(lane, step - 2, *part);
          } else {
            leave(lane, step - 2, *part, queues);
          }
        }
      }
      transfer(engine_, queues, job_);
      synchronize_all(streams);
    }
  }

 private:
  struct Slot {
    Buffer keys, ranges;
    TupleView build, probe;
    uint64_t count = 0;
  };
  /// The stream comes last: it waits for its work before what that refers to goes.
  struct Lane {
    Device* device;
    Slot slots[kSlots];
    Buffer scratch;
    std::unique_ptr<Stream> compute;

    Lane(Device& on, const Room& room) : device(&on), compute(on.create_stream()) {
      const auto allocate = [&](size_t bytes) { return bytes ? on.memory().allocate(bytes) : Buffer(); };
      on.memory().reserve(room.bytes());
      for (Slot& slot : slots) {
        slot.keys = allocate(room.keys);
        slot.ranges = allocate(room.ranges);
      }
      scratch = allocate(room.scratch);
    }
  };

  void arrive(Lane& lane, size_t n, size_t part, std::vector<HostQueue>& queues) {
    Slot& slot = lane.slots[n % kSlots];
    const TupleView from_build = build(parts_[part]), from_probe = probe(parts_[part]);
    const size_t key_bytes = sides_.build_layout.key_bytes, build_bytes = from_build.size * key_bytes;
    slot.build = {slot.keys.data(), nullptr, 0, from_build.size};
    slot.probe = {slot.keys.as<char>() + StackAllocator::aligned(build_bytes), nullptr, 0, from_probe.size};
    HostCopy copy;
    copy.stretches.push_back({slot.keys.data(), from_build.keys, build_bytes});
    copy.stretches.push_back(
        {slot.keys.as<char>() + StackAllocator::aligned(build_bytes), from_probe.keys, from_probe.size * key_bytes});
    add(queues, lane, HostQueue::Direction::to_device, std::move(copy));
  }

  void start(Lane& lane, size_t device, size_t n, size_t part) {
    Slot& slot = lane.slots[n % kSlots];
    match(device, part, slot.build, slot.probe, lane.device->primitives(), slot.ranges.data(), &slot.count, lane.scratch.data(),
          *lane.compute);
  }

  void leave(Lane& lane, size_t n, size_t part, std::vector<HostQueue>& queues) {
    const Slot& slot = lane.slots[n % kSlots];
    const size_t bytes = range_bytes(parts_[part], slot.count);
    HostBuffer ranges = engine_.memory->allocate(bytes, kRanges);
    HostCopy copy;
    copy.stretches.push_back({ranges.data(), slot.ranges.data(), bytes});
    add(queues, lane, HostQueue::Direction::to_host, std::move(copy));
    keep(part, std::move(ranges), slot.count);
  }

  void add_up(Lane& lane, size_t n, size_t part) {
    const Slot& slot = lane.slots[n % kSlots];
    keep(part, {}, slot.count);
    lane.device->primitives().sum_ranges(slot.ranges.as<NarrowMatchRange>(), slot.count, &found_.lists[part].sums, job_,
                                         *lane.compute);
  }

  static void add(std::vector<HostQueue>& queues, const Lane& lane, HostQueue::Direction direction, HostCopy copy) {
    HostQueue& queue = queues.emplace_back();
    queue.device = lane.device;
    queue.direction = direction;
    queue.copies.push_back(std::move(copy));
  }
};

}  // namespace

size_t parts_beyond_link(uint64_t rows, uint8_t key_bytes, size_t devices) {
  const uint64_t share = rows / devices + 1;
  const uint64_t part = std::clamp<uint64_t>(share / kParts, kLeastPart, kPartBytes / key_bytes);
  return static_cast<size_t>((share + part - 1) / part);
}

PartMatches match_parts(Engine& engine, const std::vector<Device*>& devices, const SortedSides& sides,
                        const std::vector<JoinPart>& parts, size_t per_device, uint64_t most_rows, bool count_only, Job& job) {
  if (all_address_host_memory(devices)) {
    HostMatching matching(engine, sides, parts, devices.size(), per_device, job);
    matching.run(devices);
    return matching.take();
  }
  // Parts of keys in order are no larger: those of a caller may have changed since they were looked at.
  if (std::any_of(parts.begin(), parts.end(), [&](const JoinPart& part) { return part.rows() > most_rows; }))
    throw InputChanged();
  LinkMatching matching(engine, sides, parts, devices.size(), per_device, job);
  matching.run(devices, most_rows, count_only);
  return matching.take();
}

size_t match_parts_bytes(Device& device, TupleLayout build_layout, TupleLayout probe_layout, uint64_t most_rows) {
  return Room(device, build_layout, probe_layout, most_rows).bytes();
}

}  // namespace warpjoin
