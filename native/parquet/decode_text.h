// Texts: values of varying width, as Arrow has them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/column.h"
#include "core/host_memory.h"
#include "parquet/damaged.h"

namespace warpjoin::parquet {

/// What the memory of a column is for.
inline constexpr const char* kColumnPurpose = "a column of a Parquet file";

/// Texts of a dictionary, one behind the other. kSlack bytes behind them may be read.
struct TextDictionary {
  const uint8_t* bytes = nullptr;
  const uint32_t* begins = nullptr;  ///< of each text, and the end of the last one: a page has less than 2 GiB

  std::span<const uint8_t> operator[](uint64_t index) const { return {bytes + begins[index], begins[index + 1] - begins[index]}; }
};

/// Throws Damaged for bytes that are not UTF-8.
void check_utf8(const uint8_t* bytes, uint64_t size);
bool is_utf8(const uint8_t* bytes, uint64_t size);

/// A column of texts in the making, in chunks whose offsets fit. Texts of valid rows are appended; then rows get them.
class TextColumn {
 public:
  TextColumn(std::shared_ptr<HostMemory> memory, uint64_t rows, bool large, bool utf8, uint64_t most_chunk_bytes);

  /// Values of PLAIN: each behind its length. Appends those of `rows` rows, of which `valid` have one; the bits of `validity`
  /// from the column's row on say which, null: all have.
  void append_plain(std::span<const uint8_t> bytes, uint64_t rows, uint64_t valid, const uint8_t* validity);
  /// Values of a dictionary, at most kBlockRows rows. Indices are in range.
  void append_indexed(const TextDictionary& dictionary, const uint32_t* indices, uint64_t rows, uint64_t valid,
                      const uint8_t* validity);
  /// Values that lie one behind the other, with their lengths.
  void append_lengths(std::span<const uint8_t> bytes, const uint32_t* lengths, uint64_t rows, uint64_t valid,
                      const uint8_t* validity);
  /// Values of which each begins with the first bytes of the one before it, as many as `prefixes` says.
  void append_prefixed(std::span<const uint8_t> bytes, const uint32_t* prefixes, const uint32_t* lengths, uint64_t rows,
                       const uint8_t* validity);
  /// Makes room for so many bytes of texts: a guess.
  void expect(uint64_t bytes) { reserve(bytes); }

  uint64_t rows() const { return row_; }
  /// The texts of all rows so far; the column then has none.
  void take(OwnedColumn& column);

  static constexpr uint64_t kBlockRows = 1024;

 private:
  template <class Offset>
  Offset* next_offset() const {
    return offsets_.as<Offset>() + row_ + ends_.size();
  }
  template <class Call>
  void with_offset(const Call& call);
  void reserve(uint64_t bytes);
  bool fits(uint64_t bytes) const { return bytes_ - chunk_begin_ + bytes <= most_chunk_bytes_; }
  void start_chunk();
  void prepare(uint64_t bytes);
  template <class Get>
  void append_each(uint64_t rows, const uint8_t* validity, const Get& get);
  template <class Offset>
  void finish(uint64_t rows, uint64_t valid, const uint8_t* validity, uint64_t begin);
  uint8_t* end() const { return values_.as<uint8_t>() + bytes_; }

  std::shared_ptr<HostMemory> memory_;
  uint64_t most_rows_;
  bool large_, utf8_;
  uint64_t most_chunk_bytes_;
  HostBuffer offsets_, values_;
  std::vector<ChunkEnd> ends_;  // of all chunks but the last
  uint64_t row_ = 0, bytes_ = 0, chunk_begin_ = 0;
};

}  // namespace warpjoin::parquet
