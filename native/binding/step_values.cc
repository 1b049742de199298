#include "binding/step_values.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "binding/row_source.h"
#include "columns/device_gather.h"
#include "core/error.h"
#include "join/hash_cut.h"

namespace warpjoin::binding {

SortAlgorithm to_sort_algorithm(const Napi::Value& value) {
  const std::string name = to_string(value, "algorithm");
  if (name == "merge") return SortAlgorithm::merge;
  if (name == "radix") return SortAlgorithm::radix;
  if (name == "sample") return SortAlgorithm::sample;
  throw Napi::TypeError::New(value.Env(), "Expected 'merge', 'radix' or 'sample' for algorithm");
}

const Column& column_at(const Relation& relation, const Napi::Value& index, const char* what) {
  const uint64_t i = to_count(index, what);
  if (i >= relation.columns.size())
    throw Napi::RangeError::New(index.Env(), std::string(what) + " is not a column of the relation");
  return relation.columns[i];
}

const Column* optional_column_at(const Relation& relation, const Napi::Value& index, const char* what) {
  return index.IsNull() || index.IsUndefined() ? nullptr : &column_at(relation, index, what);
}

std::vector<const Column*> columns_at(const Relation& relation, const Napi::Value& indices, const char* what) {
  if (!indices.IsArray()) throw Napi::TypeError::New(indices.Env(), std::string("Expected an array for ") + what);
  const auto array = indices.As<Napi::Array>();
  std::vector<const Column*> columns;
  for (uint32_t i = 0; i < array.Length(); ++i) columns.push_back(&column_at(relation, array.Get(i), what));
  return columns;
}

bool is_brief(uint64_t rows) { return rows <= 8 << 10; }

bool is_brief(const Column& column, uint64_t rows) {
  const bool is_plain = column.type.kind == ColumnKind::fixed || column.type.kind == ColumnKind::boolean;
  return is_plain && !column.dictionary && is_brief(rows);
}

bool is_brief(const Column& column) { return is_brief(column, column.length); }

bool are_brief(const std::vector<const Column*>& columns) {
  return std::ranges::all_of(columns, [](const Column* column) { return is_brief(*column); });
}

bool is_brief_join(uint64_t left_rows, uint64_t right_rows) {
  constexpr uint64_t kMostPairs = 1 << 20;
  return is_brief(left_rows) && is_brief(right_rows) && left_rows * right_rows <= kMostPairs;
}

void check_for_devices(Napi::Env env, const std::vector<const Column*>& columns) {
  for (const Column* column : columns) {
    if (!gathers_on_devices(column->type)) throw Napi::TypeError::New(env, "Column '" + column->name + "' is not for devices");
  }
}

bool to_side_is_left(const Napi::Value& value) {
  const std::string name = to_string(value, "side");
  if (name != "left" && name != "right") throw Napi::TypeError::New(value.Env(), "Expected 'left' or 'right' for side");
  return name == "left";
}

std::vector<int> to_devices(const Napi::Value& value, const Engine& engine) {
  const std::vector<int> devices = to_ordinals(value, "devices");
  const std::set<int> distinct(devices.begin(), devices.end());
  if (devices.empty() || distinct.size() != devices.size() || static_cast<size_t>(*distinct.rbegin()) >= engine.devices.size()) {
    throw Napi::RangeError::New(value.Env(), "Expected at least one device of the engine, and each once, for devices");
  }
  return devices;
}

size_t to_device_count(const Napi::Value& value, const Engine& engine) {
  return to_count(value, "devices", 1, engine.devices.size());
}

SortPlan to_sort_plan(const Napi::Value& value, const Engine& engine) {
  const Napi::Object object = to_object(value, "plan");
  return {.algorithm = to_sort_algorithm(object.Get("algorithm")),
          .devices = to_devices(object.Get("devices"), engine),
          .chunkset_ends = to_counts(object.Get("chunksetEnds"), "plan.chunksetEnds"),
          .spill = to_bool(object.Get("spill"), "plan.spill")};
}

uint32_t to_hash_parts(const Napi::Value& value, const char* what, uint32_t least) {
  const auto parts = static_cast<uint32_t>(to_count(value, what, least, UINT32_MAX));
  if (parts != 0) bits_of(parts, what);
  return parts;
}

uint32_t to_subpartitions(const Napi::Value& value) {
  constexpr uint32_t kMost = 1 << 20;
  return static_cast<uint32_t>(to_count(value, "subpartitions", kLeastSubpartitions, kMost));
}

Napi::Value to_run_handle(Napi::Env env, const std::shared_ptr<RunState>& run) {
  Napi::Object handle = to_handle(env, run);
  handle.Set("size", number(env, run->run.size));
  return handle;
}

MakeResult sort_to_handles(Engine& engine, Job& job, const RunOrigin& origin, const EncodedTuples& tuples, uint64_t varying_bits,
                           SortPlan plan) {
  plan.flip = tuples.flip;
  plan.borrowed = tuples.borrowed_from != nullptr;
  std::vector<std::shared_ptr<RunState>> runs;
  std::vector<SortedRun> sorted =
      naming_columns({&tuples}, [&] { return sort_chunksets(engine, tuples.layout, tuples.view, varying_bits, plan, job); });
  for (SortedRun& run : sorted) {
    runs.push_back(std::make_shared<RunState>(RunState{{engine.weak_from_this()}, origin, std::move(run)}));
  }
  return [runs = std::move(runs)](Napi::Env env) -> Napi::Value {
    Napi::Array array = Napi::Array::New(env, runs.size());
    for (uint32_t i = 0; i < runs.size(); ++i) array.Set(i, to_run_handle(env, runs[i]));
    return array;
  };
}

RowList row_list(const RunState& run) {
  if (!run.run.values) throw Error(ErrorCode::option, "The values of the run have been taken");
  return {run.run.values.data(), run.run.layout.value_bytes, false, run.run.size};
}

RowList row_list(const RowsState& state, bool left) {
  const JoinRows& rows = state.rows;
  const HostBuffer& values = left ? rows.left : rows.right;
  if (!values) throw Error(ErrorCode::option, "These values of the rows have been taken, or were not asked for");
  return {values.data(), left ? rows.left_layout.value_bytes : rows.right_layout.value_bytes,
          left ? rows.left_may_be_missing : rows.right_may_be_missing, rows.size, rows.group_ends};
}

void check_rows(Napi::Env env, const RowNumbersBelow& numbers, const Relation& relation) {
  if (!numbers.below) throw Napi::TypeError::New(env, "The values are a payload, not row numbers");
  if (*numbers.below > relation.rows) throw Napi::RangeError::New(env, "The row numbers are those of a larger relation");
}

void check_run(Napi::Env env, const RunState& run, const RunOrigin& tuples) {
  if (!(run.origin == tuples)) throw Napi::TypeError::New(env, "The run is not one of these tuples");
}

void check_whole(const RunState& run) {
  if (run.run.size != run.origin.tuples || !run.run.keys || !run.run.values) {
    throw Error(ErrorCode::option, "Expected a run of all tuples, with its keys and values");
  }
}

MakeResult rows_to_handle(Engine& engine, RowNumbersBelow left, RowNumbersBelow right, JoinRows rows,
                          std::vector<PackedValue> left_values) {
  auto state = std::make_shared<RowsState>(
      RowsState{{engine.weak_from_this()}, left, right, rows.size, std::move(rows), std::move(left_values)});
  return [state = std::move(state)](Napi::Env env) -> Napi::Value {
    Napi::Object handle = to_handle(env, state);
    handle.Set("size", number(env, state->rows.size));
    handle.Set("skew", Napi::Number::New(env, state->rows.skew));
    handle.Set("splitRows", number(env, state->rows.split_rows));
    handle.Set("spilledRows", number(env, state->rows.spilled_rows));
    handle.Set("leftMayBeMissing", Napi::Boolean::New(env, state->rows.left_may_be_missing));
    handle.Set("rightMayBeMissing", Napi::Boolean::New(env, state->rows.right_may_be_missing));
    Napi::Array group_ends = Napi::Array::New(env, state->rows.group_ends.size());
    for (uint32_t i = 0; i < group_ends.Length(); ++i) group_ends.Set(i, number(env, state->rows.group_ends[i]));
    handle.Set("groupEnds", group_ends);
    return handle;
  };
}

MakeResult column_result(OwnedColumn column, uint64_t max_buffer_bytes) {
  auto made = std::make_shared<OwnedColumn>(std::move(column));
  return [made = std::move(made), max_buffer_bytes](Napi::Env env) {
    return to_result_column(env, std::move(*made), max_buffer_bytes);
  };
}

MakeResult columns_result(std::vector<OwnedColumn> columns, uint64_t max_buffer_bytes) {
  auto made = std::make_shared<std::vector<OwnedColumn>>(std::move(columns));
  return [made = std::move(made), max_buffer_bytes](Napi::Env env) -> Napi::Value {
    Napi::Array array = Napi::Array::New(env, made->size());
    for (uint32_t i = 0; i < made->size(); ++i) array.Set(i, to_result_column(env, std::move((*made)[i]), max_buffer_bytes));
    return array;
  };
}

Napi::Value take_column(Napi::Env env, HostBuffer& values, uint32_t width, uint64_t length, const Job& job) {
  if (!values) throw Error(ErrorCode::option, "This buffer has been taken, or was not asked for");
  OwnedColumn column;
  column.type = {.kind = ColumnKind::fixed, .width = width};
  column.length = length;
  column.values = std::move(values);
  return to_result_column(env, std::move(column), job.max_buffer_bytes());
}

}  // namespace warpjoin::binding
