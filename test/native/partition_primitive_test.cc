#include <gtest/gtest.h>

#include <array>

#include "primitives/host/radix_scatter.h"
#include "tuple_data.h"

namespace warpjoin {
namespace {

using namespace test;

void check_partition(HostBench& bench, TupleLayout layout, const std::vector<uint64_t>& keys, Digit digit, bool implied,
                     uint64_t in_shift, uint64_t out_shift) {
  const uint64_t size = keys.size(), first = 1000;
  TupleArray in(layout, size, in_shift), out(layout, size, out_shift), expected(layout, size);
  std::vector<std::vector<uint64_t>> groups(digit.count());
  for (uint64_t i = 0; i < size; ++i) {
    in.set(i, keys[i], i * 5);
    groups[digit(cut(layout, keys[i]))].push_back(i);
  }
  std::vector<uint64_t> expected_offsets{0}, offsets(digit.count() + 1, 0xBAD);
  uint64_t at = 0;
  for (const auto& group : groups) {
    for (const uint64_t i : group) expected.set(at++, keys[i], implied ? first + i : i * 5);
    expected_offsets.push_back(at);
  }
  const Scratch scratch(bench.primitives().partition_scratch_bytes(layout, size, digit));
  bench.primitives().partition(layout, in.view(implied && layout.value_bytes, first), digit, out.span(), offsets.data(),
                               scratch.data(), bench.job, *bench.stream);
  bench.stream->synchronize();
  EXPECT_EQ(offsets, expected_offsets);
  EXPECT_TRUE(out == expected);
  EXPECT_TRUE(out.guarded());
}

TEST(PartitionPrimitive, GroupsEveryLayoutAndDistribution) {
  std::mt19937_64 random(1);
  HostBenches benches;
  for (const TupleLayout layout : kLayouts) {
    for (const Distribution& distribution : kDistributions) {
      for (const uint64_t size : {0, 1, 2, 31, 33, 1000, 70000}) {
        if (size == 70000 && random() % 3) continue;
        HostBench& bench = benches.draw(random);
        const auto bits = static_cast<uint8_t>(random() % 13);
        const bool mixed = random() % 2;
        const auto shift = static_cast<uint8_t>(random() % 3 ? (mixed ? 64 : layout.key_bytes * 8) - bits : random() % 20);
        SCOPED_TRACE(describe(layout, distribution.name, size, bench.threads) + " bits " + std::to_string(bits) + " shift " +
                     std::to_string(shift));
        check_partition(bench, layout, distribution.keys(size, random), {shift < 64 ? shift : uint8_t{0}, bits, mixed},
                        random() % 2, random() % 4, random() % 17);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(PartitionPrimitive, StreamsLargeOutputsAtAnyAlignment) {
  std::mt19937_64 random(2);
  HostBench bench(2);
  // The other layouts are streamed into ranges, by the same code.
  for (size_t turn = 1; turn < kLayouts.size(); turn += 2) {
    const TupleLayout layout = kLayouts[turn];
    const uint64_t size = host::kStreamBytes / layout.tuple_bytes() + 1000;
    const uint64_t shift = std::array{1, 0, 8}[turn % 3];
    SCOPED_TRACE(describe(layout, "uniform", size, 2) + " shift " + std::to_string(shift));
    check_partition(bench, layout, kDistributions[0].keys(size, random), {20, 9, true}, random() % 2, 0, shift);
    if (HasFailure()) return;
  }
}

TEST(PartitionPrimitive, StopsWhenCancelled) {
  HostBench bench(2);
  TupleArray in({8, 8}, 100), out({8, 8}, 100);
  for (uint64_t i = 0; i < 100; ++i) in.set(i, i, i);
  uint64_t offsets[17];
  const Scratch scratch(bench.primitives().partition_scratch_bytes({8, 8}, 100, {0, 4}));
  bench.job.cancel();
  bench.primitives().partition({8, 8}, in.view(), {0, 4}, out.span(), offsets, scratch.data(), bench.job, *bench.stream);
  EXPECT_THROW(bench.stream->synchronize(), Error);
}

}  // namespace
}  // namespace warpjoin
