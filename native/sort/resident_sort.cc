// Sorts of what lies on the devices already. Several of them sample-sort: each partitions its tuples by key range, then collects
// its ranges from all of them while it sorts the ones before. Why the exchange is a copy and not the partition's own writes:
// docs/decisions/0007. Tuples are sorted by few of their keys' bits, and then within ties: docs/decisions/0010.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "flow/budget.h"
#include "flow/lanes.h"
#include "primitives/primitives.h"
#include "sort/leading_bits.h"
#include "sort/parts.h"
#include "sort/sample_sort.h"

namespace warpjoin::sorting {
namespace {

constexpr size_t kSorts = 3;             // parts that are sorted at a time: one alone leaves a device idle where its passes end
constexpr size_t kBuffers = kSorts + 1;  // one part more is being collected

// Ranges enough for even shares, and for little to be collected before the first is sorted; but the fewer they are the better
// each one's passes keep a device busy.
uint64_t resident_range_tuples(uint64_t tuples, size_t devices) {
  constexpr uint64_t kEnough = uint64_t{1} << 21;
  const uint64_t share = tuples / devices + 1;
  return std::max({finest_range(tuples), share / 32, std::min(share / 8, kEnough)});
}

// Keys sampled for a sort on one device, of tuples enough for the sample to take less time than it saves.
constexpr uint64_t kSampledAlone = uint64_t{1} << 13, kLeastSampled = uint64_t{1} << 23;

TupleLayout keys_of(TupleLayout layout) { return {layout.key_bytes, 0}; }

// Half of a device's tuples at most: they are sorted where its partitioned tuples will be.
uint64_t most_sampled(uint64_t own) { return own / 2; }

// The first `count` keys of `room`, which has as much room again, flipped and in order. Waits for the stream.
std::vector<uint64_t> sorted_sample(Device& device, TupleLayout layout, const TupleSpan& room, uint64_t count, uint64_t flip,
                                    uint64_t varying_bits, void* scratch, const Job& job, Stream& stream) {
  const TupleLayout keys = keys_of(layout);
  const TupleSpan a = room.slice(keys, 0, count), b = room.slice(keys, count, 2 * count);
  if (flip) device.primitives().flip_keys(keys, a.keys, a.keys, count, flip, job, stream);
  const TupleSpan sorted = device.primitives().sort(keys, a.view(), a, b, varying_bits, scratch, job, stream);
  std::vector<unsigned char> bytes(count * keys.key_bytes);
  device.copy(bytes.data(), sorted.keys, bytes.size(), stream);
  stream.synchronize();
  std::vector<uint64_t> sample(count);
  for (uint64_t k = 0; k < count; ++k) std::memcpy(&sample[k], &bytes[k * keys.key_bytes], keys.key_bytes);
  return sample;
}

// A sort on one device, of tuples whose keys are flipped and that come out flipped back: by the leading bits, then within ties.
// Where a long tie turns out to be out of order, by all bits once more.
class LocalSort {
 public:
  LocalSort(Device& device, TupleLayout layout, uint64_t flip, uint64_t varying_bits, uint64_t distinguishing_bits,
            const TupleSpan& target, const TupleSpan& other, void* scratch)
      : device_(&device),
        layout_(layout),
        flip_(flip),
        varying_bits_(varying_bits),
        leading_bits_(leading_bits(varying_bits, distinguishing_bits)),
        target_(target),
        other_(other),
        scratch_(scratch) {}

  /// The buffer that the passes begin in, to end in the target.
  const TupleSpan& begin() const { return ends_in_other_buffer(leading_bits_) ? other_ : target_; }

  /// `in`, or its keys alone, may be in begin(). This object must stay where it is until goes_on() has been called.
  void enqueue(const TupleView& in, const Job& job, Stream& stream) {
    TupleSpan sorted = begin();
    const bool is_there = in.keys == sorted.keys && in.values == sorted.values;
    if (leading_bits_ || !is_there) sorted = sort(in, sorted, leading_bits_, job, stream);
    if (leading_bits_ != varying_bits_) {
      const auto low_bits = static_cast<unsigned>(std::countr_zero(leading_bits_));
      device_->primitives().sort_ties(layout_, sorted, low_bits, &unsorted_, job, stream);
    }
    finish(sorted, job, stream);
  }

  /// Once the stream has been waited for: false where all is done; otherwise enqueues the rest.
  bool goes_on(const Job& job, Stream& stream) {
    if (!unsorted_) return false;
    if (flip_) device_->primitives().flip_keys(layout_, target_.keys, target_.keys, target_.size, flip_, job, stream);
    finish(sort(target_.view(), target_, varying_bits_, job, stream), job, stream);
    return true;
  }

