// Materialization: rows of Arrow columns by row number.
#pragma once

#include <span>

#include "core/column.h"
#include "engine/engine.h"

namespace warpjoin {

/// Row numbers to gather: 4 or 8 bytes each. With may_be_missing the all-ones row number gives a null. Where they are rows of
/// groups, they ascend within each, and no chunk of texts or of nested values has rows of two.
struct RowList {
  const void* rows = nullptr;
  uint8_t row_bytes = 4;
  bool may_be_missing = false;
  uint64_t size = 0;
  std::span<const uint64_t> group_ends = {};
};

/// Gathers `rows.size` values of `column` into one column. Null rows stay null; their value bytes are zero. Columns of variable
/// width have chunks of at most job.max_buffer_bytes() of values, and as many of offsets; those of nested kinds (gather_nested.h)
/// have them for each buffer. Indices of a dictionary stay as they are.
/// Memory: the result, and 8 bytes a 64Ki rows; for more than one chunk of variable width its offsets twice. Prefetches ahead:
/// the rows may be in any order.
OwnedColumn gather(const Column& column, RowList rows, Engine& engine, const Job& job);

/// Gathers from `first` where its row is not missing, else from `second` (a full join's coalesced key). Same types.
OwnedColumn gather_coalesced(const Column& first, RowList first_rows, const Column& second, RowList second_rows, Engine& engine,
                             const Job& job);

}  // namespace warpjoin
