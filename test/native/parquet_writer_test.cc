// The parts of the Parquet writer against naive readers of what they write, and its decisions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "parquet/column_writer.h"
#include "parquet/encode_bits.h"
#include "parquet/encode_delta.h"
#include "parquet/encode_dictionary.h"
#include "parquet/encode_statistics.h"
#include "parquet/snappy_compress.h"
#include "parquet/thrift_writer.h"

namespace warpjoin::parquet {
namespace {

using Text = std::vector<uint8_t>;

/// Reads bytes; every read is within them.
struct Reader {
  const Text& bytes;
  size_t at = 0;

  uint8_t byte() { return bytes.at(at++); }
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const uint8_t next = byte();
      value |= uint64_t{next & 0x7Fu} << shift;
      if (next < 0x80) return value;
    }
  }
  int64_t zigzag() {
    const uint64_t value = varint();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }
  /// `count` values of `width` bits, from whole bytes.
  std::vector<uint64_t> packed(uint64_t count, unsigned width) {
    std::vector<uint64_t> values(count);
    for (uint64_t bit = 0; bit < count * width; ++bit) {
      values[bit / width] |= uint64_t{bytes.at(at + bit / 8) >> (bit % 8) & 1u} << (bit % width);
    }
    at += (count * width + 7) / 8;
    return values;
  }
};

Text uncompressed(const Text& compressed) {
  Reader in{compressed};
  Text out;
  const uint64_t size = in.varint();
  while (in.at < compressed.size()) {
    const uint8_t tag = in.byte();
    uint64_t length = (tag >> 2) + 1u, offset = 0;
    if ((tag & 3) == 0) {
      if (length > 60) {
        const uint64_t bytes = length - 60;
        length = 1;
        for (uint64_t i = 0; i < bytes; ++i) length += uint64_t{in.byte()} << (8 * i);
      }
      for (uint64_t i = 0; i < length; ++i) out.push_back(in.byte());
      continue;
    }
    if ((tag & 3) == 1) {
      length = (tag >> 2 & 7) + 4u;
      offset = (tag >> 5 & 7u) << 8;
      offset |= in.byte();
    } else {
      offset = in.byte();
      offset |= uint64_t{in.byte()} << 8;
    }
    EXPECT_GE(out.size(), offset);
    EXPECT_GT(offset, 0u);
    for (uint64_t i = 0; i < length; ++i) out.push_back(out.at(out.size() - offset));
  }
  EXPECT_EQ(out.size(), size);
  return out;
}

Text compressed(const Text& bytes) {
  auto table = std::make_unique<SnappyTable>();
  table->fill(0xABCD);
  Text out(snappy_bound(bytes.size()));
  out.resize(snappy_compress(bytes.data(), bytes.size(), out.data(), *table));
  return out;
}

TEST(SnappyCompress, GivesBackWhatItGot) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    Text bytes(random() % (round % 10 ? 400 : 200'000));
    const uint64_t kind = random() % 4, values = uint64_t{1} << random() % 9;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(kind == 0 ? 7 : kind == 1 ? i / 5 : kind == 2 && i % 8 > 2 ? 0 : random() % values);
    }
    const Text small = compressed(bytes);
    ASSERT_EQ(uncompressed(small), bytes);
    if (kind == 0 && bytes.size() > 1000) {
      EXPECT_LT(small.size(), bytes.size() / 10);
    }
    EXPECT_LE(small.size(), bytes.size() + bytes.size() / 1000 + 16);
  }
}

TEST(SnappyCompress, CopiesOfEveryLengthAndDistance) {
  std::mt19937_64 random(2);
  for (size_t length = 4; length < 140; ++length) {
    for (const size_t distance : {4, 11, 100, 2047, 2048, 30'000, 65'000}) {
      Text bytes(distance);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      for (size_t i = 0; i < length; ++i) bytes.push_back(bytes[bytes.size() - distance]);
      for (int i = 0; i < 20; ++i) bytes.push_back(static_cast<uint8_t>(random()));
      ASSERT_EQ(uncompressed(compressed(bytes)), bytes);
    }
  }
}

