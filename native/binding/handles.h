// What JavaScript holds: opaque handles with a type tag, so that a mix-up is an error and not a crash.
#pragma once

#include <napi.h>

#include <memory>
#include <utility>
#include <vector>

#include "columns/encode.h"
#include "columns/resident_table.h"
#include "columns/table_join_keys.h"
#include "columns/table_sort_keys.h"
#include "core/column.h"
#include "core/job.h"
#include "join/join.h"
#include "sort/sort.h"

namespace warpjoin::binding {

/// Checked columns of one table. Destroyed on the JavaScript thread: it keeps the views' JavaScript array alive.
struct Relation {
  std::vector<Column> columns;
  uint64_t rows = 0;
  Napi::ObjectReference views;
};

struct SortKeysState {
  std::shared_ptr<Relation> relation;
  std::unique_ptr<SortKeys> keys;
};

struct JoinKeysState {
  std::shared_ptr<Relation> left, right;
  JoinKeys keys;
};

struct RunState {
  SortedRun run;
};

struct RowsState {
  JoinRows rows;
};

struct ResidentState {
  std::shared_ptr<Engine> engine;  // first: the table's memory is its devices'
  ResidentTable table;
};

struct TableSortKeysState {
  std::shared_ptr<ResidentState> resident;
  TableSortKeys keys;
};

struct TableJoinKeysState {
  std::shared_ptr<ResidentState> left, right;
  TableJoinKeys keys;
};

template <class State>
struct HandleTraits;
template <>
struct HandleTraits<Relation> {
  static constexpr const char* name = "relation";
  static constexpr napi_type_tag tag = {0x77617270'6a6f696e, 1};
};
template <>
struct HandleTraits<SortKeysState> {
  static constexpr const char* name = "sortKeys";
  static constexpr napi_type_tag tag = {0x77617270'6a6f696e, 2};
};
template <>
struct HandleTraits<JoinKeysState> {
  static constexpr const char* name = "joinKeys";
  static constexpr napi_type_tag tag = {0x77617270'6a6f696e, 3};
};
template <>
struct HandleTraits<RunState> {
  static constexpr const char* name = "run";
  static constexpr napi_type_tag tag = {0x77617270'6a6f696e, 4};
};
template <>
struct HandleTraits<RowsState> {
  static constexpr const char* name = "rows";
  static constexpr napi_type_tag tag = {0x77617270'6a6f696e, 5};
};
template <>
struct HandleTraits<Job> {
  static constexpr const char* name = "job";
  static constexpr napi_type_tag tag = {0x77617270'6a6f696e, 6};
};

template <>
struct HandleTraits<ResidentState> {
  static constexpr const char* name = "resident";
  static constexpr napi_type_tag tag = {0x77617270'6a6f696e, 7};
};
template <>
struct HandleTraits<TableSortKeysState> {
  static constexpr const char* name = "tableSortKeys";
  static constexpr napi_type_tag tag = {0x77617270'6a6f696e, 8};
};
template <>
struct HandleTraits<TableJoinKeysState> {
  static constexpr const char* name = "tableJoinKeys";
  static constexpr napi_type_tag tag = {0x77617270'6a6f696e, 9};
};

namespace detail {
template <class State>
std::shared_ptr<State>* boxed(const Napi::Value& value) {
  if (!value.IsObject()) return nullptr;
  const auto object = value.As<Napi::Object>();
  if (!object.CheckTypeTag(&HandleTraits<State>::tag)) return nullptr;
  void* data = nullptr;
  if (napi_unwrap(value.Env(), object, &data) != napi_ok) return nullptr;
  return static_cast<std::shared_ptr<State>*>(data);
}
}  // namespace detail

/// Whether a value is a handle of this kind, released or not.
template <class State>
bool is_handle(const Napi::Value& value) {
  return detail::boxed<State>(value) != nullptr;
}

/// The state behind a handle; throws Napi::TypeError for another kind of value or a released handle.
template <class State>
std::shared_ptr<State> from_handle(const Napi::Value& value) {
  auto* box = detail::boxed<State>(value);
  if (!box) throw Napi::TypeError::New(value.Env(), std::string("Expected a ") + HandleTraits<State>::name + " handle");
  if (!*box) throw Napi::TypeError::New(value.Env(), std::string("The ") + HandleTraits<State>::name + " handle was released");
  return *box;
}

/// Makes a handle with a release() method.
template <class State>
Napi::Object to_handle(Napi::Env env, std::shared_ptr<State> state) {
  Napi::Object object = Napi::Object::New(env);
  auto box = std::make_unique<std::shared_ptr<State>>(std::move(state));
  object.TypeTag(&HandleTraits<State>::tag);
  napi_status status = napi_wrap(
      env, object, box.get(), [](napi_env, void* data, void*) { delete static_cast<std::shared_ptr<State>*>(data); }, nullptr,
      nullptr);
  if (status != napi_ok) throw Napi::Error::New(env);
  box.release();
  object.Set("release", Napi::Function::New(env, [](const Napi::CallbackInfo& info) {
               if (auto* held = detail::boxed<State>(info.This())) held->reset();
             }));
  return object;
}

}  // namespace warpjoin::binding
