#include <gtest/gtest.h>

#include <numeric>

#include "primitives/host/radix_scatter.h"
#include "tie_cases.h"
#include "tuple_data.h"

namespace warpjoin {
namespace {

using namespace test;

uint64_t varying(TupleLayout layout, const std::vector<uint64_t>& keys) {
  uint64_t bits = 0;
  for (const uint64_t key : keys) bits |= cut(layout, key ^ keys[0]);
  return bits;
}

struct SortCase {
  bool implied = false, in_is_a = false;
  uint64_t shift = 0;
  uint64_t extra_varying = 0;  // bits said to vary that don't
};

void check_sort(HostBench& bench, TupleLayout layout, const std::vector<uint64_t>& keys, SortCase c) {
  const uint64_t size = keys.size();
  TupleArray in(layout, size, c.shift), a(layout, size, c.shift + (c.shift ? 1 : 0)), b(layout, size, c.shift * 2);
  const uint64_t first = 7;
  TupleArray& given = c.in_is_a ? a : in;
  for (uint64_t i = 0; i < size; ++i) given.set(i, keys[i], c.implied ? 0xBADBAD : i * 3 + 1);
  std::vector<uint64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint64_t x, uint64_t y) { return cut(layout, keys[x]) < cut(layout, keys[y]); });
  TupleArray expected(layout, size);
  for (uint64_t i = 0; i < size; ++i) expected.set(i, keys[order[i]], c.implied ? first + order[i] : order[i] * 3 + 1);

  const TupleView view = given.view(c.implied && layout.value_bytes, first);
  const Scratch scratch(bench.primitives().sort_scratch_bytes(layout, size));
  const TupleSpan result =
      bench.primitives().sort(layout, view, a.span(), b.span(), varying(layout, keys) | cut(layout, c.extra_varying),
                              scratch.data(), bench.job, *bench.stream);
  bench.stream->synchronize();
  ASSERT_TRUE(result.keys == a.span().keys || result.keys == b.span().keys);
  const TupleArray& sorted = result.keys == a.span().keys ? a : b;
  EXPECT_TRUE(sorted == expected);
  EXPECT_TRUE(a.guarded() && b.guarded());
  for (uint64_t i = 0; i < size && !c.in_is_a; ++i) {
    if (in.key(i) != cut(layout, keys[i])) FAIL() << "the input has changed at " << i;
  }
}

