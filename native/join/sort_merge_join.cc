// Why ranges and not whole relations are sorted: docs/decisions/0007. A range of both relations fits a part of a device, no key
// is in two of them, and what one device makes of it is on its way home while it works on the next.
#include <algorithm>
#include <array>
#include <memory>

#include "core/threads.h"
#include "device/streams.h"
#include "join/match_lists.h"
#include "primitives/primitives.h"
#include "sort/lanes.h"
#include "sort/parts.h"
#include "transfer/host_transfer.h"

namespace warpjoin {
namespace {

using sorting::KeyRanges;

constexpr size_t kPieceBytes = size_t{64} << 20;
constexpr size_t kSlots = 2;  // of a device: one range is sorted and matched, one goes home

template <class T>
using OfSides = std::array<T, 2>;  // build, probe

/// A relation as it goes through the devices.
struct SideIn {
  TupleLayout layout;  // without values where none are wanted
  TupleView in;
  uint64_t varying_bits;
};

/// What one device makes at a time: a range of both relations, or a stretch of one of them whose keys are all equal.
struct JointPart {
  size_t range;
  bool one_key;
  OfSides<uint64_t> begin, size;  // in the sorted relations
  OfSides<std::vector<TupleView>> from;

  uint64_t rows() const { return size[0] + size[1]; }
};

/// Memory for the tuples of parts, of which all together have at most `most`.
size_t part_bytes(const OfSides<TupleLayout>& layouts, uint64_t most) {
  const uint8_t value_bytes = std::max(layouts[0].value_bytes, layouts[1].value_bytes);
  return StackAllocator::aligned(most * layouts[0].key_bytes) + StackAllocator::aligned(most * value_bytes) +
         2 * StackAllocator::kAlignment;
}

OfSides<TupleSpan> spans_of(const Buffer& buffer, const OfSides<TupleLayout>& layouts, const OfSides<uint64_t>& sizes) {
  char* at = buffer.as<char>();
  const auto take = [&](size_t bytes) { return std::exchange(at, at + StackAllocator::aligned(bytes)); };
  OfSides<TupleSpan> spans;
  for (size_t s = 0; s < 2; ++s) spans[s] = {take(sizes[s] * layouts[s].key_bytes), nullptr, sizes[s]};
  for (size_t s = 0; s < 2; ++s) {
    if (layouts[s].value_bytes) spans[s].values = take(sizes[s] * layouts[s].value_bytes);
  }
  return spans;
}

/// Bytes on a device, at most.
struct Room {
  uint64_t range, most;  // tuples that a part should have, and may have
  OfSides<uint64_t> share, piece;
  size_t chunks, slots, partition_scratch;                  // while tuples arrive
  size_t part, ranges, sort_scratch, match_scratch, table;  // while parts are made

  Room(Device& device, const OfSides<TupleLayout>& layouts, const OfSides<uint64_t>& rows, size_t devices) {
    const TupleLayout widest = layouts[layouts[0].value_bytes < layouts[1].value_bytes];
    const uint64_t all = rows[0] + rows[1];
    range = sorting::range_tuples(widest, all, devices);
    most = sorting::most_in_part(all, range);
    chunks = slots = partition_scratch = sort_scratch = table = 0;
    Primitives& primitives = device.primitives();
    size_t pieces = 0;
    for (size_t s = 0; s < 2; ++s) {
      share[s] = share_begin(rows[s], devices, 1);
      piece[s] = piece_tuples(layouts[s], share[s], kPieceBytes);
      pieces += devices * static_cast<size_t>(share[s] / std::max<uint64_t>(piece[s], 1) + 1);
      chunks += OwnedTuples::bytes(layouts[s], share[s]);
      slots += kArrivalSlots * OwnedTuples::bytes(layouts[s], piece[s]);
      partition_scratch =
          std::max(partition_scratch, primitives.partition_ranges_scratch_bytes(layouts[s], piece[s], Primitives::kMostRanges));
      sort_scratch = std::max(sort_scratch, primitives.sort_scratch_bytes(layouts[s], most));
    }
    part = part_bytes(layouts, most);
    ranges = most / 2 * 4 * match_row_bytes(most, 0);
    match_scratch = primitives.match_ranges_scratch_bytes(layouts[0], most / 2, layouts[1], most - most / 2);
    table = primitives.concatenate_scratch_bytes(pieces);
  }

