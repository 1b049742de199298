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

/// The GPUs that the process may use (CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES applied); empty where there is no
/// GPU, no driver or no GPU build. Never throws.
std::vector<DeviceInfo> visible_gpus() noexcept;

/// Makes engine device `ordinal` of GPU `gpu`. `limit_bytes` 0: 80 % of its memory. Throws Error(device).
std::unique_ptr<Device> create_gpu_device(int ordinal, int gpu, size_t limit_bytes);

}  // namespace warpjoin
