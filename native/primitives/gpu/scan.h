// The prefix sums of CUB and rocPRIM under one name.
#pragma once

#include <cstdint>

#include "device/gpu_runtime.h"
#include "primitives/gpu/blocks.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

/// Replaces each number by the sum of those before it. With `scratch` null only sets scratch_bytes. For uint32_t and uint64_t:
/// scan.cu instantiates them, as the libraries' headers take compilers seconds.
template <class T>
gpu_error_t sums_before(void* scratch, size_t& scratch_bytes, T* numbers, uint64_t size, gpu_stream_t stream);

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
