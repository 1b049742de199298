// Cases for sorts: the same on host devices and on GPUs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "failure_cases.h"
#include "sort/sort.h"
#include "words.h"

namespace warpjoin::testing {

enum class Keys { uniform, sorted, nearly_sorted, reverse, equal, few, hot, narrow, gaps, zipf_half, zipf, zipf_steep };
inline constexpr Keys kAllKeys[] = {Keys::uniform, Keys::sorted,    Keys::nearly_sorted, Keys::reverse,
                                    Keys::equal,   Keys::few,       Keys::hot,           Keys::narrow,
                                    Keys::gaps,    Keys::zipf_half, Keys::zipf,          Keys::zipf_steep};
inline constexpr TupleLayout kAllLayouts[] = {{8, 8}, {4, 4}, {8, 4}, {4, 8}, {8, 0}, {4, 0}};

inline std::string name_of(Keys keys) {
  constexpr const char* names[] = {"uniform", "sorted", "nearly sorted", "reverse",  "equal", "few",
                                   "hot",     "narrow", "gaps",          "Zipf 0.5", "Zipf",  "Zipf 1.5"};
  return names[static_cast<size_t>(keys)];
}

inline std::string name_of(SortAlgorithm algorithm) {
  constexpr const char* names[] = {"Merge", "Radix", "Sample"};
  return names[static_cast<size_t>(algorithm)];
}

/// A rank below 10^5 whose probability falls with its power of `exponent`; from a uniform number below 2^64.
inline uint64_t zipf_rank(uint64_t uniform, double exponent) {
  const double u = static_cast<double>(uniform >> 11) * 0x1p-53, rest = 1 - exponent;
  return static_cast<uint64_t>(rest == 0 ? std::pow(1e5, u) : std::pow(1 + u * (std::pow(1e5, rest) - 1), 1 / rest));
}

inline std::vector<uint64_t> make_keys(Keys kind, uint64_t size, unsigned key_bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t mask = key_bytes == 4 ? UINT32_MAX : UINT64_MAX;
  std::vector<uint64_t> keys(size);
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t r = random();
    switch (kind) {
      case Keys::uniform:
      case Keys::sorted:
      case Keys::reverse: keys[i] = r; break;
      case Keys::nearly_sorted: keys[i] = r % 50 == 0 ? random() % (3 * size) : 3 * i; break;
      case Keys::equal: keys[i] = 0xABCDEF0123456789; break;
      case Keys::few: keys[i] = (r % 5) * 0x2492492492492492; break;
      case Keys::hot: keys[i] = r % 10 < 8 ? 0x7654321076543210 : random(); break;
      case Keys::narrow: keys[i] = 0x1234567800005000 + r % 700; break;
      case Keys::gaps: keys[i] = r & 0x8010000401000103; break;
      case Keys::zipf_half: keys[i] = zipf_rank(r, 0.5) << 7; break;
      case Keys::zipf: keys[i] = zipf_rank(r, 1) << 7; break;
      case Keys::zipf_steep: keys[i] = zipf_rank(r, 1.5) << 7; break;
    }
    keys[i] &= mask;
  }
  if (kind == Keys::sorted) std::sort(keys.begin(), keys.end());
  if (kind == Keys::reverse) std::sort(keys.rbegin(), keys.rend());
  return keys;
}

/// Keys as they are, signed, descending, and both.
/// Random ones, of which three times forty agree in all but the lowest 20 bits: too few for a sample to tell.
inline std::vector<uint64_t> make_tied_keys(uint64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> keys(size);
  for (uint64_t& key : keys) key = random();
  for (int tie = 0; tie < 3; ++tie) {
    const uint64_t high = random() << 20;
    for (int i = 0; i < 40; ++i) keys[random() % size] = high | random() % 30;
  }
  return keys;
}

inline std::array<uint64_t, 4> flips(TupleLayout layout) {
  const uint64_t sign = uint64_t{1} << (8 * layout.key_bytes - 1), all = 2 * sign - 1;
  return {0, sign, all, all ^ sign};
}

inline uint64_t varying_bits_of(const std::vector<uint64_t>& keys) {
  uint64_t bits = 0;
  for (const uint64_t key : keys) bits |= key ^ keys[0];
  return bits;
}

/// Tuples with the widths of a layout.
struct Tuples {
  TupleLayout layout;
  std::vector<unsigned char> keys, values;
  uint64_t size = 0, first_value = 0;
  bool implied = false;

  Tuples(TupleLayout layout, const std::vector<uint64_t>& wide, bool implied, uint64_t first_value = 0)
      : layout(layout),
        keys(wide.size() * layout.key_bytes),
        values(implied ? 0 : wide.size() * layout.value_bytes),
        size(wide.size()),
        first_value(first_value),
        implied(implied) {
    for (uint64_t i = 0; i < size; ++i) {
      words::write(keys.data(), layout.key_bytes, i, wide[i]);
      if (!implied) words::write(values.data(), layout.value_bytes, i, value_at(i));
    }
  }
  uint64_t value_at(uint64_t i) const {
    const uint64_t value = implied ? first_value + i : i * 0x9E3779B97F4A7C15 + 1;
    return layout.value_bytes == 4 ? static_cast<uint32_t>(value) : value;
  }
  TupleView view() const {
    return {keys.data(), implied || layout.value_bytes == 0 ? nullptr : values.data(), first_value, size};
  }
};

