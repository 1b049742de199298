// GPUs as devices: CUDA or HIP, whichever the addon was built with (gpu_device.cc); none in a host-only build
// (gpu_device_none.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace warpjoin {

/// "cuda", "hip" or "none": what this addon was built with.
const char* gpu_backend() noexcept;

/// A GPU as the runtime describes it.
struct GpuInfo : DeviceInfo {
  std::string architecture{};  ///< compute capability "9.0", or "gfx90a"; empty: unknown
  std::vector<int> peers{};    ///< GPUs whose memory it addresses, by the runtime's word: Topology::probe() tries it
};

/// The GPUs that the process may use (CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES applied); empty where there is no
/// GPU, no driver or no GPU build. Never throws.
std::vector<GpuInfo> visible_gpus() noexcept;

/// What the GPU code was built for, and what the runtime says of the driver.
struct GpuSupport {
  std::string architectures{};    ///< as given to the compiler, separated by commas: "75-real,120"; empty: no GPU code
  std::string runtime_version{};  ///< "13.0", of the runtime that the addon was built with; empty: none
  std::string driver_version{};   ///< the newest runtime that the driver works with; empty: no driver
  std::string error_name{};       ///< "cudaErrorNoDevice": why visible_gpus() is empty; empty: the runtime's calls succeed
  std::string error{};            ///< the runtime's text for it
};
GpuSupport gpu_support();

/// Makes engine device `ordinal` of GPU `gpu`. `limit_bytes` 0: 80 % of its memory. Throws Error(device).
std::unique_ptr<Device> create_gpu_device(int ordinal, int gpu, size_t limit_bytes);

}  // namespace warpjoin
