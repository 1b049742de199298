// Match ranges on real GPUs, against plain loops.
#include <gtest/gtest.h>

#include "gpu_memory.h"
#include "match_range_cases.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

using namespace test;
using testing::Guarded;
using testing::narrow;
using Bench = testing::GpuBench;

// Around a row of lanes, and around the tiles of 2816 tuples of both relations.
constexpr uint64_t kBuildSizes[] = {0, 1, 31, 33, 1407, 2815, 2816, 2817, 30001};
constexpr uint64_t kProbeSizes[] = {0, 1, 2, 64, 1409, 2816, 5633, 40009};

/// Keys in device memory that start `shift` elements after a boundary.
struct GuardedKeys {
  GuardedKeys(Bench& bench, TupleLayout layout, const std::vector<uint64_t>& keys, uint64_t shift)
      : bytes(narrow(keys, layout.key_bytes)), memory(bench.device, *bench.stream, bytes.size(), shift * layout.key_bytes) {
    bench.upload(memory.data(), bytes);
    view = {memory.data(), nullptr, 0, keys.size()};
  }

  std::vector<unsigned char> bytes;
  Guarded memory;
  TupleView view;
};

template <class Range>
void check_written(Bench& bench, TupleLayout layout, const GuardedKeys& build, const GuardedKeys& probe, const Guarded& scratch,
                   const std::vector<MatchRange>& expected) {
  constexpr uint8_t kRowBytes = sizeof(Range) / 4;
  Primitives& primitives = bench.device.primitives();
  uint64_t count = 0xBAD;
  primitives.match_ranges(layout, build.view, layout, probe.view, nullptr, kRowBytes, &count, scratch.data(), bench.job,
                          *bench.stream);
  bench.stream->synchronize();
  ASSERT_EQ(count, expected.size());
  const Guarded ranges(bench.device, *bench.stream, count * sizeof(Range), 0);  // as many as there are
  count = 0xBAD;
  primitives.match_ranges(layout, build.view, layout, probe.view, ranges.data(), kRowBytes, &count, scratch.data(), bench.job,
                          *bench.stream);
  const std::vector<unsigned char> found = ranges.read(*bench.stream);
  ASSERT_EQ(count, expected.size());
  for (uint64_t i = 0; i < count; ++i) {
    Range range;
    std::memcpy(&range, &found[i * sizeof(Range)], sizeof(Range));
    ASSERT_EQ((MatchRange{range.build_begin, range.build_end, range.probe_begin, range.probe_end}), expected[i]) << i;
  }
  if constexpr (std::is_same_v<Range, NarrowMatchRange>) {
    MatchSums sums{1, 2, 3, 4};
    primitives.sum_ranges(reinterpret_cast<const Range*>(ranges.data()), count, &sums, bench.job, *bench.stream);
    bench.stream->synchronize();
    ASSERT_EQ(sums, sums_of(expected));
  }
}

void check_ranges(Bench& bench, TupleLayout layout, const std::vector<uint64_t>& build, const std::vector<uint64_t>& probe) {
  const std::vector<MatchRange> expected = expected_ranges(build, probe);
  const GuardedKeys r(bench, layout, build, 1), s(bench, layout, probe, 3);
  const size_t scratch_bytes = bench.device.primitives().match_ranges_scratch_bytes(layout, build.size(), layout, probe.size());
  const Guarded scratch(bench.device, *bench.stream, scratch_bytes, 0);
  check_written<MatchRange>(bench, layout, r, s, scratch, expected);
  check_written<NarrowMatchRange>(bench, layout, r, s, scratch, expected);
  EXPECT_TRUE(r.memory.read(*bench.stream) == r.bytes) << "the input was changed";
  EXPECT_TRUE(s.memory.read(*bench.stream) == s.bytes) << "the input was changed";
  scratch.read(*bench.stream);
}

