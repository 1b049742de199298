#include "core/job.h"

#include <new>

namespace warpjoin {

void Job::record(const char* phase, double milliseconds, uint64_t bytes) noexcept {
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
