#include <gtest/gtest.h>

#include <map>

#include "columns/encode.h"
#include "core/bytes_hash.h"
#include "core/error.h"
#include "join_keys.h"
#include "test_columns.h"

namespace warpjoin {
namespace {

using namespace test;

/// The pairs that a join of the keys finds, against the pairs of equal values.
void expect_joined(const ColumnType& left_type, const Values& left, const ColumnType& right_type, const Values& right,
                   Engine& engine, std::mt19937_64& random) {
  const Job job;
  const TestColumn left_test("l", left_type, left, random), right_test("r", right_type, right, random);
  const PoisonedMemory poisoned(engine, left.size());
  const JoinKeys keys = encode_join_keys(left_test.column, right_test.column, nullptr, nullptr, engine, job);
  EXPECT_EQ(keys.left.tuples.layout.key_bytes, keys.right.tuples.layout.key_bytes);
  std::multimap<uint64_t, uint64_t> table;
  for (const auto& [row, key] : tuples_of(keys.right, right.size())) table.insert({key, row});
  std::vector<std::pair<uint64_t, uint64_t>> found, expected;
  for (const auto& [row, key] : tuples_of(keys.left, left.size())) {
    for (auto [it, end] = table.equal_range(key); it != end; ++it) found.push_back({row, it->second});
    if (keys.keys_are_left_values) {
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(&key), left_type.width), *left[row]);
    }
  }
  for (uint64_t x = 0; x < left.size(); ++x) {
    for (uint64_t y = 0; y < right.size(); ++y) {
      if (left[x] && right[y] && compare_values(left_type, *left[x], right_type, *right[y]) == 0) expected.push_back({x, y});
    }
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, expected);
}

