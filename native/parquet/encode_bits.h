// Parquet's hybrid of run lengths and bit-packed values (Encodings.md of the Apache Parquet format): levels and indices.
#pragma once

#include <cstdint>
#include <vector>

namespace warpjoin::parquet {

/// Writes an unsigned LEB128 number of up to 10 bytes; returns where it ends.
uint8_t* write_varint(uint8_t* out, uint64_t value);

/// Packs 32 values of up to `width` bits, lowest bit first, to 4 * `width` bytes. Higher bits of the values must be 0.
void pack32(const uint32_t* values, unsigned width, uint8_t* out);  ///< width <= 32
void pack32(const uint64_t* values, unsigned width, uint8_t* out);  ///< width <= 64

/// The most bytes that write_hybrid() writes.
constexpr uint64_t hybrid_bound(uint64_t count, unsigned width) { return (count + 63) / 8 * width + count / 4 + 64; }
/// Writes `count` values below 2^width, 1 <= width <= 32; returns where they end. `out` has space for hybrid_bound() bytes.
/// `values` may be read up to the next multiple of 32: what is there counts as 0.
uint8_t* write_hybrid(const uint32_t* values, uint64_t count, unsigned width, uint8_t* out);

/// Which of a page's rows have values: definition levels of one bit.
class Levels {
 public:
  void clear() {
    rows_ = valid_ = 0;
    words_.clear();
  }
  /// Adds `count` <= 64 rows; higher bits must be 0.
  void append(uint64_t bits, unsigned count);
  void append_valid(uint64_t count);
  uint64_t rows() const { return rows_; }
  uint64_t valid() const { return valid_; }
  bool bit(uint64_t row) const { return words_[row / 64] >> (row % 64) & 1; }
  /// Valid ones of rows [begin, end).
  uint64_t valid(uint64_t begin, uint64_t end) const;
  /// The most bytes that write() writes for so many rows.
  static constexpr uint64_t bound(uint64_t rows) { return rows / 8 + rows / 16 + 64; }
  /// Writes rows [begin, end) with the four bytes of their length; returns where they end. `begin` is a multiple of 64.
  uint8_t* write(uint64_t begin, uint64_t end, uint8_t* out) const;

 private:
  uint64_t word(uint64_t begin, uint64_t end) const;

  uint64_t rows_ = 0, valid_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace warpjoin::parquet
