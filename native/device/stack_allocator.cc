#include "device/stack_allocator.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "core/error.h"
#include "core/format.h"

namespace warpjoin {

Buffer::~Buffer() {
  if (data_) allocator_->free(data_);
}

StackAllocator::StackAllocator(std::string device_name, size_t limit_bytes, Physical physical)
    : device_name_(std::move(device_name)), limit_(limit_bytes), physical_(std::move(physical)) {}

StackAllocator::~StackAllocator() {
  if (base_) physical_.free(base_, reserved_);
}

void StackAllocator::reserve(size_t bytes) {
  const std::lock_guard lock(mutex_);
  reserve_locked(bytes);
}

void StackAllocator::reserve_locked(size_t bytes) {
  bytes = aligned(bytes);
  if (bytes <= reserved_) return;
  if (bytes > limit_) {
    throw Error(ErrorCode::device, format_bytes(bytes) + " do not fit the memory limit of device '" + device_name_ + "' (" +
                                       format_bytes(limit_) + ")");
  }
  if (!ranges_.empty()) {
    throw Error(ErrorCode::internal, "The memory of device '" + device_name_ + "' cannot grow while it is in use");
  }
  size_t grown = bytes;
  if (physical_.slow) {
    // The next power of two, or an eighth more where that would waste much.
    constexpr size_t kCoarse = size_t{1} << 30;
    const size_t step = bytes < kCoarse ? std::bit_ceil(bytes) : aligned(bytes + bytes / 8);
    grown = std::max(bytes, std::min(step, limit_ / kAlignment * kAlignment));
  }
  if (base_) physical_.free(base_, reserved_);
  base_ = nullptr;
  reserved_ = 0;
  void* data = allocate_physical(grown);
  if (!data && grown > bytes) data = allocate_physical(grown = bytes);
  if (!data) {
    const size_t left = free_bytes_locked();
    throw DeviceMemoryShortage(
        "Device '" + device_name_ + "' has no " + format_bytes(bytes) + " of free memory (" + format_bytes(left) + " left)",
        left);
  }
  base_ = static_cast<char*>(data);
  reserved_ = grown;
}

void* StackAllocator::allocate_physical(size_t bytes) const { return bytes <= left_free_ ? physical_.allocate(bytes) : nullptr; }

size_t StackAllocator::free_bytes_locked() const { return std::min(left_free_, physical_.free_bytes()); }

Buffer StackAllocator::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t size = aligned(std::max<size_t>(bytes, 1));
  const bool injected = fail_in_ != 0 && --fail_in_ == 0;
  if (!injected && top_ + size > reserved_ && ranges_.empty()) reserve_locked(size);
  if (injected || top_ + size > reserved_) {
    const std::string room =
        format_bytes(top_) + " of " + format_bytes(reserved_) + " reserved in use, limit " + format_bytes(limit_);
    if (!physical_.slow) release_locked();
    throw Error(ErrorCode::device, format_bytes(bytes) + " do not fit device '" + device_name_ + "' (" + room + ")");
  }
  ranges_.push_back({top_, size});
  Buffer buffer;
  buffer.allocator_ = this;
  buffer.data_ = base_ + top_;
  buffer.size_ = bytes;
  top_ += size;
  peak_ = std::max(peak_, top_);
  return buffer;
}

void StackAllocator::free(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const size_t offset = static_cast<size_t>(static_cast<char*>(data) - base_);
  const auto range = std::find_if(ranges_.rbegin(), ranges_.rend(), [&](const Range& r) { return r.offset == offset; });
  ranges_.erase(std::next(range).base());
  top_ = ranges_.empty() ? 0 : ranges_.back().offset + ranges_.back().size;
  if (!physical_.slow) release_locked();
}

void StackAllocator::release() {
  const std::lock_guard lock(mutex_);
  release_locked();
}

void StackAllocator::release_locked() noexcept {
  if (!base_ || !ranges_.empty()) return;
  physical_.free(base_, reserved_);
  base_ = nullptr;
  reserved_ = 0;
}

size_t StackAllocator::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return free_bytes_locked();
}

size_t StackAllocator::reserved_bytes() const {
  const std::lock_guard lock(mutex_);
  return reserved_;
}

size_t StackAllocator::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return top_;
}

size_t StackAllocator::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void StackAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = top_;
}

void StackAllocator::fail_allocation(uint64_t n) {
  const std::lock_guard lock(mutex_);
  fail_in_ = n;
}

void StackAllocator::leave_free(size_t bytes) {
  const std::lock_guard lock(mutex_);
  left_free_ = bytes;
}

}  // namespace warpjoin
