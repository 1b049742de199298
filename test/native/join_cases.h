// Joins to run and a naive join to compare with: the same on host devices and on GPUs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "failure_cases.h"
#include "join/join.h"
#include "words.h"

namespace warpjoin::testing {

inline constexpr uint64_t kMissing = ~uint64_t{0};

/// A side as drawn: each row's key, or nothing where the row can't match.
using Rows = std::vector<std::optional<uint64_t>>;

struct Shape {
  uint8_t key_bytes = 8, left_value = 4, right_value = 4;
  bool payload = false;  ///< values are not row numbers
};

inline uint64_t payload_of(uint64_t row) { return row * 2654435761u % 1000003; }

inline HostBuffer buffer_of(Engine& engine, const std::vector<uint64_t>& values, uint8_t width) {
  HostBuffer buffer = engine.memory->allocate(values.size() * width, "a test");
  for (size_t i = 0; i < values.size(); ++i) words::write(buffer.data(), width, i, values[i]);
  return buffer;
}

inline JoinSide make_side(Engine& engine, const Rows& rows, uint8_t key_bytes, uint8_t value_bytes, bool payload) {
  std::vector<uint64_t> keys, values, excluded;
  for (uint64_t row = 0; row < rows.size(); ++row) {
    if (!rows[row]) {
      excluded.push_back(row);
      continue;
    }
    keys.push_back(*rows[row]);
    values.push_back(payload ? payload_of(row) : row);
  }
  JoinSide side;
  side.tuples.layout = {key_bytes, value_bytes};
  side.tuples.keys = buffer_of(engine, keys, key_bytes);
  side.tuples.view = {side.tuples.keys.data(), nullptr, 0, keys.size()};
  if (payload || !excluded.empty()) {
    side.tuples.values = buffer_of(engine, values, value_bytes);
    side.tuples.view.values = side.tuples.values.data();
  }
  side.excluded = buffer_of(engine, excluded, value_bytes);
  side.excluded_rows = excluded.size();
  side.rows = rows.size();
  side.carries_payload = payload;
  return side;
}

inline JoinKeys make_keys(Engine& engine, const Rows& left, const Rows& right, Shape shape) {
  JoinKeys keys;
  keys.left = make_side(engine, left, shape.key_bytes, shape.left_value, shape.payload);
  keys.right = make_side(engine, right, shape.key_bytes, shape.right_value, shape.payload);
  return keys;
}

inline SortedRun make_run(Engine& engine, const JoinSide& side) {
  const TupleLayout layout = side.tuples.layout;
  std::vector<std::pair<uint64_t, uint64_t>> tuples;
  for (uint64_t i = 0; i < side.tuples.view.size; ++i) {
    const void* const values = side.tuples.view.values;
    tuples.emplace_back(words::read(side.tuples.view.keys, layout.key_bytes, i),
                        values ? words::read(values, layout.value_bytes, i) : i);
  }
  std::stable_sort(tuples.begin(), tuples.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::vector<uint64_t> keys, values;
  for (const auto& [key, value] : tuples) {
    keys.push_back(key);
    values.push_back(value);
  }
  SortedRun run;
  run.layout = layout;
  run.size = tuples.size();
  run.keys = buffer_of(engine, keys, layout.key_bytes);
  run.values = buffer_of(engine, values, layout.value_bytes);
  return run;
}

using Row = std::tuple<uint64_t, uint64_t, uint64_t>;  // left, right, key

inline std::vector<Row> naive(const Rows& left, const Rows& right, const JoinRequest& request, bool payload = false) {
  std::vector<Row> rows;
  std::vector<std::pair<uint64_t, uint64_t>> table;
  for (uint64_t r = 0; r < right.size(); ++r) {
    if (right[r]) table.emplace_back(*right[r], r);
  }
  std::sort(table.begin(), table.end());
  std::vector<bool> matched(right.size());
  const bool pairs = request.kind != JoinKind::semi && request.kind != JoinKind::anti;
  const auto value = [&](uint64_t row) { return payload ? payload_of(row) : row; };
  for (uint64_t l = 0; l < left.size(); ++l) {
    auto it = left[l] ? std::lower_bound(table.begin(), table.end(), std::pair{*left[l], uint64_t{0}}) : table.end();
    const bool any = it != table.end() && it->first == *left[l];
    for (; it != table.end() && it->first == *left[l]; ++it) {
      matched[it->second] = true;
      if (pairs) rows.emplace_back(value(l), value(it->second), request.want_keys ? *left[l] : 0);
    }
    if (any ? request.kind == JoinKind::semi
            : request.kind == JoinKind::left || request.kind == JoinKind::full || request.kind == JoinKind::anti) {
      rows.emplace_back(value(l), kMissing, 0);
    }
  }
  for (uint64_t r = 0; r < right.size(); ++r) {
    if (!matched[r] && (request.kind == JoinKind::right || request.kind == JoinKind::full))
      rows.emplace_back(kMissing, value(r), 0);
  }
  for (Row& row : rows) {
    if (!request.want_left) std::get<0>(row) = 0;
    if (!request.want_right && pairs) std::get<1>(row) = 0;
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

inline std::vector<Row> read(const JoinRows& joined, const JoinRequest& request) {
  const bool left_only = request.kind == JoinKind::semi || request.kind == JoinKind::anti;
  const auto at = [](const HostBuffer& buffer, uint8_t width, uint64_t i) {
    const uint64_t value = words::read(buffer.data(), width, i);
    return width == 4 && value == UINT32_MAX ? kMissing : value;
  };
  std::vector<Row> rows;
  bool left_missing = false, right_missing = false, past_pairs = false, pairs_first = true;
  for (uint64_t i = 0; i < joined.size; ++i) {
    Row row{0, left_only ? kMissing : 0, 0};
    if (request.want_left) std::get<0>(row) = at(joined.left, joined.left_layout.value_bytes, i);
    if (!left_only && request.want_right) std::get<1>(row) = at(joined.right, joined.right_layout.value_bytes, i);
    if (request.want_keys) std::get<2>(row) = at(joined.keys, joined.left_layout.key_bytes, i);
    left_missing |= std::get<0>(row) == kMissing;
    right_missing |= !left_only && std::get<1>(row) == kMissing;
    const bool alone = std::get<0>(row) == kMissing || std::get<1>(row) == kMissing;
    pairs_first &= alone || !past_pairs;
    past_pairs |= alone;
    rows.push_back(row);
  }
  EXPECT_TRUE(pairs_first || !request.want_left || !request.want_right);
  EXPECT_TRUE(joined.left_may_be_missing || !left_missing);
  EXPECT_TRUE(joined.right_may_be_missing || !right_missing);
  std::sort(rows.begin(), rows.end());
  return rows;
}

struct Plan {
  bool merge = false;
  uint32_t rounds = 1;  ///< on devices beyond a link; others have one
  uint32_t partitions = 0, subpartitions = 3;
  bool either_side = false;
  bool joint = false;  ///< sides are sorted and merged in the joint memory of the devices
};

inline std::vector<int> all_devices(const Engine& engine) {
  std::vector<int> devices(engine.devices.size());
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

inline JoinRows join(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const Plan& plan, Job& job) {
  if (plan.joint) return sort_merge_join(engine, keys, request, all_devices(engine), job);
  if (!plan.merge) {
    const uint32_t rounds = engine.devices[0]->addresses_host_memory() ? 1 : plan.rounds;
    return hash_join(engine, keys, request, {all_devices(engine), rounds, plan.partitions, plan.either_side}, job);
  }
  SortedRun left, right;
  const auto sorted = [&](const JoinSide& side, SortedRun& run) {
    if (is_sorted(side.tuples, engine, job)) return side.tuples.view;
    run = make_run(engine, side);
    return run.view();
  };
  return merge_join(engine, sorted(keys.left, left), sorted(keys.right, right), keys, request,
                    {all_devices(engine), plan.subpartitions}, job);
}

inline void check(Engine& engine, const Rows& left, const Rows& right, Shape shape, JoinRequest request, const Plan& plan) {
  const JoinKeys keys = make_keys(engine, left, right, shape);
  const std::vector<Row> expected = naive(left, right, request, shape.payload);
  SCOPED_TRACE(::testing::Message() << "kind " << int(request.kind) << " build_left " << request.build_left << " devices "
                                    << engine.devices.size() << " merge " << plan.merge << " rounds " << plan.rounds
                                    << " partitions " << plan.partitions << " rows " << left.size() << " " << right.size()
                                    << " keys " << int(shape.key_bytes));
  Job job;
  JoinRows rows = join(engine, keys, request, plan, job);
  ASSERT_EQ(rows.size, expected.size());
  ASSERT_EQ(read(rows, request), expected);
  ASSERT_EQ(job.done(), job.planned());
  ASSERT_GE(rows.skew, 1.0);
  request.count_only = true;
  ASSERT_EQ(join(engine, keys, request, plan, job).size, expected.size());
  request.count_only = false;
  request.max_rows = expected.size();
  ASSERT_EQ(join(engine, keys, request, plan, job).size, expected.size());
  if (expected.empty()) return;
  request.max_rows = expected.size() - 1;
  try {
    join(engine, keys, request, plan, job);
    FAIL() << "expected the row limit to hold";
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), ErrorCode::output_rows);
  }
}

inline Rows draw(std::mt19937_64& random, size_t size, uint64_t domain, double excluded, uint8_t key_bytes) {
  Rows rows(size);
  for (auto& row : rows) {
    if (static_cast<double>(random() % 1000) < excluded * 1000) continue;
    const uint64_t key = random() % domain * 0x9E3779B97F4A7C15ull;
    row = key_bytes == 4 ? static_cast<uint32_t>(key) : key;
  }
  return rows;
}

inline constexpr JoinKind kKinds[] = {JoinKind::inner, JoinKind::left, JoinKind::right,
                                      JoinKind::full,  JoinKind::semi, JoinKind::anti};

inline const std::vector<Plan> kHashAndMerge{{}, {.merge = true}};

/// Random joins of all kinds, by the algorithms of these plans.
inline void check_drawn_joins(Engine& engine, const std::vector<Plan>& algorithms = kHashAndMerge) {
  std::mt19937_64 random(engine.devices.size());
  const auto pick = [&](auto... choices) {
    const uint64_t all[] = {static_cast<uint64_t>(choices)...};
    return all[random() % sizeof...(choices)];
  };
  for (const JoinKind kind : kKinds) {
    for (const Plan& algorithm : algorithms) {
      for (const bool build_left : {false, true}) {
        for (int draws = 0; draws < 2; ++draws) {
          const Shape shape{static_cast<uint8_t>(pick(4, 8)), static_cast<uint8_t>(pick(4, 8)), static_cast<uint8_t>(pick(4, 8)),
                            kind == JoinKind::inner && random() % 3 == 0};
          const double excluded = shape.payload ? 0 : static_cast<double>(pick(0, 1)) * 0.1;
          const uint64_t domain = pick(3, 300, 3000, 1000000);
          const uint64_t most = domain == 3 ? 100 : 2000;
          const Rows left = draw(random, random() % most, domain, excluded, shape.key_bytes);
          const Rows right = draw(random, random() % most, domain, excluded, shape.key_bytes);
          JoinRequest request{.kind = kind, .build_left = build_left};
          request.want_left = random() % 4 != 0;
          request.want_right = random() % 4 != 0;
          request.want_keys = kind == JoinKind::inner && random() % 2 != 0;
          Plan plan = algorithm;
          plan.rounds = static_cast<uint32_t>(pick(1, 1, 2, 8));
          plan.partitions = static_cast<uint32_t>(pick(0, 1, 4, 64));
          plan.subpartitions = static_cast<uint32_t>(pick(3, 9));
          check(engine, left, right, shape, request, plan);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

inline void check_empty_joins(Engine& engine, const std::vector<Plan>& algorithms = kHashAndMerge) {
  Rows some(100), others(90);
  for (uint64_t i = 0; i < some.size(); ++i) some[i] = i % 50;
  for (uint64_t i = 0; i < others.size(); ++i) others[i] = 1000 + i;
  Rows none, excluded(20);
  for (const JoinKind kind : kKinds) {
    for (const Plan& algorithm : algorithms) {
      for (const uint32_t rounds : {1u, 2u}) {
        if (rounds > 1 && (algorithm.merge || algorithm.joint)) continue;
        for (const auto& [left, right] :
             {std::pair{&none, &none}, std::pair{&some, &none}, std::pair{&none, &some}, std::pair{&some, &others},
              std::pair{&some, &excluded}, std::pair{&excluded, &excluded}}) {
          Plan plan = algorithm;
          plan.rounds = rounds;
          check(engine, *left, *right, {}, {.kind = kind, .build_left = rounds == 1}, plan);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

inline void check_skewed_joins(Engine& engine, const std::vector<Plan>& algorithms = kHashAndMerge) {
  std::mt19937_64 random(7 + engine.devices.size());
  const auto zipf = [&] { return static_cast<uint64_t>(1.0 / (static_cast<double>(random() % 10000 + 1) / 10000.0)); };
  Rows flat(300), hot(600), zipfian(500), equal(70);
  for (uint64_t i = 0; i < flat.size(); ++i) flat[i] = i;
  for (auto& key : hot) key = random() % 4 ? 42 : random() % 1000;
  for (auto& key : zipfian) key = zipf();
  for (auto& key : equal) key = 42;
  for (const JoinKind kind : kKinds) {
    for (const Plan& algorithm : algorithms) {
      for (const auto& [left, right] : {std::pair{&flat, &hot}, std::pair{&zipfian, &flat}, std::pair{&equal, &hot},
                                        std::pair{&equal, &equal}, std::pair{&zipfian, &equal}}) {
        const bool build_left = random() % 2;
        Plan plan = algorithm;
        plan.partitions = build_left ? 0 : 16;
        plan.subpartitions = 9;
        check(engine, *left, *right, {}, {.kind = kind, .build_left = build_left}, plan);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

/// Keys so heavy that a device of several would have too many: one of nearly all probe tuples, the first ones of a Zipf
/// distribution, and that of all tuples of either side.
inline void check_heavy_keys(Engine& engine, bool splits) {
  std::mt19937_64 random(29 + engine.devices.size());
  std::vector<double> weights(5000);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = std::pow(static_cast<double>(i + 1), -1.75);
  std::discrete_distribution<uint64_t> zipf(weights.begin(), weights.end());
  constexpr size_t kRows = 30000;
  Rows some(5000), hot(kRows), zipfian(kRows), equal(kRows, 42), few(5, 42);
  for (uint64_t i = 0; i < some.size(); ++i) some[i] = i;
  for (auto& key : hot) key = random() % 20 ? 42 : random() % 10000;
  for (auto& key : zipfian) key = zipf(random);
  for (const auto& [light, heavy] :
       {std::pair{&some, &hot}, std::pair{&some, &zipfian}, std::pair{&few, &equal}, std::pair{&few, &hot}}) {
    for (const JoinKind kind : kKinds) {
      const bool heavy_left = random() % 2;
      const Rows &left = heavy_left ? *heavy : *light, &right = heavy_left ? *light : *heavy;
      JoinRequest request{.kind = kind, .build_left = random() % 2 == 0};
      check(engine, left, right, {}, request, {.partitions = 64});
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (const bool build_left : {false, true}) {
      Job job;
      const JoinKeys keys = make_keys(engine, *light, *heavy, {});
      const JoinRows rows = join(engine, keys, {.build_left = build_left}, {.partitions = 64}, job);
      EXPECT_EQ(rows.split_rows > 0, splits);
      // An eighth more than the mean, and 4096 tuples.
      const double mean = static_cast<double>(light->size() + heavy->size()) / static_cast<double>(engine.devices.size());
      if (splits) EXPECT_LT(rows.skew, 1.2 + 4096 / mean);
    }
  }
}

/// A full join, and a look at the result.
inline RepeatedCall repeated_join(Engine& engine, const Plan& plan, size_t left_rows, size_t right_rows) {
  std::mt19937_64 random(17);
  const Rows left = draw(random, left_rows, right_rows, 0.1, 8), right = draw(random, right_rows, right_rows, 0.1, 8);
  const JoinRequest request{.kind = JoinKind::full};
  const auto keys = std::make_shared<JoinKeys>(make_keys(engine, left, right, {}));
  const auto left_run = std::make_shared<SortedRun>(), right_run = std::make_shared<SortedRun>();
  if (plan.merge) {
    *left_run = make_run(engine, keys->left);
    *right_run = make_run(engine, keys->right);
  }
  return RepeatedCall(engine, [=, &engine, expected = naive(left, right, request)](Job& job) {
    const JoinRows rows = plan.merge ? merge_join(engine, left_run->view(), right_run->view(), *keys, request,
                                                  {all_devices(engine), plan.subpartitions}, job)
                                     : join(engine, *keys, request, plan, job);
    ASSERT_EQ(read(rows, request), expected);
  });
}

/// A hash join needs what it says, of the memory of each device.
inline void check_announced_bytes(const std::function<std::unique_ptr<Engine>(size_t device_limit)>& make, size_t left_rows,
                                  size_t right_rows, uint32_t rounds, JoinKind kind) {
  std::mt19937_64 random(31);
  const Rows left = draw(random, left_rows, 2 * left_rows, 0, 8), right = draw(random, right_rows, 2 * left_rows, 0, 8);
  const JoinRequest request{.kind = kind};
  const auto run = [&](size_t limit) {
    const auto engine = make(limit);
    const JoinKeys keys = make_keys(*engine, left, right, {8, 4, 8});
    Job job;
    const JoinRows rows = join(*engine, keys, request, {.rounds = rounds}, job);
    ASSERT_EQ(read(rows, request), naive(left, right, request));
    for (const auto& device : engine->devices) EXPECT_LE(device->memory().peak_bytes(), limit);
  };
  const auto engine = make(size_t{1} << 30);
  const size_t bytes =
      hash_join_device_bytes({8, 4}, left_rows, {8, 8}, right_rows, engine->devices.size(), request, rounds, *engine);
  run(bytes);
  if (rounds == 1) EXPECT_THROW(run(bytes - 1), Error);
}

}  // namespace warpjoin::testing
