// Hash joins that spill, whose results grow round by round.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "join/join.h"
#include "join_cases.h"
#include "places.h"

namespace warpjoin {
namespace {

using namespace testing;

constexpr uint32_t kRounds = 4;

/// The first key above `least` that is joined in round r.
uint64_t key_in_round(uint64_t r, uint64_t least) {
  while (mix_key(least) >> 62 != r) ++least;
  return least;
}

/// 300 times 1000 pairs of one key, whose columns of 8 bytes are mapped, and few of others; rows without a match on either side.
struct Sides {
  Rows left, right;

  explicit Sides(uint64_t hot_round) {
    std::mt19937_64 random(3);
    const uint64_t hot = key_in_round(hot_round, 1'000'000);
    for (int i = 0; i < 2000; ++i) left.push_back(random() % 3000), right.push_back(random() % 3000);
    left.insert(left.end(), 300, hot);
    right.insert(right.end(), 1000, hot);
    left.push_back({});
    right.push_back({});
  }
};

class JoinRounds : public ::testing::TestWithParam<Setup> {};
INSTANTIATE_TEST_SUITE_P(Devices, JoinRounds, ::testing::Combine(::testing::Values(1, 3), ::testing::Values(Place::far)),
                         name_of_setup);

TEST_P(JoinRounds, GiveAllRowsWhicheverRoundHasMost) {
  const auto engine = make_engine(GetParam());
  for (uint64_t r = 0; r < kRounds; ++r) {
    const Sides sides(r);
    for (const JoinKind kind : {JoinKind::inner, JoinKind::full}) {
      check(*engine, sides.left, sides.right, {8, 8, 8}, {.kind = kind, .want_keys = kind == JoinKind::inner},
            {.rounds = kRounds});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(JoinRounds, FindMemoryThatIsKeptOfAResultAsLarge) {
  const auto engine = make_engine(GetParam());
  Rows left, right;
  for (uint64_t key = 0, k = 0; k < 2000; ++k) {
    key = key_in_round(k % kRounds, key + 1);
    left.insert(left.end(), 10, key);
    right.insert(right.end(), 97, key);
  }
  const JoinKeys keys = make_keys(*engine, left, right, {8, 8, 8});
  // Behind the rows, on their last page, is a mark on pages that have been used before, and nothing on fresh ones.
  for (const uint64_t behind : {0, 42}) {
    Job job;
    const JoinRows rows = join(*engine, keys, {}, {.rounds = kRounds}, job);
    ASSERT_EQ(rows.size, left.size() * 97);
    ASSERT_GT(rows.size * 8 / kRounds, size_t{3} << 20);
    for (const HostBuffer* column : {&rows.left, &rows.right}) {
      uint64_t& mark = column->as<uint64_t>()[rows.size];
      if (behind) EXPECT_EQ(mark, behind);
      mark = 42;
    }
  }
}

/// The first round has nearly all pairs, so that as many in each would be far beyond the limit.
TEST_P(JoinRounds, FitAMemoryLimitThatHoldsTheCutTuplesAndTheRows) {
  const auto [devices, place] = GetParam();
  const Sides sides(0);
  for (const JoinKind kind : kKinds) {
    const JoinRequest request{.kind = kind};
    const std::vector<Row> expected = naive(sides.left, sides.right, request);
    const size_t side_bytes = (sides.left.size() + sides.right.size()) * 16;
    const size_t ring = size_t{1} << 20;
    EngineConfig config{.threads = 3, .host_devices = devices, .transfer_block_bytes = size_t{64} << 10};
    // The tuples, cut and not, and the columns, each of which may lack some of its last page, and a small one that is copied as
    // it grows.
    config.memory_limit_bytes = 3 * side_bytes + 2 * (expected.size() * 8 + (size_t{2} << 20)) + (size_t{2} << 20) + ring;
    config.device_memory_limit_bytes = size_t{1} << 30;
    const auto engine = make_far_engine(config, true);
    const JoinKeys keys = make_keys(*engine, sides.left, sides.right, {8, 8, 8});
    Job job;
    const JoinRows rows = join(*engine, keys, request, {.rounds = kRounds}, job);
    ASSERT_EQ(read(rows, request), expected);
  }
}

/// The second round's tuples come to one device, whose memory has to grow while the first round's rows wait there: by room for
/// rows, too, or by all that there is.
TEST_P(JoinRounds, GrowDeviceMemoryThatRowsWaitIn) {
  const auto [devices, place] = GetParam();
  std::mt19937_64 random(5);
  Rows left, right;
  for (int i = 0; i < 20000; ++i) left.push_back(random() % 30000), right.push_back(random() % 30000);
  const uint64_t hot = key_in_round(1, 1'000'000);
  left.push_back(hot);
  right.insert(right.end(), 100000, hot);
  for (const size_t limit : {size_t{0}, size_t{devices == 1 ? 8u : 6u} << 20}) {
    for (const JoinKind kind : kKinds) {
      const auto engine = make_engine(devices, place, limit);
      check(*engine, left, right, {8, 8, 8}, {.kind = kind}, {.rounds = kRounds});
      if (HasFatalFailure()) return;
    }
  }
}

/// One key has most of the build side, and no device has room for its tuples at once: they come in blocks. The other side has a
/// few of it, or none in its partition.
TEST_P(JoinRounds, JoinInBlocksWhatNoDeviceHolds) {
  const auto [devices, place] = GetParam();
  std::mt19937_64 random(9);
  Rows few, many;
  for (int i = 0; i < 4000; ++i) few.push_back(random() % 6000), many.push_back(random() % 6000);
  const uint64_t hot = key_in_round(1, 1'000'000);
  few.insert(few.end(), 3, hot);
  many.insert(many.end(), 60000, hot);
  constexpr uint32_t kMany = 64;
  const auto any = make_engine(GetParam());
  const size_t limit = hash_join_device_bytes({8, 8}, many.size(), {8, 8}, few.size(), devices, {}, kMany, *any);
  for (const bool none : {false, true}) {
    if (none) few = {key_in_round(0, 1), key_in_round(3, 1)};
    for (const JoinKind kind : kKinds) {
      for (const bool build_left : {false, true}) {
        const auto engine = make_engine(devices, place, limit + limit / 16);
        check(*engine, build_left ? many : few, build_left ? few : many, {8, 8, 8}, {.kind = kind, .build_left = build_left},
              {.rounds = kMany});
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// One key has most of either side, and no device has room for it. A full join can't go on then: it asks both sides which rows
/// have no match.
TEST_P(JoinRounds, CountInBlocksPairsOfAKeyThatFillsBothSides) {
  const auto [devices, place] = GetParam();
  constexpr uint64_t kHot = 70'000, kOthers = 5000;
  Rows left(kHot, 7), right(kHot, 7);
  for (uint64_t i = 0; i < kOthers; ++i) left.push_back(1000 + 2 * i), right.push_back(1001 + 2 * i);
  constexpr uint32_t kMany = 64;
  const auto any = make_engine(GetParam());
  const size_t limit = hash_join_device_bytes({8, 8}, left.size(), {8, 8}, right.size(), devices, {}, kMany, *any);
  const auto engine = make_engine(devices, place, limit + limit / 16);
  const JoinKeys keys = make_keys(*engine, left, right, {8, 8, 8});
  for (const bool build_left : {false, true}) {
    const auto count = [&](JoinKind kind) {
      Job job;
      const JoinRequest request{.kind = kind, .build_left = build_left, .count_only = true};
      const uint64_t size = join(*engine, keys, request, {.rounds = kMany}, job).size;
      EXPECT_EQ(job.done(), job.planned());
      return size;
    };
    EXPECT_EQ(count(JoinKind::inner), kHot * kHot);
    EXPECT_EQ(count(JoinKind::left), kHot * kHot + kOthers);
    EXPECT_EQ(count(JoinKind::right), kHot * kHot + kOthers);
    EXPECT_EQ(count(JoinKind::semi), kHot);
    EXPECT_EQ(count(JoinKind::anti), kOthers);
    try {
      count(JoinKind::full);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::device_memory);
      EXPECT_NE(std::string(error.what()).find("full join"), std::string::npos) << error.what();
    }
    EXPECT_EQ(count(JoinKind::inner), kHot * kHot) << "the engine works";
  }
}

}  // namespace
}  // namespace warpjoin
