// The prefix sums of CUB and rocPRIM under one name.
#pragma once

#include <cstdint>

#include "device/gpu_runtime.h"

#if defined(WARPJOIN_HIP)
#include <rocprim/rocprim.hpp>
#else
#include <cub/device/device_scan.cuh>
#endif

namespace warpjoin::gpu {

/// Replaces each number by the sum of those before it. With `scratch` null only sets scratch_bytes.
template <class T>
gpu_error_t sums_before(void* scratch, size_t& scratch_bytes, T* numbers, uint64_t size, gpu_stream_t stream) {
#if defined(WARPJOIN_HIP)
  return rocprim::exclusive_scan(scratch, scratch_bytes, numbers, numbers, T{0}, size, rocprim::plus<T>(), stream);
#else
  return cub::DeviceScan::ExclusiveSum(scratch, scratch_bytes, numbers, numbers, size, stream);
#endif
}

}  // namespace warpjoin::gpu