TEST(ThriftWriter, WritesTheCompactProtocol) {
  ThriftWriter out;
  out.int32(1, -1);
  out.int64(3, 300);
  out.binary(20, "ab");
  out.boolean(21, true);
  out.begin_struct(22);
  out.int8(1, -3);
  out.end_struct();
  out.begin_list(23, ThriftType::int32, 2);
  out.element_int32(1);
  out.element_int32(-2);
  out.begin_list(24, ThriftType::structure, 16);
  out.end_struct();
  const Text expected{0x15, 0x01, 0x26, 0xD8, 0x04, 0x08, 0x28, 0x02, 'a',  'b',  0x11, 0x1C,
                      0x13, 0xFD, 0x00, 0x19, 0x25, 0x02, 0x03, 0x19, 0xFC, 0x10, 0x00};
  EXPECT_EQ(Text(out.bytes().begin(), out.bytes().end()), expected);
}

TEST(PackBits, EveryWidth) {
  std::mt19937_64 random(3);
  for (unsigned width = 0; width <= 64; ++width) {
    uint64_t values[32];
    for (uint64_t& value : values) value = width == 0 ? 0 : random() >> (64 - width);
    Text out(4 * width);
    pack32(values, width, out.data());
    if (width) {
      EXPECT_EQ(Reader{out}.packed(32, width), std::vector<uint64_t>(values, values + 32));
    }
    if (width > 32) continue;
    uint32_t narrow[32];
    for (int i = 0; i < 32; ++i) narrow[i] = static_cast<uint32_t>(values[i]);
    Text again(4 * width);
    pack32(narrow, width, again.data());
    EXPECT_EQ(again, out);
  }
}

std::vector<uint64_t> read_hybrid(Reader& in, size_t end, unsigned width, uint64_t count) {
  std::vector<uint64_t> values;
  while (in.at < end) {
    const uint64_t header = in.varint();
    if (header & 1) {
      const std::vector<uint64_t> packed = in.packed((header >> 1) * 8, width);
      values.insert(values.end(), packed.begin(), packed.end());
      continue;
    }
    uint64_t value = 0;
    for (unsigned byte = 0; byte < (width + 7) / 8; ++byte) value |= uint64_t{in.byte()} << (8 * byte);
    values.insert(values.end(), header >> 1, value);
  }
  EXPECT_GE(values.size(), count);
  values.resize(count);
  return values;
}

TEST(WriteHybrid, RunsAndPackedValuesOfEveryWidth) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 2000; ++round) {
    const auto width = static_cast<unsigned>(1 + random() % 32);
    std::vector<uint32_t> values;
    for (uint64_t pieces = random() % 6; pieces > 0; --pieces) {
      const bool run = random() % 2;
      const auto value = static_cast<uint32_t>(random() >> (64 - width));
      for (uint64_t i = random() % 100; i > 0; --i)
        values.push_back(run ? value : static_cast<uint32_t>(random() >> (64 - width)));
    }
    Text out(hybrid_bound(values.size(), width));
    out.resize(static_cast<size_t>(write_hybrid(values.data(), values.size(), width, out.data()) - out.data()));
    Reader in{out};
    ASSERT_EQ(read_hybrid(in, out.size(), width, values.size()), std::vector<uint64_t>(values.begin(), values.end()));
  }
}

TEST(Levels, AreWrittenFromAnyGroups) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 500; ++round) {
    Levels levels;
    std::vector<uint64_t> expected;
    for (uint64_t pieces = random() % 20; pieces > 0; --pieces) {
      const auto count = static_cast<unsigned>(random() % 65);
      const uint64_t kind = random() % 3;
      const uint64_t bits = (kind == 0 ? 0 : kind == 1 ? ~uint64_t{0} : random()) & (count ? ~uint64_t{0} >> (64 - count) : 0);
      if (kind == 1) {
        levels.append_valid(3 * uint64_t{count});
        expected.insert(expected.end(), 3 * count, 1);
        continue;
      }
      levels.append(bits, count);
      for (unsigned i = 0; i < count; ++i) expected.push_back(bits >> i & 1);
    }
    ASSERT_EQ(levels.rows(), expected.size());
    const uint64_t begin = expected.empty() ? 0 : random() % expected.size() / 64 * 64;
    const uint64_t end = begin + random() % (expected.size() - begin + 1);
    Text out(Levels::bound(end - begin));
    out.resize(static_cast<size_t>(levels.write(begin, end, out.data()) - out.data()));
    uint32_t size = 0;
    std::memcpy(&size, out.data(), 4);
    ASSERT_EQ(size, out.size() - 4);
    Reader in{out, 4};
    const std::vector<uint64_t> part(expected.begin() + static_cast<ptrdiff_t>(begin),
                                     expected.begin() + static_cast<ptrdiff_t>(end));
    ASSERT_EQ(read_hybrid(in, out.size(), 1, end - begin), part);
    EXPECT_EQ(levels.valid(begin, end), static_cast<uint64_t>(std::count(part.begin(), part.end(), 1)));
  }
}

