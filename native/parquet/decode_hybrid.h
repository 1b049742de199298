// Run lengths and bit-packed values (Encodings.md of the Parquet format, "Run Length Encoding / Bit-Packing Hybrid").
#pragma once

#include <cstdint>
#include <span>

#include "parquet/damaged.h"

namespace warpjoin::parquet {

/// Unpacks `count` values of `width` <= 32 bits, the first one lowest. kSlack bytes behind them may be read.
void unpack(const uint8_t* from, unsigned width, uint64_t count, uint32_t* to);

/// Unpacks values of up to 64 bits.
void unpack(const uint8_t* from, unsigned width, uint64_t count, uint64_t* to);

/// Reads values one run after the other. kSlack bytes behind the runs may be read. Throws Damaged.
class HybridDecoder {
 public:
  /// `width` <= 32.
  HybridDecoder(std::span<const uint8_t> runs, unsigned width) : at_(runs.data()), end_(at_ + runs.size()), width_(width) {}

  /// Part of a run: `count` times `value`, or values packed from `packed` on. `packed` begins a run, or is where a part of a
  /// multiple of eight values ended.
  struct Part {
    uint64_t count = 0;
    uint32_t value = 0;
    const uint8_t* packed = nullptr;
  };
  /// The next part, of 1 to `most` values.
  Part next(uint64_t most);
  /// The next `count` values.
  void read(uint32_t* to, uint64_t count);

 private:
  void start_run();

  const uint8_t* at_;
  const uint8_t* end_;
  unsigned width_;
  uint64_t left_ = 0;  // of the run
  bool packed_ = false;
  uint32_t value_ = 0;               // of a repeated run
  const uint8_t* values_ = nullptr;  // of a packed one
  uint64_t used_ = 0;                // values of it
};

}  // namespace warpjoin::parquet
