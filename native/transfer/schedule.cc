#include "transfer/schedule.h"

#include <bit>
#include <iterator>
#include <utility>

#include "core/error.h"

namespace warpjoin::transferring {
namespace {

size_t ceil_div(size_t a, size_t b) { return a / b + (a % b ? 1 : 0); }

/// What is staged of a copy at a time.
size_t staged_at_once(size_t copy_bytes, size_t least_blocks, size_t buffer_bytes) {
  return std::clamp(std::bit_floor(copy_bytes / least_blocks), std::min(kLeastTransferBlock, buffer_bytes), buffer_bytes);
}

size_t bytes_of(const HostCopy& copy) {
  size_t bytes = 0;
  for (const HostCopy::Stretch& stretch : copy.stretches) bytes += stretch.bytes;
  return bytes;
}

}  // namespace

std::vector<bool> direct_stretches(const HostQueue& queue, const HostCopy& copy) {
  std::vector<bool> direct;
  direct.reserve(copy.stretches.size());
  for (const HostCopy::Stretch& stretch : copy.stretches) {
    const void* const host = queue.direction == HostQueue::Direction::to_device ? stretch.source : stretch.target;
    direct.push_back(stretch.bytes != 0 && queue.device->copies_all_directly(host, stretch.bytes));
  }
  return direct;
}

Survey::Survey(std::span<const HostQueue> queues, size_t most_buffer_bytes) {
  for (const HostQueue& queue : queues) {
    if (!staging) staging = queue.device;
    std::deque<std::vector<bool>>& own = direct.emplace_back();
    for (const HostCopy& copy : queue.copies) {
      const std::vector<bool>& of_copy = own.emplace_back(direct_stretches(queue, copy));
      size_t staged_bytes = 0, direct_bytes = 0;
      for (size_t s = 0; s < of_copy.size(); ++s) (of_copy[s] ? direct_bytes : staged_bytes) += copy.stretches[s].bytes;
      if (staged_bytes) {
        staging = queue.device;
        const size_t at_once = staged_at_once(staged_bytes, kLeastBlocks, most_buffer_bytes);
        buffer_bytes = std::max(buffer_bytes, at_once);
        staged_blocks += ceil_div(staged_bytes, at_once);
      }
      direct_blocks += ceil_div(direct_bytes, kDirectBytes);
    }
  }
}

Block Block::cut(size_t most) {
  Block front = *this;
  front.bytes = std::min(most, bytes);
  bytes -= front.bytes;
  offset += front.bytes;
  for (; bytes && offset >= of->stretches[stretch].bytes; ++stretch) offset -= of->stretches[stretch].bytes;
  return front;
}

void Schedule::add(HostQueue& queue, std::deque<std::vector<bool>> direct, bool fed) {
  if (queue.depth == 0) throw Error(ErrorCode::internal, "The depth of a transfer's queue is at least 1");
  State& state = states_.emplace_back();
  state.queue = &queue;
  state.direct = std::move(direct);
  state.open = fed;
  state.fed = fed;
}

void Schedule::begin(size_t slots, size_t buffer_bytes) {
  const std::lock_guard lock(mutex_);
  buffer_bytes_ = buffer_bytes;
  for (size_t q = 0; q < states_.size(); ++q) ++ways_[way_of(q)].links;
  least_shares_ = std::max(kLeastShares / std::max(ways_[0].links, ways_[1].links), kLeastSharesOfLink);
  for (State& state : states_) {
    state.flights.resize(state.open ? state.queue->depth : std::min(state.queue->depth, state.queue->copies.size()));
    for (Flight& flight : state.flights) flight.done.resize(slots);
  }
}

void Schedule::push(size_t queue, HostCopy copy, FedTransfer::Enqueued enqueued) {
  State& state = states_[queue];
  std::vector<bool> direct = direct_stretches(*state.queue, copy);
  const uint64_t bytes = bytes_of(copy);
  const std::lock_guard lock(mutex_);
  state.incomplete.push_back(bytes);
  state.count_complete();
  state.queue->copies.push_back(std::move(copy));
  state.direct.push_back(std::move(direct));
  state.callbacks.push_back(std::move(enqueued));
  wake();
}

void Schedule::wait(size_t queue) {
  std::unique_lock lock(mutex_);
  const State& state = states_[queue];
  const size_t copies = state.incomplete.size();
  completed_.wait(lock, [&] { return error_ || state.complete >= copies; });
  if (error_) throw Error(ErrorCode::aborted, "The transfer has failed");
}

void Schedule::completed(const Block& block, uint64_t bytes) {
  State& state = states_[block.queue];
  const std::lock_guard lock(mutex_);
  add_under_way(block, -bytes);
  if (!state.fed) return;
  state.incomplete[block.copy] -= bytes;
  state.count_complete();
  completed_.notify_all();
}

void Schedule::close(size_t queue) {
  const std::lock_guard lock(mutex_);
  states_[queue].open = false;
  work_.notify_all();
}

std::optional<Block> Schedule::take(size_t worker, bool wait) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (error_) return {};
    if (auto block = next_block(worker)) {
      add_under_way(*block, block->bytes);
      if (all_taken()) {
        work_.notify_all();
      } else if (one_by_one_) {
        wake();
      }
      return block;
    }
    if (!wait || all_taken()) return {};
    ++idle_;
    work_.wait(lock);
    --idle_;
  }
}

