#include "transfer/schedule.h"

#include <bit>
#include <iterator>
#include <utility>

#include "core/error.h"

namespace warpjoin::transferring {
namespace {

size_t ceil_div(size_t a, size_t b) { return a / b + (a % b ? 1 : 0); }

/// What is staged of a copy at a time.
size_t staged_at_once(size_t copy_bytes, size_t buffer_bytes) {
  return std::clamp(std::bit_floor(copy_bytes / kLeastBlocks), std::min(kLeastTransferBlock, buffer_bytes), buffer_bytes);
}

}  // namespace

Survey::Survey(std::span<const HostQueue> queues, size_t most_buffer_bytes) {
  for (const HostQueue& queue : queues) {
    if (!staging) staging = queue.device;
    std::vector<bool>& own = direct.emplace_back();
    for (const HostCopy& copy : queue.copies) {
      size_t staged_bytes = 0, direct_bytes = 0;
      for (const HostCopy::Stretch& stretch : copy.stretches) {
        const void* host = queue.direction == HostQueue::Direction::to_device ? stretch.source : stretch.target;
        own.push_back(stretch.bytes != 0 && queue.device->copies_directly(host));
        (own.back() ? direct_bytes : staged_bytes) += stretch.bytes;
      }
      if (staged_bytes) {
        staging = queue.device;
        const size_t at_once = staged_at_once(staged_bytes, most_buffer_bytes);
        buffer_bytes = std::max(buffer_bytes, at_once);
        staged_blocks += ceil_div(staged_bytes, at_once);
      }
      direct_blocks += ceil_div(direct_bytes, kDirectBytes);
    }
  }
}

Block Block::cut(const HostCopy& of, size_t most) {
  Block front = *this;
  front.bytes = std::min(most, bytes);
  bytes -= front.bytes;
  offset += front.bytes;
  for (; bytes && offset >= of.stretches[stretch].bytes; ++stretch) offset -= of.stretches[stretch].bytes;
  return front;
}

Schedule::Schedule(std::span<const HostQueue> queues, const Survey& survey, size_t slots, size_t buffer_bytes)
    : queues_(queues), survey_(survey), buffer_bytes_(buffer_bytes), states_(queues.size()) {
  for (size_t q = 0; q < queues.size(); ++q) {
    if (queues[q].depth == 0) throw Error(ErrorCode::internal, "The depth of a transfer's queue is at least 1");
    states_[q].flights.resize(std::min(queues[q].depth, queues[q].copies.size()));
    for (Flight& flight : states_[q].flights) flight.done.resize(slots);
  }
}

std::optional<Block> Schedule::take(size_t worker, bool wait) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (error_) return {};
    for (size_t i = 0; i < queues_.size(); ++i) {
      if (auto block = next_block((worker + i) % queues_.size())) return block;
    }
    if (!wait || all_taken()) return {};
    changed_.wait(lock);
  }
}

std::optional<Block> Schedule::next_block(size_t q) {
  State& state = states_[q];
  if (state.copy == queues_[q].copies.size() || state.copy - state.called >= state.flights.size()) return {};
  Flight& own = flight(state, state.copy);
  const bool first = own.copy != state.copy;
  if (first) {
    size_t bytes = 0;
    for (const HostCopy::Stretch& stretch : queues_[q].copies[state.copy].stretches) bytes += stretch.bytes;
    // Half a buffer on the way to a device: those of all threads stay in the last-level cache then, which the copy engines read.
    const bool to_device = queues_[q].direction == HostQueue::Direction::to_device;
    state.at_once = staged_at_once(bytes, buffer_bytes_) / (to_device ? 2 : 1);
    state.share = std::clamp<size_t>(bytes / kLeastShares / state.at_once, 1, kMostBuffers) * state.at_once;
    state.after = queues_[q].copies[state.copy].after;
    if (state.after && state.after->done()) state.after = nullptr;
    own.copy = state.copy;
    own.taken = false;
    std::fill(own.done.begin(), own.done.end(), nullptr);
  }
  if (own.held_back || state.direct_blocks == kDirectBlocks) return {};
  Block block = cut_block(q, first && state.after ? state.at_once : state.share);
  own.taken = state.stretch == queues_[q].copies[state.copy].stretches.size();
  if (block.bytes) block.after = state.after;
  if (block.direct) {
    ++state.direct_blocks;
  } else if (first && block.after && !own.taken) {
    block.opens = own.held_back = true;  // or all threads would fill their buffers and wait for the same event
  }
  ++own.enqueueing;
  if (own.taken) {
    state.first += state.stretch;
    state.stretch = 0;
    ++state.copy;
  }
  return block;
}

// Moves the state's position past the block, and past the empty stretches before and behind it.
Block Schedule::cut_block(size_t q, size_t most_staged) {
  State& state = states_[q];
  const std::vector<HostCopy::Stretch>& stretches = queues_[q].copies[state.copy].stretches;
  const auto skip_empty = [&] {
    while (state.stretch < stretches.size() && stretches[state.stretch].bytes == 0) ++state.stretch;
  };
  const auto is_direct = [&] { return survey_.direct[q][state.first + state.stretch]; };
  skip_empty();
  Block block{.queue = q, .copy = state.copy, .stretch = state.stretch, .offset = state.offset};
  if (state.stretch == stretches.size()) return block;
  block.direct = is_direct();
  block.at_once = block.direct ? kDirectBytes : state.at_once;
  const size_t most = block.direct ? kDirectBytes : most_staged;
  while (state.stretch < stretches.size() && block.bytes < most && is_direct() == block.direct) {
    const size_t here = std::min(most - block.bytes, stretches[state.stretch].bytes - state.offset);
    block.bytes += here;
    state.offset += here;
    if (state.offset < stretches[state.stretch].bytes) break;
    state.offset = 0;
    ++state.stretch;
    skip_empty();
  }
  return block;
}

bool Schedule::all_taken() const {
  for (size_t q = 0; q < queues_.size(); ++q) {
    if (states_[q].copy < queues_[q].copies.size()) return false;
  }
  return true;
}

void Schedule::enqueued(const Block& block, size_t slot, Event* done) {
  const HostQueue& queue = queues_[block.queue];
  State& state = states_[block.queue];
  std::unique_lock lock(mutex_);
  Flight& own = flight(state, block.copy);
  if (done) own.done[slot] = done;
  --own.enqueueing;
  if (state.calling) return;  // that call goes on with this copy
  state.calling = true;
  std::vector<Event*> events;
  while (!error_ && state.called < queue.copies.size()) {
    const Flight& next = flight(state, state.called);
    if (next.copy != state.called || !next.taken || next.enqueueing) break;
    events.clear();
    std::copy_if(next.done.begin(), next.done.end(), std::back_inserter(events), [](Event* event) { return event != nullptr; });
    lock.unlock();
    if (queue.enqueued) queue.enqueued(state.called, events);
    lock.lock();
    ++state.called;
    changed_.notify_all();
  }
  state.calling = false;
}

void Schedule::arrived(const Block& block) {
  if (!block.direct && !block.opens) return;
  const std::lock_guard lock(mutex_);
  State& state = states_[block.queue];
  if (block.direct) --state.direct_blocks;
  if (block.opens) flight(state, block.copy).held_back = false;
  changed_.notify_all();
}

void Schedule::fail(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  changed_.notify_all();
}

}  // namespace warpjoin::transferring
