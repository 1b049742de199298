// What JavaScript holds: opaque handles. A mix-up (another kind, one released, one of another engine) is an error, not a crash.
#pragma once

#include <napi.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "binding/entry.h"
#include "columns/dictionary.h"
#include "columns/encode.h"
#include "columns/resident_table.h"
#include "columns/table_join_keys.h"
#include "columns/table_sort_keys.h"
#include "core/column.h"
#include "core/host_memory.h"
#include "core/job.h"
#include "join/join.h"
#include "sort/sort.h"

namespace warpjoin::binding {

class EngineWrap;

/// Whether both share an owner, which may be gone: a new object at the address of an old one is not taken for that.
template <class A, class B>
bool same_owner(const A& a, const B& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

/// What only the engine that made it can work with.
struct OfEngine {
  std::weak_ptr<Engine> engine;
};

/// Checked columns of one table. Destroyed on the JavaScript thread: it keeps a JavaScript array of their views alive.
struct Relation : OfEngine {
  std::vector<Column> columns;
  uint64_t rows = 0;
  Napi::ObjectReference views;
  /// What columns refer to beside them. JavaScript shares the buffers of the dictionaries.
  UnifiedDictionaries unified;
  std::vector<std::shared_ptr<HostBuffer>> shared;
};

/// What the values of tuples are: the numbers of rows below `below`, or, without it, a payload.
struct RowNumbersBelow {
  std::optional<uint64_t> below;
};

/// What the tuples of a join's side carry.
inline RowNumbersBelow values_of(const JoinSide& side) {
  if (side.carries_payload) return {};
  return {side.rows};
}

struct SortKeysState : OfEngine {
  std::shared_ptr<Relation> relation;
  std::unique_ptr<SortKeys> keys;
  size_t columns = 0;   ///< that they are made of
  bool sorted = false;  ///< the tuples are known to be in order

  RowNumbersBelow values() const;
};

struct JoinKeysState : OfEngine {
  std::shared_ptr<Relation> left, right;
  JoinKeys keys;
  /// Whether the tuples of a side are known to be in order. For steps alone: one finds out for those behind it.
  bool left_sorted = false, right_sorted = false;

  const JoinSide& side(bool of_left) const { return of_left ? keys.left : keys.right; }
  bool& sorted(bool of_left) { return of_left ? left_sorted : right_sorted; }
};

/// The tuples that a run is made of: all that are sorted by these keys, or of one side of a join's.
struct RunOrigin {
  std::weak_ptr<const void> keys;
  bool left = false;  ///< of a join's keys
  uint64_t tuples = 0;
  RowNumbersBelow values;

  bool operator==(const RunOrigin& other) const { return same_owner(keys, other.keys) && left == other.left; }
};

RunOrigin origin_of(const std::shared_ptr<SortKeysState>& keys);
RunOrigin origin_of(const std::shared_ptr<JoinKeysState>& keys, bool left);

/// Its buffers may be taken out: by JavaScript while no step uses it, and by steps.
struct RunState : OfEngine {
  RunOrigin origin;
  SortedRun run;
};

/// As a run: takes are checked alike.
struct RowsState : OfEngine {
  RowNumbersBelow left, right;  ///< but for those that may be missing
  uint64_t most;                ///< rows that it was made with: steps leave at most these
  JoinRows rows;
  std::vector<PackedValue> left_values;  ///< that the rows' keys hold
};

struct ResidentState : OfEngine {
  std::shared_ptr<Engine> owner;  // before the table: its memory is the engine's devices'
  ResidentTable table;
};

struct TableSortKeysState : OfEngine {
  std::shared_ptr<ResidentState> resident;
  TableSortKeys keys;
};

struct TableJoinKeysState : OfEngine {
  std::shared_ptr<ResidentState> left, right;
  TableJoinKeys keys;
};

/// Bytes that JavaScript holds for a call.
struct ReservationState : OfEngine {
  HostReservation reservation;
};

/// The name of a kind of handle in messages.
template <class State>
inline constexpr const char* kHandleName = nullptr;
template <>
inline constexpr const char* kHandleName<EngineWrap> = "engine";
template <>
inline constexpr const char* kHandleName<Job> = "job";
template <>
inline constexpr const char* kHandleName<Relation> = "relation";
template <>
inline constexpr const char* kHandleName<SortKeysState> = "sortKeys";
template <>
inline constexpr const char* kHandleName<JoinKeysState> = "joinKeys";
template <>
inline constexpr const char* kHandleName<RunState> = "run";
template <>
inline constexpr const char* kHandleName<RowsState> = "rows";
template <>
inline constexpr const char* kHandleName<ResidentState> = "resident";
template <>
inline constexpr const char* kHandleName<TableSortKeysState> = "tableSortKeys";
template <>
inline constexpr const char* kHandleName<TableJoinKeysState> = "tableJoinKeys";
template <>
inline constexpr const char* kHandleName<ReservationState> = "reservation";

namespace detail {

/// What a JavaScript object of the addon wraps.
struct Box {
  virtual ~Box() = default;
  virtual void release() noexcept = 0;
};

template <class State>
struct BoxOf final : Box {
  std::shared_ptr<State> state;

  explicit BoxOf(std::shared_ptr<State> held) : state(std::move(held)) {}
  void release() noexcept override { state.reset(); }
};

/// Null where the value is no object that wrap() has been given.
Box* boxed(const Napi::Value& value);
void wrap(const Napi::Object& object, std::unique_ptr<Box> box);

}  // namespace detail

/// Whether a value is a handle of this kind, released or not.
template <class State>
bool is_handle(const Napi::Value& value) {
  return dynamic_cast<detail::BoxOf<State>*>(detail::boxed(value)) != nullptr;
}

/// The state behind a handle; throws Napi::TypeError for another kind of value or a released handle.
template <class State>
std::shared_ptr<State> from_handle(const Napi::Value& value) {
  auto* const box = dynamic_cast<detail::BoxOf<State>*>(detail::boxed(value));
  const auto fail = [&](const std::string& message) { throw Napi::TypeError::New(value.Env(), message); };
  if (!box) fail(std::string("Expected a handle of kind ") + kHandleName<State>);
  if (!box->state) fail(std::string("The ") + kHandleName<State> + " handle was released");
  return box->state;
}

template <class T>
std::shared_ptr<T> receiver(const Napi::CallbackInfo& info) {
  return from_handle<T>(info.This());
}

/// The functions that handles have, made once an environment.
struct HandleFunctions {
  Napi::FunctionReference release, cancel, progress, phases, events;
};
HandleFunctions& handle_functions(Napi::Env env);

/// Makes a handle with a release() method.
template <class State>
Napi::Object to_handle(Napi::Env env, std::shared_ptr<State> state) {
  Napi::Object object = Napi::Object::New(env);
  detail::wrap(object, std::make_unique<detail::BoxOf<State>>(std::move(state)));
  object.Set("release", handle_functions(env).release.Value());
  return object;
}

/// A job's handle, with its methods.
Napi::Object to_job_handle(Napi::Env env, std::shared_ptr<Job> job);

}  // namespace warpjoin::binding
