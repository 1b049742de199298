// Which block of which queue is next: what the workers of a transfer share. Internal to native/transfer.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transfer/host_transfer.h"

namespace warpjoin::transferring {

/// Direct copies are cut in pieces of this, so that a cancelled job stops within some milliseconds.
inline constexpr size_t kDirectBytes = size_t{16} << 20;
/// So many of a queue are under way at most: a link is never idle, and no queue that waits takes all threads.
inline constexpr size_t kDirectBlocks = 4;
/// A thread takes so many buffers' worth at a time: one by one, the threads of a large host wait for each other. Of a copy it
/// takes no more than a share that leaves as much to as many threads as keep a link busy; several links share the threads.
inline constexpr size_t kMostBuffers = 4, kLeastShares = 16, kLeastSharesOfLink = 4;

/// Blocks are smaller than a buffer where a copy would have fewer than so many, but not smaller than kLeastTransferBlock. Of a
/// fed transfer other copies are under way at the same time, and each block waits for the driver: a copy makes do with fewer.
inline constexpr size_t kLeastBlocks = 8, kLeastFedBlocks = 4;

/// So many idle workers are woken at once, at most.
inline constexpr size_t kWokenAtOnce = 16;

/// What a transfer has to move, and which of it goes directly.
struct Survey {
  Survey(std::span<const HostQueue> queues, size_t most_buffer_bytes);

  std::vector<std::deque<std::vector<bool>>> direct;  ///< stretches of each queue's copies
  size_t staged_blocks = 0, direct_blocks = 0;
  size_t buffer_bytes = 0;    ///< of a ring for all that is staged
  Device* staging = nullptr;  ///< one of the devices that need a ring, or any
};

/// Which stretches of a copy go directly.
std::vector<bool> direct_stretches(const HostQueue& queue, const HostCopy& copy);

/// A part of a copy, all staged or all direct: `bytes` from `offset` in `stretch` on, across as many stretches as it takes.
struct Block {
  size_t queue = 0, copy = 0;
  const HostCopy* of = nullptr;
  size_t stretch = 0, offset = 0;
  size_t bytes = 0;  ///< 0: the whole copy is empty
  bool direct = false;
  size_t at_once = 0;      ///< what of it is moved at a time
  Event* after = nullptr;  ///< to wait for first
  bool opens = false;      ///< the copy's other blocks are held back until this one, which is staged, has arrived

  /// Cuts off the first of it, at most so many bytes.
  Block cut(size_t most);
};

/// Calls move(target, source, bytes, position in the block) for the block's part of each stretch.
template <class Move>
void for_each_part(const Block& block, Move&& move) {
  size_t offset = block.offset;
  for (size_t s = block.stretch, done = 0; done < block.bytes; ++s, offset = 0) {
    const HostCopy::Stretch& stretch = block.of->stretches[s];
    const size_t bytes = std::min(block.bytes - done, stretch.bytes - offset);
    if (bytes) move(static_cast<char*>(stretch.target) + offset, static_cast<const char*>(stretch.source) + offset, bytes, done);
    done += bytes;
  }
}

/// Thread-safe.
class Schedule {
 public:
  /// A queue, which must live as long; with those of its copies' stretches that go directly. Fed: more copies come until close().
  void add(HostQueue& queue, std::deque<std::vector<bool>> direct, bool fed);
  /// What is under way takes one of `slots`, which are the workers', with a buffer of `buffer_bytes` each. After all queues.
  void begin(size_t slots, size_t buffer_bytes);

  void push(size_t queue, HostCopy copy, FedTransfer::Enqueued enqueued);
  /// Waits until what was pushed by now is complete; throws Error(aborted) where the transfer fails before.
  void wait(size_t queue);
  void close(size_t queue);

  const HostQueue& queue(const Block& block) const { return *states_[block.queue].queue; }

  /// The worker's next block, of the first queue from its own on that has one; queues with a quarter more under way than the
  /// mean of their direction come last, or threads would all go for some of the links. With `wait` it waits until there is one;
  /// nothing means then that all have been taken, or that the transfer has failed. A worker must not wait while it has a
  /// block under way.
  std::optional<Block> take(size_t worker, bool wait);
  /// All of the block is enqueued before `done` (null for an empty block). Calls back for copies that are enqueued now.
  void enqueued(const Block& block, size_t slot, Event* done);
  /// The block, or a part of it, has arrived.
  void arrived(const Block& block);
  /// The host memory of so many bytes of the block's copy is complete, too.
  void completed(const Block& block, uint64_t bytes);

  /// Stops the transfer; the first error counts.
  void fail(std::exception_ptr error) noexcept;
  /// The error, if any; once all workers have ended.
  const std::exception_ptr& error() const noexcept { return error_; }

 private:
  // One of the `depth` copies of a queue that may be under way.
  struct Flight {
    size_t copy = ~size_t{0};
    size_t enqueueing = 0;  // blocks taken and not yet enqueued
    bool taken = false;     // all of its blocks
    bool held_back = false;
    std::vector<Event*> done;  // by slot; null: it has had none
  };
  struct State {
    HostQueue* queue = nullptr;
    std::deque<std::vector<bool>> direct;         // stretches of its copies
    std::deque<FedTransfer::Enqueued> callbacks;  // of copies that were pushed
    bool open = false;                            // for more of them
    bool fed = false;                             // with copies that were not known before
    size_t copy = 0, stretch = 0, offset = 0;     // where the next block begins
    size_t at_once = 0, share = 0;                // of the copy's staged blocks: what is moved at a time, and most bytes
    Event* after = nullptr;                       // to wait for before them; null where it is done
    size_t called = 0;                            // copies whose callback has returned
    size_t direct_blocks = 0;                     // under way
    uint64_t under_way = 0;                       // bytes that have been taken and are not complete
    std::deque<uint64_t> incomplete;              // bytes of each copy that was pushed
    size_t complete = 0;                          // so many of them, the first ones, have none

    void count_complete() {
      while (complete < incomplete.size() && incomplete[complete] == 0) ++complete;
    }
    bool calling = false;
    std::vector<Flight> flights;  // copy c has flights[c % size]
  };

  // Queues of one direction.
  struct Way {
    size_t links = 0;
    uint64_t under_way = 0;
  };
  size_t way_of(size_t queue) const { return states_[queue].queue->direction == HostQueue::Direction::to_device ? 0 : 1; }
  bool is_ahead(size_t queue) const;
  void add_under_way(const Block& block, uint64_t bytes);
  std::optional<Block> next_block(size_t worker);
  std::optional<Block> next_block_of(size_t queue);
  Block cut_block(State& state, size_t queue, size_t most_staged) const;
  bool all_taken() const;
  /// Wakes idle workers, as there may be something to do. Of many most would find nothing, and keep the lock from the others: so
  /// one of them is woken, and who takes a block wakes the next.
  void wake();
  Flight& flight(State& state, size_t copy) const { return state.flights[copy % state.flights.size()]; }

  size_t buffer_bytes_ = 0, least_shares_ = kLeastShares;
  std::mutex mutex_;
  std::condition_variable work_;       // there may be a block to take, or never one more
  std::condition_variable completed_;  // copies are complete
  std::vector<State> states_;
  Way ways_[2];  // to the devices, and to the host
  std::exception_ptr error_;
  size_t idle_ = 0;          // workers that wait for a block
  bool one_by_one_ = false;  // how they were woken last
};

}  // namespace warpjoin::transferring
