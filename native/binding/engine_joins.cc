// The steps of joins.
#include <algorithm>
#include <string>

#include "binding/convert.h"
#include "binding/engine_wrap.h"
#include "binding/handles.h"
#include "binding/row_source.h"
#include "binding/step_values.h"
#include "columns/convert.h"
#include "columns/gather.h"
#include "columns/key_groups.h"
#include "columns/row_groups.h"
#include "join/order_rows.h"

namespace warpjoin::binding {
namespace {

Napi::Object describe_side(Napi::Env env, const JoinSide& side, bool seems_in_order) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("rows", number(env, side.rows));
  object.Set("tuples", number(env, side.tuples.view.size));
  object.Set("valueBytes", number(env, side.tuples.layout.value_bytes));
  object.Set("carriesPayload", Napi::Boolean::New(env, side.carries_payload));
  object.Set("seemsSorted", Napi::Boolean::New(env, seems_in_order));
  return object;
}

const char* name_of(JoinKeys::Made made) {
  switch (made) {
    case JoinKeys::Made::value: return "value";
    case JoinKeys::Made::packed: return "packed";
    case JoinKeys::Made::code: return "code";
  }
  return "";
}

MakeResult rows_of(Engine& engine, const JoinKeysState& keys, JoinRows rows) {
  return rows_to_handle(engine, values_of(keys.keys.left), values_of(keys.keys.right), std::move(rows), keys.keys.left_values);
}

/// What a side is to carry, which may depend on what its keys give.
struct Payload {
  std::vector<size_t> pairs;
  const Column* given = nullptr;  ///< where keys give the left columns of all these pairs
  const Column* otherwise = nullptr;

  const Column* column(const JoinKeys& keys) const {
    return std::all_of(pairs.begin(), pairs.end(), [&](size_t pair) { return keys.give_left(pair); }) ? given : otherwise;
  }
};

Payload to_payload(const Relation& relation, const Napi::Value& value, const char* what, size_t pairs) {
  Payload payload;
  if (!value.IsObject()) {
    payload.given = optional_column_at(relation, value, what);
    return payload;
  }
  const auto object = value.As<Napi::Object>();
  payload.given = optional_column_at(relation, object.Get("given"), what);
  payload.otherwise = optional_column_at(relation, object.Get("otherwise"), what);
  const Napi::Value list = object.Get("pairs");
  if (!list.IsArray()) throw Napi::TypeError::New(value.Env(), std::string("Expected the pairs of ") + what);
  for (uint32_t i = 0; i < list.As<Napi::Array>().Length(); ++i) {
    const uint64_t pair = to_count(list.As<Napi::Array>().Get(i), what);
    if (pair >= pairs) throw Napi::RangeError::New(value.Env(), std::string("Expected pairs of columns for ") + what);
    payload.pairs.push_back(pair);
  }
  return payload;
}

}  // namespace

