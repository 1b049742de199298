// Sort-merge joins in the joint memory of devices, far ones and those of the host.
#include <gtest/gtest.h>

#include "far_device.h"
#include "sort_merge_join_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

std::unique_ptr<Engine> make_engine(int devices, bool far, size_t device_limit = 0) {
  const EngineConfig config{.threads = 3,
                            .host_devices = devices,
                            .memory_limit_bytes = size_t{2} << 30,
                            .device_memory_limit_bytes = device_limit,
                            .transfer_block_bytes = size_t{64} << 10};
  return far ? make_far_engine(config) : std::make_unique<Engine>(config);
}

class SortMergeJoin : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  static int devices() { return std::get<0>(GetParam()); }
  static std::unique_ptr<Engine> make(size_t device_limit = 0) {
    return make_engine(devices(), std::get<1>(GetParam()), device_limit);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, SortMergeJoin, ::testing::Combine(::testing::Values(1, 2, 3, 4, 8), ::testing::Bool()),
                         [](const auto& info) {
                           return (std::get<1>(info.param) ? "Far" : "Host") + std::to_string(std::get<0>(info.param));
                         });

TEST_P(SortMergeJoin, GivesTheNaiveJoinForAllKindsSidesAndLayouts) { check_drawn_joins(*make(), kJoint); }

TEST_P(SortMergeJoin, TakesEmptyAndDisjointSides) { check_empty_joins(*make(), kJoint); }

TEST_P(SortMergeJoin, StandsSkew) { check_skewed_joins(*make(), kJoint); }

TEST_P(SortMergeJoin, GivesTheRowsOfAMergeJoinInTheSameOrder) { check_joint_order(*make(), 30'000); }

TEST_P(SortMergeJoin, CutsTheRowsOfOneKeyOverTheDevices) { check_joint_keys(*make(), 60'000); }

TEST_P(SortMergeJoin, FitsTheMemoryThatItAnnounces) {
  check_joint_bytes([](size_t limit) { return make(limit); }, 50'000, 90'000);
}

TEST_P(SortMergeJoin, ReleasesEverythingWhereAnAllocationFails) {
  const auto engine = make();
  check_failed_allocations(*engine, devices(), repeated_join(*engine, kJoint[0], 800, 900));
}

TEST_P(SortMergeJoin, StopsWhenItsJobIsCancelled) {
  const auto engine = make();
  check_cancelled_calls(repeated_join(*engine, kJoint[0], 20000, 15000));
}

TEST_P(SortMergeJoin, SaysWhatOthersHaveLeftOfADevice) {
  const auto engine = make();
  check_shortage(*engine, devices(), repeated_join(*engine, kJoint[0], 20000, 15000));
}

TEST(SortMergeJoins, SurviveCopiesThatFail) {
  const auto engine = make_engine(3, true);
  auto& last = static_cast<FarDevice&>(*engine->devices.back());
  check_failed_copies(last, repeated_join(*engine, kJoint[0], 5000, 6000), 5);
}

TEST(SortMergeJoins, AddUpOnTheDevicesWhatIsOnlyCounted) {
  const auto engine = make_engine(3, true);
  Rows rows(40'000);
  for (uint64_t i = 0; i < rows.size(); ++i) rows[i] = i / 2;
  const JoinKeys keys = make_keys(*engine, rows, rows, {});
  Job job;
  EXPECT_EQ(sort_merge_join(*engine, keys, {.count_only = true}, {0, 1, 2}, job).size, 2 * rows.size());
  uint64_t ranges = 0;
  for (const auto& device : engine->devices) ranges += static_cast<FarDevice&>(*device).primitives().summed_ranges;
  EXPECT_EQ(ranges, rows.size() / 2);
}

TEST(SortMergeJoins, NeedDirectLinks) {
  const auto engine = make_far_engine({.threads = 2, .host_devices = 2, .memory_limit_bytes = size_t{1} << 30}, false);
  const JoinKeys keys = make_keys(*engine, Rows(3, 1), Rows(3, 1), {});
  Job job;
  EXPECT_THROW(sort_merge_join(*engine, keys, {}, {0, 1}, job), Error);
  EXPECT_THROW(sort_merge_join(*engine, keys, {}, {}, job), Error);
  EXPECT_EQ(sort_merge_join(*engine, keys, {}, {1}, job).size, 9u);
}

}  // namespace
}  // namespace warpjoin
