#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/engine.h"
#include "far_device.h"
#include "join/join.h"
#include "join_cases.h"
#include "places.h"

namespace warpjoin {
namespace {

using namespace testing;

class JoinOperator : public ::testing::TestWithParam<Setup> {};

INSTANTIATE_TEST_SUITE_P(Devices, JoinOperator,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8), ::testing::Values(Place::host, Place::far)),
                         name_of_setup);
/// What only devices do that don't address host memory.
class FarJoinOperator : public JoinOperator {};
INSTANTIATE_TEST_SUITE_P(Devices, FarJoinOperator,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8), ::testing::Values(Place::far)), name_of_setup);
INSTANTIATE_TEST_SUITE_P(DevicesApart, JoinOperator, ::testing::Combine(::testing::Values(3), ::testing::Values(Place::apart)),
                         name_of_setup);

TEST_P(JoinOperator, GivesTheNaiveJoinForAllKindsAlgorithmsSidesAndLayouts) {
  const auto [devices, place] = GetParam();
  check_drawn_joins(*make_engine(devices, place));
}

TEST_P(JoinOperator, TakesEmptyAndDisjointSides) {
  const auto [devices, place] = GetParam();
  check_empty_joins(*make_engine(devices, place));
}

TEST_P(JoinOperator, StandsSkew) {
  const auto [devices, place] = GetParam();
  check_skewed_joins(*make_engine(devices, place));
}

TEST_P(JoinOperator, SplitsHeavyKeysOverDevices) {
  const auto [devices, place] = GetParam();
  check_heavy_keys(*make_engine(devices, place), devices > 1 && place != Place::host);
}

TEST_P(JoinOperator, PartitionsLargeBuildSidesBySize) {
  const auto [devices, place] = GetParam();
  const auto engine = make_engine(devices, place);
  std::mt19937_64 random(11);
  const Rows left = draw(random, 140000, 200000, 0.01, 8), right = draw(random, 40000, 200000, 0.01, 8);
  check(*engine, left, right, {8, 4, 8}, {.kind = JoinKind::full}, {});
  const Rows fewer(left.begin(), left.begin() + 30000);
  check(*engine, fewer, right, {8, 4, 8}, {.kind = JoinKind::inner}, {.rounds = 2, .partitions = 64});
}

TEST_P(JoinOperator, MergesLargeSides) {
  const auto [devices, place] = GetParam();
  const auto engine = make_engine(devices, place);
  std::mt19937_64 random(14);
  const Rows left = draw(random, 60000, 80000, 0.01, 8), right = draw(random, 40000, 80000, 0.01, 8);
  check(*engine, left, right, {8, 4, 8}, {.kind = JoinKind::full}, {.merge = true});
}

TEST_P(JoinOperator, GrowsDeviceMemoryWhenKeysCrowdOnOneDevice) {
  const auto [devices, place] = GetParam();
  const auto engine = make_engine(devices, place);
  std::mt19937_64 random(12);
  Rows left(60000), right(200000);
  for (uint64_t i = 0; i < left.size(); ++i) left[i] = i;
  for (auto& key : right) key = random() % 50 ? 17 : random() % 100000;
  const JoinKeys keys = make_keys(*engine, left, right, {});
  Job job;
  const JoinRequest request{.kind = JoinKind::full};  // which splits no keys
  const JoinRows rows = join(*engine, keys, request, {.partitions = 64}, job);
  EXPECT_EQ(rows.size, naive(left, right, request).size());
  EXPECT_EQ(job.done(), job.planned());
  if (devices > 1) EXPECT_GT(rows.skew, 1.3);
}

TEST_P(FarJoinOperator, FitsTheMemoryThatItAnnounces) {
  const auto [devices, place] = GetParam();
  const auto make = [devices = devices, place = place](size_t limit) { return make_engine(devices, place, limit); };
  check_announced_bytes(make, 140000, 60000, 1, JoinKind::full);  // a build side beyond what is not partitioned
  check_announced_bytes(make, 1000, 50000, 1, JoinKind::inner);
  check_announced_bytes(make, 50000, 60000, 2, JoinKind::full);
  check_announced_bytes(make, 1000, 50000, 8, JoinKind::inner);
  check_announced_bytes(make, 20000, 30000, 8, JoinKind::full);
}

