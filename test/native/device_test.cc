#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "core/error.h"
#include "device/host_device.h"
#include "engine/engine.h"

namespace warpjoin {
namespace {

Engine make_engine(int devices, HostStreams streams = HostStreams::at_once) {
  return Engine({.threads = 2, .host_devices = devices, .host_streams = streams, .memory_limit_bytes = size_t{1} << 30});
}

class HostStreamOf : public ::testing::TestWithParam<HostStreams> {};

TEST_P(HostStreamOf, RunsWorkInOrderAndEventsOrderStreams) {
  Engine engine = make_engine(2, GetParam());
  Device& first = *engine.devices[0];
  Device& second = *engine.devices[1];
  std::vector<uint32_t> in(100000), out(in.size());
  std::iota(in.begin(), in.end(), 7u);
  Buffer a = first.memory().allocate(in.size() * 4), b = second.memory().allocate(in.size() * 4);
  const auto s = first.create_stream(), t = second.create_stream();
  const auto sent = first.create_event();
  first.copy(a.data(), in.data(), in.size() * 4, *s);
  first.copy_to_peer(b.data(), second, a.data(), in.size() * 4, *s);
  s->record(*sent);
  t->wait(*sent);
  second.copy(out.data(), b.data(), out.size() * 4, *t);
  t->synchronize();
  EXPECT_EQ(in, out);
}

TEST(HostStream, HasAnEventDoneWithTheWorkBeforeIt) {
  Engine engine = make_engine(1, HostStreams::with_threads);
  const auto stream = engine.devices[0]->create_stream();
  const auto event = engine.devices[0]->create_event();
  EXPECT_TRUE(event->done());
  std::promise<void> may_end;
  static_cast<HostStream&>(*stream).enqueue([&] { may_end.get_future().wait(); });
  stream->record(*event);
  EXPECT_FALSE(event->done());
  may_end.set_value();
  event->synchronize();
  EXPECT_TRUE(event->done());
}

// What waits for a recording never stands before it in its own stream.
TEST_P(HostStreamOf, IsRecordedWhileAnotherThreadWaitsForThatOnIt) {
  Engine engine = make_engine(1, GetParam());
  Device& device = *engine.devices[0];
  const auto stream = device.create_stream(), other = device.create_stream();
  const auto recorded = device.create_event(), behind = device.create_event();
  std::atomic<bool> ended = false;
  std::thread recorder([&] {
    while (!ended) {
      for (int i = 0; i < 100; ++i) stream->record(*recorded);
      recorded->synchronize();
    }
  });
  for (int i = 0; i < 20000; ++i) {
    other->wait(*recorded);
    other->record(*behind);
    stream->wait(*behind);
    behind->synchronize();
  }
  ended = true;
  recorder.join();
}

// As an event of a GPU may: what fails leaves streams behind that wait for it.
TEST(HostStream, WaitsForEventsThatAreGone) {
  Engine engine = make_engine(1, HostStreams::with_threads);
  Device& device = *engine.devices[0];
  for (int round = 0; round < 200; ++round) {
    const auto stream = device.create_stream(), other = device.create_stream();
    std::promise<void> may_end;
    auto event = device.create_event();
    static_cast<HostStream&>(*stream).enqueue([ends = may_end.get_future().share()] { ends.wait(); });
    stream->record(*event);
    other->wait(*event);
    event.reset();
    may_end.set_value();
    other->synchronize();
  }
}

TEST_P(HostStreamOf, ThrowsAnErrorOnceAndWorksOn) {
  Engine engine = make_engine(1, GetParam());
  const auto stream = engine.devices[0]->create_stream();
  bool skipped = true;
  static_cast<HostStream&>(*stream).enqueue([] { throw Error(ErrorCode::internal, "no"); });
  static_cast<HostStream&>(*stream).enqueue([&] { skipped = false; });
  EXPECT_THROW(stream->synchronize(), Error);
  EXPECT_TRUE(skipped);
  static_cast<HostStream&>(*stream).enqueue([&] { skipped = false; });
  stream->synchronize();
  EXPECT_FALSE(skipped);
}

TEST_P(HostStreamOf, HasNoErrorOfAnother) {
  Engine engine = make_engine(1, GetParam());
  Device& device = *engine.devices[0];
  const auto run = [](Stream& stream, std::function<void()> work) { static_cast<HostStream&>(stream).enqueue(std::move(work)); };
  std::thread::id first, other;
  bool skipped = true, finished = false;
  {
    const auto failing = device.create_stream(), working = device.create_stream();
    run(*failing, [&] { first = std::this_thread::get_id(); });
    run(*failing, [] { throw Error(ErrorCode::internal, "nobody asks"); });
    run(*failing, [&] { skipped = false; });
    run(*working, [&] { other = std::this_thread::get_id(); });
    run(*working, [&] { finished = true; });
    working->synchronize();
    if (GetParam() == HostStreams::with_threads) EXPECT_THROW(failing->synchronize(), Error);
  }
  EXPECT_TRUE(skipped && finished);
  const std::thread::id own = std::this_thread::get_id();
  EXPECT_EQ(first == own && other == own, GetParam() == HostStreams::at_once);
  EXPECT_EQ(first == other, GetParam() == HostStreams::at_once);
}

INSTANTIATE_TEST_SUITE_P(AtOnceAndWithThreads, HostStreamOf, ::testing::Values(HostStreams::at_once, HostStreams::with_threads));

TEST(StackAllocator, ClosesHolesOnceTheTopIsFreed) {
  Engine engine = make_engine(1);
  StackAllocator& memory = engine.devices[0]->memory();
  memory.reserve(1024);
  Buffer a = memory.allocate(100), b = memory.allocate(100), c = memory.allocate(100);
  EXPECT_EQ(memory.used_bytes(), 384u);
  b = Buffer();
  EXPECT_EQ(memory.used_bytes(), 384u);
  c = Buffer();
  EXPECT_EQ(memory.used_bytes(), 128u);
  a = Buffer();
  EXPECT_EQ(memory.used_bytes(), 0u);
}

TEST(StackAllocator, NamesTheDeviceAndItsLimit) {
  Engine engine({.threads = 1, .host_devices = 1, .memory_limit_bytes = size_t{1} << 30, .device_memory_limit_bytes = 1 << 20});
  try {
    engine.devices[0]->memory().reserve(2 << 20);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_memory);
    EXPECT_STREQ(error.what(), "2 MiB do not fit the memory limit of device 'host 0' (1 MiB)");
  }
}

/// Two kinds of devices: those that keep what is freed, and those that don't.
class ResidentMemory : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kLimit = size_t{64} << 20;
  static constexpr size_t kMiB = size_t{1} << 20;

