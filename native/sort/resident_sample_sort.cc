// The sample sort of what lies on the devices already: each partitions its tuples by key range, then collects its ranges
// from all of them while it sorts the ones before. Why the exchange is a copy and not the partition's own writes:
// docs/decisions/0007.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "core/error.h"
#include "device/streams.h"
#include "primitives/primitives.h"
#include "sort/parts.h"
#include "sort/sample_sort.h"

namespace warpjoin::sorting {
namespace {

constexpr size_t kSorts = 3;             // parts that are sorted at a time: one alone leaves a device idle where its passes end
constexpr size_t kBuffers = kSorts + 1;  // one part more is being collected

// As many ranges as may be, for few bits to vary in each, but not so many that their passes are all beginnings and ends.
uint64_t resident_range_tuples(uint64_t tuples, size_t devices) {
  constexpr uint64_t kEnough = uint64_t{1} << 20;
  return std::max(finest_range(tuples), std::min(tuples / (64 * devices) + 1, kEnough));
}

TupleLayout keys_of(TupleLayout layout) { return {layout.key_bytes, 0}; }

// Half of a device's tuples at most: they are sorted where its partitioned tuples will be.
uint64_t most_sampled(uint64_t own) { return own / 2; }

// One device's work. Streams come last: they wait for their work before what it refers to goes.
struct ResidentLane {
  Device* device = nullptr;
  TupleSpan out;  // where its stretch of the result goes
  OwnedTuples chunk;
  Piece piece;  // all of its tuples
  std::vector<Part> parts;
  std::array<OwnedTuples, kBuffers> buffers;
  std::array<Buffer, kSorts> scratch;
  std::array<std::unique_ptr<Event>, kBuffers> collected, sorted;
  std::unique_ptr<Stream> collect;
  std::array<std::unique_ptr<Stream>, kSorts> compute;

  Primitives& primitives() const { return device->primitives(); }
};

class ResidentSampleSort {
 public:
  ResidentSampleSort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, const std::vector<TupleView>& in,
                     const std::vector<TupleSpan>& out, uint64_t size, uint64_t varying_bits, Job& job)
      : engine_(engine),
        layout_(layout),
        size_(size),
        range_(resident_range_tuples(size, devices.size())),
        varying_bits_(varying_bits),
        job_(job),
        lanes_(devices.size()) {
    for (size_t i = 0; i < devices.size(); ++i) {
      ResidentLane& lane = lanes_[i];
      lane.device = devices[i];
      lane.out = out[i];
      lane.chunk = OwnedTuples(*lane.device, layout, std::max<uint64_t>(in[i].size, 1));  // holds the reserved memory
      lane.piece = {in[i], lane.chunk.span, {}};
      for (auto* events : {&lane.collected, &lane.sorted}) {
        for (auto& event : *events) event = lane.device->create_event();
      }
      lane.collect = lane.device->create_stream();
      for (auto& stream : lane.compute) stream = lane.device->create_stream();
    }
  }

  // Before any lane's memory goes: the others read it.
  ~ResidentSampleSort() {
    for (ResidentLane& lane : lanes_) {
      lane.collect.reset();
      for (auto& stream : lane.compute) stream.reset();
    }
  }

  uint64_t most_in_part() const { return sorting::most_in_part(size_, range_); }

  /// False where a part would be larger than there is room for: the ranges come from too small a sample.
  bool run(uint64_t oversampling) {
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
    std::vector<std::vector<Part>> parts =
        assign_parts(layout_, pieces, ranges_, varying_bits_, size_, most_in_part(), lanes_.size());
    if (parts.empty()) return false;
    for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].parts = std::move(parts[i]);
    for (const ResidentLane& lane : lanes_) check_room(lane);
    PhaseTimer timer(job_, "sort", 2 * size_ * layout_.tuple_bytes());
    sort();
    return true;
  }