/// Every other plan: what one setup leaves out is tried on the same number of devices of the other kind.
std::vector<Plan> plans_for(int devices, Place place) {
  constexpr Plan plans[] = {{}, {.partitions = 16}, {.rounds = 2, .partitions = 4}, {.rounds = 4}, {.merge = true}};
  std::vector<Plan> chosen;
  for (size_t p = static_cast<size_t>(devices + (place == Place::host)) % 2; p < std::size(plans); p += 2) {
    chosen.push_back(plans[p]);
  }
  return chosen;
}

TEST_P(JoinOperator, ReleasesEverythingWhereAnAllocationFails) {
  const auto [devices, place] = GetParam();
  const auto engine = make_engine(devices, place);
  for (const Plan& plan : plans_for(devices, place)) {
    check_failed_allocations(*engine, devices, repeated_join(*engine, plan, 800, 900), place == Place::host ? 0 : 2);
  }
}

TEST_P(JoinOperator, StopsWhenItsJobIsCancelled) {
  const auto [devices, place] = GetParam();
  const auto engine = make_engine(devices, place);
  for (const Plan& plan : plans_for(devices, place)) {
    check_cancelled_calls(repeated_join(*engine, plan, 20000, 15000));
  }
}

TEST_P(JoinOperator, SaysWhatOthersHaveLeftOfADevice) {
  const auto [devices, place] = GetParam();
  const auto engine = make_engine(devices, place);
  for (const Plan& plan : {Plan{}, Plan{.rounds = 2}, Plan{.partitions = 64}}) {
    check_shortage(*engine, devices, repeated_join(*engine, plan, 20000, 15000));
  }
}

TEST_P(FarJoinOperator, SurvivesCopiesThatFail) {
  const auto [devices, place] = GetParam();
  const auto engine = make_engine(devices, place);
  auto& last = static_cast<FarDevice&>(*engine->devices.back());
  for (const Plan& plan : {Plan{}, Plan{.rounds = 2}, Plan{.partitions = 64}}) {
    check_failed_copies(last, repeated_join(*engine, plan, 1500, 2000), 5);
  }
}

/// So many devices beyond a link.
class StreamedJoin : public ::testing::TestWithParam<int> {
 protected:
  static std::unique_ptr<Engine> make(size_t limit = 0) {
    return make_engine(static_cast<size_t>(GetParam()), Place::far, limit);
  }
  /// Memory of each that a join takes.
  static size_t bytes(const Rows& build, const Rows& probe, const JoinRequest& request, uint32_t rounds,
                      TupleLayout left = {8, 8}, TupleLayout right = {8, 8}) {
    if (!request.build_left) std::swap(left, right);
    return hash_join_device_bytes(left, build.size(), right, probe.size(), static_cast<size_t>(GetParam()), request, rounds,
                                  *make());
  }
  static HashJoinPlan plan(uint32_t rounds, uint32_t partitions = 0) { return {first_devices(GetParam()), rounds, partitions}; }
  /// A key of one of 256 partitions.
  static uint64_t key_in(uint64_t partition) {
    uint64_t key = 1;
    while (mix_key(key) >> 56 != partition) ++key;
    return key;
  }
  static uint64_t spilled_rows(const Rows& build, const Rows& probe, uint32_t rounds = 8, bool either_side = false) {
    const auto engine = make();
    Job job;
    HashJoinPlan in_rounds = plan(rounds, 16);
    in_rounds.either_side = either_side;
    return hash_join(*engine, make_keys(*engine, build, probe, {8, 4, 4}), {}, in_rounds, job).spilled_rows;
  }
  /// Several devices stream what spills.
  static std::vector<uint32_t> some_rounds() { return GetParam() == 1 ? std::vector{1u, 4u} : std::vector{4u}; }
};
INSTANTIATE_TEST_SUITE_P(Devices, StreamedJoin, ::testing::Values(1, 2, 3, 8), ::testing::PrintToStringParamName());

