// Values of fixed width as Arrow has them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "parquet/metadata.h"

namespace warpjoin::parquet {

/// How a column's values become Arrow's.
enum class Storage : uint8_t {
  boolean,
  same,           ///< the same bytes
  narrowed,       ///< 32 bits to 8 or 16: the low ones
  widened,        ///< 32 or 64 bits to 128, signed
  timestamp,      ///< int96: nanoseconds of the day and a Julian day, to nanoseconds since 1970
  decimal,        ///< a big-endian integer of fixed width, to 128 bits
  texts,          ///< of UTF-8
  bytes,          ///< of any bytes
  decimal_texts,  ///< a big-endian integer of varying width, to 128 bits
};

struct Layout {
  Storage storage = Storage::same;
  uint32_t from_width = 0;  ///< bytes of a value in pages; 0: it varies, or is a bit
  uint32_t width = 0;       ///< bytes of a value in Arrow; the same

  bool has_texts() const { return storage == Storage::texts || storage == Storage::bytes; }
  bool is_variable() const { return storage >= Storage::texts; }
};

/// How a flat column is read; nothing for one that is nested, or whose type is not read here.
std::optional<Layout> layout_of(const Leaf& leaf);

/// Makes `count` values of fixed width, at `from`, Arrow's.
void convert(const Layout& layout, const uint8_t* from, uint64_t count, uint8_t* to);

/// A big-endian signed integer of up to 16 bytes as one of 16 bytes, little-endian. Throws Damaged for a longer one.
void widen_decimal(const uint8_t* from, uint64_t bytes, uint8_t* to);

/// BYTE_STREAM_SPLIT: `values` streams of a byte each become `count` values of `width` bytes, of `total` that the streams have.
void join_streams(const uint8_t* from, uint64_t total, uint32_t width, uint64_t count, uint8_t* to);

/// Values of a dictionary at `count` indices, which are in range.
void gather(const uint8_t* dictionary, uint32_t width, const uint32_t* indices, uint64_t count, uint8_t* to);

/// Moves the values of rows that are valid, which are the first, to their rows; others become 0. Bit `row` of `validity` belongs
/// to the first row.
void spread(uint8_t* values, uint32_t width, const uint8_t* validity, uint64_t row, uint64_t rows, uint64_t valid);

}  // namespace warpjoin::parquet
