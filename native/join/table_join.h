// Hash joins of tables that lie on devices.
#pragma once

#include <optional>
#include <vector>

#include "columns/table_join_keys.h"
#include "join/resident_join.h"
#include "sort/row_window.h"

namespace warpjoin {

/// Tables to join on their devices.
struct KeyedTables {
  const TableJoinKeys* keys = nullptr;
  /// Columns of 4 or 8 bytes without nulls that are carried along; otherwise row numbers are.
  std::optional<size_t> left_payload, right_payload;
};

/// A column of a result that stays.
struct ResidentOrigin {
  enum class From { keys, left, right };

  From from = From::keys;
  std::optional<size_t> column;  ///< of that side's table, gathered by the rows' numbers; otherwise what the rows carry
  size_t pair = 0;               ///< of keys: of which pair of columns the left one is given
};

/// The order of a result's rows: that of the rows of one side, and of the other's among equal ones, as order_rows() has it; and
/// which of them the result has.
struct TableRowOrder {
  bool by_left = true;
  RowWindow window = {};
};

/// Joins into a table on the same devices, whose stretches are what each device has found: column i is as origins[i] says, named
/// like the column it comes from; a column of keys is the left one, as far as these give it. `request` says what rows carry: keys
/// (inner joins), a side's payload or row numbers. Columns are gathered from tables that are spread as load_table() does it, by
/// devices that read each other's memory. Throws Error(device_memory) where a device has too little memory for the join and its
/// result: join_tables_device_bytes(), and a row number or key a row that columns are made by.
///
/// Rows in an `order` are those of the devices one after the other. All their columns are gathered; Error(option) for others, and
/// where the rows lack the numbers of the side; Error(not_supported) where the numbers of both sides need more than kMostKeyBits.
/// Sorting them takes up to 56 bytes a row, too: the numbers twice, keys of both, and the sort's own.
ResidentTable join_tables(Engine& engine, const KeyedTables& tables, const JoinRequest& request,
                          const std::vector<ResidentOrigin>& origins, Job& job, const std::optional<TableRowOrder>& order = {});

/// Joins into host memory: what the rows carry. Keys are as they were joined.
JoinRows join_tables_home(Engine& engine, const KeyedTables& tables, const JoinRequest& request, Job& job);

/// Device memory of either on each device, beside the tables and a result that stays, where hashing spreads the keys evenly.
size_t join_tables_device_bytes(Engine& engine, const KeyedTables& tables, const JoinRequest& request);

}  // namespace warpjoin