TEST(JoinKeys, MatchEqualValuesOfEachType) {
  std::mt19937_64 random(1);
  Engine engine = make_engine();
  for (const ColumnType& type : key_types()) {
    for (int round = 0; round < 16; ++round) {
      const Draw draw{.nulls = round % 2 ? 0.2 : 0,
                      .distinct = round % 3 ? 100u : 0u,
                      .longest = std::vector<uint64_t>{3, 7, 8, 70}[random() % 4]};
      SCOPED_TRACE(type_name(type) + " round " + std::to_string(round));
      expect_joined(type, draw_values(type, random() % 300, draw, random), type, draw_values(type, random() % 300, draw, random),
                    engine, random);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(JoinKeys, MatchValuesOfComparableTypes) {
  std::mt19937_64 random(2);
  Engine engine = make_engine();
  const auto class_of = [](const ColumnType& type) {
    return type.order == KeyOrder::unsigned_integer ? KeyOrder::signed_integer : type.order;
  };
  for (const ColumnType& a : key_types()) {
    for (const ColumnType& b : key_types()) {
      SCOPED_TRACE(type_name(a) + " " + type_name(b));
      if (class_of(a) != class_of(b)) {
        const TestColumn x("x", a, draw_values(a, 3, {}, random), random), y("y", b, draw_values(b, 3, {}, random), random);
        const Job job;
        EXPECT_THROW(encode_join_keys(x.column, y.column, nullptr, nullptr, engine, job), Error);
        continue;
      }
      for (const uint64_t distinct : {0, 250}) {
        const Draw draw{.nulls = distinct ? 0.1 : 0, .distinct = distinct};
        expect_joined(a, draw_values(a, 200, draw, random), b, draw_values(b, 200, draw, random), engine, random);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(JoinKeys, NeverMatchANegativeWithALargeUnsigned) {
  std::mt19937_64 random(3);
  Engine engine = make_engine();
  const Job job;
  const Values left{value_of(int64_t{-1}), value_of(int64_t{7}), value_of(INT64_MIN)};
  const Values right{value_of(UINT64_MAX), value_of(uint64_t{7}), value_of(uint64_t{1} << 63)};
  expect_joined(signed_type(8), left, unsigned_type(8), right, engine, random);
  const TestColumn l("l", signed_type(8), left, {3}, random), r("r", unsigned_type(8), right, {3}, random);
  const JoinKeys keys = encode_join_keys(l.column, r.column, nullptr, nullptr, engine, job);
  EXPECT_EQ(keys.left.excluded_rows, 2u);
  EXPECT_EQ(keys.right.excluded_rows, 2u);
}

TEST(JoinKeys, AliasOneAlignedChunkWithoutNulls) {
  std::mt19937_64 random(4);
  Engine engine = make_engine();
  const Job job;
  for (const ColumnType& type : {signed_type(4), unsigned_type(8), floating_type(8)}) {
    const Values values = draw_values(type, 100, {.distinct = 2}, random);
    TestColumn left("l", type, values, {100}, random), right("r", type, values, {50, 50}, random);
    left.column.chunks[0].validity = nullptr;
    const JoinKeys keys = encode_join_keys(left.column, right.column, nullptr, nullptr, engine, job);
    if (type.order != KeyOrder::floating) {
      EXPECT_EQ(keys.left.tuples.view.keys, left.column.chunks[0].values);
      EXPECT_TRUE(keys.keys_are_left_values);
      EXPECT_FALSE(keys.left.scanned);
      EXPECT_EQ(varying_bits(keys.left, engine, job), type.order == KeyOrder::signed_integer ? 0xFFFFFFFFu : 1u);
    }
    EXPECT_NE(keys.right.tuples.view.keys, right.column.chunks[0].values);
    EXPECT_EQ(keys.right.tuples.view.values, nullptr);
  }
}

TEST(JoinKeys, CarryPayloadsOnlyWhereNothingIsExcluded) {
  std::mt19937_64 random(5);
  Engine engine = make_engine();
  const Job job;
  Values values = draw_values(signed_type(8), 100, {}, random);
  const Values payload_values = draw_values(opaque_type(8), 100, {}, random);
  const TestColumn whole("w", signed_type(8), values, random);
  values[5] = {};
  const TestColumn nullable("n", signed_type(8), values, random), payload("p", opaque_type(8), payload_values, random);
  const JoinKeys keys = encode_join_keys(whole.column, nullable.column, &payload.column, &payload.column, engine, job);
  ASSERT_TRUE(keys.left.carries_payload);
  EXPECT_FALSE(keys.right.carries_payload);
  EXPECT_EQ(keys.right.excluded_rows, 1u);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(read(keys.left.tuples.view.values, 8, i), number_of<uint64_t>(*payload_values[i]));
  }
  const TestColumn text("t", utf8_type(), draw_values(utf8_type(), 100, {.longest = 40}, random), random);
  const JoinKeys texts = encode_join_keys(text.column, text.column, &payload.column, nullptr, engine, job);
  EXPECT_TRUE(texts.left.carries_payload);
}

TEST(JoinKeys, WorkOverSeveralBlocks) {
  std::mt19937_64 random(6);
  Engine engine = make_engine(3);
  const Job job;
  const uint64_t rows = 140000;
  double nulls = 0.3;
  for (const ColumnType& type : {signed_type(2), signed_type(8), floating_type(4), boolean_type(), utf8_type()}) {
    const Values values = draw_values(type, rows, {.nulls = nulls}, random);
    const TestColumn test("c", type, values, random);
    const PoisonedMemory poisoned(engine, rows);
    const JoinKeys keys = encode_join_keys(test.column, test.column, nullptr, nullptr, engine, job);
    std::map<std::string, uint64_t> known;
    for (const auto& [row, key] : tuples_of(keys.left, rows)) {
      ASSERT_TRUE(values[row]);
      EXPECT_EQ(known.insert({*values[row], key}).first->second, key);
    }
    const auto nulls_there = static_cast<uint64_t>(std::count(values.begin(), values.end(), Value()));
    EXPECT_EQ(keys.left.excluded_rows, nulls_there);
    nulls = 0.3 - nulls;
  }
}

TEST(JoinKeys, MatchTextsWhoseHashesCollide) {
  std::mt19937_64 random(7);
  Engine engine = make_engine(3);
  for (const unsigned bits : {0, 1, 4, 8}) {
    engine.text_hash = BytesHash(bits, bits);
    for (const ColumnType& right_type : {utf8_type(), large_utf8_type()}) {
      for (const uint64_t distinct : {1, 30, 0}) {
        const Draw draw{.nulls = distinct ? 0.1 : 0, .distinct = distinct, .longest = 40};
        SCOPED_TRACE(type_name(right_type) + " of " + std::to_string(distinct) + " texts, " + std::to_string(bits) + " bits");
        // The side with fewer rows gives the codes.
        for (const auto& [left, right] : {std::pair{100, 300}, {300, 100}, {200, 200}}) {
          expect_joined(utf8_type(), draw_values(utf8_type(), left, draw, random), right_type,
                        draw_values(right_type, right, draw, random), engine, random);
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(JoinKeys, GiveATextTheFirstRowThatHoldsIt) {
  std::mt19937_64 random(8);
  Engine engine = make_engine(3);
  const Job job;
  const uint64_t rows = 140000;  // several blocks, which threads look at in any order
  for (const unsigned bits : {64, 6}) {
    engine.text_hash = BytesHash(1, bits);
    const Values values = draw_values(utf8_type(), rows, {.nulls = 0.1, .distinct = 5000, .longest = 40}, random);
    const TestColumn test("c", utf8_type(), values, random);
    const JoinKeys keys = encode_join_keys(test.column, test.column, nullptr, nullptr, engine, job);
    std::map<std::string, uint64_t> first;
    for (uint64_t row = 0; row < rows; ++row) {
      if (values[row]) first.try_emplace(*values[row], row);
    }
    for (const JoinSide* side : {&keys.left, &keys.right}) {
      for (const auto& [row, key] : tuples_of(*side, rows)) ASSERT_EQ(key, first.at(*values[row]));
    }
  }
}

TEST(JoinKeys, ExcludeTextsThatTheShorterColumnLacks) {
  std::mt19937_64 random(9);
  Engine engine = make_engine();
  const Job job;
  const auto texts = [](std::vector<const char*> all) { return Values(all.begin(), all.end()); };
  const TestColumn few("few", utf8_type(), texts({"United States", "United Kingdom"}), random);
  const TestColumn many("many", utf8_type(), texts({"United Kingdom", "New Zealand", "United States", "United States"}), random);
  const JoinKeys keys = encode_join_keys(many.column, few.column, nullptr, nullptr, engine, job);
  EXPECT_EQ(keys.left.excluded_rows, 1u);
  EXPECT_EQ(read(keys.left.excluded.data(), 4, 0), 1u);
  EXPECT_EQ(keys.right.excluded_rows, 0u);
  EXPECT_EQ(tuples_of(keys.left, 4), (std::vector<std::pair<uint64_t, uint64_t>>{{0, 1}, {2, 0}, {3, 0}}));
}

TEST(BytesHash, KeepsEveryFewBits) {
  for (const unsigned bits : {0u, 3u, 64u}) {
    const BytesHash hash(5, bits);
    std::map<uint64_t, int> seen;
    for (uint64_t i = 0; i < 1000; ++i) ++seen[hash(reinterpret_cast<const uint8_t*>(&i), sizeof i)];
    EXPECT_EQ(seen.size(), bits == 64 ? 1000u : uint64_t{1} << bits);
  }
}

TEST(BytesHash, LetsNoFactorOfZeroEraseATextsOtherWords) {
  constexpr uint64_t kSeed = 11;
  const BytesHash hash(kSeed);
  std::mt19937_64 random(kSeed);
  std::vector<uint64_t> factors(4);
  for (uint64_t& factor : factors) factor = random();
  std::mt19937_64 words(1);
  for (const uint64_t factor : factors) {
    for (size_t at = 0; at < 12; ++at) {
      std::map<uint64_t, int> seen;
      for (int draw = 0; draw < 100; ++draw) {
        uint64_t text[12] = {};
        text[at] = factor;
        text[at ^ 1] = words();
        ++seen[hash(reinterpret_cast<const uint8_t*>(text), sizeof text)];
      }
      EXPECT_EQ(seen.size(), 100u) << at;
    }
  }
}

TEST(BytesHash, SpreadsTextsThatDifferInOneByteOrInSize) {
  const BytesHash hash(7);
  std::map<uint64_t, std::string> seen;
  for (size_t size = 0; size < 130; ++size) {
    for (size_t at = 0; at <= size; ++at) {
      std::string text(size, '\0');
      if (at < size) text[at] = 1;
      const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
      const auto [it, fresh] = seen.insert({hash(bytes, size), text});
      EXPECT_TRUE(fresh || it->second == text) << size << " " << at;
    }
  }
  // Each bit of the hash is set about half the time.
  for (int bit = 0; bit < 64; ++bit) {
    size_t ones = 0;
    for (const auto& [hash, text] : seen) ones += (hash >> bit) & 1;
    EXPECT_NEAR(static_cast<double>(ones) / static_cast<double>(seen.size()), 0.5, 0.05) << bit;
  }
}

}  // namespace
}  // namespace warpjoin
