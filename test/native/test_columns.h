// Columns for tests: values as a plain list, and the same as Arrow chunks in buffers of exactly the size they need.
#pragma once

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/column.h"
#include "engine/engine.h"

namespace warpjoin::test {

/// A value's bytes as Arrow stores them; boolean: one byte 0 or 1. Nothing: null.
using Value = std::optional<std::string>;
using Values = std::vector<Value>;

inline Engine make_engine(unsigned threads = 2) {
  return Engine({.threads = threads, .host_devices = 1, .memory_limit_bytes = size_t{2} << 30});
}

inline ColumnType boolean_type() { return {ColumnKind::boolean, KeyOrder::boolean, 0}; }
inline ColumnType signed_type(uint32_t width) { return {ColumnKind::fixed, KeyOrder::signed_integer, width}; }
inline ColumnType unsigned_type(uint32_t width) { return {ColumnKind::fixed, KeyOrder::unsigned_integer, width}; }
inline ColumnType floating_type(uint32_t width) { return {ColumnKind::fixed, KeyOrder::floating, width}; }
inline ColumnType opaque_type(uint32_t width) { return {ColumnKind::fixed, KeyOrder::none, width}; }
inline ColumnType utf8_type() { return {ColumnKind::utf8, KeyOrder::bytes, 0}; }
inline ColumnType large_utf8_type() { return {ColumnKind::large_utf8, KeyOrder::bytes, 0}; }

inline std::vector<ColumnType> key_types() {
  std::vector<ColumnType> types{boolean_type(), utf8_type(), large_utf8_type()};
  for (const uint32_t width : {1u, 2u, 4u, 8u}) {
    types.push_back(signed_type(width));
    types.push_back(unsigned_type(width));
    if (width > 1) types.push_back(floating_type(width));
  }
  return types;
}

inline std::string type_name(const ColumnType& type) {
  static const char* const kKinds[] = {"boolean", "fixed", "utf8", "large_utf8"};
  static const char* const kOrders[] = {"none", "boolean", "signed", "unsigned", "floating", "bytes"};
  return std::string(kKinds[static_cast<int>(type.kind)]) + "/" + kOrders[static_cast<int>(type.order)] + "/" +
         std::to_string(type.width);
}

template <class T>
Value value_of(T number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class T>
T number_of(const std::string& value) {
  T number;
  std::memcpy(&number, value.data(), sizeof number);
  return number;
}

/// A column with the memory behind it.
class TestColumn {
 public:
  Column column;

  /// Cuts the values into chunks of the given lengths (what is left over becomes the last one). Bit offsets and first
  /// offsets are random; validity is there where a chunk has a null or by chance.
  TestColumn(std::string name, ColumnType type, const Values& values, std::vector<uint64_t> lengths, std::mt19937_64& random) {
    column.name = std::move(name);
    column.type = type;
    column.length = values.size();
    uint64_t begin = 0;
    for (const uint64_t length : lengths) {
      add_chunk(values, begin, std::min<uint64_t>(length, values.size() - begin), random);
      begin += std::min<uint64_t>(length, values.size() - begin);
    }
    if (begin < values.size() || lengths.empty()) add_chunk(values, begin, values.size() - begin, random);
  }

  /// Random chunking: one chunk, a few, or many with empty ones among them.
  TestColumn(std::string name, ColumnType type, const Values& values, std::mt19937_64& random)
      : TestColumn(std::move(name), type, values, random_lengths(values.size(), random), random) {}

  static std::vector<uint64_t> random_lengths(uint64_t rows, std::mt19937_64& random) {
    std::vector<uint64_t> lengths;
    const uint64_t chunks = std::vector<uint64_t>{1, 1, 3, 17}[random() % 4];
    if (chunks == 1) return {rows};
    for (uint64_t i = 0; i < chunks; ++i) lengths.push_back(random() % 4 ? random() % (2 * rows / chunks + 1) : 0);
    return lengths;
  }

  uint8_t* buffer(const void* data) const { return static_cast<uint8_t*>(const_cast<void*>(data)); }

 private:
  void* keep(const std::vector<uint8_t>& bytes) {
    // Aligned as Arrow buffers are, and not a byte larger than claimed.
    buffers_.push_back(std::unique_ptr<uint8_t[]>(new uint8_t[bytes.size()]));
    if (!bytes.empty()) std::memcpy(buffers_.back().get(), bytes.data(), bytes.size());
    return buffers_.back().get();
  }

  void add_chunk(const Values& values, uint64_t begin, uint64_t length, std::mt19937_64& random) {
    ColumnChunk chunk;
    chunk.length = length;
    if (length == 0 && random() % 2) {
      column.chunks.push_back(chunk);
      return;
    }
    chunk.bit_offset = random() % 2 ? random() % 16 : 0;
    bool nulls = random() % 4 == 0;
    for (uint64_t i = begin; i < begin + length; ++i) nulls |= !values[i];
    const uint64_t bitmap_bytes = (chunk.bit_offset + length + 7) / 8;
    if (nulls) {
      std::vector<uint8_t> bitmap(bitmap_bytes);
      for (uint8_t& byte : bitmap) byte = static_cast<uint8_t>(random());
      for (uint64_t i = 0; i < length; ++i) set(bitmap, chunk.bit_offset + i, values[begin + i].has_value());
      chunk.validity = static_cast<const uint8_t*>(keep(bitmap));
      chunk.validity_bytes = bitmap_bytes;
    }
    std::vector<uint8_t> bytes, offsets;
    if (column.type.kind == ColumnKind::boolean) {
      bytes.resize(bitmap_bytes);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      for (uint64_t i = 0; i < length; ++i) {
        set(bytes, chunk.bit_offset + i, values[begin + i] ? (*values[begin + i])[0] != 0 : random() % 2);
      }
    } else if (column.type.variable_width()) {
      bytes.resize(random() % 3, 'p');
      const auto add_offset = [&] {
        const uint64_t offset = bytes.size();
        const auto* raw = reinterpret_cast<const uint8_t*>(&offset);
        offsets.insert(offsets.end(), raw, raw + (column.type.kind == ColumnKind::utf8 ? 4 : 8));
      };
      add_offset();
      for (uint64_t i = begin; i < begin + length; ++i) {
        const std::string text = values[i] ? *values[i] : std::string(random() % 3, 'n');  // bytes under a null are allowed
        bytes.insert(bytes.end(), text.begin(), text.end());
        add_offset();
      }
      chunk.offsets = keep(offsets);
      chunk.offsets_bytes = offsets.size();
    } else {
      for (uint64_t i = begin; i < begin + length; ++i) {
        if (values[i]) {
          bytes.insert(bytes.end(), values[i]->begin(), values[i]->end());
        } else {
          for (uint32_t byte = 0; byte < column.type.width; ++byte) bytes.push_back(static_cast<uint8_t>(random()));
        }
      }
    }
    chunk.values = keep(bytes);
    chunk.values_bytes = bytes.size();
    column.chunks.push_back(chunk);
  }

  static void set(std::vector<uint8_t>& bitmap, uint64_t bit, bool value) {
    bitmap[bit / 8] = static_cast<uint8_t>((bitmap[bit / 8] & ~(1 << bit % 8)) | value << bit % 8);
  }

  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
};

/// How values are drawn.
struct Draw {
  double nulls = 0;
  uint64_t distinct = 0;    ///< 0: the type's whole range, with its special values
  std::string prefix = "";  ///< of texts
  uint64_t longest = 20;    ///< text, without the prefix
};

inline Value draw_value(const ColumnType& type, const Draw& draw, std::mt19937_64& random) {
  if (draw.nulls > 0 && static_cast<double>(random() % 1000) < draw.nulls * 1000) return {};
  const uint64_t pick = draw.distinct ? random() % draw.distinct : random();
  switch (type.kind) {
    case ColumnKind::boolean: return std::string(1, static_cast<char>(pick % 2));
    case ColumnKind::utf8:
    case ColumnKind::large_utf8: {
      std::mt19937_64 letters(pick);
      std::string text = draw.prefix;
      const uint64_t size = letters() % (draw.longest + 1);
      // Few letters, zeros among them: many texts are prefixes of others.
      for (uint64_t i = 0; i < size; ++i) text += "\0\0\0ab\xff"[letters() % 6];
      return text;
    }
    default: break;
  }
  std::string bytes(type.width, '\0');
  if (bytes.empty()) return bytes;
  for (uint32_t i = 0; i < type.width; ++i) bytes[i] = static_cast<char>(random());
  if (type.order == KeyOrder::floating) {
    static const double kSpecial[] = {0.0, -0.0, std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity()};
    const double number = draw.distinct ? static_cast<double>(pick) - 2 : kSpecial[random() % 4];
    if (draw.distinct || random() % 3 == 0) {
      if (type.width == 4) return value_of(static_cast<float>(number));
      if (type.width == 8) return value_of(number);
    }
    // Random bits have enough NaNs where the exponent is all ones.
    if (random() % 4 == 0) {
      bytes[type.width - 1] = static_cast<char>(random() % 2 ? 0x7F : 0xFF);
      bytes[type.width - 2] = static_cast<char>(0xFC | static_cast<char>(random()));
    } else if (random() % 4 == 0) {
      bytes = std::string(type.width, '\0');
      if (random() % 2) bytes.back() = static_cast<char>(0x80);
    }
    return bytes;
  }
  if (draw.distinct) {
    const int64_t number = static_cast<int64_t>(pick) - (type.order == KeyOrder::signed_integer ? int64_t(draw.distinct / 2) : 0);
    std::memcpy(bytes.data(), &number, std::min<size_t>(8, bytes.size()));
  } else if (random() % 8 == 0) {
    std::fill(bytes.begin(), bytes.end(), static_cast<char>(random() % 2 ? 0xFF : 0));
    bytes.back() = static_cast<char>(std::vector<int>{0x80, 0x7F, 0, 0xFF}[random() % 4]);
  }
  return bytes;
}

inline Values draw_values(const ColumnType& type, uint64_t rows, const Draw& draw, std::mt19937_64& random) {
  Values values;
  for (uint64_t i = 0; i < rows; ++i) values.push_back(draw_value(type, draw, random));
  return values;
}

inline double half_to_double(uint16_t half) {
  const int exponent = (half >> 10) & 31, mantissa = half & 0x3FF;
  const double magnitude = exponent == 31
                               ? (mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity())
                           : exponent ? std::ldexp(1024 + mantissa, exponent - 25)
                                      : std::ldexp(mantissa, -24);
  return half & 0x8000 ? -magnitude : magnitude;
}

inline double floating_of(const ColumnType& type, const std::string& value) {
  if (type.width == 2) return half_to_double(number_of<uint16_t>(value));
  return type.width == 4 ? number_of<float>(value) : number_of<double>(value);
}

/// An integer value of any type, mathematically.
inline __int128 integer_of(const ColumnType& type, const std::string& value) {
  const bool negative = type.order == KeyOrder::signed_integer && (value.back() & 0x80);
  int64_t number = negative ? -1 : 0;
  std::memcpy(&number, value.data(), value.size());
  return type.order == KeyOrder::signed_integer ? __int128{number} : __int128{static_cast<uint64_t>(number)};
}

/// Compares two values that are not null, of types that may differ in width and sign: negative, 0, positive.
inline int compare_values(const ColumnType& a_type, const std::string& a, const ColumnType& b_type, const std::string& b) {
  if (a_type.order == KeyOrder::floating) {
    const double x = floating_of(a_type, a), y = floating_of(b_type, b);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) - std::isnan(y);
    return x < y ? -1 : x > y;
  }
  if (a_type.order == KeyOrder::signed_integer || a_type.order == KeyOrder::unsigned_integer) {
    const __int128 x = integer_of(a_type, a), y = integer_of(b_type, b);
    return x < y ? -1 : x > y;
  }
  return a.compare(b) < 0 ? -1 : a.compare(b) > 0;  // std::string compares as unsigned bytes
}

/// A column that rows are sorted by.
struct By {
  ColumnType type;
  Values values;
  bool descending = false, nulls_last = true;
};

/// Compares rows as a sort does: negative, 0, positive.
inline int compare_rows(const std::vector<By>& by, uint64_t a, uint64_t b) {
  for (const By& column : by) {
    const Value &x = column.values[a], &y = column.values[b];
    if (!x || !y) {
      if (!x && !y) continue;
      return (!x == column.nulls_last) ? 1 : -1;
    }
    const int order = compare_values(column.type, *x, column.type, *y);
    if (order != 0) return column.descending ? -order : order;
  }
  return 0;
}

/// The rows in the order of a stable sort.
inline std::vector<uint64_t> sorted_rows(const std::vector<By>& by) {
  std::vector<uint64_t> rows(by[0].values.size());
  std::iota(rows.begin(), rows.end(), uint64_t{0});
  std::stable_sort(rows.begin(), rows.end(), [&](uint64_t a, uint64_t b) { return compare_rows(by, a, b) < 0; });
  return rows;
}

/// The values of a column that an operator made. Checks its null count, and that bytes under nulls are zero,
/// unless they may be anything.
inline Values values_of(const OwnedColumn& column, const ColumnType& type, bool may_be_anything = false) {
  Values values;
  uint64_t nulls = 0;
  EXPECT_EQ(static_cast<bool>(column.validity), column.null_count != 0);
  EXPECT_EQ(column.type.kind, type.kind);
  EXPECT_EQ(column.type.width, type.width);
  EXPECT_EQ(column.chunk_ends.empty(), !type.variable_width());
  uint64_t chunk = 0;
  ChunkEnd begin;  // of the chunk
  for (uint64_t i = 0; i < column.length; ++i) {
    if (type.variable_width() && i == column.chunk_ends.at(chunk).row) begin = column.chunk_ends[chunk++];
    std::string value;
    const auto text = [&]<class Offset>(const Offset* offsets) {
      EXPECT_TRUE(i > begin.row || offsets[i + chunk] == 0);
      const char* const values = column.values.as<char>() + begin.byte;
      return std::string(values + offsets[i + chunk], values + offsets[i + chunk + 1]);
    };
    if (type.kind == ColumnKind::boolean) {
      value = std::string(1, static_cast<char>((column.values.as<uint8_t>()[i / 8] >> (i % 8)) & 1));
    } else if (type.kind == ColumnKind::utf8) {
      value = text(column.offsets.as<int32_t>());
    } else if (type.kind == ColumnKind::large_utf8) {
      value = text(column.offsets.as<int64_t>());
    } else {
      value = std::string(column.values.as<char>() + i * type.width, type.width);
    }
    if (column.validity && !((column.validity.as<uint8_t>()[i / 8] >> (i % 8)) & 1)) {
      EXPECT_TRUE(may_be_anything || value == std::string(value.size(), '\0'));
      EXPECT_TRUE(!type.variable_width() || value.empty());
      values.push_back({});
      ++nulls;
    } else {
      values.push_back(value);
    }
  }
  EXPECT_EQ(nulls, column.null_count);
  return values;
}

/// Fills what the engine allocates while this lives with garbage, so that results must be written to be right: malloc fills
/// what it gives, and blocks that are kept for reuse are filled here, for results of up to `rows` rows.
class PoisonedMemory {
 public:
  PoisonedMemory(Engine& engine, uint64_t rows) {
    mallopt(M_PERTURB, 0x5A);
    for (size_t bytes = size_t{2} << 20; bytes <= rows * 32; bytes *= 2) {
      HostBuffer a = engine.memory->allocate(bytes, "poison"), b = engine.memory->allocate(bytes, "poison");
      std::memset(a.data(), 0xA5, bytes);
      std::memset(b.data(), 0xA5, bytes);
    }
  }
  // For it is slow: later tests would have every page of their devices' memory filled.
  ~PoisonedMemory() { mallopt(M_PERTURB, 0); }
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;
};

}  // namespace warpjoin::test
