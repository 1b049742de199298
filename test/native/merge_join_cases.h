// Cases for merge joins on devices beyond a link, far devices or GPUs: what they give is what host devices give.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/engine.h"
#include "join/join.h"
#include "words.h"

namespace warpjoin::testing {

inline constexpr JoinKind kAllJoins[] = {JoinKind::inner, JoinKind::left, JoinKind::right,
                                         JoinKind::full,  JoinKind::semi, JoinKind::anti};

/// A side of a join: sorted tuples whose values are their rows before they were sorted.
inline SortedRun make_sorted_run(Engine& engine, TupleLayout layout, std::vector<uint64_t> keys) {
  SortedRun run;
  run.layout = layout;
  run.size = keys.size();
  run.keys = engine.memory->allocate(run.size * layout.key_bytes, "a test");
  run.values = engine.memory->allocate(run.size * layout.value_bytes, "a test");
  std::sort(keys.begin(), keys.end());
  std::vector<uint64_t> values(run.size);
  std::iota(values.begin(), values.end(), 0);
  std::mt19937_64 random(keys.size());
  std::shuffle(values.begin(), values.end(), random);
  for (size_t i = 0; i < run.size; ++i) {
    words::write(run.keys.data(), layout.key_bytes, i, keys[i]);
    words::write(run.values.data(), layout.value_bytes, i, values[i]);
  }
  return run;
}

/// Two sorted sides, and what joins want to know of the keys that they were made of.
struct MergeJoinSides {
  SortedRun left, right;
  JoinKeys keys;

