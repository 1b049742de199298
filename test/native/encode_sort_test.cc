#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "columns/encode.h"
#include "core/error.h"
#include "sizes.h"
#include "test_columns.h"

namespace warpjoin {
namespace {

using namespace test;

/// Tuples sorted by word 0, stable, as a sort operator gives them; each array exactly as large as it needs.
struct Sorted {
  std::vector<uint64_t> keys;
  std::unique_ptr<uint8_t[]> key_bytes, values;
  TupleSpan span;

  Sorted(const EncodedTuples& tuples) {
    const uint64_t size = tuples.view.size;
    const TupleLayout layout = tuples.layout;
    std::vector<uint64_t> all(size);
    for (uint64_t i = 0; i < size; ++i) {
      if (layout.key_bytes == 4) {
        all[i] = static_cast<const uint32_t*>(tuples.view.keys)[i];
      } else {
        all[i] = static_cast<const uint64_t*>(tuples.view.keys)[i];
      }
    }
    uint64_t varying = 0;
    for (const uint64_t key : all) varying |= key ^ all[0];
    EXPECT_EQ(varying & ~tuples.varying_bits, 0u);
    EXPECT_TRUE(size == 0 || varying == tuples.varying_bits);
    std::vector<uint64_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) { return all[a] < all[b]; });
    key_bytes.reset(new uint8_t[size * layout.key_bytes]);
    values.reset(new uint8_t[size * layout.value_bytes]);
    for (uint64_t i = 0; i < size; ++i) {
      keys.push_back(all[order[i]]);
      std::memcpy(key_bytes.get() + i * layout.key_bytes, &keys.back(), layout.key_bytes);
      const auto* carried = static_cast<const char*>(tuples.view.values);
      if (carried) {
        std::memcpy(values.get() + i * layout.value_bytes, carried + order[i] * layout.value_bytes, layout.value_bytes);
      } else {
        std::memcpy(values.get() + i * layout.value_bytes, &order[i], layout.value_bytes);
      }
    }
    span = {key_bytes.get(), values.get(), size};
  }

  uint64_t row(uint64_t i) const {
    return reinterpret_cast<const uint32_t*>(values.get())[i];  // tests have fewer than 2^32 rows
  }
};

/// Encodes, sorts and refines; expects the order of a stable sort, and decoded columns that equal gathered ones. Returns
/// whether word 0 decided.
bool expect_sorted(const std::vector<By>& by, Engine& engine, std::mt19937_64& random, bool one_chunk = false) {
  const Job job;
  const uint64_t rows = by[0].values.size();
  std::vector<TestColumn> columns;
  columns.reserve(by.size());
  std::vector<SortColumn> sort_columns;
  for (const By& column : by) {
    if (one_chunk) {
      columns.emplace_back("c", column.type, column.values, std::vector<uint64_t>{rows}, random);
    } else {
      columns.emplace_back("c", column.type, column.values, random);
    }
    sort_columns.push_back({&columns.back().column, column.descending, column.nulls_last});
  }
  const PoisonedMemory poisoned(engine, rows);
  const auto keys = encode_sort_keys(sort_columns, nullptr, false, engine, job);
  const EncodedTuples& tuples = keys->tuples();
  EXPECT_EQ(tuples.view.size, rows);
  EXPECT_EQ(tuples.view.values, nullptr);
  EXPECT_EQ(tuples.layout.value_bytes, 4);
  const Sorted sorted(tuples);
  keys->refine_ties(sorted.span, engine, job);

  const std::vector<uint64_t> expected = sorted_rows(by);
  std::vector<uint64_t> actual(rows);
  for (uint64_t i = 0; i < rows; ++i) actual[i] = sorted.row(i);
  EXPECT_EQ(actual, expected);

  for (size_t i = 0; i < by.size(); ++i) {
    const PoisonedMemory poisoned(engine, rows);
    const auto decoded = keys->decode(i, sorted.key_bytes.get(), rows, engine, job);
    if (!decoded) continue;
    Values values;
    for (const uint64_t row : expected) values.push_back(by[i].values[row]);
    EXPECT_EQ(values_of(*decoded, by[i].type), values) << type_name(by[i].type);
  }
  return keys->complete();
}

