// The sample sort of what the devices can't hold at a time: one pass partitions it by key range and spills the pieces to
// host memory, another takes range after range to a device, sorts it and sends it to its final place. Each pass moves every
// tuple once in each direction, both directions at the same time; nothing is merged. A pass is one transfer: pieces and ranges
// take turns in slots of the device's memory, and the next one comes to a slot as soon as the one before has left it.
#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "core/error.h"
#include "flow/budget.h"
#include "flow/lanes.h"
#include "flow/spilled_tuples.h"
#include "sort/lanes.h"
#include "sort/parts.h"
#include "sort/sample_sort.h"
#include "transfer/host_transfer.h"

namespace warpjoin::sorting {
namespace {

// Larger than in one pass: a range of a piece is a copy of its own on the way back.
constexpr size_t kSpillPieceBytes = size_t{256} << 20;
constexpr uint64_t kRanges = 64;
constexpr size_t kDepthHome = 2;  // copies of a link under way

/// Device memory beside the slots while pieces of up to `piece` tuples arrive and are partitioned into `ranges`.
struct Partitioning {
  std::vector<OwnedTuples> slots;
  Buffer scratch;

  Partitioning(StackAllocator& memory, Primitives& primitives, TupleLayout layout, uint64_t piece, size_t ranges) {
    for (size_t s = 0; s < kArrivalSlots; ++s) slots.emplace_back(memory, layout, piece);
    scratch = allocate(memory, primitives.partition_ranges_scratch_bytes(layout, piece, ranges));
  }
};

/// Device memory beside the slots while parts of up to `part` tuples are sorted in them.
struct RangeSorting {
  OwnedTuples other;
  Buffer scratch;

  RangeSorting(StackAllocator& memory, Primitives& primitives, TupleLayout layout, uint64_t part)
      : other(memory, layout, part), scratch(allocate(memory, primitives.sort_scratch_bytes(layout, part))) {}
};

enum SpillStream : size_t { kSpillCompute, kSpillLeave, kSpillStreams };

/// One device's work.
struct Spilling {
  OwnedTuples area;  // twice a device's share of a chunkset, cut into slots: of partitioned pieces, later of sorted parts
  std::optional<Partitioning> partitioning{};
  std::optional<RangeSorting> sorting{};
  Events arrived_free;
  std::vector<TupleView> pieces{};  // of the input
  std::vector<Part> parts{};
  Events ready{}, left{};  // of each slot: what is in it may go home, and has gone

  Spilling(StackAllocator& memory, TupleLayout layout, uint64_t area, Events of_arrivals)
      : area(memory, layout, 2 * area), arrived_free(std::move(of_arrivals)) {}
};
using SpillLane = flow::Lane<Spilling>;

/// Tuples that a range should hold: so many that a piece's part of it is worth a copy, but a device must hold three such ranges
/// in half of its share of a chunkset, `area`, and the first range goes home soon where there are kRanges of them.
uint64_t range_of(uint64_t tuples, uint64_t area) {
  const uint64_t finest = finest_range(tuples);
  return std::clamp(area / 6 - std::min<uint64_t>(area / 6, 1), finest, std::max(finest, tuples / kRanges));
}

uint64_t largest_of(const std::vector<uint64_t>& chunkset_ends) {
  uint64_t largest = 0, begin = 0;
  for (const uint64_t end : chunkset_ends) largest = std::max(largest, end - std::exchange(begin, end));
  return largest;
}

class SpilledSampleSort {
 public:
  SpilledSampleSort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, const TupleView& in,
                    const std::vector<uint64_t>& chunkset_ends, const TupleSpan& run, uint64_t varying_bits, Job& job)
      : engine_(engine),
        layout_(layout),
        in_(in),
        run_(run),
        varying_bits_(varying_bits),
        job_(job),
        area_(share_begin(largest_of(chunkset_ends), devices.size(), 1)),
        piece_(piece_tuples(layout, area_, kSpillPieceBytes)),
        range_(range_of(in.size, area_)),
        lanes_(devices, kSpillStreams, [&](Device& device, size_t) {
          device.memory().reserve(spilled_sample_sort_bytes(device, layout, largest_of(chunkset_ends), devices.size()));
          return Spilling(device.memory(), layout, area_, create_events(device, kArrivalSlots));
        }) {
    uint64_t begin = 0;
    for (const uint64_t end : chunkset_ends) {
      for (size_t i = 0; i < lanes_.size(); ++i) cut_pieces(lanes_[i], i, begin, end);
      begin = end;
    }
  }

  uint64_t most_in_part() const { return sorting::most_in_part(in_.size, range_); }
  size_t ranges() const { return ranges_of(in_.size, range_); }

  /// False where a part would be larger than there is room for: the ranges come from too small a sample.
  bool run(KeyRanges ranges) {
    ranges_ = std::move(ranges);
    spilled_.reset();
    spilled_.emplace(*engine_.memory, layout_, in_.size, "the spilled tuples of a sort");
    {
      PhaseTimer timer(job_, "partition", 2 * in_.size * layout_.tuple_bytes());
      spill_pieces();
    }
    if (!assign()) return false;
    PhaseTimer timer(job_, "sort", 2 * in_.size * layout_.tuple_bytes());
    sort_parts();
    return true;
  }

