// Unaligned loads and bitmaps. Nothing here reads a byte that the caller's claim does not cover.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace warpjoin::columns {

template <class T>
inline T load(const void* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

template <class T>
inline T load(const void* array, uint64_t index) {
  return load<T>(static_cast<const char*>(array) + index * sizeof(T));
}

/// Element `index` of an array, read exactly once: where another thread may write it, all that is decided by it agrees.
template <class T>
inline T load_once(const void* array, uint64_t index) {
  return __atomic_load_n(static_cast<const T*>(array) + index, __ATOMIC_RELAXED);
}

constexpr uint64_t low_bits(unsigned count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

inline bool bit_at(const void* bitmap, uint64_t bit) { return (static_cast<const uint8_t*>(bitmap)[bit / 8] >> (bit % 8)) & 1; }

/// Bits [first, first + count) of a bitmap, count <= 64, the first one lowest.
inline uint64_t bits_at(const void* bitmap, uint64_t first, unsigned count) {
  const uint8_t* bytes = static_cast<const uint8_t*>(bitmap) + first / 8;
  const unsigned shift = static_cast<unsigned>(first % 8), span = (shift + count + 7) / 8;
  uint64_t word = 0;
  if (span >= 8) {
    word = load<uint64_t>(bytes);
  } else {
    std::memcpy(&word, bytes, span);
  }
  word >>= shift;
  if (span == 9) word |= uint64_t{bytes[8]} << (64 - shift);
  return word & low_bits(count);
}

/// The first `size` <= 8 bytes of text, the first one highest, then zeros. `end`: the end of the readable bytes behind it.
inline uint64_t leading_bytes(const uint8_t* text, uint64_t size, const uint8_t* end) {
  if (size == 0) return 0;
  uint64_t word = 0;
  if (end - text >= 8) {
    word = load<uint64_t>(text);
  } else {
    std::memcpy(&word, text, size);
  }
  return __builtin_bswap64(word) & ~low_bits(static_cast<unsigned>(64 - 8 * size));
}

/// Whether two texts of `size` bytes are the same.
inline bool equal_bytes(const uint8_t* a, const uint8_t* b, uint64_t size) {
  if (size < 4) {
    for (uint64_t i = 0; i < size; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }
  if (size < 8) return load<uint32_t>(a) == load<uint32_t>(b) && load<uint32_t>(a + size - 4) == load<uint32_t>(b + size - 4);
  for (uint64_t i = 0; i + 8 < size; i += 8) {
    if (load<uint64_t>(a + i) != load<uint64_t>(b + i)) return false;
  }
  return load<uint64_t>(a + size - 8) == load<uint64_t>(b + size - 8);
}

/// How many leading bytes of two texts of `size` bytes agree.
inline uint64_t common_bytes(const uint8_t* a, const uint8_t* b, uint64_t size) {
  uint64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    const uint64_t differ = load<uint64_t>(a + i) ^ load<uint64_t>(b + i);
    if (differ) return i + static_cast<uint64_t>(std::countr_zero(differ)) / 8;
  }
  while (i < size && a[i] == b[i]) ++i;
  return i;
}

}  // namespace warpjoin::columns
