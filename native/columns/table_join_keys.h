// The keys of a join of two tables that lie on devices, made there where columns don't serve as they are.
#pragma once

#include <optional>
#include <vector>

#include "columns/table_columns.h"

namespace warpjoin {

/// Keys are the columns as they are, where both are of one type, of 4- or 8-byte integers, and no row is null. Otherwise they are
/// made: the distance of each value from the least one of both columns, in 4 bytes if that needs no more. A null is a key that no
/// other row has, behind those of all values: it matches nothing, as the semantics of joins want it, in any kind of join.
class TableJoinKeys {
 public:
  /// A table, and the column that it is joined by.
  struct Side {
    const ResidentTable* table;
    size_t column;
    KeyField field = {};  ///< of keys that are made
    bool given = true;    ///< keys give the column back: not where -0.0 or an unusual NaN is in it

    const ResidentColumn& key() const { return table->columns.at(column); }
  };

  /// Reads columns that are not keys as they are, once for all calls. Throws Error(not_supported), naming the columns, where
  /// they are not integers, floats of one width or booleans, and where the tables lie on different devices.
  TableJoinKeys(const ResidentTable& left, size_t left_column, const ResidentTable& right, size_t right_column, const Job& job);

  const Side& left() const { return left_; }
  const Side& right() const { return right_; }
  /// Of a key; it can be made of kMostKeyBits at most.
  unsigned bits() const { return bits_; }
  /// Whether keys are the columns as they are.
  bool are_columns() const { return are_columns_; }
  uint8_t key_bytes() const { return key_bytes_for(bits_); }

  /// Device memory for the keys of so many rows.
  size_t made_bytes(uint64_t rows) const { return are_columns_ ? 0 : rows * key_bytes(); }
  /// The tuples of a side on each device; row numbers are implied. Keys that have to be made go to `made`, memory of each device.
  /// `payload`: a column of 4 or 8 bytes without nulls to be carried along; otherwise row numbers are.
  std::vector<TupleView> chunks(const Side& side, const std::optional<size_t>& payload, std::vector<Buffer>& made,
                                const Job& job) const;

 private:
  void lay_out(const ValueRange& left, const ValueRange& right);

  Side left_, right_;
  bool are_columns_ = false;
  unsigned bits_ = 0;
};

}  // namespace warpjoin
