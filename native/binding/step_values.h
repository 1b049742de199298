// Arguments and results that steps of several kinds have in common.
#pragma once

#include <memory>
#include <vector>

#include "binding/convert.h"
#include "binding/handles.h"
#include "binding/step.h"

namespace warpjoin::binding {

inline Napi::Number number(Napi::Env env, uint64_t value) { return Napi::Number::New(env, static_cast<double>(value)); }

// Arguments. Those that are none throw a JavaScript error that names `what`.
const Column& column_at(const Relation& relation, const Napi::Value& index, const char* what);
const Column* optional_column_at(const Relation& relation, const Napi::Value& index, const char* what);
std::vector<const Column*> columns_at(const Relation& relation, const Napi::Value& indices, const char* what);
/// Whether a step that reads each of so many rows once takes less than its hand-over to another thread and back, some 0.1 ms.
bool is_brief(uint64_t rows);
/// The same of a step that reads so many rows of a column, or all: of values of fixed width.
bool is_brief(const Column& column, uint64_t rows);
bool is_brief(const Column& column);
bool are_brief(const std::vector<const Column*>& columns);
/// The same of a join of relations of so many rows, whatever their keys.
bool is_brief_join(uint64_t left_rows, uint64_t right_rows);
/// Throws Napi::TypeError for a column that devices can't keep or gather.
void check_for_devices(Napi::Env env, const std::vector<const Column*>& columns);
SortAlgorithm to_sort_algorithm(const Napi::Value& value);
bool to_side_is_left(const Napi::Value& value);
/// Ordinals of devices of the engine: at least one, each once.
std::vector<int> to_devices(const Napi::Value& value, const Engine& engine);
/// How many devices of the engine to plan for.
size_t to_device_count(const Napi::Value& value, const Engine& engine);
SortPlan to_sort_plan(const Napi::Value& value, const Engine& engine);
/// Rounds or partitions of a hash join: a power of two that is not too large. `least` may be 0: by size.
uint32_t to_hash_parts(const Napi::Value& value, const char* what, uint32_t least);
/// Subpartitions of a merge join.
uint32_t to_subpartitions(const Napi::Value& value);

Napi::Value to_run_handle(Napi::Env env, const std::shared_ptr<RunState>& run);
/// Sorts tuples of `origin` by chunksets into run handles.
MakeResult sort_to_handles(Engine& engine, Job& job, const RunOrigin& origin, const EncodedTuples& tuples, uint64_t varying_bits,
                           SortPlan plan);
MakeResult rows_to_handle(Engine& engine, RowNumbersBelow left, RowNumbersBelow right, JoinRows rows,
                          std::vector<PackedValue> left_values = {});
MakeResult column_result(OwnedColumn column, uint64_t max_buffer_bytes);
MakeResult columns_result(std::vector<OwnedColumn> columns, uint64_t max_buffer_bytes);
/// Hands `length` values of `width` bytes over as a NativeResultColumn, without nulls. Throws Error(option) where they have been
/// taken, or were not asked for.
Napi::Value take_column(Napi::Env env, HostBuffer& values, uint32_t width, uint64_t length, const Job& job);

}  // namespace warpjoin::binding
