#include "core/memory_copy.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace warpjoin {
namespace {

// The C library goes past the caches above a size that depends on the processor, but not for as little as this.
constexpr size_t kCachedBytes = size_t{128} << 10;

// Accepts null pointers to nothing.
void copy_some(char* target, const char* source, size_t bytes) {
  if (bytes) std::memcpy(target, source, bytes);
}

}  // namespace

void copy_through_caches(void* target, const void* source, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCachedBytes) {
    copy_some(static_cast<char*>(target) + at, static_cast<const char*>(source) + at, std::min(kCachedBytes, bytes - at));
  }
}

void copy_past_caches(void* target, const void* source, size_t bytes) {
  auto* const to = static_cast<char*>(target);
  const auto* const from = static_cast<const char*>(source);
#if defined(__AVX2__)
  constexpr size_t line = 64;
  const size_t head = std::min(bytes, (line - reinterpret_cast<uintptr_t>(to) % line) % line);
  const size_t lines_end = head + (bytes - head) / line * line;
  copy_some(to, from, head);
  for (size_t at = head; at < lines_end; at += line) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + line / 2));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), first);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + line / 2), second);
  }
  _mm_sfence();  // streaming stores are ordered by nothing else
  copy_some(to + lines_end, from + lines_end, bytes - lines_end);
#else
  copy_some(to, from, bytes);
#endif
}

}  // namespace warpjoin
