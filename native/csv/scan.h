// Bytes of CSV text, 64 at a time.
#pragma once

#include <bit>
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace warpjoin::csv {

/// Bytes that must be readable behind the text that is scanned.
inline constexpr uint64_t kPadding = 64;

/// The lowest `count` bits, count <= 64.
inline uint64_t below(uint64_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

/// 64 bytes of text.
class Window {
 public:
#if defined(__AVX2__)
  explicit Window(const uint8_t* at)
      : low_(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))),
        high_(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32))) {}
  /// A bit for each byte that is `byte`, the first one lowest.
  uint64_t where(uint8_t byte) const {
    const __m256i wanted = _mm256_set1_epi8(static_cast<char>(byte));
    return bits(_mm256_cmpeq_epi8(low_, wanted), _mm256_cmpeq_epi8(high_, wanted));
  }
  /// A bit for each byte that is not ASCII.
  uint64_t above_ascii() const { return bits(low_, high_); }

 private:
  static uint64_t bits(__m256i low, __m256i high) {
    const auto first = static_cast<uint32_t>(_mm256_movemask_epi8(low));
    return first | static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(high))) << 32;
  }
  __m256i low_, high_;
#else
  explicit Window(const uint8_t* at) : at_(at) {}
  uint64_t where(uint8_t byte) const {
    uint64_t bits = 0;
    for (unsigned i = 0; i < 64; ++i) bits |= static_cast<uint64_t>(at_[i] == byte) << i;
    return bits;
  }
  uint64_t above_ascii() const {
    uint64_t bits = 0;
    for (unsigned i = 0; i < 64; ++i) bits |= static_cast<uint64_t>(at_[i] >> 7) << i;
    return bits;
  }

 private:
  const uint8_t* at_;
#endif
};

/// How many of the first `size` bytes are `byte`.
inline uint64_t count_bytes(const uint8_t* text, uint64_t size, uint8_t byte) {
  uint64_t count = 0;
  for (uint64_t base = 0; base < size; base += 64) {
    count += static_cast<uint64_t>(std::popcount(Window(text + base).where(byte) & below(size - base)));
  }
  return count;
}

}  // namespace warpjoin::csv
