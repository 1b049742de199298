#include "columns/key_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "join_cases.h"
#include "places.h"
#include "sizes.h"

namespace warpjoin {
namespace {

using namespace testing;

std::vector<uint64_t> read_rows(const UniqueRows& kept) {
  std::vector<uint64_t> rows;
  for (uint64_t i = 0; i < kept.size; ++i) {
    rows.push_back(kept.row_bytes == 4 ? kept.rows.as<uint32_t>()[i] : kept.rows.as<uint64_t>()[i]);
  }
  return rows;
}

/// Rows without a key are equal to each other.
std::vector<uint64_t> naive_unique(const Rows& keys, KeepRow keep) {
  std::map<std::optional<uint64_t>, std::vector<uint64_t>> groups;
  for (size_t row = 0; row < keys.size(); ++row) groups[keys[row]].push_back(row);
  std::vector<uint64_t> rows;
  for (const auto& [key, group] : groups) {
    if (keep == KeepRow::none && group.size() > 1) continue;
    rows.push_back(keep == KeepRow::last ? group.back() : group.front());
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::optional<RepeatedKey> naive_repeated(const Rows& keys) {
  std::map<uint64_t, uint64_t> first;
  for (size_t row = 0; row < keys.size(); ++row) {
    if (!keys[row]) continue;
    const auto [at, is_new] = first.emplace(*keys[row], row);
    if (!is_new) return RepeatedKey{at->second, row};
  }
  return std::nullopt;
}

struct Spread {
  const char* name;
  uint64_t distinct, step, least;
  double heavy = 0;
};

const Spread kSpreads[] = {
    {"one", 1, 1, 7},
    {"few", 5, 1, 0},
    {"a range", 3000, 1, 1'000'000},
    {"about zero", 3000, 1, uint64_t(-1500)},
    {"wide", 1 << 20, 0x9E3779B97F4A7C15, 3},
    {"wide and heavy", 1 << 20, 0x9E3779B97F4A7C15, 3, 0.9},
};

Rows draw_keys(std::mt19937_64& random, size_t size, const Spread& spread, double excluded, uint8_t key_bytes) {
  Rows rows(size);
  for (auto& row : rows) {
    if (static_cast<double>(random() % 1000) < excluded * 1000) continue;
    const bool heavy = static_cast<double>(random() % 1000) < spread.heavy * 1000;
    row = spread.least + (heavy ? 0 : random() % spread.distinct) * spread.step;
    if (key_bytes == 4) row = *row & 0xFFFFFFFF;
  }
  return rows;
}

TEST(KeyGroups, GivesOneRowOfEachKey) {
  const auto engine = make_engine(1, Place::host);
  std::mt19937_64 random(1);
  for (const Spread& spread : kSpreads) {
    for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{100}, uint64_t{4097}, many(300'000)}) {
      for (const double excluded : {0.0, 0.1, 1.0}) {
        constexpr Shape shapes[] = {{8, 4, 4}, {8, 8, 8}, {4, 4, 4}, {4, 8, 8}};
        const Shape shape = shapes[random() % 4];
        const Rows rows = draw_keys(random, size, spread, excluded, shape.key_bytes);
        JoinKeys keys = make_keys(*engine, rows, rows, shape);
        SCOPED_TRACE(::testing::Message() << spread.name << ", " << size << " rows, " << excluded << " excluded, "
                                          << int(shape.key_bytes) << " bytes");
        for (const KeepRow keep : {KeepRow::first, KeepRow::last, KeepRow::none}) {
          Job job;
          ASSERT_EQ(read_rows(unique_rows(*engine, keys.left, keep, job)), naive_unique(rows, keep)) << int(keep);
          ASSERT_EQ(job.done(), job.planned());
        }
        Job job;
        const auto found = find_repeated_key(*engine, keys.left, job), expected = naive_repeated(rows);
        ASSERT_EQ(found.has_value(), expected.has_value());
        if (found) ASSERT_EQ(std::pair(found->first, found->row), std::pair(expected->first, expected->row));
      }
    }
  }
}

TEST(KeyGroups, TakesNoMoreMemoryThanItSays) {
  const auto engine = make_engine(1, Place::host);
  std::mt19937_64 random(2);
  for (const Spread& spread : kSpreads) {
    const Rows rows = draw_keys(random, 1'000'000, spread, 0, 8);
    JoinKeys keys = make_keys(*engine, rows, rows, {8, 4, 4});
    const size_t used = engine->memory->used_bytes();
    engine->memory->reset_peak();
    Job job;
    const UniqueRows kept = unique_rows(*engine, keys.left, KeepRow::first, job);
    EXPECT_LE(engine->memory->peak_bytes() - used - HostMemory::block_bytes(kept.size * 4), unique_rows_bytes(*engine, keys.left))
        << spread.name;
  }
}

TEST(KeyGroups, ACancelledJobEnds) {
  const auto engine = make_engine(1, Place::host);
  const Rows rows(100'000, 1);
  JoinKeys keys = make_keys(*engine, rows, rows, {});
  Job job;
  job.cancel();
  EXPECT_THROW(unique_rows(*engine, keys.left, KeepRow::first, job), Error);
  EXPECT_THROW(find_repeated_key(*engine, keys.left, job), Error);
}

}  // namespace
}  // namespace warpjoin
