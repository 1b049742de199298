// Snappy's raw format (format_description.txt of google/snappy), which has no checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace warpjoin::parquet {

/// No three bytes stand for more than 64.
constexpr uint64_t most_snappy_bytes(uint64_t compressed) { return compressed * 22 + 64; }

/// Bytes that the compressed ones say they become; nothing where they don't begin with a number.
std::optional<uint64_t> snappy_size(std::span<const uint8_t> compressed);

/// Decompresses into `to`, which has `size` bytes. False where the bytes are damaged or become another number of bytes. kSlack
/// bytes behind `compressed` may be read, and as many behind `to` are written.
bool snappy_decompress(std::span<const uint8_t> compressed, uint8_t* to, uint64_t size);

}  // namespace warpjoin::parquet
