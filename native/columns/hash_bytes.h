// A fast 64-bit hash of byte strings in the manner of wyhash: multiply 64 by 64 bits, fold the 128.
#pragma once

#include <cstdint>

#include "columns/bits.h"

namespace warpjoin::columns {

inline uint64_t fold_product(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

/// Reads only [data, data + size).
inline uint64_t hash_bytes(const uint8_t* data, uint64_t size) {
  constexpr uint64_t kA = 0xA0761D6478BD642Full, kB = 0xE7037ED1A0B428DBull, kC = 0x8EBC6AF09C88C6E3ull;
  // None of the multipliers above: a product of equal factors would not tell its two words apart.
  constexpr uint64_t kSeed = 0x589965CC75374CC3ull;
  uint64_t a = 0, b = 0, seed = kSeed;
  if (size > 16) {
    uint64_t left = size;
    const uint8_t* at = data;
    if (left > 48) {
      uint64_t second = kSeed, third = kSeed;
      for (; left > 48; at += 48, left -= 48) {
        seed = fold_product(load<uint64_t>(at) ^ kA, load<uint64_t>(at + 8) ^ seed);
        second = fold_product(load<uint64_t>(at + 16) ^ kB, load<uint64_t>(at + 24) ^ second);
        third = fold_product(load<uint64_t>(at + 32) ^ kC, load<uint64_t>(at + 40) ^ third);
      }
      seed ^= second ^ third;
    }
    for (; left > 16; at += 16, left -= 16) seed = fold_product(load<uint64_t>(at) ^ kB, load<uint64_t>(at + 8) ^ seed);
    a = load<uint64_t>(data + size - 16);
    b = load<uint64_t>(data + size - 8);
  } else if (size >= 8) {
    a = load<uint64_t>(data);
    b = load<uint64_t>(data + size - 8);
  } else if (size >= 4) {
    a = load<uint32_t>(data);
    b = load<uint32_t>(data + size - 4);
  } else if (size > 0) {
    a = uint64_t{data[0]} << 16 | uint64_t{data[size / 2]} << 8 | data[size - 1];
  }
  return fold_product(kC ^ size, fold_product(a ^ kB, b ^ seed));
}

}  // namespace warpjoin::columns
