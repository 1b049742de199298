#include <gtest/gtest.h>

#include <array>

#include "primitives/host/radix_scatter.h"
#include "tuple_data.h"

namespace warpjoin {
namespace {

using namespace test;

constexpr uint64_t kPoison = 0xBADBADBADBADBAD;

void check_ranges(HostBench& bench, TupleLayout layout, const std::vector<uint64_t>& keys, const std::vector<uint64_t>& bounds,
                  bool implied, uint64_t in_shift, uint64_t out_shift, uint64_t flip = 0) {
  const uint64_t size = keys.size(), first = 1000;
  const size_t ranges = bounds.size() + 1;
  TupleArray in(layout, size, in_shift), out(layout, size, out_shift), expected(layout, size);
  std::vector<std::vector<uint64_t>> groups(ranges);
  for (uint64_t i = 0; i < size; ++i) {
    in.set(i, keys[i], i * 5);
    groups[std::upper_bound(bounds.begin(), bounds.end(), cut(layout, keys[i] ^ flip)) - bounds.begin()].push_back(i);
  }
  std::vector<uint64_t> expected_offsets{0}, offsets(ranges + 2, kPoison);
  uint64_t at = 0;
  for (const auto& group : groups) {
    for (const uint64_t i : group) expected.set(at++, keys[i] ^ flip, implied ? first + i : i * 5);
    expected_offsets.push_back(at);
  }
  expected_offsets.push_back(kPoison);  // nothing is written behind the last one
  const Scratch scratch(bench.primitives().partition_ranges_scratch_bytes(layout, size, ranges));
  {
    const std::vector<uint64_t> until_the_call = bounds;
    bench.primitives().partition_ranges(layout, in.view(implied && layout.value_bytes, first), flip, until_the_call, out.span(),
                                        offsets.data(), scratch.data(), bench.job, *bench.stream);
  }
  bench.stream->synchronize();
  EXPECT_EQ(offsets, expected_offsets);
  EXPECT_TRUE(out == expected);
  EXPECT_TRUE(out.guarded());
}

TEST(RangePartitionPrimitive, GroupsEveryLayoutAndDistribution) {
  const std::vector<size_t> counts = {0, 1, 2, 16, 254, 255};
  std::mt19937_64 random(1);
  HostBenches benches;
  for (const TupleLayout layout : kLayouts) {
    for (const Distribution& distribution : kDistributions) {
      for (const uint64_t size : {0, 1, 2, 7, 8, 9, 31, 1001, 70001}) {
        if (size == 70001 && random() % 3) continue;
        const size_t only = random() % counts.size();  // the large size takes one of the counts
        for (size_t c = size > 2000 ? only : 0; c < (size > 2000 ? only + 1 : counts.size()); ++c) {
          HostBench& bench = benches.draw(random);
          SCOPED_TRACE(describe(layout, distribution.name, size, bench.threads) + " bounds " + std::to_string(counts[c]));
          auto keys = distribution.keys(size, random);
          if (size && random() % 2) keys[random() % size] = random() % 2 ? ~uint64_t{0} : 0;
          check_ranges(bench, layout, keys, draw_bounds(layout, keys, counts[c], random), random() % 2, random() % 4,
                       random() % 17);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(RangePartitionPrimitive, GroupsByEveryNumberOfBounds) {
  std::mt19937_64 random(2);
  HostBench bench(2);
  for (const TupleLayout layout : {TupleLayout{4, 4}, TupleLayout{8, 8}}) {
    for (size_t count = 0; count < Primitives::kMostRanges; ++count) {
      SCOPED_TRACE(describe(layout, "around the bounds", 0, 2) + " bounds " + std::to_string(count));
      const auto bounds = draw_bounds(layout, {}, count, random);
      std::vector<uint64_t> keys = {0, ~uint64_t{0}};
      for (const uint64_t bound : bounds) keys.insert(keys.end(), {bound - 1, bound, bound + 1});
      std::shuffle(keys.begin(), keys.end(), random);
      check_ranges(bench, layout, keys, bounds, false, 0, 0);
      if (HasFailure()) return;
    }
  }
}

TEST(RangePartitionPrimitive, SharesManyBlocksAmongThreads) {
  std::mt19937_64 random(3);
  HostBench two(2), eight(8);
  for (size_t turn = 0; turn < kLayouts.size(); ++turn) {
    HostBench& bench = turn % 2 ? two : eight;
    const TupleLayout layout = kLayouts[turn];
    const uint64_t size = turn % 2 ? 140'001 : 600'001;  // all the blocks that so many threads share
    SCOPED_TRACE(describe(layout, "uniform", size, bench.threads));
    const auto keys = kDistributions[0].keys(size, random);
    check_ranges(bench, layout, keys, draw_bounds(layout, keys, 16, random), true, 1, 3);
    if (HasFailure()) return;
  }
}

TEST(RangePartitionPrimitive, StreamsLargeOutputsAtAnyAlignment) {
  std::mt19937_64 random(4);
  HostBench bench(2);
  // The other layouts are streamed into partitions, by the same code.
  for (size_t turn = 0; turn < kLayouts.size(); turn += 2) {
    const TupleLayout layout = kLayouts[turn];
    const uint64_t size = host::kStreamBytes / layout.tuple_bytes() + 1001;
    const uint64_t shift = std::array{1, 0, 8}[turn % 3];
    SCOPED_TRACE(describe(layout, "uniform", size, 2) + " shift " + std::to_string(shift));
    const auto keys = kDistributions[0].keys(size, random);
    check_ranges(bench, layout, keys, draw_bounds(layout, keys, 255, random), random() % 2, 0, shift);
    if (HasFailure()) return;
  }
}

TEST(RangePartitionPrimitive, LeavesRangesBeyondTheKeyWidthEmpty) {
  HostBench bench(2);
  const std::vector<uint64_t> keys = {0xFFFFFFFF, 0, 7, 0xFFFFFFFE, 7, 0xFFFFFFFF};
  for (const TupleLayout layout : {TupleLayout{4, 0}, TupleLayout{4, 4}, TupleLayout{4, 8}}) {
    check_ranges(bench, layout, keys, {uint64_t{1} << 32}, false, 0, 0);
    check_ranges(bench, layout, keys, {7, 0xFFFFFFFF, uint64_t{1} << 32, ~uint64_t{0}}, false, 0, 0);
  }
}

TEST(RangePartitionPrimitive, GroupsFlippedKeys) {
  std::mt19937_64 random(5);
  HostBench bench(2);
  for (const TupleLayout layout : kLayouts) {
    const uint64_t sign = uint64_t{1} << (8 * layout.key_bytes - 1);
    for (const uint64_t flip : {sign, ~uint64_t{0}, ~sign, random()}) {
      for (const uint64_t size : {0, 1, 9, 70001}) {
        for (const size_t count : {0, 1, 255}) {
          if (size == 70001 && random() % 3) continue;
          SCOPED_TRACE(describe(layout, "uniform", size, 2) + " bounds " + std::to_string(count));
          const auto keys = kDistributions[0].keys(size, random);
          check_ranges(bench, layout, keys, draw_bounds(layout, keys, count, random), random() % 2, 1, 3, flip);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(FlipKeysPrimitive, FlipsKeysAlone) {
  HostBench bench(3);
  for (const TupleLayout layout : kLayouts) {
    for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{1001}, 2 * host::kCheckRows + 7}) {
      SCOPED_TRACE(describe(layout, "flip", size, 3));
      const uint64_t flip = 0x8000'0001'8000'0001;
      TupleArray tuples(layout, size, 3), expected(layout, size);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t key = mix_key(i + 1);
        tuples.set(i, key, i * 5);
        expected.set(i, key ^ flip, i * 5);
      }
      bench.primitives().flip_keys(layout, tuples.span().keys, tuples.span().keys, size, flip, bench.job, *bench.stream);
      bench.stream->synchronize();
      EXPECT_TRUE(tuples == expected);
      EXPECT_TRUE(tuples.guarded());
    }
  }
}

TEST(RangePartitionPrimitive, RefusesTooManyBounds) {
  HostBench bench(1);
  std::vector<uint64_t> bounds(Primitives::kMostRanges);
  for (size_t i = 0; i < bounds.size(); ++i) bounds[i] = i;
  EXPECT_THROW(bench.primitives().partition_ranges({8, 8}, {}, 0, bounds, {}, nullptr, nullptr, bench.job, *bench.stream), Error);
}

TEST(RangePartitionPrimitive, StopsWhenCancelled) {
  for (const std::vector<uint64_t>& bounds : {std::vector<uint64_t>{}, std::vector<uint64_t>{7, 50}}) {
    HostBench bench(2);
    TupleArray in({8, 8}, 100), out({8, 8}, 100);
    for (uint64_t i = 0; i < 100; ++i) in.set(i, i, i);
    uint64_t offsets[4];
    const Scratch scratch(bench.primitives().partition_ranges_scratch_bytes({8, 8}, 100, bounds.size() + 1));
    bench.job.cancel();
    bench.primitives().partition_ranges({8, 8}, in.view(), 0, bounds, out.span(), offsets, scratch.data(), bench.job,
                                        *bench.stream);
    EXPECT_THROW(bench.stream->synchronize(), Error);
  }
}

/// Concatenates slices of arrays that start at any element.
void check_concatenate(HostBench& bench, TupleLayout layout, const std::vector<uint64_t>& sizes, uint64_t out_shift,
                       std::mt19937_64& random) {
  uint64_t size = 0;
  for (const uint64_t part : sizes) size += part;
  TupleArray out(layout, size, out_shift), expected(layout, size);
  std::vector<TupleArray> sources;
  std::vector<TupleView> parts;
  uint64_t at = 0;
  for (const uint64_t part : sizes) {
    const uint64_t before = random() % 5, after = random() % 3;
    TupleArray& source = sources.emplace_back(layout, before + part + after, random() % 17);
    for (uint64_t i = 0; i < before + part + after; ++i) source.set(i, random(), random());
    parts.push_back(source.view().slice(layout, before, before + part));
    for (uint64_t i = 0; i < part; ++i) expected.set(at++, source.key(before + i), source.value(before + i));
  }
  const Scratch scratch(bench.primitives().concatenate_scratch_bytes(parts.size()));
  bench.primitives().concatenate(layout, std::vector<TupleView>(parts), out.span(), scratch.data(), bench.job, *bench.stream);
  bench.stream->synchronize();
  EXPECT_TRUE(out == expected);
  EXPECT_TRUE(out.guarded());
}

TEST(ConcatenatePrimitive, JoinsPartsOfAnySize) {
  std::mt19937_64 random(5);
  const std::vector<std::vector<uint64_t>> cases = {{},
                                                    {0},
                                                    {0, 0, 0},
                                                    {1},
                                                    {0, 1, 0, 0, 1, 0},
                                                    {31, 0, 33, 1, 0},
                                                    {0, 70001},
                                                    {16384, 16384, 0, 16384, 16384},
                                                    {5, 300001, 0, 7, 200003, 0},
                                                    std::vector<uint64_t>(999, 0),
                                                    std::vector<uint64_t>(999, 67)};
  HostBenches benches;
  for (const TupleLayout layout : kLayouts) {
    for (size_t c = 0; c < cases.size(); ++c) {
      HostBench& bench = benches.draw(random);
      SCOPED_TRACE(describe(layout, "concatenate", cases[c].size(), bench.threads) + " case " + std::to_string(c));
      check_concatenate(bench, layout, cases[c], random() % 17, random);
      if (HasFailure()) return;
    }
    for (int draws = 0; draws < 4; ++draws) {
      HostBench& bench = benches.draw(random);
      std::vector<uint64_t> sizes(random() % 300);
      for (uint64_t& size : sizes) size = random() >> (54 + random() % 10);
      SCOPED_TRACE(describe(layout, "concatenate at random", sizes.size(), bench.threads));
      check_concatenate(bench, layout, sizes, random() % 17, random);
      if (HasFailure()) return;
    }
  }
}

TEST(ConcatenatePrimitive, StopsWhenCancelled) {
  HostBench bench(2);
  TupleArray in({8, 8}, 100), out({8, 8}, 100);
  bench.job.cancel();
  bench.primitives().concatenate({8, 8}, std::vector<TupleView>{in.view()}, out.span(), nullptr, bench.job, *bench.stream);
  EXPECT_THROW(bench.stream->synchronize(), Error);
}

}  // namespace
}  // namespace warpjoin