Napi::Value EngineWrap::join_keys(const Napi::CallbackInfo& info) {
  const auto state = std::make_shared<JoinKeysState>();
  state->engine = engine_;
  state->left = own<Relation>(info[1]);
  state->right = own<Relation>(info[4]);
  const std::vector<const Column*> left_keys = columns_at(*state->left, info[2], "leftColumns");
  const std::vector<const Column*> right_keys = columns_at(*state->right, info[5], "rightColumns");
  std::vector<JoinKeyPair> pairs = to_comparisons(info[7]);
  if (left_keys.empty() || right_keys.size() != left_keys.size() || pairs.size() != left_keys.size())
    throw Napi::RangeError::New(info.Env(), "Expected as many columns of both sides, at least one, and a comparison for each");
  for (size_t i = 0; i < pairs.size(); ++i) {
    pairs[i].left = left_keys[i];
    pairs[i].right = right_keys[i];
  }
  const Payload left_payload = to_payload(*state->left, info[3], "leftPayload", pairs.size());
  const Payload right_payload = to_payload(*state->right, info[6], "rightPayload", pairs.size());
  return enqueue(info, {state}, are_brief(left_keys) && are_brief(right_keys),
                 [state = state.get(), held = std::weak_ptr(state), pairs = std::move(pairs), left_payload, right_payload](
                     Engine& engine, Job& job) -> MakeResult {
                   const PhaseTimer timer(job, "encode");
                   JoinKeys& keys = state->keys = encode_join_keys(pairs, nullptr, nullptr, engine, job);
                   carry_payload(keys.left, left_payload.column(keys), engine, job);
                   carry_payload(keys.right, right_payload.column(keys), engine, job);
                   // Here and not below: the keys may be the caller's, and gone by then.
                   const bool left_sorted = seems_sorted(state->keys.left.tuples),
                              right_sorted = seems_sorted(state->keys.right.tuples);
                   return [held, left_sorted, right_sorted, pairs = pairs.size()](Napi::Env env) -> Napi::Value {
                     const auto made = held.lock();
                     Napi::Object handle = to_handle(env, made);
                     handle.Set("keyBytes", number(env, made->keys.left.tuples.layout.key_bytes));
                     handle.Set("rowsAreKeysOf", made->keys.left.keys_are_rows    ? Napi::Value(Napi::String::New(env, "left"))
                                                 : made->keys.right.keys_are_rows ? Napi::Value(Napi::String::New(env, "right"))
                                                                                  : env.Null());
                     handle.Set("made", Napi::String::New(env, name_of(made->keys.made)));
                     handle.Set("bits", number(env, made->keys.bits));
                     Napi::Array gives = Napi::Array::New(env);
                     for (size_t pair = 0; pair < pairs; ++pair) {
                       gives.Set(gives.Length(), Napi::Boolean::New(env, made->keys.give_left(pair)));
                     }
                     handle.Set("givesLeft", gives);
                     handle.Set("left", describe_side(env, made->keys.left, left_sorted));
                     handle.Set("right", describe_side(env, made->keys.right, right_sorted));
                     return handle;
                   };
                 });
}

Napi::Value EngineWrap::hash_join_device_bytes(const Napi::CallbackInfo& info) {
  const auto state = own<JoinKeysState>(info[0]);
  const JoinRequest request = to_join_request(info[2]);
  const EncodedTuples& left = state->keys.left.tuples;
  const EncodedTuples& right = state->keys.right.tuples;
  const EncodedTuples& build = request.build_left ? left : right;
  const EncodedTuples& probe = request.build_left ? right : left;
  return number(info.Env(), warpjoin::hash_join_device_bytes(build.layout, build.view.size, probe.layout, probe.view.size,
                                                             to_device_count(info[1], engine()), request,
                                                             static_cast<uint32_t>(to_count(info[3], "rounds")), engine()));
}

Napi::Value EngineWrap::hash_join_spill(const Napi::CallbackInfo& info) {
  const auto state = own<JoinKeysState>(info[0]);
  const HashJoinSpill spill =
      warpjoin::hash_join_spill(state->keys.left.tuples, state->keys.right.tuples, to_device_count(info[1], engine()),
                                to_join_request(info[2]), static_cast<uint32_t>(to_count(info[3], "rounds")), engine());
  Napi::Object made = Napi::Object::New(info.Env());
  made.Set("rows", number(info.Env(), spill.rows));
  made.Set("bytes", number(info.Env(), spill.bytes));
  made.Set("hostBytes", number(info.Env(), spill.host_bytes));
  return made;
}

Napi::Value EngineWrap::merge_join_device_bytes(const Napi::CallbackInfo& info) {
  const auto state = own<JoinKeysState>(info[0]);
  const EncodedTuples& left = state->keys.left.tuples;
  const EncodedTuples& right = state->keys.right.tuples;
  return number(info.Env(),
                warpjoin::merge_join_device_bytes(left.layout, left.view.size, right.layout, right.view.size,
                                                  to_device_count(info[1], engine()), to_subpartitions(info[2]), engine()));
}

