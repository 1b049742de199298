#include "join/match_parts.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "flow/budget.h"
#include "flow/lanes.h"
#include "flow/steps.h"
#include "primitives/primitives.h"
#include "transfer/arrival.h"
#include "transfer/host_transfer.h"

namespace warpjoin {
namespace {

constexpr size_t kPartBytes = size_t{128} << 20;    // of keys: enough for their blocks to keep a link busy
constexpr uint64_t kLeastPart = uint64_t{1} << 20;  // rows: a step takes longer than less of them
constexpr uint64_t kParts = 16;                     // of a device at least, for there are two steps more than parts
constexpr size_t kStreams = 3;                      // of a host device
constexpr size_t kSlots = 2;                        // of a device beyond a link: one arrives or leaves, one is matched

constexpr const char* kRanges = "the match ranges of a merge join";

uint64_t most_ranges(const MergePart& part) { return std::min(part.build_rows(), part.probe_rows()); }

uint8_t row_bytes(const MergePart& part) { return match_row_bytes(part.build_rows(), part.probe_rows()); }

size_t range_bytes(const MergePart& part, uint64_t ranges) { return ranges * 4 * row_bytes(part); }

TupleLayout keys_alone(TupleLayout layout) { return {layout.key_bytes, 0}; }

TupleView keys_of(TupleLayout layout, const TupleView& side, uint64_t begin, uint64_t end) {
  return {static_cast<const char*>(side.keys) + begin * layout.key_bytes, nullptr, 0, end - begin};
}

/// What parts and devices there are, and what was found.
class Matching {
 public:
  Matching(Engine& engine, const SortedSides& sides, const std::vector<MergePart>& parts, size_t devices, size_t per_device,
           Job& job)
      : engine_(engine), sides_(sides), parts_(parts), per_device_(per_device), job_(job), rows_(devices) {
    found_.lists.resize(parts.size());
    for (const MergePart& part : parts) {
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
  TupleView build(const MergePart& part) const {
    return keys_of(sides_.build_layout, sides_.build, part.build_begin, part.build_end);
  }
  TupleView probe(const MergePart& part) const {
    return keys_of(sides_.probe_layout, sides_.probe, part.probe_begin, part.probe_end);
  }
  void match(size_t device, size_t part, TupleView build, TupleView probe, Primitives& primitives, void* ranges, uint64_t* count,
             void* scratch, Stream& stream) {
    primitives.match_ranges(keys_alone(sides_.build_layout), build, keys_alone(sides_.probe_layout), probe, ranges,
                            row_bytes(parts_[part]), count, scratch, job_, stream);
    rows_[device] += build.size + probe.size;
  }
  void keep(size_t part, HostBuffer ranges, uint64_t count) {
    const MergePart& of = parts_[part];
    found_.lists[part] = {count ? std::move(ranges) : HostBuffer(), row_bytes(of), count, of.build_begin, of.probe_begin};
    job_.add_done(of.rows());
  }

  Engine& engine_;
  const SortedSides& sides_;
  const std::vector<MergePart>& parts_;
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
    flow::Lanes<PartsUnderWay> lanes(devices, kStreams, [](Device&, size_t) { return PartsUnderWay(); });
    for (size_t n = 0; n < per_device_; ++n) {
      for (size_t g = 0; g < lanes.size(); ++g) {
        finish(lanes[g], n % kStreams);
        if (const auto part = part_of(g, n)) start(lanes[g], n % kStreams, g, *part);
      }
    }
    for (auto& lane : lanes) {
      for (size_t s = 0; s < kStreams; ++s) finish(lane, s);
    }
  }

 private:
  struct PartUnderWay {
    HostBuffer ranges;
    uint64_t count = 0;
    std::optional<size_t> part;
  };
  struct PartsUnderWay {
    std::array<PartUnderWay, kStreams> of_stream;
  };
  using Lane = flow::Lane<PartsUnderWay>;

  void start(Lane& lane, size_t stream, size_t device, size_t part) {
    const MergePart& of = parts_[part];
    PartUnderWay& begun = lane.of_stream[stream];
    // As many as there can be; what was too much goes back when the part is done, before the stream takes the next one.
    begun.ranges = engine_.memory->allocate(range_bytes(of, most_ranges(of)), kRanges);
    match(device, part, build(of), probe(of), lane.primitives(), begun.ranges.data(), &begun.count, nullptr, lane.stream(stream));
    begun.part = part;
  }

  void finish(Lane& lane, size_t stream) {
    PartUnderWay& done = lane.of_stream[stream];
    if (!done.part) return;
    lane.stream(stream).synchronize();
    done.ranges.shrink(range_bytes(parts_[*done.part], done.count));
    keep(*done.part, std::move(done.ranges), done.count);
    done.part.reset();
  }
};

/// What a device beyond a link keeps, for parts of up to `most_rows` rows.
struct Room {
  struct Slot {
    Buffer keys, ranges;
    TupleView build{}, probe{};
    uint64_t count = 0;
  };
  std::vector<Slot> slots;
  Buffer scratch;

