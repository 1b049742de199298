#include "core/error.h"
#include "device/gpu_device.h"

namespace warpjoin {

const char* gpu_backend() noexcept { return "none"; }

std::vector<GpuInfo> visible_gpus() noexcept { return {}; }

GpuSupport gpu_support() { return {}; }

std::unique_ptr<Device> create_gpu_device(int, int, size_t) { throw Error(ErrorCode::device, "This addon has no code for GPUs"); }

}  // namespace warpjoin
