// Copies between host memory and devices, over the links of all of them at once.
//
// Pinned memory goes directly. Ordinary memory goes through a ring of pinned buffers: threads copy one block to or from
// the ring while the copy engines move another, and the ring is small enough to stay in the last-level cache.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/job.h"
#include "core/tuples.h"
#include "device/device.h"
#include "engine/engine.h"

namespace warpjoin {

/// A result that goes home while it is made: so many parts of it are made or on their way at a time, of so many bytes each, where
/// there is room. That is as much as a transfer of ordinary memory has under way at most, so that no part is waited for.
inline constexpr size_t kHomeParts = 4, kHomePartBytes = size_t{64} << 20;

/// One copy: stretches of memory that are complete together. One of source and target is memory of the queue's device,
/// the other host memory of one allocation. Copies and stretches may be empty.
struct HostCopy {
  struct Stretch {
    void* target = nullptr;
    const void* source = nullptr;
    size_t bytes = 0;
  };
  std::vector<Stretch> stretches;
  /// What must be done on the device before the copy begins; null: nothing. Waits for nothing where it has not been
  /// recorded by the time that the copy may begin.
  Event* after = nullptr;
};

/// Copies in one direction over one device's link, in order.
struct HostQueue {
  enum class Direction { to_device, to_host };

  Device* device = nullptr;  ///< one of the engine's
  Direction direction = Direction::to_device;
  std::deque<HostCopy> copies;
  /// A copy does not begin, nor are its `after` and its device memory looked at, before `enqueued` has returned for the copy
  /// `depth` before it: the callback may set them. At least 1.
  size_t depth = 2;
  /// Called once for each copy, in order, one call at a time for a queue, from any thread: the whole copy has been
  /// enqueued. Once all of `done` are, its device memory has been written (to_device), or has been read and may be
  /// written again (to_host); host memory is complete when transfer() returns. Streams must be made to wait for `done`
  /// within the call, as the events are used again. Other threads go on meanwhile. It must not call transfer().
  /// May be empty.
  std::function<void(size_t copy, std::span<Event* const> done)> enqueued{};
};

/// Runs all queues at the same time; returns when every copy is complete. Throws what a copy, a callback or the cancelled
/// job threw first, once nothing that was enqueued refers to the copies' memory any more; and Error(memory_limit), before
/// anything is enqueued, where not even the smallest ring fits (PinnedPool). Transfers of an engine run one at a time.
///
/// Until a copy's `after` is done, one thread waits for it, or two where it is direct, and the others serve the other queues. The
/// threads are those of engine.pool; the ring has two buffers for each of them that has something to do.
void transfer(Engine& engine, std::span<HostQueue> queues, const Job& job);

namespace transferring {
class Schedule;
}

/// A transfer that is fed while it runs: what one copy brings is worked on and sent away while others come, and nothing waits for
/// a step of all of them. Where many copies are known before, transfer() is simpler.
class FedTransfer {
 public:
  /// As HostQueue::enqueued, of one copy. It may push further copies, and close queues.
  using Enqueued = std::function<void(std::span<Event* const> done)>;

  FedTransfer(Engine& engine, const Job& job);
  ~FedTransfer();
  FedTransfer(const FedTransfer&) = delete;
  FedTransfer& operator=(const FedTransfer&) = delete;

  /// Opens a queue over a device's link: its number. `depth` as HostQueue's. `direct`: the device copies all of the host memory
  /// by itself that its copies will read or write; otherwise a ring is borrowed. Before run().
  size_t open(Device& device, HostQueue::Direction direction, size_t depth, bool direct);
  /// Adds a copy behind those of a queue. What it waits for (HostCopy::after) has been recorded when it may begin. By any thread,
  /// before run() and during it.
  void push(size_t queue, HostCopy copy, Enqueued enqueued = {});
  /// Returns when what was pushed to a queue by now is complete, its host memory too. By any thread but those of callbacks, while
  /// run() runs. Throws Error(aborted) where the transfer fails, whose error is run()'s to throw.
  void wait(size_t queue);
  /// No more copies come. By any thread.
  void close(size_t queue);
  /// Returns when all queues are closed and their copies complete; throws as transfer() does. Once.
  void run();

 private:
  Engine& engine_;
  const Job& job_;
  std::deque<HostQueue> queues_;
  std::unique_ptr<transferring::Schedule> schedule_;
  bool staged_ = false;
};

}  // namespace warpjoin
