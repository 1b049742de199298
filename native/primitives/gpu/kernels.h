// What the kernels share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/tuples.h"
#include "device/gpu_runtime.h"
#include "primitives/gpu/blocks.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

using host::NoValue;
using host::with_layout;

template <class Value>
inline constexpr bool is_value = !std::is_same_v<Value, NoValue>;

constexpr unsigned kThreads = 256;  // a block

/// Blocks for a loop of all threads over `size` items.
inline unsigned loop_blocks(uint64_t size) {
  constexpr uint64_t kMost = 2048;  // several for each multiprocessor of any GPU
  return static_cast<unsigned>(std::clamp<uint64_t>((size + kThreads - 1) / kThreads, 1, kMost));
}

__device__ inline uint64_t loop_begin() { return uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline uint64_t loop_step() { return uint64_t{gridDim.x} * blockDim.x; }

constexpr bool kSmallBlocks = WARPJOIN_SMALL_BLOCKS;

// --- Lanes ---
// The threads of a block that run in step: 32 on NVIDIA's GPUs, 64 on AMD's data-centre ones. Blocks have one dimension.

#if defined(WARPJOIN_HIP)
constexpr unsigned kLanes = 64;
#if defined(__AMDGCN_WAVEFRONT_SIZE)
static_assert(__AMDGCN_WAVEFRONT_SIZE == kLanes, "this GPU runs 32 lanes in step; the kernels were written for 64");
#endif
#else
constexpr unsigned kLanes = 32;
#endif
using LaneMask = std::conditional_t<kLanes == 64, unsigned long long, unsigned>;  // a bit for each lane

__device__ inline unsigned lane() { return threadIdx.x % kLanes; }
__device__ inline LaneMask lanes_below() { return (LaneMask{1} << lane()) - 1; }

/// Orders the lanes' accesses to shared memory before and after it.
__device__ inline void sync_lanes() {
#if defined(WARPJOIN_HIP)
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
#else
  __syncwarp();
#endif
}

// All lanes call these together.
__device__ inline LaneMask ballot(bool vote) {
#if defined(WARPJOIN_HIP)
  return __ballot(vote);
#else
  return __ballot_sync(~LaneMask{0}, vote);
#endif
}

template <class T>
__device__ T shuffle(T value, unsigned from_lane) {
#if defined(WARPJOIN_HIP)
  return __shfl(value, static_cast<int>(from_lane));
#else
  return __shfl_sync(~LaneMask{0}, value, static_cast<int>(from_lane));
#endif
}

template <class T>
__device__ T shuffle_up(T value, unsigned distance) {
#if defined(WARPJOIN_HIP)
  return __shfl_up(value, distance);
#else
  return __shfl_up_sync(~LaneMask{0}, value, distance);
#endif
}

__device__ inline unsigned popcount(LaneMask mask) {
  return static_cast<unsigned>(kLanes == 64 ? __popcll(mask) : __popc(static_cast<unsigned>(mask)));
}

/// The sum of the values of all threads before this one. All threads of a block of `threads` call it together; `sums` is
/// shared memory for threads / kLanes values, which another call may use again only after a __syncthreads().
template <unsigned threads, class T>
__device__ T sum_before(T value, T* sums) {
  T sum = value;
#pragma unroll
  for (unsigned distance = 1; distance < kLanes; distance *= 2) {
    const T other = shuffle_up(sum, distance);
    if (lane() >= distance) sum += other;
  }
  const unsigned group = threadIdx.x / kLanes;
  if (lane() == kLanes - 1) sums[group] = sum;
  __syncthreads();
  sum -= value;
#pragma unroll
  for (unsigned g = 0; g < threads / kLanes; ++g) sum += g < group ? sums[g] : T{0};
  return sum;
}

/// Adds a number of each of a block's threads to one in memory.
template <class T>
__device__ void add_of_block(T* total, T number) {
  __shared__ T sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  for (unsigned distance = kLanes / 2; distance > 0; distance /= 2) number += shuffle(number, (lane() + distance) % kLanes);
  if (lane() == 0 && number) atomicAdd(&sum, number);
  __syncthreads();
  if (threadIdx.x == 0 && sum) atomicAdd(total, sum);
  __syncthreads();
}

/// The last index in [0, size) whose number is not greater; numbers ascend from 0.
template <class T>
__device__ uint64_t last_not_above(const T* numbers, uint64_t size, uint64_t number) {
  uint64_t low = 0, high = size;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (numbers[middle] <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Hides from the compiler how a value came about.
__device__ inline void make_opaque(uint32_t& value) {
#if defined(WARPJOIN_HIP)
  asm("" : "+v"(value));
#else
  asm("" : "+r"(value));
#endif
}

/// Reads what will not be read again: it leaves the caches first.
template <class T>
__device__ T load_once(const T* data) {
#if defined(WARPJOIN_HIP)
  if constexpr (std::is_arithmetic_v<T>) {
    return __builtin_nontemporal_load(data);
  } else {
    return *data;
  }
#else
  return __ldcs(data);
#endif
}

/// Writes what will not be read soon: it leaves the caches first.
template <class T>
__device__ void store_once(T* to, T value) {
#if defined(WARPJOIN_HIP)
  __builtin_nontemporal_store(value, to);
#else
  __stcs(to, value);
#endif
}

/// A view as kernels read it.
template <class Key, class Value>
struct Run {
  const Key* keys = nullptr;
  const Value* values = nullptr;
  uint64_t first_value = 0;
  uint64_t size = 0;

  Run() = default;
  explicit Run(const TupleView& view)
      : keys(static_cast<const Key*>(view.keys)),
        values(static_cast<const Value*>(view.values)),
        first_value(view.first_value),
        size(view.size) {}
  __device__ Value value(uint64_t i) const { return values ? values[i] : static_cast<Value>(first_value + i); }
};

/// How many of the first `diagonal` tuples of the stable merge come from `a`.
template <class Key, class Index>
__device__ Index merge_path(const Key* a, Index a_size, const Key* b, Index b_size, Index diagonal) {
  Index low = diagonal > b_size ? diagonal - b_size : 0, high = diagonal < a_size ? diagonal : a_size;
  while (low < high) {
    const Index middle = low + (high - low) / 2;
    if (a[middle] <= b[diagonal - 1 - middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Copies a little between device and pinned memory, in one block. A copy engine would do so in its turn: behind the megabytes
/// that are on their way over the link, while this stream, and what waits for it, stands still.
template <class T>
__global__ void copy_few(T* to, const T* from, unsigned count) {
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
