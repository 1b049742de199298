// The Parquet reader against files that a naive writer makes: every encoding, width and page version, nulls, cuts and bit flips.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "parquet/decode_delta.h"
#include "parquet/decode_fixed.h"
#include "parquet/decode_hybrid.h"
#include "parquet/decode_text.h"
#include "parquet/file_reader.h"
#include "parquet/snappy_decompress.h"
#include "parquet/thrift_reader.h"

namespace warpjoin::parquet {
namespace {

using Bytes = std::string;
using Random = std::mt19937_64;

uint64_t below(Random& random, uint64_t n) { return random() % n; }

void put_varint(Bytes& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}
void put_zigzag(Bytes& to, int64_t value) {
  put_varint(to, static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
}
template <class T>
void put(Bytes& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Bytes with the slack that decoders may read behind them, filled with what must not matter.
class Padded {
 public:
  explicit Padded(const Bytes& bytes) : size_(bytes.size()), bytes_(bytes + Bytes(kSlack, '\xa5')) {}
  std::span<const uint8_t> span() const { return {reinterpret_cast<const uint8_t*>(bytes_.data()), size_}; }

 private:
  size_t size_;
  Bytes bytes_;
};

// --- A naive writer -----------------------------------------------------------------------------------------------

/// A structure of Thrift's compact protocol: fields in any order of calls that ascends.
class Struct {
 public:
  Struct& integer(int id, int64_t value, int type = 5) {
    head(id, type);
    put_zigzag(bytes_, value);
    return *this;
  }
  Struct& wide(int id, int64_t value) { return integer(id, value, 6); }
  Struct& boolean(int id, bool value) {
    head(id, value ? 1 : 2);
    return *this;
  }
  Struct& text(int id, const Bytes& value) {
    head(id, 8);
    put_varint(bytes_, value.size());
    bytes_ += value;
    return *this;
  }
  Struct& structure(int id, const Bytes& value) {
    head(id, 12);
    bytes_ += value;
    return *this;
  }
  Struct& list(int id, int type, const std::vector<Bytes>& elements) {
    head(id, 9);
    bytes_ += Bytes(1, static_cast<char>(std::min<size_t>(elements.size(), 15) << 4 | static_cast<size_t>(type)));
    if (elements.size() >= 15) put_varint(bytes_, elements.size());
    for (const Bytes& element : elements) bytes_ += element;
    return *this;
  }
  Bytes end() const { return bytes_ + Bytes(1, '\0'); }

 private:
  void head(int id, int type) {
    if (id > last_ && id - last_ < 16) {
      bytes_.push_back(static_cast<char>((id - last_) << 4 | type));
    } else {
      bytes_.push_back(static_cast<char>(type));
      put_zigzag(bytes_, id);
    }
    last_ = id;
  }
  int last_ = 0;
  Bytes bytes_;
};

Bytes packed(const std::vector<uint64_t>& values, unsigned width) {
  Bytes bytes((values.size() * width + 7) / 8, '\0');
  for (size_t i = 0; i < values.size() * width; ++i) {
    if (values[i / width] >> (i % width) & 1) bytes[i / 8] = static_cast<char>(bytes[i / 8] | 1 << i % 8);
  }
  return bytes;
}

/// Runs of both kinds, at random.
Bytes hybrid(const std::vector<uint64_t>& values, unsigned width, Random& random) {
  Bytes bytes;
  for (size_t at = 0; at < values.size();) {
    size_t same = 1;
    while (at + same < values.size() && values[at + same] == values[at]) ++same;
    if (same >= 8 || below(random, 3) == 0) {
      same = 1 + below(random, same);
      put_varint(bytes, same << 1);
      bytes.append(reinterpret_cast<const char*>(&values[at]), (width + 7) / 8);
      at += same;
      continue;
    }
    const size_t groups = 1 + below(random, 12);
    std::vector<uint64_t> run(values.begin() + static_cast<ptrdiff_t>(at),
                              values.begin() + static_cast<ptrdiff_t>(std::min(values.size(), at + groups * 8)));
    at += run.size();
    run.resize(groups * 8);
    put_varint(bytes, groups << 1 | 1);
    bytes += packed(run, width);
  }
  return bytes;
}

Bytes delta(const std::vector<uint64_t>& values, Random& random, bool wide) {
  const uint64_t mini = 32, minis = 1 + below(random, 4), mask = wide ? ~uint64_t{0} : UINT32_MAX;
  const auto extended = [&](uint64_t value) { return wide ? static_cast<int64_t>(value) : static_cast<int32_t>(value); };
  Bytes bytes;
  put_varint(bytes, mini * minis);
  put_varint(bytes, minis);
  put_varint(bytes, values.size());
  put_zigzag(bytes, values.empty() ? 0 : extended(values[0]));
  for (size_t at = 1; at < values.size(); at += mini * minis) {
    std::vector<uint64_t> differences;
    for (size_t i = at; i < std::min(values.size(), at + mini * minis); ++i)
      differences.push_back((values[i] - values[i - 1]) & mask);
    int64_t least = INT64_MAX;
    for (const uint64_t difference : differences) least = std::min<int64_t>(least, extended(difference));
    put_zigzag(bytes, least);
    Bytes body;
    for (uint64_t m = 0; m < minis; ++m) {
      std::vector<uint64_t> part;
      for (uint64_t i = 0; i < mini; ++i) {
        part.push_back(m * mini + i < differences.size() ? (differences[m * mini + i] - static_cast<uint64_t>(least)) & mask : 0);
      }
      unsigned width = 0;
      for (const uint64_t value : part) width = std::max(width, static_cast<unsigned>(std::bit_width(value)));
      if (m * mini >= differences.size()) {
        bytes.push_back('\0');
        continue;
      }
      bytes.push_back(static_cast<char>(width));
      body += packed(part, width);
    }
    bytes += body;
  }
  return bytes;
}

/// Literals and copies at random.
Bytes snappy(const Bytes& plain, Random& random) {
  Bytes bytes;
  put_varint(bytes, plain.size());
  for (size_t at = 0; at < plain.size();) {
    // The longest repetition at a random distance.
    const size_t offset = at ? 1 + below(random, std::min<size_t>(at, below(random, 2) ? 20 : 70'000)) : 0;
    size_t same = 0;
    while (offset && at + same < plain.size() && same < 64 && plain[at + same] == plain[at + same - offset]) ++same;
    if (same >= 4 && same < 12 && offset < 2048 && below(random, 2)) {
      bytes.push_back(static_cast<char>(1 | (same - 4) << 2 | offset >> 8 << 5));
      bytes.push_back(static_cast<char>(offset));
    } else if (same >= 1 && offset < 65536 && below(random, 4)) {
      bytes.push_back(static_cast<char>(2 | (same - 1) << 2));
      put<uint16_t>(bytes, static_cast<uint16_t>(offset));
    } else if (same >= 1 && below(random, 2)) {
      bytes.push_back(static_cast<char>(3 | (same - 1) << 2));
      put<uint32_t>(bytes, static_cast<uint32_t>(offset));
    } else {
      same = std::min<size_t>(plain.size() - at, 1 + below(random, below(random, 4) ? 20 : 70'000));
      const auto length = static_cast<uint32_t>(same - 1);
      const unsigned more = length < 60 ? 0 : length < 256 ? 1 : length < 65536 ? 2 : 3;
      bytes.push_back(static_cast<char>((more ? 59 + more : length) << 2));
      bytes.append(reinterpret_cast<const char*>(&length), more);
      bytes += plain.substr(at, same);
    }
    at += same;
  }
  return bytes;
}

using Cell = std::optional<Bytes>;

struct Field {
  PhysicalType physical = PhysicalType::int64;
  uint32_t width = 8;  ///< bytes of a value in pages; 0: a bit, or varying
  bool optional = true;
  bool utf8 = false;
  std::vector<Encoding> encodings = {Encoding::plain};  ///< drawn for each chunk
};

Bytes plain_values(const Field& field, const std::vector<Bytes>& values) {
  Bytes bytes;
  if (field.physical == PhysicalType::boolean) {
    std::vector<uint64_t> bits;
    for (const Bytes& value : values) bits.push_back(static_cast<uint64_t>(value[0]));
    return packed(bits, 1);
  }
  for (const Bytes& value : values) {
    if (field.width == 0) put(bytes, static_cast<uint32_t>(value.size()));
    bytes += value;
  }
  return bytes;
}

Bytes encoded(const Field& field, const std::vector<Bytes>& values, Encoding encoding, const std::vector<Bytes>& dictionary,
              Random& random) {
  const auto number = [&](const Bytes& value) {
    uint64_t made = 0;
    std::memcpy(&made, value.data(), value.size());
    return made;
  };
  std::vector<uint64_t> numbers;
  switch (encoding) {
    case Encoding::rle: {
      for (const Bytes& value : values) numbers.push_back(static_cast<uint64_t>(value[0]));
      const Bytes runs = hybrid(numbers, 1, random);
      Bytes bytes;
      put(bytes, static_cast<uint32_t>(runs.size()));
      return bytes + runs;
    }
    case Encoding::rle_dictionary:
    case Encoding::plain_dictionary: {
      for (const Bytes& value : values) {
        numbers.push_back(static_cast<uint64_t>(std::find(dictionary.begin(), dictionary.end(), value) - dictionary.begin()));
      }
      const auto width = static_cast<unsigned>(std::bit_width(dictionary.size())) + static_cast<unsigned>(below(random, 3));
      return Bytes(1, static_cast<char>(width)) + hybrid(numbers, width, random);
    }
    case Encoding::delta_binary_packed:
      for (const Bytes& value : values) numbers.push_back(number(value));
      return delta(numbers, random, field.width == 8);
    case Encoding::delta_length_byte_array: {
      Bytes bytes;
      for (const Bytes& value : values) {
        numbers.push_back(value.size());
        bytes += value;
      }
      return delta(numbers, random, false) + bytes;
    }
    case Encoding::delta_byte_array: {
      std::vector<uint64_t> prefixes;
      Bytes bytes, last;
      for (const Bytes& value : values) {
        size_t same = 0;
        while (same < value.size() && same < last.size() && value[same] == last[same]) ++same;
        prefixes.push_back(same);
        numbers.push_back(value.size() - same);
        bytes += value.substr(same);
        last = value;
      }
      return delta(prefixes, random, false) + delta(numbers, random, false) + bytes;
    }
    case Encoding::byte_stream_split: {
      Bytes bytes;
      for (uint32_t byte = 0; byte < field.width; ++byte) {
        for (const Bytes& value : values) bytes.push_back(value[byte]);
      }
      return bytes;
    }
    default: return plain_values(field, values);
  }
}

struct TableFile {
  std::vector<Field> fields;
  std::vector<std::vector<std::vector<Cell>>> groups;  ///< cells of columns of groups
};

Bytes write_file(const TableFile& table, Random& random) {
  Bytes file(kMagic, 4);
  const auto codec = static_cast<int32_t>(below(random, 2));
  const auto compress = [&](const Bytes& bytes) { return codec ? snappy(bytes, random) : bytes; };
  std::vector<Bytes> schema = {Struct().text(4, "schema").integer(5, static_cast<int64_t>(table.fields.size())).end()};
  for (size_t c = 0; c < table.fields.size(); ++c) {
    const Field& field = table.fields[c];
    Struct element;
    element.integer(1, static_cast<int>(field.physical));
    if (field.physical == PhysicalType::fixed_bytes) element.integer(2, field.width);
    element.integer(3, field.optional).text(4, "c" + std::to_string(c));
    if (field.utf8) element.integer(6, 0);
    schema.push_back(element.end());
  }
  std::vector<Bytes> groups;
  int64_t rows_of_all = 0;
  for (const auto& group : table.groups) {
    std::vector<Bytes> chunks;
    for (size_t c = 0; c < table.fields.size(); ++c) {
      const Field& field = table.fields[c];
      const std::vector<Cell>& cells = group[c];
      const Encoding encoding = field.encodings[below(random, field.encodings.size())];
      const bool has_dictionary = encoding == Encoding::rle_dictionary || encoding == Encoding::plain_dictionary;
      const auto begin = static_cast<int64_t>(file.size());
      std::vector<Bytes> dictionary;
      if (has_dictionary) {
        for (const Cell& cell : cells) {
          if (cell && std::find(dictionary.begin(), dictionary.end(), *cell) == dictionary.end()) dictionary.push_back(*cell);
        }
        const Bytes plain = plain_values(field, dictionary), body = compress(plain);
        file +=
            Struct()
                .integer(1, 2)
                .integer(2, static_cast<int64_t>(plain.size()))
                .integer(3, static_cast<int64_t>(body.size()))
                .structure(7, Struct().integer(1, static_cast<int64_t>(dictionary.size())).integer(2, 0).boolean(3, false).end())
                .end() +
            body;
      }
      const auto data = static_cast<int64_t>(file.size());
      for (size_t at = 0; at < cells.size();) {
        const size_t rows = 1 + below(random, cells.size() - at);
        std::vector<uint64_t> levels;
        std::vector<Bytes> values;
        for (size_t i = at; i < at + rows; ++i) {
          levels.push_back(cells[i].has_value());
          if (cells[i]) values.push_back(*cells[i]);
        }
        at += rows;
        const Bytes body = encoded(field, values, encoding, dictionary, random);
        const Bytes runs = field.optional ? hybrid(levels, 1, random) : "";
        Struct header;
        if (below(random, 2)) {
          Bytes plain;
          if (field.optional) put(plain, static_cast<uint32_t>(runs.size()));
          plain += runs + body;
          const Bytes compressed = compress(plain);
          header.integer(1, 0).integer(2, static_cast<int64_t>(plain.size())).integer(3, static_cast<int64_t>(compressed.size()));
          header.structure(5, Struct()
                                  .integer(1, static_cast<int64_t>(rows))
                                  .integer(2, static_cast<int>(encoding))
                                  .integer(3, 3)
                                  .integer(4, 3)
                                  .end());
          file += header.end() + compressed;
        } else {
          const bool is_compressed = below(random, 2);
          const Bytes compressed = is_compressed ? compress(body) : body;
          header.integer(1, 3)
              .integer(2, static_cast<int64_t>(runs.size() + body.size()))
              .integer(3, static_cast<int64_t>(runs.size() + compressed.size()));
          header.structure(8, Struct()
                                  .integer(1, static_cast<int64_t>(rows))
                                  .integer(2, static_cast<int64_t>(rows - values.size()))
                                  .integer(3, static_cast<int64_t>(rows))
                                  .integer(4, static_cast<int>(encoding))
                                  .integer(5, static_cast<int64_t>(runs.size()))
                                  .integer(6, 0)
                                  .boolean(7, is_compressed)
                                  .end());
          file += header.end() + runs + compressed;
        }
      }
      Bytes number;
      put_zigzag(number, static_cast<int>(encoding));
      Struct meta;
      meta.integer(1, static_cast<int>(field.physical)).list(2, 5, {number});
      meta.integer(4, codec).wide(5, static_cast<int64_t>(cells.size())).wide(6, static_cast<int64_t>(file.size()) - begin);
      meta.wide(7, static_cast<int64_t>(file.size()) - begin).wide(9, data);
      if (has_dictionary) meta.wide(11, begin);
      chunks.push_back(Struct().wide(2, begin).structure(3, meta.end()).end());
    }
    const auto rows = static_cast<int64_t>(group[0].size());
    rows_of_all += rows;
    groups.push_back(Struct().list(1, 12, chunks).wide(2, 0).wide(3, rows).end());
  }
  const Bytes footer = Struct()
                           .integer(1, 2)
                           .list(2, 12, schema)
                           .wide(3, rows_of_all)
                           .list(4, 12, groups)
                           .list(5, 12, {Struct().text(1, "key").text(2, "value").end()})
                           .text(6, "naive")
                           .end();
  file += footer;
  put(file, static_cast<uint32_t>(footer.size()));
  return file + Bytes(kMagic, 4);
}

/// Draws columns of all types and encodings.
Field draw_field(Random& random) {
  using E = Encoding;
  Field field;
  switch (below(random, 7)) {
    case 0: field = {PhysicalType::boolean, 0, true, false, {E::plain, E::rle}}; break;
    case 1:
      field = {PhysicalType::int32, 4, true, false, {E::plain, E::rle_dictionary, E::delta_binary_packed, E::byte_stream_split}};
      break;
    case 2:
      field = {
          PhysicalType::int64, 8, true, false, {E::plain, E::plain_dictionary, E::delta_binary_packed, E::byte_stream_split}};
      break;
    case 3: field = {PhysicalType::float64, 8, true, false, {E::plain, E::rle_dictionary, E::byte_stream_split}}; break;
    case 4:
      field = {PhysicalType::fixed_bytes,
               1 + static_cast<uint32_t>(below(random, 20)),
               true,
               false,
               {E::plain, E::rle_dictionary, E::byte_stream_split, E::delta_byte_array}};
      break;
    default:
      field = {PhysicalType::byte_array,
               0,
               true,
               below(random, 2) == 0,
               {E::plain, E::rle_dictionary, E::delta_length_byte_array, E::delta_byte_array}};
  }
  field.optional = below(random, 3) > 0;
  return field;
}

Bytes draw_value(const Field& field, Random& random, bool few) {
  if (field.physical == PhysicalType::boolean) return Bytes(1, static_cast<char>(below(random, 2)));
  if (field.physical == PhysicalType::byte_array) {
    static const std::vector<Bytes> kPieces = {
        "a", "word", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", " ", "0123456789abcdefghij", ""};
    Bytes text;
    for (uint64_t i = below(random, few ? 2 : 6); i-- > 0;) text += kPieces[below(random, kPieces.size())];
    return text;
  }
  Bytes value;
  for (uint32_t i = 0; i < field.width; ++i) value.push_back(static_cast<char>(i == 0 || !few ? random() : 0));
  if (few) value[0] = static_cast<char>(below(random, 5));
  return value;
}

TableFile draw_table(Random& random, size_t most_rows) {
  TableFile table;
  for (uint64_t c = 1 + below(random, 5); c-- > 0;) table.fields.push_back(draw_field(random));
  for (uint64_t g = below(random, 4); g-- > 0;) {
    table.groups.emplace_back();
    const size_t rows = 1 + below(random, most_rows);
    for (const Field& field : table.fields) {
      const bool few = below(random, 2);
      const uint64_t nulls = field.optional ? std::vector<uint64_t>{0, 1, 50, 99, 100}[below(random, 5)] : 0;
      std::vector<Cell> cells;
      for (size_t row = 0; row < rows; ++row) {
        if (below(random, 100) < nulls) {
          cells.emplace_back();
        } else {
          cells.emplace_back(draw_value(field, random, few));
        }
      }
      table.groups.back().push_back(cells);
    }
  }
  return table;
}

// --- Reading ------------------------------------------------------------------------------------------------------

Cell cell_of(const OwnedColumn& column, uint64_t row) {
  const auto bit = [&](const HostBuffer& bits) { return bits.as<uint8_t>()[row / 8] >> (row % 8) & 1; };
  if (column.null_count && !bit(column.validity)) return std::nullopt;
  if (column.type.kind == ColumnKind::boolean) return Bytes(1, static_cast<char>(bit(column.values)));
  if (column.type.kind == ColumnKind::fixed) return Bytes(column.values.as<char>() + row * column.type.width, column.type.width);
  uint64_t chunk = 0;
  while (column.chunk_ends[chunk].row <= row) ++chunk;
  const uint64_t base = chunk ? column.chunk_ends[chunk - 1].byte : 0, at = row + chunk;
  const auto offset = [&](uint64_t index) {
    return static_cast<uint64_t>(column.type.kind == ColumnKind::utf8 ? column.offsets.as<int32_t>()[index]
                                                                      : column.offsets.as<int64_t>()[index]);
  };
  return Bytes(column.values.as<char>() + base + offset(at), offset(at + 1) - offset(at));
}

class ParquetReader : public testing::Test {
 protected:
  std::shared_ptr<HostMemory> memory_ = HostMemory::create(size_t{1} << 30);
  ThreadPool pool_{2};
  std::string path_ = testing::TempDir() + "warpjoin_parquet_" + std::to_string(getpid()) + ".parquet";
  ~ParquetReader() override { std::remove(path_.c_str()); }

  void write(const Bytes& bytes) const {
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  /// All rows in batches of `merged` row groups, as columns of cells.
  std::vector<std::vector<Cell>> read_all(uint64_t merged, bool large, uint64_t most_chunk_bytes,
                                          uint64_t most_rows = UINT64_MAX) {
    FileReader reader(path_, memory_, pool_, most_chunk_bytes);
    reader.open();
    std::vector<WantedColumn> wanted;
    for (uint64_t leaf = 0; leaf < reader.metadata().leaves.size(); ++leaf) {
      if (reader.layouts()[leaf]) wanted.push_back({leaf, large});
    }
    std::vector<BatchRequest> batches;
    uint64_t left = most_rows;
    for (uint64_t g = 0; g < reader.metadata().groups.size(); ++g) {
      if (g % merged == 0) batches.emplace_back();
      const uint64_t rows = std::min(left, reader.metadata().groups[g].rows);
      left -= rows;
      batches.back().groups.push_back(g);
      batches.back().rows += rows;
    }
    std::vector<std::vector<Cell>> cells(wanted.size());
    for (const ReadBatch& batch : reader.read(batches, wanted, Job())) {
      for (size_t c = 0; c < wanted.size(); ++c) {
        EXPECT_EQ(batch.columns[c].length, batch.rows);
        for (uint64_t row = 0; row < batch.rows; ++row) cells[c].push_back(cell_of(batch.columns[c], row));
      }
    }
    return cells;
  }
  /// Reads what may be damaged: it is read, or refused as a file.
  bool try_read(const Bytes& bytes) {
    write(bytes);
    try {
      read_all(2, false, kMaxBufferBytes);
      return true;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::file || error.code() == ErrorCode::memory_limit || error.code() == ErrorCode::option)
          << error.what();
      return false;
    }
  }
};

TEST_F(ParquetReader, ReadsWhatANaiveWriterWrites) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const TableFile table = draw_table(random, round % 10 ? 100 : 5000);
    write(write_file(table, random));
    const uint64_t most_rows = below(random, 3) ? UINT64_MAX : below(random, 200);
    const auto found = read_all(1 + below(random, 3), below(random, 2), below(random, 2) ? kMaxBufferBytes : 50, most_rows);
    ASSERT_EQ(found.size(), table.fields.size());
    for (size_t c = 0; c < found.size(); ++c) {
      std::vector<Cell> expected;
      for (const auto& group : table.groups) expected.insert(expected.end(), group[c].begin(), group[c].end());
      if (expected.size() > most_rows) expected.resize(most_rows);
      ASSERT_TRUE(found[c] == expected) << "round " << round << " column " << c;
    }
  }
}

TEST_F(ParquetReader, RefusesFilesThatAreCutOff) {
  Random random(2);
  const Bytes file = write_file(draw_table(random, 20), random);
  for (size_t size = 0; size < file.size(); ++size) EXPECT_FALSE(try_read(file.substr(0, size))) << size;
  // The footer is there, and bytes before it are not.
  for (size_t gone = 1; gone < file.size(); gone += 1 + gone / 8) try_read(file.substr(gone));
}

TEST_F(ParquetReader, SurvivesFlippedBits) {
  Random random(3);
  int read = 0, refused = 0;
  for (int round = 0; round < 60; ++round) {
    const Bytes file = write_file(draw_table(random, 40), random);
    for (int flips = 0; flips < 60; ++flips) {
      Bytes bytes = file;
      for (uint64_t i = 1 + below(random, 3); i-- > 0;) {
        char& byte = bytes[below(random, bytes.size())];
        byte = static_cast<char>(below(random, 3) ? byte ^ 1 << below(random, 8) : static_cast<char>(random()));
      }
      ++(try_read(bytes) ? read : refused);
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

TEST_F(ParquetReader, RefusesWhatChangesAndWhatIsNoFile) {
  Random random(4);
  TableFile table = draw_table(random, 20);
  while (table.groups.empty()) table = draw_table(random, 20);
  const Bytes bytes = write_file(table, random);
  write(bytes);
  FileReader reader(path_, memory_, pool_);
  reader.open();
  write(bytes + "more");
  try {
    reader.read({{{0}, 1}}, {{0, false}}, Job());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "changed while it was read");
  }
  EXPECT_THROW(reader.read({{{99}, 1}}, {{0, false}}, Job()), Error);
  EXPECT_THROW(reader.read({{{0}, 1}}, {{99, false}}, Job()), Error);
  EXPECT_THROW(reader.read({{{0}, 1000}}, {{0, false}}, Job()), Error);
  FileReader folder(testing::TempDir(), memory_, pool_), nothing(path_ + ".none", memory_, pool_);
  EXPECT_THROW(folder.open(), Error);
  EXPECT_THROW(nothing.open(), Error);
}

TEST_F(ParquetReader, StopsOnceCancelled) {
  Random random(5);
  TableFile table = draw_table(random, 20);
  while (table.groups.empty()) table = draw_table(random, 20);
  write(write_file(table, random));
  FileReader reader(path_, memory_, pool_);
  reader.open();
  Job job;
  job.cancel();
  try {
    reader.read({{{0}, 1}}, {{0, false}}, job);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::aborted);
  }
}

// --- Parts --------------------------------------------------------------------------------------------------------

TEST(ParquetSnappy, DecompressesAndRefuses) {
  Random random(6);
  for (int round = 0; round < 400; ++round) {
    Bytes plain;
    for (uint64_t i = below(random, round % 20 ? 300 : 200'000); plain.size() < i;) {
      plain += below(random, 3) ? Bytes(1 + below(random, 9), static_cast<char>(random() % 3))
                                : "some text " + std::to_string(random());
    }
    const Bytes compressed = snappy(plain, random);
    const Padded padded(compressed);
    EXPECT_EQ(snappy_size(padded.span()), plain.size());
    Bytes made(plain.size() + kSlack, '\x5a');
    auto* const to = reinterpret_cast<uint8_t*>(made.data());
    ASSERT_TRUE(snappy_decompress(padded.span(), to, plain.size()));
    EXPECT_TRUE(made.compare(0, plain.size(), plain) == 0);
    EXPECT_FALSE(snappy_decompress(padded.span(), to, plain.size() - 1));
    if (plain.size() > 500) continue;
    for (size_t size = 0; size < compressed.size(); ++size) {
      const Padded cut(compressed.substr(0, size));
      EXPECT_FALSE(snappy_decompress(cut.span(), to, plain.size()) && plain.size() > 0 && size == 0);
    }
    for (int flip = 0; flip < 50; ++flip) {
      Bytes damaged = compressed;
      char& byte = damaged[below(random, damaged.size())];
      byte = static_cast<char>(byte ^ 1 << below(random, 8));
      const Padded bytes(damaged);
      snappy_decompress(bytes.span(), to, plain.size());
    }
  }
}

TEST(ParquetHybrid, ReadsAllWidthsInAnyParts) {
  Random random(7);
  for (unsigned width = 0; width <= 32; ++width) {
    for (int round = 0; round < 20; ++round) {
      std::vector<uint64_t> values;
      for (uint64_t i = below(random, 600); values.size() < i;) {
        const uint64_t value = width ? random() >> (64 - width) : 0;
        for (uint64_t n = below(random, 3) ? 1 : 1 + below(random, 100); n-- > 0 && values.size() < i;) values.push_back(value);
      }
      const Padded runs(hybrid(values, width, random));
      HybridDecoder decoder(runs.span(), width);
      std::vector<uint32_t> found(values.size());
      for (size_t at = 0; at < values.size();) {
        const size_t count = std::min(values.size() - at, 1 + below(random, 150));
        decoder.read(found.data() + at, count);
        at += count;
      }
      EXPECT_TRUE(std::equal(values.begin(), values.end(), found.begin())) << width;
      for (size_t cut = 0; cut < runs.span().size(); cut += 1 + cut / 4) {
        const Padded less(Bytes(reinterpret_cast<const char*>(runs.span().data()), cut));
        HybridDecoder damaged(less.span(), width);
        try {
          damaged.read(found.data(), values.size());
        } catch (const Damaged&) {
        }
      }
    }
  }
}

TEST(ParquetDelta, ReadsAllWidthsInAnyParts) {
  Random random(8);
  for (int round = 0; round < 600; ++round) {
    const bool wide = round % 2;
    std::vector<uint64_t> values;
    const unsigned shift = static_cast<unsigned>(below(random, 64));
    for (uint64_t i = below(random, 400); values.size() < i;) {
      const uint64_t value = random() >> shift;
      values.push_back(wide ? value : value & UINT32_MAX);
    }
    const Padded bytes(delta(values, random, wide));
    const auto read = [&](std::span<const uint8_t> from, auto zero) {
      std::vector<decltype(zero)> found(values.size());
      DeltaDecoder decoder(from);
      EXPECT_LE(decoder.total(), UINT64_MAX);
      for (size_t at = 0; at < values.size();) {
        const size_t count = std::min(values.size() - at, 1 + below(random, 150));
        decoder.read(found.data() + at, count);
        at += count;
      }
      return found;
    };
    const auto matches = [&](const auto& found) { return std::equal(values.begin(), values.end(), found.begin()); };
    EXPECT_TRUE(wide ? matches(read(bytes.span(), uint64_t{})) : matches(read(bytes.span(), uint32_t{}))) << round;
    for (int damage = 0; damage < 10; ++damage) {
      Bytes other(reinterpret_cast<const char*>(bytes.span().data()), bytes.span().size());
      other[below(random, other.size())] = static_cast<char>(random());
      other.resize(other.size() - below(random, 2));
      try {
        read(Padded(other).span(), uint64_t{});
      } catch (const Damaged&) {
      }
    }
  }
}

TEST(ParquetThrift, SkipsWhatItDoesNotKnowAndRefusesTheRest) {
  const Bytes inner = Struct().integer(1, -5).boolean(2, true).text(30, "text").list(31, 5, {"\x02", "\x04"}).end();
  const Bytes bytes = Struct().structure(1, inner).list(2, 12, {inner, inner}).integer(40, 7).wide(41, INT64_MIN).end();
  int64_t seen = 0, wide = 0;
  Padded padded(bytes);
  ThriftReader in(padded.span());
  in.structure([&](int id, ThriftType type) {
    if (id != 40 && id != 41) return false;
    (id == 40 ? seen : wide) = in.integer(type);
    return true;
  });
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(wide, INT64_MIN);
  EXPECT_EQ(in.position(), bytes.size());
  for (size_t size = 0; size < bytes.size(); ++size) {
    ThriftReader cut(padded.span().subspan(0, size));
    EXPECT_THROW(cut.structure([](int, ThriftType) { return false; }), CutOff) << size;
  }
  Bytes deep(1000, '\x1c');
  const Padded deep_padded(deep);
  ThriftReader nested(deep_padded.span());
  EXPECT_THROW(nested.structure([](int, ThriftType) { return false; }), Damaged);
}

TEST(ParquetUtf8, KnowsWhatIsText) {
  const auto is_text = [](const Bytes& bytes) { return is_utf8(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()); };
  for (const char* good :
       {"", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf", "12345678\xc2\x80"}) {
    EXPECT_TRUE(is_text(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xe2\x82x", "12345678\xff"}) {
    EXPECT_FALSE(is_text(bad)) << bad;
  }
}

TEST(ParquetConvert, WidensAndNarrows) {
  const auto made = [](const Layout& layout, const Bytes& from, uint64_t count) {
    const Padded padded(from);
    Bytes to(count * layout.width, '\x5a');
    convert(layout, padded.span().data(), count, reinterpret_cast<uint8_t*>(to.data()));
    return to;
  };
  const auto bytes = [](auto... values) {
    Bytes all;
    (put(all, values), ...);
    return all;
  };
  EXPECT_EQ(made({Storage::narrowed, 4, 1}, bytes(int32_t{-1}, int32_t{5}), 2), bytes(int8_t{-1}, int8_t{5}));
  EXPECT_EQ(made({Storage::narrowed, 4, 2}, bytes(int32_t{-2}), 1), bytes(int16_t{-2}));
  EXPECT_EQ(made({Storage::widened, 4, 16}, bytes(int32_t{-2}), 1), bytes(int64_t{-2}, int64_t{-1}));
  EXPECT_EQ(made({Storage::widened, 8, 16}, bytes(int64_t{7}), 1), bytes(int64_t{7}, int64_t{0}));
  EXPECT_EQ(made({Storage::decimal, 3, 16}, Bytes("\xff\xff\xfe", 3), 1), bytes(int64_t{-2}, int64_t{-1}));
  EXPECT_EQ(made({Storage::decimal, 2, 16}, Bytes("\x01\x02", 2), 1), bytes(int64_t{258}, int64_t{0}));
  // A nanosecond into 1970-01-02, and one before 1970.
  EXPECT_EQ(made({Storage::timestamp, 12, 8}, bytes(int64_t{1}, int32_t{2440589}), 1), bytes(int64_t{86'400'000'000'001}));
  EXPECT_EQ(made({Storage::timestamp, 12, 8}, bytes(int64_t{86'399'999'999'999}, int32_t{2440587}), 1), bytes(int64_t{-1}));
  EXPECT_THROW(widen_decimal(reinterpret_cast<const uint8_t*>("12345678901234567"), 17, nullptr), Damaged);
}

}  // namespace
}  // namespace warpjoin::parquet
