#include "sort/leading_bits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <vector>

#include "core/tuples.h"

namespace warpjoin {
namespace {

using sorting::distinguishing_bits;
using sorting::leading_bits;

std::vector<uint64_t> sorted_sample_of(const std::vector<uint64_t>& keys, uint64_t count) {
  std::vector<uint64_t> sample(count);
  for (uint64_t i = 0; i < count; ++i) sample[i] = keys[sampled_row(keys.size(), count, i)];
  std::sort(sample.begin(), sample.end());
  return sample;
}

template <class Draw>
std::vector<uint64_t> draw_keys(uint64_t size, const Draw& draw) {
  std::vector<uint64_t> keys(size);
  for (uint64_t& key : keys) key = draw();
  return keys;
}

TEST(DistinguishingBits, LeaveFewTies) {
  std::mt19937_64 random(1);
  constexpr uint64_t kSize = uint64_t{1} << 19;
  const auto check = [&](const char* what, uint64_t varying, const auto& draw, unsigned most_bits) {
    const std::vector<uint64_t> keys = draw_keys(kSize, draw);
    for (const uint64_t count : {uint64_t{1} << 11, uint64_t{1} << 13, uint64_t{1} << 16}) {
      SCOPED_TRACE(std::string(what) + ", sampled " + std::to_string(count));
      const uint64_t bits = distinguishing_bits(sorted_sample_of(keys, count), kSize, varying);
      EXPECT_EQ(bits & ~varying, 0u);
      EXPECT_LE(std::bit_width(bits) - std::countr_zero(bits), static_cast<int>(most_bits));
      std::vector<uint64_t> leading = keys;
      for (uint64_t& key : leading) key &= bits;
      std::sort(leading.begin(), leading.end());
      uint64_t tied = 0;
      for (uint64_t i = 1; i < kSize; ++i) tied += leading[i] == leading[i - 1];
      EXPECT_LT(tied, kSize / 4);
    }
  };
  // Of 2^19 random keys, 21 bits leave a quarter that agrees with another one; the sample may ask for some more.
  check(
      "random", ~uint64_t{0}, [&] { return random(); }, 24);
  check(
      "below a constant", ~uint64_t{0} >> 16, [&] { return random() >> 16 | uint64_t{7} << 48; }, 24);
  check(
      "in half of the range", ~uint64_t{0}, [&] { return random() >> random() % 2; }, 25);
  check(
      "floats", ~uint64_t{0} >> 1,
      [&] { return std::bit_cast<uint64_t>(std::uniform_real_distribution<double>(0, 1e6)(random)); }, 36);
}

TEST(DistinguishingBits, AreAllThatVaryWhereASampleTellsNothing) {
  std::mt19937_64 random(2);
  const auto keys = draw_keys(uint64_t{1} << 16, [&] { return random(); });
  EXPECT_EQ(distinguishing_bits({}, 1000, 0xFF0), 0xFF0u);
  EXPECT_EQ(distinguishing_bits(sorted_sample_of(keys, 16), keys.size(), 0xFF0), 0xFF0u);
  const auto few = draw_keys(uint64_t{1} << 16, [&] { return mix_key(random() % 1000); });
  EXPECT_EQ(distinguishing_bits(sorted_sample_of(few, 4096), few.size(), ~uint64_t{0}), ~uint64_t{0});
  const std::vector<uint64_t> equal(4096, 7);
  EXPECT_EQ(distinguishing_bits(equal, uint64_t{1} << 40, 3), 3u);
}

TEST(DistinguishingBits, LeaveHeavyKeysAmongThemselves) {
  std::mt19937_64 random(4);
  constexpr uint64_t kSize = uint64_t{1} << 19;
  const auto check = [&](const char* what, const auto& draw, int most_bits) {
    const std::vector<uint64_t> keys = draw_keys(kSize, draw);
    const uint64_t bits = distinguishing_bits(sorted_sample_of(keys, uint64_t{1} << 13), kSize, ~uint64_t{0});
    SCOPED_TRACE(what);
    EXPECT_LE(std::popcount(bits), most_bits);
    std::vector<uint64_t> sorted = keys;
    std::stable_sort(sorted.begin(), sorted.end(), [&](uint64_t x, uint64_t y) { return (x & bits) < (y & bits); });
    // Keys that agree in these bits and are out of order: next to none are in ties of a heavy key.
    uint64_t tied = 0, unsorted_long = 0;
    for (uint64_t begin = 0, end; begin < kSize; begin = end) {
      for (end = begin + 1; end < kSize && (sorted[begin] & bits) == (sorted[end] & bits);) ++end;
      const bool in_order =
          std::is_sorted(sorted.begin() + static_cast<std::ptrdiff_t>(begin), sorted.begin() + static_cast<std::ptrdiff_t>(end));
      if (end - begin > 16) {
        unsorted_long += !in_order;
      } else {
        tied += end - begin - 1;
      }
    }
    EXPECT_LT(tied, kSize / 4);
    EXPECT_EQ(unsorted_long, 0u);
  };
  check(
      "last", [&] { return random() % 4 ? random() >> 1 : ~uint64_t{0}; }, 26);
  check(
      "one", [&] { return random() % 4 ? random() : uint64_t{5} << 60 | 12345; }, 30);
  check(
      "several", [&] { return random() % 4 ? random() : mix_key(random() % 20 + 1); }, 34);
  check(
      "nothing else", [&] { return mix_key(random() % 50); }, 24);
}

TEST(LeadingBits, TakeNoMorePassesThanTheBitsThatDistinguish) {
  std::mt19937_64 random(3);
  const auto passes = [](uint64_t bits) { return bits ? (std::bit_width(bits) - std::countr_zero(bits) + 7) / 8 : 0; };
  for (int round = 0; round < 20000; ++round) {
    const uint64_t varying = random() >> random() % 64 << random() % 64;
    const uint64_t distinguishing = ~uint64_t{0} << random() % 64;
    const uint64_t needed = varying & distinguishing, bits = leading_bits(varying, distinguishing);
    SCOPED_TRACE(std::to_string(varying) + " & " + std::to_string(distinguishing));
    ASSERT_EQ(bits & ~varying, 0u);
    if (needed == 0) {
      ASSERT_EQ(bits, varying);
      continue;
    }
    ASSERT_EQ(bits & needed, needed);
    ASSERT_EQ(passes(bits), std::min(passes(varying), (std::bit_width(varying) - std::countr_zero(needed) + 7) / 8));
    const uint64_t below = varying & ~bits;
    ASSERT_TRUE(below == 0 || std::bit_width(below) <= std::countr_zero(bits));
    ASSERT_TRUE(below == 0 || passes(bits) < passes(varying)) << "ties are looked for, and no pass is saved";
  }
}

}  // namespace
}  // namespace warpjoin