  std::unique_ptr<StackAllocator> make() {
    return std::make_unique<StackAllocator>("d", kLimit,
                                            StackAllocator::Physical{[this](size_t bytes) -> void* {
                                                                       if (bytes > free_) return nullptr;
                                                                       ++allocations_;
                                                                       free_ -= bytes;
                                                                       return std::aligned_alloc(128, bytes);
                                                                     },
                                                                     [this](void* data, size_t bytes) {
                                                                       free_ += bytes;
                                                                       std::free(data);
                                                                     },
                                                                     [this] { return free_; }, GetParam()});
  }

  size_t free_ = size_t{1} << 30;
  int allocations_ = 0;
};

TEST_P(ResidentMemory, LiesBesideTheStackWithinOneLimit) {
  const auto memory = make();
  memory->reserve(30 * kMiB);
  Buffer scratch = memory->allocate(30 * kMiB);
  Buffer stays = memory->allocate_resident(20 * kMiB);
  EXPECT_EQ(memory->resident_bytes(), 20 * kMiB);
  EXPECT_EQ(memory->used_bytes(), 30 * kMiB);
  EXPECT_THROW(memory->allocate_resident(20 * kMiB), Error);
  scratch = Buffer();
  try {
    memory->reserve(50 * kMiB);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "50 MiB do not fit the memory limit of device 'd' (64 MiB, 20 MiB of it resident)");
  }
  memory->reserve(44 * kMiB);
  EXPECT_NO_THROW(memory->allocate(44 * kMiB));
  EXPECT_EQ(memory->peak_bytes(), 64 * kMiB);
  stays = Buffer();
  EXPECT_EQ(memory->resident_bytes(), 0u);
  memory->release();
  EXPECT_EQ(free_, size_t{1} << 30);
}

