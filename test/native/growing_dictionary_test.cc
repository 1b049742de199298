#include "columns/growing_dictionary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "columns/chunks.h"
#include "columns/dictionary.h"
#include "core/error.h"
#include "plain_columns.h"

namespace warpjoin {
namespace {

using namespace test;

const ColumnType kView{ColumnKind::view, KeyOrder::bytes, 0};

/// What a column's values are, of kinds that this file has.
Values read(const Column& column) {
  const columns::ChunkIndex index(column);
  Values values;
  for (uint64_t row = 0; row < index.rows(); ++row) {
    const auto [chunk, at] = index.at(row);
    columns::View copy;
    if (!columns::valid_at(*chunk, at)) {
      values.push_back({});
    } else if (column.type.kind == ColumnKind::boolean) {
      const bool value = columns::bit_at(static_cast<const uint8_t*>(chunk->values), chunk->bit_offset + at);
      values.emplace_back(std::string(1, value ? '\1' : '\0'));
    } else {
      const columns::Bytes bytes = columns::bytes_at(column, {chunk, at}, copy);
      values.emplace_back(std::string(reinterpret_cast<const char*>(bytes.data), bytes.size));
    }
  }
  return values;
}

struct Dictionary {
  std::unique_ptr<TestColumn> plain;
  std::unique_ptr<ViewColumn> view;
  Values values;

  Dictionary(const ColumnType& type, Values drawn, std::mt19937_64& random) : values(std::move(drawn)) {
    if (type.kind == ColumnKind::view) {
      view = std::make_unique<ViewColumn>("v", values, random);
    } else {
      plain = std::make_unique<TestColumn>("c", type, values, random);
    }
  }
  const Column& column() const { return view ? view->column : plain->column; }
};

/// What the positions of values are to be, and the values then.
std::vector<uint32_t> place(Values& grown, const Values& values, bool comparable, bool first) {
  std::vector<uint32_t> positions;
  for (const Value& value : values) {
    auto at = comparable && !first ? std::find(grown.begin(), grown.end(), value) : grown.end();
    if (at == grown.end()) at = grown.insert(grown.end(), value);
    positions.push_back(static_cast<uint32_t>(at - grown.begin()));
  }
  return positions;
}

TEST(GrowingDictionary, BeginsWithTheFirstAndAddsWhatIsNew) {
  const Job job;
  const std::vector<ColumnType> types{signed_type(1),    signed_type(8),  floating_type(4), utf8_type(), boolean_type(),
                                      large_utf8_type(), opaque_type(16), opaque_type(3),   kView};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Engine engine({.threads = 1,
                   .host_devices = 0,
                   .gpus = {},
                   .memory_limit_bytes = size_t{1} << 30,
                   .hash_bits = random() % 2 ? 64u : 3u});  // with few, most values collide
    const ColumnType type = types[random() % types.size()];
    const ColumnType drawn_as = type.kind == ColumnKind::view ? utf8_type() : type;
    const Draw draw{.nulls = random() % 2 ? 0.1 : 0, .distinct = 1 + random() % 100};
    GrowingDictionary dictionary(engine);
    Values grown;
    std::vector<std::unique_ptr<Dictionary>> given;
    std::vector<OwnedColumn> added;
    for (uint64_t number = 0, count = 1 + random() % 6; number < count; ++number) {
      const uint64_t rows = random() % 5 ? random() % 60 : 0;
      given.push_back(std::make_unique<Dictionary>(type, draw_values(drawn_as, rows, draw, random), random));
      const Column& column = given.back()->column();
      ASSERT_TRUE(dictionary.takes(column));
      const uint64_t before = grown.size();
      const std::vector<uint32_t> expected = place(grown, given.back()->values, type.kind != ColumnKind::boolean, number == 0);
      PlacedValues placed = dictionary.place(column, job);
      std::vector<uint32_t> identity(rows);
      std::iota(identity.begin(), identity.end(), uint32_t{0});
      EXPECT_EQ(static_cast<bool>(placed.positions), expected != identity);
      if (placed.positions) {
        const auto* const positions = placed.positions.as<uint32_t>();
        EXPECT_EQ(std::vector<uint32_t>(positions, positions + rows), expected);
      }
      const Values fresh(grown.begin() + static_cast<int64_t>(before), grown.end());
      EXPECT_EQ(placed.added.has_value(), !fresh.empty());
      if (placed.added) {
        EXPECT_EQ(read(borrow(*placed.added, column)), fresh);
        added.push_back(std::move(*placed.added));
      }
      EXPECT_EQ(dictionary.size(), grown.size());
    }
    const OwnedColumn joined = dictionary.joined(job);
    EXPECT_EQ(read(borrow(joined, given[0]->column())), grown);
  }
}

TEST(GrowingDictionary, TakesValuesOfOneTypeAlone) {
  std::mt19937_64 random(1);
  Engine engine = make_engine(1);
  GrowingDictionary dictionary(engine);
  const TestColumn texts("t", utf8_type(), {"a"}, random), numbers("n", signed_type(4), {value_of(1)}, random);
  Column indices = numbers.column;
  indices.dictionary = std::make_shared<Column>(texts.column);
  EXPECT_FALSE(dictionary.takes(indices));
  EXPECT_TRUE(dictionary.takes(numbers.column));
  dictionary.place(texts.column, Job());
  EXPECT_TRUE(dictionary.takes(texts.column));
  EXPECT_FALSE(dictionary.takes(numbers.column));
}

TEST(PlacedIndices, AreThePositionsOfTheirValues) {
  const Job job;
  Engine engine = make_engine(1);
  const std::vector<uint32_t> positions{7, 0, 100};
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ColumnType type = random() % 2 ? unsigned_type(1u << random() % 4) : signed_type(1u << random() % 4);
    Values values, expected;
    const auto of_width = [&](uint64_t number) { return value_of(number).value().substr(0, type.width); };
    for (uint64_t row = 0, rows = random() % 100; row < rows; ++row) {
      const uint64_t index = random() % 3;
      const bool valid = random() % 4 > 0;
      values.push_back(valid ? Value(of_width(index)) : Value());
      expected.push_back(valid ? Value(of_width(positions[index])) : Value());
    }
    const TestColumn indices("i", type, values, random);
    const HostBuffer made = placed_indices(indices.column, positions, *engine.memory, job);
    ASSERT_EQ(made.size(), values.size() * type.width);
    for (uint64_t row = 0; row < values.size(); ++row) {
      const std::string got(made.as<char>() + row * type.width, type.width);
      if (values[row]) EXPECT_EQ(Value(got), expected[row]);
    }
  }
}

TEST(PlacedIndices, NameTheFirstThatStandsForNoValue) {
  std::mt19937_64 random(1);
  Engine engine = make_engine(1);
  const std::vector<uint32_t> positions{0, 1};
  const TestColumn indices("i", signed_type(1), {value_of(int8_t{1}), {}, value_of(int8_t{-1}), value_of(int8_t{2})}, random);
  try {
    placed_indices(indices.column, positions, *engine.memory, Job());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_table);
    EXPECT_STREQ(error.what(), "Column 'i' has an index in row 2 that stands for none of the 2 values of its dictionary");
  }
}

}  // namespace
}  // namespace warpjoin
