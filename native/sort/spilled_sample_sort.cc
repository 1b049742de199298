// The sample sort of what the devices can't hold at a time: one pass partitions it by key range and spills the pieces to
// host memory, another takes range after range to a device, sorts it and sends it to its final place. Each pass moves every
// tuple once in each direction, both directions at the same time; nothing is merged. A pass goes in steps: what one of them
// brought goes home while the next one brings more. There are several in what a device holds, as the first and the last step
// have one direction to themselves.
#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "core/error.h"
#include "device/streams.h"
#include "sort/lanes.h"
#include "sort/parts.h"
#include "sort/sample_sort.h"
#include "transfer/host_transfer.h"

namespace warpjoin::sorting {
namespace {

// Larger than in one pass: a range of a piece is a copy of its own on the way back.
constexpr size_t kPieceBytes = size_t{256} << 20;
constexpr uint64_t kSteps = 4;  // in what a device holds

// One device's work. The stream comes last: it waits for its work before what it refers to goes.
struct SpillLane {
  Device* device = nullptr;
  std::array<OwnedTuples, 2> areas;  // one is filled while the other is sent home
  std::vector<OwnedTuples> buffers;  // slots of pieces, later the other buffer of sorts
  Buffer scratch;
  std::array<std::unique_ptr<Event>, kArrivalSlots> slot_free;
  std::vector<std::vector<Piece>> pieces;                    // of each step
  std::vector<std::vector<Part>> batches;                    // of each step
  std::array<std::vector<std::unique_ptr<Event>>, 2> ready;  // each piece or part of an area, to go home
  std::unique_ptr<Stream> compute;

  Primitives& primitives() const { return device->primitives(); }

  /// Says that the kth piece or part of a step is ready, once what is enqueued now has been done.
  void record_ready(size_t step, size_t k) {
    std::vector<std::unique_ptr<Event>>& events = ready[step % 2];
    while (events.size() <= k) events.push_back(device->create_event());
    compute->record(*events[k]);
  }
};

class SpilledSampleSort {
 public:
  SpilledSampleSort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, const TupleView& in,
                    const std::vector<uint64_t>& chunkset_ends, const TupleSpan& spill, const TupleSpan& run,
                    uint64_t varying_bits, Job& job)
      : engine_(engine),
        layout_(layout),
        in_(in),
        spill_(spill),
        run_(run),
        varying_bits_(varying_bits),
        job_(job),
        lanes_(devices.size()) {
    uint64_t largest = 0;
    for (size_t c = 0; c < chunkset_ends.size(); ++c)
      largest = std::max(largest, chunkset_ends[c] - (c ? chunkset_ends[c - 1] : 0));
    area_ = share_begin(largest, devices.size(), 1);
    piece_ = piece_tuples(layout, area_, kPieceBytes);
    for (size_t i = 0; i < devices.size(); ++i) {
      SpillLane& lane = lanes_[i];
      lane.device = devices[i];
      lane.device->memory().reserve(spilled_sample_sort_bytes(*lane.device, layout, largest, devices.size()));
      for (OwnedTuples& area : lane.areas) area = OwnedTuples(*lane.device, layout, area_);
      for (auto& event : lane.slot_free) event = lane.device->create_event();
      for (size_t c = 0; c < chunkset_ends.size(); ++c) cut_pieces(lane, i, c ? chunkset_ends[c - 1] : 0, chunkset_ends[c]);
      lane.compute = lane.device->create_stream();
    }
  }

  ~SpilledSampleSort() {
    for (SpillLane& lane : lanes_) lane.compute.reset();
  }

  /// False where a part would be larger than there is room for: the ranges come from too small a sample.
  bool run(KeyRanges ranges) {
    ranges_ = std::move(ranges);
    {
      PhaseTimer timer(job_, "partition", 2 * in_.size * layout_.tuple_bytes());
      spill_pieces();
    }
    if (!make_batches()) return false;
    PhaseTimer timer(job_, "sort", 2 * in_.size * layout_.tuple_bytes());
    sort_batches();
    return true;
  }

 private:
  void cut_pieces(SpillLane& lane, size_t device, uint64_t begin, uint64_t end) {
    const uint64_t first = begin + share_begin(end - begin, lanes_.size(), device);
    const uint64_t last = begin + share_begin(end - begin, lanes_.size(), device + 1);
    uint64_t room = 0;
    for (uint64_t at = first; at < last; at += piece_) {
      if (room < piece_) {
        lane.pieces.emplace_back();
        room = std::max(area_ / kSteps, piece_);
      }
      room -= piece_;
      lane.pieces.back().push_back({in_.slice(layout_, at, std::min(last, at + piece_)), {}, {}});
    }
  }