 private:
  void cut_pieces(SpillLane& lane, size_t device, uint64_t begin, uint64_t end) {
    const uint64_t first = begin + share_begin(end - begin, lanes_.size(), device);
    const uint64_t last = begin + share_begin(end - begin, lanes_.size(), device + 1);
    for (uint64_t at = first; at < last; at += piece_) {
      lane.pieces.push_back(in_.slice(layout_, at, std::min(last, at + piece_)));
    }
  }

  /// A pass of one device: what comes to its slots, is worked on there, and leaves.
  struct Pass {
    SpillLane& lane;
    FedTransfer& transfer;
    uint64_t slot_tuples;
    size_t slots, items, there, home;
    std::function<void(size_t item)> arrive;

    Pass(SpillLane& on, FedTransfer& of, uint64_t tuples, size_t count, bool direct_there, bool direct_home)
        : lane(on),
          transfer(of),
          slot_tuples(tuples),
          slots(static_cast<size_t>(std::min<uint64_t>(lane.area.span.size / std::max<uint64_t>(tuples, 1), count))),
          items(count),
          there(of.open(*on.device, HostQueue::Direction::to_device, kArrivalSlots, direct_there)),
          home(of.open(*on.device, HostQueue::Direction::to_host, kDepthHome, direct_home)) {
      for (Events* events : {&lane.ready, &lane.left}) {
        while (events->size() < slots) events->push_back(lane.device->create_event());
      }
    }

    TupleSpan slot(TupleLayout layout, size_t item, uint64_t tuples) const {
      const uint64_t begin = item % slots * slot_tuples;
      return lane.area.span.slice(layout, begin, begin + tuples);
    }
    Event* left(size_t item) const { return item < slots ? nullptr : lane.left[item % slots].get(); }
    void start() {
      for (size_t item = 0; item < slots; ++item) arrive(item);
      if (items == 0) transfer.close(there), transfer.close(home);
    }
    /// What is enqueued now makes the item ready; its slot is the next one's when it has left.
    void leave(size_t item, HostCopy copy) {
      Event& ready = *lane.ready[item % slots];
      lane.stream(kSpillCompute).record(ready);
      copy.after = &ready;
      transfer.push(home, std::move(copy), [this, item](std::span<Event* const> done) {
        for (Event* event : done) lane.stream(kSpillLeave).wait(*event);
        lane.stream(kSpillLeave).record(*lane.left[item % slots]);
        if (item + slots < items) arrive(item + slots);
      });
      if (item + 1 == items) transfer.close(there), transfer.close(home);
    }
  };

  bool direct(const SpillLane& lane, const TupleView& tuples) const { return copies_directly(*lane.device, layout_, tuples); }

  void spill_pieces() {
    FedTransfer transfer(engine_, job_);
    std::deque<Pass> passes;
    for (SpillLane& lane : lanes_) {
      lane.sorting.reset();
      lane.partitioning.emplace(lane.memory(), lane.primitives(), layout_, piece_, ranges_.size());
      Pass& pass = passes.emplace_back(lane, transfer, piece_, lane.pieces.size(), direct(lane, in_),
                                       direct(lane, spilled_->expected_room()));
      pass.arrive = [this, &pass](size_t p) { bring_piece(pass, p); };
    }
    for (Pass& pass : passes) pass.start();
    transfer.run();
    lanes_.wait(job_);
  }

  void bring_piece(Pass& pass, size_t p) {
    SpillLane& lane = pass.lane;
    const TupleSpan& arrived = lane.partitioning->slots[p % kArrivalSlots].span;
    Event* const free = p < kArrivalSlots ? nullptr : lane.arrived_free[p % kArrivalSlots].get();
    pass.transfer.push(
        pass.there, host_copy(layout_, arrived, lane.pieces[p], free), [this, &pass, p, &arrived](std::span<Event* const> done) {
          SpillLane& lane = pass.lane;
          const TupleView& piece = lane.pieces[p];
          Stream& compute = lane.stream(kSpillCompute);
          for (Event* event : done) compute.wait(*event);
          if (Event* const left = pass.left(p)) compute.wait(*left);
          const TupleView there{arrived.keys, piece.values ? arrived.values : nullptr, piece.first_value, piece.size};
          const TupleSpan out = pass.slot(layout_, p, piece.size);
          SpilledTuples::Piece& home = spilled_->add(piece.first_value - in_.first_value, all_ranges(), piece.size);
          partition_piece(lane.primitives(), layout_, there, ranges_, out, home.offsets, lane.partitioning->scratch.data(), job_,
                          compute);
          compute.record(*lane.arrived_free[p % kArrivalSlots]);
          pass.leave(p, host_copy(layout_, home.tuples, out.view(), nullptr));
        });
  }

  PartitionRange all_ranges() const { return {0, static_cast<uint32_t>(ranges_.size())}; }