/// Waves that find nothing, and later ones that find far more rows than those let expect: what has been written moves.
TEST_P(StreamedJoin, MovesRowsThatOutgrowTheirRoom) {
  const auto engine = make();
  Rows build(300), probe(8000);
  for (uint64_t i = 0; i < build.size(); ++i) build[i] = i % 100 + (i % 7 == 0 ? 5000 : 0);
  for (uint64_t i = 0; i < probe.size(); ++i) probe[i] = i < 2500 ? 100000 + i : i % 100;
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()));
  for (const JoinKind kind : kKinds) {
    for (const uint32_t rounds : some_rounds()) {
      const bool build_left = random() % 2;
      const Shape shape = random() % 2 ? Shape{8, 4, 8} : Shape{4, 8, 4};
      const Rows &left = build_left ? build : probe, &right = build_left ? probe : build;
      check(*engine, left, right, shape, {.kind = kind, .build_left = build_left}, {.rounds = rounds, .partitions = 16});
      if (HasFatalFailure()) return;
    }
  }
}

/// More rows than all parts hold that go home at a time, and many of one wave.
TEST_P(StreamedJoin, SendsManyRowsOfAWaveHome) {
  const auto engine = make();
  Rows build(40, 7), probe(9000, 7);
  build[0] = 8;
  for (const uint32_t rounds : some_rounds()) {
    const Plan plan{.rounds = rounds, .partitions = 16};
    check(*engine, build, probe, {8, 8, 8}, {.kind = JoinKind::full, .build_left = true}, plan);
    check(*engine, build, probe, {8, 8, 8}, {.kind = JoinKind::inner, .build_left = true, .want_keys = true}, {.rounds = rounds});
  }
}

TEST(OneStreamedJoin, TakesTheProbeSideWholeWhereWavesDoNotFit) {
  std::mt19937_64 random(31);
  const Rows build = draw(random, 20000, 30000, 0, 8), probe = draw(random, 30000, 30000, 0, 8);
  const JoinRequest request{.kind = JoinKind::left, .build_left = true};
  const size_t bytes =
      hash_join_device_bytes({8, 4}, build.size(), {8, 4}, probe.size(), 1, request, 1, *make_engine(1, Place::far));
  check(*make_engine(1, Place::far, bytes), build, probe, {8, 4, 4}, request, {.partitions = 16});
}

/// Of both relations the devices keep a part of the first, as much as the limit leaves, and spill the rest.
TEST_P(StreamedJoin, SpillsWhatTheDevicesCannotKeep) {
  std::mt19937_64 random(37);
  for (const uint32_t rounds : {2u, 8u, 64u}) {
    for (const bool payload : {false, true}) {
      const Rows build = draw(random, 40000, 60000, payload ? 0 : 0.02, 8),
                 probe = draw(random, 50000, 60000, payload ? 0 : 0.02, 8);
      const Shape shape{8, 4, 8, payload};
      for (const JoinKind kind : kKinds) {
        const bool build_left = random() % 2;
        const Rows &left = build_left ? build : probe, &right = build_left ? probe : build;
        const JoinRequest request{.kind = kind, .build_left = build_left, .want_keys = kind == JoinKind::inner};
        const size_t limit = bytes(build, probe, request, rounds, {8, 4}, {8, 8});
        const auto engine = make(limit);
        check(*engine, left, right, shape, request, {.rounds = rounds});
        check(*engine, left, right, shape, request, {.rounds = rounds, .partitions = 16});
        if (HasFatalFailure()) return;
        for (const auto& device : engine->devices) EXPECT_LE(device->memory().peak_bytes(), limit);
        Job job;
        EXPECT_GT(hash_join(*engine, make_keys(*engine, left, right, shape), request, plan(rounds), job).spilled_rows, 0u);
        EXPECT_EQ(job.done(), job.planned());
      }
    }
  }
}