TEST(SortKeys, OrderOneColumnOfEachType) {
  std::mt19937_64 random(1);
  Engine engine = make_engine();
  for (const ColumnType& type : key_types()) {
    for (int round = 0; round < 32; ++round) {
      const uint64_t rows = std::vector<uint64_t>{0, 1, 2, 65, 700}[random() % 5];
      const Draw draw{.nulls = round % 2 ? 0.2 : 0,
                      .distinct = round % 3 ? 0u : 9u,
                      .prefix = round % 5 ? "" : "http://",
                      .longest = random() % 2 ? 6u : 30u};
      SCOPED_TRACE(type_name(type) + " round " + std::to_string(round));
      expect_sorted({{type, draw_values(type, rows, draw, random), round % 4 < 2, round % 8 < 4}}, engine, random);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(SortKeys, OrderSeveralColumns) {
  std::mt19937_64 random(2);
  Engine engine = make_engine();
  const auto types = key_types();
  for (int round = 0; round < 300; ++round) {
    const uint64_t rows = std::vector<uint64_t>{1, 50, 800}[random() % 3];
    std::vector<By> by;
    std::string trace = "round " + std::to_string(round);
    for (uint64_t i = 0, count = 2 + random() % 4; i < count; ++i) {
      const ColumnType type = types[random() % types.size()];
      const Draw draw{.nulls = random() % 2 ? 0.2 : 0,
                      .distinct = random() % 4 ? 3u : 0u,
                      .prefix = random() % 3 ? "" : "abcdefghi",
                      .longest = random() % 2 ? 4u : 25u};
      by.push_back({type, draw_values(type, rows, draw, random), random() % 2 == 0, random() % 2 == 0});
      trace += " " + type_name(type);
    }
    SCOPED_TRACE(trace);
    expect_sorted(by, engine, random);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(SortKeys, OrderColumnsOverSeveralBlocksAndLargeTies) {
  std::mt19937_64 random(3);
  Engine engine = make_engine(3);
  const uint64_t rows = many(120'000);
  const auto draw = [&](ColumnType type, uint64_t distinct, double nulls, uint64_t longest = 30) {
    return By{type, draw_values(type, rows, {.nulls = nulls, .distinct = distinct, .longest = longest}, random),
              random() % 2 == 0, random() % 2 == 0};
  };
  EXPECT_TRUE(expect_sorted({draw(signed_type(8), 0, 0.1)}, engine, random) || true);
  expect_sorted({draw(signed_type(4), 2, 0), draw(signed_type(8), 0, 0), draw(unsigned_type(8), 0, 0.1)}, engine, random);
  expect_sorted({draw(signed_type(4), 2, 0.2), draw(utf8_type(), 0, 0), draw(signed_type(8), 0, 0)}, engine, random);
  expect_sorted({draw(utf8_type(), 2, 0.2), draw(utf8_type(), 1000, 0.2), draw(floating_type(8), 0, 0.2)}, engine, random);
  expect_sorted({draw(large_utf8_type(), 40000, 0)}, engine, random);
}

TEST(SortKeys, OrderTextsThatShareTheirStart) {
  std::mt19937_64 random(4);
  Engine engine = make_engine();
  // a^i b: each text leaves the common start of the others a little later.
  for (const bool descending : {false, true}) {
    Values values;
    for (int i = 0; i < 600; ++i) values.push_back(std::string(random() % 300, 'a') + (random() % 2 ? "b" : ""));
    values.push_back(std::string(300, 'a') + std::string(40, '\0'));
    values.push_back(std::string(300, 'a') + std::string(41, '\0'));
    values.push_back("");
    values.push_back({});
    expect_sorted({{utf8_type(), values, descending, true}}, engine, random);
  }
}

TEST(SortKeys, FinishOnManyEqualLongTexts) {
  std::mt19937_64 random(5);
  Engine engine = make_engine();
  const Values values(34000, std::string(100, 'x'));
  expect_sorted({{utf8_type(), values}, {unsigned_type(1), draw_values(unsigned_type(1), 34000, {}, random)}}, engine, random);
  Values almost(300, std::string(100000, 'x'));
  almost[7]->back() = 'a';
  almost[100]->pop_back();
  expect_sorted({{utf8_type(), almost}}, engine, random);
}

TEST(SortKeys, KeepFewBitsAndNarrowKeys) {
  std::mt19937_64 random(6);
  Engine engine = make_engine();
  const Job job;
  Values values;
  for (int64_t i = 0; i < 100; ++i) values.push_back(value_of(int64_t{-5'000'000'000} + i % 50));
  const TestColumn test("c", signed_type(8), values, {30, 70}, random);
  const SortColumn by[] = {{&test.column}, {&test.column, true}};
  const auto one = encode_sort_keys(std::span(by, 1), nullptr, false, engine, job);
  EXPECT_EQ(one->tuples().layout.key_bytes, 4);
  EXPECT_EQ(one->tuples().varying_bits, 63u);
  EXPECT_TRUE(one->complete());
  const auto two = encode_sort_keys(by, nullptr, false, engine, job);
  EXPECT_EQ(two->tuples().layout.key_bytes, 4);
  EXPECT_EQ(two->tuples().varying_bits, 4095u);
}

TEST(SortKeys, DecideWithWordZeroWhereTextsAreShort) {
  std::mt19937_64 random(7);
  Engine engine = make_engine();
  EXPECT_TRUE(expect_sorted({{utf8_type(), draw_values(utf8_type(), 500, {.prefix = "city/", .longest = 5}, random)},
                             {boolean_type(), draw_values(boolean_type(), 500, {.nulls = 0.1}, random)}},
                            engine, random));
  EXPECT_FALSE(expect_sorted({{utf8_type(), draw_values(utf8_type(), 500, {.longest = 9}, random)}}, engine, random));
}

TEST(SortKeys, AliasAnUnsignedColumnThatIsItsOwnKeys) {
  std::mt19937_64 random(8);
  Engine engine = make_engine();
  const Job job;
  for (const ColumnType& type : {unsigned_type(4), unsigned_type(8)}) {
    Values values = draw_values(type, 1000, {}, random);
    values[0] = std::string(type.width, '\xff');
    std::vector<uint64_t> whole{1000};
    TestColumn test("c", type, values, whole, random);
    test.column.chunks[0].validity = nullptr;
    const SortColumn by{&test.column};
    const auto keys = encode_sort_keys({&by, 1}, nullptr, false, engine, job);
    EXPECT_EQ(keys->tuples().view.keys, test.column.chunks[0].values);
    EXPECT_TRUE(keys->complete());
    EXPECT_TRUE(keys->are_values());
    expect_sorted({{type, values}}, engine, random, true);
  }
}

TEST(SortKeys, FlipAColumnOfIntegersThatIsItsOwnKeys) {
  std::mt19937_64 random(11);
  Engine engine = make_engine();
  const Job job;
  for (const uint32_t width : {4u, 8u}) {
    for (const bool is_signed : {false, true}) {
      for (const bool descending : {false, true}) {
        const ColumnType type = is_signed ? signed_type(width) : unsigned_type(width);
        const Values values = draw_values(type, 1000, {}, random);
        const TestColumn test("c", type, values, std::vector<uint64_t>{1000}, random);
        const TestColumn payload("p", opaque_type(4), draw_values(opaque_type(4), 1000, {}, random), {1000}, random);
        const SortColumn by{&test.column, descending};
        const auto keys = encode_sort_keys({&by, 1}, &payload.column, true, engine, job);
        const EncodedTuples& tuples = keys->tuples();
        EXPECT_TRUE(keys->are_values() && keys->complete());
        EXPECT_EQ(tuples.layout, (TupleLayout{static_cast<uint8_t>(width), 4}));
        EXPECT_EQ(tuples.view.keys, test.column.chunks[0].values);
        EXPECT_EQ(tuples.view.values, payload.column.chunks[0].values);
        const By order{type, values, descending};
        for (uint64_t i = 1; i < 1000; ++i) {
          const auto key = [&](uint64_t row) {
            uint64_t bits = 0;
            std::memcpy(&bits, values[row]->data(), width);
            return bits ^ tuples.flip;
          };
          ASSERT_EQ(key(i - 1) <=> key(i), compare_rows({order}, i - 1, i) <=> 0) << i;
        }
      }
    }
  }
}

TEST(SortKeys, FlipNoOtherColumn) {
  std::mt19937_64 random(12);
  Engine engine = make_engine();
  const Job job;
  const auto flips = [&](const ColumnType& type, double nulls, const std::vector<uint64_t>& chunks, size_t columns = 1) {
    const TestColumn test("c", type, draw_values(type, 1000, {.nulls = nulls}, random), chunks, random);
    const std::vector<SortColumn> by(columns, {&test.column, true});
    return encode_sort_keys(by, nullptr, true, engine, job)->are_values();
  };
  EXPECT_TRUE(flips(signed_type(8), 0, {1000}));
  EXPECT_TRUE(flips(signed_type(8), 0, {0, 1000, 0}));
  EXPECT_FALSE(flips(signed_type(8), 0.1, {1000}));
  EXPECT_FALSE(flips(signed_type(8), 0, {1, 999}));
  EXPECT_FALSE(flips(signed_type(8), 0, {1000}, 2));
  EXPECT_FALSE(flips(signed_type(2), 0, {1000}));
  EXPECT_FALSE(flips(floating_type(8), 0, {1000}));
  EXPECT_FALSE(flips(utf8_type(), 0, {1000}));
}

TEST(SortKeys, CarryAPayloadOnlyWhereWordZeroDecides) {
  std::mt19937_64 random(9);
  Engine engine = make_engine();
  const Job job;
  const Values key_values = draw_values(signed_type(8), 500, {}, random);
  const TestColumn key("k", signed_type(8), key_values, {100, 400}, random);
  const TestColumn text("t", utf8_type(), draw_values(utf8_type(), 500, {}, random), {500}, random);
  const SortColumn by_key{&key.column}, by_text{&text.column};
  for (const uint32_t width : {4u, 8u}) {
    const Values values = draw_values(opaque_type(width), 500, {}, random);
    for (const std::vector<uint64_t>& lengths : {std::vector<uint64_t>{500}, std::vector<uint64_t>{1, 0, 499}}) {
      const TestColumn payload("p", opaque_type(width), values, lengths, random);
      const auto keys = encode_sort_keys({&by_key, 1}, &payload.column, false, engine, job);
      const TupleView view = keys->tuples().view;
      ASSERT_NE(view.values, nullptr);
      EXPECT_EQ(keys->tuples().layout.value_bytes, width);
      EXPECT_EQ(view.values == payload.column.chunks[0].values, lengths.size() == 1);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(std::string(static_cast<const char*>(view.values) + i * width, width), *values[i]);
      }
      EXPECT_EQ(encode_sort_keys({&by_text, 1}, &payload.column, false, engine, job)->tuples().view.values, nullptr);
    }
    Values with_null = values;
    with_null[3] = {};
    const TestColumn nullable("p", opaque_type(width), with_null, {500}, random);
    EXPECT_EQ(encode_sort_keys({&by_key, 1}, &nullable.column, false, engine, job)->tuples().view.values, nullptr);
  }
}

TEST(SortKeys, DecodeRefusesOnlyWhatTheKeysDoNotHold) {
  std::mt19937_64 random(10);
  Engine engine = make_engine();
  const Job job;
  const auto decodes = [&](const std::vector<By>& by, size_t which) {
    std::vector<TestColumn> columns;
    columns.reserve(by.size());
    std::vector<SortColumn> sort_columns;
    for (const By& column : by) {
      columns.emplace_back("c", column.type, column.values, random);
      sort_columns.push_back({&columns.back().column, column.descending, column.nulls_last});
    }
    const auto keys = encode_sort_keys(sort_columns, nullptr, false, engine, job);
    return keys->decode(which, Sorted(keys->tuples()).key_bytes.get(), keys->tuples().view.size, engine, job).has_value();
  };
  const auto floats = [](std::initializer_list<double> numbers) {
    Values values;
    for (const double number : numbers) values.push_back(value_of(number));
    return By{floating_type(8), values};
  };
  EXPECT_TRUE(decodes({floats({1.5, -2, 0.0, std::numeric_limits<double>::quiet_NaN()})}, 0));
  EXPECT_FALSE(decodes({floats({1.5, -0.0})}, 0));
  EXPECT_FALSE(decodes({floats({1.5, -std::numeric_limits<double>::quiet_NaN()})}, 0));
  const By wide{signed_type(8), {value_of(INT64_MIN), value_of(INT64_MAX), value_of(int64_t{0})}};
  const By narrow{signed_type(2), {value_of(int16_t{1}), value_of(int16_t{2}), Value()}};
  EXPECT_TRUE(decodes({wide}, 0));
  EXPECT_TRUE(decodes({narrow, narrow}, 1));
  EXPECT_FALSE(decodes({narrow, wide}, 1));
  EXPECT_TRUE(decodes({wide, narrow}, 0));
  EXPECT_FALSE(decodes({wide, narrow}, 1));
}

TEST(SortKeys, RefuseColumnsWithoutAnOrder) {
  std::mt19937_64 random(11);
  Engine engine = make_engine();
  const Job job;
  for (const ColumnType& type : {opaque_type(8), opaque_type(16), floating_type(1), signed_type(3), unsigned_type(16)}) {
    const TestColumn test("odd", type, draw_values(opaque_type(type.width), 3, {}, random), {3}, random);
    const SortColumn by{&test.column};
    try {
      encode_sort_keys({&by, 1}, nullptr, false, engine, job);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::key_type);
      EXPECT_NE(std::string(error.what()).find("'odd'"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace warpjoin
