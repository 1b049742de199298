// Materialization of nested columns: chunks of rows, each with all that is within it.
#pragma once

#include <string>

#include "columns/gather_source.h"

namespace warpjoin::columns {

/// Gathers a column of a nested kind. Rows are cut into chunks so that no buffer within one has more than job.max_buffer_bytes(),
/// and offsets fit their width; a single row may have more, up to what its offsets hold.
/// Memory: the result, and for each list, fixed-size list or dense union of a chunk a row number for each value of its children.
OwnedColumn gather_nested(const Column& column, const RowList& rows, Engine& engine, const Job& job);

/// The same for views and null types of one column or two; `name` is for messages.
OwnedColumn gather_leaves(const GatherSource& source, const std::string& name, Engine& engine, const Job& job);

}  // namespace warpjoin::columns
