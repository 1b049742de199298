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

/// A key, column 0, and columns of several types; further keys are behind these.
struct JoinTable {
  std::vector<test::Values> values;
  std::vector<test::TestColumn> made;
  std::vector<const Column*> columns;
  uint64_t rows;
  std::vector<size_t> keys{0};

  JoinTable(const ColumnType& type, test::Values keys, std::mt19937_64& random) : rows(keys.size()) {
    add(type, std::move(keys), random);
    for (const auto& [other, nulls] : {std::pair{test::signed_type(8), 0.0},
                                       {test::floating_type(4), 0.0},
                                       {test::boolean_type(), 0.3},
                                       {test::opaque_type(16), 0.3},
                                       {test::boolean_type(), 0.0}}) {
      add(other, test::draw_values(other, rows, {.nulls = nulls}, random), random);
    }
    list();
  }

  void add_key(const ColumnType& type, test::Values of, std::mt19937_64& random) {
    keys.push_back(values.size());
    add(type, std::move(of), random);
    list();
  }

  /// The keys of a row, the same for equal ones of both sides; nothing where one of them is a null that equals nothing.
  std::optional<std::string> key(uint64_t row, const std::vector<bool>& nulls_equal) const {
    std::string all;
    for (size_t k = 0; k < keys.size(); ++k) {
      const std::optional<std::string> one = key_of(keys[k], row);
      if (!one && !nulls_equal[k]) return std::nullopt;
      all += one ? std::to_string(one->size()) + ":" + *one : "null";
    }
    return all;
  }

 private:
  std::optional<std::string> key_of(size_t column, uint64_t row) const {
    const ColumnType& type = columns[column]->type;
    const test::Value& value = values[column][row];
    if (!value || type.kind == ColumnKind::boolean) return value;
    if (type.order != KeyOrder::floating) return std::to_string(static_cast<long double>(test::integer_of(type, *value)));
    const double number = test::floating_of(type, *value);
    return std::isnan(number) ? "NaN" : *test::value_of(number == 0 ? 0.0 : number);
  }
  void add(const ColumnType& type, test::Values of, std::mt19937_64& random) {
    values.push_back(std::move(of));
    made.emplace_back("c", type, values.back(), random);
  }
  void list() {
    columns.clear();
    for (const test::TestColumn& column : made) columns.push_back(&column.column);
  }
};

/// Keys below `keys` that serve as they are.
inline JoinTable join_table(uint64_t rows, uint64_t keys, uint32_t width, std::mt19937_64& random) {
  test::Values key(rows);
  for (test::Value& one : key) {
    const uint64_t drawn = random() % keys;
    one = width == 4 ? test::value_of(static_cast<uint32_t>(drawn)) : test::value_of(drawn << 20);
  }
  return {test::unsigned_type(width), std::move(key), random};
}

using ResultRow = std::vector<test::Value>;

/// A row of each side, or UINT64_MAX in place of one that is not there.
using FoundRow = std::pair<uint64_t, uint64_t>;

inline std::vector<FoundRow> found_rows(const JoinTable& left, const JoinTable& right, JoinKind kind,
                                        const std::vector<bool>& nulls_equal) {
  std::vector<FoundRow> found;
  std::unordered_multimap<std::string, uint64_t> build;
  for (uint64_t j = 0; j < right.rows; ++j) {
    if (const auto key = right.key(j, nulls_equal)) build.emplace(*key, j);
  }
  std::vector<bool> matched(right.rows);
  for (uint64_t i = 0; i < left.rows; ++i) {
    const auto key = left.key(i, nulls_equal);
    const auto [begin, end] = key ? build.equal_range(*key) : std::pair(build.end(), build.end());
    for (auto match = begin; match != end; ++match) {
      matched[match->second] = true;
      if (!left_rows_only(kind)) found.emplace_back(i, match->second);
    }
    if (kind == JoinKind::semi ? begin != end : keeps_left(kind) && begin == end) found.emplace_back(i, UINT64_MAX);
  }
  for (uint64_t j = 0; keeps_right(kind) && j < right.rows; ++j) {
    if (!matched[j]) found.emplace_back(UINT64_MAX, j);
  }
  return found;
}

