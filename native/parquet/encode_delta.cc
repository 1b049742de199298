#include "parquet/encode_delta.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "parquet/encode_bits.h"

namespace warpjoin::parquet {
namespace {

constexpr unsigned kMiniblocks = 4, kMiniblock = kDeltaBlock / kMiniblocks;

uint8_t* write_zigzag(uint8_t* out, int64_t value) {
  return write_varint(out, static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
}

template <class Bits>
uint8_t* write_miniblock(const Bits* differences, unsigned width, uint8_t* out) {
  if constexpr (sizeof(Bits) == 8) {
    if (width <= 32) {
      uint32_t narrow[kMiniblock];
      for (unsigned i = 0; i < kMiniblock; ++i) narrow[i] = static_cast<uint32_t>(differences[i]);
      pack32(narrow, width, out);
      return out + 4 * width;
    }
  }
  pack32(differences, width, out);
  return out + 4 * width;
}

/// `count` <= 128 values that follow the one before them.
template <class Value>
uint8_t* write_block(const Value* values, uint64_t count, uint8_t* out) {
  using Bits = std::make_unsigned_t<Value>;
  Bits differences[kDeltaBlock] = {};
  for (uint64_t i = 0; i < count; ++i) {
    differences[i] = static_cast<Bits>(values[i]) - static_cast<Bits>(*(values + i - 1));
  }
  auto least = static_cast<Value>(differences[0]);
  for (uint64_t i = 1; i < count; ++i) least = std::min(least, static_cast<Value>(differences[i]));
  for (uint64_t i = 0; i < count; ++i) differences[i] -= static_cast<Bits>(least);
  out = write_zigzag(out, least);
  uint8_t* const widths = out;
  out += kMiniblocks;
  for (unsigned block = 0; block < kMiniblocks; ++block) {
    Bits all = 0;
    for (unsigned i = 0; i < kMiniblock; ++i) all |= differences[block * kMiniblock + i];
    const auto width = static_cast<unsigned>(std::bit_width(all));
    widths[block] = static_cast<uint8_t>(width);
    out = write_miniblock(differences + block * kMiniblock, width, out);
  }
  return out;
}

template <class Value>
uint8_t* write(const Value* values, uint64_t count, uint8_t* out) {
  out = write_varint(out, kDeltaBlock);
  out = write_varint(out, kMiniblocks);
  out = write_varint(out, count);
  out = write_zigzag(out, count ? values[0] : 0);
  for (uint64_t at = 1; at < count; at += kDeltaBlock) {
    out = write_block(values + at, std::min(kDeltaBlock, count - at), out);
  }
  return out;
}

}  // namespace

uint8_t* write_delta(const int32_t* values, uint64_t count, uint8_t* out) { return write(values, count, out); }
uint8_t* write_delta(const int64_t* values, uint64_t count, uint8_t* out) { return write(values, count, out); }

}  // namespace warpjoin::parquet
