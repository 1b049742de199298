// Sorts of tables that lie on any devices, checked against a stable sort of row numbers.
#pragma once

#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "resident_table_cases.h"
#include "sort/table_sort.h"

namespace warpjoin::testing {

/// Columns 0 to 3 are keys as they are, with ties, of both widths and signs; of the others some can be carried along, some have
/// nulls.
struct SortTable {
  std::vector<test::Values> values;
  std::vector<test::TestColumn> made;
  std::vector<const Column*> columns;

  SortTable(uint64_t rows, uint64_t keys, std::mt19937_64& random) {
    for (const uint32_t width : {4u, 8u}) {
      for (const ColumnType& type : {test::unsigned_type(width), test::signed_type(width)}) {
        test::Values key(rows);
        for (test::Value& one : key) {
          const uint64_t drawn = (random() % keys - keys / 2) * (width == 8 ? (uint64_t{1} << 33) + 1 : 1);
          one = width == 4 ? test::value_of(static_cast<uint32_t>(drawn)) : test::value_of(drawn);
        }
        add(type, std::move(key), random);
      }
    }
    const auto draw = [&](const ColumnType& type, const test::Draw& how) {
      add(type, test::draw_values(type, rows, how, random), random);
    };
    draw(test::floating_type(4), {});
    draw(test::signed_type(8), {.nulls = 0.3, .distinct = keys});
    draw(test::boolean_type(), {.nulls = 0.3});
    draw(test::opaque_type(16), {});
    draw(test::floating_type(8), {});
    draw(test::floating_type(4), {.nulls = 0.1});
    draw(test::floating_type(2), {.nulls = 0.5});
    draw(test::unsigned_type(1), {});
    draw(test::signed_type(2), {.nulls = 0.1});
    draw(test::signed_type(4), {.nulls = 1});
    draw(test::unsigned_type(8), {.nulls = 0.5, .distinct = 1});
    draw(test::floating_type(4), {.distinct = keys});
    draw(test::floating_type(8), {.nulls = 0.1, .distinct = keys});
    for (const test::TestColumn& column : made) columns.push_back(&column.column);
  }

  uint64_t rows() const { return values[0].size(); }

  /// The rows in the order of a sort.
  std::vector<uint64_t> order(const std::vector<TableSortColumn>& by) const {
    std::vector<test::By> of;
    for (const auto& [column, descending, nulls_last] : by) {
      of.push_back({columns[column]->type, values[column], descending, nulls_last});
    }
    return test::sorted_rows(of);
  }