TEST(GpuMatchRanges, FindsEqualKeysOfEveryDistributionAndSize) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  std::mt19937_64 random(1);
  for (const TupleLayout layout : {TupleLayout{4, 0}, TupleLayout{8, 0}}) {
    for (const Distribution& distribution : kDistributions) {
      for (const uint64_t build_size : kBuildSizes) {
        for (const uint64_t probe_size : kProbeSizes) {
          SCOPED_TRACE(describe(layout, distribution.name, build_size, 0) + " probe " + std::to_string(probe_size));
          const SortedPair sides(layout, distribution, build_size, probe_size, random);
          check_ranges(bench, layout, sides.build, sides.probe);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(GpuMatchRanges, FindsOneHeavyKeyAmongManyLightOnes) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{256} << 20);
  std::mt19937_64 random(2);
  for (const TupleLayout layout : {TupleLayout{4, 0}, TupleLayout{8, 0}}) {
    for_heavy_keys(layout, 200'000, 300'000, random,
                   [&](const auto& build, const auto& probe) { check_ranges(bench, layout, build, probe); });
  }
}

TEST(GpuMatchRanges, FindsFewOrNoMatchesAmongInterleavedKeys) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  const TupleLayout layout{4, 0};
  const auto even = generate(100'000, [](uint64_t i) { return 2 * i; });
  auto odd = generate(100'000, [](uint64_t i) { return 2 * i + 1; });
  check_ranges(bench, layout, even, odd);
  for (const uint64_t i : {0, 40'000, 70'003, 99'999}) odd[i] = 2 * i;
  check_ranges(bench, layout, even, odd);
  const auto far = generate(50'000, [](uint64_t i) { return 1'000'000 + i; });
  check_ranges(bench, layout, even, far);
  check_ranges(bench, layout, far, even);
}

// Runs of every length, so that tiles begin and end anywhere in them.
TEST(GpuMatchRanges, FindsRunsThatTilesCut) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{256} << 20);
  std::mt19937_64 random(3);
  for (const TupleLayout layout : {TupleLayout{4, 0}, TupleLayout{8, 0}}) {
    for (const uint64_t most : {2, 10, 300, 3000, 20'000}) {
      const auto runs = [&] {
        std::vector<uint64_t> keys;
        for (uint64_t key = 0; keys.size() < 200'000; key += 1 + random() % 2) keys.insert(keys.end(), 1 + random() % most, key);
        return keys;
      };
      check_ranges(bench, layout, runs(), runs());
      if (HasFailure()) return;
    }
  }
}

TEST(GpuMatchRanges, FindsMillions) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench;
  std::mt19937_64 random(4);
  for (const TupleLayout layout : {TupleLayout{4, 0}, TupleLayout{8, 0}}) {
    for (const size_t distribution : {size_t{0}, size_t{1}, size_t{12}}) {  // uniform, sorted, zipf
      SCOPED_TRACE(describe(layout, kDistributions[distribution].name, 0, 0));
      const SortedPair sides(layout, kDistributions[distribution], 3'000'001, 4'000'003, random);
      check_ranges(bench, layout, sides.build, sides.probe);
      if (HasFailure()) return;
    }
    // One side tiny: tiles of the other side alone.
    const SortedPair uneven(layout, kDistributions[0], 101, 9'000'000, random);
    check_ranges(bench, layout, uneven.build, uneven.probe);
    check_ranges(bench, layout, uneven.probe, uneven.build);
  }
}

// 2^32 and some keys of two kinds, written with fills.
TEST(GpuMatchRanges, FindsRunsPast32Bits) {
  SKIP_WITHOUT_GPUS(1);
  constexpr uint64_t kLow = (uint64_t{1} << 32) + 12'345, kHigh = 1'000'003;
  constexpr TupleLayout layout{4, 0};
  const size_t bytes = size_t{40} << 30;
  if (visible_gpus()[0].memory_bytes < bytes + (size_t{4} << 30)) GTEST_SKIP() << "needs a GPU with 44 GiB of memory";
  Bench bench(bytes);
  Device& device = bench.device;
  const Buffer build = device.memory().allocate((kLow + kHigh) * 4), probe = device.memory().allocate((kLow + kHigh) * 4);
  device.fill(build.data(), 0x01, kLow * 4, *bench.stream);
  device.fill(build.as<char>() + kLow * 4, 0x80, kHigh * 4, *bench.stream);
  device.fill(probe.data(), 0x01, kHigh * 4, *bench.stream);
  device.fill(probe.as<char>() + kHigh * 4, 0x80, kLow * 4, *bench.stream);
  constexpr uint64_t size = kLow + kHigh;
  const Buffer scratch = device.memory().allocate(device.primitives().match_ranges_scratch_bytes(layout, size, layout, size));
  const Buffer ranges = device.memory().allocate(2 * sizeof(MatchRange));
  uint64_t count = 0;
  device.primitives().match_ranges(layout, {build.data(), nullptr, 0, size}, layout, {probe.data(), nullptr, 0, size},
                                   ranges.data(), 8, &count, scratch.data(), bench.job, *bench.stream);
  bench.stream->synchronize();
  ASSERT_EQ(count, 2u);
  MatchRange found[2];
  device.copy(found, ranges.data(), sizeof(found), *bench.stream);
  bench.stream->synchronize();
  EXPECT_EQ(found[0], (MatchRange{0, kLow, 0, kHigh}));
  EXPECT_EQ(found[1], (MatchRange{kLow, size, kHigh, size}));
}

TEST(GpuMatchRanges, AddUpPast64Bits) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  constexpr uint32_t kMost = UINT32_MAX;
  const std::vector<NarrowMatchRange> ranges(1'000'000, {0, kMost, 1, kMost});
  const Buffer there = bench.device.memory().allocate(ranges.size() * sizeof(NarrowMatchRange));
  bench.device.copy(there.data(), ranges.data(), there.size(), *bench.stream);
  MatchSums sums;
  bench.device.primitives().sum_ranges(there.as<NarrowMatchRange>(), ranges.size(), &sums, bench.job, *bench.stream);
  bench.stream->synchronize();
  const auto pairs = static_cast<unsigned __int128>(ranges.size()) * kMost * (kMost - 1);
  EXPECT_TRUE((static_cast<unsigned __int128>(sums.pairs_high) << 32) + sums.pairs_low == pairs);
  EXPECT_EQ(sums.build_rows, ranges.size() * kMost);
  EXPECT_EQ(sums.probe_rows, ranges.size() * (kMost - 1));
}

TEST(GpuMatchRanges, StopsWhenCancelled) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{1} << 20);
  uint64_t count;
  bench.job.cancel();
  EXPECT_THROW(
      bench.device.primitives().match_ranges({8, 0}, {}, {8, 0}, {}, nullptr, 8, &count, nullptr, bench.job, *bench.stream),
      Error);
}

// Small enough for compute-sanitizer.
TEST(GpuMatchRanges, FindsAFewForTheSanitizers) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  std::mt19937_64 random(5);
  for (const TupleLayout layout : {TupleLayout{4, 0}, TupleLayout{8, 0}}) {
    for (const size_t distribution : {size_t{0}, size_t{4}, size_t{7}, size_t{12}}) {  // uniform, all equal, small range, zipf
      const SortedPair sides(layout, kDistributions[distribution], 9001, 13'001, random);
      check_ranges(bench, layout, sides.build, sides.probe);
    }
    const SortedPair one(layout, kDistributions[0], 1, 1, random);
    check_ranges(bench, layout, one.build, one.probe);
  }
}

}  // namespace
}  // namespace warpjoin
