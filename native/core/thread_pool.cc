#include "core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "core/error.h"
#include "core/threads.h"

namespace warpjoin {

struct ThreadPool::Loop {
  Loop(uint64_t count, const std::function<void(uint64_t)>& task) : count(count), task(task) {}

  const uint64_t count;
  const std::function<void(uint64_t)>& task;  // alive until finished == count, for the caller waits for that
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  std::condition_variable done;
  uint64_t finished = 0;
  std::exception_ptr error;
  std::atomic<bool> failed{false};
};

ThreadPool::ThreadPool(unsigned threads) {
  const size_t wanted = std::max(threads, 1u) - 1;
  workers_.reserve(wanted);
  try {
    while (workers_.size() < wanted) {
      workers_.push_back(start_thread("the pool", [this, index = workers_.size()] { work(index); }));
    }
  } catch (const Error&) {
    stop(workers_.size() / 2);
  } catch (...) {
    stop(0);
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(0); }

/// Ends all workers but the first `kept`.
void ThreadPool::stop(size_t kept) noexcept {
  {
    const std::lock_guard lock(mutex_);
    most_workers_ = kept;
  }
  wake_.notify_all();
  for (; workers_.size() > kept; workers_.pop_back()) workers_.back().join();
}

void ThreadPool::run(Loop& loop) {
  uint64_t ran = 0;
  for (uint64_t task; (task = loop.next.fetch_add(1, std::memory_order_relaxed)) < loop.count; ++ran) {
    if (loop.failed.load(std::memory_order_relaxed)) continue;  // drain: every task must be counted
    try {
      loop.task(task);
    } catch (...) {
      const std::lock_guard lock(loop.mutex);
      if (!loop.error) loop.error = std::current_exception();
      loop.failed.store(true, std::memory_order_relaxed);
    }
  }
  if (ran == 0) return;
  const std::lock_guard lock(loop.mutex);
  loop.finished += ran;
  if (loop.finished == loop.count) loop.done.notify_all();
}

void ThreadPool::work(size_t index) {
  lower_thread_priority();
  for (;;) {
    std::shared_ptr<Loop> loop;
    {
      std::unique_lock lock(mutex_);
      for (;;) {
        while (!loops_.empty() && loops_.front()->next.load(std::memory_order_relaxed) >= loops_.front()->count) {
          loops_.pop_front();
        }
        if (!loops_.empty()) break;
        if (index >= most_workers_) return;
        wake_.wait(lock);
      }
      loop = loops_.front();
    }
    run(*loop);
  }
}

void ThreadPool::parallel_for(uint64_t count, const std::function<void(uint64_t)>& task) {
  if (count == 0) return;
  if (count == 1 || workers_.empty()) {
    for (uint64_t i = 0; i < count; ++i) task(i);
    return;
  }
  auto loop = std::make_shared<Loop>(count, task);
  {
    const std::lock_guard lock(mutex_);
    loops_.push_back(loop);
  }
  if (count > workers_.size()) {
    wake_.notify_all();
  } else {
    for (uint64_t i = 1; i < count; ++i) wake_.notify_one();
  }
  run(*loop);
  std::unique_lock lock(loop->mutex);
  loop->done.wait(lock, [&] { return loop->finished == loop->count; });
  // The caller's alone: a thread that still holds the loop must not be the one that frees what the caller is looking at.
  if (const std::exception_ptr error = std::exchange(loop->error, nullptr)) std::rethrow_exception(error);
}

void ThreadPool::for_blocks(uint64_t size, uint64_t grain, const Job& job, const std::function<void(uint64_t, uint64_t)>& body) {
  const uint64_t most = uint64_t{threads()} * 4;
  const uint64_t blocks = std::clamp<uint64_t>(size / std::max<uint64_t>(grain, 1), size ? 1 : 0, most);
  parallel_for(blocks, [&](uint64_t block) {
    job.check();
    body(size / blocks * block + std::min(block, size % blocks),
         size / blocks * (block + 1) + std::min(block + 1, size % blocks));
  });
}

}  // namespace warpjoin
