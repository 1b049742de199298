// Dictionaries that differ by chunk, as one, and indices of another width.
#pragma once

#include <vector>

#include "core/column.h"
#include "core/job.h"
#include "engine/engine.h"

namespace warpjoin {

/// What unify_dictionaries() has made: columns refer to it.
struct UnifiedDictionaries {
  std::vector<HostBuffer> indices;
  /// In the order of the columns: those of children and within dictionaries first.
  std::vector<OwnedColumn> dictionaries;
};

/// Where a column's chunks, or those within it, have dictionaries of their own (Column::is_unified), makes one of them and
/// indices of that; where indices alone get another width (Column::index_width), those. The dictionary's values are distinct
/// where they are of fixed width, texts or views: those of other kinds are all there, one dictionary after the other. The first
/// of equal values comes first. Columns must have been validated. Memory: the indices and the dictionary, and in between 16 bytes
/// for each value of the dictionaries.
void unify_dictionaries(Column& column, UnifiedDictionaries& made, Engine& engine, const Job& job);

/// An owned column as one to read, of the type of `like` with all that is within it.
Column borrow(const OwnedColumn& owned, const Column& like);

}  // namespace warpjoin
