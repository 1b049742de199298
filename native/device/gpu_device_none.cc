#include "core/error.h"
#include "device/gpu_device.h"

namespace warpjoin {

const char* gpu_backend() noexcept { return "none"; }

std::vector<DeviceInfo> visible_gpus() noexcept { return {}; }

std::unique_ptr<Device> create_gpu_device(int, int, size_t) {
  throw Error(ErrorCode::device,
              "This build of warpjoin has no GPU support: no CUDA or ROCm toolkit was found when it was installed");
}

}  // namespace warpjoin
