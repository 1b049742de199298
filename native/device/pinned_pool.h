// The pinned host memory of an engine: buffers that transfers borrow. Pinning costs more than a copy, so they are kept.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/host_memory.h"
#include "core/thread_pool.h"
#include "device/device.h"

namespace warpjoin {

/// Thread-safe. What it holds counts as used in `memory`. While nothing is lent it is given back when another
/// allocation needs the room; otherwise it is kept until the pool is destroyed.
class PinnedPool {
 public:
  /// The smallest buffers that are lent where the limit leaves little.
  static constexpr size_t kLeastBufferBytes = size_t{64} << 10;

  /// `threads` are the first to write what it takes, as pinning touches fresh pages one by one.
  PinnedPool(std::shared_ptr<HostMemory> memory, ThreadPool& threads, size_t most_buffer_bytes);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Buffers of one size. Nothing enqueued may refer to them any more when it is destroyed.
  class Loan {
   public:
    Loan(Loan&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), count_(other.count_) {}
    Loan& operator=(Loan&&) = delete;
    ~Loan() {
      if (pool_) pool_->take_back();
    }

    size_t count() const noexcept { return count_; }
    size_t buffer_bytes() const noexcept { return pool_->lent_bytes_; }
    char* operator[](size_t i) const noexcept { return pool_->buffers_[i]; }

   private:
    friend class PinnedPool;
    explicit Loan(PinnedPool& pool) : pool_(&pool) {}
    PinnedPool* pool_;
    size_t count_ = 0;
  };

  /// Lends `count` buffers (0, or 2 and more) of `bytes`, at most most_buffer_bytes(), that `device` and its peers copy
  /// directly. Takes at most half of what the memory limit leaves, for the borrower needs memory too: then there are fewer
  /// buffers, or two smaller ones. Throws Error(memory_limit), naming bytes and limit, where two of kLeastBufferBytes do not fit,
  /// and where the system has too little memory that can be pinned. Waits while another loan is out.
  Loan lend(size_t count, size_t bytes, Device& device);

  size_t most_buffer_bytes() const noexcept { return most_buffer_bytes_; }
  /// What the pool holds at present.
  size_t held_bytes() const noexcept { return held_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    HostBuffer memory;
    Device* device;
  };
  void grow(size_t count, size_t bytes, Device& device);
  void cut(size_t bytes);
  void cut(const Block& block);
  void add_block(size_t buffers, Device& device);
  void free_blocks() noexcept;
  void give_back_idle() noexcept;
  void take_back() noexcept;

  const std::shared_ptr<HostMemory> memory_;
  ThreadPool& threads_;
  const size_t most_buffer_bytes_;
  std::atomic<size_t> held_bytes_{0};
  std::mutex mutex_;
  std::condition_variable returned_;
  bool lent_ = false;
  bool asked_ = false;  // on shortages of memory_; changed by the borrower
  // Changed by the borrower while lent, else under the mutex.
  size_t lent_bytes_;  // a buffer
  std::vector<Block> blocks_;
  std::vector<char*> buffers_;
};

}  // namespace warpjoin
