// Joins of keys that are distributed in many ways, by all algorithms, against sums that no join takes part in: the same on host
// devices and on GPUs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "join_cases.h"
#include "sort_cases.h"

namespace warpjoin::testing {

/// Which keys two sides have: the keys are numbered.
struct KeyNumbers {
  std::vector<uint32_t> left, right;
};

struct JoinDistribution {
  std::string name;
  std::function<KeyNumbers(uint64_t rows, std::mt19937_64& random)> draw;
  bool at_boundaries = false;  ///< keys are those beside the boundaries of partitions by hash
};

/// Without the numbers of any order.
inline std::vector<uint32_t> shuffled(std::vector<uint32_t> numbers, std::mt19937_64& random) {
  std::shuffle(numbers.begin(), numbers.end(), random);
  return numbers;
}

/// Numbers 0 .. keys - 1 one after the other, again and again.
inline std::vector<uint32_t> each_key(uint64_t rows, uint64_t keys) {
  std::vector<uint32_t> numbers(rows);
  for (uint64_t i = 0; i < rows; ++i) numbers[i] = static_cast<uint32_t>(i % keys);
  return numbers;
}

inline std::vector<uint32_t> zipf_keys(uint64_t rows, double exponent, std::mt19937_64& random) {
  std::vector<uint32_t> numbers(rows);
  for (uint32_t& number : numbers) number = static_cast<uint32_t>(zipf_rank(random(), exponent));
  return numbers;
}

/// Half of the rows have one key, the others any of as many as there are rows.
inline std::vector<uint32_t> hot_keys(uint64_t rows, std::mt19937_64& random) {
  std::vector<uint32_t> numbers(rows);
  for (uint32_t& number : numbers) number = random() % 2 ? 42 : static_cast<uint32_t>(random() % rows);
  return numbers;
}

inline std::vector<JoinDistribution> join_distributions() {
  std::vector<JoinDistribution> all;
  const auto add = [&](std::string name, auto draw, bool at_boundaries = false) {
    all.push_back({std::move(name), std::move(draw), at_boundaries});
  };
  const auto mirrored = [&](const std::string& name, const auto& draw) {
    add(name + "Right", draw);
    add(name + "Left", [draw](uint64_t rows, std::mt19937_64& random) {
      KeyNumbers keys = draw(rows, random);
      std::swap(keys.left, keys.right);
      return keys;
    });
  };
  for (const int percent : {0, 50, 100, 125, 150, 175}) {
    const double exponent = percent / 100.0;
    mirrored("Zipf" + std::to_string(percent), [exponent](uint64_t rows, std::mt19937_64& random) {
      return KeyNumbers{shuffled(each_key(rows / 4, rows / 4), random), zipf_keys(rows, exponent, random)};
    });
    add("Zipf" + std::to_string(percent) + "Both", [exponent](uint64_t rows, std::mt19937_64& random) {
      return KeyNumbers{zipf_keys(rows / 2, exponent, random), zipf_keys(rows, exponent, random)};
    });
  }
  for (const uint64_t multiplicity : {1, 10, 1000, 1000000}) {
    mirrored("Multiplicity" + std::to_string(multiplicity), [multiplicity](uint64_t rows, std::mt19937_64& random) {
      const uint64_t keys = std::max<uint64_t>(rows / multiplicity, 1);
      // Every other of the keys that are there once has a match.
      std::vector<uint32_t> once = each_key(keys, keys);
      for (uint32_t& number : once) number *= 2;
      return KeyNumbers{shuffled(std::move(once), random), shuffled(each_key(rows, keys), random)};
    });
    add("Multiplicity" + std::to_string(multiplicity) + "Both", [multiplicity](uint64_t rows, std::mt19937_64& random) {
      const uint64_t keys = std::max<uint64_t>(rows / multiplicity, 1);
      return KeyNumbers{shuffled(each_key(rows, keys), random), shuffled(each_key(rows, keys), random)};
    });
  }
  for (const uint64_t percent : {0, 1, 50, 100}) {
    add("Selectivity" + std::to_string(percent), [percent](uint64_t rows, std::mt19937_64& random) {
      const uint64_t keys = rows / 4;
      std::vector<uint32_t> some(rows);
      for (uint32_t& number : some) {
        number = static_cast<uint32_t>(random() % 100 < percent ? random() % keys : keys + random() % rows);
      }
      return KeyNumbers{shuffled(each_key(keys, keys), random), std::move(some)};
    });
  }
  mirrored("OneHotKey", [](uint64_t rows, std::mt19937_64& random) {
    return KeyNumbers{shuffled(each_key(rows / 4, rows / 4), random), hot_keys(rows, random)};
  });
  add("OneHotKeyBoth", [](uint64_t rows, std::mt19937_64& random) {
    return KeyNumbers{hot_keys(rows / 2, random), hot_keys(rows, random)};
  });
  mirrored("OneKey", [](uint64_t rows, std::mt19937_64&) {
    return KeyNumbers{std::vector<uint32_t>(3, 42), std::vector<uint32_t>(rows, 42)};
  });
  // As many rows of each key as a device, or a part of it, should have.
  add("KeysAsLargeAsShares", [](uint64_t rows, std::mt19937_64& random) {
    return KeyNumbers{shuffled(each_key(rows, 24), random), shuffled(each_key(rows, 24), random)};
  });
  for (const uint64_t multiplicity : {1, 20}) {
    add(
        "PartitionBoundaries" + std::to_string(multiplicity),
        [multiplicity](uint64_t rows, std::mt19937_64& random) {
          const uint64_t keys = std::min<uint64_t>(rows / multiplicity, uint64_t{1} << 18);
          return KeyNumbers{shuffled(each_key(keys, keys), random), shuffled(each_key(keys * multiplicity, keys), random)};
        },
        true);
  }
  return all;
}

/// The key that mix_key makes `mixed` of.
inline uint64_t unmixed(uint64_t mixed) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  uint64_t inverse = kFactor;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;  // doubles the right bits
  uint64_t key = (mixed ^ mixed >> 29 ^ mixed >> 58) * inverse;
  return key ^ key >> 32;
}