  size_t scratch() const { return std::max(sort_scratch, match_scratch); }
  size_t bytes() const {
    const auto aligned = StackAllocator::aligned;
    return chunks + std::max(slots + aligned(partition_scratch),
                             kSlots * (2 * aligned(part) + aligned(ranges)) + aligned(scratch()) + aligned(table));
  }
};

/// One device's work. Streams come last: they wait for their work before what it refers to goes.
struct Lane {
  struct Slot {
    Buffer a, b, ranges;
    OfSides<TupleSpan> sorted;
    uint64_t count = 0;  // of the ranges
  };

  Device* device = nullptr;
  OfSides<OwnedTuples> chunk;
  OfSides<std::vector<Piece>> pieces;
  OfSides<std::vector<OwnedTuples>> arriving;
  OfSides<std::array<std::unique_ptr<Event>, kArrivalSlots>> slot_free;
  std::vector<JointPart> parts;
  std::array<Slot, kSlots> slots;
  Buffer scratch, table;
  std::unique_ptr<Stream> compute;

  Primitives& primitives() const { return device->primitives(); }
};

/// Where sorted tuples go: keys where they are wanted, values where tuples have some.
struct Home {
  HostBuffer keys, values;
  TupleView view(uint64_t size) const { return {keys.data(), values.data(), 0, size}; }
};

class SortMergeJoin {
 public:
  SortMergeJoin(Engine& engine, const std::vector<Device*>& devices, const OfSides<SideIn>& sides, OfSides<Home>& home,
                bool count_only, Job& job)
      : engine_(engine),
        sides_(sides),
        layouts_{sides[0].layout, sides[1].layout},
        size_(sides[0].in.size + sides[1].in.size),
        home_(home),
        count_only_(count_only),
        job_(job),
        lanes_(devices.size()) {
    for (size_t g = 0; g < devices.size(); ++g) {
      Lane& lane = lanes_[g];
      const Room& room = rooms_.emplace_back(*devices[g], layouts_, rows(), devices.size());
      lane.device = devices[g];
      lane.device->memory().reserve(room.bytes());
      for (size_t s = 0; s < 2; ++s) {
        const TupleView& in = sides_[s].in;
        const uint64_t begin = share_begin(in.size, devices.size(), g), end = share_begin(in.size, devices.size(), g + 1);
        lane.chunk[s] = OwnedTuples(*lane.device, layouts_[s], end - begin);
        for (uint64_t at = begin; at < end; at += room.piece[s]) {
          const uint64_t last = std::min(end, at + room.piece[s]);
          lane.pieces[s].push_back(
              {in.slice(layouts_[s], at, last), lane.chunk[s].span.slice(layouts_[s], at - begin, last - begin), {}});
        }
        for (auto& event : lane.slot_free[s]) event = lane.device->create_event();
      }
      lane.compute = lane.device->create_stream();
    }
  }

  /// Before any lane's memory goes: the others read it.
  ~SortMergeJoin() {
    for (Lane& lane : lanes_) lane.compute.reset();
  }

  uint64_t most_in_part() const { return rooms_[0].most; }

  /// False where a part would be larger than there is room for: the ranges come from too small a sample.
  bool run(uint64_t oversampling) {
    {
      const PhaseTimer timer(job_, "partition", 2 * bytes());
      partition(oversampling);
    }
    if (!assign_parts()) return false;
    const PhaseTimer timer(job_, "sort and match", 2 * bytes());
    make_parts();
    return true;
  }

  /// In ascending order.
  std::vector<MatchList> take_lists() { return std::move(lists_); }

  double skew() const {
    uint64_t most = 0;
    for (const Lane& lane : lanes_) {
      uint64_t own = 0;
      for (const JointPart& part : lane.parts) own += part.rows();
      most = std::max(most, own);
    }
    return static_cast<double>(most) * static_cast<double>(lanes_.size()) / static_cast<double>(size_);
  }

 private:
  OfSides<uint64_t> rows() const { return {sides_[0].in.size, sides_[1].in.size}; }
  uint64_t bytes() const { return sides_[0].in.size * layouts_[0].tuple_bytes() + sides_[1].in.size * layouts_[1].tuple_bytes(); }

