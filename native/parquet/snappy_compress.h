// Compresses bytes in the raw Snappy format (format_description.txt of google/snappy).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace warpjoin::parquet {

/// Memory that a compression needs; it may be used again without being cleared.
using SnappyTable = std::array<uint16_t, size_t{1} << 14>;

/// The most bytes that `size` bytes become.
constexpr uint64_t snappy_bound(uint64_t size) { return 32 + size + size / 6; }

/// Compresses `size` < 2^32 bytes to `out`, which has space for snappy_bound(size) bytes; returns how many they became. The input
/// is cut into fragments of 64 KiB, and matches stay within one.
uint64_t snappy_compress(const uint8_t* in, uint64_t size, uint8_t* out, SnappyTable& table);

}  // namespace warpjoin::parquet
