#include <gtest/gtest.h>

#include "tuple_data.h"

namespace warpjoin {
namespace {

using namespace test;

std::vector<uint64_t> sorted_keys(TupleLayout layout, std::vector<uint64_t> keys) {
  for (uint64_t& key : keys) key = cut(layout, key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

void check_ranges(HostBench& bench, TupleLayout build_layout, const std::vector<uint64_t>& build, TupleLayout probe_layout,
                  const std::vector<uint64_t>& probe) {
  TupleArray r(build_layout, build.size(), 1), s(probe_layout, probe.size(), 3);
  for (uint64_t i = 0; i < build.size(); ++i) r.set(i, build[i], i);
  for (uint64_t i = 0; i < probe.size(); ++i) s.set(i, probe[i], i);
  std::vector<MatchRange> expected;
  for (auto i = build.begin(), j = probe.begin(); i != build.end();) {
    const auto i_end = std::upper_bound(i, build.end(), *i), j_end = std::upper_bound(j, probe.end(), *i);
    j = std::lower_bound(j, j_end, *i);
    const auto row = [](auto begin, auto at) { return static_cast<uint64_t>(at - begin); };
    if (j != j_end) {
      expected.push_back({row(build.begin(), i), row(build.begin(), i_end), row(probe.begin(), j), row(probe.begin(), j_end)});
    }
    i = i_end;
    j = j_end;
  }
  uint64_t count = 0xBAD;
  Primitives& primitives = bench.primitives();
  primitives.match_ranges(build_layout, r.view(), probe_layout, s.view(), nullptr, &count, nullptr, bench.job, *bench.stream);
  bench.stream->synchronize();
  ASSERT_EQ(count, expected.size());
  std::vector<MatchRange> ranges(count);  // exactly as many as there are: ASan sees a write past them
  primitives.match_ranges(build_layout, r.view(), probe_layout, s.view(), ranges.data(), &count, nullptr, bench.job,
                          *bench.stream);
  bench.stream->synchronize();
  EXPECT_EQ(count, expected.size());
  EXPECT_TRUE(ranges == expected);
}

TEST(MatchRanges, FindsEqualKeysOfEveryDistributionAndSize) {
  std::mt19937_64 random(1);
  for (const unsigned threads : {1u, 2u, 3u, 8u}) {
    HostBench bench(threads);
    for (const TupleLayout layout : {TupleLayout{4, 4}, TupleLayout{8, 8}}) {
      for (const Distribution& distribution : kDistributions) {
        for (const uint64_t build_size : {0, 1, 33, 1000, 30000}) {
          for (const uint64_t probe_size : {0, 1, 2, 1000, 40000}) {
            SCOPED_TRACE(describe(layout, distribution.name, build_size, threads) + " probe " + std::to_string(probe_size));
            auto build = distribution.keys(build_size, random), probe = distribution.keys(probe_size, random);
            for (uint64_t& key : probe) {
              if (build_size && random() % 2) key = build[random() % build_size];
            }
            check_ranges(bench, layout, sorted_keys(layout, build), {layout.key_bytes, 0}, sorted_keys(layout, probe));
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(MatchRanges, FindsOneHeavyKeyAmongManyLightOnes) {
  std::mt19937_64 random(2);
  HostBench bench(3);
  const TupleLayout layout{8, 0};
  for (const uint64_t heavy : {0ull, 500000ull, ~0ull}) {
    auto build = generate(200000, [&](uint64_t i) { return i % 2 ? heavy : random() % 1000000; });
    auto probe = generate(300000, [&](uint64_t i) { return i % 10 ? heavy : random() % 1000000; });
    check_ranges(bench, layout, sorted_keys(layout, build), layout, sorted_keys(layout, probe));
  }
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

TEST(MatchRanges, StopsWhenCancelled) {
  HostBench bench(2);
  TupleArray r({8, 0}, 10), s({8, 0}, 10);
  for (uint64_t i = 0; i < 10; ++i) {
    r.set(i, i, 0);
    s.set(i, i, 0);
  }
  uint64_t count;
  bench.job.cancel();
  bench.primitives().match_ranges({8, 0}, r.view(), {8, 0}, s.view(), nullptr, &count, nullptr, bench.job, *bench.stream);
  EXPECT_THROW(bench.stream->synchronize(), Error);
}

}  // namespace
}  // namespace warpjoin