  std::vector<uint64_t> sizes() const {
    std::vector<uint64_t> sizes;
    for (const ResidentLane& lane : lanes_) sizes.push_back(size_of(lane));
    return sizes;
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
                                      last.chunk.span.slice(keys_of(layout_), count, count + own).keys, job_, *lane.collect);
        lane.collect->record(*lane.collected[0]);
        last.collect->wait(*lane.collected[0]);
        count += own;
      }
      sampled = sorted_sample(last, count);
    }
    ranges_ = KeyRanges::of_sample(layout_, sampled, most);
  }

  // Of the `count` keys at the begin of the lane's chunk.
  std::vector<uint64_t> sorted_sample(ResidentLane& lane, uint64_t count) {
    const TupleLayout layout = keys_of(layout_);
    const TupleSpan a = lane.chunk.span.slice(layout, 0, count), b = lane.chunk.span.slice(layout, count, 2 * count);
    const Buffer scratch = allocate(*lane.device, lane.primitives().sort_scratch_bytes(layout, count));
    const TupleSpan sorted = lane.primitives().sort(layout, a.view(), a, b, varying_bits_, scratch.data(), job_, *lane.collect);
    std::vector<unsigned char> bytes(count * layout.key_bytes);
    lane.device->copy(bytes.data(), sorted.keys, bytes.size(), *lane.collect);
    wait();
    std::vector<uint64_t> keys(count);
    for (uint64_t k = 0; k < count; ++k) std::memcpy(&keys[k], &bytes[k * layout.key_bytes], layout.key_bytes);
    return keys;
  }

  void partition() {
    std::vector<Buffer> scratch(lanes_.size());
    engine_.pool.parallel_for(lanes_.size(), [&](uint64_t i) {
      ResidentLane& lane = lanes_[i];
      Piece& piece = lane.piece;
      scratch[i] =
          allocate(*lane.device, lane.primitives().partition_ranges_scratch_bytes(layout_, piece.in.size, ranges_.size()));
      partition_piece(lane.primitives(), layout_, piece, piece.in, ranges_, scratch[i].data(), job_, *lane.collect);
    });
    wait();
  }

  void check_room(const ResidentLane& lane) const {
    const uint64_t size = size_of(lane);
    if (size <= lane.out.size) return;
    throw Error(ErrorCode::device, "Device '" + lane.device->info().name + "' has room for " + std::to_string(lane.out.size) +
                                       " tuples of the result but gets " + std::to_string(size));
  }

  void sort() {
    engine_.pool.parallel_for(lanes_.size(), [&](uint64_t i) {
      ResidentLane& lane = lanes_[i];
      uint64_t largest = 0;
      for (const Part& part : lane.parts) largest = std::max(largest, part.size);
      for (OwnedTuples& buffer : lane.buffers) buffer = OwnedTuples(*lane.device, layout_, largest);
      for (Buffer& scratch : lane.scratch) {
        scratch = allocate(*lane.device, lane.primitives().sort_scratch_bytes(layout_, largest));
      }
      for (size_t k = 0; k < lane.parts.size(); ++k) sort_part(lane, i, k);
    });
    wait();
  }

  void sort_part(ResidentLane& lane, size_t lane_number, size_t k) {
    const Part& part = lane.parts[k];
    const uint64_t at = part.begin - lane.parts.front().begin;
    const TupleSpan target = lane.out.slice(layout_, at, at + part.size);
    TupleSpan from = target, other = lane.buffers[k % kBuffers].span.slice(layout_, 0, part.size);
    if (ends_in_other_buffer(part.bits)) std::swap(from, other);
    Stream& compute = *lane.compute[k % kSorts];
    if (k >= kBuffers) lane.collect->wait(*lane.sorted[k % kBuffers]);
    collect(lane, lane_number, part, from);
    lane.collect->record(*lane.collected[k % kBuffers]);
    compute.wait(*lane.collected[k % kBuffers]);
    TupleSpan sorted = from;
    if (part.bits) {
      sorted =
          lane.primitives().sort(layout_, from.view(), from, other, part.bits, lane.scratch[k % kSorts].data(), job_, compute);
    }
    if (sorted.keys != target.keys) copy(lane, target, sorted.view(), compute);
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
      copy(lane, to.slice(layout_, begins[from], begins[from + 1]), part.from[from], *lane.collect);
    }
  }

  void copy(ResidentLane& lane, const TupleSpan& to, const TupleView& from, Stream& stream) const {
    lane.device->copy(to.keys, from.keys, from.size * layout_.key_bytes, stream);
    if (layout_.value_bytes) lane.device->copy(to.values, from.values, from.size * layout_.value_bytes, stream);
  }

  void wait() {
    std::vector<Stream*> streams;
    for (ResidentLane& lane : lanes_) {
      streams.push_back(lane.collect.get());
      for (auto& stream : lane.compute) streams.push_back(stream.get());
    }
    synchronize_all(streams);
    job_.check();
  }

  Engine& engine_;
  const TupleLayout layout_;
  const uint64_t size_, range_, varying_bits_;
  Job& job_;
  KeyRanges ranges_;
  std::vector<ResidentLane> lanes_;
};

}  // namespace

size_t sample_sort_resident_bytes(Device& device, TupleLayout layout, uint64_t own, uint64_t tuples, size_t devices) {
  Primitives& primitives = device.primitives();
  const uint64_t part = most_in_part(tuples, resident_range_tuples(tuples, devices));
  const size_t sample = StackAllocator::aligned(primitives.sort_scratch_bytes(keys_of(layout), most_sampled(own))),
               partition =
                   StackAllocator::aligned(primitives.partition_ranges_scratch_bytes(layout, own, Primitives::kMostRanges)),
               sort = kBuffers * OwnedTuples::bytes(layout, part) +
                      kSorts * StackAllocator::aligned(primitives.sort_scratch_bytes(layout, part));
  return OwnedTuples::bytes(layout, std::max<uint64_t>(own, 1)) + std::max({sample, partition, sort});
}

std::vector<uint64_t> sample_sort_resident(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices,
                                           const std::vector<TupleView>& in, const std::vector<TupleSpan>& out,
                                           uint64_t varying_bits, Job& job) {
  uint64_t size = 0;
  for (const TupleView& tuples : in) size += tuples.size;
  if (size == 0) return std::vector<uint64_t>(devices.size());
  ResidentSampleSort sort(engine, layout, devices, in, out, size, varying_bits, job);
  sort_with_samples(sort.most_in_part(), layout, [&](uint64_t oversampling) { return sort.run(oversampling); });
  return sort.sizes();
}

}  // namespace warpjoin::sorting
