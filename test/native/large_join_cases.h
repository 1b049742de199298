// Joins of more rows, and to more pairs, than 31 and 32 bits count: on host devices and on GPUs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "join_distributions.h"
#include "large_data.h"
#include "resident_join_cases.h"

namespace warpjoin::testing {

inline constexpr size_t kOther = size_t{8} << 30;        // host memory for what is not counted, and for others
inline constexpr size_t kMostBytes = size_t{100} << 30;  // limits of containers are not looked at

/// With the memory that is free, as far as these tests use it; without GPUs, with a host device.
inline std::unique_ptr<Engine> make_large_engine(int gpus = 0) {
  EngineConfig config{.host_devices = gpus ? 0 : 1, .memory_limit_bytes = std::min(free_host_bytes() - kOther / 2, kMostBytes)};
  for (int gpu = 0; gpu < gpus; ++gpu) config.gpus.push_back(gpu);
  return std::make_unique<Engine>(config);
}

/// What all 32 bits of a row number make: a bijection.
constexpr uint32_t scrambled(uint64_t row) {
  auto x = static_cast<uint32_t>(row);
  x = (x ^ x >> 16) * 0x7FEB352D;
  x = (x ^ x >> 15) * 0x846CA68B;
  return x ^ x >> 16;
}

/// Rows whose keys of 4 bytes are of these numbers, and whose values are their row numbers.
template <class NumberOf>
JoinSide large_side(Engine& engine, uint64_t rows, const NumberOf& number_of) {
  JoinSide side;
  side.rows = rows;
  side.tuples.layout = {4, static_cast<uint8_t>(rows < UINT32_MAX ? 4 : 8)};
  side.tuples.keys = engine.memory->allocate(rows * 4, "a test");
  side.tuples.view = {side.tuples.keys.data(), nullptr, 0, rows};
  auto* const keys = side.tuples.keys.as<uint32_t>();
  each_row(engine, rows, [&](uint64_t row) { keys[row] = static_cast<uint32_t>(spread_key(number_of(row))); });
  return side;
}

/// The left side's keys are any, the right side's numbers 0 .. right - 1 once each.
struct LargeSides {
  uint64_t left, right;

