#include "parquet/snappy_compress.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "columns/bits.h"

namespace warpjoin::parquet {
namespace {

using columns::load;

constexpr uint64_t kFragment = uint64_t{1} << 16;
constexpr uint64_t kMargin = 15;  ///< positions so near to the end begin no match: loads of 8 bytes stay within the fragment

uint8_t* emit_literal(const uint8_t* from, uint64_t size, uint8_t* out) {
  const auto less_one = static_cast<uint32_t>(size - 1);
  if (less_one < 60) {
    *out++ = static_cast<uint8_t>(less_one << 2);
  } else if (less_one < 256) {
    *out++ = 60 << 2;
    *out++ = static_cast<uint8_t>(less_one);
  } else {
    *out++ = 61 << 2;
    *out++ = static_cast<uint8_t>(less_one);
    *out++ = static_cast<uint8_t>(less_one >> 8);
  }
  std::memcpy(out, from, size);
  return out + size;
}

/// Up to 64 bytes.
uint8_t* emit_copy_part(uint64_t offset, uint64_t size, uint8_t* out) {
  if (size < 12 && offset < 2048) {
    *out++ = static_cast<uint8_t>(1 | (size - 4) << 2 | offset >> 8 << 5);
    *out++ = static_cast<uint8_t>(offset);
    return out;
  }
  *out++ = static_cast<uint8_t>(2 | (size - 1) << 2);
  *out++ = static_cast<uint8_t>(offset);
  *out++ = static_cast<uint8_t>(offset >> 8);
  return out;
}

/// At least 4 bytes.
uint8_t* emit_copy(uint64_t offset, uint64_t size, uint8_t* out) {
  for (; size >= 68; size -= 64) out = emit_copy_part(offset, 64, out);
  if (size > 64) {
    out = emit_copy_part(offset, 60, out);  // so that at least 4 are left
    size -= 60;
  }
  return emit_copy_part(offset, size, out);
}

uint64_t match_size(const uint8_t* a, const uint8_t* b, const uint8_t* end) {
  const uint8_t* const begin = b;
  for (; end - b >= 8; a += 8, b += 8) {
    const uint64_t differ = load<uint64_t>(a) ^ load<uint64_t>(b);
    if (differ) return static_cast<uint64_t>(b - begin) + static_cast<uint64_t>(std::countr_zero(differ)) / 8;
  }
  while (b < end && *a == *b) ++a, ++b;
  return static_cast<uint64_t>(b - begin);
}

uint8_t* compress_fragment(const uint8_t* in, uint64_t size, uint8_t* out, SnappyTable& table) {
  const uint8_t* const end = in + size;
  const uint8_t* literal = in;  // bytes from here on are not yet written
  if (size > kMargin) {
    const unsigned bits = std::clamp<unsigned>(static_cast<unsigned>(std::bit_width(size)), 8, 14);
    std::fill_n(table.begin(), size_t{1} << bits, uint16_t{0});
    const auto slot = [&](uint32_t word) -> uint16_t& { return table[(word * 0x9E3779B1u) >> (32 - bits)]; };
    const uint8_t* const last = end - kMargin;
    const uint8_t* at = in + 1;
    while (at < last) {
      // The longer nothing matches, the more bytes are skipped.
      const uint8_t* found = nullptr;
      for (uint32_t misses = 32; at < last; at += misses++ >> 5) {
        const auto word = load<uint32_t>(at);
        uint16_t& known = slot(word);
        const uint8_t* const candidate = in + known;
        known = static_cast<uint16_t>(at - in);
        if (candidate < at && load<uint32_t>(candidate) == word) {
          found = candidate;
          break;
        }
      }
      if (!found) break;
      if (at > literal) out = emit_literal(literal, static_cast<uint64_t>(at - literal), out);
      for (;;) {
        const uint64_t length = 4 + match_size(found + 4, at + 4, end);
        out = emit_copy(static_cast<uint64_t>(at - found), length, out);
        at += length;
        literal = at;
        if (at >= last) break;
        slot(load<uint32_t>(at - 1)) = static_cast<uint16_t>(at - 1 - in);
        const auto word = load<uint32_t>(at);
        uint16_t& known = slot(word);
        found = in + known;
        known = static_cast<uint16_t>(at - in);
        if (load<uint32_t>(found) != word) {
          ++at;
          break;
        }
      }
    }
  }
  if (end > literal) out = emit_literal(literal, static_cast<uint64_t>(end - literal), out);
  return out;
}

}  // namespace

uint64_t snappy_compress(const uint8_t* in, uint64_t size, uint8_t* out, SnappyTable& table) {
  uint8_t* at = out;
  uint64_t left = size;
  for (; left >= 0x80; left >>= 7) *at++ = static_cast<uint8_t>(left | 0x80);
  *at++ = static_cast<uint8_t>(left);
  for (uint64_t begin = 0; begin < size; begin += kFragment) {
    at = compress_fragment(in + begin, std::min(kFragment, size - begin), at, table);
  }
  return static_cast<uint64_t>(at - out);
}

}  // namespace warpjoin::parquet