  /// By a sample of both relations.
  KeyRanges choose(uint64_t oversampling) const {
    const size_t most = sorting::ranges_of(size_, rooms_[0].range);
    const uint64_t wanted = std::min(size_, most * oversampling);
    std::vector<uint64_t> keys;
    for (const SideIn& side : sides_) {
      const auto own =
          static_cast<uint64_t>(static_cast<double>(wanted) * static_cast<double>(side.in.size) / static_cast<double>(size_));
      const std::vector<uint64_t> sampled =
          sorting::sampled_keys(engine_.pool, side.layout, side.in, 0, std::min(own, side.in.size));
      keys.insert(keys.end(), sampled.begin(), sampled.end());
    }
    std::sort(keys.begin(), keys.end());
    return KeyRanges::of_sample(layouts_[0], keys, most);
  }

  /// Takes each device's shares to it, the build relation's first, and partitions every piece as soon as it is there. Ranges are
  /// chosen while the first ones are on the link.
  void partition(uint64_t oversampling) {
    const std::shared_future<void> chosen = run_beside([&] { ranges_ = choose(oversampling); });
    std::vector<HostQueue> queues;
    for (size_t g = 0; g < lanes_.size(); ++g) {
      Lane& lane = lanes_[g];
      const Room& room = rooms_[g];
      lane.slots = {};
      lane.table = {};
      lane.scratch = {};
      lane.scratch = allocate(*lane.device, room.partition_scratch);
      queues.push_back(one_after_the_other(arrival(lane, room, 0, chosen), arrival(lane, room, 1, chosen)));
    }
    transfer(engine_, queues, job_);
    chosen.get();
    wait();
    for (Lane& lane : lanes_) lane.arriving = {};
  }

  HostQueue arrival(Lane& lane, const Room& room, size_t s, const std::shared_future<void>& chosen) {
    for (size_t i = 0; i < kArrivalSlots; ++i) lane.arriving[s].emplace_back(*lane.device, layouts_[s], room.piece[s]);
    return arrival_of(*lane.device, layouts_[s], lane.pieces[s], lane.arriving[s], lane.slot_free[s], *lane.compute,
                      [this, &lane, s, chosen](Piece& piece, const TupleView& arrived) {
                        chosen.get();
                        sorting::partition_piece(lane.primitives(), layouts_[s], piece, arrived, ranges_, lane.scratch.data(),
                                                 job_, *lane.compute);
                      });
  }

  /// Every range goes to the device whose equal share of both relations it falls into; one key's rows may go to several.
  bool assign_parts() {
    lists_.clear();
    lists_.resize(ranges_.size());
    for (Lane& lane : lanes_) lane.parts.clear();
    OfSides<uint64_t> begin{};
    size_t device = 0;
    const auto device_at = [&](uint64_t row) -> Lane& {
      while (share_begin(size_, lanes_.size(), device + 1) <= row) ++device;
      return lanes_[device];
    };
    for (size_t r = 0; r < ranges_.size(); ++r) {
      JointPart range{r, ranges_.varying_bits(r, ~uint64_t{0}) == 0, begin, {}, {}};
      for (size_t s = 0; s < 2; ++s) {
        for (const Lane& lane : lanes_) {
          for (const Piece& piece : lane.pieces[s]) {
            range.from[s].push_back(piece.range(layouts_[s], r));
            range.size[s] += range.from[s].back().size;
          }
        }
        begin[s] += range.size[s];
      }
      if (range.one_key) {
        cut_key(range, device_at);
      } else if (range.rows() > most_in_part()) {
        return false;
      } else if (range.rows()) {
        Lane& lane = device_at(range.begin[0] + range.begin[1] + range.rows() / 2);
        lane.parts.push_back(std::move(range));
      }
    }
    return true;
  }

  /// All rows of one key: a match range that needs no looking for, and values to bring home, in parts of one relation each.
  template <class DeviceAt>
  void cut_key(const JointPart& range, DeviceAt&& device_at) {
    if (range.size[0] && range.size[1]) {
      HostBuffer at = engine_.memory->allocate(sizeof(MatchRange), "the match ranges of a merge join");
      *at.as<MatchRange>() = {range.begin[0], range.begin[0] + range.size[0], range.begin[1], range.begin[1] + range.size[1]};
      lists_[range.range] = {std::move(at), sizeof(uint64_t), 1, 0, 0};
    }
    uint64_t row = range.begin[0] + range.begin[1];
    for (size_t s = 0; s < 2; ++s) {
      for (uint64_t at = 0; at < range.size[s];) {
        Lane& lane = device_at(row);
        const size_t g = static_cast<size_t>(&lane - lanes_.data());
        const uint64_t rows = std::min({range.size[s] - at, most_in_part(), share_begin(size_, lanes_.size(), g + 1) - row});
        JointPart part{range.range, true, range.begin, {}, {}};
        part.begin[s] += at;
        part.size[s] = rows;
        part.from[s] = sorting::cut(layouts_[s], range.from[s], at, rows);
        lane.parts.push_back(std::move(part));
        at += rows;
        row += rows;
      }
    }
  }

