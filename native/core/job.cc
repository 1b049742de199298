#include "core/job.h"

namespace warpjoin {

void Job::record(const std::string& phase, double milliseconds, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (PhaseStats& known : phases_) {
    if (known.name == phase) {
      known.milliseconds += milliseconds;
      known.bytes += bytes;
      return;
    }
  }
  phases_.push_back({phase, milliseconds, bytes});
}

std::vector<PhaseStats> Job::phases() const {
  const std::lock_guard lock(mutex_);
  return phases_;
}

}  // namespace warpjoin
