// Row numbers to gather by, behind handles.
#pragma once

#include <functional>
#include <memory>

#include "binding/convert.h"
#include "binding/handles.h"
#include "columns/gather.h"

namespace warpjoin::binding {

inline bool to_side_is_left(const Napi::Value& value) {
  const std::string name = to_string(value, "side");
  if (name != "left" && name != "right") throw Napi::TypeError::New(value.Env(), "Expected 'left' or 'right' for side");
  return name == "left";
}

inline RowList row_list(const SortedRun& run) { return {run.values.data(), run.layout.value_bytes, false, run.size}; }

inline RowList row_list(const JoinRows& rows, bool left) {
  const HostBuffer& values = left ? rows.left : rows.right;
  return {values.data(), left ? rows.left_layout.value_bytes : rows.right_layout.value_bytes,
          left ? rows.left_may_be_missing : rows.right_may_be_missing, rows.size};
}

/// The row numbers of a run, or of one side of a join's rows, as they are when a step asks for them.
struct RowSource {
  std::shared_ptr<void> held;  ///< what list() refers to
  std::function<RowList()> list;

  RowSource(const Napi::Value& handle, const Napi::Value& side) {
    const bool left = to_side_is_left(side);
    if (is_handle<RunState>(handle)) {
      const auto run = from_handle<RunState>(handle);
      held = run, list = [run = run.get()] { return row_list(run->run); };
    } else {
      const auto rows = from_handle<RowsState>(handle);
      held = rows, list = [rows = rows.get(), left] { return row_list(rows->rows, left); };
    }
  }
};

}  // namespace warpjoin::binding
