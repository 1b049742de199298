#include "sort/sample_sort.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>

#include "core/threads.h"
#include "device/streams.h"
#include "primitives/primitives.h"
#include "sort/lanes.h"
#include "sort/parts.h"
#include "transfer/host_transfer.h"

namespace warpjoin::sorting {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 20;
constexpr size_t kPairs = 2;  // parts that are sorted or on their way home at a time; where there is room, kHomeParts

/// How many times `bytes` there is room for: as often as is planned for, or up to `most` times.
size_t times_with_room(Device& device, size_t bytes, size_t planned, size_t most) {
  return std::clamp(device.memory().room_bytes() / std::max<size_t>(bytes, 1), planned, most);
}

uint64_t share_of(uint64_t tuples, size_t devices) { return share_begin(tuples, devices, 1); }

// Bytes of device memory beside the partitioned pieces.
size_t arrival_bytes(Device& device, TupleLayout layout, uint64_t piece, bool direct) {
  return (direct ? 0 : kArrivalSlots * OwnedTuples::bytes(layout, piece)) +
         StackAllocator::aligned(device.primitives().partition_ranges_scratch_bytes(layout, piece, Primitives::kMostRanges));
}

size_t collection_bytes(Device& device, TupleLayout layout, uint64_t part, size_t pieces, bool direct) {
  return (direct ? 1 : 2) * kPairs * OwnedTuples::bytes(layout, part) +
         StackAllocator::aligned(device.primitives().sort_scratch_bytes(layout, part)) +
         kPairs * StackAllocator::aligned(device.primitives().concatenate_scratch_bytes(pieces));
}

// Devices that address host memory partition their share in one go.
uint64_t piece_of(Device& device, TupleLayout layout, uint64_t share) {
  return device.addresses_host_memory() ? share : piece_tuples(layout, share, kPieceBytes);
}

// One device's work. Streams come last: they wait for their work before what it refers to goes.
struct SampleLane {
  Device* device = nullptr;
  bool direct = false;  // the device's kernels read the input and write the result where they are
  OwnedTuples chunk;
  std::vector<Piece> pieces;
  std::vector<Part> parts;
  std::vector<OwnedTuples> buffers;  // slots of pieces, later pairs of parts, or one buffer a part if direct
  Buffer scratch;
  std::array<Buffer, kHomeParts> part_tables;
  std::array<std::unique_ptr<Event>, kMostArrivalSlots> slot_free;
  std::array<std::unique_ptr<Event>, kHomeParts> collected, sorted;
  size_t pairs = kPairs;  // of `buffers`
  std::unique_ptr<Stream> collect, compute;

  Primitives& primitives() const { return device->primitives(); }
  uint64_t input_size() const {
    uint64_t size = 0;
    for (const Piece& piece : pieces) size += piece.in.size;
    return size;
  }
};

class SampleSort {
 public:
  /// Each lane has its device and pieces.
  SampleSort(Engine& engine, TupleLayout layout, std::vector<SampleLane> lanes, uint64_t most_in_part, uint64_t varying_bits,
             Job& job)
      : engine_(engine),
        layout_(layout),
        most_in_part_(most_in_part),
        varying_bits_(varying_bits),
        job_(job),
        lanes_(std::move(lanes)) {
    for (SampleLane& lane : lanes_) {
      size_ += lane.input_size();
      const auto create = [&](auto& events) {
        for (auto& event : events) event = lane.device->create_event();
      };
      create(lane.slot_free);
      create(lane.collected);
      create(lane.sorted);
      lane.collect = lane.device->create_stream();
      lane.compute = lane.device->create_stream();
    }
  }