/// Each tuple crosses a link once, spilled ones three times, and each row once.
TEST_P(StreamedJoin, MovesWhatItMust) {
  std::mt19937_64 random(41);
  Rows build(40000);
  for (uint64_t i = 0; i < build.size(); ++i) build[i] = 3 * i;
  std::shuffle(build.begin(), build.end(), random);
  Rows probe(50000);
  for (auto& row : probe) row = random() % (3 * build.size());
  const JoinRequest request{.kind = JoinKind::inner, .build_left = true};
  for (const uint32_t rounds : some_rounds()) {
    const auto engine = make(bytes(build, probe, request, rounds));
    const JoinKeys keys = make_keys(*engine, build, probe, {8, 8, 8, true});
    for (const auto& device : engine->devices) device->traffic().reset();
    const HashJoinSpill spill =
        hash_join_spill(keys.left.tuples, keys.right.tuples, engine->devices.size(), request, rounds, *engine);
    Job job(kMaxBufferBytes, true);
    const JoinRows rows = hash_join(*engine, keys, request, plan(rounds), job);
    struct {
      uint64_t to_device = 0, to_host = 0;
    } moved;
    for (const auto& device : engine->devices) {
      moved.to_device += device->traffic().to_device;
      moved.to_host += device->traffic().to_host;
      EXPECT_GT(device->traffic().to_host, rows.size / GetParam() * 8) << "each does its part";
    }
    ASSERT_EQ(rows.spilled_rows > 0, rounds > 1);
    EXPECT_GT(rows.size, 10000u);
    EXPECT_NEAR(spill.rows, rows.spilled_rows, 0.02 * rows.spilled_rows);
    EXPECT_EQ(spill.bytes, 16 * spill.rows);
    EXPECT_GE(spill.host_bytes, 16 * rows.spilled_rows);
    EXPECT_LE(spill.host_bytes, 1.2 * spill.bytes);
    EXPECT_EQ(moved.to_device, 16 * (build.size() + probe.size() + rows.spilled_rows));
    EXPECT_EQ(moved.to_host, 16 * (rows.size + rows.spilled_rows));
    uint64_t recorded = 0;
    for (const PhaseStats& phase : job.phases()) recorded += phase.bytes;
    EXPECT_EQ(recorded, 2 * (moved.to_device + moved.to_host));
    uint64_t to_device = 0, to_host = 0;
    for (const TraceEvent& event : job.trace()->events()) {
      EXPECT_LE(event.begin, event.end);
      if (event.track == TraceEvent::Track::to_device) to_device += event.bytes;
      if (event.track == TraceEvent::Track::to_host) to_host += event.bytes;
    }
    EXPECT_EQ(to_device, moved.to_device);
    EXPECT_EQ(to_host, moved.to_host);
  }
}

/// Values that the result does not want stay at home. Host devices have nothing to spill.
TEST(HashJoin, SaysWhatItSpills) {
  std::mt19937_64 random(42);
  const Rows build = draw(random, 40000, 80000, 0, 8), probe = draw(random, 50000, 80000, 0, 8);
  for (const Place place : {Place::host, Place::far}) {
    for (const size_t devices : {size_t{1}, size_t{2}}) {
      const auto engine = make_engine(devices, place);
      const JoinKeys keys = make_keys(*engine, build, probe, {8, 8, 8, true});
      const auto spill = [&](const JoinRequest& request, uint32_t rounds) {
        return hash_join_spill(keys.left.tuples, keys.right.tuples, devices, request, rounds, *engine);
      };
      EXPECT_EQ(spill({}, 1).bytes + spill({}, 1).rows + spill({}, 1).host_bytes, 0u);
      EXPECT_THROW(spill({}, 3), Error);
      if (place == Place::host) {
        EXPECT_THROW(spill({}, 4), Error);
        continue;
      }
      const HashJoinSpill rows = spill({}, 4), count = spill({.count_only = true}, 4);
      EXPECT_EQ(rows.bytes, 16 * rows.rows);
      EXPECT_EQ(count.bytes, 8 * count.rows);
      EXPECT_LT(rows.rows, build.size() + probe.size());
    }
  }
}

