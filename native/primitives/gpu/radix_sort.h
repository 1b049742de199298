// The radix sorts of CUB and rocPRIM under one name: for keys alone and with values.
#pragma once

#include <cstdint>

#include "device/gpu_runtime.h"
#include "primitives/gpu/blocks.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

/// Two arrays that a sort uses in turn; `current` holds the data.
template <class T>
struct TwoBuffers {
  T* current = nullptr;
  T* other = nullptr;
};

/// Sorts bits [begin_bit, end_bit) between two buffers, stable, and sets `current` to where the result is. With
/// `scratch` null only sets scratch_bytes. For the types of with_layout(): sort.cu instantiates them, as each takes compilers
/// seconds.
template <class Key, class Value>
gpu_error_t radix_sort(void* scratch, size_t& scratch_bytes, TwoBuffers<Key>& keys, TwoBuffers<Value>& values, uint64_t size,
                       unsigned begin_bit, unsigned end_bit, gpu_stream_t stream);

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
