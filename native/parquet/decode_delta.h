// Differences of integers (Encodings.md of the Parquet format, "Delta Encoding").
#pragma once

#include <cstdint>
#include <span>

#include "parquet/damaged.h"

namespace warpjoin::parquet {

/// Reads DELTA_BINARY_PACKED values. kSlack bytes behind the bytes may be read. Throws Damaged.
class DeltaDecoder {
 public:
  explicit DeltaDecoder(std::span<const uint8_t> bytes);

  /// Values that the bytes hold, as they say.
  uint64_t total() const { return total_; }
  /// The next `count` values: what they are modulo 2^32 or 2^64.
  void read(uint32_t* to, uint64_t count) { read_values(to, count); }
  void read(uint64_t* to, uint64_t count) { read_values(to, count); }
  /// What follows the values, all of which were read.
  const uint8_t* rest() const { return at_; }

 private:
  template <class T>
  void read_values(T* to, uint64_t count);
  uint64_t varint();
  void start_block();
  void start_miniblock();

  const uint8_t* at_;
  const uint8_t* end_;
  uint64_t total_ = 0, left_ = 0;
  uint64_t miniblocks_ = 0, miniblock_values_ = 0;
  uint64_t value_ = 0;  // the last one, or the first before it was read
  bool started_ = false;
  uint64_t least_ = 0;               // of the block's differences
  const uint8_t* widths_ = nullptr;  // of the block's miniblocks
  uint64_t miniblock_ = 0;           // of the block: those that were started
  unsigned width_ = 0;
  const uint8_t* packed_ = nullptr;
  uint64_t used_ = 0, in_miniblock_ = 0;
};

}  // namespace warpjoin::parquet
