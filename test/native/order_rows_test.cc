#include "join/order_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "join_cases.h"
#include "places.h"
#include "sizes.h"

namespace warpjoin {
namespace {

using namespace testing;
using Pair = std::pair<uint64_t, uint64_t>;

constexpr uint64_t kMissing = ~uint64_t{0};

HostBuffer column_of(Engine& engine, const std::vector<Pair>& pairs, bool left, uint8_t width) {
  HostBuffer column = engine.memory->allocate(pairs.size() * width, "a test");
  for (size_t i = 0; i < pairs.size(); ++i) {
    const uint64_t row = left ? pairs[i].first : pairs[i].second;
    if (width == 4) {
      column.as<uint32_t>()[i] = static_cast<uint32_t>(row);
    } else {
      column.as<uint64_t>()[i] = row;
    }
  }
  return column;
}

uint64_t value_of(const HostBuffer& column, uint8_t width, size_t i) {
  if (width == 8) return column.as<uint64_t>()[i];
  const uint32_t row = column.as<uint32_t>()[i];
  return row == ~uint32_t{0} ? kMissing : row;
}

struct Widths {
  uint8_t left = 4, right = 4;
};

JoinRows rows_of(Engine& engine, const std::vector<Pair>& pairs, Widths widths) {
  JoinRows rows;
  rows.size = pairs.size();
  rows.left_layout.value_bytes = widths.left;
  rows.right_layout.value_bytes = widths.right;
  rows.left = column_of(engine, pairs, true, widths.left);
  rows.right = column_of(engine, pairs, false, widths.right);
  return rows;
}

std::vector<Pair> read_pairs(const JoinRows& rows) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < rows.size; ++i) {
    pairs.emplace_back(rows.left ? value_of(rows.left, rows.left_layout.value_bytes, i) : 0,
                       rows.right ? value_of(rows.right, rows.right_layout.value_bytes, i) : 0);
  }
  return pairs;
}

std::vector<Pair> ordered(std::vector<Pair> pairs, bool by_left) {
  std::sort(pairs.begin(), pairs.end(), [&](const Pair& a, const Pair& b) {
    return by_left ? a < b : std::pair(a.second, a.first) < std::pair(b.second, b.first);
  });
  return pairs;
}

/// `size` pairs that are found once each, so that no two orders of them are right.
std::vector<Pair> draw_pairs(std::mt19937_64& random, uint64_t left_rows, uint64_t right_rows, size_t size, double skew) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < size; ++i) {
    const bool heavy = static_cast<double>(random() % 1000) < skew * 1000;
    pairs.emplace_back(heavy ? left_rows / 3 : random() % left_rows, random() % right_rows);
  }
  for (uint64_t alone = 0; alone < std::min<uint64_t>(size / 10, left_rows); ++alone) pairs.emplace_back(alone, kMissing);
  for (uint64_t alone = 0; alone < std::min<uint64_t>(size / 10, right_rows); ++alone) pairs.emplace_back(kMissing, alone);
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  std::shuffle(pairs.begin(), pairs.end(), random);
  return pairs;
}

