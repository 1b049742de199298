// Sort-merge joins in the joint memory of devices: the same on host devices, far ones and GPUs.
#pragma once

#include <gtest/gtest.h>

#include "join_cases.h"
#include "merge_join_cases.h"

namespace warpjoin::testing {

inline const std::vector<Plan> kJoint{{.joint = true}};

inline Rows rows_of(const std::vector<uint64_t>& keys) { return {keys.begin(), keys.end()}; }

/// What merge_join gives of runs, for all shapes of keys.
inline void check_joint_order(Engine& engine, uint64_t rows) {
  std::mt19937_64 random(rows + engine.devices.size());
  for (const JoinShape shape : kAllShapes) {
    for (const uint8_t key_bytes : {uint8_t{4}, uint8_t{8}}) {
      const Rows left = rows_of(draw_join_keys(shape, true, rows + random() % 100, key_bytes, random)),
                 right = rows_of(draw_join_keys(shape, false, rows / 10, key_bytes, random));
      const JoinKeys keys = make_keys(engine, left, right, {key_bytes, 4, 8});
      JoinRequest request{.kind = random() % 2 ? JoinKind::inner : JoinKind::full, .build_left = random() % 2 == 0};
      request.want_keys = request.kind == JoinKind::inner;
      Job job;
      const JoinRows expected = join(engine, keys, request, {.merge = true}, job);
      expect_same_rows(join(engine, keys, request, kJoint[0], job), expected);
      EXPECT_EQ(job.done(), job.planned());
      request.count_only = true;
      request.want_keys = false;
      EXPECT_EQ(join(engine, keys, request, kJoint[0], job).size, expected.size);
    }
  }
}

/// One key with nearly all rows of a side, and with all of both: every device takes its share of them.
inline void check_joint_keys(Engine& engine, uint64_t rows) {
  std::mt19937_64 random(rows);
  Rows hot(rows), few(rows / 100), equal(rows, 42), one(3, 42);
  for (auto& key : hot) key = random() % 50 ? 42 : random() % rows;
  for (auto& key : few) key = random() % rows;
  for (const auto& [left, right] : {std::pair{&hot, &few}, std::pair{&equal, &one}, std::pair{&one, &equal}}) {
    const JoinKeys keys = make_keys(engine, *left, *right, {});
    for (const JoinKind kind : {JoinKind::inner, JoinKind::full}) {
      Job job;
      const JoinRows expected = join(engine, keys, {.kind = kind}, {.merge = true}, job);
      const JoinRows rows = join(engine, keys, {.kind = kind}, kJoint[0], job);
      expect_same_rows(rows, expected);
      EXPECT_LT(rows.skew, 1.3);
    }
  }
}

/// It needs what it says, of the memory of each device.
inline void check_joint_bytes(const std::function<std::unique_ptr<Engine>(size_t device_limit)>& make, size_t left_rows,
                              size_t right_rows) {
  std::mt19937_64 random(31);
  const Rows left = draw(random, left_rows, 2 * left_rows, 0, 8), right = draw(random, right_rows, 2 * left_rows, 0, 8);
  for (const JoinRequest request : {JoinRequest{.kind = JoinKind::full}, JoinRequest{.count_only = true}}) {
    const auto measure = make(0);
    const size_t bytes =
        sort_merge_join_device_bytes({8, 4}, left_rows, {8, 8}, right_rows, measure->devices.size(), request, *measure);
    const auto run = [&](size_t limit) {
      const auto engine = make(limit);
      const JoinKeys keys = make_keys(*engine, left, right, {8, 4, 8});
      Job job;
      const JoinRows rows = join(*engine, keys, request, kJoint[0], job);
      EXPECT_EQ(rows.size, naive(left, right, request).size());
      for (const auto& device : engine->devices) EXPECT_LE(device->memory().peak_bytes(), limit);
    };
    run(bytes);
    EXPECT_THROW(run(bytes - 1), Error);
  }
}

}  // namespace warpjoin::testing
