// The radix sorts of CUB and rocPRIM under one name: two of each, for keys alone and with values.
#pragma once

#include <cstdint>

#include "device/gpu_runtime.h"
#include "primitives/gpu/kernels.h"

#if defined(WARPJOIN_HIP)
#include <rocprim/rocprim.hpp>
#else
#include <cub/device/device_radix_sort.cuh>
#endif

namespace warpjoin::gpu {

/// Two arrays that a sort uses in turn; `current` holds the data.
template <class T>
struct TwoBuffers {
  T* current = nullptr;
  T* other = nullptr;
};

/// Sorts bits [begin_bit, end_bit) between two buffers, stable, and sets `current` to where the result is. With
/// `scratch` null only sets scratch_bytes.
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

/// Sorts bits [begin_bit, end_bit) from one place to another, stable; the input stays as it is.
template <class Key, class Value>
gpu_error_t radix_sort_copy(void* scratch, size_t& scratch_bytes, const Key* keys_in, Key* keys_out, const Value* values_in,
                            Value* values_out, uint64_t size, unsigned begin_bit, unsigned end_bit, gpu_stream_t stream) {
#if defined(WARPJOIN_HIP)
  if constexpr (is_value<Value>) {
    return rocprim::radix_sort_pairs(scratch, scratch_bytes, keys_in, keys_out, values_in, values_out, size, begin_bit, end_bit,
                                     stream);
  } else {
    return rocprim::radix_sort_keys(scratch, scratch_bytes, keys_in, keys_out, size, begin_bit, end_bit, stream);
  }
#else
  const auto begin = static_cast<int>(begin_bit), end = static_cast<int>(end_bit);
  if constexpr (is_value<Value>) {
    return cub::DeviceRadixSort::SortPairs(scratch, scratch_bytes, keys_in, keys_out, values_in, values_out, size, begin, end,
                                           stream);
  } else {
    return cub::DeviceRadixSort::SortKeys(scratch, scratch_bytes, keys_in, keys_out, size, begin, end, stream);
  }
#endif
}

}  // namespace warpjoin::gpu
