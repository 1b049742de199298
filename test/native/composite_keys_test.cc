#include <gtest/gtest.h>

#include <map>
#include <set>

#include "columns/encode.h"
#include "core/bytes_hash.h"
#include "core/error.h"
#include "join_keys.h"
#include "test_columns.h"

namespace warpjoin {
namespace {

using namespace test;

/// A key column of one side: values, which may be those of dictionaries that differ by chunk.
class KeyColumn {
 public:
  ColumnType type;  ///< of the values
  Values values;

  KeyColumn(const std::string& name, const ColumnType& type, Values drawn, bool dictionary, std::mt19937_64& random)
      : type(type), values(std::move(drawn)) {
    if (!dictionary) {
      columns_.push_back(std::make_unique<TestColumn>(name, type, values, random));
      return;
    }
    // Each chunk's dictionary has its values, some of them twice and some that no row has, in any order; with a null or without.
    const std::vector<uint64_t> lengths = TestColumn::random_lengths(values.size(), random);
    const bool narrow = values.size() < 10'000;  // 2 bytes hold all indices
    const ColumnType index_type = random() % 2 ? signed_type(std::vector<uint32_t>{4, 8, 2}[random() % (narrow ? 3 : 2)])
                                               : unsigned_type(std::vector<uint32_t>{4, 2}[random() % (narrow ? 2 : 1)]);
    Values indices, entries;
    struct Part {
      uint64_t base, size;
    };
    std::vector<Part> parts;
    uint64_t row = 0;
    for (size_t chunk = 0; chunk <= lengths.size() && (chunk == 0 || row < values.size() || chunk < lengths.size()); ++chunk) {
      const uint64_t length =
          chunk < lengths.size() ? std::min<uint64_t>(lengths[chunk], values.size() - row) : values.size() - row;
      Values own(values.begin() + static_cast<int64_t>(row), values.begin() + static_cast<int64_t>(row + length));
      for (uint64_t i = 0; i < length / 4; ++i) own.push_back(own[random() % own.size()]);
      if (random() % 2) own.push_back({});
      for (const Value& value : draw_values(type, 3, {.distinct = 1000}, random)) own.push_back(value);
      std::shuffle(own.begin(), own.end(), random);
      std::map<Value, std::vector<uint64_t>> places_of;
      for (uint64_t at = 0; at < own.size(); ++at) places_of[own[at]].push_back(at);
      for (uint64_t i = 0; i < length; ++i, ++row) {
        const std::vector<uint64_t>& places = places_of.at(values[row]);
        Value index;
        if (values[row] || random() % 2) {  // a null is one of the index, or of the dictionary
          const uint64_t place = places[random() % places.size()];
          index = std::string(reinterpret_cast<const char*>(&place), index_type.width);
        }
        indices.push_back(index);
      }
      parts.push_back({entries.size(), own.size()});
      entries.insert(entries.end(), own.begin(), own.end());
    }
    columns_.push_back(std::make_unique<TestColumn>(name, index_type, indices, lengths, random));
    dictionary_ = std::make_unique<TestColumn>(name, type, entries, random);
    Column& column = columns_[0]->column;
    column.dictionary = std::shared_ptr<const Column>(&dictionary_->column, [](const Column*) {});
    for (size_t chunk = 0; chunk < column.chunks.size(); ++chunk) {
      column.chunks[chunk].dictionary_base = parts.at(chunk).base;
      column.chunks[chunk].dictionary_size = parts.at(chunk).size;
    }
  }

  Column& column() const { return columns_[0]->column; }

