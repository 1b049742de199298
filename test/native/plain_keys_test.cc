#include "columns/plain_keys.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/key_types.h"
#include "test_columns.h"

namespace warpjoin {
namespace {

using namespace test;
using columns::KeyFactor;
using columns::KeySource;
using columns::plain_keys;
using columns::PlainKey;

/// An integer of any size, in base 256.
struct Big {
  bool negative = false;
  std::vector<uint8_t> digits;  // least significant first, without leading zeros

  void trim() {
    while (!digits.empty() && digits.back() == 0) digits.pop_back();
    if (digits.empty()) negative = false;
  }
  void multiply(uint32_t factor) {
    uint64_t carry = 0;
    for (uint8_t& digit : digits) {
      carry += uint64_t{digit} * factor;
      digit = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
    for (; carry; carry >>= 8) digits.push_back(static_cast<uint8_t>(carry));
  }
  friend int compare(const Big& a, const Big& b) {
    if (a.negative != b.negative) return a.negative ? -1 : 1;
    int order = a.digits.size() < b.digits.size() ? -1 : a.digits.size() > b.digits.size();
    for (size_t i = a.digits.size(); order == 0 && i-- > 0;) {
      order = a.digits[i] < b.digits[i] ? -1 : a.digits[i] > b.digits[i];
    }
    return a.negative ? -order : order;
  }
};

Big big_of(const ColumnType& type, const std::string& value, const KeyFactor& factor = {}) {
  Big big;
  big.digits.assign(value.begin(), value.end());
  big.negative = type.order == KeyOrder::signed_integer && (big.digits.back() & 0x80);
  if (big.negative) {
    unsigned carry = 1;
    for (uint8_t& digit : big.digits) {
      carry += static_cast<uint8_t>(~digit);
      digit = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
    if (carry) big.digits.push_back(1);
  }
  big.trim();
  for (uint32_t i = 0; i < factor.pow10; ++i) big.multiply(10);
  big.multiply(factor.times);
  return big;
}

Big big_of(__int128 number) {
  std::string bytes(reinterpret_cast<const char*>(&number), 16);
  return big_of(signed_type(16), bytes);
}

/// The values of a column of a plain kind.
Values values_in(const Column& column) {
  Values values;
  const ColumnType& type = column.type;
  for (const ColumnChunk& chunk : column.chunks) {
    for (uint64_t i = 0; i < chunk.length; ++i) {
      const uint64_t bit = chunk.bit_offset + i;
      const auto* bytes = static_cast<const char*>(chunk.values);
      if (chunk.validity && !(chunk.validity[bit / 8] >> (bit % 8) & 1)) {
        values.push_back({});
      } else if (type.kind == ColumnKind::boolean) {
        values.push_back(std::string(1, static_cast<char>(bytes[bit / 8] >> (bit % 8) & 1)));
      } else if (type.kind == ColumnKind::utf8) {
        const auto* offsets = static_cast<const int32_t*>(chunk.offsets);
        EXPECT_LE(static_cast<uint64_t>(offsets[i + 1]), chunk.values_bytes);
        values.push_back(std::string(bytes + offsets[i], bytes + offsets[i + 1]));
      } else if (type.kind == ColumnKind::large_utf8) {
        const auto* offsets = static_cast<const int64_t*>(chunk.offsets);
        EXPECT_LE(static_cast<uint64_t>(offsets[i + 1]), chunk.values_bytes);
        values.push_back(std::string(bytes + offsets[i], bytes + offsets[i + 1]));
      } else {
        values.push_back(std::string(bytes + i * type.width, type.width));
      }
    }
  }
  EXPECT_EQ(values.size(), column.length);
  return values;
}

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

/// Values of integers of any width, those at the ends of 64 and of all bits among them.
Value draw_integer(const ColumnType& type, std::mt19937_64& random) {
  if (random() % 8 == 0) return {};
  const bool is_signed = type.order == KeyOrder::signed_integer;
  std::string bytes(type.width, '\0');
  const auto fill = [&](int64_t number) {
    std::fill(bytes.begin(), bytes.end(), static_cast<char>(number < 0 ? 0xFF : 0));
    std::memcpy(bytes.data(), &number, std::min<size_t>(8, type.width));
  };
  switch (random() % 6) {
    case 0: fill(static_cast<int64_t>(random() % 5) - (is_signed ? 2 : 0)); break;
    case 1: fill(is_signed && random() % 2 ? INT64_MIN : INT64_MAX); break;
    case 2:  // one beyond 64 bits, where there is room
      fill(INT64_MAX);
      if (type.width > 8) bytes[8] = static_cast<char>(random() % 2);
      break;
    case 3: {
      std::fill(bytes.begin(), bytes.end(), static_cast<char>(random() % 2 ? 0xFF : 0));
      bytes.back() = static_cast<char>(random() % 2 ? 0x80 : 0x7F);
      break;
    }
    case 4: {
      const uint64_t size = 1 + random() % type.width;
      const bool negative = is_signed && random() % 2;
      for (uint64_t i = 0; i < type.width; ++i) bytes[i] = static_cast<char>(i < size ? random() : negative ? 0xFF : 0);
      break;
    }
    default: fill(static_cast<int64_t>(random() % 100'000) * (is_signed && random() % 2 ? -1 : 1));
  }
  return bytes;
}

std::vector<ColumnType> integer_types() {
  std::vector<ColumnType> types{signed_type(16), signed_type(32)};
  for (const uint32_t width : {1u, 2u, 4u, 8u}) {
    types.push_back(signed_type(width));
    types.push_back(unsigned_type(width));
  }
  return types;
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
    const auto width = static_cast<uint32_t>(1 + seed % 20);
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
    EXPECT_EQ(keys[0].column.type.variable_width(), with_text || width > 8);
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

/// Views with the memory behind them.
struct ViewColumn {
  Column column;

  ViewColumn(std::string name, const Values& values, std::mt19937_64& random) {
    column.name = std::move(name);
    column.type = {ColumnKind::view, KeyOrder::bytes, 0};
    column.length = values.size();
    const std::vector<uint64_t> lengths = TestColumn::random_lengths(values.size(), random);
    uint64_t begin = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const uint64_t left = values.size() - begin;
      const uint64_t length = i + 1 == lengths.size() ? left : std::min(lengths[i], left);
      add_chunk(values, begin, length, random);
      begin += length;
    }
  }

  std::vector<std::unique_ptr<std::vector<uint8_t>>> memory;

 private:
  uint8_t* keep(std::vector<uint8_t> bytes) {
    memory.push_back(std::make_unique<std::vector<uint8_t>>(std::move(bytes)));
    return memory.back()->data();
  }
  void add_chunk(const Values& values, uint64_t begin, uint64_t length, std::mt19937_64& random) {
    ColumnChunk chunk;
    chunk.length = length;
    chunk.bit_offset = random() % 9;
    std::vector<uint8_t> bitmap((chunk.bit_offset + length + 7) / 8), views(length * 16);
    std::vector<std::vector<uint8_t>> buffers(1 + random() % 3);
    for (uint64_t i = 0; i < length; ++i) {
      const Value& value = values[begin + i];
      if (!value) {  // anything may be under a null
        for (int byte = 0; byte < 16; ++byte) views[i * 16 + byte] = static_cast<uint8_t>(random());
        continue;
      }
      bitmap[(chunk.bit_offset + i) / 8] |= static_cast<uint8_t>(1 << (chunk.bit_offset + i) % 8);
      const auto size = static_cast<uint32_t>(value->size());
      std::memcpy(&views[i * 16], &size, 4);
      if (size <= 12) {
        std::memcpy(&views[i * 16 + 4], value->data(), size);
        continue;
      }
      const auto number = static_cast<uint32_t>(random() % buffers.size());
      const auto offset = static_cast<uint32_t>(buffers[number].size());
      std::memcpy(&views[i * 16 + 4], value->data(), 4);
      std::memcpy(&views[i * 16 + 8], &number, 4);
      std::memcpy(&views[i * 16 + 12], &offset, 4);
      buffers[number].insert(buffers[number].end(), value->begin(), value->end());
    }
    auto spans = std::make_shared<std::vector<ViewBuffer>>();
    for (auto& buffer : buffers) {
      const uint64_t size = buffer.size();
      spans->push_back({keep(std::move(buffer)), size});
    }
    chunk.buffers = *spans;
    column.view_buffers.push_back(spans);
    chunk.validity_bytes = bitmap.size();
    chunk.validity = keep(std::move(bitmap));
    chunk.values_bytes = views.size();
    chunk.values = keep(std::move(views));
    column.chunks.push_back(chunk);
  }
};

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

/// Indices of dictionaries that differ by chunk, with the memory behind them.
struct DictionaryColumn {
  Column column;
  Values values;

  /// `draw` gives a value of a dictionary.
  template <class Draw>
  DictionaryColumn(std::string name, const ColumnType& index, const ColumnType& type, uint64_t rows, Draw&& draw,
                   std::mt19937_64& random) {
    column.name = std::move(name);
    column.type = index;
    Values entries;
    const uint64_t chunks = 1 + random() % 4;
    for (uint64_t i = 0; i < chunks; ++i) {
      const uint64_t begin = random() % 3 && !entries.empty() ? begin_ : entries.size();  // sometimes the dictionary before
      if (begin == entries.size()) {
        const uint64_t size = 1 + random() % 12;
        for (uint64_t entry = 0; entry < size; ++entry) entries.push_back(draw());
        begin_ = begin;
        size_ = size;
      }
      const uint64_t length = random() % (2 * rows / chunks + 1);
      Values indices;
      for (uint64_t row = 0; row < length; ++row) {
        const uint64_t entry = random() % size_;
        std::string bytes(index.width, '\0');
        std::memcpy(bytes.data(), &entry, std::min<size_t>(8, index.width));
        const bool null = random() % 8 == 0;
        indices.push_back(null ? Value() : Value(bytes));
        values.push_back(null ? Value() : entries[begin + entry]);
      }
      indices_.push_back(std::make_unique<TestColumn>("", index, indices, std::vector<uint64_t>{length}, random));
      for (ColumnChunk chunk : indices_.back()->column.chunks) {
        chunk.dictionary_base = begin;
        chunk.dictionary_size = size_;
        column.chunks.push_back(chunk);
        column.length += chunk.length;
      }
    }
    entries_ = std::make_unique<TestColumn>("values", type, entries, random);
    column.dictionary = std::make_shared<const Column>(entries_->column);
  }

 private:
  std::vector<std::unique_ptr<TestColumn>> indices_;
  std::unique_ptr<TestColumn> entries_;
  uint64_t begin_ = 0, size_ = 0;
};

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