/// Key `number` of 2^18 of which mix_key makes the first and the last two of each of 2^16 partitions.
inline uint64_t boundary_key(uint64_t number) {
  const uint64_t partition = number / 4 * 40503 % (1 << 16);  // any of them soon
  return unmixed((partition << 48) + number % 4 - 2);
}

/// Key `number` of all keys, of 4 bytes or 8.
inline uint64_t spread_key(uint64_t number) { return number * 0x9E3779B97F4A7C15; }

/// Tuples with row numbers of 4 bytes.
inline JoinKeys make_keys(Engine& engine, const KeyNumbers& numbers, uint8_t key_bytes, uint64_t (*key_of)(uint64_t number)) {
  JoinKeys keys;
  const auto make = [&](JoinSide& side, const std::vector<uint32_t>& own) {
    side.rows = own.size();
    side.tuples.layout = {key_bytes, 4};
    side.tuples.keys = engine.memory->allocate(own.size() * key_bytes, "a test");
    side.tuples.view = {side.tuples.keys.data(), nullptr, 0, own.size()};
    for (uint64_t row = 0; row < own.size(); ++row) {
      const uint64_t key = key_of(own[row]);
      std::memcpy(side.tuples.keys.as<char>() + row * key_bytes, &key, key_bytes);
    }
  };
  make(keys.left, numbers.left);
  make(keys.right, numbers.right);
  return keys;
}

/// Sums over the rows of a join that tell it from others, whatever their order.
struct JoinSums {
  uint64_t pairs = 0, pairs_sum = 0;  ///< of products of the weights of their rows
  uint64_t left_alone = 0, left_sum = 0, right_alone = 0, right_sum = 0;
  JoinSums& operator+=(const JoinSums& other) {
    pairs += other.pairs, pairs_sum += other.pairs_sum;
    left_alone += other.left_alone, left_sum += other.left_sum;
    right_alone += other.right_alone, right_sum += other.right_sum;
    return *this;
  }
  friend bool operator==(const JoinSums&, const JoinSums&) = default;
  friend std::ostream& operator<<(std::ostream& out, const JoinSums& sums) {
    return out << sums.pairs << " pairs (" << sums.pairs_sum << "), " << sums.left_alone << " left (" << sums.left_sum << ") and "
               << sums.right_alone << " right (" << sums.right_sum << ") alone";
  }
};

inline uint64_t left_weight(uint64_t row) { return mix_key(row + 1); }
inline uint64_t right_weight(uint64_t row) { return mix_key(row + (uint64_t{1} << 40)); }

/// Those of a full join: all pairs of a key weigh the product of the sums of its rows.
inline JoinSums expected_sums(const KeyNumbers& keys) {
  struct Of {
    uint64_t rows = 0, sum = 0;
  };
  const auto greatest = [](const std::vector<uint32_t>& side) { return *std::max_element(side.begin(), side.end()); };
  std::vector<Of> left(std::max(greatest(keys.left), greatest(keys.right)) + size_t{1}), right(left.size());
  for (uint64_t row = 0; row < keys.left.size(); ++row) ++left[keys.left[row]].rows, left[keys.left[row]].sum += left_weight(row);
  for (uint64_t row = 0; row < keys.right.size(); ++row) {
    ++right[keys.right[row]].rows, right[keys.right[row]].sum += right_weight(row);
  }
  JoinSums sums;
  for (size_t key = 0; key < left.size(); ++key) {
    const auto [l, l_sum] = left[key];
    const auto [r, r_sum] = right[key];
    sums.pairs += l * r;
    sums.pairs_sum += l_sum * r_sum;
    if (r == 0) sums.left_alone += l, sums.left_sum += l_sum;
    if (l == 0) sums.right_alone += r, sums.right_sum += r_sum;
  }
  return sums;
}

