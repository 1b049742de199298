// Hash joins on real GPUs.
#include <gtest/gtest.h>

#include "gpu_engine.h"
#include "join_cases.h"
#include "primitives/gpu/hash_tuning.h"
#include "primitives/hash_groups.h"
#include "resident_join_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

class GpuJoinOperator : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Gpus, GpuJoinOperator, ::testing::Values(1, 2, 3, 4));

TEST_P(GpuJoinOperator, GivesTheNaiveJoinForAllKindsSidesAndLayouts) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_drawn_joins(*engine);
  EXPECT_EQ(engine->memory->used_bytes(), engine->pinned.held_bytes());
  for (const auto& device : engine->devices) EXPECT_EQ(device->memory().used_bytes(), 0u);
}

TEST_P(GpuJoinOperator, TakesEmptyAndDisjointSides) {
  SKIP_WITHOUT_GPUS(GetParam());
  check_empty_joins(*make_gpu_engine(GetParam()));
}

TEST_P(GpuJoinOperator, StandsSkew) {
  SKIP_WITHOUT_GPUS(GetParam());
  check_skewed_joins(*make_gpu_engine(GetParam()));
}

TEST_P(GpuJoinOperator, SplitsHeavyKeysOverDevices) {
  SKIP_WITHOUT_GPUS(GetParam());
  check_heavy_keys(*make_gpu_engine(GetParam()), GetParam() > 1);
}

TEST_P(GpuJoinOperator, JoinsMillions) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  std::mt19937_64 random(37);
  const Rows large = draw(random, 900000, 1000000, 0.01, 8), small = draw(random, 300000, 1000000, 0.01, 8);
  check(*engine, large, small, {8, 4, 4}, {.kind = JoinKind::inner, .build_left = false}, {});
  check(*engine, large, small, {8, 4, 8}, {.kind = JoinKind::full, .build_left = true}, {});
  check(*engine, small, large, {8, 4, 4}, {.kind = JoinKind::left, .build_left = true}, {.rounds = 4});
  const Rows few = draw(random, 20000, 1000000, 0, 8);
  check(*engine, large, few, {8, 4, 4}, {.kind = JoinKind::inner, .build_left = false}, {});
}

TEST_P(GpuJoinOperator, FitsTheMemoryThatItAnnounces) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto make = [](size_t limit) { return make_gpu_engine(GetParam(), limit); };
  for (const uint32_t rounds : {1u, 2u, 8u}) {
    check_announced_bytes(make, 300000, 400000, rounds, JoinKind::full);
    check_announced_bytes(make, 1000, 100000, rounds, JoinKind::inner);
  }
}

class GpuJoinOperatorFailure : public GpuJoinOperator {};
INSTANTIATE_TEST_SUITE_P(Gpus, GpuJoinOperatorFailure, ::testing::Values(1, 2));

constexpr Plan kPlans[] = {{}, {.partitions = 16}, {.rounds = 2}, {.rounds = 4, .partitions = 4}, {.merge = true}};

TEST_P(GpuJoinOperatorFailure, ReleasesEverythingWhereAnAllocationFails) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  for (const Plan& plan : kPlans) check_failed_allocations(*engine, GetParam(), repeated_join(*engine, plan, 8000, 9000), 2);
}

TEST_P(GpuJoinOperatorFailure, StopsWhenItsJobIsCancelled) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  for (const Plan& plan : kPlans) check_cancelled_calls(repeated_join(*engine, plan, 60000, 50000));
}

TEST_P(GpuJoinOperatorFailure, SaysWhatOthersHaveLeftOfADevice) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  for (const Plan& plan : kPlans) check_shortage(*engine, GetParam(), repeated_join(*engine, plan, 20000, 15000));
}

// Small enough for compute-sanitizer.
TEST_P(GpuJoinOperator, JoinsAFewForTheSanitizers) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam(), size_t{64} << 20);
  std::mt19937_64 random(41);
  uint8_t key_bytes = 4;
  for (const JoinKind kind : kKinds) {
    const Rows left = draw(random, 5000, 4000, 0.1, key_bytes), right = draw(random, 3000, 4000, 0.1, key_bytes);
    check(*engine, left, right, {key_bytes, 4, 8}, {.kind = kind, .build_left = false}, {});
    if (kind == JoinKind::full) {
      check(*engine, left, right, {key_bytes, 8, 4}, {.kind = kind}, {.rounds = 2, .partitions = 64});
    }
    key_bytes = key_bytes == 4 ? 8 : 4;
  }
}

class GpuResidentJoin : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Gpus, GpuResidentJoin, ::testing::Values(1, 2, 3, 4, 8));

