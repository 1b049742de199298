#include <gtest/gtest.h>

#include "columns/encode.h"
#include "core/error.h"
#include "test_columns.h"

namespace warpjoin {
namespace {

using namespace test;

std::string error_of(Column column) {
  Engine engine = make_engine();
  const Job job;
  try {
    validate_column(column, engine, job);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_table);
    return error.what();
  }
  return "";
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ValidateColumn, AcceptsRandomColumnsOfAllTypes) {
  std::mt19937_64 random(1);
  auto types = key_types();
  for (const uint32_t width : {3u, 16u, 32u}) types.push_back(opaque_type(width));
  for (const ColumnType& type : types) {
    for (const uint64_t rows : {0, 1, 63, 1000}) {
      const TestColumn test("c", type, draw_values(type, rows, {.nulls = 0.2}, random), random);
      EXPECT_EQ(error_of(test.column), "") << type_name(type);
    }
  }
}

TEST(ValidateColumn, RefusesEachBufferThatIsAByteTooShort) {
  std::mt19937_64 random(2);
  for (const ColumnType& type : key_types()) {
    Values values = draw_values(type, 100, {}, random);
    values[3] = {};
    values[99] = Value(type.variable_width() ? std::string("last") : std::string(std::max(1u, type.width), '\1'));
    TestColumn test("the_column", type, values, {40, 0, 60}, random);
    ColumnChunk& chunk = test.column.chunks[2];
    const ColumnChunk whole = chunk;
    --chunk.values_bytes;
    EXPECT_TRUE(mentions(error_of(test.column), "'the_column', chunk 2")) << type_name(type);
    EXPECT_TRUE(mentions(error_of(test.column), std::to_string(chunk.values_bytes) + " bytes")) << error_of(test.column);
    chunk = whole;
    if (type.variable_width()) {
      --chunk.offsets_bytes;
      EXPECT_TRUE(mentions(error_of(test.column), "offsets buffer has " + std::to_string(chunk.offsets_bytes) + " bytes"));
      chunk = whole;
      chunk.offsets = nullptr;
      EXPECT_TRUE(mentions(error_of(test.column), "offsets buffer has 0 bytes"));
      chunk = whole;
    }
    ColumnChunk& nullable = test.column.chunks[0];
    --nullable.validity_bytes;
    EXPECT_TRUE(mentions(error_of(test.column), "chunk 0: its validity buffer"));
    ++nullable.validity_bytes;
    EXPECT_EQ(error_of(test.column), "");
  }
}

TEST(ValidateColumn, RefusesLengthsThatOverflow) {
  std::mt19937_64 random(3);
  for (const ColumnType& type : key_types()) {
    TestColumn test("c", type, draw_values(type, 8, {}, random), {8}, random);
    for (const uint64_t length : {UINT64_MAX, UINT64_MAX / 8 + 1, UINT64_MAX - 6, uint64_t{1} << 61}) {
      test.column.chunks[0].length = test.column.length = length;
      EXPECT_NE(error_of(test.column), "") << type_name(type) << " " << length;
    }
  }
  TestColumn test("c", boolean_type(), draw_values(boolean_type(), 8, {}, random), {8}, random);
  test.column.chunks[0].bit_offset = UINT64_MAX - 3;
  EXPECT_TRUE(mentions(error_of(test.column), "overflow"));
}

TEST(ValidateColumn, RefusesOffsetsThatDescendOrLeaveTheBytes) {
  std::mt19937_64 random(4);
  const uint64_t rows = 200000;
  TestColumn test("t", utf8_type(), Values(rows, std::string("ab")), {0, rows / 2, 0, rows / 2}, random);
  ColumnChunk& chunk = test.column.chunks[3];
  auto* offsets = reinterpret_cast<int32_t*>(test.buffer(chunk.offsets));
  EXPECT_EQ(error_of(test.column), "");
  std::swap(offsets[70000], offsets[70001]);
  EXPECT_TRUE(mentions(error_of(test.column), "'t', chunk 3: its offsets descend at row 70000")) << error_of(test.column);
  std::swap(offsets[70000], offsets[70001]);
  const int32_t last = offsets[rows / 2];
  offsets[rows / 2] = static_cast<int32_t>(chunk.values_bytes) + 1;
  EXPECT_TRUE(mentions(error_of(test.column), "chunk 3: its values buffer has"));
  offsets[rows / 2] = last;
  const int32_t first = offsets[0];
  offsets[0] = -1;
  EXPECT_TRUE(mentions(error_of(test.column), "first offset is -1"));
  offsets[0] = first;
  EXPECT_EQ(error_of(test.column), "");
}

TEST(ValidateColumn, RefusesALengthThatIsNotItsChunksSum) {
  std::mt19937_64 random(5);
  TestColumn test("c", signed_type(8), draw_values(signed_type(8), 10, {}, random), {4, 6}, random);
  test.column.length = 11;
  EXPECT_TRUE(mentions(error_of(test.column), "'c' claims 11 rows, but its chunks have 10"));
}

TEST(ValidateColumn, AcceptsEmptyChunksWithoutBuffers) {
  Column column;
  column.name = "c";
  for (const ColumnType& type : key_types()) {
    column.type = type;
    column.chunks = {ColumnChunk{}, ColumnChunk{}};
    EXPECT_EQ(error_of(column), "");
  }
}

}  // namespace
}  // namespace warpjoin
