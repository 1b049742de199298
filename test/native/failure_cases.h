// Operators that fail: the same on host devices and on GPUs.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "engine/engine.h"

namespace warpjoin::testing {

inline std::vector<int> first_devices(int count) {
  std::vector<int> ordinals(static_cast<size_t>(count));
  std::iota(ordinals.begin(), ordinals.end(), 0);
  return ordinals;
}

/// A call, checked by itself, that leaves nothing behind, and what there was before it.
class RepeatedCall {
 public:
  RepeatedCall(Engine& engine, std::function<void(Job&)> call) : engine_(engine), call_(std::move(call)) {
    held_ = engine.memory->used_bytes() - engine.pinned.held_bytes();
    Job job;
    run(job);  // from here on the drivers have what they keep
    for (const auto& device : engine.devices) {
      device->memory().release();
      free_.push_back(device->memory().free_bytes());
    }
  }

  void run(Job& job) const { call_(job); }
  /// Whether it ran to its end; expects an error of this code where it did not, and everything to be free again.
  bool survives(ErrorCode code, Job& job) const {
    bool ended = true;
    try {
      run(job);
    } catch (const Error& error) {
      ended = false;
      EXPECT_EQ(error.code(), code) << error.what();
    }
    expect_released();
    return ended;
  }

 private:
  /// Nothing but the pinned ring has been added to host memory, nothing is in use on the devices, and each has as much
  /// physical memory left as before, but for some that its driver keeps.
  void expect_released() const {
    constexpr size_t kKeptByDriver = size_t{32} << 20;
    for (size_t d = 0; d < free_.size(); ++d) {
      StackAllocator& memory = engine_.devices[d]->memory();
      ASSERT_EQ(memory.used_bytes() + memory.resident_bytes(), 0u);
      memory.release();
      ASSERT_GE(memory.free_bytes() + kKeptByDriver, free_[d]);
    }
    ASSERT_EQ(engine_.memory->used_bytes(), held_ + engine_.pinned.held_bytes());
  }

  Engine& engine_;
  std::function<void(Job&)> call_;
  size_t held_ = 0;
  std::vector<size_t> free_;
};

/// Calls `fails` with 1, 2 and so on, for something to fail at its n-th time, until that returns that nothing did; returns how
/// often it has failed. Past the first few it takes random steps that grow: what comes late in a call are the same copies and
/// buffers again, for one device or part after another, and other calls take other steps.
inline uint64_t fail_each(uint64_t seed, const std::function<bool(uint64_t n)>& fails) {
  constexpr uint64_t kOneByOne = 8;
  std::mt19937_64 random(seed);
  uint64_t failures = 0;
  for (uint64_t n = 1; !::testing::Test::HasFatalFailure() && fails(n); n += n < kOneByOne ? 1 : 1 + random() % (n / 2)) {
    ++failures;
  }
  return failures;
}

/// Lets allocations fail, in host memory and on the first and the last device; there are at least `least`.
inline void check_failed_allocations(Engine& engine, int devices, const RepeatedCall& call, uint64_t least = 3) {
  for (const int pool : std::set{-1, 0, devices - 1}) {  // -1: host memory
    SCOPED_TRACE(pool);
    const auto fail = [&](uint64_t n) {
      pool < 0 ? engine.memory->fail_allocation(n) : engine.devices[static_cast<size_t>(pool)]->memory().fail_allocation(n);
    };
    const uint64_t failures = fail_each(static_cast<uint64_t>(8 * devices + pool), [&](uint64_t n) {
      fail(n);
      Job job;
      const bool failed = !call.survives(pool < 0 ? ErrorCode::memory_limit : ErrorCode::device_memory, job);
      fail(0);
      return failed;
    });
    EXPECT_GE(failures, least);
  }
  Job job;
  call.run(job);
}

/// Lets copies of a far device fail, at once or when its stream gets there; there are at least `least`.
template <class Device>
void check_failed_copies(Device& device, const RepeatedCall& call, uint64_t least) {
  for (const bool at_once : {false, true}) {
    const uint64_t failures = fail_each(static_cast<uint64_t>(2 * device.info().ordinal + at_once), [&](uint64_t n) {
      device.fail_copy(static_cast<int64_t>(n), at_once);
      Job job;
      return !call.survives(ErrorCode::device, job);
    });
    EXPECT_GE(failures, least);
  }
  device.fail_copy(0, false);
}

/// Lets launches of a far device fail; there are at least `least`.
template <class Device>
void check_failed_launches(Device& device, const RepeatedCall& call, uint64_t least) {
  const uint64_t failures = fail_each(static_cast<uint64_t>(device.info().ordinal), [&](uint64_t n) {
    device.fail_launch(static_cast<int64_t>(n));
    Job job;
    return !call.survives(ErrorCode::device, job);
  });
  EXPECT_GE(failures, least);
  device.fail_launch(0);
}

/// Cancels before the call begins, once so many of its rows are done, and at random times.
inline void check_cancelled_calls(const RepeatedCall& call) {
  const auto start = std::chrono::steady_clock::now();
  Job whole;
  call.run(whole);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const auto cancelled_when = [&](const std::function<bool(const Job&)>& when) {
    Job job;
    std::atomic<bool> ended{false};
    std::thread canceller([&] {
      // Not a loop of yields, which takes a core from the call.
      while (!ended && !when(job)) std::this_thread::sleep_for(std::chrono::microseconds(5));
      job.cancel();
    });
    const bool survived = call.survives(ErrorCode::aborted, job);
    ended = true;
    canceller.join();
    return survived;
  };
  Job cancelled;
  cancelled.cancel();
  EXPECT_FALSE(call.survives(ErrorCode::aborted, cancelled));
  for (uint64_t quarter = 0; quarter <= 4; ++quarter) {
    cancelled_when([&](const Job& job) { return job.done() >= whole.done() * quarter / 4; });
  }
  std::mt19937_64 random(whole.done());
  for (int i = 0; i < 8; ++i) {
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::duration<double>(seconds * (static_cast<double>(random() >> 11) * 0x1p-53));
    cancelled_when([&](const Job&) { return std::chrono::steady_clock::now() >= until; });
  }
  Job job;
  call.run(job);
}

/// Others leave the last device too little: the error says how much.
inline void check_shortage(Engine& engine, int devices, const RepeatedCall& call) {
  StackAllocator& memory = engine.devices[static_cast<size_t>(devices) - 1]->memory();
  constexpr size_t kLeft = 4096;
  memory.leave_free(kLeft);
  Job job;
  try {
    call.run(job);
    ADD_FAILURE();
  } catch (const DeviceMemoryShortage& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_memory);
    EXPECT_EQ(error.free_bytes(), kLeft);
  }
  memory.leave_free(SIZE_MAX);
  EXPECT_TRUE(call.survives(ErrorCode::device_memory, job));
}

}  // namespace warpjoin::testing
