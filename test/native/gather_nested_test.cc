#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "columns/dictionary.h"
#include "columns/encode.h"
#include "columns/gather.h"
#include "core/error.h"
#include "nested_data.h"
#include "sizes.h"

namespace warpjoin {
namespace {

using namespace test;

struct Rows {
  std::vector<uint64_t> numbers;
  std::vector<uint8_t> bytes;
  RowList list;

  Rows(std::vector<uint64_t> of, uint8_t row_bytes, bool may_be_missing) : numbers(std::move(of)) {
    bytes.resize(numbers.size() * row_bytes);
    for (size_t i = 0; i < numbers.size(); ++i) std::memcpy(bytes.data() + i * row_bytes, &numbers[i], row_bytes);
    list = {bytes.data(), row_bytes, may_be_missing, numbers.size()};
  }
};

Rows random_rows(uint64_t rows, uint64_t size, bool may_be_missing, std::mt19937_64& random) {
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < size; ++i)
    numbers.push_back((may_be_missing && random() % 5 == 0) || rows == 0 ? ~uint64_t{0} : random() % rows);
  return {std::move(numbers), static_cast<uint8_t>(random() % 2 ? 4 : 8), may_be_missing};
}

void expect_largest(const OwnedChunk& chunk, uint64_t most) {
  EXPECT_LE(chunk.values.size(), std::max<uint64_t>(1, most));
  EXPECT_LE(chunk.offsets.size(), std::max<uint64_t>(1, most));
  EXPECT_LE(chunk.validity.size(), std::max<uint64_t>(1, most));
  for (const HostBuffer& buffer : chunk.buffers) EXPECT_LE(buffer.size(), std::max<uint64_t>(200, most));
  for (const OwnedChunk& child : chunk.children) expect_largest(child, most);
}

/// Null counts are those of the bitmaps.
void expect_nulls(const OwnedChunk& chunk) {
  uint64_t nulls = chunk.type.kind == ColumnKind::null ? chunk.length : 0;
  for (uint64_t i = 0; chunk.validity && i < chunk.length; ++i) nulls += !columns::bit_at(chunk.validity.data(), i);
  EXPECT_EQ(chunk.null_count, nulls);
  for (const OwnedChunk& child : chunk.children) expect_nulls(child);
}

void expect_gathered(NestedColumn& test, const Rows& rows, Engine& engine, const Job& job) {
  validate_column(test.column, engine, job);
  const std::vector<std::string> values = shown(test.column);
  const OwnedColumn made = gather(test.column, rows.list, engine, job);
  EXPECT_EQ(made.length, rows.numbers.size());
  const Column column = borrow(made, test.column);
  const std::vector<std::string> found = shown(column);
  ASSERT_EQ(found.size(), rows.numbers.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const bool missing = rows.numbers[i] >= values.size();
    ASSERT_EQ(found[i], missing ? shown_missing(test.column) : values[rows.numbers[i]]) << "row " << i;
  }
  uint64_t nulls = 0;
  for (const OwnedChunk& chunk : made.nested) {
    expect_nulls(chunk);
    nulls += chunk.null_count;
    if (chunk.length > 1) expect_largest(chunk, job.max_buffer_bytes());
  }
  if (made.type.nested()) {
    EXPECT_EQ(made.null_count, nulls);
    std::set<uint64_t> ends;
    uint64_t row = 0;
    for (const OwnedChunk& chunk : made.nested) ends.insert(row += chunk.length);
    for (const uint64_t end : rows.list.group_ends) EXPECT_TRUE(end == 0 || ends.contains(end)) << "a group ends at row " << end;
  }
  // What is made is as valid as what came.
  Column again = borrow(made, test.column);
  validate_column(again, engine, job);
}

TEST(GatherNested, GivesTheRowsOfRandomTypes) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Engine engine = make_engine(1 + random() % 3);
    const Job job;
    const uint64_t rows = random() % 8 ? random() % 300 : 0;
    NestedColumn test("c", random_nested_type(random), TestColumn::random_lengths(rows, random), random);
    const bool may_be_missing = test.column.length == 0 || random() % 2;
    expect_gathered(test, random_rows(test.column.length, random() % 500, may_be_missing, random), engine, job);
  }
}

