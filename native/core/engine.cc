#include "core/engine.h"

#include <thread>

#include "core/error.h"
#include "device/gpu_device.h"
#include "device/host_device.h"

namespace warpjoin {

Engine::Engine(const EngineConfig& config)
    : memory(config.memory ? config.memory : HostMemory::create(config.memory_limit_bytes)),
      pool(config.threads ? config.threads : std::max(1u, std::thread::hardware_concurrency())),
      pinned(memory, config.transfer_block_bytes) {
  for (int i = 0; i < config.host_devices; ++i) {
    const size_t limit = config.device_memory_limit_bytes ? config.device_memory_limit_bytes : config.memory_limit_bytes;
    devices.push_back(create_host_device(i, limit, memory, pool));
  }
  for (const int gpu : config.gpus) {
    devices.push_back(create_gpu_device(static_cast<int>(devices.size()), gpu, config.device_memory_limit_bytes));
  }
  std::vector<Device*> all;
  for (const auto& device : devices) all.push_back(device.get());
  topology = Topology::probe(all);
}

std::vector<Device*> Engine::select(const std::vector<int>& ordinals) const {
  std::vector<Device*> selected;
  for (const int ordinal : ordinals) {
    if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices.size()) {
      throw Error(ErrorCode::option, "There is no device " + std::to_string(ordinal) + ": the engine has " +
                                         std::to_string(devices.size()) + " (0 to " + std::to_string(devices.size() - 1) + ")");
    }
    selected.push_back(devices[static_cast<size_t>(ordinal)].get());
  }
  return selected;
}

}  // namespace warpjoin
