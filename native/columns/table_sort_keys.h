// The keys of a sort of a table that lies on devices, made there.
#pragma once

#include <optional>
#include <vector>

#include "columns/table_columns.h"

namespace warpjoin {

/// A column that a table on devices is sorted by.
struct TableSortColumn {
  size_t column = 0;
  bool descending = false;
  bool nulls_last = true;  ///< absolute, whatever the direction
};

/// A key is one column as it is, where that is of 4- or 8-byte integers without nulls. Otherwise it is made of all columns, the
/// first one topmost, each as its value's distance from the least one, in as few bits as that needs. Nulls are the first code or
/// the last one, as far from the values as there is room.
class TableSortKeys {
 public:
  /// Reads columns that are not a key as they are, once for all calls. `payload`: a column of 4 or 8 bytes without nulls to be
  /// carried along where keys give back what they are made of, but not it; without one, or where they don't, row numbers are.
  /// Throws Error(key_type), naming the column, for one that has no order, and Error(not_supported) for a payload that can't be
  /// carried.
  TableSortKeys(const ResidentTable& table, std::vector<TableSortColumn> by, std::optional<size_t> payload, const Job& job);

  const ResidentTable& table() const { return *table_; }
  /// The bits of a key; it can be made of kMostKeyBits at most.
  unsigned bits() const { return bits_; }
  /// Whether the key is a column as it is.
  bool is_column() const { return column_; }
  /// Whether sorted keys give back the columns that they are made of. Others, with -0.0 or an unusual NaN, are gathered.
  bool give_columns() const { return give_columns_; }
  /// Whether they give back this one.
  bool give(size_t column) const;
  /// The column that is carried along.
  const std::optional<size_t>& payload() const { return payload_; }
  TupleLayout layout() const;
  /// Keys come in order as unsigned ones do by key ^ this.
  uint64_t flip() const { return flip_; }

  /// Device memory for the keys of so many rows.
  size_t made_bytes(uint64_t rows) const { return column_ ? 0 : rows * layout().key_bytes; }
  /// The tuples of each device; row numbers are implied. Keys that have to be made go to `made`, memory of each device.
  std::vector<TupleView> chunks(std::vector<Buffer>& made, const Job& job) const;
  /// What keys hold of a column that they give, but are not.
  const KeyField& field(size_t column) const;

 private:
  struct Part {
    size_t column;
    KeyField field;
  };

  void lay_out(const std::vector<ValueRange>& ranges);
  void make(size_t device, void* keys, const Job& job, Stream& stream) const;

  const ResidentTable* table_;
  std::vector<TableSortColumn> by_;
  std::optional<size_t> payload_;
  bool column_ = false, give_columns_ = true;
  unsigned bits_ = 0;
  uint64_t flip_ = 0;
  std::vector<Part> parts_;  // of a key that is made
};

}  // namespace warpjoin