TEST(GatherNested, CutsRowsWhereBuffersWouldBeTooLarge) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Engine engine = make_engine(2);
    const Job job(std::vector<uint64_t>{64, 100, 256, 1000}[random() % 4]);
    NestedColumn test("c", random_nested_type(random), TestColumn::random_lengths(200, random), random);
    const bool may_be_missing = test.column.length == 0 || random() % 2;
    expect_gathered(test, random_rows(test.column.length, random() % 400, may_be_missing, random), engine, job);
  }
}

TEST(GatherNested, CutsRowsWhereGroupsEnd) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Engine engine = make_engine(2);
    const Job job(random() % 2 ? 256 : uint64_t{1} << 30);
    NestedColumn test("c", random_nested_type(random), TestColumn::random_lengths(200, random), random);
    Rows rows = random_rows(test.column.length, random() % 400, test.column.length == 0, random);
    std::vector<uint64_t> group_ends;
    for (uint64_t row = 0; row < rows.numbers.size();)
      group_ends.push_back(row += std::min(rows.numbers.size() - row, random() % 90));
    rows.list.group_ends = group_ends;
    expect_gathered(test, rows, engine, job);
  }
}

TEST(GatherNested, GivesManyRowsInSeveralBlocks) {
  std::mt19937_64 random(5);
  Engine engine = make_engine(3);
  const std::vector<NestedType> types{
      nested(ColumnKind::list, {nested(ColumnKind::structure, {flat(opaque_type(4)), flat(utf8_type())})}),
      nested(ColumnKind::fixed_list, {nested(ColumnKind::view, {})}, 2),
      nested(ColumnKind::dense_union, {flat(opaque_type(8)), nested(ColumnKind::list, {flat(boolean_type())})}),
      nested(ColumnKind::view, {}),
  };
  for (const NestedType& type : types) {
    for (const uint64_t most : {uint64_t{1} << 30, uint64_t{200000}}) {
      NestedColumn test("c", type, {many(70000), 3, many(60000)}, random);
      expect_gathered(test, random_rows(many(130000) + 3, many(150000), true, random), engine, Job(most));
    }
  }
}

TEST(GatherNested, SparesNoRowOfATooLongValue) {
  std::mt19937_64 random(6);
  Engine engine = make_engine(2);
  NestedColumn test("c", nested(ColumnKind::list, {nested(ColumnKind::list, {flat(utf8_type())})}), {40}, random);
  const Job job(16);
  expect_gathered(test, random_rows(40, 90, true, random), engine, job);
}

/// Indices of the dictionary of their chunk.
struct Indices {
  std::vector<std::vector<uint8_t>> buffers;
  Column column;
};