template <class Value>
std::vector<Value> read_delta(const Text& bytes) {
  using Bits = std::make_unsigned_t<Value>;
  Reader in{bytes};
  EXPECT_EQ(in.varint(), kDeltaBlock);
  EXPECT_EQ(in.varint(), 4u);
  const uint64_t count = in.varint();
  std::vector<Value> values;
  Bits last = static_cast<Bits>(in.zigzag());
  if (count) values.push_back(static_cast<Value>(last));
  while (values.size() < count) {
    const auto least = static_cast<Bits>(in.zigzag());
    uint8_t widths[4];
    for (uint8_t& width : widths) width = in.byte();
    for (const uint8_t width : widths) {
      EXPECT_LE(width, 8 * sizeof(Value));
      for (const uint64_t difference : width ? in.packed(32, width) : std::vector<uint64_t>(32)) {
        if (values.size() == count) break;
        last += least + static_cast<Bits>(difference);
        values.push_back(static_cast<Value>(last));
      }
    }
  }
  EXPECT_EQ(in.at, bytes.size());
  return values;
}

template <class Value>
void delta_round_trips() {
  using Limits = std::numeric_limits<Value>;
  std::mt19937_64 random(6);
  for (int round = 0; round < 400; ++round) {
    std::vector<Value> values(random() % 500);
    const uint64_t kind = random() % 4;
    const auto shift = random() % 60;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = kind == 0   ? static_cast<Value>(i * 3)
                  : kind == 1 ? static_cast<Value>(random() >> shift)
                  : kind == 2 ? (random() % 2 ? Limits::min() : Limits::max())
                              : Value{5};
    }
    Text out(delta_bound(values.size(), sizeof(Value)));
    out.resize(static_cast<size_t>(write_delta(values.data(), values.size(), out.data()) - out.data()));
    ASSERT_EQ(read_delta<Value>(out), values);
  }
}

TEST(WriteDelta, GivesBackIntegersWhoseDifferencesWrapAround) {
  delta_round_trips<int32_t>();
  delta_round_trips<int64_t>();
}