TEST(OrderRows, OrdersBySideAndThenByTheOther) {
  const auto engine = make_engine(1, Place::host);
  std::mt19937_64 random(1);
  struct Case {
    uint64_t left_rows, right_rows;
    size_t size;
    double skew = 0;
  };
  for (const auto& [left_rows, right_rows, size, skew] : {Case{1, 1, 1},
                                                          {1, 100, 50},
                                                          {100, 1, 50},
                                                          {64, 64, 2000},
                                                          {1000, 5, 3000},
                                                          {5, many(200'000), many(300'000)},
                                                          {many(100'000), many(100'000), many(150'000)},
                                                          {many(100'000), many(1'000'000), many(400'000), 0.5},
                                                          {uint64_t{1} << 31, 300, 20'000},
                                                          {7, 7, 0}}) {
    const std::vector<Pair> pairs = draw_pairs(random, left_rows, right_rows, size, skew);
    for (const Widths widths : {Widths{4, 4}, {8, 4}, {4, 8}, {8, 8}}) {
      for (const bool by_left : {true, false}) {
        SCOPED_TRACE(::testing::Message() << left_rows << " x " << right_rows << ", " << size << " rows, by_left " << by_left);
        JoinRows rows = rows_of(*engine, pairs, widths);
        Job job;
        order_rows(*engine, rows, by_left, left_rows * by_left + right_rows * !by_left, by_left ? right_rows : left_rows, job);
        ASSERT_EQ(read_pairs(rows), ordered(pairs, by_left));
        ASSERT_EQ(job.done(), job.planned());
      }
    }
  }
}

TEST(OrderRows, LeavesRowsInOrderWhereTheyAre) {
  const auto engine = make_engine(1, Place::host);
  std::mt19937_64 random(2);
  std::vector<Pair> pairs = ordered(draw_pairs(random, 5000, 5000, 200'000, 0), true);
  JoinRows rows = rows_of(*engine, pairs, {});
  const void* const left = rows.left.data();
  const size_t used = engine->memory->used_bytes();
  engine->memory->reset_peak();
  Job job;
  order_rows(*engine, rows, true, 5000, 5000, job);
  EXPECT_EQ(rows.left.data(), left);
  EXPECT_EQ(engine->memory->peak_bytes(), used);
  // Equal rows alone are out of order: the side stays.
  for (size_t i = 0; i + 1 < pairs.size(); ++i) {
    if (pairs[i].first != pairs[i + 1].first) continue;
    std::swap(pairs[i], pairs[i + 1]);
    rows = rows_of(*engine, pairs, {});
    const void* const own = rows.left.data();
    order_rows(*engine, rows, true, 5000, 5000, job);
    ASSERT_EQ(rows.left.data(), own);
    ASSERT_EQ(read_pairs(rows), ordered(pairs, true));
    break;
  }
}

TEST(OrderRows, OrdersOneSideAlone) {
  const auto engine = make_engine(1, Place::host);
  std::mt19937_64 random(3);
  std::vector<Pair> pairs = draw_pairs(random, 100'000, 10, 90'000, 0);
  JoinRows rows = rows_of(*engine, pairs, {});
  rows.right = {};
  Job job;
  order_rows(*engine, rows, true, 100'000, 0, job);
  for (Pair& pair : pairs) pair.second = 0;
  EXPECT_EQ(read_pairs(rows), ordered(pairs, true));
  EXPECT_THROW(order_rows(*engine, rows, false, 10, 100'000, job), Error);
  rows.keys = engine->memory->allocate(8, "a test");
  EXPECT_THROW(order_rows(*engine, rows, true, 100'000, 0, job), Error);
}

TEST(OrderRows, TakesNoMoreMemoryThanItSays) {
  const auto engine = make_engine(1, Place::host);
  std::mt19937_64 random(4);
  for (const double skew : {0.0, 0.9}) {
    const std::vector<Pair> pairs = draw_pairs(random, 1 << 20, 1 << 20, 1'500'000, skew);
    JoinRows rows = rows_of(*engine, pairs, {});
    const size_t used = engine->memory->used_bytes();
    engine->memory->reset_peak();
    Job job;
    order_rows(*engine, rows, true, 1 << 20, 1 << 20, job);
    EXPECT_LE(engine->memory->peak_bytes() - used, order_rows_bytes(*engine, rows.size, 4, 4));
    EXPECT_EQ(engine->memory->used_bytes(), used);
  }
}

TEST(OrderRows, KeepsTheRowsThatAreAskedFor) {
  const auto engine = make_engine(1, Place::host);
  std::mt19937_64 random(5);
  const std::vector<Pair> pairs = draw_pairs(random, 1000, 1000, 5000, 0);
  const uint64_t size = pairs.size();
  for (const auto& [offset, limit] : {std::pair<uint64_t, uint64_t>{0, UINT64_MAX},
                                      {0, 0},
                                      {0, 10},
                                      {10, UINT64_MAX},
                                      {3, 4},
                                      {size - 1, 5},
                                      {size, 5},
                                      {size + 1, 5},
                                      {UINT64_MAX, UINT64_MAX},
                                      {10, size - 20}}) {
    JoinRows rows = rows_of(*engine, pairs, {4, 8});
    Job job;
    slice_rows(*engine, rows, offset, limit, job);
    const uint64_t begin = std::min(offset, size), end = begin + std::min(limit, size - begin);
    ASSERT_EQ(rows.size, end - begin);
    ASSERT_EQ(read_pairs(rows),
              std::vector<Pair>(pairs.begin() + static_cast<int64_t>(begin), pairs.begin() + static_cast<int64_t>(end)));
  }
}

TEST(CrossJoin, GivesTheRowsThatAreAskedForInEitherOrder) {
  const auto engine = make_engine(1, Place::host);
  for (const auto& [l, r] : {std::pair<uint64_t, uint64_t>{7, 5}, {1, 300'000}, {300'000, 1}, {700, 400}, {0, 5}, {5, 0}}) {
    for (const bool left_first : {true, false}) {
      for (const auto& [offset, limit] :
           {std::pair<uint64_t, uint64_t>{0, UINT64_MAX}, {3, 11}, {l * r - l * r / 3, 1000}, {1, 0}}) {
        Job job;
        const JoinRows rows = cross_join(*engine, l, r, UINT64_MAX, left_first, offset, limit, job);
        const uint64_t begin = std::min(offset, l * r), size = std::min(limit, l * r - begin);
        ASSERT_EQ(rows.size, size);
        const std::vector<Pair> pairs = read_pairs(rows);
        for (uint64_t i = 0; i < size; ++i) {
          const uint64_t at = begin + i;
          ASSERT_EQ(pairs[i], left_first ? Pair(at / r, at % r) : Pair(at % l, at / l));
        }
        ASSERT_EQ(job.done(), job.planned());
      }
    }
  }
}

}  // namespace
}  // namespace warpjoin