TEST(UnifyDictionaries, KeepsValuesAndMakesThemDistinct) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Engine engine({.threads = 2, .host_devices = 1, .memory_limit_bytes = size_t{1} << 30, .hash_bits = seed % 2 ? 64u : 2u});
    const Job job;
    const std::vector<NestedType> types{flat(utf8_type()),
                                        flat(large_utf8_type()),
                                        flat(opaque_type(1)),
                                        nested(ColumnKind::view, {}),
                                        nested(ColumnKind::list, {flat(opaque_type(1))}),
                                        flat(boolean_type())};
    const NestedType& type = types[random() % types.size()];
    const std::vector<uint64_t> sizes{1 + random() % 60, 1 + random() % 60, 1 + random() % 60};
    NestedColumn values("c (dictionary)", type, sizes, random);
    Indices made;
    made.column.name = "c";
    made.column.type = signed_type(1);
    made.column.index_width = 2;
    made.column.is_unified = true;
    made.column.dictionary = std::make_shared<const Column>(values.column);
    made.buffers.reserve(8);
    uint64_t base = 0;
    std::vector<std::string> expected;
    const std::vector<std::string> all = shown(values.column);
    for (const uint64_t size : sizes) {
      const uint64_t rows = random() % 100;
      ColumnChunk chunk;
      chunk.length = rows;
      chunk.dictionary_base = base;
      chunk.dictionary_size = size;
      auto& indices = made.buffers.emplace_back(rows);
      auto& bits = made.buffers.emplace_back((rows + 7) / 8, uint8_t{0xB7});
      for (uint64_t i = 0; i < rows; ++i) {
        const bool valid = columns::bit_at(bits.data(), i);
        indices[i] = static_cast<uint8_t>(valid ? random() % size : random());
        expected.push_back(valid ? all[base + indices[i]] : "null");
      }
      chunk.values = indices.data();
      chunk.values_bytes = rows;
      chunk.validity = bits.data();
      chunk.validity_bytes = bits.size();
      made.column.chunks.push_back(chunk);
      made.column.length += rows;
      base += size;
    }
    validate_column(made.column, engine, job);
    UnifiedDictionaries unified;
    unify_dictionaries(made.column, unified, engine, job);
    validate_column(made.column, engine, job);
    ASSERT_EQ(unified.dictionaries.size(), 1u);
    EXPECT_EQ(made.column.type.width, 2u);
    const std::vector<std::string> distinct = shown(*made.column.dictionary);
    std::vector<std::string> found;
    for (const ColumnChunk& chunk : made.column.chunks) {
      EXPECT_EQ(chunk.dictionary_base, 0u);
      EXPECT_EQ(chunk.dictionary_size, distinct.size());
      for (uint64_t i = 0; i < chunk.length; ++i) {
        const auto index = columns::load<uint16_t>(chunk.values, i);
        found.push_back(columns::bit_at(chunk.validity, i) ? distinct[index] : "null");
      }
    }
    EXPECT_EQ(found, expected);
    const ColumnKind kind = type.type.kind;
    if (kind == ColumnKind::list || kind == ColumnKind::boolean) {
      EXPECT_EQ(distinct, all);
    } else {
      std::vector<std::string> once;
      for (const std::string& value : all) {
        if (std::find(once.begin(), once.end(), value) == once.end()) once.push_back(value);
      }
      EXPECT_EQ(distinct, once);
    }
  }
}

std::string refusal(Column column) {
  Engine engine = make_engine();
  try {
    validate_column(column, engine, Job());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_table);
    return error.what();
  }
  return "";
}

uint8_t* bytes_of(const void* data) { return static_cast<uint8_t*>(const_cast<void*>(data)); }
template <class T>
void put(const void* data, uint64_t index, T value) {
  std::memcpy(bytes_of(data) + index * sizeof(T), &value, sizeof value);
}

TEST(ValidateNested, RefusesOffsetsOutsideTheChild) {
  std::mt19937_64 random(1);
  NestedColumn test("c", nested(ColumnKind::list, {flat(opaque_type(4))}), {20, 30}, random);
  const void* offsets = test.column.chunks[1].offsets;
  const uint64_t there = test.column.children[0].chunks[1].length;
  put<int32_t>(offsets, 30, static_cast<int32_t>(there + 1));
  EXPECT_EQ(refusal(test.column), "Column 'c', chunk 1: its child has " + std::to_string(there) +
                                      " values, but its last offset is " + std::to_string(there + 1));
  put<int32_t>(offsets, 30, static_cast<int32_t>(there));
  EXPECT_EQ(refusal(test.column), "");
  put<int32_t>(offsets, 10, INT32_MAX);
  EXPECT_NE(refusal(test.column).find("Column 'c', chunk 1: its offsets descend at row 10, from 2147483647 to"),
            std::string::npos);
  put<int32_t>(offsets, 0, -1);
  EXPECT_EQ(refusal(test.column), "Column 'c', chunk 1: its first offset is -1");
}

