#include "columns/row_search.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "test_columns.h"

namespace warpjoin {
namespace {

using namespace test;

struct Table {
  std::vector<std::unique_ptr<TestColumn>> memory;
  std::vector<SortColumn> by;
  std::vector<const Column*> columns;

  Table(const std::vector<By>& from, std::mt19937_64& random) {
    for (const By& column : from) {
      memory.push_back(std::make_unique<TestColumn>("c" + std::to_string(by.size()), column.type, column.values, random));
      columns.push_back(&memory.back()->column);
      by.push_back({columns.back(), column.descending, column.nulls_last});
    }
  }
};

std::vector<By> draw_columns(uint64_t rows, size_t count, std::mt19937_64& random) {
  const std::vector<ColumnType> types = key_types();
  std::vector<By> by;
  for (size_t i = 0; i < count; ++i) {
    const ColumnType type = types[random() % types.size()];
    const Draw draw{.nulls = static_cast<double>(random() % 3) / 5,
                    .distinct = std::vector<uint64_t>{0, 1, 4, 1000}[random() % 4],
                    .prefix = std::string(random() % 2 ? random() % 20 : 0, 'p')};
    by.push_back({type, draw_values(type, rows, draw, random), random() % 2 == 0, random() % 2 == 0});
  }
  return by;
}

std::vector<By> rows_of(const std::vector<By>& by, const std::vector<uint64_t>& rows) {
  std::vector<By> result = by;
  for (size_t i = 0; i < by.size(); ++i) {
    result[i].values.clear();
    for (const uint64_t row : rows) result[i].values.push_back(by[i].values[row]);
  }
  return result;
}

TEST(RowSearch, TablesInOrderAreTold) {
  Engine engine = make_engine(3);
  int told = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint64_t rows = std::vector<uint64_t>{0, 1, 2, 64, 5000}[random() % 5];
    std::vector<By> by = draw_columns(rows, 1 + random() % 3, random);
    std::vector<uint64_t> order = sorted_rows(by);
    const bool swapped = rows > 1 && random() % 2;
    if (swapped) {  // somewhere, blocks' ends among them
      const uint64_t at = random() % 2 && rows > 4096 ? 4095 : random() % (rows - 1);
      std::swap(order[at], order[at + 1]);
    }
    by = rows_of(by, order);
    bool expected = true;
    for (uint64_t row = 1; row < rows; ++row) expected = expected && compare_rows(by, row - 1, row) <= 0;
    const Table table(by, random);
    EXPECT_EQ(rows_are_sorted(table.by, engine, Job()), expected);
    told += !expected;
  }
  EXPECT_GT(told, 50);
}

TEST(RowSearch, OrderIsLookedAtAcrossBlocks) {
  Engine engine = make_engine(3);
  std::mt19937_64 random(1);
  std::vector<uint64_t> numbers(300'000);
  std::iota(numbers.begin(), numbers.end(), uint64_t{0});
  for (const uint64_t at : {uint64_t{0}, uint64_t{65535}, uint64_t{65536}, uint64_t{131'072 + 4095}, uint64_t{299'998}}) {
    std::vector<uint64_t> other = numbers;
    std::swap(other[at], other[at + 1]);
    Values values;
    for (const uint64_t number : other) values.push_back(value_of(number));
    const Table table({{unsigned_type(8), values}}, random);
    EXPECT_FALSE(rows_are_sorted(table.by, engine, Job())) << at;
  }
}

TEST(RowSearch, PositionsAreThoseOfALinearSearch) {
  Engine engine = make_engine(3);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const uint64_t rows = std::vector<uint64_t>{0, 1, 63, 64, 65, 700}[random() % 6], wanted = random() % 80;
    // One table of both, for values are then often equal.
    std::vector<By> both = draw_columns(rows + wanted, 1 + random() % 3, random);
    std::vector<uint64_t> numbers(rows + wanted);
    std::iota(numbers.begin(), numbers.end(), uint64_t{0});
    std::shuffle(numbers.begin(), numbers.end(), random);
    std::vector<By> sorted = rows_of(both, {numbers.begin(), numbers.begin() + static_cast<int64_t>(rows)});
    sorted = rows_of(sorted, sorted_rows(sorted));
    const std::vector<By> values = rows_of(both, {numbers.begin() + static_cast<int64_t>(rows), numbers.end()});
    for (size_t i = 0; i < both.size(); ++i) {
      both[i].values = sorted[i].values;
      both[i].values.insert(both[i].values.end(), values[i].values.begin(), values[i].values.end());
    }
    const Table table(sorted, random);
    std::vector<By> other_types = values;  // texts with offsets of another width
    for (By& column : other_types) {
      if (column.type.kind == ColumnKind::utf8 && random() % 2) column.type = large_utf8_type();
    }
    const Table wanted_rows(other_types, random);
    const PoisonedMemory poisoned(engine, 1);
    for (const bool behind_equal : {false, true}) {
      const OwnedColumn found = search_sorted(table.by, wanted_rows.columns, behind_equal, engine, Job());
      ASSERT_EQ(found.length, wanted);
      for (uint64_t i = 0; i < wanted; ++i) {
        uint64_t expected = 0;
        while (expected < rows && compare_rows(both, expected, rows + i) < (behind_equal ? 1 : 0)) ++expected;
        ASSERT_EQ(found.values.as<uint32_t>()[i], expected) << i;
      }
    }
  }
}

TEST(RowSearch, DictionariesAndDecimalsAreSearchedByValue) {
  Engine engine = make_engine(3);
  std::mt19937_64 random(2);
  const auto decimals = [](std::initializer_list<int64_t> numbers) {
    Values values;
    for (const int64_t number : numbers) values.push_back(value_of(static_cast<__int128>(number) << 65));
    return values;
  };
  const TestColumn table("t", signed_type(16), decimals({-5, -1, 0, 0, 7}), random);
  const TestColumn values("t", signed_type(16), decimals({-9, 0, 8, 7, -1}), random);
  const SortColumn by{&table.column};
  const Column* const column = &values.column;
  const OwnedColumn found = search_sorted({&by, 1}, {&column, 1}, false, engine, Job());
  EXPECT_EQ(std::vector<uint32_t>(found.values.as<uint32_t>(), found.values.as<uint32_t>() + 5),
            (std::vector<uint32_t>{0, 2, 5, 4, 1}));
  // Indices of a dictionary, and values.
  TestColumn indices("d", unsigned_type(1), {value_of(uint8_t{1}), value_of(uint8_t{0}), Value()}, random);
  const TestColumn entries("entries", utf8_type(), {"b", "a"}, random);
  indices.column.dictionary = std::make_shared<const Column>(entries.column);
  for (ColumnChunk& chunk : indices.column.chunks) chunk.dictionary_size = 2;
  const TestColumn texts("d", large_utf8_type(), {"a", "c", Value(), "", "b"}, random);
  const SortColumn by_index{&indices.column};
  const Column* const text = &texts.column;
  const OwnedColumn places = search_sorted({&by_index, 1}, {&text, 1}, true, engine, Job());
  EXPECT_EQ(std::vector<uint32_t>(places.values.as<uint32_t>(), places.values.as<uint32_t>() + 5),
            (std::vector<uint32_t>{1, 2, 3, 0, 2}));
}

TEST(RowSearch, AMergeIsCutAsAStableSortHasIt) {
  Engine engine = make_engine(3);
  int ties = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<uint64_t> ends;
    for (uint64_t run = 0, runs = 1 + random() % 9; run < runs; ++run) {
      ends.push_back((run ? ends.back() : 0) + std::vector<uint64_t>{0, 1, 2, 60}[random() % 4]);
    }
    if (ends.back() == 0) ends.back() = 1;
    std::vector<By> by = draw_columns(ends.back(), 1 + random() % 3, random);
    std::vector<uint64_t> order;  // each run's rows by themselves
    const std::vector<uint64_t> sorted = sorted_rows(by);
    for (uint64_t begin = 0; const uint64_t end : ends) {
      std::ranges::copy_if(sorted, std::back_inserter(order), [&](uint64_t row) { return row >= begin && row < end; });
      begin = end;
    }
    by = rows_of(by, order);
    std::vector<uint64_t> candidates(1 + random() % 4);
    for (uint64_t& row : candidates) row = random() % ends.back();
    // Stable: rows are numbered run by run.
    std::vector<uint64_t> place(ends.back());
    for (uint64_t at = 0; const uint64_t row : sorted_rows(by)) place[row] = at++;
    const uint64_t least = std::ranges::min(candidates, {}, [&](uint64_t row) { return place[row]; });
    const Table table(by, random);
    const MergeCut cut = cut_merge(table.by, ends, candidates, engine, Job());
    ASSERT_EQ(cut.rows.size(), ends.size());
    for (uint64_t begin = 0, run = 0; run < ends.size(); begin = ends[run++]) {
      uint64_t expected = 0;
      for (uint64_t row = begin; row < ends[run]; ++row) {
        expected += place[row] < place[least];
        ties += row != least && compare_rows(by, row, least) == 0;
      }
      EXPECT_EQ(cut.rows[run], expected) << run;
      EXPECT_EQ(cut.run == run, least >= begin && least < ends[run]);
    }
  }
  EXPECT_GT(ties, 1000);
}