  // Round s takes step s to the devices and sends step s - 1 home.
  template <class Steps, class Home, class There>
  void run_steps(Steps SpillLane::*steps, Home&& home, There&& there) {
    size_t most = 0;
    for (const SpillLane& lane : lanes_) most = std::max(most, (lane.*steps).size());
    for (size_t s = 0; s <= most; ++s) {
      std::vector<HostQueue> queues;
      for (SpillLane& lane : lanes_) {
        if (s > 0 && s <= (lane.*steps).size()) queues.push_back(home(lane, s - 1));
        if (s < (lane.*steps).size()) queues.push_back(there(lane, s));
      }
      transfer(engine_, queues, job_);
    }
    std::vector<Stream*> streams;
    for (SpillLane& lane : lanes_) streams.push_back(lane.compute.get());
    synchronize_all(streams);
    job_.check();
  }

  void spill_pieces() {
    for (SpillLane& lane : lanes_) {
      lane.buffers.clear();
      lane.scratch = {};
      for (size_t s = 0; s < kArrivalSlots; ++s) lane.buffers.emplace_back(*lane.device, layout_, piece_);
      lane.scratch = allocate(*lane.device, lane.primitives().partition_ranges_scratch_bytes(layout_, piece_, ranges_.size()));
    }
    run_steps(
        &SpillLane::pieces, [&](SpillLane& lane, size_t step) { return spill_of(lane, step); },
        [&](SpillLane& lane, size_t step) { return arrive(lane, step); });
  }

  HostQueue arrive(SpillLane& lane, size_t step) {
    uint64_t at = 0;
    std::vector<Piece>& pieces = lane.pieces[step];
    for (Piece& piece : pieces) {
      piece.out = lane.areas[step % 2].span.slice(layout_, at, at + piece.in.size);
      at += piece.in.size;
    }
    return arrival_of(*lane.device, layout_, pieces, lane.buffers, lane.slot_free, *lane.compute,
                      [this, &lane, step, first = pieces.data()](Piece& piece, const TupleView& arrived) {
                        partition_piece(lane.primitives(), layout_, piece, arrived, ranges_, lane.scratch.data(), job_,
                                        *lane.compute);
                        lane.record_ready(step, static_cast<size_t>(&piece - first));
                      });
  }

  // A partitioned piece takes the rows of the input that it came from.
  HostQueue spill_of(SpillLane& lane, size_t step) {
    HostQueue queue{lane.device, HostQueue::Direction::to_host, {}, 2, {}};
    for (Piece& piece : lane.pieces[step]) {
      const uint64_t row = piece.in.first_value - in_.first_value;
      const TupleSpan home = spill_.slice(layout_, row, row + piece.in.size);
      queue.copies.push_back(copy_of(home, piece.out.view(), lane.ready[step % 2][queue.copies.size()].get()));
      piece.out = home;
    }
    return queue;
  }

  HostCopy copy_of(const TupleSpan& target, const TupleView& source, Event* after) const {
    HostCopy copy{{}, after};
    copy.stretches.push_back({target.keys, source.keys, source.size * layout_.key_bytes});
    if (layout_.value_bytes) copy.stretches.push_back({target.values, source.values, source.size * layout_.value_bytes});
    return copy;
  }

