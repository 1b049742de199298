// Why ranges and not whole relations are sorted: docs/decisions/0007. A range of both relations fits a part of a device, no key
// is in two of them, and what one device makes of it is on its way home while it works on the next.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/threads.h"
#include "flow/budget.h"
#include "flow/lanes.h"
#include "flow/steps.h"
#include "join/match_lists.h"
#include "join/relation.h"
#include "primitives/primitives.h"
#include "sort/lanes.h"
#include "sort/parts.h"
#include "transfer/host_transfer.h"

namespace warpjoin {
namespace {

using sorting::KeyRanges;

constexpr size_t kPieceBytes = size_t{64} << 20;
constexpr size_t kSlots = 2;  // of a device: one range is sorted and matched, one goes home

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

/// How many tuples go together.
struct Sizes {
  OfSides<TupleLayout> layouts;
  uint64_t range, most;  // tuples that a part should have, and may have
  OfSides<uint64_t> share, piece;
  size_t pieces = 0;  // of all devices

  Sizes(const OfSides<TupleLayout>& of, const OfSides<uint64_t>& rows, size_t devices) : layouts(of) {
    const TupleLayout widest = layouts[layouts[0].value_bytes < layouts[1].value_bytes];
    const uint64_t all = rows[0] + rows[1];
    range = sorting::range_tuples(widest, all, devices);
    most = sorting::most_in_part(all, range);
    for (size_t s = 0; s < 2; ++s) {
      share[s] = share_begin(rows[s], devices, 1);
      piece[s] = piece_tuples(layouts[s], share[s], kPieceBytes);
      pieces += devices * static_cast<size_t>(share[s] / std::max<uint64_t>(piece[s], 1) + 1);
    }
  }
};

/// Device memory beside the chunks while tuples arrive and are partitioned.
struct Arrival {
  Buffer scratch;
  OfSides<std::vector<OwnedTuples>> slots;

  Arrival(StackAllocator& memory, Primitives& primitives, const Sizes& sizes) {
    size_t bytes = 0;
    for (size_t s = 0; s < 2; ++s) {
      bytes =
          std::max(bytes, primitives.partition_ranges_scratch_bytes(sizes.layouts[s], sizes.piece[s], Primitives::kMostRanges));
      for (size_t i = 0; i < kArrivalSlots; ++i) slots[s].emplace_back(memory, sizes.layouts[s], sizes.piece[s]);
    }
    scratch = allocate(memory, bytes);
  }
};

/// Device memory beside the chunks while parts are made.
struct Making {
  struct Slot {
    Buffer a, b, ranges;
    OfSides<TupleSpan> sorted{};
    uint64_t count = 0;  // of the ranges
  };
  std::vector<Slot> slots;
  Buffer scratch, table;

  Making(StackAllocator& memory, Primitives& primitives, const Sizes& sizes) {
    const size_t part = part_bytes(sizes.layouts, sizes.most);
    for (size_t i = 0; i < kSlots; ++i) {
      Buffer a = allocate(memory, part), b = allocate(memory, part);
      slots.push_back({std::move(a), std::move(b), allocate(memory, sizes.most / 2 * 4 * match_row_bytes(sizes.most, 0))});
    }
    size_t bytes =
        primitives.match_ranges_scratch_bytes(sizes.layouts[0], sizes.most / 2, sizes.layouts[1], sizes.most - sizes.most / 2);
    for (const TupleLayout& layout : sizes.layouts) bytes = std::max(bytes, primitives.sort_scratch_bytes(layout, sizes.most));
    scratch = allocate(memory, bytes);
    table = allocate(memory, primitives.concatenate_scratch_bytes(sizes.pieces));
  }
};

size_t device_bytes(Device& device, const Sizes& sizes) {
  return flow::counted_bytes([&](StackAllocator& memory) {
    const OwnedTuples build(memory, sizes.layouts[0], sizes.share[0]), probe(memory, sizes.layouts[1], sizes.share[1]);
    flow::count<Arrival>(memory, device.primitives(), sizes);
    flow::count<Making>(memory, device.primitives(), sizes);
  });
}

/// A device's share of both relations, and later of the result.
struct JointShare {
  OfSides<OwnedTuples> chunk;
  OfSides<Events> slot_free;
  OfSides<std::vector<Piece>> pieces{};
  std::vector<JointPart> parts{};
  std::optional<Arrival> arrival{};
  std::optional<Making> making{};
};
using Lane = flow::Lane<JointShare>;

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
        sizes_(layouts_, rows(), devices.size()),
        lanes_(devices, 1, [&](Device& device, size_t g) { return share(device, g, devices.size()); }) {}

  uint64_t most_in_part() const { return sizes_.most; }

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
  JointShare share(Device& device, size_t g, size_t devices) const {
    device.memory().reserve(device_bytes(device, sizes_));
    JointShare share{};
    for (size_t s = 0; s < 2; ++s) {
      const TupleView& in = sides_[s].in;
      const uint64_t begin = share_begin(in.size, devices, g), end = share_begin(in.size, devices, g + 1);
      share.chunk[s] = OwnedTuples(device.memory(), layouts_[s], end - begin);
      share.slot_free[s] = create_events(device, kArrivalSlots);
      for (uint64_t at = begin; at < end; at += sizes_.piece[s]) {
        const uint64_t last = std::min(end, at + sizes_.piece[s]);
        share.pieces[s].push_back(
            {in.slice(layouts_[s], at, last), share.chunk[s].span.slice(layouts_[s], at - begin, last - begin), {}});
      }
    }
    return share;
  }

