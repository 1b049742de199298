// Transfers on real GPUs, from ordinary and from pinned memory.
#include <atomic>

#include "gpu_engine.h"
#include "transfer_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

constexpr size_t kReserved = size_t{256} << 20, kBusy = size_t{64} << 20;

std::unique_ptr<Engine> make_engine(int gpus, unsigned threads, size_t block) {
  std::vector<int> ordinals(static_cast<size_t>(gpus));
  std::iota(ordinals.begin(), ordinals.end(), 0);
  auto engine = std::make_unique<Engine>(EngineConfig{.threads = threads,
                                                      .host_devices = 0,
                                                      .gpus = ordinals,
                                                      .memory_limit_bytes = size_t{8} << 30,
                                                      .device_memory_limit_bytes = size_t{2} << 30,
                                                      .transfer_block_bytes = block});
  for (const auto& device : engine->devices) device->memory().reserve(kReserved);
  return engine;
}

class GpuTransfer : public ::testing::TestWithParam<std::tuple<int, unsigned>> {};

TEST_P(GpuTransfer, MovesRandomStretches) {
  const auto [gpus, threads] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  const auto engine = make_engine(gpus, threads, size_t{64} << 10);
  uint64_t seed = 1;
  for (const std::vector<Direction>& directions :
       {std::vector{Direction::to_device}, {Direction::to_host}, {Direction::to_device, Direction::to_host}}) {
    for (const size_t depth : {1, 2, 3, 100}) {
      check_random_transfer(*engine, static_cast<size_t>(gpus) * directions.size(), directions, 20, depth, seed += 20);
    }
  }
}

TEST_P(GpuTransfer, OverwritesNothingBeforeItIsConsumed) {
  const auto [gpus, threads] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  const auto engine = make_engine(gpus, threads, size_t{256} << 10);
  std::vector<Buffer> busy;
  for (const auto& device : engine->devices) busy.push_back(device->memory().allocate(kBusy));
  const auto slow_down = [&](Device& device, Stream& stream) {
    void* data = busy[static_cast<size_t>(device.info().ordinal)].data();
    for (unsigned char i = 0; i < 20; ++i) device.fill(data, i, kBusy, stream);
  };
  for (const HostKind kind : {HostKind::ordinary, HostKind::pinned, HostKind::half, HostKind::mixed}) {
    for (const size_t depth : {1, 2, 3}) {
      for (const size_t bytes : {size_t{100'000}, size_t{3'000'001}}) {
        check_consumers(*engine, depth, 20, bytes, kind, slow_down);
        check_producers(*engine, depth, 20, bytes, kind, slow_down);
        check_round_trips(*engine, depth, 20, bytes, kind, slow_down);
      }
    }
  }
}

// Small enough for compute-sanitizer.
TEST_P(GpuTransfer, MovesALittleForTheSanitizers) {
  const auto [gpus, threads] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  const auto engine = make_engine(gpus, threads, size_t{4} << 10);
  check_random_transfer(*engine, static_cast<size_t>(gpus) * 2, {Direction::to_device, Direction::to_host}, 5, 2, 9);
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuTransfer, ::testing::Combine(::testing::Values(1, 2, 4, 8), ::testing::Values(1u, 2u, 16u)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "Gpus" + std::to_string(std::get<1>(info.param)) +
                                  "Threads";
                         });

TEST(GpuPinning, TellsPinnedFromOrdinaryMemory) {
  SKIP_WITHOUT_GPUS(1);
  const int gpus = static_cast<int>(visible_gpus().size());
  const auto engine = make_engine(gpus, 2, size_t{1} << 20);
  constexpr size_t bytes = size_t{3} << 20;
  const HostBuffer buffer = engine->memory->allocate(bytes, "a test");
  engine->devices.back()->pin(buffer.data(), bytes);
  for (const auto& device : engine->devices) {
    EXPECT_TRUE(device->copies_directly(buffer.data()) && device->copies_directly(buffer.as<char>() + bytes - 1));
  }
  engine->devices.back()->unpin(buffer.data());
  for (const auto& device : engine->devices) EXPECT_FALSE(device->copies_directly(buffer.data()));
}

TEST(GpuEvents, AreDoneWithTheWorkBeforeThem) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine(1, 1, size_t{1} << 20);
  Device& device = *engine->devices[0];
  const auto stream = device.create_stream();
  const auto event = device.create_event();
  EXPECT_TRUE(event->done());
  const Buffer filled = device.memory().allocate(kReserved);
  bool under_way = false;
  for (int turn = 0; turn < 100 && !under_way; ++turn) {  // this thread may be held up for longer than the work takes
    for (int i = 0; i < 100; ++i) device.fill(filled.data(), 0xA5, kReserved, *stream);
    stream->record(*event);
    under_way = !event->done();
    event->synchronize();
    EXPECT_TRUE(event->done());
  }
  EXPECT_TRUE(under_way);
}

TEST(GpuTransferErrors, LeaveTheRingUsable) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine(1, 4, size_t{64} << 10);
  Device& device = *engine->devices[0];
  for (const bool pinned : {false, true}) {
    constexpr size_t copies = 50, bytes = 1'000'000;
    const Bytes sent = random_bytes(copies * bytes, 3);
    const HostArray host(*engine, device, sent.size(), pinned ? sent.size() : 0);
    host.write(sent);
    const Buffer memory = device.memory().allocate(sent.size());
    std::vector<HostQueue> queues(1);
    queues[0].device = &device;
    for (size_t c = 0; c < copies; ++c) {
      queues[0].copies.push_back({{{memory.as<char>() + c * bytes, host.data() + c * bytes, bytes}}});
    }
    queues[0].enqueued = [](size_t copy, std::span<Event* const>) {
      if (copy == 3) throw Error(ErrorCode::key_type, "no");
    };
    EXPECT_THROW(transfer(*engine, queues, Job()), Error);
    Job job;
    queues[0].enqueued = [&](size_t copy, std::span<Event* const>) {
      if (copy == 3) job.cancel();
    };
    EXPECT_THROW(transfer(*engine, queues, job), Error);
    queues[0].enqueued = nullptr;
    write_device(device, memory.data(), Bytes(sent.size(), 0xA5));
    transfer(*engine, queues, Job());
    EXPECT_TRUE(read_device(device, memory.data(), sent.size()) == sent);
  }
}

// All threads of the host, and blocks of the usual size.
TEST(GpuTransferOfGigabytes, ComesBackAsItWent) {
  SKIP_WITHOUT_GPUS(1);
  const size_t gpus = visible_gpus().size();
  const auto engine = make_engine(static_cast<int>(gpus), 0, 0);
  constexpr size_t bytes = (size_t{200} << 20) + 12345;
  const Bytes sent = random_bytes(gpus * bytes, 5);
  Bytes back(sent.size());
  std::vector<Buffer> memory;
  std::vector<HostQueue> there, home;
  for (size_t d = 0; d < gpus; ++d) {
    Device& device = *engine->devices[d];
    memory.push_back(device.memory().allocate(bytes));
    HostQueue& to = there.emplace_back();
    HostQueue& from = home.emplace_back();
    to.device = from.device = &device;
    from.direction = Direction::to_host;
    to.copies = {{{{memory[d].data(), sent.data() + d * bytes, bytes}}}};
    from.copies = {{{{back.data() + d * bytes, memory[d].data(), bytes}}}};
  }
  transfer(*engine, there, Job());
  transfer(*engine, home, Job());
  EXPECT_TRUE(back == sent);
}

}  // namespace
}  // namespace warpjoin
