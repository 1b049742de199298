// Arrays of integers whose width is known only at run time: 4 or 8 bytes, or 0 where there is no array. A memcpy of such a
// width is a call, which sanitizers check far more slowly than a load.
#pragma once

#include <cstdint>

namespace warpjoin::words {

inline uint64_t read(const void* array, uint8_t width, uint64_t i) {
  if (width == 0) return 0;
  return width == 4 ? static_cast<const uint32_t*>(array)[i] : static_cast<const uint64_t*>(array)[i];
}

inline void write(void* array, uint8_t width, uint64_t i, uint64_t word) {
  if (width == 4) static_cast<uint32_t*>(array)[i] = static_cast<uint32_t>(word);
  if (width == 8) static_cast<uint64_t*>(array)[i] = word;
}

}  // namespace warpjoin::words