 private:
  TupleSpan sort(const TupleView& in, const TupleSpan& begin, uint64_t bits, const Job& job, Stream& stream) const {
    const TupleSpan& other = begin.keys == target_.keys ? other_ : target_;
    return device_->primitives().sort(layout_, in, begin, other, bits, scratch_, job, stream);
  }
  // Flips the keys back, into the target; tuples that are elsewhere are taken there.
  void finish(const TupleSpan& sorted, const Job& job, Stream& stream) const {
    const bool moves = sorted.keys != target_.keys;
    if (flip_) {
      device_->primitives().flip_keys(layout_, sorted.keys, target_.keys, target_.size, flip_, job, stream);
    } else if (moves) {
      device_->copy(target_.keys, sorted.keys, target_.size * layout_.key_bytes, stream);
    }
    if (moves && layout_.value_bytes) device_->copy(target_.values, sorted.values, target_.size * layout_.value_bytes, stream);
  }

  Device* device_;
  TupleLayout layout_;
  uint64_t flip_, varying_bits_, leading_bits_;
  TupleSpan target_, other_;
  void* scratch_;
  bool unsorted_ = false;
};

/// Device memory beside the partitioned tuples while parts of up to `part` tuples are collected and sorted.
struct Sorting {
  std::vector<OwnedTuples> buffers;
  std::vector<Buffer> scratch;

  Sorting(StackAllocator& memory, Primitives& primitives, TupleLayout layout, uint64_t part) {
    for (size_t b = 0; b < kBuffers; ++b) buffers.emplace_back(memory, layout, part);
    for (size_t s = 0; s < kSorts; ++s) scratch.push_back(allocate(memory, primitives.sort_scratch_bytes(layout, part)));
  }
};

/// Device memory of the sort of all tuples on one device.
struct Beside {
  OwnedTuples tuples;
  Buffer scratch;

  Beside(StackAllocator& memory, Primitives& primitives, TupleLayout layout, uint64_t size)
      : tuples(memory, layout, size), scratch(allocate(memory, primitives.sort_scratch_bytes(layout, size))) {}
};

OwnedTuples chunk_of(StackAllocator& memory, TupleLayout layout, uint64_t own) {
  return {memory, layout, std::max<uint64_t>(own, 1)};  // holds the reserved memory
}

enum ResidentStream : size_t { kCollect, kSort, kResidentStreams = kSort + kSorts };

/// One device's work.
struct Stretch {
  OwnedTuples chunk;
  Piece piece;  // all of its tuples
  Events collected, sorted;
  TupleSpan out{};  // where its stretch of the result goes
  std::vector<Part> parts{};
  std::optional<Sorting> sorting{};
  std::vector<LocalSort> sorts{};  // of the parts
};
using ResidentLane = flow::Lane<Stretch>;

class ResidentSampleSort {
 public:
  ResidentSampleSort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, const std::vector<TupleView>& in,
                     uint64_t size, uint64_t flip, uint64_t varying_bits, Job& job)
      : engine_(engine),
        layout_(layout),
        size_(size),
        range_(resident_range_tuples(size, devices.size())),
        flip_(flip),
        varying_bits_(varying_bits),
        job_(job),
        lanes_(devices, kResidentStreams, [&](Device& device, size_t i) {
          OwnedTuples chunk = chunk_of(device.memory(), layout, in[i].size);
          const Piece piece{in[i], chunk.span, {}};
          return Stretch{std::move(chunk), piece, create_events(device, kBuffers), create_events(device, kBuffers)};
        }) {}

  uint64_t most_in_part() const { return sorting::most_in_part(size_, range_); }