/// So many build tuples have one key that the first round keeps fewer partitions than planned; and then the round that joins them
/// needs more memory than the others, or comes in blocks where there is no more.
TEST_P(StreamedJoin, StandsBuildSidesThatCrowd) {
  for (const uint64_t partition : {0, 20}) {  // which should be kept, of 8 rounds with 32 each
    const uint64_t hot = key_in(partition);
    Rows build(40000), probe(3000);
    for (uint64_t i = 0; i < build.size(); ++i) build[i] = i % 10 ? hot : 1000 + i;
    for (uint64_t i = 0; i < probe.size(); ++i) probe[i] = i < 5 ? hot : 1000 + i * 10;
    for (const JoinKind kind : kKinds) {
      for (const uint32_t rounds : {8u, 64u}) {
        const size_t needed = bytes(build, probe, {}, rounds, {8, 4}, {8, 4});
        for (const size_t limit : {size_t{0}, needed + needed / 16}) {
          const auto engine = make(limit);
          check(*engine, build, probe, {8, 4, 4}, {.kind = kind, .build_left = true}, {.rounds = rounds, .partitions = 16});
          if (HasFatalFailure()) return;
          for (const auto& device : engine->devices) EXPECT_EQ(device->memory().used_bytes(), 0u);
        }
      }
    }
    EXPECT_GT(spilled_rows(build, probe), 0u);
    EXPECT_LT(spilled_rows(build, probe), build.size() + probe.size()) << "partitions beside that of the key stay";
  }
}

/// Rows of a key that most of the probe side has are not spilled, wherever its partition is.
TEST_P(StreamedJoin, KeepsWhatMostProbesMeet) {
  for (const uint64_t partition : {0, 255}) {  // of 8 rounds with 32 each
    const uint64_t hot = key_in(partition);
    Rows build(3000), probe(40000);
    for (uint64_t i = 0; i < build.size(); ++i) build[i] = i ? 1000 + i : hot;
    for (uint64_t i = 0; i < probe.size(); ++i) probe[i] = i % 10 ? hot : 1000 + i % 3000;
    check(*make(), build, probe, {8, 4, 4}, {.build_left = true}, {.rounds = 8, .partitions = 16});
    EXPECT_LT(spilled_rows(build, probe), probe.size() / 2);
  }
}

/// As many rows on either side, most of one side's with one key: that side is the probe side, whichever it was to be.
TEST_P(StreamedJoin, SwapsSidesWhereKeysOfTheBuildSideRepeat) {
  constexpr uint32_t kRounds = 4;  // of 32 partitions each
  const uint64_t hot = key_in(2 * 62);
  Rows repeating(20000), even(20000);
  for (uint64_t i = 0; i < repeating.size(); ++i) repeating[i] = i % 5 < 3 ? hot : 1000 + i;
  for (uint64_t i = 0; i < even.size(); ++i) even[i] = i < 3 ? hot : 1000 + i;
  for (const JoinKind kind : kKinds) {
    check(*make(), repeating, even, {8, 4, 4}, {.kind = kind, .build_left = true},
          {.rounds = kRounds, .partitions = 16, .either_side = true});
    if (HasFatalFailure()) return;
  }
  const uint64_t other_side = spilled_rows(even, repeating, kRounds);
  EXPECT_LT(other_side, spilled_rows(repeating, even, kRounds) / 4 * 3);
  EXPECT_EQ(spilled_rows(repeating, even, kRounds, true), other_side);
  EXPECT_EQ(spilled_rows(even, repeating, kRounds, true), other_side);
  EXPECT_EQ(spilled_rows(even, even, kRounds, true), spilled_rows(even, even, kRounds));
}

