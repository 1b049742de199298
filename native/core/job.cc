#include "core/job.h"

#include <chrono>
#include <new>

namespace warpjoin {

void Job::record(const char* phase, TraceClock::time_point begin, uint64_t bytes) noexcept {
  const TraceClock::time_point end = TraceClock::now();
  if (trace_) trace_->add_here(phase, begin, end, bytes);
  const double milliseconds = std::chrono::duration<double, std::milli>(end - begin).count();
  const std::lock_guard lock(mutex_);
  for (PhaseStats& known : phases_) {
    if (known.name == phase) {
      known.milliseconds += milliseconds;
      known.bytes += bytes;
      return;
    }
  }
  try {
    phases_.push_back({phase, milliseconds, bytes});
  } catch (const std::bad_alloc&) {
    return;
  }
}

std::vector<PhaseStats> Job::phases() const {
  const std::lock_guard lock(mutex_);
  return phases_;
}

}  // namespace warpjoin
