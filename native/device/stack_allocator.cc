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
  release_idle_blocks();
  if (base_) physical_.free(base_, reserved_);
}

void StackAllocator::reserve(size_t bytes, size_t beside) {
  const std::lock_guard lock(mutex_);
  reserve_locked(bytes, beside);
}

void StackAllocator::reserve_locked(size_t bytes, size_t beside) {
  bytes = aligned(bytes);
  const size_t room = limit_ - std::min(limit_, resident_), most = room - std::min(room, beside);
  if (bytes <= reserved_ && (reserved_ <= std::max(bytes, most) || !ranges_.empty())) return;
  if (bytes > room) {
    throw Error(ErrorCode::device_memory,
                format_bytes(bytes) + " do not fit the memory limit of device '" + device_name_ + "' (" + limit_text() + ")");
  }
  if (!ranges_.empty()) {
    throw Error(ErrorCode::internal, "The memory of device '" + device_name_ + "' cannot grow while it is in use");
  }
  size_t grown = bytes;
  if (physical_.slow) {
    // The next power of two, or an eighth more where that would waste much.
    constexpr size_t kCoarse = size_t{1} << 30;
    const size_t step = bytes < kCoarse ? std::bit_ceil(bytes) : aligned(bytes + bytes / 8);
    grown = std::max(bytes, std::min(step, most / kAlignment * kAlignment));
  }
  if (base_) physical_.free(base_, reserved_);
  base_ = nullptr;
  reserved_ = 0;
  if (grown + blocks_bytes() > limit_) release_idle_blocks();
  void* data = allocate_physical(grown);
  if (!data) {
    release_idle_blocks();
    data = allocate_physical(grown);
  }
  if (!data && grown > bytes) data = allocate_physical(grown = bytes);
  if (!data) throw_shortage(bytes);
  base_ = static_cast<char*>(data);
  reserved_ = grown;
}

void StackAllocator::throw_shortage(size_t bytes) const {
  const size_t left = free_bytes_locked();
  throw DeviceMemoryShortage(
      "Device '" + device_name_ + "' has no " + format_bytes(bytes) + " of free memory (" + format_bytes(left) + " left)", left);
}

std::string StackAllocator::limit_text() const {
  return resident_ ? format_bytes(limit_) + ", " + format_bytes(resident_) + " of it resident" : format_bytes(limit_);
}

void* StackAllocator::allocate_physical(size_t bytes) const {
  return reserved_ + blocks_bytes() + bytes <= left_free_ ? physical_.allocate(bytes) : nullptr;
}

size_t StackAllocator::free_bytes_locked() const {
  return std::min(left_free_ - std::min(left_free_, reserved_ + blocks_bytes()), physical_.free_bytes());
}

size_t StackAllocator::blocks_bytes() const {
  size_t bytes = 0;
  for (const Block& block : blocks_) bytes += block.size;
  return bytes;
}

Buffer StackAllocator::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t size = aligned(std::max<size_t>(bytes, 1));
  const bool injected = fails_now();
  std::list<Range> range(1);  // before any memory is taken
  if (!injected && top_ + size > reserved_ && ranges_.empty()) reserve_locked(size, 0);
  if (injected || top_ + size > reserved_) {
    const std::string room = format_bytes(top_) + " of " + format_bytes(reserved_) + " reserved in use, limit " + limit_text();
    if (!physical_.slow) release_locked();
    throw Error(ErrorCode::device_memory, format_bytes(bytes) + " do not fit device '" + device_name_ + "' (" + room + ")");
  }
  range.front() = {top_, size};
  ranges_.splice(ranges_.end(), range);
  Buffer buffer;
  buffer.allocator_ = this;
  buffer.data_ = base_ + top_;
  buffer.size_ = bytes;
  top_ += size;
  peak_ = std::max(peak_, top_ + resident_);
  return buffer;
}

size_t StackAllocator::resident_size(size_t bytes) const {
  constexpr size_t kLeast = size_t{2} << 20;
  if (!physical_.slow) return aligned(std::max<size_t>(bytes, 1));
  // Sizes in steps of a sixteenth to an eighth, so that what one call frees serves the next.
  const size_t step = std::max(kLeast, std::bit_floor(bytes) / 8);
  return std::max(step, (bytes + step - 1) / step * step);
}

Buffer StackAllocator::allocate_resident(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t size = resident_size(bytes);
  const size_t beside = resident_ + (ranges_.empty() ? 0 : reserved_);
  if (fails_now() || beside + size > limit_) {
    throw Error(ErrorCode::device_memory, format_bytes(bytes) + " do not fit device '" + device_name_ + "' (" +
                                              format_bytes(beside) + " in use, limit " + limit_text() + ")");
  }
  auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& b) { return !b.used && b.size == size; });
  if (block == blocks_.end()) {
    blocks_.reserve(blocks_.size() + 1);  // before any memory is taken
    const auto take = [&] { return reserved_ + blocks_bytes() + size <= limit_ ? allocate_physical(size) : nullptr; };
    void* data = take();
    if (!data) {
      release_idle_blocks();
      data = take();
    }
    if (!data) {
      release_locked();
      data = take();
    }
    if (!data) throw_shortage(size);
    block = blocks_.insert(blocks_.end(), {data, size, false});
  }
  block->used = true;
  Buffer buffer;
  buffer.allocator_ = this;
  buffer.data_ = block->data;
  buffer.size_ = bytes;
  resident_ += size;
  peak_ = std::max(peak_, top_ + resident_);
  return buffer;
}

void StackAllocator::free(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& b) { return b.data == data; });
  if (block != blocks_.end()) {
    block->used = false;
    resident_ -= block->size;
    if (!physical_.slow) release_idle_blocks();
    return;
  }
  const size_t offset = static_cast<size_t>(static_cast<char*>(data) - base_);
  const auto range = std::find_if(ranges_.rbegin(), ranges_.rend(), [&](const Range& r) { return r.offset == offset; });
  ranges_.erase(std::next(range).base());
  top_ = ranges_.empty() ? 0 : ranges_.back().offset + ranges_.back().size;
  if (!physical_.slow) release_locked();
}

void StackAllocator::release() {
  const std::lock_guard lock(mutex_);
  release_idle_blocks();
  release_locked();
}

void StackAllocator::release_locked() noexcept {
  if (!base_ || !ranges_.empty()) return;
  physical_.free(base_, reserved_);
  base_ = nullptr;
  reserved_ = 0;
}

void StackAllocator::release_idle_blocks() noexcept {
  for (const Block& block : blocks_) {
    if (!block.used) physical_.free(block.data, block.size);
  }
  std::erase_if(blocks_, [](const Block& block) { return !block.used; });
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

size_t StackAllocator::room_bytes() const {
  const std::lock_guard lock(mutex_);
  return reserved_ - top_;
}

size_t StackAllocator::resident_bytes() const {
  const std::lock_guard lock(mutex_);
  return resident_;
}

size_t StackAllocator::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void StackAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = top_ + resident_;
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
