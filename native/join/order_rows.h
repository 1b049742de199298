// The order of a join's rows: that of the rows of one of its sides (docs/decisions/0015).
#pragma once

#include <cstdint>

#include "core/job.h"
#include "engine/engine.h"
#include "join/join.h"

namespace warpjoin {

/// Orders the rows of a join, whose values are row numbers, by those of the left side, or of the right one. Equal ones are
/// ordered by the row numbers of the other side, where the rows have these. A row number of all ones, of a row that is missing,
/// comes last. `side_rows`: the rows of that side, whose numbers are below; `other_rows`: of the other one.
///
/// Rows that are in order are read once and stay where they are. Host memory: order_rows_bytes() while it runs. Throws
/// Error(option) where the row numbers of the side are not there, or the rows have keys.
void order_rows(Engine& engine, JoinRows& rows, bool by_left, uint64_t side_rows, uint64_t other_rows, Job& job);
/// Host memory, in addition to the rows: `row_bytes` is 4 or 8, `other_bytes` 0 where the rows lack the other side.
size_t order_rows_bytes(Engine& engine, uint64_t size, uint8_t row_bytes, uint8_t other_bytes);

/// Keeps rows [offset, offset + limit) of a join, or those of them that there are.
void slice_rows(Engine& engine, JoinRows& rows, uint64_t offset, uint64_t limit, const Job& job);

}  // namespace warpjoin