void Schedule::wake() {
  one_by_one_ = idle_ > kWokenAtOnce;
  one_by_one_ ? work_.notify_one() : work_.notify_all();
}

std::optional<Block> Schedule::next_block(size_t worker) {
  for (const bool ahead : {false, true}) {
    for (size_t i = 0; i < states_.size(); ++i) {
      const size_t q = (worker + i) % states_.size();
      if (is_ahead(q) != ahead) continue;
      if (auto block = next_block_of(q)) return block;
    }
  }
  return {};
}

bool Schedule::is_ahead(size_t q) const {
  const Way& way = ways_[way_of(q)];
  return 4 * way.links * states_[q].under_way > 5 * way.under_way;
}

void Schedule::add_under_way(const Block& block, uint64_t bytes) {
  states_[block.queue].under_way += bytes;
  ways_[way_of(block.queue)].under_way += bytes;
}

std::optional<Block> Schedule::next_block_of(size_t q) {
  State& state = states_[q];
  const HostQueue& queue = *state.queue;
  if (state.copy == queue.copies.size() || state.copy - state.called >= state.flights.size()) return {};
  Flight& own = flight(state, state.copy);
  const bool first = own.copy != state.copy;
  if (first) {
    const size_t bytes = bytes_of(queue.copies[state.copy]);
    // Half a buffer on the way to a device, and where both directions are busy: those of all threads stay in the last-level cache
    // then, which the copy engines read.
    const bool to_device = queue.direction == HostQueue::Direction::to_device;
    state.at_once = state.fed ? staged_at_once(bytes, kLeastFedBlocks, buffer_bytes_ / 2)
                              : staged_at_once(bytes, kLeastBlocks, buffer_bytes_) / (to_device ? 2 : 1);
    state.share = std::clamp<size_t>(bytes / least_shares_ / state.at_once, 1, kMostBuffers) * state.at_once;
    state.after = queue.copies[state.copy].after;
    if (state.after && state.after->done()) state.after = nullptr;
    own.copy = state.copy;
    own.taken = false;
    std::fill(own.done.begin(), own.done.end(), nullptr);
  }
  if (own.held_back || state.direct_blocks == kDirectBlocks) return {};
  Block block = cut_block(state, q, first && state.after ? state.at_once : state.share);
  own.taken = state.stretch == block.of->stretches.size();
  if (block.bytes) block.after = state.after;
  if (block.direct) {
    ++state.direct_blocks;
  } else if (first && block.after && !own.taken) {
    block.opens = own.held_back = true;  // or all threads would fill their buffers and wait for the same event
  }
  ++own.enqueueing;
  if (own.taken) {
    state.stretch = 0;
    ++state.copy;
  }
  return block;
}

// Moves the state's position past the block, and past the empty stretches before and behind it.
Block Schedule::cut_block(State& state, size_t q, size_t most_staged) const {
  const HostCopy& copy = state.queue->copies[state.copy];
  const std::vector<HostCopy::Stretch>& stretches = copy.stretches;
  const std::vector<bool>& direct = state.direct[state.copy];
  const auto skip_empty = [&] {
    while (state.stretch < stretches.size() && stretches[state.stretch].bytes == 0) ++state.stretch;
  };
  const auto is_direct = [&] { return direct[state.stretch]; };
  skip_empty();
  Block block{.queue = q, .copy = state.copy, .of = &copy, .stretch = state.stretch, .offset = state.offset};
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
  return std::all_of(states_.begin(), states_.end(),
                     [](const State& state) { return !state.open && state.copy == state.queue->copies.size(); });
}

void Schedule::enqueued(const Block& block, size_t slot, Event* done) {
  State& state = states_[block.queue];
  const HostQueue& queue = *state.queue;
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
    const FedTransfer::Enqueued callback =
        state.callbacks.empty() ? FedTransfer::Enqueued() : std::move(state.callbacks[state.called]);
    lock.unlock();
    if (queue.enqueued) queue.enqueued(state.called, events);
    if (callback) callback(events);
    lock.lock();
    ++state.called;
    wake();
  }
  state.calling = false;
}

void Schedule::arrived(const Block& block) {
  if (!block.direct && !block.opens) return;
  const std::lock_guard lock(mutex_);
  State& state = states_[block.queue];
  if (block.direct) --state.direct_blocks;
  if (block.opens) flight(state, block.copy).held_back = false;
  wake();
}

void Schedule::fail(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  work_.notify_all();
  completed_.notify_all();
}

}  // namespace warpjoin::transferring