  Room(StackAllocator& memory, Primitives& primitives, TupleLayout build_layout, TupleLayout probe_layout, uint64_t most_rows) {
    for (size_t s = 0; s < kSlots; ++s) {
      Buffer keys = allocate(memory, StackAllocator::aligned(most_rows * build_layout.key_bytes) + StackAllocator::kAlignment);
      slots.push_back({std::move(keys), allocate(memory, most_rows / 2 * 4 * match_row_bytes(most_rows, 0))});
    }
    scratch = allocate(memory, primitives.match_ranges_scratch_bytes(keys_alone(build_layout), most_rows / 2,
                                                                     keys_alone(probe_layout), most_rows - most_rows / 2));
  }
};

/// Devices beyond a link, in steps: while the keys of one part arrive, the one before is matched, and the ranges of the one
/// before that go home. As many go home as were found.
class LinkMatching : public Matching {
 public:
  using Matching::Matching;

  void run(const std::vector<Device*>& devices, uint64_t most_rows, bool count_only) {
    flow::Lanes<Room> lanes(devices, 1, [&](Device& device, size_t) {
      device.memory().reserve(match_parts_bytes(device, sides_.build_layout, sides_.probe_layout, most_rows));
      return Room(device.memory(), device.primitives(), sides_.build_layout, sides_.probe_layout, most_rows);
    });
    const auto stage = [&](const auto& take) {
      return [&](size_t n, std::vector<HostQueue>& queues) {
        for (size_t g = 0; g < lanes.size(); ++g) {
          if (const auto part = part_of(g, n)) take(lanes[g], g, n, *part, queues);
        }
      };
    };
    const auto arrives = [&](Lane& lane, size_t, size_t n, size_t part, auto& queues) { arrive(lane, n, part, queues); };
    const auto starts = [&](Lane& lane, size_t g, size_t n, size_t part, auto&) { start(lane, g, n, part); };
    const auto leaves = [&](Lane& lane, size_t, size_t n, size_t part, auto& queues) {
      if (count_only && row_bytes(parts_[part]) == sizeof(uint32_t)) {
        add_up(lane, n, part);
      } else {
        leave(lane, n, part, queues);
      }
    };
    flow::run_steps(engine_, per_device_, {stage(arrives), stage(starts), stage(leaves)}, job_, [&] { lanes.wait(job_); });
  }

 private:
  using Lane = flow::Lane<Room>;

  void arrive(Lane& lane, size_t n, size_t part, std::vector<HostQueue>& queues) {
    Room::Slot& slot = lane.slots[n % kSlots];
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
    Room::Slot& slot = lane.slots[n % kSlots];
    match(device, part, slot.build, slot.probe, lane.primitives(), slot.ranges.data(), &slot.count, lane.scratch.data(),
          lane.stream());
  }

  void leave(Lane& lane, size_t n, size_t part, std::vector<HostQueue>& queues) {
    const Room::Slot& slot = lane.slots[n % kSlots];
    const size_t bytes = range_bytes(parts_[part], slot.count);
    HostBuffer ranges = engine_.memory->allocate(bytes, kRanges);
    HostCopy copy;
    copy.stretches.push_back({ranges.data(), slot.ranges.data(), bytes});
    add(queues, lane, HostQueue::Direction::to_host, std::move(copy));
    keep(part, std::move(ranges), slot.count);
  }

  void add_up(Lane& lane, size_t n, size_t part) {
    const Room::Slot& slot = lane.slots[n % kSlots];
    keep(part, {}, slot.count);
    lane.primitives().sum_ranges(slot.ranges.as<NarrowMatchRange>(), slot.count, &found_.lists[part].sums, job_, lane.stream());
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
                        const std::vector<MergePart>& parts, size_t per_device, uint64_t most_rows, bool count_only, Job& job) {
  if (all_address_host_memory(devices)) {
    HostMatching matching(engine, sides, parts, devices.size(), per_device, job);
    matching.run(devices);
    return matching.take();
  }
  // Parts of keys in order are no larger: those of a caller may have changed since they were looked at.
  if (std::any_of(parts.begin(), parts.end(), [&](const MergePart& part) { return part.rows() > most_rows; }))
    throw InputChanged();
  LinkMatching matching(engine, sides, parts, devices.size(), per_device, job);
  matching.run(devices, most_rows, count_only);
  return matching.take();
}

size_t match_parts_bytes(Device& device, TupleLayout build_layout, TupleLayout probe_layout, uint64_t most_rows) {
  return flow::counted_bytes(
      [&](StackAllocator& memory) { flow::count<Room>(memory, device.primitives(), build_layout, probe_layout, most_rows); });
}

}  // namespace warpjoin