/// Those of rows that were found, of 4-byte row numbers. Expects pairs to be of one key and to come first.
inline JoinSums sums_of(Engine& engine, const JoinRows& rows, const KeyNumbers& keys) {
  const auto* const left = rows.left.as<uint32_t>();
  const auto* const right = rows.right.as<uint32_t>();
  JoinSums sums;
  uint64_t wrong = 0, last_pair = 0, first_alone = rows.size;
  std::mutex mutex;
  const Job job;
  engine.pool.for_blocks(rows.size, 1 << 16, job, [&](uint64_t begin, uint64_t end) {
    JoinSums own;
    uint64_t own_wrong = 0, own_last = 0, own_first = rows.size;
    for (uint64_t i = begin; i < end; ++i) {
      const uint64_t l = left[i], r = right[i];
      const bool has_left = l != UINT32_MAX, has_right = r != UINT32_MAX;
      if ((has_left && l >= keys.left.size()) || (has_right && r >= keys.right.size()) || (!has_left && !has_right)) {
        ++own_wrong;
      } else if (has_left && has_right) {
        own_wrong += keys.left[l] != keys.right[r];
        ++own.pairs, own.pairs_sum += left_weight(l) * right_weight(r);
        own_last = i;
      } else {
        has_left ? (++own.left_alone, own.left_sum += left_weight(l)) : (++own.right_alone, own.right_sum += right_weight(r));
        own_first = std::min(own_first, i);
      }
    }
    const std::lock_guard lock(mutex);
    sums += own;
    wrong += own_wrong;
    last_pair = std::max(last_pair, own_last);
    first_alone = std::min(first_alone, own_first);
  });
  EXPECT_EQ(wrong, 0u) << "rows without a key, or with two";
  EXPECT_TRUE(sums.pairs == 0 || last_pair < first_alone) << "pairs come first";
  return sums;
}

inline uint64_t rows_of_kind(const JoinSums& sums, JoinKind kind, uint64_t left_rows) {
  switch (kind) {
    case JoinKind::inner: return sums.pairs;
    case JoinKind::left: return sums.pairs + sums.left_alone;
    case JoinKind::right: return sums.pairs + sums.right_alone;
    case JoinKind::full: return sums.pairs + sums.left_alone + sums.right_alone;
    case JoinKind::semi: return left_rows - sums.left_alone;
    case JoinKind::anti: return sums.left_alone;
  }
  return 0;
}

/// Joins `rows` rows, and fewer on one side, by hash, in rounds too, by a merge of sorted sides and in joint memory. Kinds
/// of joins take turns to be counted; rows of full and inner joins are looked at where there are at most `most_rows`.
inline void check_distribution(Engine& engine, const JoinDistribution& distribution, uint64_t rows, uint64_t most_rows) {
  std::mt19937_64 random(rows);
  const KeyNumbers numbers = distribution.draw(rows, random);
  const JoinSums expected = expected_sums(numbers);
  const std::vector<int> devices = all_devices(engine);
  size_t turn = distribution.name.size();
  for (const uint8_t key_bytes : {uint8_t{4}, uint8_t{8}}) {
    if (distribution.at_boundaries && key_bytes == 4) continue;
    Job job;
    const JoinKeys keys = make_keys(engine, numbers, key_bytes, distribution.at_boundaries ? boundary_key : spread_key);
    const auto sorted = [&](const JoinSide& side) {
      const SortPlan plan{SortAlgorithm::merge, devices, {side.rows}};
      return merge_runs(engine, sort_chunksets(engine, side.tuples.layout, side.tuples.view, ~uint64_t{0}, plan, job), job);
    };
    const SortedRun left = sorted(keys.left), right = sorted(keys.right);
    for (const Plan& plan : {Plan{}, Plan{.rounds = 2, .partitions = 64}, Plan{.merge = true}, Plan{.joint = true}}) {
      for (const bool build_left : {true, false}) {
        SCOPED_TRACE(::testing::Message() << distribution.name << ", keys of " << int(key_bytes) << " bytes, rounds "
                                          << plan.rounds << ", merge " << plan.merge << ", joint " << plan.joint
                                          << ", build left " << build_left);
        const auto run = [&](JoinRequest request) {
          request.build_left = build_left;
          return plan.merge ? merge_join(engine, left.view(), right.view(), keys, request, {devices, plan.subpartitions}, job)
                            : join(engine, keys, request, plan, job);
        };
        for (const JoinKind kind : {kKinds[turn % 6], kKinds[(turn + 3) % 6]}) {
          ASSERT_EQ(run({.kind = kind, .count_only = true}).size, rows_of_kind(expected, kind, numbers.left.size()));
        }
        const JoinKind kind = turn++ % 3 ? JoinKind::full : JoinKind::inner;
        JoinSums all = expected;
        if (kind == JoinKind::inner) all.left_alone = all.left_sum = all.right_alone = all.right_sum = 0;
        if (rows_of_kind(all, kind, 0) <= most_rows) ASSERT_EQ(sums_of(engine, run({.kind = kind}), numbers), all);
      }
    }
  }
}

/// How many devices join which of the distributions.
using Distributed = std::tuple<int, size_t>;

inline std::string name_of(const Distributed& distributed) {
  return join_distributions()[std::get<1>(distributed)].name + "On" + std::to_string(std::get<0>(distributed));
}
inline const auto kAllDistributions = ::testing::Range(size_t{0}, join_distributions().size());

}  // namespace warpjoin::testing