  /// In steps: while devices make their next parts, those before go home, with as many match ranges as there are, or are counted.
  void make_parts() {
    size_t most_parts = 0;
    std::vector<Stream*> streams;
    for (size_t g = 0; g < lanes_.size(); ++g) {
      Lane& lane = lanes_[g];
      const Room& room = rooms_[g];
      lane.scratch = {};
      for (Lane::Slot& slot : lane.slots) {
        slot.a = allocate(*lane.device, room.part);
        slot.b = allocate(*lane.device, room.part);
        slot.ranges = allocate(*lane.device, room.ranges);
      }
      lane.scratch = allocate(*lane.device, room.scratch());
      lane.table = allocate(*lane.device, room.table);
      most_parts = std::max(most_parts, lane.parts.size());
      streams.push_back(lane.compute.get());
    }
    for (size_t step = 0; step <= most_parts; ++step) {
      engine_.pool.parallel_for(lanes_.size(), [&](uint64_t g) {
        Lane& lane = lanes_[g];
        if (step < lane.parts.size()) make(lane, lane.parts[step], lane.slots[step % kSlots]);
      });
      std::vector<HostQueue> queues;
      for (Lane& lane : lanes_) {
        if (step > 0 && step <= lane.parts.size()) {
          queues.push_back(way_home(lane, lane.parts[step - 1], lane.slots[(step - 1) % kSlots]));
        }
      }
      transfer(engine_, queues, job_);
      wait();
    }
  }

  /// Collects, sorts and matches a part.
  void make(Lane& lane, const JointPart& part, Lane::Slot& slot) {
    Primitives& primitives = lane.primitives();
    const OfSides<TupleSpan> a = spans_of(slot.a, layouts_, part.size), b = spans_of(slot.b, layouts_, part.size);
    for (size_t s = 0; s < 2; ++s) {
      primitives.concatenate(layouts_[s], part.from[s], a[s], lane.table.data(), job_, *lane.compute);
      const uint64_t bits = ranges_.varying_bits(part.range, sides_[s].varying_bits);
      slot.sorted[s] =
          bits ? primitives.sort(layouts_[s], a[s].view(), a[s], b[s], bits, lane.scratch.data(), job_, *lane.compute) : a[s];
    }
    slot.count = 0;
    if (part.one_key) return;
    const auto keys = [](const TupleSpan& tuples) { return TupleView{tuples.keys, nullptr, 0, tuples.size}; };
    primitives.match_ranges({layouts_[0].key_bytes, 0}, keys(slot.sorted[0]), {layouts_[1].key_bytes, 0}, keys(slot.sorted[1]),
                            slot.ranges.data(), match_row_bytes(part.size[0], part.size[1]), &slot.count, lane.scratch.data(),
                            job_, *lane.compute);
  }

  /// Match ranges that are only counted are added up on the device.
  HostQueue way_home(Lane& lane, const JointPart& part, const Lane::Slot& slot) {
    HostCopy copy;
    const auto add = [&](const HostBuffer& to, uint64_t first, const void* from, uint64_t rows, size_t width) {
      if (to) copy.stretches.push_back({to.as<char>() + first * width, from, rows * width});
    };
    for (size_t s = 0; s < 2; ++s) {
      add(home_[s].keys, part.begin[s], slot.sorted[s].keys, part.size[s], layouts_[s].key_bytes);
      add(home_[s].values, part.begin[s], slot.sorted[s].values, part.size[s], layouts_[s].value_bytes);
    }
    const uint8_t row_bytes = match_row_bytes(part.size[0], part.size[1]);
    if (slot.count && count_only_ && row_bytes == sizeof(uint32_t)) {
      lists_[part.range].count = slot.count;
      lane.primitives().sum_ranges(slot.ranges.as<NarrowMatchRange>(), slot.count, &lists_[part.range].sums, job_, *lane.compute);
    } else if (slot.count) {
      HostBuffer ranges = engine_.memory->allocate(slot.count * 4 * row_bytes, "the match ranges of a merge join");
      add(ranges, 0, slot.ranges.data(), slot.count, size_t{4} * row_bytes);
      lists_[part.range] = {std::move(ranges), row_bytes, slot.count, part.begin[0], part.begin[1]};
    }
    job_.add_done(part.rows());
    HostQueue queue;
    queue.device = lane.device;
    queue.direction = HostQueue::Direction::to_host;
    queue.copies.push_back(std::move(copy));
    return queue;
  }

