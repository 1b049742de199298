// From Arrow columns to the values that Parquet stores: without nulls, in Parquet's physical types.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "columns/chunks.h"
#include "core/column.h"
#include "parquet/encode_bits.h"
#include "parquet/format.h"

namespace warpjoin::parquet {

/// A value of variable width, borrowed.
struct Bytes {
  const uint8_t* data = nullptr;
  uint64_t size = 0;
};

/// Values larger than this have no space in a page.
inline constexpr uint64_t kMostValueBytes = uint64_t{1} << 30;

/// How values order in statistics. `none`: they get none.
enum class Order : uint8_t { none, signed_integer, unsigned_integer, floating, bytes };

/// How a column's values become a physical type's.
class ValueSource {
 public:
  /// The column has been validated, and lives longer. `width`: of fixed_bytes. Throws Error(option) where a column of its kind
  /// does not become the type.
  ValueSource(const Column& column, PhysicalType type, uint32_t width);

  PhysicalType type() const { return type_; }
  bool is_bytes() const { return type_ == PhysicalType::byte_array; }
  /// Bytes of a value in memory, as read() gives it: 1 for booleans, 0 where it varies.
  uint32_t width() const { return width_; }
  Order order() const { return order_; }
  uint64_t rows() const { return chunks_.rows(); }
  /// Whether rows are indices of a dictionary: read_numbers() gives their positions in it.
  bool has_dictionary() const { return dictionary_ != nullptr; }
  uint64_t dictionary_size() const { return dictionary_ ? dictionary_->rows() : 0; }
  bool all_null() const { return store_ == Store::none; }

  /// About how many bytes rows [begin, end) take in the encoding PLAIN.
  uint64_t plain_bytes(uint64_t begin, uint64_t end) const;

  /// Reads the valid values of rows [begin, end) of a column of fixed width: to `out`, which has space for all rows; returns how
  /// many they are. Adds the rows to `levels`.
  uint64_t read(uint64_t begin, uint64_t end, uint8_t* out, Levels& levels) const;
  /// The same for values of variable width. What `out` refers to may change if its owner writes to it.
  uint64_t read(uint64_t begin, uint64_t end, Bytes* out, Levels& levels) const;
  /// The same for positions in the dictionary.
  uint64_t read_numbers(uint64_t begin, uint64_t end, uint64_t* out, Levels& levels) const;
  /// Values of the dictionary by their positions, which read_numbers() gave.
  void look_up(const uint64_t* numbers, uint64_t count, uint8_t* out) const;
  void look_up(const uint64_t* numbers, uint64_t count, Bytes* out) const;

 private:
  enum class Store : uint8_t { none, bits, copy, widen, cut, reverse, text, large_text, view };

  Store store_of(const ColumnType& type, PhysicalType to, uint32_t width) const;
  template <class Run>
  uint64_t for_valid_runs(uint64_t begin, uint64_t end, Levels& levels, Run&& run) const;
  void convert(const ColumnChunk& chunk, uint64_t first, uint64_t count, uint8_t* out) const;
  Bytes bytes_at(const ColumnChunk& chunk, uint64_t index) const;
  uint64_t number_at(const ColumnChunk& chunk, uint64_t index) const;

  const Column& column_;
  columns::ChunkIndex chunks_;
  PhysicalType type_;
  uint32_t width_;
  Order order_ = Order::none;
  Store store_ = Store::none;
  std::unique_ptr<const ValueSource> dictionary_;
};

}  // namespace warpjoin::parquet
