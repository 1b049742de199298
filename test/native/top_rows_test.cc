#include "columns/top_rows.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/tuples.h"
#include "sizes.h"
#include "test_columns.h"

namespace warpjoin {
namespace {

using namespace test;

/// Expects rows [skip, skip + count) of a stable sort, whose rows are `sorted`.
void expect_top(const std::vector<SortColumn>& by, const std::vector<uint64_t>& sorted, uint64_t skip, uint64_t count,
                Engine& engine) {
  SCOPED_TRACE("skip " + std::to_string(skip) + ", count " + std::to_string(count));
  const TopRows top = top_rows(by, skip, count, engine, Job());
  ASSERT_EQ(top.row_bytes, 4);
  const uint64_t begin = std::min<uint64_t>(skip, sorted.size());
  ASSERT_EQ(top.size, std::min<uint64_t>(count, sorted.size() - begin));
  for (uint64_t i = 0; i < top.size; ++i) ASSERT_EQ(top.rows.as<uint32_t>()[i], sorted[begin + i]) << "place " << i;
}

/// A sort's columns with the memory behind them.
struct Columns {
  std::vector<std::unique_ptr<TestColumn>> memory;
  std::vector<SortColumn> by;

  Columns(const std::vector<By>& columns, std::mt19937_64& random) {
    for (const By& column : columns) {
      memory.push_back(std::make_unique<TestColumn>("c", column.type, column.values, random));
      by.push_back({&memory.back()->column, column.descending, column.nulls_last});
    }
  }
};

TEST(TopRows, AreTheFirstOfAStableSort) {
  Engine engine = make_engine(3);
  const std::vector<ColumnType> types = key_types();
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint64_t rows = std::vector<uint64_t>{0, 1, 2, 50, 300, 5000}[random() % 6];
    std::vector<By> by;
    for (uint64_t i = 0; i < 1 + random() % 4; ++i) {
      const ColumnType type = types[random() % types.size()];
      const Draw draw{.nulls = static_cast<double>(random() % 3) / 5,
                      .distinct = std::vector<uint64_t>{0, 1, 3, 1000}[random() % 4],
                      .prefix = std::string(random() % 2 ? random() % 30 : 0, 'p'),
                      .longest = random() % 30};
      by.push_back({type, draw_values(type, rows, draw, random), random() % 2 == 0, random() % 2 == 0});
    }
    const Columns columns(by, random);
    const std::vector<uint64_t> sorted = sorted_rows(by);
    const PoisonedMemory poisoned(engine, rows);
    for (const uint64_t count : {uint64_t{0}, uint64_t{1}, random() % (rows + 2), rows, UINT64_MAX}) {
      expect_top(columns.by, sorted, random() % 2 ? 0 : random() % (rows + 2), count, engine);
    }
  }
}

/// Enough rows for the bound to be lowered while they are looked at.
TEST(TopRows, OfManyRowsWithManyTies) {
  Engine engine = make_engine(3);
  constexpr uint64_t kRows = many(400'000);
  const auto repeated = [](const std::string& prefix, uint64_t distinct, bool descend) {
    Values values;
    for (uint64_t row = 0; row < kRows; ++row) {
      const uint64_t number = (descend ? kRows - row : mix_key(row)) % distinct;
      values.push_back(prefix + std::string(1, static_cast<char>(number >> 16)) + std::string(1, static_cast<char>(number >> 8)) +
                       std::string(1, static_cast<char>(number)));
    }
    return values;
  };
  const auto numbers = [](uint64_t distinct, bool descend) {
    Values values;
    for (uint64_t row = 0; row < kRows; ++row) values.push_back(value_of((descend ? kRows - row : mix_key(row)) % distinct));
    return values;
  };
  const ColumnType text = utf8_type(), number = unsigned_type(8);
  const std::string url = "https://example.org/a/long/path/that/all/have/";
  const std::vector<std::vector<By>> cases{
      {{number, numbers(kRows, true)}},                                          // each row before all that were seen
      {{number, numbers(1, false)}},                                             // all alike: the first rows
      {{number, numbers(1, false)}, {number, numbers(1, false)}},                // alike in several words
      {{number, numbers(2, false)}, {number, numbers(3, false), true}},          //
      {{number, numbers(3, true)}, {text, repeated(url, kRows, true), true}},    //
      {{text, repeated(url, kRows, true)}},                                      //
      {{text, repeated(url, 7, false), true}, {number, numbers(kRows, false)}},  //
      {{text, repeated("", 5, false)}, {text, repeated(url, 100'000, false), true}, {number, numbers(9, false)}},
      {{text, repeated(url, 1, false)}, {text, repeated("", 1, false)}},
  };
  std::mt19937_64 random(1);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const Columns columns(cases[i], random);
    const std::vector<uint64_t> sorted = sorted_rows(cases[i]);
    const PoisonedMemory poisoned(engine, 1);
    for (const auto& [skip, count] : std::vector<std::pair<uint64_t, uint64_t>>{{0, 1}, {0, 100}, {90, 10}, {1000, 60'000}}) {
      expect_top(columns.by, sorted, skip, count, engine);
    }
  }
}

TEST(TopRows, AreFoundWhereTheSampleMisleads) {
  Engine engine = make_engine(3);
  std::mt19937_64 random(2);
  constexpr uint64_t kRows = 300'000, kSample = 4096;
  std::vector<uint32_t> values(kRows);
  for (uint64_t row = 0; row < kRows; ++row) values[row] = static_cast<uint32_t>(1000 + mix_key(row) % 100'000);
  // Whatever is looked at before is small: fewer rows than are asked for.
  for (uint64_t i = 0; i < kSample; ++i) values[sampled_row(kRows, kSample, i)] = static_cast<uint32_t>(i % 10);
  Values column;
  for (const uint32_t value : values) column.push_back(value_of(value));
  const std::vector<By> by{{unsigned_type(4), column}};
  const Columns columns(by, random);
  const std::vector<uint64_t> sorted = sorted_rows(by);
  for (const uint64_t count : {4000u, 4096u, 5000u, 20'000u}) expect_top(columns.by, sorted, 0, count, engine);
}

TEST(TopRows, StayWithinTheMemoryThatTheySayTheyNeed) {
  std::mt19937_64 random(3);
  const Values values = draw_values(signed_type(8), 500'000, {}, random);
  const TestColumn column("c", signed_type(8), values, {500'000}, random);
  const std::vector<SortColumn> by{{&column.column}};
  for (const uint64_t count : {1u, 1000u, 40'000u, 200'000u, 500'000u}) {
    Engine engine = make_engine(2);
    engine.memory->reset_peak();
    top_rows(by, 0, count, engine, Job());
    EXPECT_LE(engine.memory->peak_bytes(), top_rows_bytes(500'000, count, engine)) << count;
  }
}

TEST(TopRows, AreThoseOfDictionariesAndDecimalsByValue) {
  Engine engine = make_engine(3);
  std::mt19937_64 random(4);
  Values indices, texts, decimals;
  const Values entries{"b", "a", "c", "a", std::nullopt};
  for (uint64_t row = 0; row < 3000; ++row) {
    const auto index = static_cast<int8_t>(random() % 5);
    indices.push_back(value_of(index));
    texts.push_back(entries[static_cast<size_t>(index)]);
    decimals.push_back(value_of(static_cast<__int128>(static_cast<int64_t>(random() % 100) - 50) << 70));
  }
  TestColumn dictionary("d", signed_type(1), indices, random);
  const TestColumn values("values", utf8_type(), entries, random), decimal("m", signed_type(16), decimals, random);
  dictionary.column.dictionary = std::make_shared<const Column>(values.column);
  for (ColumnChunk& chunk : dictionary.column.chunks) chunk.dictionary_size = 5;
  Values halves;  // in the order of the decimals
  for (const Value& value : decimals) halves.push_back(value_of(static_cast<int64_t>(number_of<__int128>(*value) >> 70)));
  const std::vector<By> by{{utf8_type(), texts, true, false}, {signed_type(8), halves}};
  const std::vector<uint64_t> sorted = sorted_rows(by);
  const std::vector<SortColumn> columns{{&dictionary.column, true, false}, {&decimal.column}};
  for (const uint64_t count : {1u, 700u, 3000u}) expect_top(columns, sorted, 10, count, engine);
}

TEST(TopRows, OfNoColumnsOrColumnsOfSeveralLengthsAreRefused) {
  Engine engine = make_engine();
  std::mt19937_64 random(5);
  EXPECT_THROW(top_rows({}, 0, 1, engine, Job()), Error);
  const TestColumn a("a", signed_type(4), draw_values(signed_type(4), 3, {}, random), random);
  const TestColumn b("b", signed_type(4), draw_values(signed_type(4), 4, {}, random), random);
  const std::vector<SortColumn> by{{&a.column}, {&b.column}};
  EXPECT_THROW(top_rows(by, 0, 1, engine, Job()), Error);
}

}  // namespace
}  // namespace warpjoin