 private:
  void add(const ColumnType& type, test::Values of, std::mt19937_64& random) {
    values.push_back(std::move(of));
    made.emplace_back("c", type, values.back(), random);
  }
};

/// Sorts a loaded table where it lies; `columns` of the result must be as in `order`.
inline void check_table_sort(Engine& engine, const SortTable& of, const TableSortKeys& keys, const std::vector<size_t>& columns,
                             const std::vector<uint64_t>& order, const RowWindow& window = {}) {
  Job job;
  const ResidentTable sorted = sort_table(engine, keys, columns, job, window);
  EXPECT_EQ(job.planned(), job.done());
  const RowWindow rows = window.within(of.rows());
  const std::vector<PhaseStats> phases = job.phases();
  const bool selects = std::any_of(phases.begin(), phases.end(), [](const PhaseStats& p) { return p.name == "select"; });
  const bool sorts_all =
      std::any_of(phases.begin(), phases.end(), [](const PhaseStats& p) { return p.name == "sort" && p.bytes > 0; });
  const bool few = rows.rows < of.rows() && rows.end() <= of.rows() / (4 * engine.devices.size());
  EXPECT_EQ(selects, few);
  if (few) EXPECT_FALSE(sorts_all);
  ASSERT_EQ(sorted.size(), rows.rows);
  if (rows.rows < of.rows()) EXPECT_TRUE(spread_evenly(sorted));
  std::vector<size_t> all(columns.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const std::vector<OwnedColumn> home = bring_home(engine, sorted, all, job);
  for (const size_t i : all) {
    const test::Values got = test::values_of(home[i], sorted.columns[i].type);
    for (uint64_t row = 0; row < rows.rows; ++row) {
      if (got[row] != of.values[columns[i]][order[rows.first + row]]) FAIL() << "column " << columns[i] << ", row " << row;
    }
  }
}

/// Sorts by each key as it is in either direction, of keys alone, with a payload that is carried along, and of all columns; and
/// sorts by what keys are made of.
inline void check_table_sorts(Engine& engine, uint64_t rows, uint64_t keys) {
  SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(keys) + " keys");
  std::mt19937_64 random(rows + keys);
  const SortTable of(rows, keys, random);
  const std::vector<Device*> devices = all_devices(engine);
  Job job;
  {
    const ResidentTable table = load_table(engine, devices, of.columns, rows, job);
    for (size_t key = 0; key < 4; ++key) {
      const std::vector<TableSortColumn> by{{key, random() % 2 != 0}};
      const std::vector<uint64_t> order = of.order(by);
      struct Case {
        std::optional<size_t> payload;
        std::vector<size_t> columns;
      };
      for (const Case& c : {Case{{}, {key}}, Case{4, {4, key}}, Case{(key + 1) % 4, {(key + 1) % 4}},
                            Case{{}, {0, 1, 2, 3, 4, 5, 6, 7}}, Case{{}, {6}}}) {
        SCOPED_TRACE("by column " + std::to_string(key) + ", " + std::to_string(c.columns.size()) + " columns");
        const TableSortKeys as_it_is(table, by, c.payload, job);
        EXPECT_TRUE(as_it_is.is_column());
        check_table_sort(engine, of, as_it_is, c.columns, order);
      }
    }
    for (const std::vector<size_t>& columns : std::vector<std::vector<size_t>>{{4},
                                                                               {5},
                                                                               {6},
                                                                               {8},
                                                                               {9},
                                                                               {10},
                                                                               {11},
                                                                               {12},
                                                                               {13},
                                                                               {14},
                                                                               {15},
                                                                               {16},
                                                                               {13, 14},
                                                                               {15, 11},
                                                                               {0, 11},
                                                                               {11, 0},
                                                                               {6, 11, 12, 10, 6},
                                                                               {14, 1, 6},
                                                                               {6, 14, 6, 14, 6, 14, 6, 14, 6, 14, 0}}) {
      std::vector<TableSortColumn> by;
      for (const size_t column : columns) by.push_back({column, random() % 2 != 0, random() % 2 != 0});
      SCOPED_TRACE("by column " + std::to_string(columns[0]) + " of " + std::to_string(columns.size()));
      const TableSortKeys made(table, by, {}, job);
      const std::vector<uint64_t> order = of.order(by);
      check_table_sort(engine, of, made, {columns[0], 2, 7}, order);
      const TableSortKeys carrying(table, by, 2, job);
      EXPECT_EQ(carrying.payload().has_value(), carrying.give_columns());
      std::vector<size_t> along = columns;
      along.push_back(2);
      check_table_sort(engine, of, carrying, along, order);
      if (columns[0] != 0) continue;
      const TableSortKeys of_itself(table, by, 0, job);  // a payload that keys give back is not carried along, too
      EXPECT_FALSE(of_itself.payload().has_value());
      check_table_sort(engine, of, of_itself, columns, order);
    }
  }
  for (Device* device : devices) EXPECT_EQ(device->memory().used_bytes() + device->memory().resident_bytes(), 0u);
}

/// Takes rows from the begin of sorts, from the middle and from the end: by a key as it is and by keys that are made, with ties
/// and without, of keys alone, with a payload that is carried along, and of gathered columns.
inline void check_top_rows(Engine& engine, uint64_t rows, uint64_t keys, const std::vector<RowWindow>& windows) {
  SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(keys) + " keys");
  std::mt19937_64 random(rows + keys);
  const SortTable of(rows, keys, random);
  const std::vector<Device*> devices = all_devices(engine);
  Job job;
  {
    const ResidentTable table = load_table(engine, devices, of.columns, rows, job);
    const std::vector<std::vector<size_t>> sorts{
        {0}, {1}, {2}, {3}, {5}, {11}, {13}, {14}, {15, 11}, {14, 1, 6}, {6, 14, 6, 14, 6, 14, 6, 14, 6, 14, 0}};
    for (const std::vector<size_t>& columns : sorts) {
      std::vector<TableSortColumn> by;
      for (const size_t column : columns) by.push_back({column, random() % 2 != 0, random() % 2 != 0});
      const std::vector<uint64_t> order = of.order(by);
      for (const RowWindow& window : windows) {
        SCOPED_TRACE("by column " + std::to_string(columns[0]) + " of " + std::to_string(columns.size()) + ", rows " +
                     std::to_string(window.first) + " and " + std::to_string(window.rows) + " more");
        const TableSortKeys gathering(table, by, {}, job);
        check_table_sort(engine, of, gathering, {columns[0], 4, 7, 8}, order, window);
        if (gathering.give_columns()) check_table_sort(engine, of, gathering, {columns[0]}, order, window);
        const TableSortKeys carrying(table, by, (columns[0] + 1) % 4, job);
        if (carrying.payload()) {
          check_table_sort(engine, of, carrying, {*carrying.payload(), columns[0]}, order, window);
          check_table_sort(engine, of, carrying, {columns[0]}, order, window);
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  for (Device* device : devices) EXPECT_EQ(device->memory().used_bytes() + device->memory().resident_bytes(), 0u);
}
inline void check_top_rows(Engine& engine, uint64_t rows, uint64_t keys) {
  check_top_rows(engine, rows, keys,
                 {{0, 1},
                  {0, rows / 90 + 2},
                  {rows / 50, rows / 70},
                  {0, rows / 3},
                  {rows / 2, 10},
                  {rows - rows / 9, rows},
                  {0, 0},
                  {rows, 3},
                  {1}});
}

}  // namespace warpjoin::testing
