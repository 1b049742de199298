// What joins and sorts of tables that lie on devices have in common: tuples of their columns, the memory that they take, and
// columns of results that are made there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "columns/resident_table.h"
#include "core/sharding.h"
#include "core/tuples.h"
#include "device/streams.h"
#include "primitives/primitives.h"

namespace warpjoin {

/// Rows of a column on a device.
ColumnStretch stretch_of(const ResidentTable& table, size_t column, size_t device);

/// What is known of the rows of each column, on all devices together. Reads columns that no call has read before.
std::vector<ValueRange> value_ranges(const ResidentTable& table, const std::vector<size_t>& columns, const Job& job);

/// The most bits of a key that is made of columns.
constexpr unsigned kMostKeyBits = 64;
constexpr uint8_t key_bytes_for(unsigned bits) { return bits <= 32 ? 4 : 8; }

/// Keys on each device: a column's values.
std::vector<const void*> keys_in(const ResidentTable& table, size_t column);
/// What `make` enqueues to write to each device, in memory of it that goes to `made`. Throws Error(not_supported) for keys of
/// more bits than kMostKeyBits.
std::vector<const void*> make_keys(const ResidentTable& table, unsigned bits, std::vector<Buffer>& made, const Job& job,
                                   const std::function<void(size_t device, void* keys, Stream& stream)>& make);

/// Of tuples that carry a payload of the table along: a column of 4 or 8 bytes without nulls; or otherwise row numbers.
TupleLayout tuple_layout(const ResidentTable& table, uint8_t key_bytes, const std::optional<size_t>& payload);
/// Those of each device, with its keys; row numbers are implied.
std::vector<TupleView> tuples_of(const ResidentTable& table, const std::vector<const void*>& keys,
                                 const std::optional<size_t>& payload);
/// Throws Error(not_supported), naming the column, where tuples can't carry it along.
void check_payload(const ResidentColumn& column);

/// Reserves `bytes` beside what stays on each device; host devices give it back with the last of the buffers.
[[nodiscard]] std::vector<Buffer> reserve_beside_tables(const std::vector<Device*>& devices, size_t bytes);

/// A column of a table that keys hold, and which one of a result it is.
struct HeldColumn {
  size_t column = 0;
  KeyField field;
  size_t to = 0;
};
/// Enqueues what makes columns of a result, like the table's, of fields of keys[d] on each device.
void decode_columns(const ResidentTable& table, const std::vector<HeldColumn>& held, uint8_t key_bytes,
                    const std::vector<TupleView>& keys, ResidentTable& result, const Streams& streams, const Job& job);

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