  // Before any lane's memory goes: the others read it.
  ~SampleSort() {
    for (SampleLane& lane : lanes_) lane.compute.reset(), lane.collect.reset();
  }

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
        assign_parts(layout_, pieces, ranges_, varying_bits_, size_, most_in_part_, lanes_.size());
    if (parts.empty()) return false;
    for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].parts = std::move(parts[i]);
    PhaseTimer timer(job_, "sort", 2 * size_ * layout_.tuple_bytes());
    collect(run);
    return true;
  }

 private:
  // Takes each device's share to it and partitions every piece as soon as it is there.
  void partition(const std::function<KeyRanges()>& choose) {
    const std::shared_future<void> chosen = run_beside([&] { ranges_ = choose(); });
    std::vector<HostQueue> queues;
    for (SampleLane& lane : lanes_) {
      Device& device = *lane.device;
      uint64_t largest = 0;
      for (const Piece& piece : lane.pieces) largest = std::max(largest, piece.in.size);
      lane.buffers.clear();
      lane.scratch = {};
      lane.scratch =
          allocate(device, lane.primitives().partition_ranges_scratch_bytes(layout_, largest, Primitives::kMostRanges));
      if (lane.direct) {
        chosen.get();
        for (Piece& piece : lane.pieces) partition_arrived(lane, piece, piece.in);
        continue;
      }
      const size_t slots = times_with_room(device, OwnedTuples::bytes(layout_, largest), kArrivalSlots, kMostArrivalSlots);
      for (size_t s = 0; s < slots; ++s) lane.buffers.emplace_back(device, layout_, largest);
      queues.push_back(arrival_of(device, layout_, lane.pieces, lane.buffers, lane.slot_free, *lane.compute,
                                  [this, &lane, chosen](Piece& piece, const TupleView& arrived) {
                                    chosen.get();
                                    partition_arrived(lane, piece, arrived);
                                  }));
    }
    transfer(engine_, queues, job_);
    chosen.get();
    wait();
  }

  void partition_arrived(SampleLane& lane, Piece& piece, const TupleView& arrived) {
    partition_piece(lane.primitives(), layout_, piece, arrived, ranges_, lane.scratch.data(), job_, *lane.compute);
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
    wait();
  }

  void make_buffers(SampleLane& lane) {
    Device& device = *lane.device;
    uint64_t largest = 0;
    size_t most_from = 0;
    for (const Part& part : lane.parts) {
      largest = std::max(largest, part.size);
      most_from = std::max(most_from, part.from.size());
    }
    lane.buffers.clear();
    lane.scratch = {};
    const size_t buffers = lane.direct ? 1 : 2, table_bytes = lane.primitives().concatenate_scratch_bytes(most_from);
    const size_t pair_bytes = buffers * OwnedTuples::bytes(layout_, largest) + StackAllocator::aligned(table_bytes);
    lane.scratch = allocate(device, lane.primitives().sort_scratch_bytes(layout_, largest));
    lane.pairs = times_with_room(device, pair_bytes, kPairs, kHomeParts);
    for (size_t p = 0; p < lane.pairs; ++p) {
      for (size_t b = 0; b < buffers; ++b) lane.buffers.emplace_back(device, layout_, largest);
      lane.part_tables[p] = allocate(device, table_bytes);
    }
  }

  void sort_in_place(SampleLane& lane, size_t k, const TupleSpan& run) {
    const Part& part = lane.parts[k];
    const TupleSpan target = run.slice(layout_, part.begin, part.begin + part.size);
    const TupleSpan other = lane.buffers[k % lane.pairs].span.slice(layout_, 0, part.size);
    const TupleSpan sorted =
        ends_in_other_buffer(part.bits) ? sort_part(lane, k, other, target) : sort_part(lane, k, target, other);
    if (sorted.keys != target.keys) {
      lane.device->copy(target.keys, sorted.keys, part.size * layout_.key_bytes, *lane.compute);
      if (layout_.value_bytes) lane.device->copy(target.values, sorted.values, part.size * layout_.value_bytes, *lane.compute);
    }
    lane.compute->record(*lane.sorted[k % lane.pairs]);
  }

  void send_home(SampleLane& lane, const TupleSpan& run, HostQueue& queue) {
    queue.direction = HostQueue::Direction::to_host;
    queue.depth = lane.pairs;
    for (const Part& part : lane.parts) {
      const TupleSpan target = run.slice(layout_, part.begin, part.begin + part.size);
      HostCopy& home = queue.copies.emplace_back();
      home.stretches.push_back({target.keys, nullptr, part.size * layout_.key_bytes});
      if (layout_.value_bytes) home.stretches.push_back({target.values, nullptr, part.size * layout_.value_bytes});
    }
    const auto prepare = [this, &lane, &queue](size_t k) {
      const auto buffer = [&](size_t b) {
        return lane.buffers[k % lane.pairs * 2 + b].span.slice(layout_, 0, lane.parts[k].size);
      };
      const TupleSpan sorted = sort_part(lane, k, buffer(0), buffer(1));
      lane.compute->record(*lane.sorted[k % lane.pairs]);
      HostCopy& home = queue.copies[k];
      home.after = lane.sorted[k % lane.pairs].get();
      home.stretches[0].source = sorted.keys;
      if (layout_.value_bytes) home.stretches[1].source = sorted.values;
    };
    for (size_t k = 0; k < std::min(lane.pairs, lane.parts.size()); ++k) prepare(k);
    queue.enqueued = [&lane, prepare](size_t k, std::span<Event* const> done) {
      if (k + lane.pairs >= lane.parts.size()) return;
      for (Event* event : done) lane.collect->wait(*event);
      prepare(k + lane.pairs);
    };
  }

  // Collects part `k` in `a` while the part before it is being sorted, then sorts it; returns where it will be: in `a` or `b`.
  TupleSpan sort_part(SampleLane& lane, size_t k, const TupleSpan& a, const TupleSpan& b) {
    const Part& part = lane.parts[k];
    if (k >= lane.pairs) lane.collect->wait(*lane.sorted[k % lane.pairs]);
    lane.primitives().concatenate(layout_, part.from, a, lane.part_tables[k % lane.pairs].data(), job_, *lane.collect);
    lane.collect->record(*lane.collected[k % lane.pairs]);
    lane.compute->wait(*lane.collected[k % lane.pairs]);
    job_.add_done(part.size);
    TupleSpan sorted = a;
    if (part.bits != 0) {
      sorted = lane.primitives().sort(layout_, a.view(), a, b, part.bits, lane.scratch.data(), job_, *lane.compute);
    }
    if (ranges_.flip() != 0) {
      lane.primitives().flip_keys(layout_, sorted.keys, sorted.keys, sorted.size, ranges_.flip(), job_, *lane.compute);
    }
    return sorted;
  }

  void wait() {
    std::vector<Stream*> streams;
    for (SampleLane& lane : lanes_) streams.insert(streams.end(), {lane.collect.get(), lane.compute.get()});
    synchronize_all(streams);
    job_.check();
  }

  Engine& engine_;
  const TupleLayout layout_;
  const uint64_t most_in_part_, varying_bits_;
  Job& job_;
  uint64_t size_ = 0;
  KeyRanges ranges_;
  std::vector<SampleLane> lanes_;
};

}  // namespace

