// Sorted relations and their match ranges, found by plain loops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tuple_data.h"

namespace warpjoin::test {

inline std::vector<uint64_t> sorted_keys(TupleLayout layout, std::vector<uint64_t> keys) {
  for (uint64_t& key : keys) key = cut(layout, key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

inline std::vector<MatchRange> expected_ranges(const std::vector<uint64_t>& build, const std::vector<uint64_t>& probe) {
  std::vector<MatchRange> expected;
  for (uint64_t i = 0, j = 0; i < build.size() && j < probe.size();) {
    const uint64_t key = std::max(build[i], probe[j]), i_begin = i, j_begin = j;
    while (i < build.size() && build[i] < key) ++i;
    while (j < probe.size() && probe[j] < key) ++j;
    if (i != i_begin || j != j_begin) continue;
    while (i < build.size() && build[i] == key) ++i;
    while (j < probe.size() && probe[j] == key) ++j;
    expected.push_back({i_begin, i, j_begin, j});
  }
  return expected;
}

inline MatchSums sums_of(const std::vector<MatchRange>& ranges) {
  MatchSums sums;
  for (const MatchRange& range : ranges) sums.add(range.build_end - range.build_begin, range.probe_end - range.probe_begin);
  return sums;
}

/// Both relations with keys of a distribution; half of the probe keys are drawn from the build side.
struct SortedPair {
  std::vector<uint64_t> build, probe;

  SortedPair(TupleLayout layout, const Distribution& distribution, uint64_t build_size, uint64_t probe_size,
             std::mt19937_64& random)
      : build(distribution.keys(build_size, random)), probe(distribution.keys(probe_size, random)) {
    for (uint64_t& key : probe) {
      if (build_size && random() % 2) key = build[random() % build_size];
    }
    build = sorted_keys(layout, std::move(build));
    probe = sorted_keys(layout, std::move(probe));
  }
};

/// One heavy key, the least, one in the middle or the greatest, among many light ones.
inline void for_heavy_keys(TupleLayout layout, uint64_t build_size, uint64_t probe_size, std::mt19937_64& random,
                           const std::function<void(const std::vector<uint64_t>&, const std::vector<uint64_t>&)>& check) {
  for (const uint64_t heavy : {uint64_t{0}, uint64_t{500000}, ~uint64_t{0}}) {
    const auto build = generate(build_size, [&](uint64_t i) { return i % 2 ? heavy : random() % 1000000; });
    const auto probe = generate(probe_size, [&](uint64_t i) { return i % 10 ? heavy : random() % 1000000; });
    check(sorted_keys(layout, build), sorted_keys(layout, probe));
  }
}

}  // namespace warpjoin::test
