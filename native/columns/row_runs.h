// Rows whose values are not those of the row before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/column.h"
#include "core/job.h"

namespace warpjoin {

/// The rows of a table whose values of some column are not those of the row before, ascending; the first row is one. Equal are
/// values of the same bytes, dictionaries' by what their indices stand for, and two nulls. Columns must have been validated, and
/// have so many rows; throws Error(not_supported), which names the column, for a nested one.
std::vector<uint64_t> row_runs(std::span<const Column> columns, uint64_t rows, const Job& job);

}  // namespace warpjoin