TEST_P(GpuResidentJoin, GivesTheNaiveJoinForAllKindsSidesAndLayouts) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_drawn_resident_joins(*engine);
  check_skewed_resident_joins(*engine);
  EXPECT_EQ(engine->memory->used_bytes(), engine->pinned.held_bytes());
  for (const auto& device : engine->devices) EXPECT_EQ(device->memory().used_bytes(), 0u);
}

TEST_P(GpuResidentJoin, TakesEmptySides) {
  SKIP_WITHOUT_GPUS(GetParam());
  check_empty_resident_joins(*make_gpu_engine(GetParam()));
}

TEST_P(GpuResidentJoin, JoinsMillions) {
  SKIP_WITHOUT_GPUS(GetParam());
  check_large_resident_joins(*make_gpu_engine(GetParam()), 1000000, size_t{512} << 20);
}

TEST_P(GpuResidentJoin, WritesPairsAsTheyAreFound) {
  SKIP_WITHOUT_GPUS(GetParam());
  for (const bool one_table : {true, false}) {
    if (!one_table) gpu::hash_tuning.small_table_bytes = 0;
    for (const FoundPairs& pairs : kFoundPairs) {
      SCOPED_TRACE(pairs.name);
      check_found_pairs(*make_gpu_engine(GetParam()), pairs, 50);
    }
    gpu::hash_tuning = {};
  }
}

/// Makes joins of a few tuples group them where they lie, by counts or by a sample.
class Grouping {
 public:
  explicit Grouping(bool sampled) {
    gpu::hash_tuning.small_table_bytes = 0;
    if (sampled) gpu::hash_tuning.fewest_sampled = 1;
  }
  ~Grouping() { gpu::hash_tuning = {}; }
  Grouping(const Grouping&) = delete;
  Grouping& operator=(const Grouping&) = delete;
};

TEST_P(GpuResidentJoin, GroupsTuplesWhereTheyLie) {
  SKIP_WITHOUT_GPUS(GetParam());
  for (const bool sampled : {false, true}) {
    const Grouping grouping(sampled);
    const auto engine = make_gpu_engine(GetParam());
    const HashGroups* const groups = engine->devices[0]->primitives().hash_groups();
    ASSERT_TRUE(groups && groups->hash_grouping({8, 8}, 100000, GetParam(), 4).group_bits > 0);
    check_drawn_resident_joins(*engine);
    check_empty_resident_joins(*engine);
    check_skewed_resident_joins(*engine);
    check_large_resident_joins(*engine, 1000000, size_t{512} << 20);
    check_announced_resident_bytes(*engine, 300000, 400000, JoinKind::full);
    for (const FoundPairs& pairs : kFoundPairs) check_found_pairs(*make_gpu_engine(GetParam()), pairs, 50);
  }
}

TEST_P(GpuResidentJoin, FitsTheMemoryThatItAnnounces) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_announced_resident_bytes(*engine, 300000, 400000, JoinKind::full);
  check_announced_resident_bytes(*engine, 1000, 100000, JoinKind::inner);
}

TEST_P(GpuResidentJoin, ReleasesEverythingWhereItFails) {
  SKIP_WITHOUT_GPUS(GetParam());
  if (GetParam() > 2) GTEST_SKIP() << "two GPUs show it";
  const auto engine = make_gpu_engine(GetParam());
  for (const bool home : {false, true}) {
    check_failed_allocations(*engine, GetParam(), repeated_resident_join(*engine, 64, home, 8000, 9000), 2);
    check_cancelled_calls(repeated_resident_join(*engine, 64, home, 60000, 50000));
  }
}

// Small enough for compute-sanitizer.
TEST_P(GpuResidentJoin, JoinsAFewForTheSanitizers) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam(), size_t{256} << 20);
  std::mt19937_64 random(43);
  for (const JoinKind kind : kKinds) {
    const Rows left = draw(random, 5000, 4000, 0, 8), right = draw(random, 3000, 4000, 0, 8);
    check_resident(*engine, left, right, {8, 4, 8}, true, {.kind = kind, .build_left = false}, 64, random);
  }
}

TEST_P(GpuResidentJoin, GroupsAFewForTheSanitizers) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam(), size_t{256} << 20);
  std::mt19937_64 random(47);
  for (const bool sampled : {false, true}) {
    const Grouping grouping(sampled);
    const uint8_t key_bytes = sampled ? 8 : 4;
    const Rows left = draw(random, 2000, 1500, 0, key_bytes), right = draw(random, 1500, 1500, 0, key_bytes);
    check_resident(*engine, left, right, {key_bytes, 4, 8}, true, {.kind = JoinKind::full}, 64, random);
  }
}

}  // namespace
}  // namespace warpjoin