inline std::vector<ResultRow> values_of_rows(const std::vector<FoundRow>& found, const JoinTable& left, const JoinTable& right,
                                             const std::vector<ResidentOrigin>& origins, const KeyedTables& tables) {
  std::vector<ResultRow> rows;
  for (const auto& [i, j] : found) {
    ResultRow& row = rows.emplace_back();
    for (const ResidentOrigin& origin : origins) {
      const bool of_left = origin.from != ResidentOrigin::From::right;
      const size_t column = origin.from == ResidentOrigin::From::keys ? left.keys[origin.pair]
                            : origin.column                           ? *origin.column
                                            : (of_left ? tables.left_payload : tables.right_payload).value();
      const uint64_t at = of_left ? i : j;
      row.push_back(at == UINT64_MAX ? std::nullopt : (of_left ? left : right).values[column][at]);
    }
  }
  return rows;
}

inline std::vector<ResultRow> expected_rows(const JoinTable& left, const JoinTable& right, JoinKind kind,
                                            const std::vector<ResidentOrigin>& origins, const KeyedTables& tables,
                                            const std::vector<bool>& nulls_equal) {
  std::vector<ResultRow> rows = values_of_rows(found_rows(left, right, kind, nulls_equal), left, right, origins, tables);
  std::sort(rows.begin(), rows.end());
  return rows;
}

/// In the order of the table.
inline std::vector<ResultRow> rows_in_order(Engine& engine, const ResidentTable& table, Job& job) {
  std::vector<size_t> all(table.columns.size());
  for (size_t c = 0; c < all.size(); ++c) all[c] = c;
  const std::vector<OwnedColumn> home = bring_home(engine, table, all, job);
  std::vector<ResultRow> rows(table.size(), ResultRow(all.size()));
  for (const size_t c : all) {
    const test::Values values = test::values_of(home[c], table.columns[c].type);
    for (uint64_t row = 0; row < values.size(); ++row) rows[row][c] = values[row];
  }
  return rows;
}

inline std::vector<ResultRow> rows_at_home(Engine& engine, const ResidentTable& table, Job& job) {
  std::vector<ResultRow> rows = rows_in_order(engine, table, job);
  std::sort(rows.begin(), rows.end());
  return rows;
}

/// Rows in the order of either side: all of them, some of the first, and some from the middle on.
inline void check_ordered_joins(Engine& engine, const JoinTable& left, const JoinTable& right, const KeyedTables& tables,
                                const JoinRequest& request, const std::vector<ResidentOrigin>& origins,
                                const std::vector<bool>& nulls_equal, Job& job) {
  for (const bool by_left : {true, false}) {
    if (!by_left && left_rows_only(request.kind)) continue;
    SCOPED_TRACE(by_left ? "by left" : "by right");
    std::vector<FoundRow> found = found_rows(left, right, request.kind, nulls_equal);
    std::sort(found.begin(), found.end(), [&](const FoundRow& a, const FoundRow& b) {
      return by_left ? a < b : std::pair(a.second, a.first) < std::pair(b.second, b.first);
    });
    for (const RowWindow& window : {RowWindow{}, RowWindow{3, 20}, RowWindow{found.size() / 2, found.size() / 3 + 1}}) {
      const RowWindow rows = window.within(found.size());
      const auto first = found.begin() + static_cast<ptrdiff_t>(rows.first);
      const std::vector<FoundRow> wanted(first, first + static_cast<ptrdiff_t>(rows.rows));
      const ResidentTable joined = join_tables(engine, tables, request, origins, job, TableRowOrder{by_left, window});
      EXPECT_TRUE(rows_in_order(engine, joined, job) == values_of_rows(wanted, left, right, origins, tables));
    }
  }
}

