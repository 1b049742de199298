// A column in host memory as copies to devices read it.
#pragma once

#include "columns/chunks.h"
#include "core/job.h"
#include "transfer/host_transfer.h"

namespace warpjoin {

/// Bytes of a bitmap in whole words, as devices have them.
constexpr size_t bitmap_bytes(uint64_t rows) { return (rows + 63) / 64 * 8; }

/// Bytes of so many values of a column that is not of variable width.
constexpr size_t values_bytes(const ColumnType& type, uint64_t rows) {
  return type.kind == ColumnKind::boolean ? bitmap_bytes(rows) : rows * type.width;
}

/// Values and validity of a stretch of a column, in a device's memory; null where it has none.
struct DeviceStretch {
  void* values = nullptr;
  void* validity = nullptr;
};

/// Borrows the column, which is not of variable width.
class ColumnSource {
 public:
  /// Bitmaps of whole words, from the first bit on, whatever the chunks.
  struct Bits {
    HostBuffer values, validity;
  };

  /// `nullable`: whether a validity bitmap is wanted, even where no chunk has one.
  ColumnSource(const Column& column, bool nullable) : column_(&column), chunks_(column), nullable_(nullable) {}

  const ColumnType& type() const { return column_->type; }
  uint64_t rows() const { return chunks_.rows(); }
  bool nullable() const { return nullable_; }
  bool boolean() const { return type().kind == ColumnKind::boolean; }

  /// Makes the bits that copies read. Host memory: a bit a row and bitmap.
  void pack(Engine& engine, const Job& job);
  /// The copy of rows [begin, end), where begin is a multiple of 64, to a device.
  HostCopy copy(uint64_t begin, uint64_t end, const DeviceStretch& to) const;
  /// Of packed bits: forgets a validity bitmap that says nothing.
  void drop_validity_without_nulls(Engine& engine, const Job& job);
  Bits take_bits() { return std::move(bits_); }

 private:
  template <class Bitmap>
  HostBuffer packed(Engine& engine, const Job& job, Bitmap bitmap) const;

  const Column* column_;
  columns::ChunkIndex chunks_;
  bool nullable_;
  Bits bits_;
};

/// How many of a bitmap's first `rows` bits are set; those behind them, up to a whole word, are not.
uint64_t count_set_bits(Engine& engine, const HostBuffer& bitmap, uint64_t rows, const Job& job);

/// Gives a column the validity bitmap of whole words that it was made with, but for one that says nothing.
void set_validity(Engine& engine, OwnedColumn& column, HostBuffer bitmap, const Job& job);

}  // namespace warpjoin
