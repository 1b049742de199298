// A seeded 64-bit hash of byte strings in the manner of wyhash: multiply 64 by 64 bits, fold the 128.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>

namespace warpjoin {

/// The factors are drawn at random, so that nobody can choose texts whose hashes collide.
class BytesHash {
 public:
  /// `bits`: the hash's topmost bits that are kept. Tests keep few, for different texts to have equal hashes.
  explicit BytesHash(uint64_t seed, unsigned bits = 64) : mask_(bits == 0 ? 0 : ~uint64_t{0} << (64 - bits)) {
    std::mt19937_64 random(seed);
    for (uint64_t* factor : {&a_, &b_, &c_, &d_}) *factor = random();
  }
  static BytesHash seeded_at_random(unsigned bits = 64) {
    std::random_device device;
    return BytesHash(uint64_t{device()} << 32 | device(), bits);
  }

  /// Reads only [data, data + size).
  [[gnu::always_inline]] uint64_t operator()(const uint8_t* data, uint64_t size) const {
    uint64_t first = 0, last = 0, state = d_;
    if (size > 16) {
      uint64_t left = size;
      const uint8_t* at = data;
      if (left > 48) {
        uint64_t second = d_, third = d_;
        for (; left > 48; at += 48, left -= 48) {
          state = fold(word(at) ^ a_, word(at + 8) ^ state);
          second = fold(word(at + 16) ^ b_, word(at + 24) ^ second);
          third = fold(word(at + 32) ^ c_, word(at + 40) ^ third);
        }
        state ^= second ^ third;
      }
      for (; left > 16; at += 16, left -= 16) state = fold(word(at) ^ b_, word(at + 8) ^ state);
      first = word(data + size - 16);
      last = word(data + size - 8);
    } else if (size >= 8) {
      first = word(data);
      last = word(data + size - 8);
    } else if (size >= 4) {
      first = half(data);
      last = half(data + size - 4);
    } else if (size > 0) {
      first = uint64_t{data[0]} << 16 | uint64_t{data[size / 2]} << 8 | data[size - 1];
    }
    return product(c_ ^ size, fold(first ^ b_, last ^ state)) & mask_;
  }

  /// Another hash, of a text of up to 32 bytes: `words` are its bytes and then zeros. No branch depends on the size.
  uint64_t padded(const uint64_t (&words)[4], uint64_t size) const {
    const uint64_t front = fold(words[0] ^ a_, words[1] ^ b_), back = fold(words[2] ^ c_, words[3] ^ d_);
    return product(d_ ^ size, fold(front ^ b_, back ^ a_)) & mask_;
  }

 private:
  static uint64_t word(const uint8_t* at) {
    uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  static uint64_t half(const uint8_t* at) {
    uint32_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  static uint64_t product(uint64_t a, uint64_t b) {
    const auto wide = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(wide) ^ static_cast<uint64_t>(wide >> 64);
  }
  /// Keeps the factors in the sum: one that is zero must not erase the other.
  static uint64_t fold(uint64_t a, uint64_t b) { return product(a, b) ^ a ^ b; }

  uint64_t mask_;
  uint64_t a_, b_, c_, d_;
};

}  // namespace warpjoin
