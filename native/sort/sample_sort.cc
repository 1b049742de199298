#include "sort/sample_sort.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "core/threads.h"
#include "flow/budget.h"
#include "flow/lanes.h"
#include "primitives/primitives.h"
#include "sort/lanes.h"
#include "sort/parts.h"
#include "transfer/host_transfer.h"

namespace warpjoin::sorting {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 20;
constexpr size_t kPlannedParts = 2;  // that are sorted or on their way home at a time; where there is room, kHomeParts

uint64_t share_of(uint64_t tuples, size_t devices) { return share_begin(tuples, devices, 1); }

// Devices that address host memory partition their share in one go.
uint64_t piece_of(Device& device, TupleLayout layout, uint64_t share) {
  return device.addresses_host_memory() ? share : piece_tuples(layout, share, kPieceBytes);
}

/// Device memory beside the partitioned pieces while pieces of up to `piece` tuples arrive. `direct`: they are read where they
/// are.
struct Arrival {
  Buffer scratch;
  std::vector<OwnedTuples> slots;

  Arrival(StackAllocator& memory, Primitives& primitives, TupleLayout layout, uint64_t piece, bool direct, size_t most_slots)
      : scratch(allocate(memory, primitives.partition_ranges_scratch_bytes(layout, piece, Primitives::kMostRanges))) {
    if (direct) return;
    const size_t count = flow::times_with_room(memory, OwnedTuples::bytes(layout, piece), kArrivalSlots, most_slots);
    for (size_t s = 0; s < count; ++s) slots.emplace_back(memory, layout, piece);
  }
};

/// Device memory beside the partitioned pieces while parts of up to `part` tuples are collected from `pieces` of them and sorted.
/// `direct`: into their place in the result.
struct Collection {
  struct Slot {
    OwnedTuples a, b;  // b: not if direct
    Buffer table;
  };
  Buffer scratch;
  std::vector<Slot> slots;

  Collection(StackAllocator& memory, Primitives& primitives, TupleLayout layout, uint64_t part, size_t pieces, bool direct,
             size_t most_slots)
      : scratch(allocate(memory, primitives.sort_scratch_bytes(layout, part))) {
    const size_t table = primitives.concatenate_scratch_bytes(pieces), tuples = OwnedTuples::bytes(layout, part);
    const size_t count =
        flow::times_with_room(memory, (direct ? 1 : 2) * tuples + StackAllocator::aligned(table), kPlannedParts, most_slots);
    for (size_t s = 0; s < count; ++s) {
      OwnedTuples a(memory, layout, part), b(memory, layout, direct ? 0 : part);
      slots.push_back({std::move(a), std::move(b), allocate(memory, table)});
    }
  }
};

enum SampleStream : size_t { kSampleCollect, kSampleCompute, kSampleStreams };

/// A device's share of the input, and later of the result.
struct Share {
  bool direct;  // the device's kernels read the input and write the result where they are
  OwnedTuples chunk;
  std::vector<Piece> pieces;
  std::vector<Part> parts{};
  std::optional<Arrival> arrival{};
  std::optional<Collection> collection{};
  Events slot_free, collected, sorted;

  uint64_t input_size() const {
    uint64_t size = 0;
    for (const Piece& piece : pieces) size += piece.in.size;
    return size;
  }
};
using SampleLane = flow::Lane<Share>;

class SampleSort {
 public:
  SampleSort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, const TupleView& in, uint64_t most_in_part,
             uint64_t varying_bits, Job& job)
      : engine_(engine),
        layout_(layout),
        size_(in.size),
        most_in_part_(most_in_part),
        varying_bits_(varying_bits),
        job_(job),
        lanes_(devices, kSampleStreams, [&](Device& device, size_t i) { return share(device, layout, in, i, devices.size()); }) {}

