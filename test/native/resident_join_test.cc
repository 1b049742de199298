#include "join/resident_join.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "engine/engine.h"
#include "far_device.h"
#include "large_join_cases.h"
#include "places.h"
#include "resident_join_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

class ResidentJoin : public ::testing::TestWithParam<Setup> {};

INSTANTIATE_TEST_SUITE_P(Devices, ResidentJoin,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8), ::testing::Values(Place::host, Place::far)),
                         name_of_setup);
/// What only devices do that don't address host memory.
class FarResidentJoin : public ResidentJoin {};
INSTANTIATE_TEST_SUITE_P(Devices, FarResidentJoin,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8), ::testing::Values(Place::far)), name_of_setup);
INSTANTIATE_TEST_SUITE_P(DevicesApart, ResidentJoin, ::testing::Combine(::testing::Values(3), ::testing::Values(Place::apart)),
                         name_of_setup);
INSTANTIATE_TEST_SUITE_P(DevicesThatGroup, ResidentJoin,
                         ::testing::Combine(::testing::Values(2, 3, 8), ::testing::Values(Place::grouping)), name_of_setup);
INSTANTIATE_TEST_SUITE_P(DevicesThatGroup, FarResidentJoin,
                         ::testing::Combine(::testing::Values(2, 3), ::testing::Values(Place::grouping)), name_of_setup);

TEST_P(ResidentJoin, GivesTheNaiveJoinForAllKindsSidesAndLayouts) {
  const auto engine = make_engine(GetParam());
  check_drawn_resident_joins(*engine);
  for (const auto& device : engine->devices) EXPECT_EQ(device->memory().used_bytes(), 0u);
}

TEST_P(ResidentJoin, TakesEmptyAndDisjointSides) { check_empty_resident_joins(*make_engine(GetParam())); }

TEST_P(FarResidentJoin, WritesPairsAsTheyAreFound) {
  // Room for three columns of 2 MiB twice, or once.
  for (const bool room : {true, false}) {
    for (const FoundPairs& pairs : kFoundPairs) {
      SCOPED_TRACE(pairs.name);
      const auto engine = make_engine(GetParam());
      const uint64_t rows = check_found_pairs(*engine, pairs, 1, [&](Device& device) {
        StackAllocator& memory = device.memory();
        if (!room) memory.leave_free(memory.reserved_bytes() + (size_t{8} << 20));
      });
      uint64_t written = 0, emitted = 0;
      for (const auto& device : engine->devices) {
        const FarPrimitives& primitives = static_cast<FarDevice&>(*device).primitives();
        written += primitives.written_pairs;
        emitted += primitives.emitted_rows;
      }
      EXPECT_EQ(written + emitted, rows);
      if (!room) EXPECT_EQ(written, 0u);
      if (room) EXPECT_EQ(emitted > 0, pairs.repeated_key);
      if (room && pairs.repeated_key && std::get<0>(GetParam()) > 1) EXPECT_GT(written, 0u);
    }
  }
}

TEST_P(FarResidentJoin, GroupsTuplesWhereTheyLieUnlessKeysAreSkewed) {
  const bool groups = std::get<1>(GetParam()) == Place::grouping;
  constexpr uint64_t kRows = 20000;
  for (const bool skewed : {false, true}) {
    const auto engine = make_engine(GetParam());
    std::mt19937_64 random(8);
    Rows left(kRows), right = draw(random, kRows, kRows, 0, 8);
    for (uint64_t i = 0; i < kRows; ++i) left[i] = i;
    if (skewed) std::fill(right.begin(), right.end(), 17);
    const std::vector<Buffer> reserved = reserve_all(*engine, 320 * 2 * kRows);
    const ResidentSide l(*engine, left, {8, 8}, false, false, random), r(*engine, right, {8, 8}, false, false, random);
    Job job;
    const ResidentRows rows = resident_hash_join(*engine, devices_of(*engine), l.relation, r.relation, {}, job, 64);
    EXPECT_EQ(read(*engine, rows, {}), naive(left, right, {}));
    uint64_t grouped = 0;
    for (const auto& device : engine->devices) grouped += static_cast<FarDevice&>(*device).primitives().grouped_tuples;
    EXPECT_EQ(grouped, groups && !skewed ? 2 * kRows : 0);
  }
}

TEST_P(ResidentJoin, KeepsPairsOfRepeatedKeys) {
  constexpr ManyPairs kPairs[] = {{1, 300, 400}, {500, 20, 30}};
  check_kept_pairs(*make_engine(GetParam()), kPairs);
}

TEST_P(ResidentJoin, StandsSkew) { check_skewed_resident_joins(*make_engine(GetParam())); }

TEST_P(ResidentJoin, ReplicatesSmallBuildSidesAndPartitionsLargeOnes) {
  check_large_resident_joins(*make_engine(GetParam()), 20000);
}

TEST_P(ResidentJoin, FitsTheMemoryThatItAnnounces) {
  const auto engine = make_engine(GetParam());
  check_announced_resident_bytes(*engine, 15000, 20000, JoinKind::full);
  check_announced_resident_bytes(*engine, 300, 8000, JoinKind::inner);
}

TEST_P(ResidentJoin, SaysWhatDoesNotFit) {
  const auto engine = make_engine(GetParam());
  std::mt19937_64 random(7);
  const Rows rows = draw(random, 5000, 5000, 0, 8);
  const size_t chunks = 2 * OwnedTuples::bytes({8, 8}, rows.size());
  const std::vector<Buffer> reserved = reserve_all(*engine, chunks + 4096);
  const ResidentSide left(*engine, rows, {8, 8}, false, false, random), right(*engine, rows, {8, 8}, false, false, random);
  Job job;
  try {
    resident_hash_join(*engine, devices_of(*engine), left.relation, right.relation, {}, job);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_memory);
  }
}

TEST_P(ResidentJoin, ReleasesEverythingWhereAnAllocationFails) {
  const auto engine = make_engine(GetParam());
  for (const bool home : {false, true}) {
    for (const uint32_t partitions : {0u, 16u}) {
      check_failed_allocations(*engine, std::get<0>(GetParam()), repeated_resident_join(*engine, partitions, home, 300, 400), 2);
    }
  }
}

TEST_P(ResidentJoin, StopsWhenItsJobIsCancelled) {
  const auto engine = make_engine(GetParam());
  for (const bool home : {false, true}) {
    check_cancelled_calls(repeated_resident_join(*engine, 16, home, 6000, 5000));
  }
}

TEST_P(FarResidentJoin, SurvivesCopiesThatFail) {
  const auto engine = make_engine(GetParam());
  auto& last = static_cast<FarDevice&>(*engine->devices.back());
  for (const bool home : {false, true}) {
    check_failed_copies(last, repeated_resident_join(*engine, 16, home, 800, 900), 4);
  }
}

}  // namespace
}  // namespace warpjoin