  OfSides<uint64_t> rows() const { return {sides_[0].in.size, sides_[1].in.size}; }
  uint64_t bytes() const { return sides_[0].in.size * layouts_[0].tuple_bytes() + sides_[1].in.size * layouts_[1].tuple_bytes(); }

  /// By a sample of both relations.
  KeyRanges choose(uint64_t oversampling) const {
    const size_t most = sorting::ranges_of(size_, sizes_.range);
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
    for (Lane& lane : lanes_) {
      lane.making.reset();
      lane.arrival.emplace(lane.memory(), lane.primitives(), sizes_);
      queues.push_back(one_after_the_other(arrival(lane, 0, chosen), arrival(lane, 1, chosen)));
    }
    transfer(engine_, queues, job_);
    chosen.get();
    lanes_.wait(job_);
    for (Lane& lane : lanes_) lane.arrival.reset();
  }

  HostQueue arrival(Lane& lane, size_t s, const std::shared_future<void>& chosen) {
    return arrival_of(*lane.device, layouts_[s], lane.pieces[s], lane.arrival->slots[s], lane.slot_free[s], lane.stream(),
                      [this, &lane, s, chosen](Piece& piece, const TupleView& arrived) {
                        chosen.get();
                        sorting::partition_piece(lane.primitives(), layouts_[s], arrived, ranges_, piece.out, piece.offsets,
                                                 lane.arrival->scratch.data(), job_, lane.stream());
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
        const size_t g = static_cast<size_t>(&lane - &lanes_[0]);
        const uint64_t rows = std::min({range.size[s] - at, most_in_part(), share_begin(size_, lanes_.size(), g + 1) - row});
        JointPart part{range.range, true, range.begin, {}, {}};
        part.begin[s] += at;
        part.size[s] = rows;
        part.from[s] = cut(layouts_[s], range.from[s], at, rows);
        lane.parts.push_back(std::move(part));
        at += rows;
        row += rows;
      }
    }
  }

  /// While devices make their next parts, those before go home, with as many match ranges as there are, or are counted.
  void make_parts() {
    size_t most_parts = 0;
    for (Lane& lane : lanes_) {
      lane.making.emplace(lane.memory(), lane.primitives(), sizes_);
      most_parts = std::max(most_parts, lane.parts.size());
    }
    const auto make_all = [&](size_t k, std::vector<HostQueue>&) {
      engine_.pool.parallel_for(lanes_.size(), [&](uint64_t g) {
        Lane& lane = lanes_[g];
        if (k < lane.parts.size()) make(lane, lane.parts[k], lane.making->slots[k % kSlots]);
      });
    };
    const auto send_home = [&](size_t k, std::vector<HostQueue>& queues) {
      for (Lane& lane : lanes_) {
        if (k < lane.parts.size()) queues.push_back(way_home(lane, lane.parts[k], lane.making->slots[k % kSlots]));
      }
    };
    flow::run_steps(engine_, most_parts, {make_all, send_home}, job_, [&] { lanes_.wait(job_); });
  }

  /// Collects, sorts and matches a part.
  void make(Lane& lane, const JointPart& part, Making::Slot& slot) {
    Primitives& primitives = lane.primitives();
    const OfSides<TupleSpan> a = spans_of(slot.a, layouts_, part.size), b = spans_of(slot.b, layouts_, part.size);
    for (size_t s = 0; s < 2; ++s) {
      primitives.concatenate(layouts_[s], part.from[s], a[s], lane.making->table.data(), job_, lane.stream());
      const uint64_t bits = ranges_.varying_bits(part.range, sides_[s].varying_bits);
      slot.sorted[s] =
          bits ? primitives.sort(layouts_[s], a[s].view(), a[s], b[s], bits, lane.making->scratch.data(), job_, lane.stream())
               : a[s];
    }
    slot.count = 0;
    if (part.one_key) return;
    const auto keys = [](const TupleSpan& tuples) { return TupleView{tuples.keys, nullptr, 0, tuples.size}; };
    primitives.match_ranges({layouts_[0].key_bytes, 0}, keys(slot.sorted[0]), {layouts_[1].key_bytes, 0}, keys(slot.sorted[1]),
                            slot.ranges.data(), match_row_bytes(part.size[0], part.size[1]), &slot.count,
                            lane.making->scratch.data(), job_, lane.stream());
  }

  /// Match ranges that are only counted are added up on the device.
  HostQueue way_home(Lane& lane, const JointPart& part, const Making::Slot& slot) {
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
      lane.primitives().sum_ranges(slot.ranges.as<NarrowMatchRange>(), slot.count, &lists_[part.range].sums, job_, lane.stream());
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

  Engine& engine_;
  const OfSides<SideIn>& sides_;
  const OfSides<TupleLayout> layouts_;
  const uint64_t size_;
  OfSides<Home>& home_;
  const bool count_only_;
  Job& job_;
  KeyRanges ranges_;
  std::vector<MatchList> lists_;  // of each range
  const Sizes sizes_;
  flow::Lanes<JointShare> lanes_;
};

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
    sides[s] = {wanted_layout(side.tuples.layout, wanted), side.tuples.view, known ? side.tuples.varying_bits : ~uint64_t{0}};
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
  const OfSides<TupleLayout> layouts{wanted_layout(left, wants_left(request)), wanted_layout(right, wants_right(request))};
  const Sizes sizes(layouts, {left_rows, right_rows}, devices);
  size_t most = 0;
  for (const auto& device : engine.devices) most = std::max(most, device_bytes(*device, sizes));
  return most;
}

}  // namespace warpjoin
