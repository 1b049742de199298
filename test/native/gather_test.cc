#include "columns/gather.h"

#include <gtest/gtest.h>

#include "columns/chunk_ends.h"
#include "core/error.h"
#include "sizes.h"
#include "test_columns.h"

namespace warpjoin {
namespace {

using namespace test;

constexpr uint64_t kMissing = ~uint64_t{0};

/// Row numbers in exactly as many bytes as they need.
struct Rows {
  std::vector<uint64_t> numbers;
  std::unique_ptr<uint8_t[]> bytes;
  RowList list;

  Rows(std::vector<uint64_t> rows, uint8_t row_bytes, bool may_be_missing) : numbers(std::move(rows)) {
    bytes = std::make_unique<uint8_t[]>(numbers.size() * row_bytes);
    for (size_t i = 0; i < numbers.size(); ++i) std::memcpy(bytes.get() + i * row_bytes, &numbers[i], row_bytes);
    list = {bytes.get(), row_bytes, may_be_missing, numbers.size()};
  }
};

Rows draw_rows(uint64_t of, uint64_t size, bool may_be_missing, std::mt19937_64& random) {
  std::vector<uint64_t> rows;
  const bool ascending = random() % 3 == 0;
  for (uint64_t i = 0; i < size; ++i) {
    const bool missing = of == 0 || (may_be_missing && random() % 3 == 0);
    rows.push_back(missing ? kMissing : ascending ? i * of / size : random() % of);
  }
  return Rows(rows, random() % 2 ? 4 : 8, may_be_missing);
}

std::vector<ColumnType> all_types() {
  auto types = key_types();
  for (const uint32_t width : {0u, 3u, 12u, 16u, 32u, 40u}) types.push_back(opaque_type(width));
  return types;
}

TEST(Gather, EqualsANaiveGather) {
  std::mt19937_64 random(1);
  Engine engine = make_engine();
  const Job job;
  for (const ColumnType& type : all_types()) {
    for (int round = 0; round < 24; ++round) {
      const uint64_t rows = std::vector<uint64_t>{1, 100, 3000}[random() % 3];
      const Draw draw{.nulls = round % 3 == 0 ? 0.3 : 0, .longest = random() % 2 ? 20u : 60u};
      const Values values = draw_values(type, rows, draw, random);
      const TestColumn test("c", type, values, random);
      const uint64_t size = std::vector<uint64_t>{0, 1, 64, 255, 257, 1000}[random() % 6];
      const Rows picked = draw_rows(rows, size, round % 2, random);
      const PoisonedMemory poisoned(engine, picked.list.size);
      const OwnedColumn result = gather(test.column, picked.list, engine, job);
      Values expected;
      for (const uint64_t row : picked.numbers) expected.push_back(row == kMissing ? Value() : values[row]);
      ASSERT_EQ(values_of(result, type), expected) << type_name(type) << " " << round;
      ASSERT_NE(result.values.data(), nullptr);
    }
  }
}

TEST(Gather, EqualsANaiveGatherOverSeveralBlocks) {
  std::mt19937_64 random(2);
  Engine engine = make_engine(4);
  const Job job;
  for (const ColumnType& type :
       {boolean_type(), signed_type(4), opaque_type(16), opaque_type(5), opaque_type(0), utf8_type(), large_utf8_type()}) {
    for (const bool missing : {false, true}) {
      const Values values = draw_values(type, 5000, {.nulls = missing ? 0.1 : 0.0}, random);
      const TestColumn test("c", type, values, random);
      const Rows picked = draw_rows(5000, 140001, missing, random);
      const PoisonedMemory poisoned(engine, picked.list.size);
      Values expected;
      for (const uint64_t row : picked.numbers) expected.push_back(row == kMissing ? Value() : values[row]);
      ASSERT_EQ(values_of(gather(test.column, picked.list, engine, job), type), expected) << type_name(type);
    }
  }
}

TEST(Gather, EqualsANaiveGatherOfRowsInGroups) {
  std::mt19937_64 random(3);
  Engine engine = make_engine(4);
  const Job job;
  for (const ColumnType& type :
       {boolean_type(), signed_type(1), signed_type(2), signed_type(4), signed_type(8), opaque_type(16), opaque_type(5)}) {
    for (const uint8_t row_bytes : {4, 8}) {
      const Values values = draw_values(type, 150001, {.nulls = row_bytes == 8 && type.width == 2 ? 0.1 : 0.0}, random);
      const TestColumn test("c", type, values, random);
      // Some rows are in no group, and the groups have some blocks' rows or none at all.
      std::vector<std::vector<uint64_t>> groups(1 + random() % 100);
      for (uint64_t row = 0; row < values.size(); ++row) {
        const uint64_t group = random() % (groups.size() + 1);
        if (group < groups.size() && row < 2000 * group) groups[group].push_back(row);
      }
      std::vector<uint64_t> numbers, ends;
      Values expected;
      for (const std::vector<uint64_t>& group : groups) {
        for (const uint64_t row : group) {
          numbers.push_back(row);
          expected.push_back(values[row]);
        }
        ends.push_back(numbers.size());
      }
      Rows picked(numbers, row_bytes, false);
      picked.list.group_ends = ends;
      const PoisonedMemory poisoned(engine, picked.list.size);
      ASSERT_EQ(values_of(gather(test.column, picked.list, engine, job), type), expected) << type_name(type);
    }
  }
}

TEST(Gather, GivesNullsForRowsMissingFromAnEmptyColumn) {
  std::mt19937_64 random(3);
  Engine engine = make_engine();
  const Job job;
  for (const ColumnType& type : all_types()) {
    const TestColumn test("c", type, {}, random);
    const Rows missing(std::vector<uint64_t>(100, kMissing), 4, true);
    EXPECT_EQ(values_of(gather(test.column, missing.list, engine, job), type), Values(100)) << type_name(type);
  }
}

TEST(Gather, TakesTheRowNumberOfAllOnesAsARowUnlessRowsMayBeMissing) {
  std::mt19937_64 random(4);
  Engine engine = make_engine();
  const Job job;
  const Values values(10, value_of<int32_t>(7));
  const TestColumn test("c", signed_type(4), values, {10}, random);
  const Rows rows({1, 2, 3}, 4, true);
  const OwnedColumn result = gather(test.column, rows.list, engine, job);
  EXPECT_EQ(result.null_count, 0u);
  EXPECT_FALSE(result.validity);
}

TEST(GatherCoalesced, TakesTheSecondWhereTheFirstIsMissing) {
  std::mt19937_64 random(5);
  Engine engine = make_engine();
  const Job job;
  for (const ColumnType& type : all_types()) {
    for (int round = 0; round < 12; ++round) {
      const Draw draw{.nulls = round % 3 == 0 ? 0.3 : 0};
      const Values a = draw_values(type, 500, draw, random), b = draw_values(type, round % 4 ? 300 : 0, draw, random);
      const TestColumn first("a", type, a, random), second("b", type, b, random);
      const Rows a_rows = draw_rows(a.size(), 1000, round % 5 != 0, random);
      const Rows b_rows = draw_rows(b.size(), 1000, b.empty() || round % 2, random);
      const PoisonedMemory poisoned(engine, 1000);
      const OwnedColumn result = gather_coalesced(first.column, a_rows.list, second.column, b_rows.list, engine, job);
      Values expected;
      for (size_t i = 0; i < 1000; ++i) {
        const uint64_t x = a_rows.numbers[i], y = b_rows.numbers[i];
        expected.push_back(x != kMissing ? a[x] : y != kMissing ? b[y] : Value());
      }
      ASSERT_EQ(values_of(result, type), expected) << type_name(type);
    }
  }
}

TEST(GatherCoalesced, RefusesColumnsOfDifferentTypes) {
  std::mt19937_64 random(6);
  Engine engine = make_engine();
  const Job job;
  const TestColumn a("a", signed_type(4), Values(3, value_of(1)), {3}, random), b("b", utf8_type(), Values(3, "x"), {3}, random);
  const Rows rows({0, 1, 2}, 4, true);
  EXPECT_THROW(gather_coalesced(a.column, rows.list, b.column, rows.list, engine, job), Error);
}

/// Where texts of these sizes are cut.
std::vector<ChunkEnd> expected_ends(const std::vector<uint64_t>& sizes, uint64_t offset_bytes, uint64_t max_bytes,
                                    const std::vector<uint64_t>& group_ends = {}) {
  std::vector<ChunkEnd> ends;
  ChunkEnd begin, at;
  for (const uint64_t size : sizes) {
    const bool fits = at.byte + size - begin.byte <= max_bytes && (at.row + 2 - begin.row) * offset_bytes <= max_bytes;
    const bool ends_group = std::find(group_ends.begin(), group_ends.end(), at.row) != group_ends.end();
    if (at.row > begin.row && (!fits || ends_group)) ends.push_back(begin = at);
    at = {at.row + 1, at.byte + size};
  }
  ends.push_back(at);
  return ends;
}

TEST(Gather, CutsTextWhereABufferWouldBeLargerThanTheJobAllows) {
  std::mt19937_64 random(7);
  Engine engine = make_engine(4);
  for (const ColumnType& type : {utf8_type(), large_utf8_type()}) {
    for (int round = 0; round < static_cast<int>(many(60)); ++round) {
      const Draw draw{.nulls = round % 3 == 0 ? 0.3 : 0, .longest = round % 4 ? 40u : 0u};
      const Values values = draw_values(type, 300, draw, random);
      const TestColumn test("c", type, values, random);
      const uint64_t size = std::vector<uint64_t>{0, 1, 300, 70000, 140001}[random() % 5];
      const uint64_t max_bytes = std::vector<uint64_t>{0, 30, 1000, 60000, 1000000, UINT64_MAX}[random() % 6];
      const Job job(max_bytes);
      Rows picked = draw_rows(300, size, round % 2, random);
      std::vector<uint64_t> group_ends;
      for (uint64_t groups = random() % 3 * 20, row = 0; groups > 0; --groups) {
        row = groups == 1 ? size : std::min(size, row + random() % (size / 10 + 2));
        group_ends.push_back(row);
      }
      picked.list.group_ends = group_ends;
      const PoisonedMemory poisoned(engine, size);
      Values expected;
      std::vector<uint64_t> sizes;
      for (const uint64_t row : picked.numbers) {
        expected.push_back(row == kMissing ? Value() : values[row]);
        sizes.push_back(expected.back() ? expected.back()->size() : 0);
      }
      const OwnedColumn result = gather(test.column, picked.list, engine, job);
      ASSERT_EQ(values_of(result, type), expected) << type_name(type) << " " << max_bytes;
      ASSERT_EQ(result.chunk_ends, expected_ends(sizes, type.kind == ColumnKind::utf8 ? 4 : 8, max_bytes, group_ends));
    }
  }
}

TEST(Gather, CutsCoalescedText) {
  std::mt19937_64 random(9);
  Engine engine = make_engine(2);
  const Job job(500);
  const Values a = draw_values(utf8_type(), 300, {}, random), b = draw_values(utf8_type(), 200, {.nulls = 0.2}, random);
  const TestColumn first("a", utf8_type(), a, random), second("b", utf8_type(), b, random);
  const Rows a_rows = draw_rows(300, 1000, true, random), b_rows = draw_rows(200, 1000, true, random);
  const OwnedColumn result = gather_coalesced(first.column, a_rows.list, second.column, b_rows.list, engine, job);
  Values expected;
  for (size_t i = 0; i < 1000; ++i) {
    const uint64_t x = a_rows.numbers[i], y = b_rows.numbers[i];
    expected.push_back(x != kMissing ? a[x] : y != kMissing ? b[y] : Value());
  }
  EXPECT_EQ(values_of(result, utf8_type()), expected);
  EXPECT_GT(result.chunk_ends.size(), 5u);
}

TEST(ChunkEnds, OfFixedWidthArePowersOfTwoOfRowsThatFit) {
  using columns::fixed_chunk_ends;
  EXPECT_EQ(fixed_chunk_ends(signed_type(8), 0, 100), (std::vector<ChunkEnd>{{0, 0}}));
  EXPECT_EQ(fixed_chunk_ends(signed_type(8), 8, 100), (std::vector<ChunkEnd>{{8, 64}}));
  EXPECT_EQ(fixed_chunk_ends(signed_type(8), 20, 100), (std::vector<ChunkEnd>{{8, 64}, {16, 128}, {20, 160}}));
  EXPECT_EQ(fixed_chunk_ends(signed_type(8), 16, 64), (std::vector<ChunkEnd>{{8, 64}, {16, 128}}));
  EXPECT_EQ(fixed_chunk_ends(opaque_type(5), 9, 24), (std::vector<ChunkEnd>{{4, 20}, {8, 40}, {9, 45}}));
  EXPECT_EQ(fixed_chunk_ends(opaque_type(200), 2, 100), (std::vector<ChunkEnd>{{1, 200}, {2, 400}}));
  EXPECT_EQ(fixed_chunk_ends(boolean_type(), 20, 1), (std::vector<ChunkEnd>{{8, 1}, {16, 2}, {20, 3}}));
  EXPECT_EQ(fixed_chunk_ends(boolean_type(), 20, 0), (std::vector<ChunkEnd>{{8, 1}, {16, 2}, {20, 3}}));
  const uint64_t rows = (uint64_t{1} << 32) - 1;
  EXPECT_EQ(fixed_chunk_ends(boolean_type(), rows, kMaxBufferBytes).size(), 1u);
  EXPECT_EQ(fixed_chunk_ends(signed_type(8), rows, UINT64_MAX), (std::vector<ChunkEnd>{{rows, rows * 8}}));
  const std::vector<ChunkEnd> ends = fixed_chunk_ends(signed_type(8), rows, kMaxBufferBytes);
  ASSERT_EQ(ends.size(), 32u);
  EXPECT_EQ(ends[30], (ChunkEnd{uint64_t{31} << 27, uint64_t{31} << 30}));
  EXPECT_EQ(ends[31], (ChunkEnd{rows, rows * 8}));
}

TEST(Gather, StopsWhenItsJobIsCancelled) {
  std::mt19937_64 random(8);
  Engine engine = make_engine();
  Job job;
  job.cancel();
  const TestColumn test("c", signed_type(4), Values(3, value_of(1)), {3}, random);
  const Rows rows({0, 1, 2}, 4, false);
  EXPECT_THROW(gather(test.column, rows.list, engine, job), Error);
}

}  // namespace
}  // namespace warpjoin
