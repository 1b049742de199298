#include <gtest/gtest.h>

#include "match_range_cases.h"

namespace warpjoin {
namespace {

using namespace test;

template <class Range>
void check_ranges(HostBench& bench, TupleLayout build_layout, TupleArray& build, TupleLayout probe_layout, TupleArray& probe,
                  const std::vector<MatchRange>& expected) {
  constexpr uint8_t kRowBytes = sizeof(Range) / 4;
  Primitives& primitives = bench.primitives();
  uint64_t count = 0xBAD;
  primitives.match_ranges(build_layout, build.view(), probe_layout, probe.view(), nullptr, kRowBytes, &count, nullptr, bench.job,
                          *bench.stream);
  bench.stream->synchronize();
  ASSERT_EQ(count, expected.size());
  std::vector<Range> ranges(count);  // exactly as many as there are: ASan sees a write past them
  primitives.match_ranges(build_layout, build.view(), probe_layout, probe.view(), ranges.data(), kRowBytes, &count, nullptr,
                          bench.job, *bench.stream);
  bench.stream->synchronize();
  EXPECT_EQ(count, expected.size());
  EXPECT_TRUE(std::equal(ranges.begin(), ranges.end(), expected.begin(), expected.end(), [](const Range& r, const MatchRange& e) {
    return MatchRange{r.build_begin, r.build_end, r.probe_begin, r.probe_end} == e;
  }));
  if constexpr (std::is_same_v<Range, NarrowMatchRange>) {
    MatchSums sums{1, 2, 3, 4};
    primitives.sum_ranges(ranges.data(), count, &sums, bench.job, *bench.stream);
    bench.stream->synchronize();
    EXPECT_EQ(sums, sums_of(expected));
  }
}

void check_ranges(HostBench& bench, TupleLayout build_layout, const std::vector<uint64_t>& build, TupleLayout probe_layout,
                  const std::vector<uint64_t>& probe) {
  TupleArray r(build_layout, build.size(), 1), s(probe_layout, probe.size(), 3);
  for (uint64_t i = 0; i < build.size(); ++i) r.set(i, build[i], i);
  for (uint64_t i = 0; i < probe.size(); ++i) s.set(i, probe[i], i);
  const std::vector<MatchRange> expected = expected_ranges(build, probe);
  check_ranges<MatchRange>(bench, build_layout, r, probe_layout, s, expected);
  check_ranges<NarrowMatchRange>(bench, build_layout, r, probe_layout, s, expected);
}

TEST(MatchRanges, ReadsNoKeyThatIsNotThere) {
  HostBenches benches;
  std::mt19937_64 random(9);
  for (uint64_t build_size = 1; build_size < 12; ++build_size) {
    for (uint64_t probe_size = 1; probe_size < 12; ++probe_size) {
      HostBench& bench = benches.draw(random);
      // Exactly as large as they are: ASan sees a read past them.
      const auto draw = [&](uint64_t size) {
        std::vector<uint64_t> keys(size);
        for (uint64_t& key : keys) key = random() % 6;
        std::sort(keys.begin(), keys.end());
        return keys;
      };
      const std::vector<uint64_t> build = draw(build_size), probe = draw(probe_size);
      std::vector<MatchRange> ranges(std::min(build_size, probe_size));
      uint64_t count = 0;
      bench.primitives().match_ranges({8, 0}, {build.data(), nullptr, 0, build_size}, {8, 0},
                                      {probe.data(), nullptr, 0, probe_size}, ranges.data(), 8, &count, nullptr, bench.job,
                                      *bench.stream);
      bench.stream->synchronize();
      ranges.resize(count);
      EXPECT_EQ(ranges, expected_ranges(build, probe));
    }
  }
}

TEST(MatchRanges, FindsEqualKeysOfEveryDistributionAndSize) {
  std::mt19937_64 random(1);
  HostBenches benches;
  for (const TupleLayout layout : {TupleLayout{4, 4}, TupleLayout{8, 8}}) {
    for (const Distribution& distribution : kDistributions) {
      for (const uint64_t build_size : {0, 1, 33, 1000, 30000}) {
        for (const uint64_t probe_size : {0, 1, 2, 1000, 40000}) {
          if (build_size == 30000 && probe_size == 40000 && random() % 3) continue;
          HostBench& bench = benches.draw(random);
          SCOPED_TRACE(describe(layout, distribution.name, build_size, bench.threads) + " probe " + std::to_string(probe_size));
          const SortedPair sides(layout, distribution, build_size, probe_size, random);
          check_ranges(bench, layout, sides.build, {layout.key_bytes, 0}, sides.probe);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(MatchRanges, FindsOneHeavyKeyAmongManyLightOnes) {
  std::mt19937_64 random(2);
  HostBench bench(3);
  const TupleLayout layout{8, 0};
  for_heavy_keys(layout, 200000, 300000, random,
                 [&](const auto& build, const auto& probe) { check_ranges(bench, layout, build, layout, probe); });
}

TEST(MatchRanges, FindsFewOrNoMatchesAmongInterleavedKeys) {
  HostBench bench(2);
  const TupleLayout layout{4, 0};
  const auto even = generate(100000, [](uint64_t i) { return 2 * i; });
  auto odd = generate(100000, [](uint64_t i) { return 2 * i + 1; });
  check_ranges(bench, layout, even, layout, odd);
  for (const uint64_t i : {0, 40000, 70003, 99999}) odd[i] = 2 * i;
  check_ranges(bench, layout, even, layout, odd);
}

TEST(MatchRanges, AddUpPast64Bits) {
  constexpr uint32_t kMost = UINT32_MAX;
  const std::vector<NarrowMatchRange> ranges(100'000, {0, kMost, 1, kMost});
  for (const unsigned threads : {1, 3}) {
    HostBench bench(threads);
    MatchSums sums;
    bench.primitives().sum_ranges(ranges.data(), ranges.size(), &sums, bench.job, *bench.stream);
    bench.stream->synchronize();
    const auto pairs = static_cast<unsigned __int128>(ranges.size()) * kMost * (kMost - 1);
    EXPECT_TRUE((static_cast<unsigned __int128>(sums.pairs_high) << 32) + sums.pairs_low == pairs);
    EXPECT_EQ(sums.build_rows, ranges.size() * kMost);
    EXPECT_EQ(sums.probe_rows, ranges.size() * (kMost - 1));
  }
}

TEST(MatchRanges, StopsWhenCancelled) {
  HostBench bench(2);
  TupleArray r({8, 0}, 10), s({8, 0}, 10);
  for (uint64_t i = 0; i < 10; ++i) {
    r.set(i, i, 0);
    s.set(i, i, 0);
  }
  uint64_t count;
  bench.job.cancel();
  bench.primitives().match_ranges({8, 0}, r.view(), {8, 0}, s.view(), nullptr, 8, &count, nullptr, bench.job, *bench.stream);
  EXPECT_THROW(bench.stream->synchronize(), Error);
}

}  // namespace
}  // namespace warpjoin
