// What joins and sorts of tables that lie on devices have in common: their tuples, the memory that they take, and columns that
// are gathered there.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "columns/resident_table.h"
#include "core/sharding.h"
#include "core/tuples.h"
#include "device/streams.h"
#include "primitives/primitives.h"

namespace warpjoin {

/// A table on devices, and which of its columns make tuples there.
struct KeyedTable {
  const ResidentTable* table = nullptr;
  size_t key = 0;                 ///< column of 4- or 8-byte integers without nulls
  std::optional<size_t> payload;  ///< column of 4 or 8 bytes without nulls that is carried along; otherwise row numbers are

  const ResidentColumn& key_column() const { return table->columns.at(key); }
  TupleLayout layout() const;
  /// The tuples of each device; row numbers are implied.
  std::vector<TupleView> chunks() const;
  /// Throws Error(not_supported), naming the column, where the columns can't make tuples.
  void check() const;
};

/// Throws Error(not_supported), naming the column, where tuples can't carry it along.
void check_payload(const ResidentColumn& column);

/// Reserves `bytes` beside what stays on each device; host devices give it back with the last of the buffers.
[[nodiscard]] std::vector<Buffer> reserve_beside_tables(const std::vector<Device*>& devices, size_t bytes);

/// Gathers columns of a table on each of its devices by row numbers that lie there.
class TableGather {
 public:
  /// `rows`: of each device, in its memory. Throws Error(not_supported) where the table is not spread as load_table() does it,
  /// or a device does not read the memory of another one.
  TableGather(const Engine& engine, const ResidentTable& from, std::vector<RowNumbers> rows, bool may_be_missing, const Job& job);

  /// Enqueues what makes `column`, in memory that goes to `memory`.
  ResidentColumn gather(const ResidentColumn& column, std::vector<Buffer>& memory);
  void wait() const;

 private:
  void fill_ones();

  const ResidentTable& from_;
  const Sharding sharding_;
  const std::vector<RowNumbers> rows_;
  const bool may_be_missing_;
  const Job& job_;
  std::vector<Buffer> ones_;
  Streams streams_;  // last: they wait for their work
};

}  // namespace warpjoin
