#include "engine/engine.h"

#include <algorithm>
#include <bit>
#include <thread>

#include "core/error.h"
#include "device/gpu_device.h"
#include "device/host_device.h"

namespace warpjoin {
namespace {

constexpr unsigned kTransferThreads = 16;  // for each device
constexpr size_t kRingBytes = size_t{256} << 20, kMostBlock = size_t{8} << 20;

std::shared_ptr<ThreadPool> make_pool(unsigned threads) {
  return std::make_shared<ThreadPool>(threads ? threads : std::max(1u, std::thread::hardware_concurrency()));
}

unsigned transfer_threads_for(const ThreadPool& pool, size_t devices) {
  return static_cast<unsigned>(std::clamp<size_t>(kTransferThreads * devices, 1, pool.threads()));
}

size_t block_bytes(const EngineConfig& config, const ThreadPool& pool) {
  if (config.transfer_block_bytes) return config.transfer_block_bytes;
  const unsigned threads = transfer_threads_for(pool, config.gpus.size());
  return std::clamp(std::bit_floor(kRingBytes / 2 / threads), kLeastTransferBlock, kMostBlock);
}

}  // namespace

Engine::Engine(const EngineConfig& config)
    : memory(config.beside ? config.beside->memory : HostMemory::create(config.memory_limit_bytes)),
      threads(config.beside ? config.beside->threads : make_pool(config.threads)),
      pool(*threads),
      pinned(memory, pool, block_bytes(config, pool)),
      text_hash(BytesHash::seeded_at_random(config.hash_bits)) {
  for (int i = 0; i < config.host_devices; ++i) {
    const size_t limit = config.device_memory_limit_bytes ? config.device_memory_limit_bytes : config.memory_limit_bytes;
    devices.push_back(create_host_device(i, limit, memory, pool, config.host_streams));
  }
  for (const int gpu : config.gpus) {
    devices.push_back(create_gpu_device(static_cast<int>(devices.size()), gpu, config.device_memory_limit_bytes));
  }
  std::vector<Device*> all;
  for (const auto& device : devices) all.push_back(device.get());
  topology = Topology::probe(all);
}

void Engine::check() const {
  for (const auto& device : devices) device->check();
}

unsigned Engine::transfer_threads() const { return transfer_threads_for(pool, devices.size()); }

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
