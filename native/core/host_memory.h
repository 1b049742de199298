// Host memory under one hard limit. Every large allocation of an engine that is not device memory comes from here.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace warpjoin {

class HostMemory;

/// Owns `size` bytes of host memory, 64-byte aligned, uninitialised. Returns them to its HostMemory when destroyed.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept { swap(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    HostBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~HostBuffer();

  void* data() const noexcept { return data_; }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data_);
  }
  size_t size() const noexcept { return size_; }
  explicit operator bool() const noexcept { return data_ != nullptr; }

  /// Makes room for `size` bytes; what is there stays, perhaps at another address. Pages are moved, not copied. Throws like
  /// HostMemory::allocate(); then nothing has changed.
  void grow(size_t size, const char* purpose);
  /// Makes room where the buffer is. False, and nothing has changed, where its block has no more, or the limit is in the way.
  bool grow_here(size_t size) noexcept;
  /// Gives up the bytes past `size`; they count no longer, but for a few pages.
  void shrink(size_t size);

 private:
  friend class HostMemory;
  void swap(HostBuffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  std::shared_ptr<HostMemory> memory_;  // outlives the engine where JavaScript still holds a result
  void* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

/// Counts bytes that somebody else holds towards the limit of a HostMemory, for as long as it lives.
class HostReservation {
 public:
  HostReservation(HostReservation&& other) noexcept : memory_(std::move(other.memory_)), bytes_(other.bytes_) {}
  HostReservation& operator=(HostReservation&&) = delete;
  ~HostReservation();

 private:
  friend class HostMemory;
  HostReservation(std::shared_ptr<HostMemory> memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  std::shared_ptr<HostMemory> memory_;
  size_t bytes_;
};

/// Thread-safe. Large blocks are mapped on huge pages, and a few freed ones are kept for reuse: touching fresh pages
/// costs more than a pass over the data. What is kept counts towards the limit and is given back when another
/// allocation needs the room, on `trim` and at the end. Smaller blocks come from malloc.
class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  static constexpr size_t kHugePage = size_t{2} << 20;

  /// Blocks from `least_mapped` bytes on, a multiple of a page, are mapped and kept, too: where many threads make what others
  /// free, malloc keeps it in pieces, in a heap for each thread.
  static std::shared_ptr<HostMemory> create(size_t limit_bytes, size_t least_mapped = kHugePage);
  ~HostMemory();

  /// Throws Error(memory_limit), naming `purpose`, the bytes asked for and the limit, if they don't fit.
  /// `size == 0` gives a buffer with a valid, non-null address.
  HostBuffer allocate(size_t size, const char* purpose);

  /// Throws like allocate().
  HostReservation reserve(size_t bytes, const char* purpose);

  /// `give_back` is called, on the thread that allocates, when an allocation does not fit: it releases memory that lies
  /// idle. It must not allocate. There is one; an empty function removes it, once no call of it is running.
  void on_shortage(std::function<void()> give_back);

  /// Gives kept blocks back to the system.
  void trim();
  /// Trims, and keeps no more blocks: for an engine that ends while results of it live on.
  void close();

  size_t limit_bytes() const noexcept { return limit_.load(std::memory_order_relaxed); }
  /// What an allocation of so many bytes counts for, where blocks are mapped from a huge page on.
  static size_t block_bytes(size_t size);
  /// Sets another limit for what is allocated from now on.
  void set_limit(size_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  size_t used_bytes() const;
  /// What the limit leaves.
  size_t free_bytes() const;
  /// The most that was in use at once since the last reset_peak().
  size_t peak_bytes() const;
  void reset_peak();

  /// For tests: lets the n-th allocation from now (1 = the next) fail as if the limit were reached; 0 switches it off.
  void fail_allocation(uint64_t n);

 private:
  struct Block {
    void* data;
    size_t capacity;
  };
  /// The part of a reused block behind what was asked for.
  struct Surplus {
    void* data;          ///< of the block
    size_t used, bytes;  ///< bytes of the block that are in use, and those behind them
  };
  static constexpr size_t kMostKept = 64;
  /// Blocks are kept for what so many calls needed, up to twice as many; a call begins with reset_peak().
  static constexpr uint64_t kCallsKeptFor = 32;
  HostMemory(size_t limit_bytes, size_t least_mapped) : limit_(limit_bytes), least_mapped_(least_mapped) {
    kept_.reserve(kMostKept);
  }
  friend class HostBuffer;
  friend class HostReservation;
  bool is_mapped(size_t capacity) const noexcept { return capacity >= least_mapped_; }
  size_t capacity_for(size_t size) const noexcept;
  /// Null where the system has no memory.
  void* new_block(size_t capacity) const noexcept;
  void free_block(void* data, size_t capacity) const noexcept;
  void give_back_for(size_t bytes);
  void check_room(size_t bytes, size_t size, const char* purpose);
  void release(void* data, size_t capacity) noexcept;
  void* extend(void* data, size_t capacity, size_t wanted, size_t size, const char* purpose);
  bool extend_here(void* data, size_t capacity, size_t wanted) noexcept;
  /// Takes what a block in use needs to have `wanted` bytes from its surplus. False where that has less.
  bool use_surplus(void* data, size_t capacity, size_t wanted) noexcept;
  /// Forgets the surplus of a block in use; tells its bytes.
  size_t take_surplus(void* data) noexcept;
  /// What is in use and what is kept may take together while `used` bytes are in use: no more than was in use lately, but for
  /// small blocks that one call has and another hasn't.
  size_t most_with_kept(size_t used) const;
  /// Takes blocks, and surpluses, off those kept until so many bytes are free of this many; the caller unmaps them.
  std::vector<Block> drop_kept(size_t until_bytes_free, size_t most_bytes);

  std::atomic<size_t> limit_;
  const size_t least_mapped_;
  mutable std::mutex mutex_;
  size_t used_ = 0, kept_bytes_ = 0, peak_ = 0;
  uint64_t calls_ = 0;
  size_t peak_before_ = 0, peak_long_before_ = 0;  // of the last calls, up to kCallsKeptFor, and of as many calls before these
  uint64_t fail_in_ = 0;
  bool closed_ = false;
  std::vector<Surplus> surpluses_;  // of blocks in use; count as kept
  std::vector<Block> kept_;         // oldest first; has room for the most, so that buffers are freed without an allocation
  std::mutex shortage_mutex_;       // taken before mutex_, for memory is given back within
  std::function<void()> give_back_;
};

/// Gives back to the system what malloc keeps of small blocks that were freed, anybody's in this process: where what follows
/// allocates in other sizes, that is no room for it. Nothing happens where malloc can't. Takes milliseconds for 100 MB.
void trim_malloc() noexcept;

}  // namespace warpjoin
