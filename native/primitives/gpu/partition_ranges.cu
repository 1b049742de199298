// Partitions by key range: one split, whose buckets are found once, in a table of cells of the keys.
#include <algorithm>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/multisplit.h"

namespace warpjoin {
namespace {

template <class Key, class Value>
struct RangeSplit {
  using Shape = gpu::ShapeOf<Key, Value>;
  using Buckets = gpu::RangeBuckets<Key>;

  Key* bounds;
  gpu::SplitCounts counts;
  size_t bytes;

  RangeSplit(void* scratch, uint64_t size, size_t ranges) : RangeSplit(host::Carver(scratch), size, ranges) {}

 private:
  RangeSplit(host::Carver carver, uint64_t size, size_t ranges)
      : bounds(carver.take<Key>(ranges)),
        counts(carver, Shape::kTile, size, static_cast<unsigned>(ranges), Buckets::kKept),
        bytes(carver.bytes()) {}
};

template <class Key>
__global__ void flip_all(const Key* keys, Key* flipped, uint64_t size, Key flip) {
  for (uint64_t i = gpu::loop_begin(); i < size; i += gpu::loop_step()) flipped[i] = keys[i] ^ flip;
}

}  // namespace

void GpuPrimitives::partition_ranges(TupleLayout layout, TupleView in, uint64_t flip, std::span<const uint64_t> bounds,
                                     TupleSpan out, uint64_t* host_offsets, void* scratch, const Job& job, Stream& stream) {
  job.check();
  const size_t ranges = bounds.size() + 1;
  if (ranges > kMostRanges) throw Error(ErrorCode::internal, "A partition has at most 256 ranges");
  if (in.size == 0) {
    std::fill(host_offsets, host_offsets + ranges + 1, 0);
    return;
  }
  id_.select();
  const gpu_stream_t on = raw(stream);
  ResultSlots::Slot& slot = results_.acquire((kMostRanges + ranges + 1) * sizeof(uint64_t), on);
  auto* offsets = slot.as<uint64_t>() + kMostRanges;
  gpu::with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    const RangeSplit<Key, Value> own(scratch, in.size, ranges);
    // Bounds that no key reaches, being wider than keys, leave the ranges above them empty.
    const auto reached = static_cast<unsigned>(
        std::upper_bound(bounds.begin(), bounds.end(), uint64_t{static_cast<Key>(~Key{0})}) - bounds.begin());
    auto* const narrow = slot.as<Key>();
    for (unsigned b = 0; b < reached; ++b) narrow[b] = static_cast<Key>(bounds[b]);
    gpu::copy_few<<<1, gpu::kThreads, 0, on>>>(own.bounds, narrow, reached);
    check_launch("copy_few");
    const typename RangeSplit<Key, Value>::Buckets buckets(own.bounds, narrow, reached, static_cast<Key>(flip));
    gpu::split<typename RangeSplit<Key, Value>::Shape>(gpu::Run<Key, Value>(in), buckets, own.counts, static_cast<Key*>(out.keys),
                                                       static_cast<Value*>(out.values), offsets, on, id_.name);
  });
  results_.finish(slot, [=] { std::copy(offsets, offsets + ranges + 1, host_offsets); });
}

size_t GpuPrimitives::partition_ranges_scratch_bytes(TupleLayout layout, uint64_t size, size_t ranges) {
  if (size == 0) return 0;
  return gpu::with_layout(
      layout, [&]<class Key, class Value>(Key, Value) { return RangeSplit<Key, Value>(nullptr, size, ranges).bytes; });
}

void GpuPrimitives::flip_keys(TupleLayout layout, const void* keys, void* flipped, uint64_t size, uint64_t flip, const Job& job,
                              Stream& stream) {
  job.check();
  if (size == 0) return;
  id_.select();
  const auto launch = [&]<class Key>(Key) {
    flip_all<<<gpu::loop_blocks(size), gpu::kThreads, 0, raw(stream)>>>(static_cast<const Key*>(keys), static_cast<Key*>(flipped),
                                                                        size, static_cast<Key>(flip));
  };
  layout.key_bytes == 4 ? launch(uint32_t{}) : launch(uint64_t{});
  check_launch("flip_all");
}

}  // namespace warpjoin
