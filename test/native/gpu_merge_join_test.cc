// Merge joins on real GPUs.
#include <gtest/gtest.h>

#include "gpu_engine.h"
#include "merge_join_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

class GpuMergeJoin : public ::testing::TestWithParam<int> {};

TEST_P(GpuMergeJoin, GivesWhatHostDevicesGive) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_merge_joins(*engine, 5000, 1);
  check_merge_joins(*engine, 300'000, 2);
  check_small_merge_joins(*engine);
}

TEST_P(GpuMergeJoin, JoinsMillions) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  std::mt19937_64 random(3);
  for (const JoinShape shape : {JoinShape::distinct, JoinShape::runs}) {
    const MergeJoinSides sides(*engine, {8, 4}, draw_join_keys(shape, true, 3'000'001, 8, random), {8, 4},
                               draw_join_keys(shape, false, 4'000'003, 8, random));
    check_merge_join(*engine, sides, {.kind = JoinKind::semi}, 3);
    check_merge_join(*engine, sides, {.count_only = true}, 40);
  }
}

TEST_P(GpuMergeJoin, FitsTheMemoryThatItAnnounces) {
  SKIP_WITHOUT_GPUS(GetParam());
  constexpr TupleLayout layout{4, 4};
  constexpr uint64_t kRows = 400'000;
  std::mt19937_64 random(4);
  const size_t bytes =
      merge_join_device_bytes(layout, kRows, layout, kRows, static_cast<size_t>(GetParam()), 100, *make_gpu_engine(GetParam()));
  const auto engine = make_gpu_engine(GetParam(), bytes);
  const MergeJoinSides sides(*engine, layout, draw_join_keys(JoinShape::distinct, true, kRows, 4, random), layout,
                             draw_join_keys(JoinShape::distinct, false, kRows, 4, random));
  check_merge_join(*engine, sides, {.kind = JoinKind::full}, 100);
}

TEST_P(GpuMergeJoin, StopsWhenCancelled) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  std::mt19937_64 random(5);
  const MergeJoinSides sides(*engine, {8, 4}, draw_join_keys(JoinShape::few, true, 20'000, 8, random), {8, 4},
                             draw_join_keys(JoinShape::few, false, 20'000, 8, random));
  Job job, again;
  job.cancel();
  EXPECT_THROW(run_merge_join(*engine, sides, {}, 3, job), Error);
  EXPECT_NO_THROW(run_merge_join(*engine, sides, {}, 3, again));
}

// Small enough for compute-sanitizer.
TEST_P(GpuMergeJoin, JoinsAFewForTheSanitizers) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  std::mt19937_64 random(6);
  for (const uint8_t key_bytes : {4, 8}) {
    const MergeJoinSides sides(*engine, {key_bytes, 4}, draw_join_keys(JoinShape::runs, true, 9001, key_bytes, random),
                               {key_bytes, 8}, draw_join_keys(JoinShape::runs, false, 7001, key_bytes, random));
    check_merge_join(*engine, sides, {.kind = JoinKind::full}, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuMergeJoin, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "Gpus"; });

}  // namespace
}  // namespace warpjoin
