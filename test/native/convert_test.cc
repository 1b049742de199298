#include "columns/convert.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/key_types.h"
#include "plain_columns.h"

namespace warpjoin {
namespace {

using namespace test;
using columns::Conversion;
using columns::converted;
using columns::PlainKey;

ColumnType binary_type(uint32_t width) { return {ColumnKind::fixed, KeyOrder::bytes, width}; }
ColumnType view_type() { return {ColumnKind::view, KeyOrder::bytes, 0}; }

Conversion to(const ColumnType& type, KeyFactor factor = {}) { return {type, factor, "Column \"c\"", "that"}; }

std::string refusal_of(const Column& column, const Conversion& conversion, Engine& engine, ErrorCode code = ErrorCode::key_type) {
  try {
    converted(column, conversion, engine, Job());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

/// Whether an integer of any size is one of a type.
bool fits(const ColumnType& type, const Big& number) {
  std::string least(type.width, '\0'), greatest(type.width, '\xFF');
  if (type.order == KeyOrder::signed_integer) {
    least.back() = '\x80';
    greatest.back() = '\x7F';
  }
  return compare(number, big_of(type, least)) >= 0 && compare(number, big_of(type, greatest)) <= 0;
}

TEST(Converted, IntegersAndDecimalsKeepTheirValuesOrAreRefused) {
  Engine engine = make_engine();
  int kept = 0, refused = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::vector<ColumnType> types = integer_types();
    const ColumnType from = types[random() % types.size()], type = types[random() % types.size()];
    const bool small = random() % 3 > 0;
    Values drawn;
    for (uint64_t row = 0; row < random() % 12; ++row) {
      drawn.push_back(draw_integer(from, random));
      if (small && drawn.back()) {
        const bool negative = from.order == KeyOrder::signed_integer && random() % 2;
        *drawn.back() = std::string(from.width, negative ? '\xFF' : '\0');
        (*drawn.back())[0] = static_cast<char>(negative ? -1 - static_cast<int>(random() % 100) : random() % 100);
      }
    }
    KeyFactor factor;
    if (random() % 2) factor.pow10 = static_cast<uint32_t>(random() % (small ? 20 : 90));
    if (random() % 4 == 0) factor.times = random() % 2 ? 86400 : static_cast<uint32_t>(random() | 1);
    TestColumn column("c", from, drawn, random);
    std::vector<Big> expected;
    size_t first = SIZE_MAX;  // that does not fit
    for (size_t row = 0; row < drawn.size(); ++row) {
      expected.push_back(drawn[row] ? big_of(from, *drawn[row], factor) : Big{});
      if (drawn[row] && !fits(type, expected[row])) first = std::min(first, row);
    }
    const PoisonedMemory poisoned(engine, 1);
    if (first != SIZE_MAX) {
      const std::string message = refusal_of(column.column, to(type, factor), engine);
      EXPECT_NE(message.find("Column \"c\" can't become that: the value of row " + std::to_string(first) + ", "),
                std::string::npos)
          << message;
      ++refused;
      continue;
    }
    const PlainKey made = converted(column.column, to(type, factor), engine, Job());
    EXPECT_EQ(made.column.type.width, type.width);
    EXPECT_EQ(made.column.type.order, type.order);
    const Values values = values_in(made.column);
    ASSERT_EQ(values.size(), drawn.size());
    for (size_t row = 0; row < drawn.size(); ++row) {
      ASSERT_EQ(values[row].has_value(), drawn[row].has_value());
      if (drawn[row]) ASSERT_EQ(compare(big_of(type, *values[row]), expected[row]), 0) << row;
      kept += drawn[row].has_value();
    }
  }
  EXPECT_GT(kept, 1500);
  EXPECT_GT(refused, 200);
}

TEST(Converted, TheFirstValueThatDoesNotFitIsNamedWhateverTheThreads) {
  for (const unsigned threads : {1u, 2u, 5u}) {
    Engine engine = make_engine(threads);
    std::mt19937_64 random(1);
    Values values(300'000, value_of(int64_t{7}));
    for (size_t row = 123'456; row < values.size(); row += 3) values[row] = value_of(int64_t{-9'223'372'036'854'775'807 - 1});
    values[99'999] = {};
    const TestColumn column("c", signed_type(8), values, random);
    EXPECT_NE(refusal_of(column.column, to(signed_type(8), {3, 1}), engine)
                  .find("can't become that: the value of row 123456, -9223372036854775808 in its own unit, is too large"),
              std::string::npos);
    EXPECT_EQ(values_in(converted(column.column, to(signed_type(16), {3, 1}), engine, Job()).column).size(), values.size());
  }
}

TEST(Converted, WhatIsUnderANullFits) {
  Engine engine = make_engine();
  std::mt19937_64 random(2);
  for (int i = 0; i < 20; ++i) {  // anything may be there
    const TestColumn column("c", signed_type(8), {Value(), value_of(int64_t{1}), Value()}, random);
    const Values expected{Value(), value_of(int8_t{1}), Value()};
    EXPECT_EQ(values_in(converted(column.column, to(signed_type(1)), engine, Job()).column), expected);
  }
}

TEST(Converted, FloatsBecomeWider) {
  Engine engine = make_engine();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ColumnType from = floating_type(seed % 2 ? 2 : 4), type = floating_type(seed % 2 && seed % 4 == 1 ? 4 : 8);
    const Values drawn = draw_values(from, seed == 3 ? 200'000 : random() % 60, {.nulls = 0.2}, random);
    const TestColumn column("c", from, drawn, random);
    const PoisonedMemory poisoned(engine, 1);
    const Values made = values_in(converted(column.column, to(type), engine, Job()).column);
    ASSERT_EQ(made.size(), drawn.size());
    for (size_t row = 0; row < drawn.size(); ++row) {
      ASSERT_EQ(made[row].has_value(), drawn[row].has_value());
      if (!drawn[row]) continue;
      ASSERT_EQ(compare_values(from, *drawn[row], type, *made[row]), 0);
      ASSERT_EQ((drawn[row]->back() ^ made[row]->back()) & 0x80, 0) << "the sign, of zeros too";
    }
  }
  std::mt19937_64 random(1);
  const TestColumn column("c", floating_type(8), {}, random);
  EXPECT_NE(refusal_of(column.column, to(floating_type(4)), engine).find("its values are of another kind"), std::string::npos);
}

TEST(Converted, TextsViewsAndBinaryKeepTheirBytes) {
  Engine engine = make_engine();
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ColumnType type = seed % 2 ? utf8_type() : large_utf8_type();
    const auto width = static_cast<uint32_t>(random() % 20);
    Values drawn = draw_values(utf8_type(), seed == 5 ? 200'000 : random() % 80, {.nulls = 0.2, .longest = 30}, random);
    std::unique_ptr<TestColumn> plain;
    std::unique_ptr<ViewColumn> views;
    switch (seed / 2 % 3) {
      case 0: plain = std::make_unique<TestColumn>("c", utf8_type(), drawn, random); break;
      case 1: views = std::make_unique<ViewColumn>("c", drawn, random); break;
      default:
        for (Value& value : drawn) {
          if (value) value = std::string(width, static_cast<char>(random()));
        }
        plain = std::make_unique<TestColumn>("c", binary_type(width), drawn, random);
    }
    const Column& source = plain ? plain->column : views->column;
    const PoisonedMemory poisoned(engine, 1);
    for (const uint64_t most : {uint64_t{1} << 30, uint64_t{40}}) {
      const PlainKey made = converted(source, to(type), engine, Job(most));
      EXPECT_EQ(made.column.type.kind, type.kind);
      EXPECT_EQ(values_in(made.column), drawn);
      if (!views || type.kind != ColumnKind::utf8) continue;
      for (const ColumnChunk& chunk : made.column.chunks) {
        if (most == 40 && chunk.length > 1) EXPECT_LE(static_cast<const int32_t*>(chunk.offsets)[chunk.length], 40);
      }
    }
  }
}

TEST(Converted, ATextMayBeLongerThanTheChunksOfOthers) {
  Engine engine = make_engine();
  std::mt19937_64 random(4);
  const Values values{std::string(30, 'a'), std::string(100, 'b'), "c", Value(), std::string(41, 'd')};
  const ViewColumn column("c", values, random);
  const PlainKey made = converted(column.column, to(utf8_type()), engine, Job(40));
  EXPECT_EQ(values_in(made.column), values);
  EXPECT_GE(made.column.chunks.size(), 4u);
}

TEST(Converted, DictionariesBecomeTheirValues) {
  Engine engine = make_engine();
  const std::vector<std::pair<ColumnType, ColumnType>> pairs{
      {signed_type(4), signed_type(8)},     {unsigned_type(8), signed_type(16)}, {signed_type(2), signed_type(2)},
      {floating_type(2), floating_type(8)}, {boolean_type(), boolean_type()},    {utf8_type(), large_utf8_type()},
      {utf8_type(), utf8_type()},           {binary_type(5), utf8_type()},       {binary_type(5), binary_type(5)},
      {binary_type(0), binary_type(0)},     {binary_type(0), large_utf8_type()}, {signed_type(32), signed_type(32)},
  };
  for (uint64_t seed = 0; seed < 240; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto& [from, type] = pairs[seed % pairs.size()];
    const auto draw = [&, from = from]() -> Value {
      if (is_integer_key(from)) return draw_integer(from, random);
      if (from.kind == ColumnKind::fixed && from.order == KeyOrder::bytes) {
        return random() % 6 ? Value(std::string(from.width, static_cast<char>(random()))) : Value();
      }
      return draw_value(from, {.nulls = 0.15, .distinct = 6}, random);
    };
    const auto width = uint32_t{1} << random() % 4;
    const ColumnType index = random() % 2 ? signed_type(width) : unsigned_type(width);
    const DictionaryColumn column("c", index, from, seed % 5 ? 60 : 0, draw, random);
    const PoisonedMemory poisoned(engine, 1);
    const PlainKey made = converted(column.column, to(type), engine, Job());
    EXPECT_EQ(made.column.type.kind, type.kind);
    const Values values = values_in(made.column);
    ASSERT_EQ(values.size(), column.values.size());
    for (size_t row = 0; row < values.size(); ++row) {
      ASSERT_EQ(values[row].has_value(), column.values[row].has_value());
      if (!values[row]) continue;
      if (is_integer_key(from)) {
        ASSERT_EQ(compare(big_of(type, *values[row]), big_of(from, *column.values[row])), 0);
      } else {
        ASSERT_EQ(compare_values(type, *values[row], from, *column.values[row]), 0);
      }
    }
  }
}

TEST(Converted, AValueOfADictionaryThatNoRowHasMayBeTooLarge) {
  Engine engine = make_engine();
  std::mt19937_64 random(5);
  TestColumn column("c", signed_type(1), {value_of(int8_t{1}), Value(), value_of(int8_t{1})}, {3}, random);
  const TestColumn entries("values", signed_type(8), {value_of(INT64_MAX), value_of(int64_t{-2})}, random);
  column.column.dictionary = std::make_shared<const Column>(entries.column);
  for (ColumnChunk& chunk : column.column.chunks) chunk.dictionary_size = 2;
  const Values expected{value_of(int64_t{-2000}), Value(), value_of(int64_t{-2000})};
  EXPECT_EQ(values_in(converted(column.column, to(signed_type(8), {3, 1}), engine, Job()).column), expected);
}

TEST(Converted, DictionariesOfDictionariesAndOfViews) {
  Engine engine = make_engine();
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const bool numbers = seed % 2;
    const ColumnType type = numbers ? signed_type(4) : utf8_type();
    const auto draw = [&] { return draw_value(type, {.nulls = 0.1, .distinct = 5}, random); };
    const DictionaryColumn inner("inner", signed_type(2), type, 12, draw, random);
    if (inner.column.length == 0) continue;
    Values indices, values;
    for (uint64_t row = 0; row < 50; ++row) {
      const auto entry = static_cast<uint32_t>(random() % inner.column.length);
      indices.push_back(value_of(entry));
      values.push_back(inner.values[entry]);
    }
    const auto with = [&](const Column& dictionary) {
      auto outer = std::make_unique<TestColumn>("outer", unsigned_type(4), indices, random);
      outer->column.dictionary = std::make_shared<const Column>(dictionary);
      for (ColumnChunk& chunk : outer->column.chunks) chunk.dictionary_size = dictionary.length;
      return outer;
    };
    const auto outer = with(inner.column);
    const ColumnType target = numbers ? signed_type(8) : large_utf8_type();
    const Values made = values_in(converted(outer->column, to(target), engine, Job()).column);
    ASSERT_EQ(made.size(), values.size());
    for (size_t row = 0; row < made.size(); ++row) {
      ASSERT_EQ(made[row].has_value(), values[row].has_value());
      if (made[row]) ASSERT_EQ(compare_values(target, *made[row], type, *values[row]), 0);
    }
    if (numbers) continue;
    const ViewColumn views("views", inner.values, random);
    const auto of_views = with(views.column);
    EXPECT_EQ(values_in(converted(of_views->column, to(utf8_type()), engine, Job()).column), values);
    // As views they are views of their own memory.
    const PlainKey as_views = converted(of_views->column, to(view_type()), engine, Job());
    EXPECT_EQ(as_views.column.type.kind, ColumnKind::view);
    EXPECT_EQ(values_in(converted(as_views.column, to(utf8_type()), engine, Job()).column), values);
  }
}

TEST(Converted, OtherKindsAreRefused) {
  Engine engine = make_engine();
  std::mt19937_64 random(6);
  const std::vector<ColumnType> types{boolean_type(), signed_type(4), floating_type(4), utf8_type(), opaque_type(4)};
  for (const ColumnType& from : types) {
    for (const ColumnType& type : types) {
      const TestColumn column("c", from, {}, random);
      const bool same = from.kind == type.kind && from.order == type.order;
      EXPECT_EQ(refusal_of(column.column, to(type), engine),
                same ? "no error" : "Column \"c\" can't become that: its values are of another kind");
    }
  }
  const TestColumn large("c", large_utf8_type(), {}, random);
  EXPECT_NE(refusal_of(large.column, to(utf8_type()), engine), "no error");
}

TEST(Converted, IndicesOutsideTheDictionaryAndViewsOutsideTheirBuffersAreRefused) {
  Engine engine = make_engine();
  std::mt19937_64 random(7);
  TestColumn column("d", signed_type(1), {value_of(int8_t{2})}, {1}, random);
  const TestColumn entries("values", signed_type(4), {value_of(1), value_of(2)}, random);
  column.column.dictionary = std::make_shared<const Column>(entries.column);
  for (ColumnChunk& chunk : column.column.chunks) chunk.dictionary_size = 2;
  EXPECT_NE(refusal_of(column.column, to(signed_type(8)), engine, ErrorCode::invalid_table).find("row 0 has the index 2"),
            std::string::npos);
  ViewColumn views("v", {"a text that is not inlined"}, random);
  for (const ColumnChunk& chunk : views.column.chunks) {
    const uint32_t size = 27;
    if (chunk.length) std::memcpy(const_cast<void*>(chunk.values), &size, 4);
  }
  EXPECT_NE(refusal_of(views.column, to(utf8_type()), engine, ErrorCode::invalid_table).find("the view of row 0"),
            std::string::npos);
}

TEST(Converted, EndsWithItsJob) {
  Engine engine = make_engine();
  std::mt19937_64 random(8);
  const TestColumn column("c", signed_type(4), {value_of(1)}, random);
  Job job;
  job.cancel();
  EXPECT_THROW(converted(column.column, to(signed_type(8)), engine, job), Error);
}

}  // namespace
}  // namespace warpjoin
