#include "core/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/error.h"
#include "core/format.h"

namespace warpjoin {
namespace {

constexpr size_t kHugePage = HostMemory::kHugePage;
/// A kept block serves what takes a fourth of it or more: results grow into what is left.
constexpr size_t kMostOfWanted = 4;

size_t rounded(size_t size, size_t least_mapped) {
  constexpr size_t kPage = 4096, kLine = 64;
  const size_t unit = size >= kHugePage ? kHugePage : size >= least_mapped ? kPage : kLine;
  return (std::max<size_t>(size, 1) + unit - 1) / unit * unit;
}

/// Null where the system has none.
void* map_pages(size_t bytes) {
  const auto map = [](size_t size) {
    return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  };
  if (bytes < kHugePage) {
    void* const pages = map(bytes);
    return pages == MAP_FAILED ? nullptr : pages;
  }
  // Over-map by one huge page and cut the ends, so that the block starts on a huge page.
  void* raw = map(bytes + kHugePage);
  if (raw == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (begin + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > begin) munmap(raw, aligned - begin);
  const uintptr_t end = begin + bytes + kHugePage;
  if (end > aligned + bytes) munmap(reinterpret_cast<void*>(aligned + bytes), end - aligned - bytes);
  auto* block = reinterpret_cast<void*>(aligned);
  madvise(block, bytes, MADV_HUGEPAGE);  // advice: a refusal only costs time
  return block;
}

/// Moves a mapped block's pages to where there are addresses for more. Null, and nothing done, where there are none.
void* remap_block(void* data, size_t capacity, size_t wanted) {
  void* const to = map_pages(wanted);
  if (!to) return nullptr;
  if (mremap(data, capacity, wanted, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED) return to;
  munmap(to, wanted);
  return nullptr;
}

}  // namespace

HostBuffer::~HostBuffer() {
  if (data_) memory_->release(data_, capacity_);
}

HostReservation::~HostReservation() {
  if (!memory_) return;
  const std::lock_guard lock(memory_->mutex_);
  memory_->used_ -= bytes_;
}

void HostBuffer::grow(size_t size, const char* purpose) {
  if (size <= size_) return;
  const size_t wanted = memory_->capacity_for(size);
  if (wanted > capacity_ && memory_->is_mapped(capacity_)) {
    data_ = memory_->extend(data_, capacity_, wanted, size, purpose);
    capacity_ = wanted;
  } else if (wanted > capacity_) {
    HostBuffer larger = memory_->allocate(size, purpose);
    std::memcpy(larger.data_, data_, size_);
    swap(larger);
  }
  size_ = size;
}

bool HostBuffer::grow_here(size_t size) noexcept {
  if (size <= size_) return true;
  const size_t wanted = memory_->capacity_for(size);
  if (wanted > capacity_ && !memory_->extend_here(data_, capacity_, wanted)) return false;
  capacity_ = std::max(capacity_, wanted);
  size_ = size;
  return true;
}

void HostBuffer::shrink(size_t size) {
  if (size >= size_) return;
  const size_t capacity = memory_->capacity_for(size);
  size_ = size;
  if (capacity >= capacity_ || !memory_->is_mapped(capacity)) return;
  // Without its last pages a block would not serve the next one of its size.
  if (capacity_ - capacity < std::min(kHugePage, capacity_ / 16)) return;
  size_t surplus;
  {
    const std::lock_guard lock(memory_->mutex_);
    surplus = memory_->take_surplus(data_);
    memory_->used_ -= capacity_ - capacity;
  }
  munmap(static_cast<char*>(data_) + capacity, capacity_ + surplus - capacity);
  capacity_ = capacity;
}

size_t HostMemory::block_bytes(size_t size) { return rounded(size, kHugePage); }

std::shared_ptr<HostMemory> HostMemory::create(size_t limit_bytes, size_t least_mapped) {
  return std::shared_ptr<HostMemory>(new HostMemory(limit_bytes, least_mapped));
}

size_t HostMemory::capacity_for(size_t size) const noexcept { return rounded(size, least_mapped_); }

void* HostMemory::new_block(size_t capacity) const noexcept {
  return is_mapped(capacity) ? map_pages(capacity) : std::aligned_alloc(64, capacity);
}

void HostMemory::free_block(void* data, size_t capacity) const noexcept {
  if (is_mapped(capacity)) {
    munmap(data, capacity);
  } else {
    std::free(data);
  }
}

HostMemory::~HostMemory() { trim(); }

HostBuffer HostMemory::allocate(size_t size, const char* purpose) {
  const size_t wanted = capacity_for(size);
  give_back_for(wanted);
  HostBuffer buffer;
  buffer.memory_ = shared_from_this();
  buffer.size_ = size;
  std::vector<Block> dropped;
  {
    const std::lock_guard lock(mutex_);
    check_room(wanted, size, purpose);
    // Reuse the smallest kept block that is large enough, unless it is wastefully large. It counts for what is asked for, as
    // plans expect: what it has more stays kept.
    auto best = kept_.end();
    for (auto it = kept_.begin(); is_mapped(wanted) && it != kept_.end(); ++it) {
      if (it->capacity >= wanted && it->capacity / kMostOfWanted <= wanted &&
          (best == kept_.end() || it->capacity < best->capacity))
        best = it;
    }
    if (best != kept_.end()) {
      if (best->capacity > wanted) surpluses_.push_back({best->data, wanted, best->capacity - wanted});
      buffer.data_ = best->data;
      kept_bytes_ -= wanted;
      kept_.erase(best);
    } else {
      // What is kept never makes the total larger than it has been in use, so reuse does not raise the peak.
      dropped = drop_kept(wanted, most_with_kept(used_ + wanted));
    }
    buffer.capacity_ = wanted;
    used_ += wanted;
    peak_ = std::max(peak_, used_);
  }
  // Not under the lock: unmapping takes milliseconds, and the JavaScript thread may want it.
  for (const Block& block : dropped) munmap(block.data, block.capacity);
  if (!buffer.data_) {
    buffer.data_ = new_block(buffer.capacity_);
    if (!buffer.data_) {
      const std::lock_guard lock(mutex_);
      used_ -= buffer.capacity_;
      throw Error(ErrorCode::memory_limit, "The system has no " + format_bytes(size) + " of memory left for " + purpose);
    }
  }
  return buffer;
}

HostReservation HostMemory::reserve(size_t bytes, const char* purpose) {
  give_back_for(bytes);
  std::vector<Block> dropped;
  {
    const std::lock_guard lock(mutex_);
    check_room(bytes, bytes, purpose);
    dropped = drop_kept(bytes, limit_bytes());
    used_ += bytes;
    peak_ = std::max(peak_, used_);
  }
  for (const Block& block : dropped) munmap(block.data, block.capacity);
  return {shared_from_this(), bytes};
}

// The block's address, a new one where it has no surplus of so much.
void* HostMemory::extend(void* data, size_t capacity, size_t wanted, size_t size, const char* purpose) {
  const size_t more = wanted - capacity;
  give_back_for(more);
  std::vector<Block> dropped;
  {
    const std::lock_guard lock(mutex_);
    check_room(more, size, purpose);
    if (use_surplus(data, capacity, wanted)) return data;
    const size_t surplus = take_surplus(data);
    dropped = drop_kept(more, most_with_kept(used_ + more));
    if (surplus) dropped.push_back({static_cast<char*>(data) + capacity, surplus});
    used_ += more;
    peak_ = std::max(peak_, used_);
  }
  for (const Block& block : dropped) munmap(block.data, block.capacity);
  void* const moved = remap_block(data, capacity, wanted);
  if (moved) return moved;
  const std::lock_guard lock(mutex_);
  used_ -= more;
  throw Error(ErrorCode::memory_limit, "The system has no " + format_bytes(size) + " of memory left for " + purpose);
}

bool HostMemory::extend_here(void* data, size_t capacity, size_t wanted) noexcept {
  const std::lock_guard lock(mutex_);
  const size_t more = wanted - capacity;
  return more <= limit_bytes() && used_ <= limit_bytes() - more && use_surplus(data, capacity, wanted);
}

bool HostMemory::use_surplus(void* data, size_t capacity, size_t wanted) noexcept {
  const size_t more = wanted - capacity;
  const auto surplus = std::find_if(surpluses_.begin(), surpluses_.end(), [&](const Surplus& of) { return of.data == data; });
  if (surplus == surpluses_.end() || surplus->bytes < more) return false;
  kept_bytes_ -= more;
  used_ += more;
  peak_ = std::max(peak_, used_);
  *surplus = {data, wanted, surplus->bytes - more};
  if (surplus->bytes == 0) surpluses_.erase(surplus);
  return true;
}

void HostMemory::give_back_for(size_t bytes) {
  if (bytes <= free_bytes()) return;
  const std::lock_guard lock(shortage_mutex_);
  if (give_back_) give_back_();
}

void HostMemory::check_room(size_t bytes, size_t size, const char* purpose) {
  const bool injected = fail_in_ != 0 && --fail_in_ == 0;
  if (!injected && bytes <= limit_bytes() && used_ <= limit_bytes() - bytes) return;
  throw Error(ErrorCode::memory_limit, format_bytes(size) + " for " + purpose + " do not fit the memory limit of " +
                                           format_bytes(limit_bytes()) + " (" + format_bytes(used_) + " in use)");
}

void HostMemory::release(void* data, size_t capacity) noexcept {
  const std::lock_guard lock(mutex_);
  used_ -= capacity;
  capacity += take_surplus(data);
  if (is_mapped(capacity) && kept_.size() < kMostKept && !closed_) {
    kept_.push_back({data, capacity});
    kept_bytes_ += capacity;
  } else {
    free_block(data, capacity);
  }
}

size_t HostMemory::take_surplus(void* data) noexcept {
  const auto found = std::find_if(surpluses_.begin(), surpluses_.end(), [&](const Surplus& of) { return of.data == data; });
  if (found == surpluses_.end()) return 0;
  const size_t bytes = found->bytes;
  kept_bytes_ -= bytes;
  surpluses_.erase(found);
  return bytes;
}

size_t HostMemory::most_with_kept(size_t used) const {
  return std::max({peak_, peak_before_, peak_long_before_, used}) + kHugePage;
}

std::vector<HostMemory::Block> HostMemory::drop_kept(size_t until_bytes_free, size_t most_bytes) {
  std::vector<Block> dropped;
  dropped.reserve(kept_.size() + surpluses_.size() + 1);  // what is taken off the lists can't be lost
  const size_t most = std::min(limit_bytes(), most_bytes);
  while (!kept_.empty() && used_ + kept_bytes_ + until_bytes_free > most) {
    kept_bytes_ -= kept_.front().capacity;
    dropped.push_back(kept_.front());
    kept_.erase(kept_.begin());
  }
  while (!surpluses_.empty() && used_ + kept_bytes_ + until_bytes_free > most) {
    const Surplus surplus = surpluses_.back();
    dropped.push_back({static_cast<char*>(surplus.data) + surplus.used, surplus.bytes});
    kept_bytes_ -= surplus.bytes;
    surpluses_.pop_back();
  }
  return dropped;
}

void HostMemory::on_shortage(std::function<void()> give_back) {
  const std::lock_guard lock(shortage_mutex_);
  give_back_ = std::move(give_back);
}

void HostMemory::trim() {
  for (;;) {
    Block block;
    {
      const std::lock_guard lock(mutex_);
      if (kept_.empty()) return;
      block = kept_.back();
      kept_.pop_back();
      kept_bytes_ -= block.capacity;
    }
    munmap(block.data, block.capacity);
  }
}

void HostMemory::close() {
  trim();
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

size_t HostMemory::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

size_t HostMemory::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return limit_bytes() - std::min(limit_bytes(), used_);
}

size_t HostMemory::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void HostMemory::reset_peak() {
  const std::lock_guard lock(mutex_);
  if (calls_++ % kCallsKeptFor == 0) peak_long_before_ = std::exchange(peak_before_, 0);
  peak_before_ = std::max(peak_before_, peak_);
  peak_ = used_;
}

void HostMemory::fail_allocation(uint64_t n) {
  const std::lock_guard lock(mutex_);
  fail_in_ = n;
}

void trim_malloc() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace warpjoin
