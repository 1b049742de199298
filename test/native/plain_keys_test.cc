#include "columns/plain_keys.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/key_types.h"
#include "plain_columns.h"

namespace warpjoin {
namespace {

using namespace test;
using columns::KeyFactor;
using columns::KeySource;
using columns::plain_keys;
using columns::PlainKey;

/// Expects keys with the rows, nulls and order of values, which `compare(i, row, j, row)` gives.
template <class Compare>
void expect_keys(const std::vector<PlainKey>& keys, const std::vector<Values>& values, Compare&& compare) {
  ASSERT_EQ(keys.size(), values.size());
  std::vector<Values> plain;
  for (size_t i = 0; i < keys.size(); ++i) {
    const ColumnType &type = keys[i].column.type, &first = keys[0].column.type;
    ASSERT_EQ(type.variable_width(), first.variable_width());
    ASSERT_TRUE(type.variable_width() || (type.kind == first.kind && type.width <= 8));
    plain.push_back(values_in(keys[i].column));
    ASSERT_EQ(plain[i].size(), values[i].size());
    for (size_t row = 0; row < plain[i].size(); ++row) ASSERT_EQ(plain[i][row].has_value(), values[i][row].has_value());
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = i; j < keys.size(); ++j) {
      for (size_t a = 0; a < plain[i].size(); ++a) {
        if (!plain[i][a]) continue;
        for (size_t b = 0; b < plain[j].size(); ++b) {
          if (!plain[j][b]) continue;
          const int order = compare_values(keys[i].column.type, *plain[i][a], keys[j].column.type, *plain[j][b]);
          ASSERT_EQ(order, compare(i, a, j, b)) << "columns " << i << " and " << j << ", rows " << a << " and " << b;
        }
      }
    }
  }
}

ErrorCode code_of(std::span<const KeySource> sources, Engine& engine, const std::string& part) {
  try {
    plain_keys(sources, engine, Job());
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::internal;
}

TEST(PlainKeys, IntegersAndDecimalsOfAnyScaleCompareByValue) {
  Engine engine = make_engine();
  int numbers = 0, texts = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::unique_ptr<TestColumn>> columns;
    std::vector<KeySource> sources;
    std::vector<Values> values;
    const bool small = random() % 2;
    const size_t count = 1 + random() % 3;
    const std::vector<ColumnType> types = integer_types();
    for (size_t i = 0; i < count; ++i) {
      const ColumnType type = types[random() % types.size()];
      Values drawn;
      const uint64_t rows = random() % 40;
      for (uint64_t row = 0; row < rows; ++row) {
        drawn.push_back(small ? draw_value(type, {.nulls = 0.1, .distinct = 50}, random) : draw_integer(type, random));
        // draw_value knows numbers of 8 bytes.
        if (small && drawn.back() && type.width > 8 && ((*drawn.back())[7] & 0x80)) {
          std::fill(drawn.back()->begin() + 8, drawn.back()->end(), '\xFF');
        } else if (small && drawn.back() && type.width > 8) {
          std::fill(drawn.back()->begin() + 8, drawn.back()->end(), '\0');
        }
      }
      values.push_back(drawn);
      columns.push_back(std::make_unique<TestColumn>("c" + std::to_string(i), type, drawn, random));
      KeyFactor factor;
      if (random() % 2) factor.pow10 = static_cast<uint32_t>(random() % (small ? 14 : 60));
      if (random() % 4 == 0) factor.times = random() % 2 ? 86400 : static_cast<uint32_t>(random());
      if (factor.times == 0) factor.times = 1;
      sources.push_back({&columns.back()->column, factor});
    }
    std::vector<std::vector<Big>> bigs;
    bool plain = true, fits_signed = true, fits_unsigned = true;
    for (size_t i = 0; i < count; ++i) {
      plain &= sources[i].factor.one() && sources[i].column->type.width <= 8;
      auto& column = bigs.emplace_back();
      for (const Value& value : values[i]) {
        column.push_back(value ? big_of(sources[i].column->type, *value, sources[i].factor) : Big{});
        fits_signed &= compare(column.back(), big_of(INT64_MIN)) >= 0 && compare(column.back(), big_of(INT64_MAX)) <= 0;
        fits_unsigned &= compare(column.back(), Big{}) >= 0 && compare(column.back(), big_of(__int128{UINT64_MAX})) <= 0;
      }
    }
    const PoisonedMemory poisoned(engine, 1);
    const std::vector<PlainKey> keys = plain_keys(sources, engine, Job());
    for (const PlainKey& key : keys) {
      EXPECT_EQ(key.is_source, plain);
      if (!plain) EXPECT_EQ(key.column.type.variable_width(), !fits_signed && !fits_unsigned);
      numbers += !key.column.type.variable_width();
      texts += key.column.type.variable_width();
    }
    expect_keys(keys, values, [&](size_t i, size_t a, size_t j, size_t b) { return compare(bigs[i][a], bigs[j][b]); });
  }
  EXPECT_GT(numbers, 100);
  EXPECT_GT(texts, 100);
}

TEST(PlainKeys, AFactorMayTakeMoreBitsThanThereAreWhereAllValuesAreZero) {
  Engine engine = make_engine();
  std::mt19937_64 random(1);
  const Values zeros{std::string(16, '\0'), {}, std::string(16, '\0')};
  const TestColumn zero("zero", signed_type(16), zeros, random);
  const KeySource scaled{&zero.column, {4'000'000'000, 7}};
  const std::vector<PlainKey> keys = plain_keys({{scaled}}, engine, Job());
  expect_keys(keys, {zeros}, [](size_t, size_t, size_t, size_t) { return 0; });
  std::string one(16, '\0');
  one[0] = 1;
  const TestColumn ones("ones", signed_type(16), {one}, random);
  for (const uint32_t pow10 : {309u, 4'000'000'000u}) {
    const KeySource large{&ones.column, {pow10, 1}};
    EXPECT_EQ(code_of({{large}}, engine, "Column 'ones' can't be compared"), ErrorCode::key_type);
  }
}

TEST(PlainKeys, BinaryOfFixedWidthComparesByItsBytes) {
  Engine engine = make_engine();
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto width = static_cast<uint32_t>(seed % 20);
    const ColumnType type{ColumnKind::fixed, KeyOrder::bytes, width};
    const ColumnType text = seed % 2 ? utf8_type() : large_utf8_type();
    std::vector<std::unique_ptr<TestColumn>> columns;
    std::vector<KeySource> sources;
    std::vector<Values> values;
    const bool with_text = random() % 3 == 0;
    for (size_t i = 0; i < 1 + random() % 2 + with_text; ++i) {
      const ColumnType own = with_text && i == 0 ? text : type;
      Values drawn;
      for (uint64_t row = 0; row < random() % 60; ++row) {
        std::string bytes(width, '\0');
        for (char& byte : bytes) byte = "\0\x7f\x80\xff"[random() % 4];
        drawn.push_back(random() % 6 ? Value(bytes) : Value());
      }
      values.push_back(drawn);
      columns.push_back(std::make_unique<TestColumn>("b", own, drawn, random));
      sources.push_back({&columns.back()->column, {}});
    }
    const std::vector<PlainKey> keys = plain_keys(sources, engine, Job());
    EXPECT_EQ(keys[0].column.type.variable_width(), with_text || width == 0 || width > 8);
    expect_keys(keys, values, [&](size_t i, size_t a, size_t j, size_t b) {
      const int order = values[i][a]->compare(*values[j][b]);
      return order < 0 ? -1 : order > 0;
    });
  }
}

TEST(PlainKeys, WideBinaryIsCutIntoChunksOfSmallOffsets) {
  Engine engine = make_engine();
  std::mt19937_64 random(3);
  const ColumnType type{ColumnKind::fixed, KeyOrder::bytes, 9};
  Values values;
  for (uint64_t row = 0; row < 150'000; ++row) values.push_back(std::string(1, static_cast<char>(random())) + "12345678");
  const TestColumn column("b", type, values, {150'000}, random);
  const KeySource source{&column.column, {}};
  const std::vector<PlainKey> keys = plain_keys({{source}}, engine, Job());
  EXPECT_EQ(keys[0].column.chunks.size(), 3u);
  EXPECT_EQ(values_in(keys[0].column), values);
}

TEST(PlainKeys, ViewsBecomeTexts) {
  Engine engine = make_engine();
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Values values = draw_values(utf8_type(), seed == 7 ? 200'000 : random() % 80, {.nulls = 0.2, .longest = 30}, random);
    const ViewColumn column("v", values, random);
    const KeySource source{&column.column, {}};
    const PoisonedMemory poisoned(engine, 1);
    const std::vector<PlainKey> keys = plain_keys({{source}}, engine, Job());
    EXPECT_EQ(keys[0].column.type.kind, ColumnKind::utf8);
    EXPECT_EQ(values_in(keys[0].column), values);
  }
}

TEST(PlainKeys, ViewsBeyondTheirBuffersAreRefused) {
  Engine engine = make_engine();
  const std::string text = "a text that is not inlined";
  for (const auto& [at, word] :
       std::vector<std::pair<int, uint32_t>>{{0, 0xFFFFFFFF}, {0, 27}, {8, 9}, {12, 1}, {12, 0xFFFFFFFF}}) {
    std::mt19937_64 random(5);
    ViewColumn column("v", {text}, random);
    for (const ColumnChunk& chunk : column.column.chunks) {
      if (chunk.length == 0) continue;
      std::memcpy(static_cast<char*>(const_cast<void*>(chunk.values)) + at, &word, 4);
    }
    const KeySource source{&column.column, {}};
    EXPECT_EQ(code_of({{source}}, engine, "Column 'v': the view of row 0"), ErrorCode::invalid_table);
  }
}

TEST(PlainKeys, TheNullTypeHasTheKindOfWhatItIsComparedWith) {
  Engine engine = make_engine();
  std::mt19937_64 random(6);
  Column nulls;
  nulls.name = "nothing";
  nulls.type = {ColumnKind::null, KeyOrder::none, 0};
  nulls.length = 150'000;
  ColumnChunk chunk;
  chunk.length = nulls.length;
  nulls.chunks.push_back(chunk);
  const Values all_null(nulls.length);
  const KeySource source{&nulls, {}};
  EXPECT_EQ(values_in(plain_keys({{source}}, engine, Job())[0].column), all_null);
  EXPECT_EQ(plain_keys({{source}}, engine, Job())[0].column.type.kind, ColumnKind::boolean);
  for (const ColumnType& type : key_types()) {
    const Values values = draw_values(type, 20, {}, random);
    const TestColumn other("other", type, values, random);
    const std::vector<PlainKey> keys = plain_keys({{source, {&other.column, {}}}}, engine, Job());
    EXPECT_EQ(keys[0].column.type.kind, type.kind);
    EXPECT_EQ(values_in(keys[0].column), all_null);
    EXPECT_TRUE(keys[1].is_source);
    EXPECT_EQ(values_in(keys[1].column), values);
  }
}

// --- Dictionaries -----------------------------------------------------------------------------------------------------

TEST(PlainKeys, DictionariesCompareByValue) {
  Engine engine = make_engine();
  int ranked = 0, decoded = 0;
  std::vector<ColumnType> types = key_types();
  types.push_back(signed_type(16));
  types.push_back(signed_type(32));
  types.push_back({ColumnKind::fixed, KeyOrder::bytes, 5});
  types.push_back({ColumnKind::fixed, KeyOrder::bytes, 13});
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const ColumnType type = types[seed % types.size()];
    const bool decimal = type.width == 16 || type.width == 32;
    // Few values: most are listed twice.
    const auto draw = [&]() -> Value {
      if (decimal) return draw_integer(type, random);
      if (type.kind == ColumnKind::fixed && type.order == KeyOrder::bytes) {
        return random() % 6 ? Value(std::string(type.width, static_cast<char>("\0a\xff"[random() % 3]))) : Value();
      }
      return draw_value(type, {.nulls = 0.15, .distinct = random() % 2 ? uint64_t{6} : uint64_t{0}}, random);
    };
    std::vector<std::unique_ptr<DictionaryColumn>> dictionaries;
    std::vector<std::unique_ptr<TestColumn>> plain;
    std::vector<KeySource> sources;
    std::vector<Values> values;
    std::vector<ColumnType> value_types;
    for (size_t i = 0; i < 1 + random() % 3; ++i) {
      if (random() % 5 == 0 && i > 0) {
        Values drawn;
        for (uint64_t row = 0; row < random() % 30; ++row) drawn.push_back(draw());
        values.push_back(drawn);
        plain.push_back(std::make_unique<TestColumn>("p", type, drawn, random));
        sources.push_back({&plain.back()->column, {}});
      } else {
        const auto width = uint32_t{1} << random() % 4;
        const ColumnType index = random() % 2 ? signed_type(width) : unsigned_type(width);
        dictionaries.push_back(std::make_unique<DictionaryColumn>("d", index, type, random() % 2 ? 60 : 6, draw, random));
        values.push_back(dictionaries.back()->values);
        sources.push_back({&dictionaries.back()->column, {}});
      }
    }
    const PoisonedMemory poisoned(engine, 1);
    const std::vector<PlainKey> keys = plain_keys(sources, engine, Job());
    for (const PlainKey& key : keys) {
      const bool is_rank = key.column.type.order == KeyOrder::unsigned_integer && key.column.type.width == 4 && !decimal;
      (is_rank ? ranked : decoded)++;
    }
    expect_keys(keys, values, [&](size_t i, size_t a, size_t j, size_t b) {
      if (decimal) return compare(big_of(type, *values[i][a]), big_of(type, *values[j][b]));
      return compare_values(type, *values[i][a], type, *values[j][b]);
    });
  }
  EXPECT_GT(ranked, 100);
  EXPECT_GT(decoded, 100);
}

TEST(PlainKeys, DictionariesOfSeveralTypesCompareByValue) {
  Engine engine = make_engine();
  const std::vector<std::pair<ColumnType, ColumnType>> pairs{{signed_type(4), unsigned_type(8)},
                                                             {signed_type(16), signed_type(8)},
                                                             {floating_type(2), floating_type(8)},
                                                             {floating_type(4), floating_type(2)},
                                                             {utf8_type(), large_utf8_type()}};
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto& [a_type, b_type] = pairs[seed % pairs.size()];
    const auto draw = [&](const ColumnType& type) {
      return [&]() -> Value {
        if (is_integer_key(type)) return draw_integer(type, random);
        return draw_value(type, {.nulls = 0.15, .distinct = 5}, random);
      };
    };
    const DictionaryColumn a("a", signed_type(4), a_type, 60, draw(a_type), random);
    const DictionaryColumn b("b", unsigned_type(1), b_type, 60, draw(b_type), random);
    const std::vector<PlainKey> keys = plain_keys({{{&a.column, {}}, {&b.column, {}}}}, engine, Job());
    const std::vector<Values> values{a.values, b.values};
    expect_keys(keys, values, [&](size_t i, size_t x, size_t j, size_t y) {
      const ColumnType &x_type = i ? b_type : a_type, &y_type = j ? b_type : a_type;
      if (is_integer_key(a_type)) return compare(big_of(x_type, *values[i][x]), big_of(y_type, *values[j][y]));
      return compare_values(x_type, *values[i][x], y_type, *values[j][y]);
    });
  }
}

TEST(PlainKeys, OneDictionaryForSeveralColumnsIsRankedOnce) {
  Engine engine = make_engine();
  std::mt19937_64 random(8);
  const auto draw = [&] { return draw_value(utf8_type(), {.nulls = 0.1, .distinct = 9}, random); };
  const DictionaryColumn a("a", signed_type(4), utf8_type(), 100, draw, random);
  Column b = a.column;  // another object, the same memory
  b.dictionary = std::make_shared<const Column>(*a.column.dictionary);
  const std::vector<PlainKey> keys = plain_keys({{{&a.column, {}}, {&b, {}}}}, engine, Job());
  EXPECT_EQ(values_in(keys[0].column), values_in(keys[1].column));
  expect_keys(keys, {a.values, a.values}, [&](size_t, size_t x, size_t, size_t y) {
    return compare_values(utf8_type(), *a.values[x], utf8_type(), *a.values[y]);
  });
}

TEST(PlainKeys, DictionariesOfDictionariesCompareByValue) {
  Engine engine = make_engine();
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&] { return draw_value(utf8_type(), {.nulls = 0.1, .distinct = 5}, random); };
    const DictionaryColumn inner("inner", signed_type(2), utf8_type(), 12, draw, random);
    if (inner.column.length == 0) continue;
    Values indices, values;
    for (uint64_t row = 0; row < (seed % 2 ? 3 : 50); ++row) {
      const uint32_t entry = static_cast<uint32_t>(random() % inner.column.length);
      indices.push_back(value_of(entry));
      values.push_back(inner.values[entry]);
    }
    TestColumn outer("outer", unsigned_type(4), indices, random);
    outer.column.dictionary = std::make_shared<const Column>(inner.column);
    for (ColumnChunk& chunk : outer.column.chunks) chunk.dictionary_size = inner.column.length;
    const std::vector<PlainKey> keys = plain_keys({{{&outer.column, {}}}}, engine, Job());
    expect_keys(keys, {values}, [&](size_t, size_t x, size_t, size_t y) {
      return compare_values(utf8_type(), *values[x], utf8_type(), *values[y]);
    });
  }
}

TEST(PlainKeys, IndicesOutsideTheDictionaryAreRefused) {
  Engine engine = make_engine();
  for (const int8_t index : {int8_t{2}, int8_t{-1}, int8_t{127}}) {
    for (const uint64_t rows : {uint64_t{1}, uint64_t{100}}) {  // decoded, and ranked
      std::mt19937_64 random(9);
      Values indices(rows, value_of(int8_t{0}));
      indices.back() = value_of(index);
      TestColumn column("d", signed_type(1), indices, {rows}, random);
      const TestColumn entries("values", utf8_type(), {"a", "b", "not of this chunk"}, random);
      column.column.dictionary = std::make_shared<const Column>(entries.column);
      for (ColumnChunk& chunk : column.column.chunks) chunk.dictionary_size = 2;
      EXPECT_EQ(code_of({{{&column.column, {}}}}, engine, "Column 'd': row " + std::to_string(rows - 1) + " has the index"),
                ErrorCode::invalid_table);
      for (ColumnChunk& chunk : column.column.chunks) chunk.dictionary_base = 2;
      EXPECT_EQ(code_of({{{&column.column, {}}}}, engine, "Column 'd'"), ErrorCode::invalid_table);
    }
  }
}

TEST(PlainKeys, TypesWithoutOrderAndTypesThatDoNotCompareAreRefused) {
  Engine engine = make_engine();
  std::mt19937_64 random(10);
  for (const ColumnKind kind : {ColumnKind::list, ColumnKind::structure, ColumnKind::dense_union, ColumnKind::fixed}) {
    Column column;
    column.name = "odd";
    column.type = {kind, KeyOrder::none, kind == ColumnKind::fixed ? 16u : 0u};
    EXPECT_EQ(code_of({{{&column, {}}}}, engine, "Column 'odd' can't be a key"), ErrorCode::key_type);
  }
  const std::vector<ColumnType> kinds{boolean_type(), signed_type(16), floating_type(8), utf8_type()};
  for (const ColumnType& a_type : kinds) {
    for (const ColumnType& b_type : kinds) {
      if (a_type.kind == b_type.kind && a_type.order == b_type.order) continue;
      const TestColumn a("a", a_type, {}, random), b("b", b_type, {}, random);
      EXPECT_EQ(code_of({{{&a.column, {}}, {&b.column, {}}}}, engine, "Columns 'a' and 'b' can't be compared"),
                ErrorCode::key_type);
    }
  }
}

}  // namespace
}  // namespace warpjoin
