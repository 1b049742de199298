// How rows are spread over several devices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace warpjoin {

/// Where device i's equal share of `size` rows begins; i == devices gives the end.
constexpr uint64_t share_begin(uint64_t size, size_t devices, size_t i) {
  return size / devices * i + std::min<uint64_t>(i, size % devices);
}

/// How a column is spread over the memory of several devices: equal stretches of rows, one behind the other. Shard s
/// holds rows [s * shard_rows, (s + 1) * shard_rows), the last ones fewer or none. A shard has whole granules of 2^shift rows,
/// at least 128, so that it begins on a byte of a bitmap and its number follows from a shift and a multiplication.
struct Sharding {
  uint64_t shard_rows = 0;
  uint32_t shift = 0;
  uint32_t factor = 0;  ///< 2^32 over a shard's granules, rounded up

  /// At most `shards` shards of `rows` rows, as even as granules allow: within a 2^16th of the rows, or 256 rows.
  static constexpr Sharding of(uint64_t rows, size_t shards) {
    Sharding sharding;
    sharding.shift = 7;
    while (rows >> sharding.shift >= kMostGranules) ++sharding.shift;
    const uint64_t granules = (rows >> sharding.shift) + 1;
    const uint64_t each = std::max<uint64_t>(2, (granules + shards - 1) / shards);
    sharding.shard_rows = each << sharding.shift;
    // Exact for all granules below 2^16: the error of the product stays below one part in `each`.
    sharding.factor = static_cast<uint32_t>((uint64_t{1} << 32) / each + 1);
    return sharding;
  }

  constexpr uint32_t shard_of(uint64_t row) const {
    return static_cast<uint32_t>((uint64_t{static_cast<uint32_t>(row >> shift)} * factor) >> 32);
  }

 private:
  static constexpr uint64_t kMostGranules = uint64_t{1} << 16;
};

}  // namespace warpjoin
