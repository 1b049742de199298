// Arguments and results that steps of several kinds have in common.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "binding/convert.h"
#include "binding/handles.h"
#include "binding/step.h"

namespace warpjoin::binding {

inline Napi::Number number(Napi::Env env, uint64_t value) { return Napi::Number::New(env, static_cast<double>(value)); }

/// Runs f and turns a C++ exception into a JavaScript one: for the synchronous methods.
template <class F>
Napi::Value guarded(Napi::Env env, F&& f) {
  try {
    return f();
  } catch (const Napi::Error&) {
    throw;
  } catch (...) {
    throw to_js_error(env, std::current_exception());
  }
}

// Arguments. Those that are none throw a JavaScript error that names `what`.
const Column& column_at(const Relation& relation, const Napi::Value& index, const char* what);
const Column* optional_column_at(const Relation& relation, const Napi::Value& index, const char* what);
std::vector<const Column*> columns_at(const Relation& relation, const Napi::Value& indices, const char* what);
SortAlgorithm to_sort_algorithm(const Napi::Value& value);
SortPlan to_sort_plan(const Napi::Value& value);

Napi::Value make_runs(Napi::Env env, const std::vector<std::shared_ptr<RunState>>& runs);
/// Sorts tuples by chunksets into run handles.
MakeResult sort_to_handles(Engine& engine, Job& job, const EncodedTuples& tuples, uint64_t varying_bits, SortPlan plan);
MakeResult rows_to_handle(JoinRows rows);
MakeResult column_result(OwnedColumn column, uint64_t max_buffer_bytes);
MakeResult columns_result(std::vector<OwnedColumn> columns, uint64_t max_buffer_bytes);
/// Hands `length` values of `width` bytes over as a NativeResultColumn, without nulls.
Napi::Value take_column(Napi::Env env, HostBuffer& values, uint32_t width, uint64_t length, const Job& job);

}  // namespace warpjoin::binding