  /// Sorts into `run`, host memory. False where a part would be larger than there is room for: the ranges come from too
  /// small a sample. They are chosen while the first pieces are on the link.
  bool run(const std::function<KeyRanges()>& choose, const TupleSpan& run) {
    {
      PhaseTimer timer(job_, "partition", 2 * size_ * layout_.tuple_bytes());
      partition(choose);
    }
    std::vector<const Piece*> pieces;
    for (const SampleLane& lane : lanes_) {
      for (const Piece& piece : lane.pieces) pieces.push_back(&piece);
    }
    std::vector<std::vector<Part>> parts =
        assign_parts(layout_, tuples_in(layout_, std::move(pieces)), ranges_, varying_bits_, size_, most_in_part_, lanes_.size());
    if (parts.empty()) return false;
    for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].parts = std::move(parts[i]);
    PhaseTimer timer(job_, "sort", 2 * size_ * layout_.tuple_bytes());
    collect(run);
    return true;
  }

 private:
  static Share share(Device& device, TupleLayout layout, const TupleView& in, size_t i, size_t devices) {
    const uint64_t begin = share_begin(in.size, devices, i), end = share_begin(in.size, devices, i + 1);
    device.memory().reserve(sample_sort_bytes(device, layout, in.size, devices));
    Share share{.direct = device.addresses_host_memory(),
                .chunk = {device.memory(), layout, end - begin},
                .pieces = {},
                .slot_free = create_events(device, kMostArrivalSlots),
                .collected = create_events(device, kHomeParts),
                .sorted = create_events(device, kHomeParts)};
    const uint64_t piece = piece_of(device, layout, share_of(in.size, devices));
    for (uint64_t at = begin; at < end; at += piece) {
      const uint64_t last = std::min(end, at + piece);
      share.pieces.push_back({in.slice(layout, at, last), share.chunk.span.slice(layout, at - begin, last - begin), {}});
    }
    return share;
  }

  // Takes each device's share to it and partitions every piece as soon as it is there.
  void partition(const std::function<KeyRanges()>& choose) {
    const std::shared_future<void> chosen = run_beside([&] { ranges_ = choose(); });
    std::vector<HostQueue> queues;
    for (SampleLane& lane : lanes_) {
      uint64_t largest = 0;
      for (const Piece& piece : lane.pieces) largest = std::max(largest, piece.in.size);
      lane.collection.reset();
      lane.arrival.emplace(lane.memory(), lane.primitives(), layout_, largest, lane.direct, kMostArrivalSlots);
      if (lane.direct) {
        chosen.get();
        for (Piece& piece : lane.pieces) partition_arrived(lane, piece, piece.in);
        continue;
      }
      queues.push_back(arrival_of(*lane.device, layout_, lane.pieces, lane.arrival->slots, lane.slot_free,
                                  lane.stream(kSampleCompute), [this, &lane, chosen](Piece& piece, const TupleView& arrived) {
                                    chosen.get();
                                    partition_arrived(lane, piece, arrived);
                                  }));
    }
    transfer(engine_, queues, job_);
    chosen.get();
    lanes_.wait(job_);
  }

  void partition_arrived(SampleLane& lane, Piece& piece, const TupleView& arrived) {
    partition_piece(lane.primitives(), layout_, arrived, ranges_, piece.out, piece.offsets, lane.arrival->scratch.data(), job_,
                    lane.stream(kSampleCompute));
  }

  // Collects and sorts each device's parts, and takes them to their place in the result.
  void collect(const TupleSpan& run) {
    std::vector<HostQueue> queues(lanes_.size());  // callbacks refer to them
    engine_.pool.parallel_for(lanes_.size(), [&](uint64_t i) {
      SampleLane& lane = lanes_[i];
      queues[i].device = lane.device;
      if (lane.parts.empty()) return;
      make_buffers(lane);
      if (lane.direct) {
        for (size_t k = 0; k < lane.parts.size(); ++k) sort_in_place(lane, k, run);
      } else {
        send_home(lane, run, queues[i]);
      }
    });
    transfer(engine_, queues, job_);
    lanes_.wait(job_);
  }

  void make_buffers(SampleLane& lane) {
    uint64_t largest = 0;
    size_t most_from = 0;
    for (const Part& part : lane.parts) {
      largest = std::max(largest, part.size);
      most_from = std::max(most_from, part.from.size());
    }
    lane.arrival.reset();
    lane.collection.emplace(lane.memory(), lane.primitives(), layout_, largest, most_from, lane.direct, kHomeParts);
  }

  void sort_in_place(SampleLane& lane, size_t k, const TupleSpan& run) {
    const Part& part = lane.parts[k];
    const TupleSpan target = run.slice(layout_, part.begin, part.begin + part.size);
    const TupleSpan other = slot_of(lane, k).a.span.slice(layout_, 0, part.size);
    const TupleSpan sorted =
        ends_in_other_buffer(part.bits) ? sort_part(lane, k, other, target) : sort_part(lane, k, target, other);
    if (sorted.keys != target.keys) copy_tuples(*lane.device, layout_, target, sorted.view(), lane.stream(kSampleCompute));
    lane.stream(kSampleCompute).record(*lane.sorted[k % lane.collection->slots.size()]);
  }

  void send_home(SampleLane& lane, const TupleSpan& run, HostQueue& queue) {
    queue.direction = HostQueue::Direction::to_host;
    const size_t slots = lane.collection->slots.size();
    queue.depth = slots;
    for (const Part& part : lane.parts) {
      const TupleSpan target = run.slice(layout_, part.begin, part.begin + part.size);
      HostCopy& home = queue.copies.emplace_back();
      home.stretches.push_back({target.keys, nullptr, part.size * layout_.key_bytes});
      if (layout_.value_bytes) home.stretches.push_back({target.values, nullptr, part.size * layout_.value_bytes});
    }
    const auto prepare = [this, &lane, &queue, slots](size_t k) {
      const Collection::Slot& slot = slot_of(lane, k);
      const uint64_t size = lane.parts[k].size;
      const TupleSpan sorted = sort_part(lane, k, slot.a.span.slice(layout_, 0, size), slot.b.span.slice(layout_, 0, size));
      lane.stream(kSampleCompute).record(*lane.sorted[k % lane.collection->slots.size()]);
      HostCopy& home = queue.copies[k];
      home.after = lane.sorted[k % slots].get();
      home.stretches[0].source = sorted.keys;
      if (layout_.value_bytes) home.stretches[1].source = sorted.values;
    };
    for (size_t k = 0; k < std::min(slots, lane.parts.size()); ++k) prepare(k);
    queue.enqueued = [&lane, prepare, slots](size_t k, std::span<Event* const> done) {
      if (k + slots >= lane.parts.size()) return;
      for (Event* event : done) lane.stream(kSampleCollect).wait(*event);
      prepare(k + slots);
    };
  }

  // Collects part `k` in `a` while the part before it is being sorted, then sorts it; returns where it will be: in `a` or `b`.
  TupleSpan sort_part(SampleLane& lane, size_t k, const TupleSpan& a, const TupleSpan& b) {
    const Part& part = lane.parts[k];
    const size_t slots = lane.collection->slots.size(), slot = k % slots;
    if (k >= slots) lane.stream(kSampleCollect).wait(*lane.sorted[slot]);
    lane.primitives().concatenate(layout_, part.from, a, slot_of(lane, k).table.data(), job_, lane.stream(kSampleCollect));
    lane.stream(kSampleCollect).record(*lane.collected[slot]);
    lane.stream(kSampleCompute).wait(*lane.collected[slot]);
    job_.add_done(part.size);
    TupleSpan sorted = a;
    if (part.bits != 0) {
      sorted = lane.primitives().sort(layout_, a.view(), a, b, part.bits, lane.collection->scratch.data(), job_,
                                      lane.stream(kSampleCompute));
    }
    if (ranges_.flip() != 0) {
      lane.primitives().flip_keys(layout_, sorted.keys, sorted.keys, sorted.size, ranges_.flip(), job_,
                                  lane.stream(kSampleCompute));
    }
    return sorted;
  }

  static Collection::Slot& slot_of(SampleLane& lane, size_t k) {
    return lane.collection->slots[k % lane.collection->slots.size()];
  }

  Engine& engine_;
  const TupleLayout layout_;
  const uint64_t size_, most_in_part_, varying_bits_;
  Job& job_;
  KeyRanges ranges_;
  flow::Lanes<Share> lanes_;
};

}  // namespace

