// Stack allocation over one physical allocation of a device (multi-gpu-sort-merge-join 3.1.3).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace warpjoin {

class StackAllocator;

/// Owns a range of a device's memory; gives it back when destroyed. Work that uses the range must have been
/// synchronized by then.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer();

  void* data() const noexcept { return data_; }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data_);
  }
  size_t size() const noexcept { return size_; }
  /// Has at most so many bytes from now on. The others are given back with the rest.
  void shrink(size_t bytes) noexcept { size_ = std::min(size_, bytes); }
  explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  friend class StackAllocator;
  void swap(Buffer& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  StackAllocator* allocator_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// Hands out 128-byte aligned ranges of one physical allocation in stack order. A range freed below the top leaves a
/// hole that closes by itself once everything above it is freed. What stays between calls has physical allocations of its
/// own, within the same limit, for the stack would not grow above it. Thread-safe.
class StackAllocator {
 public:
  /// Makes and frees physical allocations. `allocate` returns null where the device has too little free memory, and throws what
  /// else it fails by.
  struct Physical {
    std::function<void*(size_t bytes)> allocate;
    std::function<void(void* data, size_t bytes)> free;
    /// What is left, whoever holds the rest.
    std::function<size_t()> free_bytes;
    /// Allocations are slow: take more than asked for, and keep it. Otherwise take what is asked for, and give it back
    /// with the last range.
    bool slow = true;
  };

  /// `device_name` stands in error messages. Takes no memory before the first reserve or allocate.
  StackAllocator(std::string device_name, size_t limit_bytes, Physical physical);
  ~StackAllocator();
  StackAllocator(const StackAllocator&) = delete;
  StackAllocator& operator=(const StackAllocator&) = delete;

  static constexpr size_t kAlignment = 128;
  static constexpr size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  /// Makes the physical allocation at least `bytes` large, growing it in few steps; keeps what is there if it is large
  /// enough. What it takes more than that leaves `beside` bytes of the limit for resident memory. Only while nothing is
  /// allocated. Throws Error(device_memory), naming device, bytes and limit, if it can't, and DeviceMemoryShortage where others
  /// have left too little of the device's memory.
  void reserve(size_t bytes, size_t beside = 0);
  /// Takes a range; throws Error(device_memory) if the limit, or the reserved room while ranges are in use, doesn't hold it.
  Buffer allocate(size_t bytes);
  /// Takes memory beside the stack, for what outlives a call; allowed while ranges are in use. Where allocations are slow, it
  /// is some larger than asked for, and is kept when freed, for the next of its size, until something else needs the room.
  /// Throws Error(device_memory), naming device, bytes and limit, if the limit doesn't hold it beside all that is in use, and
  /// DeviceMemoryShortage where others have left too little of the device's memory.
  Buffer allocate_resident(size_t bytes);
  /// What allocate_resident() takes for so many bytes.
  size_t resident_size(size_t bytes) const;
  /// Frees the stack's physical allocation if nothing is allocated there, and what is kept of freed resident memory.
  void release();

  size_t limit_bytes() const noexcept { return limit_; }
  /// What the device has free beside the physical allocations.
  size_t free_bytes() const;
  size_t reserved_bytes() const;
  /// The extent of the stack.
  size_t used_bytes() const;
  /// What the stack may still grow by while ranges are in use.
  size_t room_bytes() const;
  /// What is in use beside it: the stack has the limit less this.
  size_t resident_bytes() const;
  /// The most that was in use, on the stack and beside it, since the last reset_peak().
  size_t peak_bytes() const;
  void reset_peak();

  /// For tests: lets the n-th allocation from now (1 = the next) fail; 0 switches it off.
  void fail_allocation(uint64_t n);
  /// For tests: as if others had left only so many bytes of the device's memory; SIZE_MAX switches it off.
  void leave_free(size_t bytes);

 private:
  struct Range {
    size_t offset, size;
  };
  struct Block {
    void* data;
    size_t size;
    bool used;
  };
  friend class Buffer;
  void free(void* data) noexcept;
  void reserve_locked(size_t bytes, size_t beside);
  void* allocate_physical(size_t bytes) const;
  [[noreturn]] void throw_shortage(size_t bytes) const;
  std::string limit_text() const;
  bool fails_now() noexcept { return fail_in_ != 0 && --fail_in_ == 0; }
  size_t free_bytes_locked() const;
  size_t blocks_bytes() const;
  void release_locked() noexcept;
  void release_idle_blocks() noexcept;

  const std::string device_name_;
  const size_t limit_;
  const Physical physical_;
  mutable std::mutex mutex_;
  char* base_ = nullptr;
  size_t reserved_ = 0, top_ = 0, resident_ = 0, peak_ = 0;
  uint64_t fail_in_ = 0;
  size_t left_free_ = SIZE_MAX;
  std::list<Range> ranges_;    // in the order of their offsets
  std::vector<Block> blocks_;  // resident memory, in use or kept
};

}  // namespace warpjoin