TEST(SortPrimitive, SortsEveryLayoutAndDistribution) {
  std::mt19937_64 random(1);
  HostBenches benches;
  for (const TupleLayout layout : kLayouts) {
    for (const Distribution& distribution : kDistributions) {
      for (const uint64_t size : {0, 1, 2, 24, 25, 31, 33, 1000, 70000}) {
        if (size == 70000 && random() % 3) continue;
        HostBench& bench = benches.draw(random);
        SCOPED_TRACE(describe(layout, distribution.name, size, bench.threads));
        const auto keys = distribution.keys(size, random);
        SortCase c;
        c.implied = random() % 2;
        c.in_is_a = random() % 2;
        c.shift = random() % 4;
        c.extra_varying = random() % 2 ? 0 : ~uint64_t{0};
        check_sort(bench, layout, keys, c);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(SortPrimitive, SortsMoreThanTheCachesHold) {
  std::mt19937_64 random(2);
  HostBench bench(3);
  for (const size_t d : {0, 5, 12, 14}) {
    const Distribution& distribution = kDistributions[d];
    const TupleLayout layout{8, 8};
    const uint64_t size = host::kStreamBytes / layout.tuple_bytes() + 1;
    SCOPED_TRACE(describe(layout, distribution.name, size, 3));
    check_sort(bench, layout, distribution.keys(size, random), {.implied = true, .shift = random() % 3});
    if (HasFailure()) return;
  }
}

TEST(SortPrimitive, SortsByAnyNumberOfSignificantBits) {
  std::mt19937_64 random(3);
  HostBench bench(2);
  for (int bits = 1; bits <= 64; ++bits) {
    const uint64_t shift = random() % (65 - bits);
    SCOPED_TRACE(std::to_string(bits) + " bits from " + std::to_string(shift));
    const auto draw = [&](uint64_t size) { return generate(size, [&](uint64_t) { return random() >> (64 - bits) << shift; }); };
    check_sort(bench, {8, 4}, draw(50000), {.implied = true});  // several buckets
    check_sort(bench, {4, 8}, draw(10000), {});
  }
}

TEST(SortPrimitive, StopsWhenCancelled) {
  HostBench bench(2);
  const TupleLayout layout{8, 8};
  TupleArray in(layout, 100000), a(layout, 100000), b(layout, 100000);
  for (uint64_t i = 0; i < in.size(); ++i) in.set(i, mix_key(i), i);
  const Scratch scratch(bench.primitives().sort_scratch_bytes(layout, in.size()));
  bench.job.cancel();
  bench.primitives().sort(layout, in.view(), a.span(), b.span(), ~uint64_t{0}, scratch.data(), bench.job, *bench.stream);
  EXPECT_THROW(bench.stream->synchronize(), Error);
}

TEST(SortPrimitive, SortsShortTiesAndTellsOfLongOnes) {
  std::mt19937_64 random(7);
  HostBenches benches;
  for (const TupleLayout layout : kLayouts) {
    for (const uint64_t size : {0, 1, 2, 17, 1000, 100000}) {
      for (const bool disorder : {false, true}) {
        HostBench& bench = benches.draw(random);
        SCOPED_TRACE(describe(layout, "ties", size, bench.threads));
        const Ties ties = draw_ties(8 * layout.key_bytes, size, disorder, random);
        TupleArray tuples(layout, size, random() % 4), expected(layout, size);
        for (uint64_t i = 0; i < size; ++i) {
          tuples.set(i, ties.keys[i], i);
          expected.set(i, ties.keys[ties.order[i]], ties.order[i]);
        }
        bool unsorted = false;
        bench.primitives().sort_ties(layout, tuples.span(), ties.low_bits, &unsorted, bench.job, *bench.stream);
        bench.stream->synchronize();
        EXPECT_EQ(unsorted, ties.unsorted);
        EXPECT_TRUE(tuples == expected);
        EXPECT_TRUE(tuples.guarded());
      }
    }
  }
}

TEST(SortPrimitive, SortsByTheTopmostBitsAlone) {
  std::mt19937_64 random(8);
  HostBenches benches;
  for (const uint64_t size : {uint64_t{30}, uint64_t{3000}, uint64_t{200000}}) {
    for (const unsigned low_bits : {1u, 40u, 63u}) {
      HostBench& bench = benches.draw(random);
      SCOPED_TRACE(std::to_string(size) + " tuples, all but " + std::to_string(low_bits) + " bits");
      const TupleLayout layout{8, 8};
      TupleArray a(layout, size), b(layout, size);
      for (uint64_t i = 0; i < size; ++i) a.set(i, random(), i);
      const Scratch scratch(bench.primitives().sort_scratch_bytes(layout, size));
      const TupleSpan result = bench.primitives().sort(layout, a.view(), a.span(), b.span(), ~uint64_t{0} << low_bits,
                                                       scratch.data(), bench.job, *bench.stream);
      bench.stream->synchronize();
      const TupleArray& sorted = result.keys == a.span().keys ? a : b;
      for (uint64_t i = 1; i < size; ++i) {
        const uint64_t key = sorted.key(i), before = sorted.key(i - 1);
        ASSERT_LE(before >> low_bits, key >> low_bits) << i;
        if (before == key) ASSERT_LT(sorted.value(i - 1), sorted.value(i)) << i;
        // Tied ones are in the order of the input, or in that of whole keys.
        if (before >> low_bits == key >> low_bits && sorted.value(i) < sorted.value(i - 1)) ASSERT_LT(before, key) << i;
      }
    }
  }
}

TEST(VaryingBits, AreThoseThatDifferFromTheFirstKeyOrAmongKeys) {
  std::mt19937_64 random(4);
  for (const unsigned threads : {1u, 3u}) {
    HostBench bench(threads);
    for (const TupleLayout layout : kLayouts) {
      for (const Distribution& distribution : kDistributions) {
        for (const uint64_t size : {0, 1, 2, 33, 1000, 100000}) {
          if (size == 100000 && random() % 4) continue;
          const auto keys = distribution.keys(size, random);
          TupleArray in(layout, size, 1);
          const uint64_t first = size ? cut(layout, keys[0] ^ 4) : 0;
          uint64_t expected = 1;
          for (uint64_t i = 0; i < size; ++i) {
            in.set(i, keys[i], 0);
            expected |= cut(layout, keys[i]) ^ first;
          }
          uint64_t bits = 1;
          bench.primitives().varying_bits(layout, in.view(), &first, &bits, bench.job, *bench.stream);
          bench.stream->synchronize();
          EXPECT_EQ(bits, expected) << describe(layout, distribution.name, size, threads);
        }
      }
    }
  }
}

TEST(SampleKeys, TakesOneOfEachStretch) {
  std::mt19937_64 random(6);
  for (const unsigned threads : {1u, 3u}) {
    HostBench bench(threads);
    for (const TupleLayout layout : kLayouts) {
      for (const uint64_t size : {0, 1, 2, 33, 1000, 100000}) {
        for (const uint64_t count : {uint64_t{0}, (size + 1) / 2, size / 3, size}) {
          SCOPED_TRACE(describe(layout, "sample", size, threads) + " count " + std::to_string(count));
          TupleArray in(layout, size, 1), found({layout.key_bytes, 0}, count, 1);
          for (uint64_t i = 0; i < size; ++i) in.set(i, i, random());
          bench.primitives().sample_keys(layout, in.view(), count, found.span().keys, bench.job, *bench.stream);
          bench.stream->synchronize();
          EXPECT_TRUE(found.guarded());
          for (uint64_t i = 0; i < count; ++i) {
            ASSERT_GE(found.key(i), size / count * i + std::min(i, size % count));
            ASSERT_LT(found.key(i), size / count * (i + 1) + std::min(i + 1, size % count));
          }
        }
      }
    }
  }
}

TEST(TopDigit, KeepsTheOrderOfItsBitsAndSkipsConstantOnes) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    uint64_t mask = random() & random();
    if (round % 3 == 0) mask &= ~(0xFFFFull << random() % 48);
    if (round % 5 == 0) mask >>= random() % 64;
    if (mask == 0) continue;
    const uint32_t bits = 1 + random() % 12;
    const host::KeyDigit digit = host::top_digit(mask, bits);
    ASSERT_GE(digit.bits, 1);
    ASSERT_LE(digit.bits, bits);
    ASSERT_LT(digit.rest(mask), mask);
    const uint64_t covered = mask & ~digit.rest(mask);
    const uint64_t constant = random() & ~mask;
    for (int i = 0; i < 8; ++i) {
      const uint64_t x = (random() & mask) | constant, y = (random() & mask) | constant;
      ASSERT_LT(digit(x), digit.count());
      ASSERT_EQ(digit(x) < digit(y), (x & covered) < (y & covered)) << std::hex << mask << " " << bits;
    }
  }
  EXPECT_EQ(host::top_digit(0xFF000000000000FFull, 12).rest(0xFF000000000000FFull), 0xFull);
}

}  // namespace
}  // namespace warpjoin
