#include "core/trace.h"

#include <algorithm>
#include <new>

namespace warpjoin {

void Trace::add(const TraceEvent& event) noexcept {
  const std::lock_guard lock(mutex_);
  add_locked(event);
}

void Trace::add_here(const char* name, TraceClock::time_point begin, TraceClock::time_point end, uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const std::thread::id own = std::this_thread::get_id();
  const auto found = std::find(threads_.begin(), threads_.end(), own);
  const auto number = static_cast<uint32_t>(found - threads_.begin());
  try {
    if (found == threads_.end()) threads_.push_back(own);
  } catch (const std::bad_alloc&) {
    return;
  }
  add_locked({name, TraceEvent::Track::thread, 0, number, begin, end, bytes});
}

std::vector<TraceEvent> Trace::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void Trace::add_locked(const TraceEvent& event) noexcept {
  try {
    events_.push_back(event);
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace warpjoin