TEST(Dictionary, NumbersValuesByTheirFirstOccurrence) {
  std::mt19937_64 random(7);
  for (const uint32_t width : {0u, 1u, 3u, 4u, 8u, 16u}) {
    Dictionary dictionary;
    for (int again = 0; again < 2; ++again) {
      dictionary.clear(width, {});
      std::vector<std::string> distinct;
      for (int i = 0; i < 3000; ++i) distinct.push_back(std::string(width ? width : random() % 40, '\0'));
      for (std::string& value : distinct) {
        for (char& byte : value) byte = static_cast<char>(random());
      }
      std::vector<std::string> given(20'000);
      for (std::string& value : given) value = distinct[random() % distinct.size()];
      std::vector<uint32_t> numbers(given.size());
      std::vector<Bytes> bytes;
      std::string all;
      for (const std::string& value : given) {
        bytes.push_back({reinterpret_cast<const uint8_t*>(value.data()), value.size()});
        all += value;
      }
      ASSERT_TRUE(width ? dictionary.add(reinterpret_cast<const uint8_t*>(all.data()), given.size(), numbers.data())
                        : dictionary.add(bytes.data(), given.size(), numbers.data()));
      uint32_t seen = 0;
      for (size_t i = 0; i < given.size(); ++i) {
        const Bytes value = dictionary.value(numbers[i]);
        ASSERT_EQ(std::string(reinterpret_cast<const char*>(value.data), value.size), given[i]);
        ASSERT_LE(numbers[i], seen);
        seen = std::max(seen, numbers[i] + 1);
      }
      EXPECT_EQ(dictionary.size(), seen);
    }
  }
}

TEST(Dictionary, GivesUpAtItsLimits) {
  std::vector<uint64_t> values(100);
  for (uint64_t i = 0; i < values.size(); ++i) values[i] = i / 2;
  std::vector<uint32_t> numbers(values.size());
  const auto* const bytes = reinterpret_cast<const uint8_t*>(values.data());
  Dictionary dictionary;
  dictionary.clear(8, {.values = 50, .bytes = 400});
  EXPECT_TRUE(dictionary.add(bytes, 100, numbers.data()));
  dictionary.clear(8, {.values = 49, .bytes = 400});
  EXPECT_FALSE(dictionary.add(bytes, 100, numbers.data()));
  dictionary.clear(8, {.values = 50, .bytes = 399});
  EXPECT_FALSE(dictionary.add(bytes, 100, numbers.data()));
}

template <class Value>
std::optional<std::pair<Value, Value>> bounds(PhysicalType type, Order order, const std::vector<Value>& values) {
  Statistics statistics(type, sizeof(Value), order);
  for (const Value& value : values) statistics.add(reinterpret_cast<const uint8_t*>(&value), 1);
  Statistics together(type, sizeof(Value), order);
  together.add(reinterpret_cast<const uint8_t*>(values.data()), values.size());
  const auto found = statistics.bounds(), other = together.bounds();
  EXPECT_EQ(found.has_value(), other.has_value());
  if (!found) return {};
  EXPECT_EQ(found->least, other->least);
  EXPECT_EQ(found->greatest, other->greatest);
  std::pair<Value, Value> made;
  std::memcpy(&made.first, found->least.data(), sizeof(Value));
  std::memcpy(&made.second, found->greatest.data(), sizeof(Value));
  return made;
}

TEST(Statistics, LeaveNanOutAndWidenZeros) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(bounds<double>(PhysicalType::float64, Order::floating, {nan, nan}));
  EXPECT_FALSE(bounds<double>(PhysicalType::float64, Order::floating, {}));
  const auto zeros = bounds<double>(PhysicalType::float64, Order::floating, {nan, 0.0});
  EXPECT_TRUE(std::signbit(zeros->first));
  EXPECT_FALSE(std::signbit(zeros->second));
  const auto negative = bounds<double>(PhysicalType::float64, Order::floating, {-0.0, nan, -INFINITY});
  EXPECT_EQ(negative->first, -INFINITY);
  EXPECT_FALSE(std::signbit(negative->second));
  using Signed = std::pair<int32_t, int32_t>;
  using Unsigned = std::pair<uint32_t, uint32_t>;
  EXPECT_EQ(bounds<int32_t>(PhysicalType::int32, Order::signed_integer, {3, -7, 1}), Signed(-7, 3));
  EXPECT_EQ(bounds<uint32_t>(PhysicalType::int32, Order::unsigned_integer, {3, 0xFFFFFFFF, 1}), Unsigned(1, 0xFFFFFFFF));
  EXPECT_FALSE(bounds<int32_t>(PhysicalType::int32, Order::none, {3}));
}

TEST(Statistics, OfTextsCompareBytes) {
  Statistics statistics(PhysicalType::byte_array, 0, Order::bytes);
  for (const std::string value : {"b", "", "\xC3\xB6", "a"}) {
    const Bytes bytes{reinterpret_cast<const uint8_t*>(value.data()), value.size()};
    statistics.add(&bytes, 1);
  }
  EXPECT_EQ(statistics.bounds()->least, "");
  EXPECT_EQ(statistics.bounds()->greatest, "\xC3\xB6");
  const std::string longer(kMostStatisticBytes + 1, 'z');
  const Bytes bytes{reinterpret_cast<const uint8_t*>(longer.data()), longer.size()};
  statistics.add(&bytes, 1);
  EXPECT_EQ(statistics.bounds()->greatest, "\xC3\xB6");  // longer, but less
  const std::string last = "\xFF" + longer;
  const Bytes greatest{reinterpret_cast<const uint8_t*>(last.data()), last.size()};
  statistics.add(&greatest, 1);
  EXPECT_FALSE(statistics.bounds());
}

class ColumnChunks : public testing::Test {
 protected:
  template <class Value>
  ColumnChunkBytes encode(const std::vector<Value>& values, PhysicalType type, KeyOrder order, bool nullable = false) {
    Column column;
    column.name = "c";
    column.type = {ColumnKind::fixed, order, sizeof(Value)};
    column.length = values.size();
    column.chunks.push_back(
        {.values = values.data(), .length = values.size(), .values_bytes = values.size() * sizeof(Value), .buffers = {}});
    const ValueSource source(column, type, 0);
    return writer_.encode(source, "c", nullable, 0, values.size(), Job());
  }

