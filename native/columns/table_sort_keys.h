// The keys of a sort of a table that lies on devices, made there.
#pragma once

#include <optional>
#include <vector>

#include "columns/keyed_table.h"

namespace warpjoin {

/// A column that a table on devices is sorted by.
struct TableSortColumn {
  size_t column = 0;
  bool descending = false;
  bool nulls_last = true;  ///< absolute, whatever the direction
};

/// A key is one column as it is, where that is of 4- or 8-byte integers without nulls; with it another one may be carried along.
/// Otherwise it is made of all columns, the first one topmost, each as its value less the least one, in as few bits as that
/// needs. A null is one less than the least value, or one more than the greatest.
class TableSortKeys {
 public:
  static constexpr unsigned kMostBits = 64;

  /// Reads columns that are not a key as they are once, on their devices. `payload`: as KeyedTable's. Throws Error(key_type),
  /// naming the column, for one that has no order, and Error(not_supported) for a payload that can't be carried along.
  TableSortKeys(const ResidentTable& table, std::vector<TableSortColumn> by, std::optional<size_t> payload, const Job& job);

  const ResidentTable& table() const { return *table_; }
  /// The bits of a key; it can be made of kMostBits at most.
  unsigned bits() const { return bits_; }
  /// Whether the key is a column as it is.
  bool is_column() const { return column_.has_value(); }
  bool is_key(size_t column) const { return column_ && column == column_->key; }
  bool is_payload(size_t column) const { return column_ && column == column_->payload; }
  /// Whether a column is sorted with the tuples; others are gathered by row number.
  bool is_sorted_along(size_t column) const { return is_key(column) || is_payload(column); }
  bool carries_payload() const { return column_ && column_->payload; }
  /// With row numbers, if nothing is carried along.
  TupleLayout layout() const;
  /// Keys come in order as unsigned ones do by key ^ this.
  uint64_t flip() const { return flip_; }

  /// Device memory for the keys of so many rows.
  size_t made_bytes(uint64_t rows) const { return is_column() ? 0 : rows * layout().key_bytes; }
  /// The tuples of each device; row numbers are implied. Keys that have to be made go to `made`, memory of each device.
  std::vector<TupleView> chunks(std::vector<Buffer>& made, const Job& job) const;

 private:
  struct Part {
    size_t column;
    KeyField field;
  };

  ColumnStretch stretch(size_t column, size_t device) const;
  std::vector<ValueRange> ranges(const Job& job) const;
  void lay_out(const std::vector<ValueRange>& ranges);
  void make(size_t device, void* keys, const Job& job, Stream& stream) const;

  const ResidentTable* table_;
  std::vector<TableSortColumn> by_;
  std::optional<KeyedTable> column_;
  unsigned bits_ = 0;
  uint64_t flip_ = 0;
  std::vector<Part> parts_;  // of a key that is made; none if it is zero in every row
};

}  // namespace warpjoin
