// Transfers on far devices: host memory through the ring and directly, in both directions.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <thread>

#include "far_device.h"
#include "transfer/schedule.h"
#include "transfer_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

constexpr size_t kBlock = size_t{8} << 10;
const std::vector<Direction> kToDevice = {Direction::to_device}, kToHost = {Direction::to_host},
                             kBoth = {Direction::to_device, Direction::to_host};

std::unique_ptr<Engine> make_engine(int devices, unsigned threads, bool pinned = false, size_t memory_limit = size_t{256} << 20) {
  return make_far_engine({.threads = threads,
                          .host_devices = devices,
                          .memory_limit_bytes = memory_limit,
                          .device_memory_limit_bytes = size_t{32} << 20,
                          .transfer_block_bytes = kBlock},
                         true, pinned);
}

/// What an engine that copies all memory directly, or pinned memory alone, tells apart.
std::vector<HostKind> kinds(bool pinned) {
  if (pinned) return {HostKind::pinned};
  return {HostKind::ordinary, HostKind::half, HostKind::mixed};
}

FarDevice& far(Device& device) { return static_cast<FarDevice&>(device); }

class Transfer : public ::testing::TestWithParam<std::tuple<unsigned, bool>> {};

TEST_P(Transfer, MovesRandomStretches) {
  const auto [threads, pinned] = GetParam();
  for (const int devices : {1, 2, 3, 4, 8}) {
    const auto engine = make_engine(devices, threads, pinned);
    std::atomic<uint64_t>& slow = far(*engine->devices[0]).pinning().slow_copies;
    for (const auto& device : engine->devices) device->memory().reserve(size_t{12} << 20);
    uint64_t seed = static_cast<uint64_t>(devices) * 100;
    for (const auto& directions : {kToDevice, kToHost, kBoth}) {
      for (const size_t depth : {1, 2, 3, 100}) {
        const size_t queues = static_cast<size_t>(devices) * directions.size();  // both directions of each link
        check_random_transfer(*engine, queues, directions, 7, depth, seed += 20, [&] { slow = 0; });
        // Tests themselves read each device back by one copy of ordinary memory.
        EXPECT_EQ(slow, pinned ? 0u : queues) << "a copy took memory that is not pinned";
      }
    }
    EXPECT_EQ(engine->pinned.held_bytes() == 0, pinned) << "only ordinary memory needs a ring";
    EXPECT_EQ(engine->memory->used_bytes(), engine->pinned.held_bytes());
  }
}

TEST_P(Transfer, OverwritesNothingBeforeItIsConsumed) {
  const auto [threads, pinned] = GetParam();
  const auto slow_down = [](Device&, Stream& stream) {
    static_cast<HostStream&>(stream).enqueue([] { std::this_thread::sleep_for(std::chrono::microseconds(300)); });
  };
  for (const int devices : {1, 2, 4}) {
    const auto engine = make_engine(devices, threads, pinned);
    for (const size_t depth : {1, 2, 3}) {
      for (const size_t bytes : {kBlock / 2, 3 * kBlock + 1}) {
        for (const HostKind kind : kinds(pinned)) {
          check_consumers(*engine, depth, 12, bytes, kind, slow_down);
          check_producers(*engine, depth, 12, bytes, kind, slow_down);
          check_round_trips(*engine, depth, 12, bytes, kind, slow_down);
        }
      }
    }
  }
}