Napi::Value EngineWrap::hash_join(const Napi::CallbackInfo& info) {
  const auto keys = own<JoinKeysState>(info[1]);
  const Napi::Object plan_object = to_object(info[3], "plan");
  const HashJoinPlan plan{to_devices(plan_object.Get("devices"), engine()), to_hash_parts(plan_object.Get("rounds"), "Rounds", 1),
                          to_hash_parts(plan_object.Get("partitions"), "Partitions", 0),
                          plan_object.Get("eitherSide").ToBoolean()};
  return enqueue(info, {keys}, is_brief_join(keys->left->rows, keys->right->rows),
                 [keys = keys.get(), request = to_join_request(info[2]), plan](Engine& engine, Job& job) {
                   return rows_of(engine, *keys, warpjoin::hash_join(engine, keys->keys, request, plan, job));
                 });
}

Napi::Value EngineWrap::join_side_is_sorted(const Napi::CallbackInfo& info) {
  const auto keys = own<JoinKeysState>(info[1]);
  const bool left = to_side_is_left(info[2]);
  return enqueue(info, {keys}, [keys = keys.get(), left](Engine& engine, Job& job) -> MakeResult {
    const PhaseTimer timer(job, "check order");
    const bool sorted = keys->sorted(left) = is_sorted(keys->side(left).tuples, engine, job);
    return [sorted](Napi::Env env) { return Napi::Boolean::New(env, sorted); };
  });
}

Napi::Value EngineWrap::sort_join_side(const Napi::CallbackInfo& info) {
  const auto keys = own<JoinKeysState>(info[1]);
  const bool left = to_side_is_left(info[2]);
  return enqueue(info, {keys},
                 [keys = keys.get(), left, origin = origin_of(keys, left), plan = to_sort_plan(info[3], this->engine())](
                     Engine& engine, Job& job) {
                   const JoinSide& side = keys->side(left);
                   return sort_to_handles(engine, job, origin, side.tuples, varying_bits(side, engine, job), plan);
                 });
}

Napi::Value EngineWrap::merge_join(const Napi::CallbackInfo& info) {
  const auto keys = own<JoinKeysState>(info[1]);
  const auto run_of = [&](const Napi::Value& value, bool left) -> std::shared_ptr<RunState> {
    if (value.IsNull()) return nullptr;
    auto run = own<RunState>(value);
    check_run(info.Env(), *run, origin_of(keys, left));
    return run;
  };
  const auto left = run_of(info[2], true), right = run_of(info[3], false);
  const Napi::Object plan_object = to_object(info[5], "plan");
  const MergeJoinPlan plan{to_devices(plan_object.Get("devices"), engine()), to_subpartitions(plan_object.Get("subpartitions"))};
  return enqueue(info, {keys, left, right},
                 [keys = keys.get(), left = left.get(), right = right.get(), request = to_join_request(info[4]), plan](
                     Engine& engine, Job& job) {
                   const auto view = [&](const RunState* run, bool of_left) {
                     if (run) {
                       check_whole(*run);
                       return run->run.view();
                     }
                     const EncodedTuples& tuples = keys->side(of_left).tuples;
                     // A plan that comes without a run has looked already.
                     bool& sorted = keys->sorted(of_left);
                     if (!sorted) sorted = is_sorted(tuples, engine, job);
                     if (!sorted) throw Error(ErrorCode::option, "Expected a run of a side whose tuples are not in order");
                     return tuples.view;
                   };
                   return rows_of(
                       engine, *keys,
                       warpjoin::merge_join(engine, view(left, true), view(right, false), keys->keys, request, plan, job));
                 });
}

Napi::Value EngineWrap::sort_merge_join_device_bytes(const Napi::CallbackInfo& info) {
  const auto state = own<JoinKeysState>(info[0]);
  const EncodedTuples& left = state->keys.left.tuples;
  const EncodedTuples& right = state->keys.right.tuples;
  return number(info.Env(),
                warpjoin::sort_merge_join_device_bytes(left.layout, left.view.size, right.layout, right.view.size,
                                                       to_device_count(info[1], engine()), to_join_request(info[2]), engine()));
}

Napi::Value EngineWrap::sort_merge_join(const Napi::CallbackInfo& info) {
  const auto keys = own<JoinKeysState>(info[1]);
  return enqueue(info, {keys},
                 [keys = keys.get(), request = to_join_request(info[2]), devices = to_devices(info[3], this->engine())](
                     Engine& engine, Job& job) {
                   return rows_of(engine, *keys, warpjoin::sort_merge_join(engine, keys->keys, request, devices, job));
                 });
}