  bool make_batches() {
    std::vector<const Piece*> pieces;
    for (const SpillLane& lane : lanes_) {
      for (const auto& step : lane.pieces) {
        for (const Piece& piece : step) pieces.push_back(&piece);
      }
    }
    const auto row = [](const Piece* piece) { return piece->in.first_value; };
    std::sort(pieces.begin(), pieces.end(), [&](const Piece* a, const Piece* b) { return row(a) < row(b); });
    std::vector<std::vector<Part>> parts = assign_parts(layout_, pieces, ranges_, varying_bits_, in_.size,
                                                        most_in_part(in_.size, finest_range(in_.size)), lanes_.size());
    if (parts.empty()) return false;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i].batches.clear();
      uint64_t room = 0;
      for (Part& part : parts[i]) {
        if (part.size > room) {
          lanes_[i].batches.emplace_back();
          room = std::max(area_ / kSteps, part.size);
        }
        room -= part.size;
        lanes_[i].batches.back().push_back(std::move(part));
      }
    }
    return true;
  }

  void sort_batches() {
    for (SpillLane& lane : lanes_) {
      uint64_t largest = 0;
      for (const auto& batch : lane.batches) {
        for (const Part& part : batch) largest = std::max(largest, part.size);
      }
      lane.buffers.clear();
      lane.scratch = {};
      lane.buffers.emplace_back(*lane.device, layout_, largest);
      lane.scratch = allocate(*lane.device, lane.primitives().sort_scratch_bytes(layout_, largest));
    }
    run_steps(
        &SpillLane::batches, [&](SpillLane& lane, size_t step) { return way_home_of(lane, step); },
        [&](SpillLane& lane, size_t step) { return return_of(lane, step); });
  }

  TupleSpan place_of(SpillLane& lane, size_t batch, const Part& part) const {
    const uint64_t at = part.begin - lane.batches[batch].front().begin;
    return lane.areas[batch % 2].span.slice(layout_, at, at + part.size);
  }

  HostQueue return_of(SpillLane& lane, size_t batch) {
    const std::vector<Part>& parts = lane.batches[batch];
    HostQueue queue{lane.device, HostQueue::Direction::to_device, {}, parts.size(), {}};
    for (const Part& part : parts) {
      HostCopy& copy = queue.copies.emplace_back();
      uint64_t at = 0;
      for (const TupleView& from : part.from) {
        const HostCopy one = copy_of(place_of(lane, batch, part).slice(layout_, at, at + from.size), from, nullptr);
        copy.stretches.insert(copy.stretches.end(), one.stretches.begin(), one.stretches.end());
        at += from.size;
      }
    }
    queue.enqueued = [this, &lane, &parts, batch](size_t k, std::span<Event* const> done) {
      for (Event* event : done) lane.compute->wait(*event);
      sort_part(lane, parts[k], place_of(lane, batch, parts[k]));
      lane.record_ready(batch, k);
    };
    return queue;
  }

  void sort_part(SpillLane& lane, const Part& part, const TupleSpan& at) {
    job_.add_done(part.size);
    if (part.bits != 0) {
      const TupleSpan other = lane.buffers[0].span.slice(layout_, 0, part.size);
      const TupleSpan sorted =
          lane.primitives().sort(layout_, at.view(), at, other, part.bits, lane.scratch.data(), job_, *lane.compute);
      if (sorted.keys != at.keys) {
        lane.device->copy(at.keys, sorted.keys, part.size * layout_.key_bytes, *lane.compute);
        if (layout_.value_bytes) lane.device->copy(at.values, sorted.values, part.size * layout_.value_bytes, *lane.compute);
      }
    }
    if (ranges_.flip() != 0) lane.primitives().flip_keys(layout_, at.keys, at.keys, at.size, ranges_.flip(), job_, *lane.compute);
  }

  HostQueue way_home_of(SpillLane& lane, size_t batch) {
    const std::vector<Part>& parts = lane.batches[batch];
    HostQueue queue{lane.device, HostQueue::Direction::to_host, {}, 2, {}};
    const uint64_t begin = parts.front().begin, size = parts.back().begin + parts.back().size - begin;
    // In copies of a piece each, so that a cancelled job stops early and staging has something to share.
    size_t last = 0;
    for (uint64_t at = 0; at < size; at += piece_) {
      const uint64_t end = std::min(size, at + piece_);
      while (parts[last].begin + parts[last].size < begin + end) ++last;
      queue.copies.push_back(copy_of(run_.slice(layout_, begin + at, begin + end),
                                     lane.areas[batch % 2].span.slice(layout_, at, end).view(),
                                     lane.ready[batch % 2][last].get()));
    }
    return queue;
  }

  Engine& engine_;
  const TupleLayout layout_;
  const TupleView in_;
  const TupleSpan spill_, run_;
  const uint64_t varying_bits_;
  Job& job_;
  uint64_t area_ = 0, piece_ = 0;  // tuples
  KeyRanges ranges_;
  std::vector<SpillLane> lanes_;
};

}  // namespace

size_t spilled_sample_sort_bytes(Device& device, TupleLayout layout, uint64_t tuples, size_t devices) {
  const uint64_t area = share_begin(tuples, devices, 1), piece = piece_tuples(layout, area, kPieceBytes), part = area / 2 + 1;
  Primitives& primitives = device.primitives();
  const size_t partition =
      kArrivalSlots * OwnedTuples::bytes(layout, piece) +
      StackAllocator::aligned(primitives.partition_ranges_scratch_bytes(layout, piece, Primitives::kMostRanges));
  const size_t sort = OwnedTuples::bytes(layout, part) + StackAllocator::aligned(primitives.sort_scratch_bytes(layout, part));
  return 2 * OwnedTuples::bytes(layout, area) + std::max(partition, sort);
}

bool can_spill(const std::vector<Device*>& devices, uint64_t tuples, uint64_t largest_chunkset) {
  return most_in_part(tuples, finest_range(tuples)) <= share_begin(largest_chunkset, devices.size(), 1) / 2 &&
         std::none_of(devices.begin(), devices.end(), [](const Device* device) { return device->addresses_host_memory(); });
}

void spilled_sample_sort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, TupleView in, uint64_t flip,
                         const std::vector<uint64_t>& chunkset_ends, TupleSpan spill, TupleSpan run, uint64_t varying_bits,
                         Job& job) {
  SpilledSampleSort sort(engine, layout, devices, in, chunkset_ends, spill, run, varying_bits, job);
  sort_with_samples(most_in_part(in.size, finest_range(in.size)), layout, [&](uint64_t oversampling) {
    return sort.run(KeyRanges::choose(engine.pool, layout, in, flip, ranges_of(in.size, finest_range(in.size)), oversampling));
  });
}

}  // namespace warpjoin::sorting
