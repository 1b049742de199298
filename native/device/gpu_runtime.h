// One name for each call of the CUDA and HIP runtimes that warpjoin makes. Only native/device and native/primitives/gpu
// include this.
#pragma once

#if defined(WARPJOIN_HIP)
#include <hip/hip_runtime.h>
#define WARPJOIN_GPU_NAME(name) hip##name
#else
#include <cuda_runtime.h>
#define WARPJOIN_GPU_NAME(name) cuda##name
#endif

#include <string>

#include "core/error.h"

namespace warpjoin {

using gpu_error_t = WARPJOIN_GPU_NAME(Error_t);
using gpu_stream_t = WARPJOIN_GPU_NAME(Stream_t);
using gpu_event_t = WARPJOIN_GPU_NAME(Event_t);
#if defined(WARPJOIN_HIP)
using gpu_device_properties_t = hipDeviceProp_t;
using gpu_pointer_attributes_t = hipPointerAttribute_t;
#else
using gpu_device_properties_t = cudaDeviceProp;
using gpu_pointer_attributes_t = cudaPointerAttributes;
#endif

#define gpu_success WARPJOIN_GPU_NAME(Success)
#define gpu_error_peer_access_already_enabled WARPJOIN_GPU_NAME(ErrorPeerAccessAlreadyEnabled)
#define gpu_error_not_ready WARPJOIN_GPU_NAME(ErrorNotReady)
#if defined(WARPJOIN_HIP)
#define gpu_error_out_of_memory hipErrorOutOfMemory
#else
#define gpu_error_out_of_memory cudaErrorMemoryAllocation
#endif
#define gpu_get_error_string WARPJOIN_GPU_NAME(GetErrorString)
#define gpu_get_error_name WARPJOIN_GPU_NAME(GetErrorName)
#define gpu_get_last_error WARPJOIN_GPU_NAME(GetLastError)

#define gpu_get_device_count WARPJOIN_GPU_NAME(GetDeviceCount)
#define gpu_get_device_properties WARPJOIN_GPU_NAME(GetDeviceProperties)
#define gpu_runtime_get_version WARPJOIN_GPU_NAME(RuntimeGetVersion)
#define gpu_driver_get_version WARPJOIN_GPU_NAME(DriverGetVersion)
#define gpu_get_device WARPJOIN_GPU_NAME(GetDevice)
#define gpu_set_device WARPJOIN_GPU_NAME(SetDevice)
#define gpu_device_get_attribute WARPJOIN_GPU_NAME(DeviceGetAttribute)
#if defined(WARPJOIN_HIP)
#define gpu_shared_memory_per_multiprocessor hipDeviceAttributeMaxSharedMemoryPerMultiprocessor
#else
#define gpu_shared_memory_per_multiprocessor cudaDevAttrMaxSharedMemoryPerMultiprocessor
#define gpu_shared_memory_per_block cudaDevAttrMaxSharedMemoryPerBlockOptin
#endif
#define gpu_can_access_peer WARPJOIN_GPU_NAME(DeviceCanAccessPeer)
#define gpu_enable_peer_access WARPJOIN_GPU_NAME(DeviceEnablePeerAccess)

#define gpu_malloc WARPJOIN_GPU_NAME(Malloc)
#define gpu_free WARPJOIN_GPU_NAME(Free)
#define gpu_mem_get_info WARPJOIN_GPU_NAME(MemGetInfo)
#if defined(WARPJOIN_HIP)
#define gpu_malloc_pinned(data, bytes) hipHostMalloc(data, bytes, hipHostMallocPortable | hipHostMallocMapped)
#define gpu_free_pinned hipHostFree
#define gpu_pin(data, bytes) hipHostRegister(data, bytes, hipHostRegisterPortable)
#define gpu_unpin hipHostUnregister
#else
#define gpu_malloc_pinned(data, bytes) cudaHostAlloc(data, bytes, cudaHostAllocPortable | cudaHostAllocMapped)
#define gpu_free_pinned cudaFreeHost
#define gpu_pin(data, bytes) cudaHostRegister(data, bytes, cudaHostRegisterPortable)
#define gpu_unpin cudaHostUnregister
#endif
#define gpu_pointer_get_attributes WARPJOIN_GPU_NAME(PointerGetAttributes)
#define gpu_memory_type_host WARPJOIN_GPU_NAME(MemoryTypeHost)

#define gpu_memcpy_async WARPJOIN_GPU_NAME(MemcpyAsync)
#define gpu_memcpy_default WARPJOIN_GPU_NAME(MemcpyDefault)
#define gpu_memcpy_peer_async WARPJOIN_GPU_NAME(MemcpyPeerAsync)
#define gpu_memset_async WARPJOIN_GPU_NAME(MemsetAsync)

/// Lets a kernel have as much dynamic shared memory as `bytes`, more than it may by default.
template <class... Arguments>
gpu_error_t gpu_allow_shared_memory(void (*kernel)(Arguments...), size_t bytes) {
  return WARPJOIN_GPU_NAME(FuncSetAttribute)(reinterpret_cast<const void*>(kernel),
                                             WARPJOIN_GPU_NAME(FuncAttributeMaxDynamicSharedMemorySize), static_cast<int>(bytes));
}

#define gpu_stream_create_with_priority WARPJOIN_GPU_NAME(StreamCreateWithPriority)
#define gpu_device_get_stream_priority_range WARPJOIN_GPU_NAME(DeviceGetStreamPriorityRange)
#define gpu_stream_non_blocking WARPJOIN_GPU_NAME(StreamNonBlocking)
#define gpu_stream_destroy WARPJOIN_GPU_NAME(StreamDestroy)
#define gpu_stream_synchronize WARPJOIN_GPU_NAME(StreamSynchronize)
#define gpu_stream_wait_event WARPJOIN_GPU_NAME(StreamWaitEvent)

#define gpu_event_create_with_flags WARPJOIN_GPU_NAME(EventCreateWithFlags)
#define gpu_event_disable_timing WARPJOIN_GPU_NAME(EventDisableTiming)
#define gpu_event_query WARPJOIN_GPU_NAME(EventQuery)
#define gpu_event_record WARPJOIN_GPU_NAME(EventRecord)
#define gpu_event_synchronize WARPJOIN_GPU_NAME(EventSynchronize)
#define gpu_event_destroy WARPJOIN_GPU_NAME(EventDestroy)

/// Whose memory a pointer is.
template <class Attributes>
auto gpu_memory_type(const Attributes& attributes) {
  if constexpr (requires { attributes.type; }) {
    return attributes.type;
  } else {  // ROCm 5
    return attributes.memoryType;
  }
}

/// Throws what a call that failed with `error` says: Error(device_memory) where the GPU has too little free memory, else
/// Error(device), which names the device, the call and the runtime's error. `call` may go on with its arguments.
[[noreturn]] void gpu_fail(gpu_error_t error, const char* call, const std::string& device_name);

/// gpu_fail() unless a runtime call succeeded.
inline void gpu_check(gpu_error_t error, const char* call, const std::string& device_name) {
  if (error != gpu_success) gpu_fail(error, call, device_name);
}
/// The same for a call that takes `bytes` of pinned host memory: Error(memory_limit) where the system has too little of it.
void gpu_check_pinned(gpu_error_t error, const char* call, size_t bytes, const std::string& device_name);

#define GPU_TEXT_AS_IT_IS(...) #__VA_ARGS__
/// A call as the runtime names it.
#define GPU_TEXT(...) GPU_TEXT_AS_IT_IS(__VA_ARGS__)
#define GPU_CHECK(device_name, call) ::warpjoin::gpu_check((call), GPU_TEXT(call), (device_name))

}  // namespace warpjoin