TEST_P(ResidentMemory, HasTheRoomThatTheStackLeavesForIt) {
  const auto memory = make();
  memory->reserve(60 * kMiB);
  memory->reserve(33 * kMiB, 30 * kMiB);  // by itself it would keep all, or take 37 MiB
  const Buffer scratch = memory->allocate(33 * kMiB);
  EXPECT_NO_THROW(static_cast<void>(memory->allocate_resident(30 * kMiB)));
  memory->reserve(20 * kMiB, 60 * kMiB);  // in use: it stays
  EXPECT_EQ(memory->used_bytes(), 33 * kMiB);
}

TEST_P(ResidentMemory, TakesTheRoomOfTheIdleStackAndGivesItsOwn) {
  const auto memory = make();
  { const Buffer scratch = memory->allocate(40 * kMiB); }
  Buffer stays = memory->allocate_resident(60 * kMiB);
  EXPECT_EQ(memory->reserved_bytes(), 0u);
  stays = Buffer();
  EXPECT_NO_THROW(memory->allocate(60 * kMiB));
}

TEST_P(ResidentMemory, IsUsedAgainWhereAllocationsAreSlow) {
  const auto memory = make();
  { const Buffer first = memory->allocate_resident(20 * kMiB), second = memory->allocate_resident(5 * kMiB); }
  const int before = allocations_;
  { const Buffer again = memory->allocate_resident(20 * kMiB - 1), other = memory->allocate_resident(5 * kMiB); }
  EXPECT_EQ(allocations_ - before, GetParam() ? 0 : 2);
}

TEST_P(ResidentMemory, SaysWhatOthersHaveLeft) {
  const auto memory = make();
  memory->leave_free(10 * kMiB);
  const Buffer stays = memory->allocate_resident(4 * kMiB);
  try {
    memory->allocate_resident(8 * kMiB);
    FAIL();
  } catch (const DeviceMemoryShortage& error) {
    EXPECT_EQ(error.free_bytes(), 6 * kMiB);
  }
  EXPECT_THROW(memory->reserve(8 * kMiB), DeviceMemoryShortage);
  memory->leave_free(SIZE_MAX);
  memory->fail_allocation(1);
  EXPECT_THROW(memory->allocate_resident(1), Error);
  EXPECT_NO_THROW(memory->allocate_resident(1));
}

INSTANTIATE_TEST_SUITE_P(StackAllocator, ResidentMemory, ::testing::Bool());

TEST(HostMemory, IsHardLimitedAndGivesBack) {
  const auto memory = HostMemory::create(10 << 20);
  HostBuffer a = memory->allocate(6 << 20, "a test");
  EXPECT_THROW(memory->allocate(6 << 20, "a test"), Error);
  a = HostBuffer();
  EXPECT_EQ(memory->used_bytes(), 0u);
  EXPECT_NO_THROW(memory->allocate(10 << 20, "a test"));
  memory->fail_allocation(2);
  EXPECT_NO_THROW(memory->allocate(1, "a test"));
  EXPECT_THROW(memory->allocate(1, "a test"), Error);
  EXPECT_NO_THROW(memory->allocate(1, "a test"));
}

TEST(HostMemory, GrowsBuffersWithinItsLimit) {
  const auto memory = HostMemory::create(16 << 20);
  HostBuffer buffer = memory->allocate(100, "a test");
  std::memset(buffer.data(), 7, 100);
  size_t written = 100;
  for (const size_t size : {200, 1 << 20, 3 << 20, 4 << 20, 11 << 20}) {
    buffer.grow(size, "a test");
    ASSERT_EQ(buffer.size(), size);
    EXPECT_GE(memory->used_bytes(), size);
    EXPECT_LT(memory->used_bytes(), size + (2 << 20));
    const auto* bytes = buffer.as<unsigned char>();
    EXPECT_TRUE(std::all_of(bytes, bytes + written, [](unsigned char byte) { return byte == 7; }));
    std::memset(buffer.data(), 7, size);
    written = size;
  }
  const size_t used = memory->used_bytes();
  buffer.grow(1, "a test");
  EXPECT_EQ(buffer.size(), written);
  EXPECT_THROW(buffer.grow(17 << 20, "a test"), Error);
  memory->fail_allocation(1);
  EXPECT_THROW(buffer.grow(13 << 20, "a test"), Error);
  EXPECT_EQ(buffer.size(), written);
  EXPECT_EQ(memory->used_bytes(), used);
  EXPECT_EQ(buffer.as<unsigned char>()[written - 1], 7);
  buffer = HostBuffer();
  EXPECT_EQ(memory->used_bytes(), 0u);
  EXPECT_NO_THROW(memory->allocate(16 << 20, "a test"));
}