size_t sample_sort_bytes(Device& device, TupleLayout layout, uint64_t tuples, size_t devices) {
  const bool direct = device.addresses_host_memory();
  const uint64_t share = share_of(tuples, devices), piece = piece_of(device, layout, share);
  const uint64_t part = most_in_part(tuples, range_tuples(layout, tuples, devices));
  const size_t pieces = devices * static_cast<size_t>(share / std::max<uint64_t>(piece, 1) + 1);
  return OwnedTuples::bytes(layout, share) +
         std::max(arrival_bytes(device, layout, piece, direct), collection_bytes(device, layout, part, pieces, direct));
}

void sample_sort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, TupleView in, uint64_t flip,
                 TupleSpan run, uint64_t varying_bits, Job& job) {
  std::vector<SampleLane> lanes(devices.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    Device& device = *devices[i];
    SampleLane& lane = lanes[i];
    const uint64_t begin = share_begin(in.size, devices.size(), i), end = share_begin(in.size, devices.size(), i + 1);
    device.memory().reserve(sample_sort_bytes(device, layout, in.size, devices.size()));
    lane.device = &device;
    lane.direct = device.addresses_host_memory();
    lane.chunk = OwnedTuples(device, layout, end - begin);
    const uint64_t piece = piece_of(device, layout, share_of(in.size, devices.size()));
    for (uint64_t at = begin; at < end; at += piece) {
      const uint64_t piece_end = std::min(end, at + piece);
      lane.pieces.push_back({in.slice(layout, at, piece_end), lane.chunk.span.slice(layout, at - begin, piece_end - begin), {}});
    }
  }
  const uint64_t range = range_tuples(layout, in.size, devices.size()), most = most_in_part(in.size, range);
  SampleSort sort(engine, layout, std::move(lanes), most, varying_bits, job);
  sort_with_samples(most, layout, [&](uint64_t oversampling) {
    return sort.run([&] { return KeyRanges::choose(engine.pool, layout, in, flip, ranges_of(in.size, range), oversampling); },
                    run);
  });
}

}  // namespace warpjoin::sorting