/// One key has nearly all tuples of the probe side, so that one device joins nearly all of them; or of a build side that all
/// fits.
TEST_P(StreamedJoin, StandsKeysThatOneDeviceHas) {
  Rows build(20000), probe(30000);
  for (uint64_t i = 0; i < build.size(); ++i) build[i] = i;
  for (uint64_t i = 0; i < probe.size(); ++i) probe[i] = i % 10 ? 11 : i;
  for (const JoinKind kind : kKinds) {
    for (const bool build_left : {false, true}) {
      const auto engine = make();
      const Rows &left = build_left ? build : probe, &right = build_left ? probe : build;
      for (const uint32_t rounds : {2u, 16u})
        check(*engine, left, right, {8, 8, 4}, {.kind = kind, .build_left = build_left}, {.rounds = rounds});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(OneStreamedJoin, KeepsTheProbeSideNowhere) {
  const auto engine = make_engine(1, Place::far);
  const auto bytes = [&](uint64_t probe) {
    return hash_join_device_bytes({8, 8}, 1 << 20, {8, 8}, probe, 1, {.kind = JoinKind::inner, .build_left = true}, 1, *engine);
  };
  EXPECT_EQ(bytes(uint64_t{1} << 30), bytes(uint64_t{1} << 33));
}

TEST(JoinOperators, GiveTheSameRowsInTheSameOrderOnEveryRun) {
  for (const Place place : {Place::host, Place::far}) {
    const auto engine = make_engine(3, place);
    std::mt19937_64 random(23);
    const JoinKeys keys = make_keys(*engine, draw(random, 5000, 700, 0, 8), draw(random, 5000, 700, 0, 8), {});
    for (const Plan& plan : {Plan{.partitions = 64}, Plan{.rounds = 2}, Plan{.merge = true}}) {
      Job job;
      const JoinRows first = join(*engine, keys, {.kind = JoinKind::full}, plan, job);
      for (int again = 0; again < 3; ++again) {
        const JoinRows rows = join(*engine, keys, {.kind = JoinKind::full}, plan, job);
        ASSERT_EQ(rows.size, first.size);
        EXPECT_EQ(std::memcmp(rows.left.data(), first.left.data(), rows.size * 4), 0);
        EXPECT_EQ(std::memcmp(rows.right.data(), first.right.data(), rows.size * 4), 0);
      }
    }
  }
}

TEST(JoinOperators, RefuseWhatTheyCannotDo) {
  const auto engine = make_engine(2, Place::far);
  const JoinKeys keys = make_keys(*engine, Rows(3, 1), Rows(3, 1), {});
  Job job;
  const auto code = [&](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code([&] { hash_join(*engine, keys, {}, {{0}, 3, 0}, job); }), ErrorCode::option);
  EXPECT_EQ(code([&] { hash_join(*engine, keys, {}, {{0}, 1, 5}, job); }), ErrorCode::option);
  EXPECT_EQ(code([&] { hash_join(*make_engine(2, Place::host), keys, {}, {{0, 1}, 2, 0}, job); }), ErrorCode::option);
  EXPECT_EQ(code([&] { hash_join(*engine, keys, {}, {{}, 1, 1}, job); }), ErrorCode::option);
  EXPECT_EQ(code([&] { hash_join(*engine, keys, {}, {{2}, 1, 1}, job); }), ErrorCode::option);
  EXPECT_EQ(code([&] {
              hash_join(*engine, keys, {.kind = JoinKind::left, .want_keys = true}, {{0}, 1, 0}, job);
            }),
            ErrorCode::not_supported);
  EXPECT_EQ(code([&] { join(*engine, keys, {}, {.merge = true, .subpartitions = 2}, job); }), ErrorCode::option);
}

TEST(CrossJoin, GivesEveryPairAndRefusesTooMany) {
  const auto engine = make_engine(1);
  Job job;
  for (const auto& [left, right] :
       {std::pair{700, 900}, std::pair{0, 5}, std::pair{5, 0}, std::pair{1, 300000}, std::pair{300000, 1}}) {
    const auto l = static_cast<uint64_t>(left), r = static_cast<uint64_t>(right);
    const JoinRows rows = cross_join(*engine, l, r, l * r, true, 0, UINT64_MAX, job);
    ASSERT_EQ(rows.size, l * r);
    ASSERT_EQ(rows.left_layout.value_bytes, 4);
    for (uint64_t i = 0; i < rows.size; ++i) {
      ASSERT_EQ(rows.left.as<uint32_t>()[i], i / r);
      ASSERT_EQ(rows.right.as<uint32_t>()[i], i % r);
    }
  }
  EXPECT_EQ(job.done(), job.planned());
  const size_t used = engine->memory->used_bytes();
  EXPECT_THROW(cross_join(*engine, 10, 10, 99, true, 0, UINT64_MAX, job), Error);
  EXPECT_THROW(cross_join(*engine, uint64_t{1} << 33, uint64_t{1} << 33, UINT64_MAX, true, 0, UINT64_MAX, job), Error);
  EXPECT_THROW(cross_join(*engine, uint64_t{1} << 31, uint64_t{1} << 32, UINT64_MAX, true, 0, UINT64_MAX, job), Error);
  EXPECT_EQ(engine->memory->used_bytes(), used);
}

}  // namespace
}  // namespace warpjoin
