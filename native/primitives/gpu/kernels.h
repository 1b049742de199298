// What the kernels share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/tuples.h"
#include "device/gpu_runtime.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin::gpu {

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

/// Writes first, first + 1, ... : implied values where an algorithm needs them in memory.
template <class Value>
__global__ void write_row_numbers(Value* values, uint64_t first, uint64_t size) {
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) values[i] = static_cast<Value>(first + i);
}

}  // namespace warpjoin::gpu