/// All kinds of joins with gathered columns, inner joins with what rows carry, and joins of a result.
inline void check_table_joins(Engine& engine, const JoinTable& left, const JoinTable& right,
                              const std::vector<bool>& nulls_equal = {false}) {
  SCOPED_TRACE(std::to_string(left.rows) + " with " + std::to_string(right.rows) + " rows, keys " +
               test::type_name(left.columns[0]->type) + " with " + test::type_name(right.columns[0]->type));
  using From = ResidentOrigin::From;
  const std::vector<Device*> devices = all_devices(engine);
  const bool build_left = left.rows <= right.rows;
  Job job;
  {
    const ResidentTable l = load_table(engine, devices, left.columns, left.rows, job);
    const ResidentTable r = load_table(engine, devices, right.columns, right.rows, job);
    std::vector<TableKeyPair> pairs;
    for (size_t k = 0; k < left.keys.size(); ++k) pairs.push_back({left.keys[k], right.keys[k], nulls_equal[k]});
    const TableJoinKeys keys(l, r, pairs, job);
    ASSERT_LE(keys.bits(), kMostKeyBits);
    for (const JoinKind kind :
         {JoinKind::inner, JoinKind::left, JoinKind::right, JoinKind::full, JoinKind::semi, JoinKind::anti}) {
      SCOPED_TRACE(static_cast<int>(kind));
      const KeyedTables tables{&keys, {}, {}};
      std::vector<ResidentOrigin> origins;
      for (size_t c = 0; c < left.columns.size(); ++c) origins.push_back({From::left, c});
      for (size_t c = 0; c < right.columns.size() && !left_rows_only(kind); ++c) origins.push_back({From::right, c});
      const JoinRequest request{.kind = kind, .build_left = build_left, .want_right = !left_rows_only(kind)};
      const ResidentTable joined = join_tables(engine, tables, request, origins, job);
      EXPECT_TRUE(rows_at_home(engine, joined, job) == expected_rows(left, right, kind, origins, tables, nulls_equal));
      check_ordered_joins(engine, left, right, tables, request, origins, nulls_equal, job);
      JoinRequest counting = request;
      counting.count_only = true;
      EXPECT_EQ(join_tables_home(engine, tables, counting, job).size, joined.size());
    }
    const KeyedTables carried{&keys, 1, 2};
    const JoinRequest request{.build_left = build_left, .want_keys = true};
    EXPECT_EQ(join_tables_home(engine, carried, request, job).size, join_tables(engine, carried, request, {}, job).size());
    const size_t last = pairs.size() - 1;
    if (keys.left().parts[0].given && keys.left().parts[last].given) {
      const std::vector<ResidentOrigin> origins{{From::right, {}}, {From::keys, {}}, {From::left, {}}, {From::keys, {}, last}};
      const ResidentTable joined = join_tables(engine, carried, request, origins, job);
      EXPECT_TRUE(rows_at_home(engine, joined, job) ==
                  expected_rows(left, right, JoinKind::inner, origins, carried, nulls_equal));

      const TableJoinKeys of_result(joined, l, {{1, 0, nulls_equal[0]}}, job);
      const uint64_t again = join_tables_home(engine, {&of_result, {}, {}}, {.count_only = true}, job).size;
      const uint64_t expected = join_tables(engine, {&of_result, 2, 1}, request, {{From::left, {}}}, job).size();
      EXPECT_EQ(again, expected);
      EXPECT_GE(again, joined.size());
    }
  }
  for (Device* device : devices) EXPECT_EQ(device->memory().used_bytes() + device->memory().resident_bytes(), 0u);
}

/// By keys below `keys` that serve as they are.
inline void check_table_joins(Engine& engine, uint64_t left_rows, uint64_t right_rows, uint64_t keys, uint32_t width) {
  std::mt19937_64 random(left_rows + 3 * right_rows);
  const JoinTable left = join_table(left_rows, keys, width, random), right = join_table(right_rows, keys, width, random);
  check_table_joins(engine, left, right);
}

/// The type of a side's keys, and how they are drawn.
struct DrawnKeys {
  ColumnType type;
  test::Draw draw;
};

inline void check_table_joins(Engine& engine, uint64_t left_rows, uint64_t right_rows, const DrawnKeys& left,
                              const DrawnKeys& right) {
  std::mt19937_64 random(left_rows + 5 * right_rows);
  const JoinTable l(left.type, test::draw_values(left.type, left_rows, left.draw, random), random);
  const JoinTable r(right.type, test::draw_values(right.type, right_rows, right.draw, random), random);
  check_table_joins(engine, l, r);
}

