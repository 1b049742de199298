// Columns as ones of another type that has their values: where columns of two types become one.
#pragma once

#include <string>

#include "columns/plain_keys.h"
#include "core/column.h"
#include "core/job.h"
#include "engine/engine.h"

namespace warpjoin::columns {

/// What a column becomes.
struct Conversion {
  ColumnType type;
  KeyFactor factor;            ///< of integers and decimals: what the values are multiplied by
  std::string column, target;  ///< what messages call the column and the type that it becomes
};

/// A column with the rows, nulls and values of `source`, as another type:
/// - integers and decimals of 1, 2, 4, 8, 16 or 32 bytes as such of any of these widths, multiplied exactly;
/// - floats as floats of 4 or 8 bytes, if these are not narrower;
/// - texts with 32-bit offsets, views and fixed-size binary as texts; those with 32-bit offsets get chunks of at most
///   job.max_buffer_bytes() of views' texts, but for a longer one;
/// - the indices of a dictionary as its values, whose kind may be any of these or boolean.
/// The chunks may refer to the source's buffers. Memory: what the chunks refer to beside these; for a dictionary its values in
/// the other type if they are texts, and the row numbers of its values in between. Throws Error(key_type), which names the
/// column, for types that are none of these, and for a number that its type has no room for: the first row with one, and the
/// number. Nulls have no number. Throws Error(invalid_table) for indices outside the dictionary and views outside their buffers.
PlainKey converted(const Column& source, const Conversion& to, Engine& engine, const Job& job);

}  // namespace warpjoin::columns