  bool matches(uint64_t left_row) const { return scrambled(left_row) < right; }
  JoinKeys keys(Engine& engine) const {
    JoinKeys keys;
    keys.left = large_side(engine, left, scrambled);
    keys.right = large_side(engine, right, [](uint64_t row) { return row; });
    return keys;
  }
  size_t key_bytes() const { return (left + right) * 4; }
  /// Of a copy of the tuples.
  size_t tuple_bytes() const { return left * (left < UINT32_MAX ? 8 : 12) + right * 8; }
};

/// The right side, which is the smaller one, builds.
inline JoinRequest large_request(JoinKind kind, bool count_only = false) {
  return {.kind = kind, .build_left = false, .count_only = count_only};
}

/// What a plan has: rounds, until a device's limit has room.
inline Plan large_plan(Engine& engine, const JoinKeys& keys, const JoinRequest& request) {
  const auto layout = [&](const JoinSide& side) {
    return TupleLayout{side.tuples.layout.key_bytes, request.count_only ? uint8_t{0} : side.tuples.layout.value_bytes};
  };
  Plan plan;
  while (hash_join_device_bytes(layout(keys.right), keys.right.rows, layout(keys.left), keys.left.rows, engine.devices.size(),
                                request, plan.rounds, engine) > engine.devices[0]->memory().limit_bytes()) {
    plan.rounds *= 2;
  }
  return plan;
}

/// Joins are of kind inner, or left: then each left row is there once.
inline void expect_large_rows(Engine& engine, const LargeSides& sides, const JoinRows& rows, JoinKind kind) {
  const bool keeps_left = kind == JoinKind::left;
  const uint64_t pairs = sum_rows(engine, sides.left, [&](uint64_t row) { return uint64_t{sides.matches(row)}; });
  ASSERT_EQ(rows.size, keeps_left ? sides.left : pairs);
  const uint64_t expected = sum_rows(
      engine, sides.left, [&](uint64_t row) { return keeps_left || sides.matches(row) ? left_weight(row) : uint64_t{0}; });
  const bool wide = rows.left_layout.value_bytes == 8;
  const auto left_of = [&](uint64_t i) { return wide ? rows.left.as<uint64_t>()[i] : uint64_t{rows.left.as<uint32_t>()[i]}; };
  const uint64_t wrong = sum_rows(engine, rows.size, [&](uint64_t i) {
    const uint64_t left = left_of(i);
    const uint32_t right = rows.right.as<uint32_t>()[i];
    if (left >= sides.left || sides.matches(left) != (i < pairs)) return uint64_t{1};
    return uint64_t{right != (i < pairs ? scrambled(left) : UINT32_MAX)};
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(sum_rows(engine, rows.size, [&](uint64_t i) { return left_weight(left_of(i)); }), expected);
}

/// What `count` says of inner and full joins.
inline void expect_large_counts(Engine& engine, const LargeSides& sides, const std::function<uint64_t(JoinKind)>& count) {
  const auto matches = [&](uint64_t rows) {
    return sum_rows(engine, rows, [&](uint64_t row) { return uint64_t{sides.matches(row)}; });
  };
  EXPECT_EQ(count(JoinKind::inner), matches(sides.left));
  EXPECT_EQ(count(JoinKind::full), sides.left + sides.right - matches(std::min(sides.left, kTo32)));
}

inline void check_large_counts(Engine& engine, const LargeSides& sides, const JoinKeys& keys, const Plan& plan, Job& job) {
  expect_large_counts(engine, sides,
                      [&](JoinKind kind) { return join(engine, keys, large_request(kind, true), plan, job).size; });
}

/// Counts where the tuples lie on the devices, an equal stretch on each.
inline void check_large_resident_counts(Engine& engine, const LargeSides& sides, const JoinKeys& keys) {
  constexpr TupleLayout layout{4, 0};
  const std::vector<Device*> devices = devices_of(engine);
  const size_t bytes = resident_hash_join_device_bytes(layout, sides.left, layout, sides.right, devices.size(),
                                                       large_request(JoinKind::full, true), engine);
  const auto share = [&](uint64_t rows) { return OwnedTuples::bytes(layout, rows / devices.size() + 1); };
  // Asked to cut what is on one device, a join has a copy of that.
  const std::vector<Buffer> reserved =
      reserve_all(engine, 2 * (share(sides.left) + share(sides.right)) + bytes + (size_t{1} << 26) + bytes / 16);
  const EvenSide left(engine, keys.left.tuples.view, layout), right(engine, keys.right.tuples.view, layout);
  for (const uint32_t partitions : {0u, 64u}) {
    expect_large_counts(engine, sides, [&](JoinKind kind) {
      Job job;
      return resident_hash_join(engine, devices, left.relation, right.relation, large_request(kind, true), job, partitions)
          .size();
    });
  }
}

/// Whether a call is refused with this code, whatever it says.
inline bool refuses(ErrorCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == code;
  }
  return false;
}

/// Keys that are there so often on both sides that pairs are more than 32 bits count.
struct ManyPairs {
  uint64_t keys, multiplicity, right_multiplicity;

  uint64_t pairs() const { return keys * multiplicity * right_multiplicity; }
  /// In ascending order, or one key after the other, again and again.
  KeyNumbers numbers(bool ascending) const {
    const auto side = [&](uint64_t times) {
      std::vector<uint32_t> numbers = each_key(keys * times, keys);
      if (ascending) std::sort(numbers.begin(), numbers.end());
      return numbers;
    };
    return {side(multiplicity), side(right_multiplicity)};
  }
};

inline uint64_t number_as_key(uint64_t number) { return number; }

/// Counts pairs, and refuses to write more than are allowed, or than memory has room for.
inline void check_counted_pairs(Engine& engine) {
  for (const ManyPairs& many : {ManyPairs{1, 1 << 17, 1 << 17}, ManyPairs{300, 4000, 4000}, ManyPairs{1, 1000000, 10000}}) {
    const JoinKeys keys = make_keys(engine, many.numbers(true), 4, number_as_key);
    const auto used_bytes = [&] { return engine.memory->used_bytes() - engine.pinned.held_bytes(); };
    const size_t used = used_bytes();
    for (const Plan& plan : {Plan{}, Plan{.rounds = 4}, Plan{.merge = true}, Plan{.joint = true}}) {
      SCOPED_TRACE(::testing::Message() << many.keys << " keys, rounds " << plan.rounds << ", merge " << plan.merge << ", joint "
                                        << plan.joint);
      Job job;
      for (const JoinKind kind : {JoinKind::inner, JoinKind::full}) {
        ASSERT_EQ(join(engine, keys, {.kind = kind, .count_only = true}, plan, job).size, many.pairs());
      }
      ASSERT_EQ(join(engine, keys, {.kind = JoinKind::semi, .count_only = true}, plan, job).size, keys.left.rows);
      for (const bool count_only : {false, true}) {
        const JoinRequest request{.count_only = count_only, .max_rows = many.pairs() - 1};
        const auto refused = [&](ErrorCode code) { return refuses(code, [&] { join(engine, keys, request, plan, job); }); };
        // A hash join writes rows as they are found: memory may end before the limit is reached.
        const bool memory_may_end = !count_only && !plan.merge && !plan.joint;
        EXPECT_TRUE((memory_may_end && refused(ErrorCode::memory_limit)) || refused(ErrorCode::output_rows));
      }
      ASSERT_GT(many.pairs() * 8, engine.memory->limit_bytes());
      EXPECT_TRUE(refuses(ErrorCode::memory_limit, [&] { join(engine, keys, {}, plan, job); }));
      EXPECT_EQ(used_bytes(), used);
    }
  }
}

/// One key everywhere, and many keys.
inline constexpr ManyPairs kWrittenPairs[] = {{1, (1 << 16) + 1, 1 << 16}, {5000, 1000, 1000}};
constexpr size_t kWrittenBytes = size_t{5000} * 1000 * 1000 * 8;

/// Pairs that are written to host memory, by hash or from sorted sides.
inline void check_written_pairs(Engine& engine, const Plan& plan) {
  for (const ManyPairs& many : kWrittenPairs) {
    ASSERT_GT(many.pairs(), kTo32);
    const KeyNumbers numbers = many.numbers(plan.merge);
    const JoinKeys keys = make_keys(engine, numbers, 4, number_as_key);
    Job job;
    EXPECT_EQ(sums_of(engine, join(engine, keys, {}, plan, job), numbers), expected_sums(numbers));
  }
}

/// Pairs that stay on the devices.
inline void check_kept_pairs(Engine& engine, std::span<const ManyPairs> sizes) {
  constexpr uint64_t kRows = uint64_t{1} << 27;
  constexpr TupleLayout layout{4, 4};
  const std::vector<Device*> devices = devices_of(engine);
  for (const ManyPairs& many : sizes) {
    const KeyNumbers numbers = many.numbers(false);
    const JoinKeys keys = make_keys(engine, numbers, 4, number_as_key);
    const size_t bytes =
        resident_hash_join_device_bytes(layout, keys.left.rows, layout, keys.right.rows, devices.size(), {}, engine);
    const std::vector<Buffer> reserved =
        reserve_all(engine, bytes + OwnedTuples::bytes(layout, 4 * (keys.left.rows + keys.right.rows)) + (size_t{1} << 26));
    const EvenSide left(engine, keys.left.tuples.view, layout), right(engine, keys.right.tuples.view, layout);
    Job job;
    const ResidentRows found = resident_hash_join(engine, devices, left.relation, right.relation, {}, job);
    ASSERT_EQ(found.size(), many.pairs());
    JoinSums sums;
    for (size_t d = 0; d < found.chunks.size(); ++d) {
      const ResidentRows::Chunk& chunk = found.chunks[d];
      const auto stream = devices[d]->create_stream();
      for (uint64_t at = 0; at < chunk.size; at += kRows) {
        JoinRows rows;
        rows.size = std::min(kRows, chunk.size - at);
        rows.left = engine.memory->allocate(rows.size * 4, "a test");
        rows.right = engine.memory->allocate(rows.size * 4, "a test");
        devices[d]->copy(rows.left.data(), chunk.left.as<uint32_t>() + at, rows.size * 4, *stream);
        devices[d]->copy(rows.right.data(), chunk.right.as<uint32_t>() + at, rows.size * 4, *stream);
        stream->synchronize();
        sums += sums_of(engine, rows, numbers);
      }
    }
    EXPECT_EQ(sums, expected_sums(numbers));
  }
}

}  // namespace warpjoin::testing
