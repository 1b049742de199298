// One running call as its user sees it: cancellable, with progress and a record of its phases.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/profiler.h"
#include "core/trace.h"

namespace warpjoin {

/// Most bytes of a buffer of a result's column: within the 32-bit offsets of Arrow, and within what every Node.js takes.
inline constexpr uint64_t kMaxBufferBytes = uint64_t{1} << 30;

/// What one phase of an operator did. Phases with the same name are added up.
struct PhaseStats {
  std::string name;
  double milliseconds = 0;
  uint64_t bytes = 0;  ///< bytes read plus bytes written by the phase
};

class Job {
 public:
  /// Columns of the result have several chunks where one would need a larger buffer than `max_buffer_bytes`. `traced`: it keeps
  /// what ran when.
  explicit Job(uint64_t max_buffer_bytes = kMaxBufferBytes, bool traced = false)
      : max_buffer_bytes_(max_buffer_bytes), trace_(traced ? std::make_unique<Trace>() : nullptr) {}

  uint64_t max_buffer_bytes() const noexcept { return max_buffer_bytes_; }

  /// Asks the job to stop; the operator notices at its next check, within milliseconds.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }
  /// Throws Error(aborted) once the job is cancelled. Cheap: call it once per task or block of rows.
  void check() const {
    if (cancelled()) throw Error(ErrorCode::aborted, "The operation was aborted");
  }

  /// Rows of work that the present call plans to do and has done; for progress only.
  void add_planned(uint64_t rows) noexcept { planned_.fetch_add(rows, std::memory_order_relaxed); }
  void add_done(uint64_t rows) noexcept { done_.fetch_add(rows, std::memory_order_relaxed); }
  uint64_t planned() const noexcept { return planned_.load(std::memory_order_relaxed); }
  uint64_t done() const noexcept { return done_.load(std::memory_order_relaxed); }

  /// A phase that ends now. One that there is no memory to record is left out: this runs in destructors.
  void record(const char* phase, TraceClock::time_point begin, uint64_t bytes) noexcept;
  std::vector<PhaseStats> phases() const;
  /// Null: nobody asked for one.
  Trace* trace() const noexcept { return trace_.get(); }

 private:
  const uint64_t max_buffer_bytes_;
  const std::unique_ptr<Trace> trace_;
  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> planned_{0}, done_{0};
  mutable std::mutex mutex_;
  std::vector<PhaseStats> phases_;
};

/// Times a scope as one phase of a job. A profiler that looks on is told, too.
class PhaseTimer {
 public:
  PhaseTimer(Job& job, const char* name, uint64_t bytes = 0)
      : job_(job), name_(name), bytes_(bytes), begin_(TraceClock::now()), range_(name) {}
  void add(uint64_t bytes) noexcept { bytes_ += bytes; }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  ~PhaseTimer() { job_.record(name_, begin_, bytes_); }

 private:
  Job& job_;
  const char* name_;
  uint64_t bytes_;
  TraceClock::time_point begin_;
  ProfiledRange range_;
};

}  // namespace warpjoin
