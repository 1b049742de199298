// A profiler outside of the process, which is told what threads are at.
#pragma once

#include <atomic>
#include <cstdint>

namespace warpjoin {

struct Profiler {
  /// Begins a range, which may end on another thread, and beside others. `name` is a literal.
  uint64_t (*begin)(const char* name) noexcept;
  void (*end)(uint64_t range) noexcept;
};

/// Null: none looks on. What it points to is never destroyed.
inline constinit std::atomic<const Profiler*> profiler{nullptr};

/// What a profiler shows as one range.
class ProfiledRange {
 public:
  explicit ProfiledRange(const char* name) noexcept
      : profiler_(profiler.load(std::memory_order_acquire)), range_(profiler_ ? profiler_->begin(name) : 0) {}
  ~ProfiledRange() {
    if (profiler_) profiler_->end(range_);
  }
  ProfiledRange(const ProfiledRange&) = delete;
  ProfiledRange& operator=(const ProfiledRange&) = delete;

 private:
  const Profiler* const profiler_;
  const uint64_t range_;
};

}  // namespace warpjoin
