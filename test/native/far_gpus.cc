// Part of the addons that scripts/asan-addon.mjs and scripts/far-addon.mjs build: far devices (far_device.h) in place of GPUs, so
// that what plans do on GPUs runs without any. WARPJOIN_FAR_GPUS says how many there are, none if it is not set;
// WARPJOIN_FAR_LINKS that they address each other's memory ("linked", as if it is not set), that they don't ("apart"), or that
// they group tuples for each other, too ("grouping").
#include <cstdlib>
#include <string_view>

#include "core/host_memory.h"
#include "core/thread_pool.h"
#include "device/gpu_device.h"
#include "far_device.h"

namespace warpjoin {
namespace {

constexpr size_t kMemoryBytes = size_t{1} << 30;

std::string_view links() {
  const char* const links = std::getenv("WARPJOIN_FAR_LINKS");
  return links ? links : "linked";
}

/// A device, and the pool of its primitives.
struct PoolOwner {
  ThreadPool pool{2};
};
class FarGpu final : private PoolOwner, public testing::FarDevice {
 public:
  FarGpu(int ordinal, size_t limit_bytes, std::shared_ptr<testing::FarMemories> all, std::shared_ptr<testing::FarPinning> pinning)
      : FarDevice(create_host_device(ordinal, limit_bytes, HostMemory::create(kMemoryBytes), pool, HostStreams::with_threads),
                  std::move(all), std::move(pinning), links() != "apart", links() == "grouping") {}
};

}  // namespace

const char* gpu_backend() noexcept { return "none"; }

std::vector<GpuInfo> visible_gpus() noexcept {
  const char* const count = std::getenv("WARPJOIN_FAR_GPUS");
  std::vector<GpuInfo> gpus;
  for (int i = 0; i < (count ? std::atoi(count) : 0); ++i)
    gpus.push_back({{DeviceKind::gpu, i, "far " + std::to_string(i), kMemoryBytes, kMemoryBytes, {}}});
  return gpus;
}

GpuSupport gpu_support() { return {}; }

std::unique_ptr<Device> create_gpu_device(int ordinal, int gpu, size_t limit_bytes) {
  if (static_cast<size_t>(gpu) >= visible_gpus().size())
    throw Error(ErrorCode::device, "There is no far device " + std::to_string(gpu));
  static const auto all = std::make_shared<testing::FarMemories>();
  static const auto pinning = std::make_shared<testing::FarPinning>(false);
  return std::make_unique<FarGpu>(ordinal, limit_bytes ? limit_bytes : kMemoryBytes / 5 * 4, all, pinning);
}

}  // namespace warpjoin