TEST(ValidateNested, RefusesChildrenThatAreTooShort) {
  std::mt19937_64 random(2);
  for (const ColumnKind kind : {ColumnKind::structure, ColumnKind::sparse_union, ColumnKind::fixed_list}) {
    NestedColumn test("c", nested(kind, {flat(opaque_type(4))}, kind == ColumnKind::fixed_list ? 3 : 0), {20}, random);
    const uint64_t needed = kind == ColumnKind::fixed_list ? 60 : 20;
    test.column.children[0].chunks[0].length = needed - 1;
    EXPECT_EQ(refusal(test.column), "Column 'c', chunk 0: its child 'c.0' has " + std::to_string(needed - 1) +
                                        " values, but its 20 rows need " + std::to_string(needed));
    test.column.children[0].chunks[0].length = needed;
    test.column.children[0].chunks[0].values_bytes = 4 * needed - 1;
    EXPECT_NE(refusal(test.column).find("Column 'c.0', chunk 0: its values buffer has"), std::string::npos);
  }
}

TEST(ValidateNested, RefusesValidityThatIsTooShortAtEveryLevel) {
  std::mt19937_64 random(3);
  NestedColumn test("c", nested(ColumnKind::list, {nested(ColumnKind::structure, {flat(utf8_type())})}), {50}, random);
  Column* const levels[] = {&test.column, &test.column.children[0], &test.column.children[0].children[0]};
  std::vector<uint8_t> bits(100, 0xFF);
  for (Column* level : levels) {
    ColumnChunk& chunk = level->chunks[0];
    const ColumnChunk whole = chunk;
    chunk.validity = bits.data();
    chunk.validity_bytes = 1;
    EXPECT_NE(refusal(test.column).find("Column '" + level->name + "', chunk 0: its validity buffer has 1 bytes"),
              std::string::npos);
    chunk = whole;
  }
}

TEST(ValidateNested, RefusesTypeIdsAndOffsetsOfNoChild) {
  std::mt19937_64 random(4);
  for (const ColumnKind kind : {ColumnKind::sparse_union, ColumnKind::dense_union}) {
    NestedColumn test("c", nested(kind, {flat(opaque_type(4)), flat(utf8_type())}), {20, 5}, random);
    const void* ids = test.column.chunks[0].values;
    const uint8_t id = bytes_of(ids)[7];
    for (const int8_t wrong : {int8_t{-1}, int8_t{0}, int8_t{127}}) {
      put<int8_t>(ids, 7, wrong);
      EXPECT_EQ(refusal(test.column),
                "Column 'c', chunk 0: its type id at row 7 is " + std::to_string(wrong) + ", which no child has");
    }
    put(ids, 7, id);
    EXPECT_EQ(refusal(test.column), "");
    if (kind == ColumnKind::sparse_union) continue;
    for (const int32_t wrong : {-1, INT32_MAX, static_cast<int32_t>(test.column.children[0].chunks[0].length)}) {
      put<int8_t>(ids, 7, test.column.type_ids[0]);
      put<int32_t>(test.column.chunks[0].offsets, 7, wrong);
      EXPECT_NE(refusal(test.column).find("its offset at row 7 is " + std::to_string(wrong) + ", but its child 'c.0' has"),
                std::string::npos);
    }
  }
}

TEST(ValidateNested, RefusesViewsOutsideTheirBuffers) {
  std::mt19937_64 random(5);
  NestedColumn test("c", nested(ColumnKind::view, {}), {30}, random);
  ColumnChunk& chunk = test.column.chunks[0];
  chunk.validity = nullptr;
  const auto set = [&](int32_t length, int32_t buffer, int32_t offset) {
    put<int32_t>(chunk.values, 4 * 9, length);
    put<int32_t>(chunk.values, 4 * 9 + 2, buffer);
    put<int32_t>(chunk.values, 4 * 9 + 3, offset);
    return refusal(test.column);
  };
  const auto size = static_cast<int32_t>(chunk.buffers[0].size);
  EXPECT_EQ(set(-1, 0, 0), "Column 'c', chunk 0: its view at row 9 has the length -1");
  EXPECT_EQ(set(13, static_cast<int32_t>(chunk.buffers.size()), 0),
            "Column 'c', chunk 0: its view at row 9 is in buffer " + std::to_string(chunk.buffers.size()) + ", but there are " +
                std::to_string(chunk.buffers.size()));
  EXPECT_NE(set(13, -1, 0), "");
  EXPECT_EQ(set(13, 0, size), "Column 'c', chunk 0: its view at row 9 has 13 bytes at byte " + std::to_string(size) +
                                  " of buffer 0, which has " + std::to_string(size));
  EXPECT_NE(set(13, 0, -1), "");
  EXPECT_NE(set(INT32_MAX, 0, INT32_MAX), "");
  // Under a null there may be any view.
  std::vector<uint8_t> bits(4, 0);
  chunk.validity = bits.data();
  chunk.validity_bytes = 4;
  chunk.bit_offset = 0;
  EXPECT_EQ(set(-1, 0, 0), "");
}