TEST_P(Transfer, GivesAllEventsOfACopy) {
  const auto [threads, pinned] = GetParam();
  for (const int devices : {1, 2}) {
    const auto engine = make_engine(devices, threads, pinned);
    for (const auto& device : engine->devices) far(*device).delay_copies(std::chrono::microseconds(100));
    for (const size_t depth : {1, 2}) {
      for (const size_t bytes : {kBlock / 2, 7 * kBlock + 1}) {
        for (const HostKind kind : kinds(pinned)) {
          check_consumers(*engine, depth, 6, bytes, kind, [](Device&, Stream&) {});
          check_producers(*engine, depth, 6, bytes, kind, [](Device&, Stream&) {});
          check_round_trips(*engine, depth, 6, bytes, kind, [](Device&, Stream&) {});
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, Transfer, ::testing::Combine(::testing::Values(1u, 2u, 3u, 8u), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param) ? "Pinned" : "Ordinary") +
                                  std::to_string(std::get<0>(info.param));
                         });

TEST(TransferQueues, MayBeEmpty) {
  for (const unsigned threads : {1, 4}) {
    const auto engine = make_engine(1, threads);
    transfer(*engine, {}, Job());
    std::vector<size_t> called;
    HostQueue none{.device = engine->devices[0].get()};
    HostQueue of_nothing = none;
    const auto never = engine->devices[0]->create_event();
    of_nothing.copies = {{}, {{{}, {}}, nullptr}, {{{}}, never.get()}, {}};
    of_nothing.depth = 1;
    of_nothing.enqueued = [&](size_t copy, std::span<Event* const> done) {
      called.push_back(copy);
      EXPECT_TRUE(done.empty());
    };
    std::vector<HostQueue> queues = {none, of_nothing, none};
    transfer(*engine, queues, Job());
    EXPECT_EQ(called, (std::vector<size_t>{0, 1, 2, 3}));
    EXPECT_EQ(engine->memory->used_bytes(), 0u);
    queues[0].depth = 0;
    EXPECT_THROW(transfer(*engine, queues, Job()), Error);
  }
}

// One queue of ordinary memory to each device, in copies of two and a half blocks.
struct Plain {
  Plain(Engine& engine, size_t copies) : engine(engine), source(random_bytes(copies * kBytes, 7)) {
    for (const auto& device : engine.devices) {
      device->memory().reserve(StackAllocator::aligned(source.size()));
      memory.push_back(device->memory().allocate(source.size()));
      HostQueue& queue = queues.emplace_back();
      queue.device = device.get();
      for (size_t c = 0; c < copies; ++c) {
        queue.copies.push_back({{{memory.back().as<char>() + c * kBytes, source.data() + c * kBytes, kBytes}}});
      }
    }
  }
  void run_and_check(const Job& job = Job()) {
    for (size_t d = 0; d < queues.size(); ++d) write_device(*queues[d].device, memory[d].data(), Bytes(source.size(), 0xA5));
    transfer(engine, queues, job);
    for (size_t d = 0; d < queues.size(); ++d) {
      EXPECT_TRUE(read_device(*queues[d].device, memory[d].data(), source.size()) == source) << d;
    }
  }

  static constexpr size_t kBytes = kBlock * 5 / 2;
  Engine& engine;
  const Bytes source;
  std::vector<Buffer> memory;
  std::vector<HostQueue> queues;
};

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::internal;
}

/// One queue, and what moves it with two slots.
struct Scheduled {
  transferring::Survey survey;
  transferring::Schedule schedule;

  Scheduled(HostQueue& queue, size_t most_buffer_bytes) : survey({&queue, 1}, most_buffer_bytes) {
    schedule.add(queue, survey.direct[0], false);
    schedule.begin(2, survey.buffer_bytes);
  }
};

// The larger a copy the more of it is staged at a time, while it is in eight blocks at least.
TEST(TransferBlocks, GrowWithTheCopy) {
  const auto engine = make_engine(1, 1);
  const auto buffer_mib = [&](Direction direction, size_t copy, size_t most) {
    HostQueue queue{.device = engine->devices[0].get(), .direction = direction};
    queue.copies = {{{{nullptr, nullptr, copy << 20}}}};
    Scheduled only(queue, most << 20);
    const size_t block = only.schedule.take(0, true)->at_once, buffer = only.survey.buffer_bytes;
    EXPECT_EQ(block, direction == Direction::to_device ? buffer / 2 : buffer);
    return buffer >> 20;
  };
  for (const Direction direction : {Direction::to_host, Direction::to_device}) {
    for (const size_t copy : {1, 15, 16, 31}) EXPECT_EQ(buffer_mib(direction, copy, 8), 2u) << copy;
    for (const size_t copy : {32, 63}) EXPECT_EQ(buffer_mib(direction, copy, 8), 4u) << copy;
    for (const size_t copy : {64, 1000}) EXPECT_EQ(buffer_mib(direction, copy, 8), 8u) << copy;
    EXPECT_EQ(buffer_mib(direction, 1000, 4), 4u);
  }
}

TEST(TransferBlocks, OfManySizesMoveAll) {
  const auto engine = make_far_engine({.threads = 3,
                                       .host_devices = 1,
                                       .memory_limit_bytes = size_t{256} << 20,
                                       .device_memory_limit_bytes = size_t{128} << 20,
                                       .transfer_block_bytes = size_t{4} << 20});
  Device& device = *engine->devices[0];
  const Bytes sent = random_bytes((size_t{60} << 20) + 12345, 3);
  Bytes back(sent.size());
  device.memory().reserve(StackAllocator::aligned(sent.size()));
  const Buffer memory = device.memory().allocate(sent.size());
  HostQueue there{.device = &device, .direction = Direction::to_device}, home{.device = &device, .direction = Direction::to_host};
  const size_t sizes[] = {1, size_t{3} << 20, (size_t{18} << 20) + 7, sent.size()};
  for (size_t at = 0, i = 0; at < sent.size(); ++i) {
    const size_t bytes = std::min(sizes[i], sent.size() - at);
    there.copies.push_back({{{memory.as<char>() + at, sent.data() + at, bytes}}});
    home.copies.push_back({{{back.data() + at, memory.as<char>() + at, bytes}}});
    at += bytes;
  }
  transfer(*engine, {&there, 1}, Job());
  transfer(*engine, {&home, 1}, Job());
  EXPECT_TRUE(back == sent);
}

TEST(TransferErrors, OfACallbackStopAndLeaveTheRingUsable) {
  for (const unsigned threads : {1, 4}) {
    const auto engine = make_engine(3, threads);
    Plain plain(*engine, 20);
    for (const size_t bad : {0, 3, 19}) {
      std::vector<size_t> called;
      plain.queues[1].enqueued = [&](size_t copy, std::span<Event* const>) {
        called.push_back(copy);
        if (copy == bad) throw Error(ErrorCode::key_type, "no");
      };
      EXPECT_EQ(code_of([&] { transfer(*engine, plain.queues, Job()); }), ErrorCode::key_type);
      EXPECT_EQ(called.size(), bad + 1);
    }
    plain.queues[1].enqueued = nullptr;
    plain.run_and_check();
  }
}

TEST(TransferErrors, OfCopiesAreThrownAndLeaveTheRingUsable) {
  for (const unsigned threads : {1, 4}) {
    for (const bool pinned : {false, true}) {
      const auto engine = make_engine(2, threads, pinned);
      Plain plain(*engine, 8);
      for (const bool at_once : {true, false}) {
        for (const int64_t nth : {1, 5, 8}) {
          far(*engine->devices[1]).fail_copy(nth, at_once);
          EXPECT_EQ(code_of([&] { transfer(*engine, plain.queues, Job()); }), ErrorCode::device);
        }
      }
      plain.run_and_check();
    }
  }
}

TEST(TransferErrors, OfTheDeviceThatPinsAreThrown) {
  const auto engine = make_engine(2, 2);
  Plain plain(*engine, 4);
  for (const auto& device : engine->devices) far(*device).refuse_to_pin(true);
  EXPECT_EQ(code_of([&] { transfer(*engine, plain.queues, Job()); }), ErrorCode::memory_limit);
  EXPECT_EQ(engine->memory->used_bytes(), 0u);
  for (const auto& device : engine->devices) far(*device).refuse_to_pin(false);
  plain.run_and_check();
}

TEST(TransferErrors, OfACancelledJobStopIt) {
  for (const unsigned threads : {1, 4}) {
    for (const bool pinned : {false, true}) {
      const auto engine = make_engine(2, threads, pinned);
      Plain plain(*engine, 200);
      Job cancelled;
      cancelled.cancel();
      std::atomic<size_t> called = 0;
      for (HostQueue& queue : plain.queues) queue.enqueued = [&](size_t, std::span<Event* const>) { ++called; };
      EXPECT_EQ(code_of([&] { transfer(*engine, plain.queues, cancelled); }), ErrorCode::aborted);
      EXPECT_EQ(called, 0u);
      Job job;
      plain.queues[0].enqueued = [&](size_t copy, std::span<Event* const>) {
        if (copy == 2) job.cancel();
        ++called;
      };
      EXPECT_EQ(code_of([&] { transfer(*engine, plain.queues, job); }), ErrorCode::aborted);
      EXPECT_LT(called, 399u);
      plain.run_and_check();
    }
  }
}

/// Copies of 3 blocks to a device, or home, that are pushed one by one.
class Fed {
 public:
  static constexpr size_t kCopies = 40, kBytes = 3 * kBlock;

  explicit Fed(Engine& engine, Direction direction = Direction::to_device) : device_(*engine.devices[0]), direction_(direction) {
    device_.memory().reserve(kCopies * kBytes);
    memory_ = device_.memory().allocate(kCopies * kBytes);
  }
  void run(Engine& engine, const Job& job, const std::function<void(FedTransfer& transfer, size_t queue)>& feed) {
    FedTransfer transfer(engine, job);
    const size_t queue = transfer.open(device_, direction_, 2, false);
    std::thread feeder([&] { feed(transfer, queue); });
    try {
      transfer.run();
    } catch (...) {
      feeder.join();
      throw;
    }
    feeder.join();
  }
  HostCopy copy(size_t c) { return {{{memory_.as<unsigned char>() + c * kBytes, sent_.data() + c * kBytes, kBytes}}, nullptr}; }
  HostCopy copy_home(size_t c) {
    return {{{home_.data() + c * kBytes, memory_.as<unsigned char>() + c * kBytes, kBytes}}, nullptr};
  }
  /// Has the device's memory filled.
  void fill() {
    const auto stream = device_.create_stream();
    device_.copy(memory_.data(), sent_.data(), sent_.size(), *stream);
    stream->synchronize();
  }
  void check() const { EXPECT_TRUE(read_device(device_, memory_.data(), sent_.size()) == sent_); }
  /// Of so many copies.
  void check_home(size_t copies) const {
    EXPECT_TRUE(std::equal(sent_.begin(), sent_.begin() + static_cast<std::ptrdiff_t>(copies * kBytes), home_.begin()));
  }

 private:
  Device& device_;
  const Direction direction_;
  Bytes sent_ = random_bytes(kCopies * kBytes, 5), home_ = Bytes(kCopies * kBytes);
  Buffer memory_;
};

TEST(FedTransfers, AreFedByAnotherThread) {
  for (const unsigned threads : {1, 4}) {
    const auto engine = make_engine(2, threads);
    Fed fed(*engine);
    for (const size_t pause : {size_t{1}, size_t{7}, Fed::kCopies}) {
      std::atomic<size_t> called = 0;
      fed.run(*engine, Job(), [&](FedTransfer& transfer, size_t queue) {
        for (size_t c = 0; c < Fed::kCopies; ++c) {
          if (c % pause == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
          transfer.push(queue, fed.copy(c), [&, c](std::span<Event* const>) { EXPECT_EQ(c, called++); });
        }
        transfer.close(queue);
      });
      EXPECT_EQ(called, Fed::kCopies);
      fed.check();
    }
    fed.run(*engine, Job(), [](FedTransfer& transfer, size_t queue) { transfer.close(queue); });
  }
}

TEST(FedTransfers, WaitForWhatHasBeenPushed) {
  for (const unsigned threads : {1, 4}) {
    const auto engine = make_engine(1, threads);
    Fed there(*engine);
    there.run(*engine, Job(), [&](FedTransfer& transfer, size_t queue) {
      for (size_t c = 0; c < Fed::kCopies; ++c) transfer.push(queue, there.copy(c));
      transfer.wait(queue);
      there.check();
      transfer.close(queue);
    });
  }
  for (const unsigned threads : {1, 4}) {
    const auto engine = make_engine(1, threads);
    Fed fed(*engine, Direction::to_host);
    fed.fill();
    fed.run(*engine, Job(), [&](FedTransfer& transfer, size_t queue) {
      transfer.wait(queue);  // for nothing
      for (size_t c = 0; c < Fed::kCopies; ++c) {
        transfer.push(queue, fed.copy_home(c));
        transfer.push(queue, {});
        if (c % 9) continue;
        transfer.wait(queue);
        fed.check_home(c + 1);
      }
      transfer.close(queue);
    });
    fed.check_home(Fed::kCopies);
  }
}

TEST(FedTransfers, DoNotLetWaitWhereTheyFail) {
  const auto engine = make_engine(1, 2);
  Fed fed(*engine);
  Job job;
  ErrorCode waited = ErrorCode::internal;
  const auto feed = [&](FedTransfer& transfer, size_t queue) {
    for (size_t c = 0; c < Fed::kCopies; ++c) {
      transfer.push(queue, fed.copy(c), [&, c](std::span<Event* const>) {
        if (c == 3) throw Error(ErrorCode::key_type, "no");
      });
    }
    waited = code_of([&] { transfer.wait(queue); });
    transfer.close(queue);
  };
  EXPECT_EQ(code_of([&] { fed.run(*engine, job, feed); }), ErrorCode::key_type);
  EXPECT_EQ(waited, ErrorCode::aborted);
}

TEST(FedTransfers, StopWhenACallbackFailsOrTheJobIsCancelled) {
  for (const unsigned threads : {1, 4}) {
    const auto engine = make_engine(1, threads);
    Fed fed(*engine);
    for (const bool cancels : {false, true}) {
      Job job;
      const auto feed = [&](FedTransfer& transfer, size_t queue) {
        for (size_t c = 0; c < Fed::kCopies; ++c) {
          transfer.push(queue, fed.copy(c), [&, c](std::span<Event* const>) {
            if (c != 3) return;
            if (!cancels) throw Error(ErrorCode::key_type, "no");
            job.cancel();
          });
        }
        transfer.close(queue);
      };
      EXPECT_EQ(code_of([&] { fed.run(*engine, job, feed); }), cancels ? ErrorCode::aborted : ErrorCode::key_type);
    }
    fed.run(*engine, Job(), [&](FedTransfer& transfer, size_t queue) {
      for (size_t c = 0; c < Fed::kCopies; ++c) transfer.push(queue, fed.copy(c));
      transfer.close(queue);
    });
    fed.check();
  }
}

// A callback that waits for the other queue's: the other one goes on meanwhile.
TEST(TransferCallbacks, HoldUpNoOtherQueue) {
  const auto engine = make_engine(2, 2);
  Plain plain(*engine, 10);
  std::promise<void> other_is_done;
  auto done = other_is_done.get_future();
  plain.queues[0].enqueued = [&](size_t copy, std::span<Event* const>) {
    if (copy == 0) EXPECT_EQ(done.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  };
  plain.queues[1].enqueued = [&](size_t copy, std::span<Event* const>) {
    if (copy == 9) other_is_done.set_value();
  };
  plain.run_and_check();
}

// Copies that wait for an event that comes late occupy one thread only.
TEST(TransferEvents, HoldUpNoOtherQueue) {
  for (const Direction direction : {Direction::to_device, Direction::to_host}) {
    const auto engine = make_engine(2, 3);
    Plain plain(*engine, 10);
    const auto late = engine->devices[0]->create_event();
    const auto stream = engine->devices[0]->create_stream();
    std::promise<void> other_is_done;
    static_cast<HostStream&>(*stream).enqueue(
        [&] { EXPECT_EQ(other_is_done.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready); });
    stream->record(*late);
    Bytes home(plain.source.size());
    HostQueue& waits = plain.queues[0];
    if (direction == Direction::to_host) {
      waits.direction = direction;
      for (HostCopy& copy : waits.copies) {
        void* from = copy.stretches[0].target;
        copy.stretches[0].target = home.data() + (static_cast<char*>(from) - plain.memory[0].as<char>());
        copy.stretches[0].source = from;
      }
    }
    waits.copies[0].after = late.get();
    plain.queues[1].enqueued = [&](size_t copy, std::span<Event* const>) {
      if (copy == 9) other_is_done.set_value();
    };
    write_device(*waits.device, plain.memory[0].data(), plain.source);
    transfer(*engine, plain.queues, Job());
    EXPECT_TRUE(read_device(*waits.device, plain.memory[0].data(), plain.source.size()) == plain.source);
    if (direction == Direction::to_host) EXPECT_TRUE(home == plain.source);
  }
}

// The first block of a copy holds the others back while it waits for an event, and only then.
TEST(TransferBlocks, OfQueuesThatAreAheadComeLast) {
  const auto engine = make_engine(1, 1);
  std::vector<HostQueue> queues(3, HostQueue{.device = engine->devices[0].get()});
  for (HostQueue& queue : queues) queue.copies = {{{{nullptr, nullptr, 64 * kBlock}}}};
  transferring::Survey survey(queues, kBlock);
  transferring::Schedule schedule;
  for (size_t q = 0; q < queues.size(); ++q) schedule.add(queues[q], survey.direct[q], false);
  schedule.begin(16, survey.buffer_bytes);
  const auto take = [&](size_t worker) { return *schedule.take(worker, false); };
  // All by one worker: of its own queue until that is ahead, and then of the others, too.
  std::vector<transferring::Block> taken;
  std::vector<uint64_t> under_way(queues.size());
  for (int i = 0; i < 18; ++i) {
    const transferring::Block& block = taken.emplace_back(take(1));
    if (i == 0) EXPECT_EQ(block.queue, 1u);
    under_way[block.queue] += block.bytes;
  }
  const uint64_t all = under_way[0] + under_way[1] + under_way[2];
  for (size_t q = 0; q < queues.size(); ++q) {
    EXPECT_GT(under_way[q], 0u) << q;
    EXPECT_LE(under_way[q] * queues.size(), 2 * all) << q;
  }
  for (const transferring::Block& block : taken) {
    if (block.queue == 1) schedule.completed(block, block.bytes);
  }
  EXPECT_EQ(take(1).queue, 1u);
}

TEST(TransferEvents, HoldBackWhatWouldWaitForThem) {
  const auto engine = make_engine(1, 1);
  Device& device = *engine->devices[0];
  const auto after = device.create_event();
  const auto stream = device.create_stream();
  for (const bool late : {false, true}) {
    std::promise<void> may_end;
    if (late) static_cast<HostStream&>(*stream).enqueue([&] { may_end.get_future().wait(); });
    stream->record(*after);
    if (!late) stream->synchronize();
    HostQueue queue{.device = &device};
    queue.copies = {{{{nullptr, nullptr, 16 * kBlock}}, after.get()}};
    Scheduled only(queue, kBlock);
    transferring::Schedule& schedule = only.schedule;
    const transferring::Block first = *schedule.take(0, false);
    EXPECT_EQ(first.opens, late);
    EXPECT_EQ(first.after, late ? after.get() : nullptr);
    EXPECT_EQ(schedule.take(1, false).has_value(), !late);
    may_end.set_value();
    stream->synchronize();
    schedule.arrived(first);
    EXPECT_TRUE(schedule.take(1, false));
  }
}

TEST(PinnedPool, IsKeptAndGrowsInFewSteps) {
  const auto engine = make_engine(1, 8);
  Device& device = *engine->devices[0];
  const FarPinning& pinning = far(device).pinning();
  for (size_t count = 0; count <= 16; count += 2) {
    const auto loan = engine->pinned.lend(count, kBlock, device);
    EXPECT_EQ(loan.count(), count);
    EXPECT_EQ(loan.buffer_bytes(), kBlock);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(device.copies_directly(loan[i]) && device.copies_directly(loan[i] + kBlock - 1));
      for (size_t other = 0; other < i; ++other) EXPECT_GE(std::abs(loan[i] - loan[other]), static_cast<long>(kBlock));
    }
  }
  EXPECT_EQ(pinning.ranges(), 4u);  // 2, 4, 8 and 16 buffers
  EXPECT_EQ(engine->pinned.held_bytes(), 16 * kBlock);
  char* const first = engine->pinned.lend(2, kBlock, device)[0];
  EXPECT_EQ(engine->pinned.lend(16, kBlock, device)[0], first);
}

TEST(PinnedPool, IsCutAnewForBuffersOfAnotherSize) {
  const auto engine = make_engine(1, 1);
  Device& device = *engine->devices[0];
  const FarPinning& pinning = far(device).pinning();
  const auto check = [&](size_t count, size_t bytes, size_t ranges, size_t held) {
    const auto loan = engine->pinned.lend(count, bytes, device);
    ASSERT_EQ(loan.count(), count);
    EXPECT_EQ(loan.buffer_bytes(), bytes);
    EXPECT_EQ(pinning.ranges(), ranges);
    EXPECT_EQ(engine->pinned.held_bytes(), held);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(device.copies_directly(loan[i]) && device.copies_directly(loan[i] + bytes - 1));
      for (size_t other = 0; other < i; ++other) EXPECT_GE(std::abs(loan[i] - loan[other]), static_cast<long>(bytes));
    }
  };
  check(2, 1024, 1, 2 * 1024);
  check(8, 1024, 2, 8 * 1024);
  check(2, 4096, 2, 6 * 1024 + 4096);  // 2 KiB are too small and given back, 6 KiB are one buffer
  check(10, 1024, 2, 10 * 1024);
  check(4, 2048, 2, 10 * 1024);
  check(2, kBlock, 1, 2 * kBlock);
}

TEST(PinnedPool, WaitsForTheLoanBefore) {
  const auto engine = make_engine(1, 2);
  std::atomic<bool> returned = false;
  std::thread second;
  {
    const auto loan = engine->pinned.lend(2, kBlock, *engine->devices[0]);
    second = std::thread([&] {
      const auto next = engine->pinned.lend(2, kBlock, *engine->devices[0]);
      EXPECT_TRUE(returned);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    returned = true;
  }
  second.join();
}

TEST(PinnedPool, GivesWayToOtherMemory) {
  const auto engine = make_engine(1, 8, false, size_t{1} << 20);
  Plain plain(*engine, 4);
  plain.run_and_check();
  EXPECT_GT(engine->pinned.held_bytes(), 0u);
  EXPECT_EQ(engine->memory->used_bytes(), engine->pinned.held_bytes());
  {
    const auto loan = engine->pinned.lend(2, kBlock, *engine->devices[0]);
    EXPECT_THROW(engine->memory->allocate(size_t{1} << 20, "a test"), Error);
  }
  {
    const HostBuffer all = engine->memory->allocate(size_t{1} << 20, "a test");
    EXPECT_EQ(engine->pinned.held_bytes(), 0u);
    EXPECT_EQ(far(*engine->devices[0]).pinning().ranges(), 0u);
    try {
      transfer(*engine, plain.queues, Job());
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::memory_limit);
      EXPECT_STREQ(error.what(), "16 KiB for pinned transfer buffers do not fit the memory limit of 1 MiB (1 MiB in use)");
    }
  }
  plain.run_and_check();
}

TEST(PinnedPool, IsSmallerWhereTheLimitLeavesLittle) {
  constexpr size_t limit = size_t{4} << 20;
  for (const size_t block : {size_t{64} << 10, size_t{1} << 20}) {
    for (const size_t left : {size_t{128} << 10, size_t{200} << 10, size_t{900} << 10, size_t{3} << 20}) {
      const auto engine = make_far_engine({.threads = 4,
                                           .host_devices = 2,
                                           .memory_limit_bytes = limit,
                                           .device_memory_limit_bytes = size_t{32} << 20,
                                           .transfer_block_bytes = block});
      const HostBuffer taken = engine->memory->allocate(limit - left, "a test");
      Plain plain(*engine, 20);
      const size_t free = engine->memory->free_bytes();  // large blocks are whole huge pages
      if (free < 2 * PinnedPool::kLeastBufferBytes) {
        EXPECT_THROW(transfer(*engine, plain.queues, Job()), Error);
        continue;
      }
      plain.run_and_check();
      EXPECT_LE(engine->pinned.held_bytes(), std::max(free / 2, 2 * PinnedPool::kLeastBufferBytes)) << block << " " << left;
    }
  }
}

TEST(PinnedPool, UnpinsWithTheEngine) {
  const auto memory = [] {
    const auto engine = make_engine(2, 4);
    Plain plain(*engine, 4);
    plain.run_and_check();
    return engine->memory;
  }();
  EXPECT_EQ(memory->used_bytes(), 0u);
  EXPECT_NO_THROW(memory->allocate(memory->limit_bytes(), "a test"));
}

}  // namespace
}  // namespace warpjoin
