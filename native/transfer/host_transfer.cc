#include "transfer/host_transfer.h"

#include <algorithm>

#include "core/memory_copy.h"
#include "transfer/schedule.h"

namespace warpjoin {
namespace {

using transferring::Block;
using transferring::kDirectBlocks;
using transferring::Schedule;
using transferring::Survey;

constexpr size_t kSlots = 2;  // of a worker

// One thread's share of a transfer: while a block of one of its two buffers is under way it fills or empties the other.
class Worker {
 public:
  Worker(size_t index, Schedule& schedule, TransferStreams& streams, const PinnedPool::Loan& ring, const Job& job)
      : index_(index), schedule_(schedule), streams_(streams), job_(job), trace_(job.trace()) {
    for (size_t i = 0; i < kSlots; ++i) {
      if (kSlots * index + i < ring.count()) slots_[i].buffer = ring[kSlots * index + i];
    }
  }

  /// Returns when there is nothing left to do and nothing of it under way.
  void run() noexcept {
    try {
      move_blocks();
    } catch (...) {
      schedule_.fail(std::current_exception());
    }
    for (Stream* stream : used_) {
      try {
        stream->synchronize();
      } catch (...) {
        schedule_.fail(std::current_exception());
      }
    }
  }

 private:
  struct Slot {
    char* buffer = nullptr;
    Block block;
    uint64_t completes = 0;  ///< bytes that are complete with it: all that was taken at once, if it is the last of that
    Event* moved = nullptr;  // null: nothing is under way
    TraceClock::time_point begin;
  };

  void move_blocks() {
    Block rest;  // of the block that was taken last
    for (size_t turn = 0;; turn = 1 - turn) {
      finish(slots_[turn]);
      if (!rest.bytes) {
        const bool idle = !slots_[1 - turn].moved;
        const auto block = take(idle);
        if (!block && idle) return;
        if (!block) continue;
        rest = *block;
        taken_ = rest.bytes;
        if (!rest.bytes) schedule_.enqueued(rest, kSlots * index_ + turn, nullptr);
      }
      if (rest.bytes) start(slots_[turn], rest, turn);
    }
  }

  std::optional<Block> take(bool wait) {
    job_.check();
    return schedule_.take(index_, wait);
  }

  // Moves as much of a block as goes at once.
  void start(Slot& slot, Block& rest, size_t turn) {
    const Block block = rest.cut(rest.at_once);
    Device& device = *schedule_.queue(block).device;
    const bool to_device = schedule_.queue(block).direction == HostQueue::Direction::to_device;
    TransferStream& own = streams_.of(index_, device, to_device);
    Stream& stream = block.direct ? streams_.direct(device, to_device) : *own.stream;
    if (std::find(used_.begin(), used_.end(), &stream) == used_.end()) used_.push_back(&stream);
    if (block.after) stream.wait(*block.after);
    const TraceClock::time_point begin = now();
    transferring::for_each_part(block, [&](char* target, const char* source, size_t bytes, size_t at) {
      if (!block.direct && to_device) {
        copy_through_caches(slot.buffer + at, source, bytes);
        source = slot.buffer + at;
      } else if (!block.direct) {
        target = slot.buffer + at;
      }
      device.copy(target, source, bytes, stream);
    });
    stream.record(*own.moved[turn]);
    slot.begin = now();
    if (trace_ && !block.direct && to_device) trace_->add_here("copy to the ring", begin, slot.begin, block.bytes);
    slot.block = block;
    slot.completes = rest.bytes ? 0 : taken_;
    slot.moved = own.moved[turn].get();
    if (!rest.bytes) schedule_.enqueued(block, kSlots * index_ + turn, slot.moved);
  }

