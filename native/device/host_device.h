// A host memory domain with its threads, shown as a device. An engine may show several, so that multi-device
// operators run anywhere: each has its own memory, limit and streams; all share the pool of threads.
#pragma once

#include <functional>

#include "core/host_memory.h"
#include "core/thread_pool.h"
#include "device/device.h"

namespace warpjoin {

/// Work on a host stream may use the device's pool.
class HostStream : public Stream {
 public:
  /// Enqueues a function. What it refers to must live until the stream has run it.
  virtual void enqueue(std::function<void()> work) = 0;
};

/// What runs a device's streams: the thread that enqueues work, at once, or a thread for each stream. All threads of the pool
/// take part in each piece of work, so to run streams beside each other gains nothing, and a thread that goes on where another
/// has stopped may wake on the core of a third. Threads are for tests: they show where work does not wait for what it needs.
enum class HostStreams { at_once, with_threads };

/// Makes host device `ordinal`. Its memory is taken from `memory` and counts towards that limit too.
std::unique_ptr<Device> create_host_device(int ordinal, size_t limit_bytes, std::shared_ptr<HostMemory> memory, ThreadPool& pool,
                                           HostStreams streams = HostStreams::at_once);

}  // namespace warpjoin
