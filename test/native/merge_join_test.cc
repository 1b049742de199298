// Merge joins on host devices that behave like GPUs.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "far_device.h"
#include "merge_join_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

FarDevice& far(Engine& engine, size_t device) { return static_cast<FarDevice&>(*engine.devices[device]); }

class MergeJoinBeyondLinks : public ::testing::TestWithParam<int> {};

TEST_P(MergeJoinBeyondLinks, GivesWhatHostDevicesGive) {
  for (const bool pinned : {false, true}) {
    const auto engine = make_far_engine(config(GetParam()), false, pinned);
    check_merge_joins(*engine, 5000, pinned ? 1 : 2);
    check_small_merge_joins(*engine);
    EXPECT_EQ(far(*engine, 0).pinning().slow_copies, 0u);
  }
}

TEST(MergeJoinsBeyondLinks, TakeMoreSubpartitionsWhereSidesAreLarge) {
  const auto engine = make_far_engine(config(1), false);
  std::mt19937_64 random(3);
  const MergeJoinSides sides(*engine, {8, 4}, draw_join_keys(JoinShape::few, true, 3'200'000, 8, random), {8, 4},
                             draw_join_keys(JoinShape::few, false, 3'500'000, 8, random));
  check_merge_join(*engine, sides, {.kind = JoinKind::semi}, 3);
  // Two parts of sixteen with their ranges, and scratch.
  EXPECT_LT(merge_join_device_bytes({8, 4}, 1 << 25, {8, 4}, 1 << 25, 1, 3, *engine), (size_t{2} << 25) * 8 / 3);
}

TEST_P(MergeJoinBeyondLinks, FitsTheMemoryThatItAnnounces) {
  constexpr TupleLayout layout{8, 4};
  constexpr uint64_t kRows = 40'000;
  const auto measure = make_far_engine(config(GetParam()));
  const size_t bytes = merge_join_device_bytes(layout, kRows, layout, kRows, measure->devices.size(), 64, *measure);
  for (const size_t less : {size_t{0}, size_t{1}}) {
    const auto engine = make_far_engine(config(GetParam(), bytes - less), false);
    std::mt19937_64 random(4);
    const MergeJoinSides sides(*engine, layout, draw_join_keys(JoinShape::distinct, true, kRows, 8, random), layout,
                               draw_join_keys(JoinShape::distinct, false, kRows, 8, random));
    if (less == 0) {
      check_merge_join(*engine, sides, {.kind = JoinKind::full}, 64);
      continue;
    }
    try {
      Job job;
      run_merge_join(*engine, sides, {}, 64, job);
      FAIL() << "expected the limit to hold";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::device_memory);
    }
  }
}

TEST_P(MergeJoinBeyondLinks, TakesHostMemoryForTheRangesThatItFinds) {
  const auto engine = make_far_engine(config(GetParam()), false);
  std::mt19937_64 random(5);
  constexpr uint64_t kRows = 300'000;
  const MergeJoinSides sides(*engine, {4, 4}, draw_join_keys(JoinShape::disjoint, true, kRows, 4, random), {4, 4},
                             draw_join_keys(JoinShape::disjoint, false, kRows, 4, random));
  Job warm, job;
  run_merge_join(*engine, sides, {}, 3, warm);  // the ring is there now
  const size_t before = engine->memory->used_bytes();
  engine->memory->reset_peak();
  EXPECT_EQ(run_merge_join(*engine, sides, {}, 3, job).size, 0u);
  EXPECT_LT(engine->memory->peak_bytes() - before, size_t{1} << 20);
}

TEST_P(MergeJoinBeyondLinks, TakesNoHostMemoryForRangesThatItCounts) {
  const auto engine = make_far_engine(config(GetParam()), false);
  constexpr uint64_t kRows = 300'000;
  std::vector<uint64_t> unique(kRows);
  std::iota(unique.begin(), unique.end(), 7);
  const MergeJoinSides sides(*engine, {4, 4}, unique, {4, 4}, unique);
  Job warm, job;
  run_merge_join(*engine, sides, {.count_only = true}, 3, warm);
  const size_t before = engine->memory->used_bytes();
  engine->memory->reset_peak();
  EXPECT_EQ(run_merge_join(*engine, sides, {.count_only = true}, 3, job).size, kRows);
  EXPECT_LT(engine->memory->peak_bytes() - before, size_t{1} << 20);
}

TEST_P(MergeJoinBeyondLinks, LeavesNothingBehindWhenSomethingFails) {
  const auto engine = make_far_engine(config(GetParam()), false);
  std::mt19937_64 random(6);
  const MergeJoinSides sides(*engine, {8, 4}, draw_join_keys(JoinShape::few, true, 3000, 8, random), {8, 4},
                             draw_join_keys(JoinShape::few, false, 4000, 8, random));
  Job job;
  const JoinRequest request{.kind = JoinKind::full};
  const JoinRows expected = run_merge_join(*engine, sides, request, 3, job);
  const auto used = [&] { return engine->memory->used_bytes() - engine->pinned.held_bytes(); };
  const size_t before = used();
  uint64_t failures = 0;
  const auto fails = [&](ErrorCode code, const std::function<void(uint64_t)>& set) {
    for (uint64_t n = 1;; ++n) {
      set(n);
      bool failed = false;
      try {
        Job own;
        expect_same_rows(run_merge_join(*engine, sides, request, 3, own), expected);
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), code) << error.what();
        failed = true;
      }
      set(0);
      for (const auto& device : engine->devices) ASSERT_EQ(device->memory().used_bytes(), 0u);
      ASSERT_EQ(used(), before);
      if (!failed) break;
      ++failures;
    }
  };
  const auto expect_failures = [&](uint64_t least) { EXPECT_GE(std::exchange(failures, 0), least); };
  fails(ErrorCode::memory_limit, [&](uint64_t n) { engine->memory->fail_allocation(n); });
  expect_failures(3);
  const std::set<size_t> ends{0, engine->devices.size() - 1};
  for (const size_t d : ends) {
    fails(ErrorCode::device_memory, [&](uint64_t n) { engine->devices[d]->memory().fail_allocation(n); });
    expect_failures(4);
  }
  for (const bool at_once : {false, true}) {
    for (const size_t d : ends) {
      fails(ErrorCode::device, [&](uint64_t n) { far(*engine, d).fail_copy(static_cast<int64_t>(n), at_once); });
    }
    expect_failures(6);
  }
}

TEST_P(MergeJoinBeyondLinks, StopsWhenCancelled) {
  const auto engine = make_far_engine(config(GetParam()), false);
  std::mt19937_64 random(7);
  const MergeJoinSides sides(*engine, {8, 4}, draw_join_keys(JoinShape::few, true, 400'000, 8, random), {8, 4},
                             draw_join_keys(JoinShape::few, false, 400'000, 8, random));
  for (const auto& device : engine->devices) static_cast<FarDevice&>(*device).delay_copies(std::chrono::milliseconds(1));
  for (const auto after : {0, 3, 10, 25}) {
    Job job;
    std::thread cancel([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(after));
      job.cancel();
    });
    try {
      run_merge_join(*engine, sides, {.kind = JoinKind::full}, 24, job);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted);
    }
    cancel.join();
    for (const auto& device : engine->devices) EXPECT_EQ(device->memory().used_bytes(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MergeJoinBeyondLinks, ::testing::Values(1, 2, 3, 4, 8), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace warpjoin
