// Columns of every kind that can be a key, and their values.
#pragma once

#include "columns/plain_keys.h"
#include "test_columns.h"

namespace warpjoin::test {

using columns::KeyFactor;

/// An integer of any size, in base 256.
struct Big {
  bool negative = false;
  std::vector<uint8_t> digits;  // least significant first, without leading zeros

  void trim() {
    while (!digits.empty() && digits.back() == 0) digits.pop_back();
    if (digits.empty()) negative = false;
  }
  void multiply(uint32_t factor) {
    uint64_t carry = 0;
    for (uint8_t& digit : digits) {
      carry += uint64_t{digit} * factor;
      digit = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
    for (; carry; carry >>= 8) digits.push_back(static_cast<uint8_t>(carry));
  }
  friend int compare(const Big& a, const Big& b) {
    if (a.negative != b.negative) return a.negative ? -1 : 1;
    int order = a.digits.size() < b.digits.size() ? -1 : a.digits.size() > b.digits.size();
    for (size_t i = a.digits.size(); order == 0 && i-- > 0;) {
      order = a.digits[i] < b.digits[i] ? -1 : a.digits[i] > b.digits[i];
    }
    return a.negative ? -order : order;
  }
};

inline Big big_of(const ColumnType& type, const std::string& value, const KeyFactor& factor = {}) {
  Big big;
  big.digits.assign(value.begin(), value.end());
  big.negative = type.order == KeyOrder::signed_integer && (big.digits.back() & 0x80);
  if (big.negative) {
    unsigned carry = 1;
    for (uint8_t& digit : big.digits) {
      carry += static_cast<uint8_t>(~digit);
      digit = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
    if (carry) big.digits.push_back(1);
  }
  big.trim();
  for (uint32_t i = 0; i < factor.pow10; ++i) big.multiply(10);
  big.multiply(factor.times);
  return big;
}

inline Big big_of(__int128 number) {
  std::string bytes(reinterpret_cast<const char*>(&number), 16);
  return big_of(signed_type(16), bytes);
}

/// The values of a column of a plain kind.
inline Values values_in(const Column& column) {
  Values values;
  const ColumnType& type = column.type;
  for (const ColumnChunk& chunk : column.chunks) {
    for (uint64_t i = 0; i < chunk.length; ++i) {
      const uint64_t bit = chunk.bit_offset + i;
      const auto* bytes = static_cast<const char*>(chunk.values);
      if (chunk.validity && !(chunk.validity[bit / 8] >> (bit % 8) & 1)) {
        values.push_back({});
      } else if (type.kind == ColumnKind::boolean) {
        values.push_back(std::string(1, static_cast<char>(bytes[bit / 8] >> (bit % 8) & 1)));
      } else if (type.kind == ColumnKind::utf8) {
        const auto* offsets = static_cast<const int32_t*>(chunk.offsets);
        EXPECT_LE(static_cast<uint64_t>(offsets[i + 1]), chunk.values_bytes);
        values.push_back(std::string(bytes + offsets[i], bytes + offsets[i + 1]));
      } else if (type.kind == ColumnKind::large_utf8) {
        const auto* offsets = static_cast<const int64_t*>(chunk.offsets);
        EXPECT_LE(static_cast<uint64_t>(offsets[i + 1]), chunk.values_bytes);
        values.push_back(std::string(bytes + offsets[i], bytes + offsets[i + 1]));
      } else {
        values.push_back(std::string(bytes + i * type.width, type.width));
      }
    }
  }
  EXPECT_EQ(values.size(), column.length);
  return values;
}

/// Values of integers of any width, those at the ends of 64 and of all bits among them.
inline Value draw_integer(const ColumnType& type, std::mt19937_64& random) {
  if (random() % 8 == 0) return {};
  const bool is_signed = type.order == KeyOrder::signed_integer;
  std::string bytes(type.width, '\0');
  const auto fill = [&](int64_t number) {
    std::fill(bytes.begin(), bytes.end(), static_cast<char>(number < 0 ? 0xFF : 0));
    std::memcpy(bytes.data(), &number, std::min<size_t>(8, type.width));
  };
  switch (random() % 6) {
    case 0: fill(static_cast<int64_t>(random() % 5) - (is_signed ? 2 : 0)); break;
    case 1: fill(is_signed && random() % 2 ? INT64_MIN : INT64_MAX); break;
    case 2:  // one beyond 64 bits, where there is room
      fill(INT64_MAX);
      if (type.width > 8) bytes[8] = static_cast<char>(random() % 2);
      break;
    case 3: {
      std::fill(bytes.begin(), bytes.end(), static_cast<char>(random() % 2 ? 0xFF : 0));
      bytes.back() = static_cast<char>(random() % 2 ? 0x80 : 0x7F);
      break;
    }
    case 4: {
      const uint64_t size = 1 + random() % type.width;
      const bool negative = is_signed && random() % 2;
      for (uint64_t i = 0; i < type.width; ++i) bytes[i] = static_cast<char>(i < size ? random() : negative ? 0xFF : 0);
      break;
    }
    default: fill(static_cast<int64_t>(random() % 100'000) * (is_signed && random() % 2 ? -1 : 1));
  }
  return bytes;
}

inline std::vector<ColumnType> integer_types() {
  std::vector<ColumnType> types{signed_type(16), signed_type(32)};
  for (const uint32_t width : {1u, 2u, 4u, 8u}) {
    types.push_back(signed_type(width));
    types.push_back(unsigned_type(width));
  }
  return types;
}

/// Views with the memory behind them.
struct ViewColumn {
  Column column;

  ViewColumn(std::string name, const Values& values, std::mt19937_64& random) {
    column.name = std::move(name);
    column.type = {ColumnKind::view, KeyOrder::bytes, 0};
    column.length = values.size();
    const std::vector<uint64_t> lengths = TestColumn::random_lengths(values.size(), random);
    uint64_t begin = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const uint64_t left = values.size() - begin;
      const uint64_t length = i + 1 == lengths.size() ? left : std::min(lengths[i], left);
      add_chunk(values, begin, length, random);
      begin += length;
    }
  }

  std::vector<std::unique_ptr<std::vector<uint8_t>>> memory;

 private:
  uint8_t* keep(std::vector<uint8_t> bytes) {
    memory.push_back(std::make_unique<std::vector<uint8_t>>(std::move(bytes)));
    return memory.back()->data();
  }
  void add_chunk(const Values& values, uint64_t begin, uint64_t length, std::mt19937_64& random) {
    ColumnChunk chunk;
    chunk.length = length;
    chunk.bit_offset = random() % 9;
    std::vector<uint8_t> bitmap((chunk.bit_offset + length + 7) / 8), views(length * 16);
    std::vector<std::vector<uint8_t>> buffers(1 + random() % 3);
    for (uint64_t i = 0; i < length; ++i) {
      const Value& value = values[begin + i];
      if (!value) {  // anything may be under a null
        for (int byte = 0; byte < 16; ++byte) views[i * 16 + byte] = static_cast<uint8_t>(random());
        continue;
      }
      bitmap[(chunk.bit_offset + i) / 8] |= static_cast<uint8_t>(1 << (chunk.bit_offset + i) % 8);
      const auto size = static_cast<uint32_t>(value->size());
      std::memcpy(&views[i * 16], &size, 4);
      if (size <= 12) {
        std::memcpy(&views[i * 16 + 4], value->data(), size);
        continue;
      }
      const auto number = static_cast<uint32_t>(random() % buffers.size());
      const auto offset = static_cast<uint32_t>(buffers[number].size());
      std::memcpy(&views[i * 16 + 4], value->data(), 4);
      std::memcpy(&views[i * 16 + 8], &number, 4);
      std::memcpy(&views[i * 16 + 12], &offset, 4);
      buffers[number].insert(buffers[number].end(), value->begin(), value->end());
    }
    auto spans = std::make_shared<std::vector<ViewBuffer>>();
    for (auto& buffer : buffers) {
      const uint64_t size = buffer.size();
      spans->push_back({keep(std::move(buffer)), size});
    }
    chunk.buffers = *spans;
    column.view_buffers.push_back(spans);
    chunk.validity_bytes = bitmap.size();
    chunk.validity = keep(std::move(bitmap));
    chunk.values_bytes = views.size();
    chunk.values = keep(std::move(views));
    column.chunks.push_back(chunk);
  }
};

/// Indices of dictionaries that differ by chunk, with the memory behind them.
struct DictionaryColumn {
  Column column;
  Values values;

  /// `draw` gives a value of a dictionary.
  template <class Draw>
  DictionaryColumn(std::string name, const ColumnType& index, const ColumnType& type, uint64_t rows, Draw&& draw,
                   std::mt19937_64& random) {
    column.name = std::move(name);
    column.type = index;
    Values entries;
    const uint64_t chunks = 1 + random() % 4;
    for (uint64_t i = 0; i < chunks; ++i) {
      const uint64_t begin = random() % 3 && !entries.empty() ? begin_ : entries.size();  // sometimes the dictionary before
      if (begin == entries.size()) {
        const uint64_t size = 1 + random() % 12;
        for (uint64_t entry = 0; entry < size; ++entry) entries.push_back(draw());
        begin_ = begin;
        size_ = size;
      }
      const uint64_t length = random() % (2 * rows / chunks + 1);
      Values indices;
      for (uint64_t row = 0; row < length; ++row) {
        const uint64_t entry = random() % size_;
        std::string bytes(index.width, '\0');
        std::memcpy(bytes.data(), &entry, std::min<size_t>(8, index.width));
        const bool null = random() % 8 == 0;
        indices.push_back(null ? Value() : Value(bytes));
        values.push_back(null ? Value() : entries[begin + entry]);
      }
      indices_.push_back(std::make_unique<TestColumn>("", index, indices, std::vector<uint64_t>{length}, random));
      for (ColumnChunk chunk : indices_.back()->column.chunks) {
        chunk.dictionary_base = begin;
        chunk.dictionary_size = size_;
        column.chunks.push_back(chunk);
        column.length += chunk.length;
      }
    }
    entries_ = std::make_unique<TestColumn>("values", type, entries, random);
    column.dictionary = std::make_shared<const Column>(entries_->column);
  }

 private:
  std::vector<std::unique_ptr<TestColumn>> indices_;
  std::unique_ptr<TestColumn> entries_;
  uint64_t begin_ = 0, size_ = 0;
};

}  // namespace warpjoin::test
