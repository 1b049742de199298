#include "parquet/encode_bits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "columns/bits.h"

namespace warpjoin::parquet {
namespace {

using columns::low_bits;

template <unsigned Width, class Value>
void pack(const Value* values, uint8_t* out) {
  if constexpr (Width > 0) {
    uint64_t packed = 0;
    unsigned filled = 0;
#pragma GCC unroll 32
    for (unsigned i = 0; i < 32; ++i) {
      const uint64_t value = values[i];
      packed |= value << filled;
      filled += Width;
      if (filled < 64) continue;
      std::memcpy(out, &packed, 8);
      out += 8;
      filled -= 64;
      packed = filled ? value >> (Width - filled) : 0;
    }
    if constexpr (Width % 2) std::memcpy(out, &packed, 4);
  }
}

template <class Value, size_t... Widths>
constexpr auto packers(std::index_sequence<Widths...>) {
  return std::array<void (*)(const Value*, uint8_t*), sizeof...(Widths)>{pack<static_cast<unsigned>(Widths), Value>...};
}

constexpr uint64_t kLeastRun = 32;  ///< shorter runs are packed with the values around them

uint8_t* write_run(uint8_t* out, uint32_t value, uint64_t count, unsigned width) {
  out = write_varint(out, count << 1);
  for (unsigned byte = 0; byte < (width + 7) / 8; ++byte) *out++ = static_cast<uint8_t>(value >> (8 * byte));
  return out;
}

/// `count` values, the last group filled up with zeros.
uint8_t* write_packed(const uint32_t* values, uint64_t count, unsigned width, uint8_t* out) {
  if (count == 0) return out;
  out = write_varint(out, (count + 7) / 8 << 1 | 1);
  for (; count >= 32; count -= 32, values += 32, out += 4 * width) pack32(values, width, out);
  if (count == 0) return out;
  uint32_t rest[32] = {};
  std::copy_n(values, count, rest);
  uint8_t packed[4 * 32];
  pack32(rest, width, packed);
  const uint64_t bytes = (count + 7) / 8 * width;
  std::memcpy(out, packed, bytes);
  return out + bytes;
}

}  // namespace

uint8_t* write_varint(uint8_t* out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<uint8_t>(value | 0x80);
  *out++ = static_cast<uint8_t>(value);
  return out;
}

void pack32(const uint32_t* values, unsigned width, uint8_t* out) {
  static constexpr auto kPackers = packers<uint32_t>(std::make_index_sequence<33>());
  kPackers[width](values, out);
}

void pack32(const uint64_t* values, unsigned width, uint8_t* out) {
  static constexpr auto kPackers = packers<uint64_t>(std::make_index_sequence<65>());
  kPackers[width](values, out);
}

uint8_t* write_hybrid(const uint32_t* values, uint64_t count, unsigned width, uint8_t* out) {
  uint64_t packed_from = 0;  // values from here on are not yet written
  for (uint64_t at = 0; at + kLeastRun <= count;) {
    const uint32_t value = values[at];
    uint64_t end = at;
    if (values[at + kLeastRun - 1] == value && values[at + 8] == value) {
      while (end < count && values[end] == value) ++end;
    }
    if (end - at < kLeastRun) {
      at += 8;  // packed values come in groups of eight
      continue;
    }
    out = write_packed(values + packed_from, at - packed_from, width, out);
    out = write_run(out, value, end - at, width);
    packed_from = at = end;
  }
  return write_packed(values + packed_from, count - packed_from, width, out);
}

void Levels::append(uint64_t bits, unsigned count) {
  if (count == 0) return;
  const auto used = static_cast<unsigned>(rows_ % 64);
  if (used == 0) words_.push_back(0);
  words_.back() |= bits << used;
  if (used + count > 64) words_.push_back(bits >> (64 - used));
  rows_ += count;
  valid_ += static_cast<uint64_t>(std::popcount(bits));
}

void Levels::append_valid(uint64_t count) {
  for (; count >= 64; count -= 64) append(~uint64_t{0}, 64);
  append(low_bits(static_cast<unsigned>(count)), static_cast<unsigned>(count));
}

/// Rows [begin, end), at most 64, of which `begin` is a multiple of 64.
uint64_t Levels::word(uint64_t begin, uint64_t end) const {
  return words_[begin / 64] & low_bits(static_cast<unsigned>(std::min<uint64_t>(end - begin, 64)));
}

uint64_t Levels::valid(uint64_t begin, uint64_t end) const {
  uint64_t count = 0;
  for (uint64_t row = begin; row < end;) {
    const uint64_t to = std::min(end, (row / 64 + 1) * 64);
    const uint64_t bits = words_[row / 64] >> (row % 64) & low_bits(static_cast<unsigned>(to - row));
    count += static_cast<uint64_t>(std::popcount(bits));
    row = to;
  }
  return count;
}

uint8_t* Levels::write(uint64_t begin, uint64_t end, uint8_t* out) const {
  uint8_t* const size_at = out;
  out += 4;
  for (uint64_t row = begin; row < end;) {
    const auto rows_at = [&](uint64_t at) { return std::min<uint64_t>(64, end - at); };
    const auto is_run = [&](uint64_t at) {
      const uint64_t bits = word(at, end);
      return bits == 0 || bits == low_bits(static_cast<unsigned>(rows_at(at)));
    };
    const uint64_t first = row;
    if (is_run(row)) {
      const bool valid = word(row, end) & 1;
      while (row < end && is_run(row) && (word(row, end) & 1) == valid) row += rows_at(row);
      out = write_varint(out, (row - first) << 1);
      *out++ = valid;
      continue;
    }
    while (row < end && !is_run(row)) row += rows_at(row);
    out = write_varint(out, (row - first + 7) / 8 << 1 | 1);
    for (uint64_t at = first; at < row; at += 64) {
      const uint64_t bits = word(at, end), bytes = (rows_at(at) + 7) / 8;
      std::memcpy(out, &bits, bytes);
      out += bytes;
    }
  }
  const auto size = static_cast<uint32_t>(out - size_at - 4);
  std::memcpy(size_at, &size, 4);
  return out;
}

}  // namespace warpjoin::parquet
