#include <bit>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"
#include "primitives/gpu/radix_sort.h"

#if defined(WARPJOIN_HIP)
#include <rocprim/rocprim.hpp>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

namespace warpjoin {

namespace gpu {

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

}  // namespace gpu

namespace {

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

}  // namespace

TupleSpan GpuPrimitives::sort(TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t varying_bits, void* scratch,
                              const Job& job, Stream& stream) {
  job.check();
  if (in.size == 0) return a;
  id_.select();
  return gpu::with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    const gpu_stream_t on = raw(stream);
    const uint64_t size = in.size;
    if (in.keys != a.keys) GPU_CHECK(id_.name, gpu_memcpy_async(a.keys, in.keys, size * sizeof(Key), gpu_memcpy_default, on));
    gpu::TwoBuffers<Key> keys{static_cast<Key*>(a.keys), static_cast<Key*>(b.keys)};
    gpu::TwoBuffers<Value> values;
    if constexpr (gpu::is_value<Value>) {
      values = {static_cast<Value*>(a.values), static_cast<Value*>(b.values)};
      if (!in.values) {
        gpu::write_row_numbers<<<gpu::loop_blocks(size), gpu::kThreads, 0, on>>>(values.current, in.first_value, size);
        check_launch("write_row_numbers");
      } else if (in.values != a.values) {
        GPU_CHECK(id_.name, gpu_memcpy_async(a.values, in.values, size * sizeof(Value), gpu_memcpy_default, on));
      }
    }
    const auto bits = static_cast<Key>(varying_bits);
    if (bits == 0) return a;
    size_t scratch_bytes = sort_scratch_bytes(layout, size);
    GPU_CHECK(id_.name, gpu::radix_sort(scratch, scratch_bytes, keys, values, size, static_cast<unsigned>(std::countr_zero(bits)),
                                        static_cast<unsigned>(std::bit_width(bits)), on));
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
    return bytes;
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
