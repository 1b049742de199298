#include <bit>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"
#include "primitives/gpu/multisplit.h"
#include "primitives/gpu/radix_sort.h"

#if defined(WARPJOIN_HIP)
#include <rocprim/rocprim.hpp>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

namespace warpjoin {

namespace gpu {
inline namespace WARPJOIN_BLOCKS {

template <class Key, class Value>
gpu_error_t radix_sort(void* scratch, size_t& scratch_bytes, TwoBuffers<Key>& keys, TwoBuffers<Value>& values, uint64_t size,
                       unsigned begin_bit, unsigned end_bit, gpu_stream_t stream) {
#if defined(WARPJOIN_HIP)
  rocprim::double_buffer<Key> k(keys.current, keys.other);
  rocprim::double_buffer<Value> v(values.current, values.other);
  gpu_error_t error;
  if constexpr (is_value<Value>) {
    error = rocprim::radix_sort_pairs(scratch, scratch_bytes, k, v, size, begin_bit, end_bit, stream);
  } else {
    error = rocprim::radix_sort_keys(scratch, scratch_bytes, k, size, begin_bit, end_bit, stream);
  }
  keys = {k.current(), k.alternate()};
  values = {v.current(), v.alternate()};
#else
  cub::DoubleBuffer<Key> k(keys.current, keys.other);
  cub::DoubleBuffer<Value> v(values.current, values.other);
  const auto begin = static_cast<int>(begin_bit), end = static_cast<int>(end_bit);
  gpu_error_t error;
  if constexpr (is_value<Value>) {
    error = cub::DeviceRadixSort::SortPairs(scratch, scratch_bytes, k, v, size, begin, end, stream);
  } else {
    error = cub::DeviceRadixSort::SortKeys(scratch, scratch_bytes, k, size, begin, end, stream);
  }
  keys = {k.Current(), k.Alternate()};
  values = {v.Current(), v.Alternate()};
#endif
  return error;
}

template gpu_error_t radix_sort(void*, size_t&, TwoBuffers<uint32_t>&, TwoBuffers<NoValue>&, uint64_t, unsigned, unsigned,
                                gpu_stream_t);
template gpu_error_t radix_sort(void*, size_t&, TwoBuffers<uint32_t>&, TwoBuffers<uint32_t>&, uint64_t, unsigned, unsigned,
                                gpu_stream_t);
template gpu_error_t radix_sort(void*, size_t&, TwoBuffers<uint32_t>&, TwoBuffers<uint64_t>&, uint64_t, unsigned, unsigned,
                                gpu_stream_t);
template gpu_error_t radix_sort(void*, size_t&, TwoBuffers<uint64_t>&, TwoBuffers<NoValue>&, uint64_t, unsigned, unsigned,
                                gpu_stream_t);
template gpu_error_t radix_sort(void*, size_t&, TwoBuffers<uint64_t>&, TwoBuffers<uint32_t>&, uint64_t, unsigned, unsigned,
                                gpu_stream_t);
template gpu_error_t radix_sort(void*, size_t&, TwoBuffers<uint64_t>&, TwoBuffers<uint64_t>&, uint64_t, unsigned, unsigned,
                                gpu_stream_t);

}  // namespace WARPJOIN_BLOCKS
}  // namespace gpu

namespace {

/// The scratch of a sort's first pass where that is a split.
template <class Key, class Value>
struct FirstSplit {
  gpu::SplitCounts counts;
  uint64_t* offsets;
  size_t bytes;

  FirstSplit(void* scratch, uint64_t size) : FirstSplit(host::Carver(scratch), size) {}

