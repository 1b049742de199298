// The keys of a join of two tables that lie on devices, made there where columns don't serve as they are.
#pragma once

#include <optional>
#include <vector>

#include "columns/table_columns.h"

namespace warpjoin {

/// Columns of two tables on devices whose values must be equal.
struct TableKeyPair {
  size_t left = 0, right = 0;
  bool nulls_equal = false;  ///< whether two nulls are; otherwise a null equals nothing
};

/// Keys are one pair's columns as they are, where both are of one type, of 4- or 8-byte integers, and no row is null. Otherwise
/// they are made of all pairs: of each, the distance of a value from the least one of both columns, in as few bits as that needs,
/// where nulls that are equal have one code more. A row with a null that equals nothing has a key that no other row has, behind
/// all of these: it matches nothing, as the semantics of joins want it, in any kind of join.
class TableJoinKeys {
 public:
  /// A column of a side.
  struct Part {
    size_t column;
    KeyField field = {};  ///< of keys that are made
    bool given = true;    ///< keys give the column back: not where -0.0 or an unusual NaN is in it
  };
  /// A table, and the columns that it is joined by, in the order of the pairs.
  struct Side {
    const ResidentTable* table;
    std::vector<Part> parts = {};

    const ResidentColumn& column(size_t pair) const { return table->columns.at(parts.at(pair).column); }
  };

  /// Reads columns that are not keys as they are, once for all calls. Throws Error(not_supported), naming the columns, where
  /// those of a pair are not integers, floats of one width or booleans, and where the tables lie on different devices.
  TableJoinKeys(const ResidentTable& left, const ResidentTable& right, const std::vector<TableKeyPair>& pairs, const Job& job);

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
  void lay_out(const std::vector<TableKeyPair>& pairs, const std::vector<ValueRange>& left, const std::vector<ValueRange>& right);

  Side left_, right_;
  bool are_columns_ = false;
  unsigned bits_ = 0;
};

}  // namespace warpjoin
