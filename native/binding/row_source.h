// Row numbers to gather by, behind handles.
#pragma once

#include <functional>
#include <memory>

#include "binding/handles.h"
#include "columns/gather.h"

namespace warpjoin::binding {

/// The row numbers of a run; throws Error(option) where they were taken.
RowList row_list(const RunState& run);
/// Those of one side of a join's rows; the same where they were not asked for.
RowList row_list(const RowsState& rows, bool left);

/// Throws Napi::TypeError for values that are no row numbers, and Napi::RangeError for those of a larger relation.
void check_rows(Napi::Env env, const RowNumbersBelow& numbers, const Relation& relation);

/// Throws Napi::TypeError for a run of other tuples.
void check_run(Napi::Env env, const RunState& run, const RunOrigin& tuples);
/// For steps: throws Error(option) for a run of some of its tuples alone, or whose keys or values were taken.
void check_whole(const RunState& run);

/// The row numbers of a run, or of one side of a join's rows, as they are when a step asks for them.
struct RowSource {
  std::shared_ptr<void> held;  ///< what list() refers to
  uint64_t most;               ///< rows that list() may have
  std::function<RowList()> list;
};

}  // namespace warpjoin::binding
