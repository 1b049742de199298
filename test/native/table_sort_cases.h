// Sorts of tables that lie on any devices, checked against a stable sort of row numbers.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "resident_table_cases.h"
#include "sort/table_sort.h"

namespace warpjoin::testing {

/// Columns 0 to 3 are keys with ties, of both widths and signs; 4 to 7 are not: some are carried, some have nulls.
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
    for (const auto& [type, nulls] : {std::pair{test::floating_type(4), 0.0},
                                      {test::signed_type(8), 0.3},
                                      {test::boolean_type(), 0.3},
                                      {test::opaque_type(16), 0.0}}) {
      add(type, test::draw_values(type, rows, {.nulls = nulls}, random), random);
    }
    for (const test::TestColumn& column : made) columns.push_back(&column.column);
  }

  uint64_t rows() const { return values[0].size(); }

  /// The rows in the order of a sort by `key`.
  std::vector<uint64_t> order(size_t key, bool descending) const {
    const ColumnType& type = columns[key]->type;
    std::vector<int64_t> keys;
    for (const test::Value& value : values[key]) {
      int64_t number = 0;
      std::memcpy(&number, value->data(), type.width);
      if (type.width == 4 && type.order == KeyOrder::signed_integer) number = static_cast<int32_t>(number);
      // Unsigned ones as signed ones of the same order.
      if (type.width == 8 && type.order == KeyOrder::unsigned_integer) number = static_cast<int64_t>(number ^ INT64_MIN);
      keys.push_back(number);
    }
    std::vector<uint64_t> order(keys.size());
    std::iota(order.begin(), order.end(), uint64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](uint64_t x, uint64_t y) { return descending ? keys[x] > keys[y] : keys[x] < keys[y]; });
    return order;
  }

 private:
  void add(const ColumnType& type, test::Values of, std::mt19937_64& random) {
    values.push_back(std::move(of));
    made.emplace_back("c", type, values.back(), random);
  }
};

/// A sort by each key in either direction: of keys alone, with a payload that is carried along, and of all columns.
inline void check_table_sorts(Engine& engine, uint64_t rows, uint64_t keys) {
  SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(keys) + " keys");
  std::mt19937_64 random(rows + keys);
  const SortTable of(rows, keys, random);
  const std::vector<Device*> devices = all_devices(engine);
  Job job;
  {
    const ResidentTable table = load_table(engine, devices, of.columns, rows, job);
    for (size_t key = 0; key < 4; ++key) {
      const bool descending = random() % 2 != 0;
      const std::vector<uint64_t> order = of.order(key, descending);
      struct Case {
        std::optional<size_t> payload;
        std::vector<size_t> columns;
      };
      for (const Case& c : {Case{{}, {key}}, Case{4, {4, key}}, Case{(key + 1) % 4, {(key + 1) % 4}},
                            Case{{}, {0, 1, 2, 3, 4, 5, 6, 7}}, Case{{}, {6}}}) {
        SCOPED_TRACE("by column " + std::to_string(key) + ", " + std::to_string(c.columns.size()) + " columns");
        Job sorting;
        const ResidentTable sorted = sort_table(engine, {&table, key, c.payload}, descending, c.columns, sorting);
        EXPECT_EQ(sorting.planned(), sorting.done());
        ASSERT_EQ(sorted.size(), rows);
        std::vector<size_t> all(c.columns.size());
        std::iota(all.begin(), all.end(), size_t{0});
        const std::vector<OwnedColumn> home = bring_home(engine, sorted, all, job);
        for (const size_t i : all) {
          const test::Values got = test::values_of(home[i], sorted.columns[i].type);
          for (uint64_t row = 0; row < rows; ++row) {
            if (got[row] != of.values[c.columns[i]][order[row]]) FAIL() << "column " << c.columns[i] << ", row " << row;
          }
        }
      }
    }
  }
  for (Device* device : devices) EXPECT_EQ(device->memory().used_bytes() + device->memory().resident_bytes(), 0u);
}

}  // namespace warpjoin::testing