TEST(ValidateNested, RefusesIndicesOutsideTheDictionary) {
  std::mt19937_64 random(6);
  for (const uint32_t width : {1u, 2u, 4u, 8u}) {
    for (const ColumnType& type : {signed_type(width), unsigned_type(width)}) {
      NestedColumn values("c (dictionary)", flat(utf8_type()), {100}, random);
      std::vector<uint8_t> indices(20 * width, 0), bits(3, 0xFF);
      Column column;
      column.name = "c";
      column.type = type;
      column.length = 20;
      column.dictionary = std::make_shared<const Column>(values.column);
      ColumnChunk chunk;
      chunk.length = 20;
      chunk.values = indices.data();
      chunk.values_bytes = indices.size();
      chunk.validity = bits.data();
      chunk.validity_bytes = bits.size();
      chunk.dictionary_size = 100;
      column.chunks.push_back(chunk);
      indices[5 * width] = 99;
      EXPECT_EQ(refusal(column), "");
      indices[5 * width] = 100;
      EXPECT_EQ(refusal(column), "Column 'c', chunk 0: its index at row 5 is 100, but its dictionary has 100 values");
      std::fill_n(indices.begin() + 5 * width, width, uint8_t{0xFF});
      EXPECT_EQ(refusal(column).find("its index at row 5 is -1,") != std::string::npos, type.order == KeyOrder::signed_integer);
      EXPECT_NE(refusal(column), "");
      bits[0] &= 0xDF;
      EXPECT_EQ(refusal(column), "");
    }
  }
}

TEST(GatherNested, StaysInItsBuffersWhileInputsChange) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    Engine engine = make_engine(2);
    const Job job;
    const std::vector<NestedType> types{
        nested(ColumnKind::list, {flat(opaque_type(4))}),
        nested(ColumnKind::list, {nested(ColumnKind::list, {flat(utf8_type())})}),
        nested(ColumnKind::view, {}),
        nested(ColumnKind::dense_union, {flat(opaque_type(4)), flat(utf8_type())}),
        nested(ColumnKind::sparse_union, {flat(opaque_type(4)), flat(utf8_type())}),
    };
    NestedColumn test("c", types[seed % types.size()], {3000, 2000}, random);
    validate_column(test.column, engine, job);
    const Rows rows = random_rows(5000, 20000, true, random);
    std::atomic<bool> done{false};
    std::thread writer([&] {
      std::mt19937_64 draws(seed);
      while (!done) {
        const ColumnChunk& chunk = test.column.chunks[draws() % 2];
        const void* data = draws() % 2 && chunk.offsets ? chunk.offsets : chunk.values;
        const uint64_t size = data == chunk.offsets ? chunk.offsets_bytes : chunk.values_bytes;
        if (size) __atomic_store_n(bytes_of(data) + draws() % size, static_cast<uint8_t>(draws()), __ATOMIC_RELAXED);
      }
    });
    for (int i = 0; i < 5; ++i) {
      try {
        gather(test.column, rows.list, engine, job);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_table);
      }
    }
    done = true;
    writer.join();
  }
}

}  // namespace
}  // namespace warpjoin
