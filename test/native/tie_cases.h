// Keys in the order of their high bits, for the tests of what sorts within ties.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "primitives/primitives.h"

namespace warpjoin::test {

struct Ties {
  unsigned low_bits = 0;
  std::vector<uint64_t> keys;   ///< ascending by key >> low_bits
  std::vector<uint64_t> order;  ///< row numbers, once ties of up to Primitives::kMostTied tuples are sorted
  bool unsorted = false;        ///< longer ones are left out of order
};

/// Ties of all lengths around the limit; `disorder`: some of the long ones are out of order, in one place each.
inline Ties draw_ties(unsigned key_bits, uint64_t size, bool disorder, std::mt19937_64& random) {
  constexpr uint64_t kMost = Primitives::kMostTied;
  Ties ties;
  ties.low_bits = static_cast<unsigned>(1 + random() % (key_bits / 2));
  const uint64_t least_low = (uint64_t{1} << ties.low_bits) - 1;
  uint64_t high = random() % 2;
  while (ties.keys.size() < size) {
    constexpr uint64_t lengths[] = {1, 1, 1, 2, 2, 3, 7, kMost - 1, kMost, kMost + 1, 2 * kMost, 1000};
    const uint64_t begin = ties.keys.size(), length = std::min(lengths[random() % 12], size - begin);
    for (uint64_t i = 0; i < length; ++i) {
      ties.keys.push_back(high << ties.low_bits | (random() % 3 ? random() & least_low : least_low / 2));
    }
    high += 1 + random() % 3;
    const auto first = ties.keys.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<uint64_t> rows(length);
    std::iota(rows.begin(), rows.end(), begin);
    if (length <= kMost) {
      std::stable_sort(rows.begin(), rows.end(), [&](uint64_t x, uint64_t y) { return ties.keys[x] < ties.keys[y]; });
    } else {
      std::sort(first, ties.keys.end());
      const auto at = static_cast<std::ptrdiff_t>(random() % (length - 1));
      if (disorder && first[at] != first[at + 1]) {
        std::swap(first[at], first[at + 1]);
        ties.unsorted = true;
      }
    }
    ties.order.insert(ties.order.end(), rows.begin(), rows.end());
  }
  return ties;
}

}  // namespace warpjoin::test
