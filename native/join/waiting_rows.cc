#include "join/waiting_rows.h"

#include <utility>

namespace warpjoin {

WaitingRows::WaitingRows(Engine& engine, std::span<Device* const> devices, size_t bytes, Job& job)
    : engine_(engine), job_(job), bytes_(StackAllocator::aligned(bytes)) {
  for (Device* device : devices) places_.push_back({device, {}, 0, {}});
}

void WaitingRows::reserve(size_t device, size_t join_bytes) {
  Place& place = places_[device];
  StackAllocator& memory = place.device->memory();
  if (place.room && join_bytes <= memory.room_bytes()) return;
  if (!place.waiting.empty()) go_home();
  place.room = Buffer();  // a stack grows while it is empty
  const size_t both = StackAllocator::aligned(join_bytes) + bytes_;
  const bool fits =
      both + memory.resident_bytes() <= memory.limit_bytes() && both <= memory.reserved_bytes() + memory.free_bytes();
  memory.reserve(fits ? both : join_bytes);
  if (fits) place.room = memory.allocate(bytes_);
}

bool WaitingRows::has_room(size_t device, size_t bytes) const {
  return bytes <= places_[device].room.size() - places_[device].used;
}

void* WaitingRows::take(size_t device, void* home, size_t bytes) {
  Place& place = places_[device];
  void* const there = place.room.as<char>() + place.used;
  place.used += StackAllocator::aligned(bytes);
  place.waiting.push_back({home, there, bytes});
  return there;
}

std::vector<HostQueue> WaitingRows::queues(uint64_t part, uint64_t whole) {
  std::vector<HostQueue> queues;
  for (Place& place : places_) {
    HostQueue queue{place.device, HostQueue::Direction::to_host, {}, 1, {}};
    std::vector<HostCopy::Stretch> left;
    for (const HostCopy::Stretch& stretch : place.waiting) {
      const double share = static_cast<double>(part) / static_cast<double>(whole);
      const size_t bytes = part == whole ? stretch.bytes
                                         : static_cast<size_t>(static_cast<double>(stretch.bytes) * share) /
                                               StackAllocator::kAlignment * StackAllocator::kAlignment;
      if (bytes) queue.copies.push_back({{{stretch.target, stretch.source, bytes}}, nullptr});
      if (bytes == stretch.bytes) continue;
      left.push_back(
          {static_cast<char*>(stretch.target) + bytes, static_cast<const char*>(stretch.source) + bytes, stretch.bytes - bytes});
    }
    place.waiting = std::move(left);
    if (place.waiting.empty()) place.used = 0;
    if (queue.copies.empty()) continue;
    queue.depth = queue.copies.size();
    queues.push_back(std::move(queue));
  }
  return queues;
}

void WaitingRows::go_home() {
  std::vector<HostQueue> all = queues(1, 1);
  transfer(engine_, all, job_);
}

}  // namespace warpjoin
