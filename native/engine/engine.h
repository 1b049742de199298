// What every operator works with: the threads, the host memory and the devices of one engine.
#pragma once

#include <memory>
#include <vector>

#include "core/bytes_hash.h"
#include "core/host_memory.h"
#include "core/thread_pool.h"
#include "device/device.h"
#include "device/host_device.h"
#include "device/pinned_pool.h"
#include "engine/transfer_streams.h"

namespace warpjoin {

/// What a transfer of some size moves at least at a time through pinned memory to the host.
inline constexpr size_t kLeastTransferBlock = size_t{2} << 20;

struct Engine;

struct EngineConfig {
  unsigned threads = 0;  ///< host threads; 0: one a core
  int host_devices = 1;  ///< how many host devices to show; 0 where GPUs are used
  /// With threads in tests.
  HostStreams host_streams = HostStreams::at_once;
  std::vector<int> gpus;                 ///< ordinals of the GPUs to use
  size_t memory_limit_bytes = 0;         ///< host memory, hard
  const Engine* beside = nullptr;        ///< the engine whose host memory and threads are shared; null: those of its own
  size_t device_memory_limit_bytes = 0;  ///< each device, hard; 0: 80 % of the device's memory (host: the host limit)
  /// What a transfer moves at most at a time through pinned memory to the host; half of it to the devices. 0: what makes
  /// 256 MiB of two buffers for each of its threads, 2 to 8 MiB. Each block costs its link some microseconds. But on the way
  /// there all buffers should stay in the last-level cache, which the copy engines read: with twice as much a quarter of the
  /// speed is lost.
  size_t transfer_block_bytes = 0;
  unsigned hash_bits = 64;  ///< of texts that are keys; for tests: fewer let different texts have equal hashes
};

struct Engine : std::enable_shared_from_this<Engine> {
  explicit Engine(const EngineConfig& config);

  const std::shared_ptr<HostMemory> memory;
  const std::shared_ptr<ThreadPool> threads;  ///< of all engines that share them
  ThreadPool& pool;
  std::vector<std::unique_ptr<Device>> devices;
  Topology topology;
  PinnedPool pinned;
  TransferStreams transfer_streams;
  BytesHash text_hash;  ///< of texts that are keys, seeded at random; no result depends on it

  /// Throws Error(device) where one of the devices has failed for good: Device::check().
  void check() const;
  /// How many threads take part in a transfer: so many keep all links busy.
  unsigned transfer_threads() const;
  /// The devices with these ordinals; throws Error(option) for one that is not there.
  std::vector<Device*> select(const std::vector<int>& ordinals) const;
};

}  // namespace warpjoin
