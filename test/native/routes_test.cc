// Which devices join the tuples of a partition.
#include "join/routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace warpjoin::streaming {
namespace {

using Rows = std::vector<uint64_t>;

bool goes(const Routes& routes, bool build, size_t from, size_t to, uint32_t partition) {
  const auto& ranges = routes.of(build, from, to);
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const PartitionRange& range) { return range.begin <= partition && partition < range.end; });
}

constexpr uint32_t kFirst = 7;  // of the partitions
PartitionRange range_of(const Rows& rows) { return {kFirst, kFirst + static_cast<uint32_t>(rows.size())}; }

/// How many of each side's tuples a device joins, of tuples that came to all devices evenly.
Rows joined(const Routes& routes, size_t devices, const Rows& build, const Rows& probe) {
  Rows rows(devices);
  for (const bool of_build : {true, false}) {
    for (size_t from = 0; from < devices; ++from) {
      for (size_t to = 0; to < devices; ++to) {
        for (uint32_t p = 0; p < build.size(); ++p) {
          if (goes(routes, of_build, from, to, kFirst + p)) rows[to] += (of_build ? build : probe)[p] / devices;
        }
      }
    }
  }
  return rows;
}

/// Even, but for a few partitions.
Rows draw_rows(std::mt19937_64& random, uint32_t partitions, int heavy) {
  Rows rows(partitions);
  for (uint64_t& of : rows) of = 100'000 + random() % 1000;
  for (int h = 0; h < heavy; ++h) rows[random() % partitions] += 500'000 + random() % 5'000'000;
  return rows;
}

/// Each key once, but for every other tuple of the second half, which have one.
TEST(KeySample, TellsHowManyTuplesHaveTheKeyOfOthers) {
  constexpr uint64_t kRows = 200'000, kHot = 7;
  constexpr uint32_t kBits = 4;
  Rows keys(kRows);
  for (uint64_t i = 0; i < kRows; ++i) keys[i] = i >= kRows / 2 && i % 2 ? kHot : 1000 + i;
  const KeySample sample({8, 0}, {keys.data(), nullptr, 0, kRows});
  const Rows rows = sample.rows_of_partitions(kBits, kRows);
  const uint64_t hot = mix_key(kHot) >> (64 - kBits);
  for (uint32_t p = 0; p < rows.size(); ++p) {
    const double even = 0.75 * kRows / static_cast<double>(rows.size()), repeated = p == hot ? 0.25 * kRows : 0;
    EXPECT_NEAR(static_cast<double>(rows[p]), even + repeated, 0.02 * kRows);
    EXPECT_NEAR(static_cast<double>(sample.repeats_of_partition(p, kBits, kRows)), repeated, 0.02 * kRows);
    EXPECT_EQ(KeySample().repeats_of_partition(p, kBits, kRows), 0u);
  }
  EXPECT_EQ(KeySample().rows_of_partitions(kBits, kRows), Rows(rows.size(), kRows >> kBits));
}

TEST(Routes, LetEachPairOfTuplesMeetOnOneDevice) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const size_t devices = std::vector<size_t>{1, 2, 3, 4, 8}[random() % 5];
    const auto partitions = static_cast<uint32_t>(32 + random() % 40);
    const Rows build = draw_rows(random, partitions, static_cast<int>(random() % 3));
    const Rows probe = draw_rows(random, partitions, static_cast<int>(random() % 3));
    const bool splits_build = random() % 2, splits_probe = random() % 2, replicate = splits_probe && random() % 4 == 0;
    const Routes routes(devices, range_of(build), {build, splits_build}, {probe, splits_probe}, replicate);
    for (uint32_t p = kFirst; p < kFirst + partitions; ++p) {
      for (size_t b = 0; b < devices; ++b) {
        for (size_t q = 0; q < devices; ++q) {
          size_t met = 0;
          for (size_t to = 0; to < devices; ++to) met += goes(routes, true, b, to, p) && goes(routes, false, q, to, p);
          ASSERT_EQ(met, 1u) << "partition " << p << ", build tuples of " << b << ", probe tuples of " << q;
        }
      }
      for (size_t d = 0; d < devices; ++d) {
        const PartitionRange all = routes.all_of(d);
        for (const bool of_build : {true, false}) {
          for (size_t from = 0; from < devices; ++from) {
            if (goes(routes, of_build, from, d, p)) ASSERT_TRUE(all.begin <= p && p < all.end);
          }
          if (routes.split(of_build, p, d)) ASSERT_TRUE(of_build ? splits_build : splits_probe);
        }
      }
    }
  }
}

TEST(Routes, LeaveEachDeviceAboutAsMuch) {
  std::mt19937_64 random(5);
  for (const size_t devices : {2, 3, 4, 8}) {
    for (int round = 0; round < 20; ++round) {
      const Rows build = draw_rows(random, 64, 0);
      Rows probe = draw_rows(random, 64, round % 3);
      probe[random() % 64] += 8'000'000;
      const Routes routes(devices, range_of(build), {build, true}, {probe, true});
      const Rows rows = joined(routes, devices, build, probe);
      const double mean = std::accumulate(rows.begin(), rows.end(), 0.0) / static_cast<double>(devices);
      EXPECT_LT(static_cast<double>(*std::max_element(rows.begin(), rows.end())), 1.25 * mean);
      if (round % 3 == 0) EXPECT_TRUE(routes.splits());
      EXPECT_GE(routes.most_kept(), std::accumulate(build.begin(), build.end(), uint64_t{0}) / devices);
    }
    const Rows even = draw_rows(random, 64, 0);
    EXPECT_FALSE(Routes(devices, range_of(even), {even, true}, {even, true}).splits());
    const Rows hot = draw_rows(random, 64, 2);
    EXPECT_FALSE(Routes(devices, range_of(even), {even, false}, {hot, false}).splits()) << "no side's tuples may stay";
  }
}

TEST(KeySamples, TellHeavyPartitions) {
  std::vector<uint64_t> keys(200'000);
  for (uint64_t i = 0; i < keys.size(); ++i) keys[i] = i % 4 ? i : 77;
  const KeySample sample({8, 0}, {keys.data(), nullptr, 0, keys.size()});
  for (const uint32_t bits : {1u, 5u, 12u}) {
    const Rows rows = sample.rows_of_partitions(bits, keys.size());
    ASSERT_EQ(rows.size(), size_t{1} << bits);
    Rows expected(rows.size());
    for (const uint64_t key : keys) ++expected[mix_key(key) >> (64 - bits)];
    for (size_t p = 0; p < rows.size(); ++p) {
      EXPECT_NEAR(static_cast<double>(rows[p]), static_cast<double>(expected[p]), 0.03 * static_cast<double>(keys.size()));
    }
  }
  for (const uint64_t rows : KeySample().rows_of_partitions(5, 3200)) EXPECT_EQ(rows, 100u);
  for (const uint64_t rows : KeySample({8, 0}, {}).rows_of_partitions(5, 0)) EXPECT_EQ(rows, 0u);
}

}  // namespace
}  // namespace warpjoin::streaming