 private:
  std::vector<std::unique_ptr<TestColumn>> columns_;
  std::unique_ptr<TestColumn> dictionary_;
};

struct KeyPair {
  KeyColumn left, right;
  bool nulls_equal;
};

std::vector<JoinKeyPair> pairs_of(const std::vector<KeyPair>& keys) {
  std::vector<JoinKeyPair> pairs;
  for (const KeyPair& key : keys)
    pairs.push_back({.left = &key.left.column(), .right = &key.right.column(), .nulls_equal = key.nulls_equal});
  return pairs;
}

bool equal(const KeyPair& key, uint64_t left, uint64_t right) {
  const Value &a = key.left.values[left], &b = key.right.values[right];
  if (!a || !b) return !a && !b && key.nulls_equal;
  return compare_values(key.left.type, *a, key.right.type, *b) == 0;
}

using Rows = std::vector<std::pair<uint64_t, uint64_t>>;

Rows joined(const JoinKeys& keys, uint64_t left_rows, uint64_t right_rows) {
  EXPECT_EQ(keys.left.tuples.layout.key_bytes, keys.right.tuples.layout.key_bytes);
  std::multimap<uint64_t, uint64_t> table;
  for (const auto& [row, key] : tuples_of(keys.right, right_rows)) table.insert({key, row});
  Rows found;
  for (const auto& [row, key] : tuples_of(keys.left, left_rows)) {
    for (auto [it, end] = table.equal_range(key); it != end; ++it) found.push_back({row, it->second});
  }
  // What lookup_join counts on.
  for (const auto& [side, other] : {std::pair{&keys.left, &keys.right}, {&keys.right, &keys.left}}) {
    if (!side->keys_are_rows) continue;
    std::set<uint64_t> rows;
    for (const auto& [row, key] : tuples_of(*side, side->rows)) {
      EXPECT_EQ(row, key);
      rows.insert(row);
    }
    for (const auto& [row, key] : tuples_of(*other, other->rows)) EXPECT_TRUE(rows.contains(key));
  }
  std::sort(found.begin(), found.end());
  return found;
}

Rows expected_rows(const std::vector<KeyPair>& keys) {
  Rows expected;
  for (uint64_t x = 0; x < keys[0].left.values.size(); ++x) {
    for (uint64_t y = 0; y < keys[0].right.values.size(); ++y) {
      if (std::all_of(keys.begin(), keys.end(), [&](const KeyPair& key) { return equal(key, x, y); })) expected.push_back({x, y});
    }
  }
  return expected;
}

JoinKeys encode(const std::vector<KeyPair>& keys, Engine& engine) {
  const Job job;
  const PoisonedMemory poisoned(engine, keys[0].left.values.size());
  return encode_join_keys(pairs_of(keys), nullptr, nullptr, engine, job);
}

bool comparable(const ColumnType& a, const ColumnType& b) {
  const auto integer = [](const ColumnType& type) {
    return type.order == KeyOrder::signed_integer || type.order == KeyOrder::unsigned_integer;
  };
  return a.order == b.order || (integer(a) && integer(b));
}

/// Draws a pair of columns of comparable types.
KeyPair draw_pair(uint64_t left_rows, uint64_t right_rows, std::mt19937_64& random) {
  const std::vector<ColumnType> types = key_types();
  const ColumnType left = types[random() % types.size()];
  ColumnType right = left;
  for (int tries = 0; tries < 3; ++tries) {
    const ColumnType other = types[random() % types.size()];
    if (comparable(left, other)) right = other;
  }
  const Draw draw{.nulls = random() % 3 ? 0.15 : 0,
                  .distinct = std::vector<uint64_t>{1, 2, 5, 40, 0}[random() % 5],
                  .longest = std::vector<uint64_t>{0, 3, 7, 9, 30}[random() % 5]};
  Draw other = draw;
  if (random() % 4 == 0) other.nulls = 0;
  if (random() % 4 == 0) other.distinct = 300;  // ranges that overlap in part, or not at all
  if (random() % 4 == 0) other.longest = 20;
  if (random() % 4 == 0 && draw.distinct) other.prefix = "\xff";
  const bool nulls_equal = random() % 2;
  return {KeyColumn("l", left, draw_values(left, left_rows, draw, random), random() % 4 == 0, random),
          KeyColumn("r", right, draw_values(right, right_rows, other, random), random() % 4 == 0, random), nulls_equal};
}

TEST(CompositeKeys, MatchRowsThatAreEqualInAllColumns) {
  std::mt19937_64 random(1);
  Engine engine = make_engine();
  uint64_t matches = 0, packed = 0, codes = 0;
  for (int round = 0; round < 1500; ++round) {
    SCOPED_TRACE(round);
    engine.text_hash = BytesHash(random(), std::vector<unsigned>{64, 64, 5, 0}[random() % 4]);
    const uint64_t left_rows = random() % 150, right_rows = random() % 150;
    std::vector<KeyPair> keys;
    const uint64_t pairs = 1 + random() % 4;
    for (uint64_t i = 0; i < pairs; ++i) keys.push_back(draw_pair(left_rows, right_rows, random));
    const JoinKeys encoded = encode(keys, engine);
    const Rows found = joined(encoded, left_rows, right_rows);
    ASSERT_EQ(found, expected_rows(keys));
    matches += found.size();
    packed += encoded.made == JoinKeys::Made::packed;
    codes += encoded.made == JoinKeys::Made::code;
  }
  EXPECT_GT(matches, 10000u);
  EXPECT_GT(packed, 300u);
  EXPECT_GT(codes, 150u);
}

KeyColumn plain(const ColumnType& type, const Values& values, std::mt19937_64& random) {
  return KeyColumn("c", type, values, false, random);
}

TEST(CompositeKeys, TakeAsFewBitsAsTheSharedRangesNeed) {
  std::mt19937_64 random(2);
  Engine engine = make_engine();
  const auto numbers = [](std::initializer_list<int64_t> all) {
    Values values;
    for (const int64_t number : all) values.push_back(value_of(number));
    return values;
  };
  // Shared are 0 to 100, which take 7 bits, and 1000 to 1003.
  std::vector<KeyPair> keys;
  keys.push_back({plain(signed_type(8), numbers({INT64_MIN, 0, 100, 50}), random),
                  plain(signed_type(8), numbers({0, 100, 50, 7}), random), false});
  keys.push_back({plain(signed_type(8), numbers({1000, 1000, 1003, INT64_MAX}), random),
                  plain(unsigned_type(8), numbers({1000, 1003, 1001, 1002}), random), false});
  JoinKeys encoded = encode(keys, engine);
  EXPECT_EQ(encoded.bits, 7u + 2);
  EXPECT_EQ(encoded.left.tuples.layout.key_bytes, 4);
  EXPECT_EQ(joined(encoded, 4, 4), (Rows{{1, 0}, {2, 1}}));
  EXPECT_EQ(encoded.left.excluded_rows, 2u);
  EXPECT_EQ(encoded.right.excluded_rows, 0u);
  // Texts of three bytes take 24 bits, and a null one code more.
  keys.clear();
  const Values codes{{"abc"}, {"xyz"}, {}, {"more than three"}};
  keys.push_back({plain(utf8_type(), codes, random), plain(large_utf8_type(), {{"abc"}, {"abd"}, {}, {}}, random), true});
  encoded = encode(keys, engine);
  EXPECT_EQ(encoded.bits, 25u);
  EXPECT_EQ(joined(encoded, 4, 4), (Rows{{0, 0}, {2, 2}, {2, 3}}));
}

TEST(CompositeKeys, LeaveOneColumnWithoutMatchingNullsAsItIs) {
  std::mt19937_64 random(3);
  Engine engine = make_engine();
  const Job job;
  const Values left = draw_values(signed_type(4), 100, {.distinct = 20}, random),
               right = draw_values(signed_type(4), 100, {.nulls = 0.2, .distinct = 20}, random);
  TestColumn l("l", signed_type(4), left, {100}, random), r("r", signed_type(4), right, {100}, random);
  const JoinKeyPair pair{.left = &l.column, .right = &r.column, .nulls_equal = true};
  const JoinKeys keys = encode_join_keys({&pair, 1}, nullptr, nullptr, engine, job);
  EXPECT_EQ(keys.left.tuples.view.keys, l.column.chunks[0].values);
  EXPECT_TRUE(keys.keys_are_left_values);
  EXPECT_EQ(keys.made, JoinKeys::Made::value);
}

TEST(CompositeKeys, LetFullRangesOf64BitsHaveNulls) {
  std::mt19937_64 random(4);
  Engine engine = make_engine();
  for (const ColumnType& type : {signed_type(8), unsigned_type(8)}) {
    Values values = draw_values(type, 60, {.nulls = 0.3, .distinct = 9}, random);
    for (const uint64_t extreme : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63, (uint64_t{1} << 63) - 1})
      values.push_back(value_of(extreme));
    Values others = values;
    std::shuffle(others.begin(), others.end(), random);
    std::vector<KeyPair> keys;
    keys.push_back({plain(type, values, random), plain(type, others, random), true});
    const JoinKeys encoded = encode(keys, engine);
    EXPECT_EQ(encoded.bits, 65u);
    EXPECT_EQ(joined(encoded, values.size(), values.size()), expected_rows(keys));
  }
}

TEST(CompositeKeys, WorkOverSeveralBlocks) {
  std::mt19937_64 random(5);
  Engine engine = make_engine(3);
  const Job job;
  const uint64_t rows = 140'000;
  for (const bool wide : {false, true}) {
    std::vector<KeyPair> keys;
    for (const ColumnType& type : {signed_type(4), utf8_type(), wide ? floating_type(8) : boolean_type()}) {
      const Draw draw{.nulls = 0.1, .distinct = 30, .longest = 12};
      keys.push_back({KeyColumn("l", type, draw_values(type, rows, draw, random), type.variable_width(), random),
                      plain(type, draw_values(type, 500, draw, random), random), type.order != KeyOrder::bytes});
    }
    const JoinKeys encoded = encode(keys, engine);
    EXPECT_EQ(encoded.made, wide ? JoinKeys::Made::code : JoinKeys::Made::packed);
    std::map<std::vector<Value>, std::set<uint64_t>> keys_of;
    std::map<uint64_t, std::set<std::vector<Value>>> values_of;
    const auto note = [&](const JoinSide& side, KeyColumn KeyPair::*of, uint64_t size) {
      for (const auto& [row, key] : tuples_of(side, size)) {
        std::vector<Value> values;
        for (const KeyPair& pair : keys) values.push_back((pair.*of).values[row]);
        keys_of[values].insert(key);
        values_of[key].insert(values);
      }
    };
    note(encoded.left, &KeyPair::left, rows);
    note(encoded.right, &KeyPair::right, 500);
    EXPECT_GT(keys_of.size(), 300u);
    for (const auto& [values, of] : keys_of) ASSERT_EQ(of.size(), 1u);
    for (const auto& [key, of] : values_of) ASSERT_EQ(of.size(), 1u);
  }
}

TEST(CompositeKeys, EncodeAColumnWithItselfOnce) {
  std::mt19937_64 random(6);
  Engine engine = make_engine();
  const Job job;
  for (int round = 0; round < 300; ++round) {
    const uint64_t rows = random() % 100;
    std::vector<KeyPair> keys;
    const uint64_t pairs = 1 + random() % 3;
    for (uint64_t i = 0; i < pairs; ++i) {
      keys.push_back(draw_pair(rows, 0, random));
      keys.back().nulls_equal = true;
    }
    std::vector<const Column*> own;
    for (const KeyPair& key : keys) own.push_back(&key.left.column());
    const PoisonedMemory poisoned(engine, rows);
    const JoinSide encoded = encode_own_keys(own, true, engine, job);
    const auto tuples = tuples_of(encoded, rows);
    ASSERT_EQ(tuples.size(), rows);
    for (uint64_t a = 0; a < rows; ++a) {
      for (uint64_t b = 0; b < rows; ++b) {
        const bool same = std::all_of(keys.begin(), keys.end(), [&](const KeyPair& key) {
          const Value &x = key.left.values[a], &y = key.left.values[b];
          return x && y ? compare_values(key.left.type, *x, key.left.type, *y) == 0 : !x && !y;
        });
        ASSERT_EQ(tuples[a].second == tuples[b].second, same) << round << ": " << a << " " << b;
      }
    }
  }
}

TEST(CompositeKeys, RefuseIndicesOutsideOfTheDictionary) {
  std::mt19937_64 random(7);
  Engine engine = make_engine();
  const Job job;
  for (const int32_t index : {-1, 1000, INT32_MIN, INT32_MAX}) {
    KeyPair key{KeyColumn("l", utf8_type(), draw_values(utf8_type(), 50, {.distinct = 5}, random), true, random),
                KeyColumn("r", utf8_type(), draw_values(utf8_type(), 50, {.distinct = 5}, random), false, random), false};
    const int32_t indices[] = {0, index};
    Column& column = key.left.column();
    column.type = signed_type(4);
    ColumnChunk chunk;
    chunk.length = 2;
    chunk.values = indices;
    chunk.values_bytes = sizeof indices;
    chunk.dictionary_size = 1;
    column.chunks = {chunk};
    column.length = 2;
    try {
      const JoinKeyPair pair{.left = &column, .right = &key.right.column()};
      encode_join_keys({&pair, 1}, nullptr, nullptr, engine, job);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_table);
      EXPECT_NE(std::string(error.what()).find("'l'"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace warpjoin