  /// False where a part would be larger than there is room for: the ranges come from too small a sample.
  bool run(uint64_t oversampling, const StretchOf& out) {
    {
      PhaseTimer timer(job_, "sample");
      sample(oversampling);
    }
    {
      PhaseTimer timer(job_, "partition", 2 * size_ * layout_.tuple_bytes());
      partition();
    }
    std::vector<const Piece*> pieces;
    for (const ResidentLane& lane : lanes_) pieces.push_back(&lane.piece);
    std::vector<std::vector<Part>> parts = assign_parts(layout_, tuples_in(layout_, std::move(pieces)), ranges_, varying_bits_,
                                                        size_, most_in_part(), lanes_.size());
    if (parts.empty()) return false;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i].parts = std::move(parts[i]);
      lanes_[i].out = out(i, size_of(lanes_[i]));
    }
    PhaseTimer timer(job_, "sort", 2 * size_ * layout_.tuple_bytes());
    sort();
    return true;
  }

 private:
  static uint64_t size_of(const ResidentLane& lane) {
    return lane.parts.empty() ? 0 : lane.parts.back().begin + lane.parts.back().size - lane.parts.front().begin;
  }

  // Each device gives its share of the sample, which the one with the most room sorts.
  void sample(uint64_t oversampling) {
    const size_t most = ranges_of(size_, range_);
    std::vector<uint64_t> sampled;
    if (most > 1) {
      ResidentLane& last = *std::max_element(lanes_.begin(), lanes_.end(), [](const ResidentLane& x, const ResidentLane& y) {
        return x.piece.in.size < y.piece.in.size;
      });
      const uint64_t wanted = std::min(most * oversampling, most_sampled(last.piece.in.size));
      uint64_t count = 0;
      for (ResidentLane& lane : lanes_) {
        const uint64_t own = wanted * lane.piece.in.size / size_;
        lane.primitives().sample_keys(layout_, lane.piece.in, own,
                                      last.chunk.span.slice(keys_of(layout_), count, count + own).keys, job_,
                                      lane.stream(kCollect));
        lane.stream(kCollect).record(*lane.collected[0]);
        last.stream(kCollect).wait(*lane.collected[0]);
        count += own;
      }
      const Buffer scratch = allocate(last.memory(), last.primitives().sort_scratch_bytes(keys_of(layout_), count));
      sampled = sorted_sample(*last.device, layout_, last.chunk.span, count, flip_, varying_bits_, scratch.data(), job_,
                              last.stream(kCollect));
      lanes_.wait(job_);
    }
    ranges_ = KeyRanges::of_sample(layout_, sampled, most, flip_);
    distinguishing_bits_ = distinguishing_bits(sampled, size_, varying_bits_);
  }

  void partition() {
    std::vector<Buffer> scratch(lanes_.size());
    engine_.pool.parallel_for(lanes_.size(), [&](uint64_t i) {
      ResidentLane& lane = lanes_[i];
      Piece& piece = lane.piece;
      scratch[i] =
          allocate(lane.memory(), lane.primitives().partition_ranges_scratch_bytes(layout_, piece.in.size, ranges_.size()));
      partition_piece(lane.primitives(), layout_, piece.in, ranges_, piece.out, piece.offsets, scratch[i].data(), job_,
                      lane.stream(kCollect));
    });
    lanes_.wait(job_);
  }

  void sort() {
    engine_.pool.parallel_for(lanes_.size(), [&](uint64_t i) {
      ResidentLane& lane = lanes_[i];
      uint64_t largest = 0;
      for (const Part& part : lane.parts) largest = std::max(largest, part.size);
      lane.sorting.emplace(lane.memory(), lane.primitives(), layout_, largest);
      lane.sorts.clear();
      lane.sorts.reserve(lane.parts.size());
      for (size_t k = 0; k < lane.parts.size(); ++k) sort_part(lane, i, k);
    });
    lanes_.wait(job_);
    bool goes_on = false;
    for (ResidentLane& lane : lanes_) {
      for (LocalSort& sort : lane.sorts) goes_on |= sort.goes_on(job_, lane.stream(kSort));  // one stream: they share buffers
    }
    if (goes_on) lanes_.wait(job_);
  }

  void sort_part(ResidentLane& lane, size_t lane_number, size_t k) {
    const Part& part = lane.parts[k];
    const uint64_t at = part.begin - lane.parts.front().begin;
    LocalSort& sort = lane.sorts.emplace_back(
        *lane.device, layout_, flip_, part.bits, distinguishing_bits_, lane.out.slice(layout_, at, at + part.size),
        lane.sorting->buffers[k % kBuffers].span.slice(layout_, 0, part.size), lane.sorting->scratch[k % kSorts].data());
    Stream& compute = lane.stream(kSort + k % kSorts);
    if (k >= kBuffers) lane.stream(kCollect).wait(*lane.sorted[k % kBuffers]);
    collect(lane, lane_number, part, sort.begin());
    lane.stream(kCollect).record(*lane.collected[k % kBuffers]);
    compute.wait(*lane.collected[k % kBuffers]);
    sort.enqueue(sort.begin().view(), job_, compute);
    compute.record(*lane.sorted[k % kBuffers]);
    job_.add_done(part.size);
  }

  // By the copy engines, which leave the processors to the sorts. Devices begin at different ones, each at itself: or all
  // would read from the same one at a time.
  void collect(ResidentLane& lane, size_t lane_number, const Part& part, const TupleSpan& to) const {
    std::vector<uint64_t> begins(1);
    for (const TupleView& from : part.from) begins.push_back(begins.back() + from.size);
    for (size_t i = 0; i < part.from.size(); ++i) {
      const size_t from = (lane_number + i) % part.from.size();
      copy_tuples(*lane.device, layout_, to.slice(layout_, begins[from], begins[from + 1]), part.from[from],
                  lane.stream(kCollect));
    }
  }

  Engine& engine_;
  const TupleLayout layout_;
  const uint64_t size_, range_, flip_, varying_bits_;
  Job& job_;
  KeyRanges ranges_;
  uint64_t distinguishing_bits_ = ~uint64_t{0};
  flow::Lanes<Stretch> lanes_;
};