  void wait() {
    std::vector<Stream*> streams;
    for (Lane& lane : lanes_) streams.push_back(lane.compute.get());
    synchronize_all(streams);
    job_.check();
  }

  Engine& engine_;
  const OfSides<SideIn>& sides_;
  const OfSides<TupleLayout> layouts_;
  const uint64_t size_;
  OfSides<Home>& home_;
  const bool count_only_;
  Job& job_;
  KeyRanges ranges_;
  std::vector<MatchList> lists_;  // of each range
  std::vector<Room> rooms_;
  std::vector<Lane> lanes_;
};

/// The values of a side are wanted on the devices where the result has them.
TupleLayout layout_of(TupleLayout layout, bool wanted) { return {layout.key_bytes, wanted ? layout.value_bytes : uint8_t{0}}; }

JoinRows join_tuples(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const std::vector<int>& ordinals,
                     Job& job) {
  const std::vector<Device*> devices = engine.select(ordinals);
  if (devices.empty()) throw Error(ErrorCode::option, "A sort-merge join needs at least one device");
  if (sorting::runnable(SortAlgorithm::sample, engine, devices) != SortAlgorithm::sample) {
    throw Error(ErrorCode::not_supported, "A sort-merge join in joint memory needs devices with direct links");
  }
  const EncodedTuples &left = keys.left.tuples, &right = keys.right.tuples;
  const size_t left_side = request.build_left ? 0 : 1, right_side = 1 - left_side;
  OfSides<SideIn> sides;
  OfSides<Home> home;
  const auto prepare = [&](size_t s, const JoinSide& side, bool wanted) {
    // A caller's keys may change on their way: what they were says nothing of what arrives.
    const bool known = side.scanned && !side.tuples.borrowed_from;
    sides[s] = {layout_of(side.tuples.layout, wanted), side.tuples.view, known ? side.tuples.varying_bits : ~uint64_t{0}};
    if (!wanted) return;
    home[s].values =
        engine.memory->allocate(side.tuples.view.size * side.tuples.layout.value_bytes, "the values of a sorted side");
  };
  prepare(left_side, keys.left, wants_left(request));
  prepare(right_side, keys.right, wants_right(request));
  if (request.want_keys && !request.count_only) {
    home[left_side].keys = engine.memory->allocate(left.view.size * left.layout.key_bytes, "the keys of a sorted side");
  }
  const uint64_t size = left.view.size + right.view.size;
  job.add_planned(3 * size);
  std::vector<MatchList> lists;
  double skew = 1;
  if (size) {
    SortMergeJoin join(engine, devices, sides, home, request.count_only, job);
    sorting::sort_with_samples(join.most_in_part(), sides[0].layout,
                               [&](uint64_t oversampling) { return join.run(oversampling); });
    lists = join.take_lists();
    skew = join.skew();
  }
  JoinRows rows = rows_of_matches(engine, keys, request, home[left_side].view(left.view.size),
                                  home[right_side].view(right.view.size), std::move(lists), job);
  rows.skew = skew;
  return rows;
}

}  // namespace

JoinRows sort_merge_join(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const std::vector<int>& ordinals,
                         Job& job) {
  check_request(keys, request);
  return naming_columns({&keys.left.tuples, &keys.right.tuples},
                        [&] { return join_tuples(engine, keys, request, ordinals, job); });
}

size_t sort_merge_join_device_bytes(TupleLayout left, uint64_t left_rows, TupleLayout right, uint64_t right_rows, size_t devices,
                                    const JoinRequest& request, Engine& engine) {
  const OfSides<TupleLayout> layouts{layout_of(left, wants_left(request)), layout_of(right, wants_right(request))};
  size_t most = 0;
  for (const auto& device : engine.devices)
    most = std::max(most, Room(*device, layouts, {left_rows, right_rows}, devices).bytes());
  return most;
}

}  // namespace warpjoin