  void finish(Slot& slot) {
    if (!slot.moved) return;
    slot.moved->synchronize();
    slot.moved = nullptr;
    schedule_.arrived(slot.block);
    const HostQueue& queue = schedule_.queue(slot.block);
    const bool to_device = queue.direction == HostQueue::Direction::to_device;
    LinkTraffic& traffic = queue.device->traffic();
    (to_device ? traffic.to_device : traffic.to_host) += slot.block.bytes;
    const TraceClock::time_point moved = now();
    if (trace_) {
      trace_->add({"link", to_device ? TraceEvent::Track::to_device : TraceEvent::Track::to_host, queue.device->info().ordinal,
                   slot.block.direct ? TraceEvent::kDirect : static_cast<uint32_t>(index_), slot.begin, moved, slot.block.bytes});
    }
    if (!slot.block.direct && !to_device) {
      transferring::for_each_part(slot.block, [&](char* target, const char*, size_t bytes, size_t at) {
        copy_past_caches(target, slot.buffer + at, bytes);
      });
      if (trace_) trace_->add_here("copy from the ring", moved, now(), slot.block.bytes);
    }
    if (slot.completes) schedule_.completed(slot.block, slot.completes);
  }

  /// For the trace; any time where there is none.
  TraceClock::time_point now() const { return trace_ ? TraceClock::now() : TraceClock::time_point(); }

  const size_t index_;
  Schedule& schedule_;
  TransferStreams& streams_;
  const Job& job_;
  Trace* const trace_;
  Slot slots_[kSlots];
  uint64_t taken_ = 0;  // bytes of the block that was taken last
  std::vector<Stream*> used_;
};

/// Runs what is scheduled, by at most so many workers; those that stage need buffers of so many bytes (0: none does).
void run(Engine& engine, Schedule& schedule, size_t workers, size_t buffer_bytes, Device& staging, const Job& job) {
  // Borrowed even where no buffer is needed: transfers share the streams too.
  const size_t buffers = buffer_bytes ? kSlots * workers : 0;
  const PinnedPool::Loan ring = engine.pinned.lend(buffers, buffer_bytes, staging);
  if (buffers) workers = std::min(workers, ring.count() / kSlots);
  engine.transfer_streams.reserve(workers);
  schedule.begin(kSlots * workers, ring.buffer_bytes());
  engine.pool.parallel_for(workers, [&](uint64_t worker) { Worker(worker, schedule, engine.transfer_streams, ring, job).run(); });
  if (schedule.error()) std::rethrow_exception(schedule.error());
}

/// Workers that so many queues of direct copies keep busy.
size_t workers_of_direct(size_t queues) { return kDirectBlocks / kSlots * queues; }

}  // namespace

void transfer(Engine& engine, std::span<HostQueue> queues, const Job& job) {
  if (queues.empty()) return;
  Survey survey(queues, engine.pinned.most_buffer_bytes());
  Schedule schedule;
  for (size_t q = 0; q < queues.size(); ++q) schedule.add(queues[q], std::move(survey.direct[q]), false);
  const size_t useful = survey.staged_blocks + std::min(survey.direct_blocks, workers_of_direct(queues.size()));
  run(engine, schedule, std::clamp<size_t>(useful, 1, engine.transfer_threads()), survey.buffer_bytes, *survey.staging, job);
}

FedTransfer::FedTransfer(Engine& engine, const Job& job) : engine_(engine), job_(job), schedule_(std::make_unique<Schedule>()) {}
FedTransfer::~FedTransfer() = default;

size_t FedTransfer::open(Device& device, HostQueue::Direction direction, size_t depth, bool direct) {
  staged_ = staged_ || !direct;
  schedule_->add(queues_.emplace_back(HostQueue{&device, direction, {}, depth}), {}, true);
  return queues_.size() - 1;
}

void FedTransfer::push(size_t queue, HostCopy copy, Enqueued enqueued) {
  schedule_->push(queue, std::move(copy), std::move(enqueued));
}

void FedTransfer::wait(size_t queue) { schedule_->wait(queue); }

void FedTransfer::close(size_t queue) { schedule_->close(queue); }

void FedTransfer::run() {
  if (queues_.empty()) return;
  const size_t most = std::max(1u, engine_.transfer_threads());
  const size_t buffer_bytes = staged_ ? engine_.pinned.most_buffer_bytes() : 0;
  const size_t workers = staged_ ? most : std::min(most, workers_of_direct(queues_.size()));
  warpjoin::run(engine_, *schedule_, workers, buffer_bytes, *queues_.front().device, job_);
}

}  // namespace warpjoin