/// Expects `run` to be rows [begin, end) in stable order, by key ^ its flip.
inline void expect_sorted(const SortedRun& run, const Tuples& tuples, const std::vector<uint64_t>& keys, uint64_t begin,
                          uint64_t end) {
  ASSERT_EQ(run.size, end - begin);
  std::vector<uint64_t> order(end - begin);
  std::iota(order.begin(), order.end(), begin);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint64_t x, uint64_t y) { return (keys[x] ^ run.flip) < (keys[y] ^ run.flip); });
  for (uint64_t i = 0; i < order.size(); ++i) {
    // Not ASSERT_EQ, which takes longer than all the rest.
    if (words::read(run.keys.data(), run.layout.key_bytes, i) != keys[order[i]]) FAIL() << "key " << i;
    if (run.layout.value_bytes && words::read(run.values.data(), run.layout.value_bytes, i) != tuples.value_at(order[i])) {
      FAIL() << "value " << i;
    }
  }
}

/// Ends of `count` chunksets of unequal sizes; some are empty where there are few tuples.
inline std::vector<uint64_t> chunkset_ends(uint64_t size, size_t count) {
  std::vector<uint64_t> ends;
  for (size_t c = 1; c <= count; ++c) ends.push_back(c == count ? size : size * c * c / (count * count));
  return ends;
}

struct SortCase {
  Keys keys;
  TupleLayout layout;
  uint64_t size;
  size_t chunksets;
  bool implied, known_bits;
  size_t flip = 0;  ///< of flips()
};

/// Sorts and merges one case, and compares with a stable sort.
inline void check_sort(Engine& engine, SortAlgorithm algorithm, int devices, const SortCase& c) {
  SCOPED_TRACE(name_of(c.keys) + ", " + std::to_string(c.layout.key_bytes) + "+" + std::to_string(c.layout.value_bytes) +
               " bytes, " + std::to_string(c.size) + " tuples in " + std::to_string(c.chunksets) + " chunksets" +
               (c.implied ? ", implied values" : "") + (c.known_bits ? ", known bits" : "") + ", flip " + std::to_string(c.flip));
  const std::vector<uint64_t> keys = make_keys(c.keys, c.size, c.layout.key_bytes, c.size + static_cast<uint64_t>(devices));
  const Tuples tuples(c.layout, keys, c.implied, 1000);
  const uint64_t flip = flips(c.layout)[c.flip];
  const SortPlan plan{algorithm, first_devices(devices), chunkset_ends(c.size, c.chunksets), flip};
  Job job;
  std::vector<SortedRun> runs =
      sort_chunksets(engine, c.layout, tuples.view(), c.known_bits ? varying_bits_of(keys) : ~uint64_t{0}, plan, job);
  EXPECT_EQ(job.planned(), job.done());
  for (const SortedRun& run : runs) EXPECT_EQ(run.flip, c.size ? flip : 0);
  if (algorithm == SortAlgorithm::sample && runs.size() == 1) return expect_sorted(runs[0], tuples, keys, 0, c.size);
  ASSERT_EQ(runs.size(), c.chunksets);
  uint64_t begin = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    expect_sorted(runs[i], tuples, keys, begin, plan.chunkset_ends[i]);
    begin = plan.chunkset_ends[i];
  }
  expect_sorted(merge_runs(engine, std::move(runs), job), tuples, keys, 0, c.size);
  EXPECT_EQ(job.planned(), job.done());
}

/// All distributions and sizes; layouts, chunksets, implied values, known bits and flips take turns.
inline void check_sorts(Engine& engine, SortAlgorithm algorithm, int devices, uint64_t largest) {
  size_t turn = static_cast<size_t>(devices);
  for (const Keys keys : kAllKeys) {
    for (const uint64_t size : {uint64_t{0}, uint64_t{1}, static_cast<uint64_t>(devices - 1), uint64_t{1000}, largest}) {
      for (int repeat = 0; repeat < (size == largest ? 1 : 3); ++repeat, ++turn) {
        constexpr size_t chunksets[] = {1, 2, 3, 9};
        check_sort(engine, algorithm, devices,
                   {keys, kAllLayouts[turn % 6], size, chunksets[turn / 6 % 4], turn % 5 < 2, turn % 7 < 3, turn * 7 / 5 % 4});
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

/// A sort in two chunksets, their merge, and a look at the result.
inline RepeatedCall repeated_sort(Engine& engine, SortAlgorithm algorithm, int devices, uint64_t size) {
  const std::vector<uint64_t> keys = make_keys(Keys::zipf, size, 8, 1);
  const auto tuples = std::make_shared<Tuples>(TupleLayout{8, 8}, keys, true);
  const SortPlan plan{algorithm, first_devices(devices), {size / 2, size}};
  return RepeatedCall(engine, [&engine, keys, tuples, plan](Job& job) {
    const SortedRun sorted = merge_runs(engine, sort_chunksets(engine, {8, 8}, tuples->view(), ~uint64_t{0}, plan, job), job);
    expect_sorted(sorted, *tuples, keys, 0, keys.size());
  });
}

inline void check_failed_allocations(Engine& engine, SortAlgorithm algorithm, int devices, uint64_t size) {
  check_failed_allocations(engine, devices, repeated_sort(engine, algorithm, devices, size));
}

inline void check_cancelled_sorts(Engine& engine, SortAlgorithm algorithm, int devices, uint64_t size) {
  check_cancelled_calls(repeated_sort(engine, algorithm, devices, size));
}

inline void check_shortage(Engine& engine, SortAlgorithm algorithm, int devices, uint64_t size) {
  check_shortage(engine, devices, repeated_sort(engine, algorithm, devices, size));
}

}  // namespace warpjoin::testing
