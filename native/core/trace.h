// What ran when within a job, for whoever wants to see the overlaps.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace warpjoin {

using TraceClock = std::chrono::steady_clock;

/// One thing that ran: on a thread of the host, on a stream that copies, or on a stream of a device's kernels. Events of one
/// stream may begin before the one before them has ended: they have been enqueued by then.
struct TraceEvent {
  enum class Track { thread, to_device, to_host, kernels };
  /// The stream of direct copies, which all threads share.
  static constexpr uint32_t kDirect = UINT32_MAX;

  const char* name = "";  ///< a literal
  Track track = Track::thread;
  int device = 0;       ///< of a stream
  uint32_t number = 0;  ///< of the thread, or of the stream among those of the device and direction
  TraceClock::time_point begin, end;
  uint64_t bytes = 0;
};

/// Thread-safe.
class Trace {
 public:
  TraceClock::time_point created() const noexcept { return created_; }

  /// An event that there is no memory for is left out.
  void add(const TraceEvent& event) noexcept;
  /// The same of the calling thread, which gets a number.
  void add_here(const char* name, TraceClock::time_point begin, TraceClock::time_point end, uint64_t bytes) noexcept;
  std::vector<TraceEvent> events() const;

 private:
  void add_locked(const TraceEvent& event) noexcept;

  const TraceClock::time_point created_ = TraceClock::now();
  mutable std::mutex mutex_;
  std::vector<std::thread::id> threads_;  // by number
  std::vector<TraceEvent> events_;
};

}  // namespace warpjoin
