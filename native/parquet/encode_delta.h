// DELTA_BINARY_PACKED (Encodings.md of the Apache Parquet format): integers as packed differences.
#pragma once

#include <cstdint>

namespace warpjoin::parquet {

inline constexpr uint64_t kDeltaBlock = 128;  ///< values of a block, which has four miniblocks

/// The most bytes that `count` values of `width` bytes become.
constexpr uint64_t delta_bound(uint64_t count, uint64_t width) {
  return 64 + (count / kDeltaBlock + 1) * (kDeltaBlock * width + 16);
}
/// Writes integers; returns where they end. Differences wrap around, as readers' sums do.
uint8_t* write_delta(const int32_t* values, uint64_t count, uint8_t* out);
uint8_t* write_delta(const int64_t* values, uint64_t count, uint8_t* out);

}  // namespace warpjoin::parquet
