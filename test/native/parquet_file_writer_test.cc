// The Parquet file writer over tables of every kind of column; what it writes is read by the tests in test/integration.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "parquet/file_writer.h"

namespace warpjoin::parquet {
namespace {

using Text = std::vector<uint8_t>;

/// A chunk of any kind in buffers of exactly its size, so that sanitizers see what is read beyond them.
struct Buffers {
  std::vector<std::unique_ptr<uint8_t[]>> held;
  std::vector<std::unique_ptr<std::vector<ViewBuffer>>> views;

  template <class Value>
  const void* copy(const std::vector<Value>& values) {
    held.push_back(std::make_unique<uint8_t[]>(values.size() * sizeof(Value)));
    if (!values.empty()) std::memcpy(held.back().get(), values.data(), values.size() * sizeof(Value));
    return held.back().get();
  }
};

ColumnChunk random_chunk(const ColumnType& type, uint64_t rows, Buffers& buffers, std::mt19937_64& random) {
  ColumnChunk chunk;
  chunk.length = rows;
  chunk.bit_offset = random() % 9;
  const auto bits = [&] {
    Text bytes((chunk.bit_offset + rows + 7) / 8);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() | random());
    return bytes;
  };
  const auto give = [&](const auto& values, const void*& data, uint64_t& size) {
    data = buffers.copy(values);
    size = values.size() * sizeof(values[0]);
  };
  if (random() % 2) {
    const Text validity = bits();
    chunk.validity = static_cast<const uint8_t*>(buffers.copy(validity));
    chunk.validity_bytes = validity.size();
  }
  Text bytes;
  std::vector<int64_t> offsets{0};
  std::vector<uint32_t> views;
  for (uint64_t row = 0; row < rows; ++row) {
    const auto size = static_cast<uint32_t>(random() % 30 ? random() % 20 : random() % 500);
    views.insert(views.end(), {size, 0, 0, static_cast<uint32_t>(bytes.size())});
    for (uint32_t i = 0; i < size; ++i) bytes.push_back(static_cast<uint8_t>('a' + random() % 2));
    offsets.push_back(static_cast<int64_t>(bytes.size()));
  }
  const std::vector<int32_t> narrow(offsets.begin(), offsets.end());
  switch (type.kind) {
    case ColumnKind::boolean: give(bits(), chunk.values, chunk.values_bytes); break;
    case ColumnKind::fixed: {
      Text values(rows * type.width);
      for (uint8_t& byte : values) byte = static_cast<uint8_t>(random() % 3);
      give(values, chunk.values, chunk.values_bytes);
      break;
    }
    case ColumnKind::view:
      give(views, chunk.values, chunk.values_bytes);
      buffers.views.push_back(std::make_unique<std::vector<ViewBuffer>>());
      buffers.views.back()->push_back({static_cast<const uint8_t*>(buffers.copy(bytes)), bytes.size()});
      chunk.buffers = *buffers.views.back();
      break;
    case ColumnKind::utf8:
      give(narrow, chunk.offsets, chunk.offsets_bytes);
      give(bytes, chunk.values, chunk.values_bytes);
      break;
    default: give(offsets, chunk.offsets, chunk.offsets_bytes); give(bytes, chunk.values, chunk.values_bytes);
  }
  return chunk;
}

TEST(FileWriter, ReadsNothingBeyondTheBuffers) {
  struct Case {
    ColumnType type;
    PhysicalType physical;
    uint32_t width = 0;
  };
  using enum KeyOrder;
  const std::vector<Case> cases{{{ColumnKind::boolean, boolean, 0}, PhysicalType::boolean},
                                {{ColumnKind::fixed, signed_integer, 1}, PhysicalType::int32},
                                {{ColumnKind::fixed, unsigned_integer, 2}, PhysicalType::int32},
                                {{ColumnKind::fixed, unsigned_integer, 4}, PhysicalType::int32},
                                {{ColumnKind::fixed, signed_integer, 8}, PhysicalType::int64},
                                {{ColumnKind::fixed, signed_integer, 16}, PhysicalType::int32},
                                {{ColumnKind::fixed, signed_integer, 32}, PhysicalType::fixed_bytes, 27},
                                {{ColumnKind::fixed, floating, 2}, PhysicalType::fixed_bytes, 2},
                                {{ColumnKind::fixed, floating, 8}, PhysicalType::float64},
                                {{ColumnKind::fixed, bytes, 5}, PhysicalType::fixed_bytes, 5},
                                {{ColumnKind::utf8, bytes, 0}, PhysicalType::byte_array},
                                {{ColumnKind::large_utf8, bytes, 0}, PhysicalType::byte_array},
                                {{ColumnKind::view, bytes, 0}, PhysicalType::byte_array}};
  std::mt19937_64 random(10);
  ThreadPool pool(2);
  for (int round = 0; round < 60; ++round) {
    Buffers buffers;
    WriterOptions options;
    options.group_rows = 1 + random() % 4000;
    options.group_bytes = 1 + random() % 100'000;
    options.page_bytes = 1 + random() % 20'000;
    std::vector<Column> columns;
    std::vector<uint64_t> lengths(1 + random() % 4);
    for (uint64_t& length : lengths) length = random() % (round % 6 ? 200 : 5000);
    for (size_t i = 0; i < 2 * cases.size(); ++i) {
      const Case& of = cases[i % cases.size()];
      options.fields.push_back({.name = "c", .type = of.physical, .width = of.width, .converted = {}, .annotation = {}});
      Column& column = columns.emplace_back();
      column.name = "c";
      column.type = of.type;
      if (i >= cases.size()) {
        auto dictionary = std::make_shared<Column>();
        dictionary->type = of.type;
        dictionary->chunks.push_back(random_chunk(of.type, 2, buffers, random));
        dictionary->chunks.push_back(random_chunk(of.type, 1, buffers, random));
        dictionary->length = 3;
        column.dictionary = dictionary;
        column.type = {ColumnKind::fixed, signed_integer, 4};
      }
      for (const uint64_t length : lengths) {
        column.chunks.push_back(random_chunk(column.type, length, buffers, random));
        column.length += length;
        if (!column.dictionary) continue;
        std::vector<uint32_t> indices(length);
        for (uint32_t& index : indices) index = static_cast<uint32_t>(random() % 3);
        column.chunks.back().values = buffers.copy(indices);
        column.chunks.back().dictionary_size = 3;
      }
    }
    FileWriter writer(options, HostMemory::create(size_t{1} << 30), pool);
    const uint64_t rows = columns[0].length;
    writer.set_columns(columns, rows, Job());
    while (writer.rows_left()) writer.write(Job());
    writer.finish();
  }
}

TEST(FileWriter, CountsBytesAndRows) {
  ThreadPool pool(2);
  const auto memory = HostMemory::create(size_t{1} << 30);
  WriterOptions options;
  options.fields.push_back({.name = "a", .nullable = false, .type = PhysicalType::int64, .converted = {}, .annotation = {}});
  options.group_rows = 1000;
  FileWriter writer(options, memory, pool);
  std::vector<int64_t> values(4500);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i * i);
  std::string file;
  const auto take = [&](const FileWriter::Part& part) { file.append(part.bytes.as<char>(), part.size); };
  for (int table = 0; table < 2; ++table) {
    Column column;
    column.name = "a";
    column.type = {ColumnKind::fixed, KeyOrder::signed_integer, 8};
    column.length = values.size();
    column.chunks.push_back({.values = values.data(), .length = values.size(), .values_bytes = values.size() * 8, .buffers = {}});
    writer.set_columns({column}, values.size(), Job());
    EXPECT_THROW(writer.finish(), Error);
    while (writer.rows_left()) {
      for (const FileWriter::Part& part : writer.write(Job())) take(part);
    }
    EXPECT_TRUE(writer.write(Job()).empty());
  }
  take(writer.finish());
  EXPECT_EQ(file.substr(0, 4), "PAR1");
  EXPECT_EQ(file.substr(file.size() - 4), "PAR1");
  uint32_t footer = 0;
  std::memcpy(&footer, file.data() + file.size() - 8, 4);
  EXPECT_LT(footer, file.size());
}

}  // namespace
}  // namespace warpjoin::parquet
