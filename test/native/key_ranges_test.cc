#include "sort/key_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sort_cases.h"

namespace warpjoin {
namespace {

using namespace testing;
using sorting::KeyRanges;

constexpr size_t kMost = 64;

size_t range_of(const KeyRanges& ranges, uint64_t key) {
  return static_cast<size_t>(std::upper_bound(ranges.bounds().begin(), ranges.bounds().end(), key) - ranges.bounds().begin());
}

TEST(KeyRanges, BalanceWhateverTheKeys) {
  ThreadPool pool(2);
  for (const TupleLayout layout : {TupleLayout{8, 0}, TupleLayout{4, 0}}) {
    for (const Keys kind : kAllKeys) {
      SCOPED_TRACE(name_of(kind) + " " + std::to_string(layout.key_bytes));
      constexpr uint64_t size = 300000;
      const auto keys = make_keys(kind, size, layout.key_bytes, 3);
      const Tuples tuples(layout, keys, true);
      const KeyRanges ranges = KeyRanges::choose(pool, layout, tuples.view(), 0, kMost, 128);
      ASSERT_LE(ranges.size(), kMost);
      EXPECT_TRUE(std::is_sorted(ranges.bounds().begin(), ranges.bounds().end(), std::less_equal<>()));
      std::vector<std::vector<uint64_t>> held(ranges.size());
      for (const uint64_t key : keys) held[range_of(ranges, key)].push_back(key);
      for (size_t r = 0; r < held.size(); ++r) {
        const uint64_t bits = ranges.varying_bits(r, ~uint64_t{0});
        const auto outside = [&](uint64_t key) { return ((key ^ held[r][0]) & ~bits) != 0; };
        ASSERT_TRUE(std::none_of(held[r].begin(), held[r].end(), outside)) << "range " << r;
        if (bits) EXPECT_LE(held[r].size(), 3 * size / kMost) << "range " << r;
      }
    }
  }
}

TEST(KeyRanges, OfFlippedKeysAreThoseOfTheKeysThatTheyBecome) {
  ThreadPool pool(2);
  for (const TupleLayout layout : {TupleLayout{8, 0}, TupleLayout{4, 0}}) {
    for (const uint64_t flip : flips(layout)) {
      const auto keys = make_keys(Keys::uniform, 30000, layout.key_bytes, 3);
      std::vector<uint64_t> flipped;
      for (const uint64_t key : keys) flipped.push_back(key ^ flip);
      const Tuples tuples(layout, keys, true), become(layout, flipped, true);
      const KeyRanges ranges = KeyRanges::choose(pool, layout, tuples.view(), flip, kMost, 128);
      EXPECT_EQ(ranges.flip(), flip);
      EXPECT_EQ(ranges.bounds(), KeyRanges::choose(pool, layout, become.view(), 0, kMost, 128).bounds());
    }
  }
}

TEST(KeyRanges, GiveAKeyOfManyTuplesARangeOfItsOwn) {
  ThreadPool pool(1);
  for (const uint64_t heavy : {uint64_t{0}, uint64_t{1000}, uint64_t{UINT32_MAX}}) {
    auto keys = make_keys(Keys::uniform, 100000, 4, 1);
    for (size_t i = 0; i < keys.size(); i += 3) keys[i] = heavy;
    const Tuples tuples(TupleLayout{4, 0}, keys, true);
    const KeyRanges ranges = KeyRanges::choose(pool, {4, 0}, tuples.view(), 0, kMost, 128);
    EXPECT_EQ(ranges.varying_bits(range_of(ranges, heavy), UINT32_MAX), 0u) << heavy;
  }
}

TEST(KeyRanges, LeaveFewBitsOfEvenlySpreadKeys) {
  ThreadPool pool(1);
  for (const unsigned width : {4u, 8u}) {
    const TupleLayout layout{static_cast<uint8_t>(width), 0};
    const Tuples tuples(layout, make_keys(Keys::uniform, 300000, width, 5), true);
    const KeyRanges ranges = KeyRanges::choose(pool, layout, tuples.view(), 0, kMost, 128);
    ASSERT_EQ(ranges.size(), kMost);
    for (size_t r = 0; r < kMost; ++r) {
      EXPECT_EQ(ranges.varying_bits(r, ~uint64_t{0}), (uint64_t{1} << (8 * width - 6)) - 1) << "range " << r;
    }
  }
}

TEST(KeyRanges, OfFewTuples) {
  ThreadPool pool(1);
  for (const uint64_t size : {0, 1, 2, 3}) {
    const std::vector<uint64_t> keys(size, 7);
    const Tuples tuples(TupleLayout{8, 0}, keys, true);
    EXPECT_EQ(KeyRanges::choose(pool, {8, 0}, tuples.view(), 0, 1, 128).size(), 1u);
    EXPECT_LE(KeyRanges::choose(pool, {8, 0}, tuples.view(), 0, kMost, 128).size(), 3u);
  }
}

}  // namespace
}  // namespace warpjoin
