// A host memory domain with its threads, shown as a device. An engine may show several, so that multi-device
// operators run anywhere: each has its own memory, limit and streams; all share the pool of threads.
#pragma once

#include <functional>

#include "core/host_memory.h"
#include "core/thread_pool.h"
#include "device/device.h"

namespace warpjoin {

/// A host stream runs its work on a thread of its own, while it lives; the work itself may use the device's pool.
class HostStream : public Stream {
 public:
  /// Enqueues a function. What it refers to must live until the stream has run it.
  virtual void enqueue(std::function<void()> work) = 0;
};

/// Makes host device `ordinal`. Its memory is taken from `memory` and counts towards that limit too.
std::unique_ptr<Device> create_host_device(int ordinal, size_t limit_bytes, std::shared_ptr<HostMemory> memory, ThreadPool& pool);

}  // namespace warpjoin