TEST(RowSearch, AMergeIsCutAtRowsThatAreThere) {
  Engine engine = make_engine(1);
  std::mt19937_64 random(4);
  const TestColumn column("c", unsigned_type(8), {value_of(uint64_t{1}), value_of(uint64_t{2})}, random);
  const SortColumn by{&column.column};
  const auto cut = [&](std::vector<uint64_t> ends, std::vector<uint64_t> rows) {
    return cut_merge({&by, 1}, ends, rows, engine, Job());
  };
  EXPECT_EQ(cut({0, 1, 2}, {1}).rows, (std::vector<uint64_t>{0, 1, 0}));
  EXPECT_THROW(cut({1, 2}, {}), Error);
  EXPECT_THROW(cut({1, 2}, {0, 2}), Error);
  EXPECT_THROW(cut({}, {0}), Error);
  EXPECT_THROW(cut({1}, {0}), Error);
  EXPECT_THROW(cut({3, 2}, {0}), Error);
}

TEST(RowSearch, ATableThatIsSeenNotToBeSortedIsRefused) {
  Engine engine = make_engine(3);
  std::mt19937_64 random(3);
  Values values;
  for (uint64_t row = 0; row < 1000; ++row) values.push_back(value_of(1000 - row));
  const TestColumn table("down", unsigned_type(8), values, random);
  const SortColumn by{&table.column};
  const Column* const column = &table.column;
  try {
    search_sorted({&by, 1}, {&column, 1}, false, engine, Job());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::option);
    EXPECT_STREQ(error.what(), "The table is not sorted by 'down'");
  }
  EXPECT_THROW(search_sorted({}, {}, false, engine, Job()), Error);
}

}  // namespace
}  // namespace warpjoin