TEST(HostMemory, GrowsWhereABufferIsWhileItsBlockLasts) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto memory = HostMemory::create(30 * kMiB);
  memory->allocate(12 * kMiB, "a test");
  HostBuffer buffer = memory->allocate(10 * kMiB, "a test");
  const void* const address = buffer.data();
  std::memset(buffer.data(), 7, buffer.size());
  EXPECT_TRUE(buffer.grow_here(9 * kMiB)) << "less than it has";
  EXPECT_EQ(buffer.size(), 10 * kMiB);
  EXPECT_FALSE(buffer.grow_here(12 * kMiB + 1));
  EXPECT_EQ(buffer.size(), 10 * kMiB);
  EXPECT_TRUE(buffer.grow_here(12 * kMiB - 1));
  EXPECT_EQ(buffer.size(), 12 * kMiB - 1);
  EXPECT_EQ(buffer.data(), address);
  EXPECT_EQ(memory->used_bytes(), 12 * kMiB);
  EXPECT_TRUE(buffer.grow_here(12 * kMiB));
  std::memset(buffer.data(), 8, buffer.size());
  buffer = HostBuffer();
  EXPECT_EQ(memory->used_bytes(), 0u);
  buffer = memory->allocate(10 * kMiB, "a test");
  const HostBuffer rest = memory->allocate(19 * kMiB, "a test");
  EXPECT_FALSE(buffer.grow_here(12 * kMiB)) << "the limit is in the way";
  EXPECT_EQ(memory->used_bytes(), 30 * kMiB);
}

TEST(HostMemory, GivesSmallBlocksBackToWhereTheyCameFrom) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto memory = HostMemory::create(30 * kMiB);
  memory->allocate(2 * kMiB, "a test");
  HostBuffer small = memory->allocate(kMiB, "a test");
  memory->allocate(2 * kMiB, "a test");  // for which a surplus would be given back
  memory->close();
  small = HostBuffer();
  EXPECT_EQ(memory->used_bytes(), 0u);
}

TEST(HostMemory, KeepsBlocksThatItMaps) {
  constexpr size_t kKiB = size_t{1} << 10, kMiB = size_t{1} << 20;
  const auto memory = HostMemory::create(30 * kMiB, 256 * kKiB);
  const auto fill = [](const HostBuffer& buffer, int byte) { std::memset(buffer.data(), byte, buffer.size()); };
  HostBuffer buffer = memory->allocate(960 * kKiB + 64, "a test");
  fill(buffer, 7);
  EXPECT_EQ(memory->used_bytes(), 964 * kKiB);
  buffer.shrink(960 * kKiB);
  EXPECT_EQ(memory->used_bytes(), 964 * kKiB) << "gave up a page that the next one needs";
  buffer = HostBuffer();
  buffer = memory->allocate(960 * kKiB + 64, "a test");
  EXPECT_EQ(buffer.as<unsigned char>()[0], 7) << "touched fresh pages";
  buffer.shrink(500 * kKiB);
  EXPECT_EQ(memory->used_bytes(), 500 * kKiB);
  fill(buffer, 8);
  for (const size_t size : {600 * kKiB, kMiB, 3 * kMiB, 5 * kMiB}) {
    buffer.grow(size, "a test");
    EXPECT_EQ(buffer.as<unsigned char>()[500 * kKiB - 1], 8);
    fill(buffer, 8);
  }
  buffer = HostBuffer();  // larger than a huge page
  HostBuffer small = memory->allocate(100 * kKiB, "a test"), middle = memory->allocate(2 * kMiB - 1, "a test");
  fill(small, 1);
  fill(middle, 1);
  small.grow(300 * kKiB, "a test");  // from malloc's memory to pages
  EXPECT_EQ(small.as<unsigned char>()[100 * kKiB - 1], 1);
  EXPECT_EQ(memory->used_bytes(), 300 * kKiB + 2 * kMiB);
  memory->trim();
  small = HostBuffer();
  memory->close();
  middle = HostBuffer();
  EXPECT_EQ(memory->used_bytes(), 0u);
  trim_malloc();
}