// The bits that tell most of one device's keys apart, from a sample that is sorted in `room`: in the same bits whether flipped or
// not. All of them where there are few tuples.
uint64_t sampled_bits(Device& device, TupleLayout layout, const TupleView& in, uint64_t varying_bits, const TupleSpan& room,
                      void* scratch, const Job& job) {
  if (in.size < kLeastSampled) return varying_bits;
  const std::unique_ptr<Stream> stream = device.create_stream();
  device.primitives().sample_keys(layout, in, kSampledAlone, room.keys, job, *stream);
  const std::vector<uint64_t> sample = sorted_sample(device, layout, room, kSampledAlone, 0, varying_bits, scratch, job, *stream);
  return distinguishing_bits(sample, in.size, varying_bits);
}

// The sort of all tuples on one device.
void sort_alone(Device& device, TupleLayout layout, const TupleView& in, uint64_t flip, uint64_t varying_bits,
                const TupleSpan& target, Job& job) {
  const PhaseTimer timer(job, "sort", 2 * in.size * layout.tuple_bytes());
  const Beside beside(device.memory(), device.primitives(), layout, in.size);
  LocalSort sort(device, layout, flip, varying_bits,
                 sampled_bits(device, layout, in, varying_bits, beside.tuples.span, beside.scratch.data(), job), target,
                 beside.tuples.span, beside.scratch.data());
  const std::unique_ptr<Stream> stream = device.create_stream();  // last: it waits for its work
  TupleView flipped = in;
  if (flip) {
    flipped.keys = sort.begin().keys;
    device.primitives().flip_keys(layout, in.keys, sort.begin().keys, in.size, flip, job, *stream);
  }
  sort.enqueue(flipped, job, *stream);
  stream->synchronize();
  if (sort.goes_on(job, *stream)) stream->synchronize();
  job.add_done(in.size);
}

}  // namespace

uint64_t most_in_stretch(uint64_t tuples, size_t devices) {
  // A range goes where its middle lies.
  return std::min(tuples, share_begin(tuples, devices, 1) + most_in_part(tuples, resident_range_tuples(tuples, devices)));
}

size_t sort_resident_bytes(Device& device, TupleLayout layout, uint64_t own, uint64_t tuples, size_t devices) {
  Primitives& primitives = device.primitives();
  return flow::counted_bytes([&](StackAllocator& memory) {
    if (devices == 1) {
      flow::count<Beside>(memory, primitives, layout, own);
      return;
    }
    const OwnedTuples chunk = chunk_of(memory, layout, own);
    allocate(memory, primitives.sort_scratch_bytes(keys_of(layout), most_sampled(own)));
    allocate(memory, primitives.partition_ranges_scratch_bytes(layout, own, Primitives::kMostRanges));
    flow::count<Sorting>(memory, primitives, layout, most_in_part(tuples, resident_range_tuples(tuples, devices)));
  });
}

void sort_resident(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, const std::vector<TupleView>& in,
                   uint64_t flip, uint64_t varying_bits, const StretchOf& out, Job& job) {
  uint64_t size = 0;
  for (const TupleView& tuples : in) size += tuples.size;
  job.add_planned(devices.size() == 1 ? size : 2 * size);
  if (size == 0) {
    for (size_t d = 0; d < devices.size(); ++d) out(d, 0);
  } else if (devices.size() == 1) {
    sort_alone(*devices[0], layout, in[0], flip, varying_bits, out(0, size), job);
  } else {
    ResidentSampleSort sort(engine, layout, devices, in, size, flip, varying_bits, job);
    sort_with_samples(sort.most_in_part(), layout, [&](uint64_t oversampling) { return sort.run(oversampling, out); });
  }
}

}  // namespace warpjoin::sorting