Napi::Value EngineWrap::lookup_join(const Napi::CallbackInfo& info) {
  const auto keys = own<JoinKeysState>(info[1]);
  return enqueue(info, {keys}, is_brief_join(keys->left->rows, keys->right->rows),
                 [keys = keys.get(), request = to_join_request(info[2])](Engine& engine, Job& job) {
                   return rows_of(engine, *keys, warpjoin::lookup_join(engine, keys->keys, request, job));
                 });
}

Napi::Value EngineWrap::cross_join(const Napi::CallbackInfo& info) {
  const uint64_t left = to_count(info[1], "leftRows"), right = to_count(info[2], "rightRows"),
                 most = to_bound(info[3], "maxRows"), offset = to_bound(info[5], "offset"), limit = to_bound(info[6], "limit");
  const bool left_first = to_side_is_left(info[4]);
  return enqueue(info, {}, [left, right, most, left_first, offset, limit](Engine& engine, Job& job) {
    return rows_to_handle(engine, {left}, {right},
                          warpjoin::cross_join(engine, left, right, most, left_first, offset, limit, job));
  });
}

Napi::Value EngineWrap::order_rows(const Napi::CallbackInfo& info) {
  const auto rows = own<RowsState>(info[1]);
  const bool by_left = to_side_is_left(info[2]);
  const auto& [side, other] = by_left ? std::pair(rows->left, rows->right) : std::pair(rows->right, rows->left);
  // A payload that the other side's rows carry would be taken for row numbers, and is not there where they lack that side.
  if (!side.below || ((by_left ? rows->rows.right : rows->rows.left) && !other.below))
    throw Napi::TypeError::New(info.Env(), "The values are a payload, not row numbers");
  return enqueue(info, {rows}, is_brief(rows->most),
                 [rows = rows.get(), by_left, side_rows = *side.below, other_rows = other.below.value_or(0)](
                     Engine& engine, Job& job) -> MakeResult {
                   warpjoin::order_rows(engine, rows->rows, by_left, side_rows, other_rows, job);
                   return nullptr;
                 });
}

Napi::Value EngineWrap::order_rows_bytes(const Napi::CallbackInfo& info) {
  const auto width = [&](size_t argument, const char* what, bool may_be_none) {
    const uint64_t bytes = to_count(info[argument], what);
    if (bytes != 4 && bytes != 8 && !(bytes == 0 && may_be_none))
      throw Napi::RangeError::New(info.Env(), std::string("Expected 4 or 8 for ") + what);
    return static_cast<uint8_t>(bytes);
  };
  return number(info.Env(), warpjoin::order_rows_bytes(engine(), to_count(info[0], "rows"), width(1, "rowBytes", false),
                                                       width(2, "otherBytes", true)));
}

Napi::Value EngineWrap::slice_rows(const Napi::CallbackInfo& info) {
  const auto rows = own<RowsState>(info[1]);
  const uint64_t offset = to_bound(info[2], "offset"), limit = to_bound(info[3], "limit");
  return enqueue(info, {rows}, is_brief(rows->most), [rows, offset, limit](Engine& engine, Job& job) -> MakeResult {
    const PhaseTimer timer(job, "slice");
    warpjoin::slice_rows(engine, rows->rows, offset, limit, job);
    return [size = rows->rows.size](Napi::Env env) { return number(env, size); };
  });
}

namespace {

KeepRow to_keep(const Napi::Value& value) {
  const std::string name = to_string(value, "keep");
  if (name == "first") return KeepRow::first;
  if (name == "last") return KeepRow::last;
  if (name == "none") return KeepRow::none;
  throw Napi::TypeError::New(value.Env(), "Expected 'first', 'last' or 'none' for keep");
}

}  // namespace

Napi::Value EngineWrap::unique_rows(const Napi::CallbackInfo& info) {
  const auto keys = own<JoinKeysState>(info[1]);
  return enqueue(info, {keys}, [keys = keys.get(), keep = to_keep(info[2])](Engine& engine, Job& job) {
    UniqueRows kept = warpjoin::unique_rows(engine, keys->keys.left, keep, job);
    JoinRows rows;
    rows.size = kept.size;
    rows.left_layout.value_bytes = kept.row_bytes;
    rows.left = std::move(kept.rows);
    return rows_to_handle(engine, {keys->keys.left.rows}, {}, std::move(rows));
  });
}