 private:
  FirstSplit(host::Carver carver, uint64_t size)
      : counts(carver, gpu::ShapeOf<Key, Value>::kTile, size, gpu::kMostBuckets, false),
        offsets(carver.take<uint64_t>(gpu::kMostBuckets + 1)),
        bytes(carver.bytes()) {}
};

constexpr unsigned kVaryingBlocks = 512;

// Each block leaves its part in `blocks`: atomics on host memory are not to be had on every link.
template <class Key>
__global__ void find_varying_bits(const Key* keys, uint64_t size, Key first, uint64_t* blocks) {
  __shared__ unsigned long long found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  Key bits = 0;
  for (uint64_t i = gpu::loop_begin(); i < size; i += gpu::loop_step()) bits |= keys[i] ^ first;
  if (bits) atomicOr(&found, static_cast<unsigned long long>(bits));
  __syncthreads();
  if (threadIdx.x == 0) blocks[blockIdx.x] = found;
}

template <class Key>
__global__ void gather_sample(const Key* keys, uint64_t size, uint64_t count, Key* sample) {
  for (uint64_t i = gpu::loop_begin(); i < count; i += gpu::loop_step()) sample[i] = keys[sampled_row(size, count, i)];
}

// The thread at the begin of a tie sorts it, if it is short. Others may read its keys meanwhile, but look at the bits alone that
// the whole tie has.
template <class Key, class Value>
__global__ void sort_each_tie(Key* keys, Value* values, uint64_t size, unsigned low_bits, uint32_t* unsorted) {
  constexpr uint64_t kMost = Primitives::kMostTied;
  for (uint64_t i = gpu::loop_begin(); i + 1 < size; i += gpu::loop_step()) {
    const Key key = keys[i], next = keys[i + 1];
    const auto tied = [&](uint64_t j) { return ((keys[j] ^ key) >> low_bits) == 0; };
    if ((key ^ next) >> low_bits) continue;
    if (i > 0 && tied(i - 1)) {
      if (key > next && i + 1 >= kMost && tied(i + 1 - kMost)) *unsorted = 1;  // in a long one, which nobody changes
      continue;
    }
    uint64_t end = i + 2;
    while (end < size && end - i <= kMost && tied(end)) ++end;
    for (uint64_t j = i + 1; j < end; ++j) {
      const Key moved = keys[j];
      if (keys[j - 1] <= moved) continue;
      if (end - i > kMost) {
        *unsorted = 1;
        break;
      }
      Value value;
      if constexpr (gpu::is_value<Value>) value = values[j];
      uint64_t at = j;
      for (; at > i && keys[at - 1] > moved; --at) {
        keys[at] = keys[at - 1];
        if constexpr (gpu::is_value<Value>) values[at] = values[at - 1];
      }
      keys[at] = moved;
      if constexpr (gpu::is_value<Value>) values[at] = value;
    }
  }
}

}  // namespace

TupleSpan GpuPrimitives::sort(TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t bits, void* scratch,
                              const Job& job, Stream& stream) {
  job.check();
  if (in.size == 0) return a;
  id_.select();
  return gpu::with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    const gpu_stream_t on = raw(stream);
    const auto by = static_cast<Key>(bits);
    unsigned begin_bit = by ? static_cast<unsigned>(std::countr_zero(by)) : 0;
    const auto end_bit = static_cast<unsigned>(std::bit_width(by));
    gpu::TwoBuffers<Key> keys{static_cast<Key*>(a.keys), static_cast<Key*>(b.keys)};
    gpu::TwoBuffers<Value> values;
    bool in_place = in.keys == a.keys;
    if constexpr (gpu::is_value<Value>) {
      values = {static_cast<Value*>(a.values), static_cast<Value*>(b.values)};
      in_place = in_place && in.values == a.values;
    }
    if (!in_place) {  // the first pass is a split, which leaves the input as it is
      FirstSplit<Key, Value> first(scratch, in.size);
      const Digit digit{static_cast<uint8_t>(begin_bit), static_cast<uint8_t>(std::min(end_bit - begin_bit, gpu::kSplitBits))};
      first.counts.buckets = digit.count();
      gpu::split_by_digit(gpu::Run<Key, Value>(in), digit, first.counts, keys.other, values.other, first.offsets, on, id_.name);
      std::swap(keys.current, keys.other);
      std::swap(values.current, values.other);
      begin_bit += digit.bits;
    }
    if (begin_bit < end_bit) {
      size_t scratch_bytes = sort_scratch_bytes(layout, in.size);
      GPU_CHECK(id_.name, gpu::radix_sort(scratch, scratch_bytes, keys, values, in.size, begin_bit, end_bit, on));
    }
    return keys.current == a.keys ? a : b;
  });
}

size_t GpuPrimitives::sort_scratch_bytes(TupleLayout layout, uint64_t size) {
  if (size == 0) return 0;
  id_.select();
  return gpu::with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    size_t bytes = 0;
    gpu::TwoBuffers<Key> keys;
    gpu::TwoBuffers<Value> values;
    GPU_CHECK(id_.name, gpu::radix_sort(nullptr, bytes, keys, values, size, 0, 8 * sizeof(Key), gpu_stream_t{}));
    return std::max(bytes, FirstSplit<Key, Value>(nullptr, size).bytes);
  });
}

void GpuPrimitives::sort_ties(TupleLayout layout, TupleSpan tuples, unsigned low_bits, bool* host_unsorted, const Job& job,
                              Stream& stream) {
  job.check();
  if (tuples.size < 2) return;
  id_.select();
  ResultSlots::Slot& slot = results_.acquire(sizeof(uint32_t), raw(stream));
  auto* const unsorted = slot.as<uint32_t>();
  *unsorted = 0;
  gpu::with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    sort_each_tie<<<gpu::loop_blocks(tuples.size), gpu::kThreads, 0, raw(stream)>>>(
        static_cast<Key*>(tuples.keys), static_cast<Value*>(tuples.values), tuples.size, low_bits, unsorted);
  });
  check_launch("sort_each_tie");
  results_.finish(slot, [=] {
    if (*unsorted) *host_unsorted = true;
  });
}

void GpuPrimitives::varying_bits(TupleLayout layout, TupleView in, const uint64_t* host_first_key, uint64_t* host_varying_bits,
                                 const Job& job, Stream& stream) {
  job.check();
  if (in.size == 0) return;
  id_.select();
  const unsigned blocks = std::min(gpu::loop_blocks(in.size), kVaryingBlocks);
  ResultSlots::Slot& slot = results_.acquire(blocks * sizeof(uint64_t), raw(stream));
  auto* found = slot.as<uint64_t>();
  const auto launch = [&]<class Key>(Key first) {
    find_varying_bits<<<blocks, gpu::kThreads, 0, raw(stream)>>>(static_cast<const Key*>(in.keys), in.size, first, found);
  };
  layout.key_bytes == 4 ? launch(static_cast<uint32_t>(*host_first_key)) : launch(*host_first_key);
  check_launch("find_varying_bits");
  results_.finish(slot, [=] {
    for (unsigned block = 0; block < blocks; ++block) *host_varying_bits |= found[block];
  });
}

void GpuPrimitives::sample_keys(TupleLayout layout, TupleView in, uint64_t count, void* keys, const Job& job, Stream& stream) {
  job.check();
  if (count == 0) return;
  id_.select();
  const auto launch = [&]<class Key>(Key) {
    gather_sample<<<gpu::loop_blocks(count), gpu::kThreads, 0, raw(stream)>>>(static_cast<const Key*>(in.keys), in.size, count,
                                                                              static_cast<Key*>(keys));
  };
  layout.key_bytes == 4 ? launch(uint32_t{}) : launch(uint64_t{});
  check_launch("gather_sample");
}

}  // namespace warpjoin