  std::shared_ptr<HostMemory> memory_ = HostMemory::create(size_t{1} << 30);
  ColumnWriter writer_{memory_, uint64_t{1} << 20};
};

TEST_F(ColumnChunks, AreEncodedAsPays) {
  std::mt19937_64 random(8);
  constexpr size_t kRows = 300'000;
  std::vector<int64_t> wild(kRows), near(kRows), few(kRows);
  std::vector<double> measured(kRows), rounded(kRows), same(kRows, 1.5);
  for (size_t i = 0; i < kRows; ++i) {
    wild[i] = static_cast<int64_t>(random());
    near[i] = static_cast<int64_t>(random() % 1'000'000);
    few[i] = static_cast<int64_t>(random() % 10) << 40;
    measured[i] = static_cast<double>(random()) / 7;
    rounded[i] = static_cast<double>(random() % 1000) / 8;
  }
  const auto encoding = [&](const auto& values, PhysicalType type, KeyOrder order) {
    return encode(values, type, order).encoding;
  };
  EXPECT_EQ(encoding(wild, PhysicalType::int64, KeyOrder::signed_integer), Encoding::plain);
  EXPECT_EQ(encoding(near, PhysicalType::int64, KeyOrder::signed_integer), Encoding::delta_binary_packed);
  EXPECT_EQ(encoding(few, PhysicalType::int64, KeyOrder::signed_integer), Encoding::rle_dictionary);
  EXPECT_EQ(encoding(measured, PhysicalType::float64, KeyOrder::floating), Encoding::plain);
  EXPECT_EQ(encoding(rounded, PhysicalType::float64, KeyOrder::floating), Encoding::rle_dictionary);
  const ColumnChunkBytes random_chunk = encode(wild, PhysicalType::int64, KeyOrder::signed_integer);
  EXPECT_EQ(random_chunk.codec, Codec::none);
  EXPECT_EQ(random_chunk.size, random_chunk.uncompressed);
  EXPECT_GE(random_chunk.size, 8 * kRows);
  const ColumnChunkBytes run = encode(same, PhysicalType::float64, KeyOrder::floating);
  EXPECT_EQ(run.encoding, Encoding::rle_dictionary);
  EXPECT_LT(run.size, 200u);
}

TEST_F(ColumnChunks, WhoseDictionaryGrowsTooLargeArePlain) {
  // Half of the values are one, so that a sample finds few; the others all differ.
  std::mt19937_64 random(9);
  std::vector<double> values(1'000'000, 2.5);
  for (size_t i = 0; i < values.size(); i += 2) values[i] = static_cast<double>(random());
  const ColumnChunkBytes chunk = encode(values, PhysicalType::float64, KeyOrder::floating);
  EXPECT_EQ(chunk.encoding, Encoding::plain);
  EXPECT_EQ(chunk.nulls, 0u);
  EXPECT_EQ(chunk.rows, values.size());
}

TEST_F(ColumnChunks, OfOtherTypesAreRefused) {
  Column column;
  column.type = {ColumnKind::fixed, KeyOrder::signed_integer, 4};
  for (const PhysicalType type : {PhysicalType::boolean, PhysicalType::int64, PhysicalType::float32, PhysicalType::byte_array}) {
    EXPECT_THROW(ValueSource(column, type, 0), Error);
  }
  EXPECT_THROW(ValueSource(column, PhysicalType::fixed_bytes, 5), Error);
  EXPECT_THROW(ValueSource(column, PhysicalType::fixed_bytes, 0), Error);
}

TEST_F(ColumnChunks, WithNullsInARequiredFieldAreRefused) {
  const std::vector<int32_t> values{1, 2, 3};
  const uint8_t validity = 5;
  Column column;
  column.type = {ColumnKind::fixed, KeyOrder::signed_integer, 4};
  column.length = 3;
  column.chunks.push_back(
      {.validity = &validity, .values = values.data(), .length = 3, .validity_bytes = 1, .values_bytes = 12, .buffers = {}});
  const ValueSource source(column, PhysicalType::int32, 0);
  EXPECT_EQ(writer_.encode(source, "c", true, 0, 3, Job()).nulls, 1u);
  EXPECT_THROW(writer_.encode(source, "c", false, 0, 3, Job()), Error);
  Job cancelled;
  cancelled.cancel();
  EXPECT_THROW(writer_.encode(source, "c", true, 0, 3, cancelled), Error);
}

}  // namespace
}  // namespace warpjoin::parquet
