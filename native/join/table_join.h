// Hash joins of tables that lie on devices, by columns that serve as keys as they are.
#pragma once

#include <optional>
#include <vector>

#include "columns/keyed_table.h"
#include "join/resident_join.h"

namespace warpjoin {

/// A column of a result that stays.
struct ResidentOrigin {
  enum class From { keys, left, right };

  From from = From::keys;
  std::optional<size_t> column;  ///< of that side's table, gathered by the rows' numbers; otherwise what the rows carry
};

/// Joins into a table on the same devices, whose stretches are what each device has found: column i is as origins[i] says, named
/// like the column it comes from. `request` says what rows carry: keys (inner joins), a side's payload or row numbers. Columns
/// are gathered from tables that are spread as load_table() does it, by devices that read each other's memory. Throws
/// Error(device) where a device has too little memory for the join and its result: join_tables_device_bytes(), and a row number
/// a side and row that is gathered by.
ResidentTable join_tables(Engine& engine, const KeyedTable& left, const KeyedTable& right, const JoinRequest& request,
                          const std::vector<ResidentOrigin>& origins, Job& job);

/// Joins into host memory: what the rows carry.
JoinRows join_tables_home(Engine& engine, const KeyedTable& left, const KeyedTable& right, const JoinRequest& request, Job& job);

/// Device memory of either on each device, beside the tables and a result that stays, where hashing spreads the keys evenly.
size_t join_tables_device_bytes(Engine& engine, const KeyedTable& left, const KeyedTable& right, const JoinRequest& request);

}  // namespace warpjoin