TEST(HostMemory, CountsWhatIsReserved) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto memory = HostMemory::create(10 * kMiB);
  memory->allocate(8 * kMiB, "a test");  // is kept
  std::optional<HostReservation> reservation = memory->reserve(6 * kMiB, "a test");
  EXPECT_EQ(memory->used_bytes(), 6 * kMiB);
  EXPECT_THROW(memory->allocate(5 * kMiB, "a test"), Error);
  EXPECT_THROW(memory->reserve(5 * kMiB, "a test"), Error);
  const HostBuffer rest = memory->allocate(4 * kMiB, "a test");
  HostReservation moved = std::move(*reservation);
  reservation.reset();
  EXPECT_EQ(memory->used_bytes(), 10 * kMiB);
  reservation.emplace(std::move(moved));
  reservation.reset();
  EXPECT_EQ(memory->used_bytes(), 4 * kMiB);
}

TEST(HostMemory, KeepsWhatCallsHaveNeededLately) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto memory = HostMemory::create(64 * kMiB);
  const auto call = [&](size_t size, int fill) {
    memory->reset_peak();
    const HostBuffer buffer = memory->allocate(size, "a test");
    const int found = buffer.as<unsigned char>()[0];
    std::memset(buffer.data(), fill, size);
    return found;
  };
  call(20 * kMiB, 7);
  for (int calls = 0; calls < 3; calls++) call(1 << 10, 8);
  EXPECT_EQ(call(16 * kMiB, 7), 7) << "touched fresh pages, though a call of late had touched them";
  for (int calls = 0; calls < 1000; calls++) call(1 << 10, 8);
  EXPECT_EQ(call(16 * kMiB, 7), 0) << "kept what no call has needed for long";
}

TEST(HostMemory, CountsReusedBlocksForWhatIsAskedFor) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto memory = HostMemory::create(30 * kMiB);
  const auto reuse = [&](size_t kept, size_t size) {
    memory->allocate(kept, "a test");
    HostBuffer buffer = memory->allocate(size, "a test");
    EXPECT_EQ(memory->used_bytes(), size);
    std::memset(buffer.data(), 7, size);
    return buffer;
  };
  {
    const HostBuffer first = reuse(12 * kMiB, 10 * kMiB);
    // What the block has more is given back for it.
    const HostBuffer rest = memory->allocate(20 * kMiB, "a test");
    std::memset(rest.data(), 8, rest.size());
    EXPECT_EQ(first.as<unsigned char>()[first.size() - 1], 7);
    EXPECT_THROW(memory->allocate(1, "a test"), Error);
  }
  memory->trim();
  HostBuffer block = reuse(16 * kMiB, 4 * kMiB);
  EXPECT_TRUE(block.grow_here(16 * kMiB)) << "a fourth of a block";
  block = HostBuffer();
  memory->trim();
  block = reuse(18 * kMiB, 4 * kMiB);
  EXPECT_FALSE(block.grow_here(6 * kMiB)) << "less than a fourth";
  block = HostBuffer();
  memory->trim();
  block = reuse(12 * kMiB, 10 * kMiB);
  const void* const address = block.data();
  block = HostBuffer();
  block = memory->allocate(12 * kMiB, "a test");
  EXPECT_EQ(block.data(), address) << "the surplus came back with its block";
  block = HostBuffer();
  memory->trim();
  for (const size_t grown : {11 * kMiB, 12 * kMiB, 14 * kMiB}) {
    block = reuse(12 * kMiB, 10 * kMiB);
    const void* const before = block.data();
    block.grow(grown, "a test");
    if (grown <= 12 * kMiB) EXPECT_EQ(block.data(), before) << "a block grows into its surplus where it is";
    const size_t whole = (grown + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
    EXPECT_EQ(memory->used_bytes(), whole);
    EXPECT_EQ(block.as<unsigned char>()[10 * kMiB - 1], 7);
    std::memset(block.data(), 9, grown);
    block = HostBuffer();
    EXPECT_EQ(memory->used_bytes(), 0u);
    memory->trim();
  }
  block = reuse(12 * kMiB, 10 * kMiB);
  block.shrink(4 * kMiB);
  EXPECT_EQ(memory->used_bytes(), 4 * kMiB);
  block = HostBuffer();
  EXPECT_EQ(memory->used_bytes(), 0u);
  EXPECT_NO_THROW(memory->allocate(30 * kMiB, "a test"));
}

}  // namespace
}  // namespace warpjoin
