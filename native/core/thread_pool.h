// A fixed set of threads that share loops over independent tasks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/job.h"

namespace warpjoin {

class ThreadPool {
 public:
  /// `threads` >= 1: how many threads work on a loop, the calling one included. Where the system refuses one of them the pool
  /// has fewer: half of those it got, so that streams, and whoever else shares the limit, get some, too.
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned threads() const noexcept { return static_cast<unsigned>(workers_.size()) + 1; }

  /// Runs task(0) .. task(count - 1), each once, on all threads, and returns when all have ended. Tasks are handed out
  /// in order, one at a time. The first exception stops the handing out and is thrown here. Several callers may run
  /// loops at once, and a task may run a loop of its own.
  void parallel_for(uint64_t count, const std::function<void(uint64_t task)>& task);

  /// Splits [0, size) into at most 4 blocks a thread of at least `grain` rows (the last may be smaller) and runs
  /// body(begin, end) for each; checks `job` before each block.
  void for_blocks(uint64_t size, uint64_t grain, const Job& job, const std::function<void(uint64_t begin, uint64_t end)>& body);

 private:
  struct Loop;
  void stop(size_t kept) noexcept;
  void work(size_t index);
  static void run(Loop& loop);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Loop>> loops_;
  size_t most_workers_ = SIZE_MAX;  // those behind end
};

}  // namespace warpjoin