Napi::Value EngineWrap::unique_rows_bytes(const Napi::CallbackInfo& info) {
  return number(info.Env(), warpjoin::unique_rows_bytes(engine(), own<JoinKeysState>(info[0])->keys.left));
}

Napi::Value EngineWrap::group_rows(const Napi::CallbackInfo& info) {
  const auto relation = own<Relation>(info[1]);
  const std::vector<const Column*> columns = columns_at(*relation, info[2], "columns");
  const std::vector<JoinKeyPair> pairs = to_comparisons(info[3]);
  const bool left = to_side_is_left(info[4]);
  const uint64_t groups = to_count(info[5], "groups", 1, kMostRowGroups), seed = to_count(info[6], "seed");
  if (columns.empty() || pairs.size() != columns.size())
    throw Napi::RangeError::New(info.Env(), "Expected at least one column, and a comparison for each");
  std::vector<GroupKey> keys;
  for (size_t i = 0; i < columns.size(); ++i) {
    keys.push_back({columns[i], left ? pairs[i].left_factor : pairs[i].right_factor, pairs[i].nulls_equal});
  }
  return enqueue(info, {relation}, [keys, rows = relation->rows, groups, seed](Engine& engine, Job& job) {
    job.add_planned(rows);
    const PhaseTimer timer(job, "group");
    RowGroups made = warpjoin::group_rows(keys, groups, seed, engine, job);
    JoinRows grouped;
    grouped.size = rows;
    grouped.left_layout.value_bytes = made.row_bytes;
    grouped.left = std::move(made.rows);
    grouped.group_ends = std::move(made.ends);
    job.add_done(rows);
    return rows_to_handle(engine, {rows}, {}, std::move(grouped));
  });
}

Napi::Value EngineWrap::repeated_key(const Napi::CallbackInfo& info) {
  const auto keys = own<JoinKeysState>(info[1]);
  return enqueue(info, {keys}, [keys = keys.get()](Engine& engine, Job& job) -> MakeResult {
    const auto found = find_repeated_key(engine, keys->keys.left, job);
    return [found](Napi::Env env) -> Napi::Value {
      if (!found) return env.Null();
      Napi::Object rows = Napi::Object::New(env);
      rows.Set("first", number(env, found->first));
      rows.Set("row", number(env, found->row));
      return rows;
    };
  });
}

namespace {

/// A column as what it becomes, which `made` then holds; nothing: as it is.
const Column& in_type(const Column& column, const std::optional<columns::Conversion>& to, columns::PlainKey& made, Engine& engine,
                      Job& job) {
  if (!to) return column;
  const PhaseTimer timer(job, "convert");
  made = columns::converted(column, *to, engine, job);
  return made.column;
}

}  // namespace

Napi::Value EngineWrap::gather_coalesced(const Napi::CallbackInfo& info) {
  const auto left = own<Relation>(info[1]);
  const auto right = own<Relation>(info[3]);
  const Column* first = &column_at(*left, info[2], "leftColumn");
  const Column* second = &column_at(*right, info[4], "rightColumn");
  const auto rows = own<RowsState>(info[5]);
  check_rows(info.Env(), rows->left, *left);
  check_rows(info.Env(), rows->right, *right);
  const Napi::Object as = to_object(info[6], "as");
  return enqueue(info, {left, right, rows},
                 [first, second, rows = rows.get(), first_as = to_conversion(as.Get("left")),
                  second_as = to_conversion(as.Get("right"))](Engine& engine, Job& job) {
                   columns::PlainKey first_made, second_made;
                   const Column& one = in_type(*first, first_as, first_made, engine, job);
                   const Column& other = in_type(*second, second_as, second_made, engine, job);
                   const PhaseTimer timer(job, "gather");
                   return column_result(
                       warpjoin::gather_coalesced(one, row_list(*rows, true), other, row_list(*rows, false), engine, job),
                       job.max_buffer_bytes());
                 });
}

}  // namespace warpjoin::binding