/// By keys that have to be made: with nulls, of types that are no keys as they are, of two types of integers.
inline void check_joins_by_made_keys(Engine& engine, uint64_t left_rows, uint64_t right_rows) {
  const uint64_t some = left_rows / 4 + 1;
  const auto check = [&](const DrawnKeys& left, const DrawnKeys& right) {
    check_table_joins(engine, left_rows, right_rows, left, right);
  };
  const auto check_both = [&](const ColumnType& type, const test::Draw& draw) { check({type, draw}, {type, draw}); };
  check_both(test::floating_type(8), {.distinct = some});
  check_both(test::floating_type(4), {.nulls = 0.3, .distinct = some});
  check_both(test::signed_type(8), {.nulls = 0.2, .distinct = some});
  check_both(test::signed_type(4), {.nulls = 1});
  check({test::signed_type(2), {.distinct = some}}, {test::signed_type(2), {.nulls = 0.2, .distinct = some / 2 + 1}});
  check({test::signed_type(8), {.nulls = 0.3, .distinct = some}}, {test::unsigned_type(8), {.distinct = some}});
  check({test::unsigned_type(1), {}}, {test::signed_type(4), {.distinct = some}});
  check({test::unsigned_type(4), {}}, {test::signed_type(8), {.nulls = 0.5, .distinct = some}});
}

/// By pairs of columns.
inline void check_table_joins(Engine& engine, uint64_t left_rows, uint64_t right_rows,
                              const std::vector<std::pair<DrawnKeys, DrawnKeys>>& keys, const std::vector<bool>& nulls_equal) {
  std::mt19937_64 random(left_rows + 7 * right_rows);
  const auto table = [&](uint64_t rows, bool of_left) {
    const auto draw = [&](size_t k) { return of_left ? keys[k].first : keys[k].second; };
    const auto values = [&](size_t k) { return test::draw_values(draw(k).type, rows, draw(k).draw, random); };
    JoinTable made(draw(0).type, values(0), random);
    for (size_t k = 1; k < keys.size(); ++k) made.add_key(draw(k).type, values(k), random);
    return made;
  };
  const JoinTable left = table(left_rows, true), right = table(right_rows, false);
  check_table_joins(engine, left, right, nulls_equal);
}

/// By two keys and by three: of mixed types, with nulls that are equal or not.
inline void check_joins_by_several_keys(Engine& engine, uint64_t left_rows, uint64_t right_rows) {
  const uint64_t some = left_rows / 16 + 2;
  const auto check = [&](const std::vector<std::pair<DrawnKeys, DrawnKeys>>& keys, const std::vector<bool>& nulls_equal) {
    check_table_joins(engine, left_rows, right_rows, keys, nulls_equal);
  };
  const auto both = [](const ColumnType& type, const test::Draw& draw) {
    return std::pair{DrawnKeys{type, draw}, DrawnKeys{type, draw}};
  };
  const ColumnType i32 = test::signed_type(4), i64 = test::signed_type(8);
  check({both(i32, {.distinct = some}), both(i32, {.distinct = 10})}, {false, false});
  check({both(test::unsigned_type(4), {}), both(i32, {.distinct = 2})}, {false, false});
  check({both(i32, {.nulls = 0.02, .distinct = some})}, {true});
  check({both(i32, {.nulls = 0.1, .distinct = some}), both(i64, {.nulls = 0.1, .distinct = 10})}, {false, false});
  check({both(i32, {.nulls = 0.1, .distinct = some}), both(i64, {.nulls = 0.1, .distinct = 10})}, {true, false});
  check({both(i32, {.nulls = 0.1, .distinct = some}), both(i64, {.nulls = 0.1, .distinct = 10})}, {false, true});
  check({{{i32, {.nulls = 0.1, .distinct = some}}, {i64, {.distinct = some}}},
         {{test::unsigned_type(1), {.distinct = 5}}, {i32, {.nulls = 0.1, .distinct = 5}}},
         both(test::boolean_type(), {.nulls = 0.2})},
        {true, false, true});
  check({both(test::floating_type(4), {.distinct = some}), both(test::floating_type(2), {.nulls = 0.1, .distinct = 9})},
        {false, true});
  check({both(i32, {.nulls = 1}), both(i32, {.distinct = some})}, {false, false});
  if (left_rows * right_rows < 100'000) check({both(i32, {.nulls = 1}), both(i32, {.distinct = 4})}, {true, true});
}

/// The same where values are of a type's whole range, and many pairs match: zeroes and NaNs of several bits among them.
inline void check_joins_by_any_values(Engine& engine) {
  for (const ColumnType& type :
       {test::floating_type(8), test::floating_type(2), test::unsigned_type(4), test::unsigned_type(1), test::boolean_type()}) {
    check_table_joins(engine, 120, 60, {type, {.nulls = 0.2}}, {type, {.nulls = 0.4}});
  }
}

}  // namespace warpjoin::testing