  MergeJoinSides(Engine& engine, TupleLayout left_layout, const std::vector<uint64_t>& left_keys, TupleLayout right_layout,
                 const std::vector<uint64_t>& right_keys)
      : left(make_sorted_run(engine, left_layout, left_keys)), right(make_sorted_run(engine, right_layout, right_keys)) {
    const auto describe = [&](JoinSide& side, const SortedRun& run) {
      side.tuples.layout = run.layout;
      side.tuples.view = run.view();
      side.rows = run.size;
    };
    describe(keys.left, left);
    describe(keys.right, right);
  }
};

/// Keys of many shapes: one is in three quarters of the rows, others in a few, or in one.
enum class JoinShape { distinct, disjoint, few, hot, equal, runs };
inline constexpr JoinShape kAllShapes[] = {JoinShape::distinct, JoinShape::disjoint, JoinShape::few,
                                           JoinShape::hot,      JoinShape::equal,    JoinShape::runs};

inline std::vector<uint64_t> draw_join_keys(JoinShape shape, bool left, uint64_t size, uint8_t key_bytes,
                                            std::mt19937_64& random) {
  std::vector<uint64_t> keys(size);
  for (uint64_t i = 0; i < size; ++i) {
    switch (shape) {
      case JoinShape::distinct: keys[i] = i * (left ? 2 : 3); break;
      case JoinShape::disjoint: keys[i] = 2 * (random() % (2 * size)) + left; break;
      case JoinShape::few: keys[i] = random() % (size / 20 + 5); break;
      case JoinShape::hot: keys[i] = left && random() % 4 ? 4321 : random() % 10'000; break;
      case JoinShape::equal: keys[i] = left || i == 0 ? 7 : i; break;
      case JoinShape::runs: keys[i] = random() % (random() % (size / 2 + 1) + 1); break;
    }
    keys[i] = key_bytes == 4 ? static_cast<uint32_t>(keys[i]) : keys[i] << 20;
  }
  return keys;
}

inline JoinRows run_merge_join(Engine& engine, const MergeJoinSides& sides, const JoinRequest& request, uint32_t subpartitions,
                               Job& job) {
  std::vector<int> devices(engine.devices.size());
  std::iota(devices.begin(), devices.end(), 0);
  return merge_join(engine, sides.left.view(), sides.right.view(), sides.keys, request, {devices, subpartitions}, job);
}

inline void expect_same_rows(const JoinRows& rows, const JoinRows& expected) {
  ASSERT_EQ(rows.size, expected.size);
  const auto same = [&](const HostBuffer& column, const HostBuffer& other, size_t width) {
    ASSERT_EQ(static_cast<bool>(column), static_cast<bool>(other));
    if (column) {
      ASSERT_EQ(std::memcmp(column.data(), other.data(), rows.size * width), 0);
    }
  };
  same(rows.keys, expected.keys, rows.left_layout.key_bytes);
  same(rows.left, expected.left, rows.left_layout.value_bytes);
  same(rows.right, expected.right, rows.right_layout.value_bytes);
}

/// Joins on the engine and on one host device. Memory on the engine's devices is what was announced.
inline void check_merge_join(Engine& engine, const MergeJoinSides& sides, const JoinRequest& request, uint32_t subpartitions) {
  SCOPED_TRACE(::testing::Message() << "kind " << int(request.kind) << " build_left " << request.build_left << " devices "
                                    << engine.devices.size() << " subpartitions " << subpartitions << " rows " << sides.left.size
                                    << " " << sides.right.size << " keys " << int(sides.left.layout.key_bytes));
  Engine host({.threads = 3, .host_devices = 1, .memory_limit_bytes = size_t{4} << 30});
  Job job;
  const JoinRows expected = run_merge_join(host, sides, request, subpartitions, job);
  const SortedRun &build = request.build_left ? sides.left : sides.right, &probe = request.build_left ? sides.right : sides.left;
  const size_t announced =
      merge_join_device_bytes(build.layout, build.size, probe.layout, probe.size, engine.devices.size(), subpartitions, engine);
  for (const auto& device : engine.devices) device->memory().reset_peak();
  Job own;
  const JoinRows rows = run_merge_join(engine, sides, request, subpartitions, own);
  ASSERT_NO_FATAL_FAILURE(expect_same_rows(rows, expected));
  ASSERT_EQ(own.done(), own.planned());
  for (const auto& device : engine.devices) {
    ASSERT_EQ(device->memory().peak_bytes(), announced);
    ASSERT_EQ(device->memory().used_bytes(), 0u);
  }
}

/// Every kind of join and shape of keys on sides of up to `rows` rows.
inline void check_merge_joins(Engine& engine, uint64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const JoinShape shape : kAllShapes) {
    for (const JoinKind kind : kAllJoins) {
      const uint8_t key_bytes = random() % 2 ? 4 : 8;
      const auto layout = [&] { return TupleLayout{key_bytes, static_cast<uint8_t>(random() % 2 ? 4 : 8)}; };
      // Sides of one heavy key each would give too many pairs.
      const uint64_t left = random() % rows + 1, right = (random() % 2 ? rows : rows / 50) + 1;
      const MergeJoinSides sides(engine, layout(), draw_join_keys(shape, true, left, key_bytes, random), layout(),
                                 draw_join_keys(shape, false, right, key_bytes, random));
      JoinRequest request{.kind = kind, .build_left = random() % 2 == 0};
      request.count_only = random() % 5 == 0;
      request.want_keys = kind == JoinKind::inner && !request.count_only && random() % 2;
      check_merge_join(engine, sides, request, 3 + static_cast<uint32_t>(random() % 3) * 4);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

/// Sides that are empty, or of one row.
inline void check_small_merge_joins(Engine& engine) {
  constexpr TupleLayout layout{8, 4};
  const std::vector<uint64_t> none, one{5}, other{6}, some{1, 5, 5, 9};
  for (const JoinKind kind : kAllJoins) {
    for (const auto* left : {&none, &one, &other, &some}) {
      for (const auto* right : {&none, &one, &some}) {
        const MergeJoinSides sides(engine, layout, *left, layout, *right);
        check_merge_join(engine, sides, {.kind = kind}, 3);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace warpjoin::testing
