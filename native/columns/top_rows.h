// The first rows of a sort, without a sort of all rows (docs/decisions/0014-top-k.md).
#pragma once

#include <span>

#include "columns/encode.h"
#include "core/job.h"
#include "engine/engine.h"

namespace warpjoin {

/// Row numbers in host memory.
struct TopRows {
  uint8_t row_bytes = 4;  ///< 4 or 8, by the number of rows of the columns
  uint64_t size = 0;
  HostBuffer rows;
};

/// The numbers of rows [skip, skip + count) of a stable sort, in its order; fewer where there are no more rows. One pass over the
/// columns of `by` keeps the rows that can be among them.
/// Host memory: top_rows_bytes(), and what keys of other than plain columns take (columns/plain_keys.h).
TopRows top_rows(std::span<const SortColumn> by, uint64_t skip, uint64_t count, Engine& engine, const Job& job);

/// Host memory of top_rows() with its result, where `kept` = skip + count rows are kept of `rows`.
size_t top_rows_bytes(uint64_t rows, uint64_t kept, const Engine& engine);

}  // namespace warpjoin
