// How large tests are.
#pragma once

#include <cstdint>

namespace warpjoin {

/// So many rows or rounds; a quarter of them under TSan, where each takes fifteen times as long and races no more.
constexpr uint64_t many(uint64_t count) {
#ifdef __SANITIZE_THREAD__
  return count / 4;
#else
  return count;
#endif
}

}  // namespace warpjoin