  bool assign() {
    const auto tuples_of = [this](size_t r) {
      return spilled_->views_of({static_cast<uint32_t>(r), static_cast<uint32_t>(r + 1)});
    };
    std::vector<std::vector<Part>> parts =
        assign_parts(layout_, tuples_of, ranges_, varying_bits_, in_.size, most_in_part(), lanes_.size());
    if (parts.empty()) return false;
    for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].parts = std::move(parts[i]);
    return true;
  }

  void sort_parts() {
    FedTransfer transfer(engine_, job_);
    std::deque<Pass> passes;
    for (SpillLane& lane : lanes_) {
      uint64_t largest = 0;
      for (const Part& part : lane.parts) largest = std::max(largest, part.size);
      lane.partitioning.reset();
      lane.sorting.emplace(lane.memory(), lane.primitives(), layout_, largest);
      Pass& pass = passes.emplace_back(lane, transfer, largest, lane.parts.size(), direct(lane, spilled_->expected_room()),
                                       direct(lane, run_.view()));
      pass.arrive = [this, &pass](size_t k) { bring_part(pass, k); };
    }
    for (Pass& pass : passes) pass.start();
    transfer.run();
    lanes_.wait(job_);
  }

  void bring_part(Pass& pass, size_t k) {
    const Part& part = pass.lane.parts[k];
    const TupleSpan slot = pass.slot(layout_, k, part.size);
    HostCopy copy{{}, pass.left(k)};
    uint64_t at = 0;
    for (const TupleView& from : part.from) {
      const HostCopy one = host_copy(layout_, slot.slice(layout_, at, at + from.size), from, nullptr);
      copy.stretches.insert(copy.stretches.end(), one.stretches.begin(), one.stretches.end());
      at += from.size;
    }
    pass.transfer.push(pass.there, std::move(copy), [this, &pass, k, slot](std::span<Event* const> done) {
      SpillLane& lane = pass.lane;
      const Part& part = lane.parts[k];
      for (Event* event : done) lane.stream(kSpillCompute).wait(*event);
      const TupleSpan sorted = sort_part(lane, part, slot);
      pass.leave(k, host_copy(layout_, run_.slice(layout_, part.begin, part.begin + part.size), sorted.view(), nullptr));
    });
  }

  TupleSpan sort_part(SpillLane& lane, const Part& part, const TupleSpan& at) {
    job_.add_done(part.size);
    Stream& compute = lane.stream(kSpillCompute);
    if (part.bits != 0) {
      const TupleSpan other = lane.sorting->other.span.slice(layout_, 0, part.size);
      const TupleSpan sorted =
          lane.primitives().sort(layout_, at.view(), at, other, part.bits, lane.sorting->scratch.data(), job_, compute);
      if (sorted.keys != at.keys) copy_tuples(*lane.device, layout_, at, sorted.view(), compute);
    }
    if (ranges_.flip() != 0) lane.primitives().flip_keys(layout_, at.keys, at.keys, at.size, ranges_.flip(), job_, compute);
    return at;
  }

  Engine& engine_;
  const TupleLayout layout_;
  const TupleView in_;
  const TupleSpan run_;
  const uint64_t varying_bits_;
  Job& job_;
  const uint64_t area_, piece_, range_;  // tuples: of a device's share of a chunkset, of a piece, of a range
  KeyRanges ranges_;
  std::optional<SpilledTuples> spilled_;  // before the lanes, whose streams write to it
  flow::Lanes<Spilling> lanes_;
};

}  // namespace

size_t spilled_sample_sort_bytes(Device& device, TupleLayout layout, uint64_t tuples, size_t devices) {
  const uint64_t area = share_begin(tuples, devices, 1), piece = piece_tuples(layout, area, kSpillPieceBytes),
                 part = area / 2 + 1;
  return flow::counted_bytes([&](StackAllocator& memory) {
    const Spilling slots(memory, layout, area, {});
    flow::count<Partitioning>(memory, device.primitives(), layout, piece, Primitives::kMostRanges);
    flow::count<RangeSorting>(memory, device.primitives(), layout, part);
  });
}

bool can_spill(const std::vector<Device*>& devices, uint64_t tuples, uint64_t largest_chunkset) {
  return most_in_part(tuples, finest_range(tuples)) <= share_begin(largest_chunkset, devices.size(), 1) / 2 &&
         std::none_of(devices.begin(), devices.end(), [](const Device* device) { return device->addresses_host_memory(); });
}

void spilled_sample_sort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, TupleView in, uint64_t flip,
                         const std::vector<uint64_t>& chunkset_ends, TupleSpan run, uint64_t varying_bits, Job& job) {
  SpilledSampleSort sort(engine, layout, devices, in, chunkset_ends, run, varying_bits, job);
  sort_with_samples(sort.most_in_part(), layout, [&](uint64_t oversampling) {
    return sort.run(KeyRanges::choose(engine.pool, layout, in, flip, sort.ranges(), oversampling));
  });
}

}  // namespace warpjoin::sorting
