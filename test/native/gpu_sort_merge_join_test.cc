// Sort-merge joins in the joint memory of real GPUs.
#include <gtest/gtest.h>

#include "gpu_engine.h"
#include "sort_merge_join_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

class GpuSortMergeJoin : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Gpus, GpuSortMergeJoin, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "Gpus"; });

TEST_P(GpuSortMergeJoin, GivesTheNaiveJoinForAllKindsSidesAndLayouts) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_drawn_joins(*engine, kJoint);
  check_empty_joins(*engine, kJoint);
  check_skewed_joins(*engine, kJoint);
}

TEST_P(GpuSortMergeJoin, GivesTheRowsOfAMergeJoinInTheSameOrder) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_joint_order(*engine, 60'000);
  check_joint_order(*engine, 2'000'000);
}

TEST_P(GpuSortMergeJoin, CutsTheRowsOfOneKeyOverTheDevices) {
  SKIP_WITHOUT_GPUS(GetParam());
  check_joint_keys(*make_gpu_engine(GetParam()), 3'000'000);
}

TEST_P(GpuSortMergeJoin, FitsTheMemoryThatItAnnounces) {
  SKIP_WITHOUT_GPUS(GetParam());
  check_joint_bytes([](size_t limit) { return make_gpu_engine(GetParam(), limit); }, 300'000, 700'000);
}

class GpuSortMergeJoinFailure : public GpuSortMergeJoin {};
INSTANTIATE_TEST_SUITE_P(Gpus, GpuSortMergeJoinFailure, ::testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param) + "Gpus"; });

TEST_P(GpuSortMergeJoinFailure, ReleasesEverythingWhereAnAllocationFails) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_failed_allocations(*engine, GetParam(), repeated_join(*engine, kJoint[0], 8000, 9000));
}

TEST_P(GpuSortMergeJoinFailure, StopsWhenItsJobIsCancelled) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_cancelled_calls(repeated_join(*engine, kJoint[0], 60000, 50000));
}

// Small enough for compute-sanitizer.
TEST_P(GpuSortMergeJoin, JoinsAFewForTheSanitizers) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam(), size_t{64} << 20);
  std::mt19937_64 random(41);
  for (const uint8_t key_bytes : {uint8_t{4}, uint8_t{8}}) {
    const Rows left = draw(random, 5000, 4000, 0.1, key_bytes), right = draw(random, 3000, 4000, 0.1, key_bytes);
    check(*engine, left, right, {key_bytes, 4, 8}, {.kind = JoinKind::full, .build_left = false}, kJoint[0]);
  }
}

}  // namespace
}  // namespace warpjoin
