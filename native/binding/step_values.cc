#include "binding/step_values.h"

#include "core/error.h"

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

SortPlan to_sort_plan(const Napi::Value& value) {
  const Napi::Object object = to_object(value, "plan");
  return {.algorithm = to_sort_algorithm(object.Get("algorithm")),
          .devices = to_ordinals(object.Get("devices"), "plan.devices"),
          .chunkset_ends = to_counts(object.Get("chunksetEnds"), "plan.chunksetEnds"),
          .spill = to_bool(object.Get("spill"), "plan.spill")};
}

Napi::Value make_runs(Napi::Env env, const std::vector<std::shared_ptr<RunState>>& runs) {
  Napi::Array array = Napi::Array::New(env, runs.size());
  for (uint32_t i = 0; i < runs.size(); ++i) {
    Napi::Object handle = to_handle(env, runs[i]);
    handle.Set("size", number(env, runs[i]->run.size));
    array.Set(i, handle);
  }
  return array;
}

MakeResult sort_to_handles(Engine& engine, Job& job, const EncodedTuples& tuples, uint64_t varying_bits, SortPlan plan) {
  plan.flip = tuples.flip;
  plan.borrowed = tuples.borrowed_from != nullptr;
  std::vector<std::shared_ptr<RunState>> runs;
  std::vector<SortedRun> sorted =
      naming_columns({&tuples}, [&] { return sort_chunksets(engine, tuples.layout, tuples.view, varying_bits, plan, job); });
  for (SortedRun& run : sorted) runs.push_back(std::make_shared<RunState>(RunState{std::move(run)}));
  return [runs = std::move(runs)](Napi::Env env) { return make_runs(env, runs); };
}

MakeResult rows_to_handle(JoinRows rows) {
  auto state = std::make_shared<RowsState>(RowsState{std::move(rows)});
  return [state = std::move(state)](Napi::Env env) -> Napi::Value {
    Napi::Object handle = to_handle(env, state);
    handle.Set("size", number(env, state->rows.size));
    handle.Set("skew", Napi::Number::New(env, state->rows.skew));
    handle.Set("splitRows", number(env, state->rows.split_rows));
    handle.Set("leftMayBeMissing", Napi::Boolean::New(env, state->rows.left_may_be_missing));
    handle.Set("rightMayBeMissing", Napi::Boolean::New(env, state->rows.right_may_be_missing));
    return handle;
  };
}

MakeResult column_result(OwnedColumn column) {
  auto made = std::make_shared<OwnedColumn>(std::move(column));
  return [made = std::move(made)](Napi::Env env) { return to_result_column(env, std::move(*made)); };
}

MakeResult columns_result(std::vector<OwnedColumn> columns) {
  auto made = std::make_shared<std::vector<OwnedColumn>>(std::move(columns));
  return [made = std::move(made)](Napi::Env env) -> Napi::Value {
    Napi::Array array = Napi::Array::New(env, made->size());
    for (uint32_t i = 0; i < made->size(); ++i) array.Set(i, to_result_column(env, std::move((*made)[i])));
    return array;
  };
}

}  // namespace warpjoin::binding
