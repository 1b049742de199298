// Joins of more rows, and to more pairs, than 31 and 32 bits count: on one GPU, and on all that there are. They take up to some
// 90 GB of host memory.
#include <gtest/gtest.h>

#include "gpu_engine.h"
#include "large_join_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

enum class Gpus { one, all };

class GpuLargeJoin : public ::testing::TestWithParam<Gpus> {
 protected:
  void SetUp() override {
    const int fewest = GetParam() == Gpus::one ? 1 : 2;
    SKIP_WITHOUT_GPUS(fewest);
    gpus_ = GetParam() == Gpus::one ? 1 : static_cast<int>(visible_gpus().size());
    constexpr size_t kGpuBytes = size_t{64} << 30;
    const auto engine = make_gpu_engine(gpus_);
    for (const auto& device : engine->devices) {
      if (device->info().memory_bytes < kGpuBytes) GTEST_SKIP() << "needs GPUs of " << kGpuBytes / 1e9 << " GB";
    }
  }

  /// Counts a full join of the sides, and checks the rows of another one. Skips without so many bytes of host memory.
  void check_counts_and_rows(const LargeSides& sides, JoinKind kind, uint64_t host_bytes) const {
    SKIP_WITHOUT_HOST_MEMORY(host_bytes);
    const auto engine = make_large_engine(gpus_);
    const JoinKeys keys = sides.keys(*engine);
    Job job;
    check_large_counts(*engine, sides, keys, large_plan(*engine, keys, large_request(JoinKind::full, true)), job);
    const JoinRequest request = large_request(kind);
    expect_large_rows(*engine, sides, join(*engine, keys, request, large_plan(*engine, keys, request), job), kind);
  }

  int gpus_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Sizes, GpuLargeJoin, ::testing::Values(Gpus::one, Gpus::all),
                         [](const auto& info) { return info.param == Gpus::one ? "OneGpu" : "AllGpus"; });

TEST_P(GpuLargeJoin, ProbesMoreRowsThan31BitsCount) {
  constexpr LargeSides sides{kTo31 + 7, 1 << 24};
  check_counts_and_rows(sides, JoinKind::left, sides.key_bytes() + sides.left * 8 + sides.tuple_bytes() + kOther);
}

TEST_P(GpuLargeJoin, BuildsOfMoreRowsThan31BitsCount) {
  constexpr LargeSides sides{kTo31 + 9, kTo31 + 5};
  check_counts_and_rows(sides, JoinKind::inner, sides.key_bytes() + sides.left / 2 * 9 + sides.tuple_bytes() + kOther);
}

TEST_P(GpuLargeJoin, ProbesMoreRowsThan32BitsCount) {
  constexpr LargeSides sides{kTo32 + 12345, 1 << 24};
  SKIP_WITHOUT_HOST_MEMORY(sides.key_bytes() + sides.tuple_bytes() + kOther);
  const auto engine = make_large_engine(gpus_);
  const JoinKeys keys = sides.keys(*engine);
  const JoinRequest counted = large_request(JoinKind::full, true), inner = large_request(JoinKind::inner);
  Job job;
  if (gpus_ == 1) {  // which numbers the rows of a build side, and of a wave, in 32 bits
    JoinRequest reversed = counted;
    reversed.build_left = true;
    EXPECT_TRUE(refuses(ErrorCode::device_memory, [&] { join(*engine, keys, reversed, {}, job); }));
  }
  check_large_counts(*engine, sides, keys, large_plan(*engine, keys, counted), job);
  expect_large_rows(*engine, sides, join(*engine, keys, inner, large_plan(*engine, keys, inner), job), JoinKind::inner);
}

TEST_P(GpuLargeJoin, JoinsMoreRowsThan31BitsCountOnEachGpu) {
  const LargeSides sides{static_cast<uint64_t>(gpus_) * (kTo31 + 7), 1 << 24};
  SKIP_WITHOUT_HOST_MEMORY(sides.key_bytes() + kOther);
  const auto engine = make_large_engine(gpus_);
  check_large_resident_counts(*engine, sides, sides.keys(*engine));
}

TEST_P(GpuLargeJoin, SortsAndMergesMoreRowsThan31BitsCountInJointMemory) {
  constexpr LargeSides sides{kTo31 + 11, 1 << 24};
  SKIP_WITHOUT_HOST_MEMORY(sides.key_bytes() + sides.tuple_bytes() + kOther);
  const auto engine = make_large_engine(gpus_);
  const JoinKeys keys = sides.keys(*engine);
  Job job;
  check_large_counts(*engine, sides, keys, {.joint = true}, job);
  expect_large_rows(*engine, sides, join(*engine, keys, large_request(JoinKind::inner), {.joint = true}, job), JoinKind::inner);
}

// Keys ascend; those of the last rows match.
TEST_P(GpuLargeJoin, MergesMoreRowsThan32BitsCount) {
  constexpr uint64_t kLeft = kTo32 + 12345, kRight = 1 << 17, kEqual = 128, kFirst = (kLeft - 1) / kEqual + 1 - kRight;
  SKIP_WITHOUT_HOST_MEMORY((kLeft + kRight) * 4 + kRight * kEqual * 12 + kOther);
  const auto engine = make_large_engine(gpus_);
  JoinKeys keys;
  const auto ascending = [&](JoinSide& side, uint64_t rows, auto key_of) {
    side = large_side(*engine, rows, [](uint64_t) { return 0; });
    each_row(*engine, rows, [&](uint64_t row) { side.tuples.keys.as<uint32_t>()[row] = static_cast<uint32_t>(key_of(row)); });
  };
  ascending(keys.left, kLeft, [&](uint64_t row) { return row / kEqual; });
  ascending(keys.right, kRight, [&](uint64_t row) { return kFirst + row; });
  Job job;
  const uint64_t first = kFirst * kEqual, pairs = kLeft - first;
  EXPECT_EQ(join(*engine, keys, large_request(JoinKind::full, true), {.merge = true}, job).size, kLeft);
  const JoinRows rows = join(*engine, keys, large_request(JoinKind::inner), {.merge = true}, job);
  ASSERT_EQ(rows.size, pairs);
  EXPECT_EQ(sum_rows(*engine, pairs,
                     [&](uint64_t i) {
                       return uint64_t{rows.left.as<uint64_t>()[i] != first + i || rows.right.as<uint32_t>()[i] != i / kEqual};
                     }),
            0u);
}

TEST_P(GpuLargeJoin, CountsMorePairsThan32BitsCount) { check_counted_pairs(*make_gpu_engine(gpus_)); }

TEST_P(GpuLargeJoin, WritesMorePairsThan32BitsCount) {
  SKIP_WITHOUT_HOST_MEMORY(kWrittenBytes + kOther);
  check_written_pairs(*make_large_engine(gpus_), {});
}

TEST_P(GpuLargeJoin, WritesMorePairsOfSortedSidesThan32BitsCount) {
  SKIP_WITHOUT_HOST_MEMORY(kWrittenBytes + kOther);
  check_written_pairs(*make_large_engine(gpus_), {.merge = true});
}

TEST_P(GpuLargeJoin, KeepsMorePairsThan32BitsCount) {
  SKIP_WITHOUT_HOST_MEMORY(2 * kOther);
  check_kept_pairs(*make_large_engine(gpus_), kWrittenPairs);
}

}  // namespace
}  // namespace warpjoin
