#include "device/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace warpjoin {
namespace {

constexpr size_t kLine = 64;                       // buffers begin on cache lines
constexpr size_t kTouchedBytes = size_t{2} << 20;  // by a thread at a time: a huge page

}  // namespace

PinnedPool::PinnedPool(std::shared_ptr<HostMemory> memory, ThreadPool& threads, size_t most_buffer_bytes)
    : memory_(std::move(memory)), threads_(threads), most_buffer_bytes_(most_buffer_bytes), lent_bytes_(most_buffer_bytes) {}

PinnedPool::~PinnedPool() {
  if (asked_) memory_->on_shortage({});
  free_blocks();
}

PinnedPool::Loan PinnedPool::lend(size_t count, size_t bytes, Device& device) {
  {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return !lent_; });
    lent_ = true;
  }
  Loan loan(*this);
  // Not under the lock: it allocates, and an allocation may ask this pool to give back.
  if (count) grow(count, bytes, device);
  loan.count_ = std::min(count, buffers_.size());
  return loan;
}

void PinnedPool::grow(size_t count, size_t bytes, Device& device) {
  cut(bytes);
  if (buffers_.size() >= count) return;
  const auto room = [&] { return memory_->free_bytes() / 2; };
  // To a power of two: a few steps until the pool is as large as it gets.
  const size_t added = std::min(std::bit_ceil(count) - buffers_.size(), room() / bytes);
  if (buffers_.size() + added >= 2) {
    if (added) add_block(added, device);
    return;
  }
  free_blocks();
  lent_bytes_ = std::clamp(room() / 2 / kLine * kLine, std::min(kLeastBufferBytes, bytes), bytes);
  add_block(2, device);
}

/// Makes buffers of another size of all that the pool holds. What is too small for one is given back.
void PinnedPool::cut(size_t bytes) {
  if (lent_bytes_ == bytes) return;
  lent_bytes_ = bytes;
  buffers_.clear();
  std::erase_if(blocks_, [&](const Block& block) {
    if (block.memory.size() >= bytes) return false;
    block.device->unpin(block.memory.data());
    held_bytes_ -= block.memory.size();
    return true;
  });
  for (const Block& block : blocks_) cut(block);
}

void PinnedPool::cut(const Block& block) {
  for (size_t at = 0; at + lent_bytes_ <= block.memory.size(); at += lent_bytes_) {
    buffers_.push_back(block.memory.as<char>() + at);
  }
}

void PinnedPool::add_block(size_t buffers, Device& device) {
  // Not before: of engines that share their memory only one has devices beyond a link.
  if (!std::exchange(asked_, true)) memory_->on_shortage([this] { give_back_idle(); });
  HostBuffer memory = memory_->allocate(buffers * lent_bytes_, "pinned transfer buffers");
  blocks_.reserve(blocks_.size() + 1);
  buffers_.reserve(buffers_.size() + buffers);
  threads_.for_blocks(memory.size(), kTouchedBytes, Job(),
                      [&](uint64_t begin, uint64_t end) { std::memset(memory.as<char>() + begin, 0, end - begin); });
  device.pin(memory.data(), memory.size());
  held_bytes_ += memory.size();
  blocks_.push_back({std::move(memory), &device});
  cut(blocks_.back());
}

void PinnedPool::free_blocks() noexcept {
  buffers_.clear();
  for (const Block& block : blocks_) block.device->unpin(block.memory.data());
  blocks_.clear();
  held_bytes_ = 0;
}

void PinnedPool::give_back_idle() noexcept {
  const std::lock_guard lock(mutex_);
  if (!lent_) free_blocks();
}

void PinnedPool::take_back() noexcept {
  {
    const std::lock_guard lock(mutex_);
    lent_ = false;
  }
  returned_.notify_one();
}

}  // namespace warpjoin
