// Joins of tables that lie on any devices, checked against a plain loop.
#pragma once

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "join/join_rows.h"
#include "join/table_join.h"
#include "resident_table_cases.h"

namespace warpjoin::testing {

/// A key and columns of several types; keys are below `keys`.
struct JoinTable {
  std::vector<test::Values> values;
  std::vector<test::TestColumn> made;
  std::vector<const Column*> columns;
  uint64_t rows;

  JoinTable(uint64_t rows, uint64_t keys, uint32_t width, std::mt19937_64& random) : rows(rows) {
    test::Values key(rows);
    for (test::Value& one : key) {
      const uint64_t drawn = random() % keys;
      one = width == 4 ? test::value_of(static_cast<uint32_t>(drawn)) : test::value_of(drawn << 20);
    }
    add(test::unsigned_type(width), std::move(key), random);
    for (const auto& [type, nulls] : {std::pair{test::signed_type(8), 0.0},
                                      {test::floating_type(4), 0.0},
                                      {test::boolean_type(), 0.3},
                                      {test::opaque_type(16), 0.3},
                                      {test::boolean_type(), 0.0}}) {
      add(type, test::draw_values(type, rows, {.nulls = nulls}, random), random);
    }
    for (const test::TestColumn& column : made) columns.push_back(&column.column);
  }

 private:
  void add(const ColumnType& type, test::Values of, std::mt19937_64& random) {
    values.push_back(std::move(of));
    made.emplace_back("c", type, values.back(), random);
  }
};

using ResultRow = std::vector<test::Value>;

inline std::vector<ResultRow> expected_rows(const JoinTable& left, const JoinTable& right, JoinKind kind,
                                            const std::vector<ResidentOrigin>& origins, const KeyedTable& l,
                                            const KeyedTable& r) {
  std::vector<ResultRow> rows;
  const auto add = [&](uint64_t i, uint64_t j) {
    ResultRow& row = rows.emplace_back();
    for (const ResidentOrigin& origin : origins) {
      const bool of_left = origin.from != ResidentOrigin::From::right;
      const size_t column = origin.from == ResidentOrigin::From::keys ? 0
                            : origin.column                           ? *origin.column
                                                                      : (of_left ? l : r).payload.value();
      const uint64_t at = of_left ? i : j;
      row.push_back(at == UINT64_MAX ? std::nullopt : (of_left ? left : right).values[column][at]);
    }
  };
  std::unordered_multimap<std::string, uint64_t> build;
  for (uint64_t j = 0; j < right.rows; ++j) build.emplace(*right.values[0][j], j);
  std::vector<bool> matched(right.rows);
  for (uint64_t i = 0; i < left.rows; ++i) {
    const auto [begin, end] = build.equal_range(*left.values[0][i]);
    for (auto found = begin; found != end; ++found) {
      matched[found->second] = true;
      if (!left_rows_only(kind)) add(i, found->second);
    }
    if (kind == JoinKind::semi ? begin != end : keeps_left(kind) && begin == end) add(i, UINT64_MAX);
  }
  for (uint64_t j = 0; keeps_right(kind) && j < right.rows; ++j) {
    if (!matched[j]) add(UINT64_MAX, j);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

inline std::vector<ResultRow> rows_at_home(Engine& engine, const ResidentTable& table, Job& job) {
  std::vector<size_t> all(table.columns.size());
  for (size_t c = 0; c < all.size(); ++c) all[c] = c;
  const std::vector<OwnedColumn> home = bring_home(engine, table, all, job);
  std::vector<ResultRow> rows(table.size(), ResultRow(all.size()));
  for (const size_t c : all) {
    const test::Values values = test::values_of(home[c], table.columns[c].type);
    for (uint64_t row = 0; row < values.size(); ++row) rows[row][c] = values[row];
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

/// All kinds of joins with gathered columns, inner joins with what rows carry, and joins of a result.
inline void check_table_joins(Engine& engine, uint64_t left_rows, uint64_t right_rows, uint64_t keys, uint32_t width) {
  SCOPED_TRACE(std::to_string(left_rows) + " with " + std::to_string(right_rows) + " rows of " + std::to_string(keys) + " keys");
  using From = ResidentOrigin::From;
  std::mt19937_64 random(left_rows + 3 * right_rows);
  const JoinTable left(left_rows, keys, width, random), right(right_rows, keys, width, random);
  const std::vector<Device*> devices = all_devices(engine);
  Job job;
  {
    const ResidentTable l = load_table(engine, devices, left.columns, left_rows, job);
    const ResidentTable r = load_table(engine, devices, right.columns, right_rows, job);
    for (const JoinKind kind :
         {JoinKind::inner, JoinKind::left, JoinKind::right, JoinKind::full, JoinKind::semi, JoinKind::anti}) {
      SCOPED_TRACE(static_cast<int>(kind));
      const KeyedTable ls{&l, 0, {}}, rs{&r, 0, {}};
      std::vector<ResidentOrigin> origins;
      for (size_t c = 0; c < left.columns.size(); ++c) origins.push_back({From::left, c});
      for (size_t c = 1; c < right.columns.size() && !left_rows_only(kind); ++c) origins.push_back({From::right, c});
      const JoinRequest request{.kind = kind, .build_left = left_rows <= right_rows, .want_right = !left_rows_only(kind)};
      const ResidentTable joined = join_tables(engine, ls, rs, request, origins, job);
      EXPECT_TRUE(rows_at_home(engine, joined, job) == expected_rows(left, right, kind, origins, ls, rs));
      JoinRequest counting = request;
      counting.count_only = true;
      EXPECT_EQ(join_tables_home(engine, ls, rs, counting, job).size, joined.size());
    }
    const KeyedTable ls{&l, 0, 1}, rs{&r, 0, 2};
    const std::vector<ResidentOrigin> origins{{From::right, {}}, {From::keys, {}}, {From::left, {}}};
    const JoinRequest request{.build_left = left_rows <= right_rows, .want_keys = true};
    const ResidentTable joined = join_tables(engine, ls, rs, request, origins, job);
    EXPECT_TRUE(rows_at_home(engine, joined, job) == expected_rows(left, right, JoinKind::inner, origins, ls, rs));
    const JoinRows home = join_tables_home(engine, ls, rs, request, job);
    EXPECT_EQ(home.size, joined.size());

    const JoinRequest count{.count_only = true};
    const uint64_t again = join_tables_home(engine, {&joined, 1, {}}, {&l, 0, {}}, count, job).size;
    const uint64_t expected = join_tables(engine, {&joined, 1, 2}, {&l, 0, 1}, request, {{From::left, {}}}, job).size();
    EXPECT_EQ(again, expected);
    EXPECT_GE(again, joined.size());
  }
  for (Device* device : devices) EXPECT_EQ(device->memory().used_bytes() + device->memory().resident_bytes(), 0u);
}

}  // namespace warpjoin::testing