size_t sample_sort_bytes(Device& device, TupleLayout layout, uint64_t tuples, size_t devices) {
  const bool direct = device.addresses_host_memory();
  const uint64_t share = share_of(tuples, devices), piece = piece_of(device, layout, share);
  const uint64_t part = most_in_part(tuples, range_tuples(layout, tuples, devices));
  const size_t pieces = devices * static_cast<size_t>(share / std::max<uint64_t>(piece, 1) + 1);
  return flow::counted_bytes([&](StackAllocator& memory) {
    const OwnedTuples chunk(memory, layout, share);
    flow::count<Arrival>(memory, device.primitives(), layout, piece, direct, kArrivalSlots);
    flow::count<Collection>(memory, device.primitives(), layout, part, pieces, direct, kPlannedParts);
  });
}

void sample_sort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, TupleView in, uint64_t flip,
                 TupleSpan run, uint64_t varying_bits, Job& job) {
  const uint64_t range = range_tuples(layout, in.size, devices.size()), most = most_in_part(in.size, range);
  SampleSort sort(engine, layout, devices, in, most, varying_bits, job);
  sort_with_samples(most, layout, [&](uint64_t oversampling) {
    return sort.run([&] { return KeyRanges::choose(engine.pool, layout, in, flip, ranges_of(in.size, range), oversampling); },
                    run);
  });
}

}  // namespace warpjoin::sorting
