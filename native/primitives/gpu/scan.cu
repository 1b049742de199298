#include "primitives/gpu/scan.h"

#if defined(WARPJOIN_HIP)
#include <rocprim/rocprim.hpp>
#else
#include <cub/device/device_scan.cuh>
#endif

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

template <class T>
gpu_error_t sums_before(void* scratch, size_t& scratch_bytes, T* numbers, uint64_t size, gpu_stream_t stream) {
#if defined(WARPJOIN_HIP)
  return rocprim::exclusive_scan(scratch, scratch_bytes, numbers, numbers, T{0}, size, rocprim::plus<T>(), stream);
#else
  return cub::DeviceScan::ExclusiveSum(scratch, scratch_bytes, numbers, numbers, size, stream);
#endif
}

template gpu_error_t sums_before(void*, size_t&, uint32_t*, uint64_t, gpu_stream_t);
template gpu_error_t sums_before(void*, size_t&, uint64_t*, uint64_t, gpu_stream_t);

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
