#include "columns/row_runs.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "core/error.h"
#include "plain_columns.h"

namespace warpjoin {
namespace {

using namespace test;

/// A column of a type that is drawn, with few values, some null, in runs.
struct Drawn {
  std::unique_ptr<TestColumn> plain;
  std::unique_ptr<ViewColumn> view;
  std::unique_ptr<DictionaryColumn> dictionary;
  const Column* column = nullptr;
  Values values;

  /// With `indices` it may be indices of dictionaries; then it has as many rows as it likes.
  Drawn(uint64_t rows, bool indices, std::mt19937_64& random) {
    const std::vector<ColumnType> types{signed_type(1), signed_type(8),  floating_type(4),
                                        utf8_type(),    boolean_type(),  large_utf8_type(),
                                        opaque_type(3), opaque_type(16), ColumnType{ColumnKind::view, KeyOrder::bytes, 0}};
    const ColumnType type = types[random() % types.size()];
    const auto value = [&](uint64_t number) -> std::string {
      if (type.kind == ColumnKind::boolean) return std::string(1, static_cast<char>(number % 2));
      if (type.kind == ColumnKind::fixed) return std::string(type.width, static_cast<char>(number));
      return number == 2 ? "a text that is too long to lie within a view" : std::string(number, 'x');
    };
    const auto draw = [&] { return value(random() % 3); };
    if (indices && random() % 2 && type.kind != ColumnKind::view && type.kind != ColumnKind::boolean) {
      dictionary = std::make_unique<DictionaryColumn>("d", unsigned_type(uint32_t{1} << random() % 4), type, rows, draw, random);
      values = dictionary->values;
      column = &dictionary->column;
      return;
    }
    while (values.size() < rows) {
      const Value drawn = random() % 5 ? Value(draw()) : Value();
      for (uint64_t left = 1 + random() % 4; left > 0 && values.size() < rows; --left) values.push_back(drawn);
    }
    if (type.kind == ColumnKind::view) {
      view = std::make_unique<ViewColumn>("v", values, random);
      column = &view->column;
    } else {
      plain = std::make_unique<TestColumn>("c", type, values, random);
      column = &plain->column;
    }
  }
};

TEST(RowRuns, BeginWhereSomeColumnChanges) {
  const Job job;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    uint64_t rows = random() % 200;
    std::vector<Drawn> drawn;
    std::vector<Column> columns;
    const uint64_t count = 1 + random() % 3;
    for (uint64_t i = 0; i < count; ++i) {
      drawn.emplace_back(rows, count == 1, random);
      columns.push_back(*drawn.back().column);
    }
    rows = columns[0].length;
    std::vector<uint64_t> expected;
    for (uint64_t row = 0; row < rows; ++row) {
      const auto changes = [&](const Drawn& of) { return row == 0 || of.values[row] != of.values[row - 1]; };
      if (std::any_of(drawn.begin(), drawn.end(), changes)) expected.push_back(row);
    }
    EXPECT_EQ(row_runs(columns, rows, job), expected);
  }
}

TEST(RowRuns, RefusesNestedColumns) {
  Column column;
  column.name = "points";
  column.type = {ColumnKind::list, KeyOrder::none, 0};
  try {
    row_runs(std::vector{column}, 0, Job());
    FAIL() << "It was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_supported);
    EXPECT_NE(std::string(error.what()).find("'points'"), std::string::npos);
  }
}

}  // namespace
}  // namespace warpjoin
