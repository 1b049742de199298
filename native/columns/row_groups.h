// Rows of a table in groups by a hash of their keys: the parts of a partitioned join.
#pragma once

#include <span>
#include <vector>

#include "columns/plain_keys.h"
#include "core/column.h"
#include "core/host_memory.h"
#include "core/job.h"
#include "engine/engine.h"

namespace warpjoin {

/// A column that rows are grouped by.
struct GroupKey {
  const Column* column;
  columns::KeyFactor factor;  ///< of integers and decimals
  bool nulls_equal = false;   ///< whether two nulls are; otherwise a null equals nothing
};

/// Row numbers of a table, group by group, each in the order of the table. They have 4 bytes, or 8 from 2^32 - 1 rows on.
struct RowGroups {
  uint8_t row_bytes = 4;
  HostBuffer rows;
  std::vector<uint64_t> ends;  ///< group g is rows [ends[g - 1], ends[g])
};

/// The most groups of a table.
inline constexpr uint64_t kMostRowGroups = 256;

/// Puts the rows of a table into `groups` groups, a power of two up to kMostRowGroups: rows whose keys are equal are in one, also
/// rows of two tables whose keys compare (encode_join_keys), with the same seed. A row with a null that equals nothing is in any.
/// Other seeds make other groups, independent of these. Columns of any type that plain_keys() takes; throws Error(key_type),
/// which names the column, for another. Host memory: the row numbers, a byte for each row, and the values of keys that are
/// indices of dictionaries, or views.
RowGroups group_rows(std::span<const GroupKey> keys, uint64_t groups, uint64_t seed, Engine& engine, const Job& job);

}  // namespace warpjoin
