// The steps of joins.
#include "binding/convert.h"
#include "binding/engine_wrap.h"
#include "binding/handles.h"
#include "binding/row_source.h"
#include "binding/step_values.h"

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

}  // namespace

Napi::Value EngineWrap::join_keys(const Napi::CallbackInfo& info) {
  const auto state = std::make_shared<JoinKeysState>();
  state->left = from_handle<Relation>(info[1]);
  state->right = from_handle<Relation>(info[4]);
  state->columns = {&column_at(*state->left, info[2], "leftColumn"), &column_at(*state->right, info[5], "rightColumn")};
  const Column* left_payload = optional_column_at(*state->left, info[3], "leftPayload");
  const Column* right_payload = optional_column_at(*state->right, info[6], "rightPayload");
  return enqueue(
      info, {state},
      [state = state.get(), held = std::weak_ptr(state), left_payload, right_payload](Engine& engine, Job& job) -> MakeResult {
        const PhaseTimer timer(job, "encode");
        state->keys = encode_join_keys(*state->columns.left, *state->columns.right, left_payload, right_payload, engine, job);
        // Here and not below: the keys may be the caller's, and gone by then.
        const bool left_sorted = seems_sorted(state->keys.left.tuples), right_sorted = seems_sorted(state->keys.right.tuples);
        return [held, left_sorted, right_sorted](Napi::Env env) -> Napi::Value {
          const auto made = held.lock();
          Napi::Object handle = to_handle(env, made);
          handle.Set("keyBytes", number(env, made->keys.left.tuples.layout.key_bytes));
          handle.Set("exact", Napi::Boolean::New(env, made->keys.exact));
          handle.Set("keysAreLeftValues", Napi::Boolean::New(env, made->keys.keys_are_left_values));
          handle.Set("left", describe_side(env, made->keys.left, left_sorted));
          handle.Set("right", describe_side(env, made->keys.right, right_sorted));
          return handle;
        };
      });
}

Napi::Value EngineWrap::hash_join_device_bytes(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const auto state = from_handle<JoinKeysState>(info[0]);
    const JoinRequest request = to_join_request(info[2]);
    const EncodedTuples& left = state->keys.left.tuples;
    const EncodedTuples& right = state->keys.right.tuples;
    const EncodedTuples& build = request.build_left ? left : right;
    const EncodedTuples& probe = request.build_left ? right : left;
    return number(info.Env(), warpjoin::hash_join_device_bytes(build.layout, build.view.size, probe.layout, probe.view.size,
                                                               to_count(info[1], "devices"), request,
                                                               static_cast<uint32_t>(to_count(info[3], "rounds")), engine()));
  });
}

Napi::Value EngineWrap::merge_join_device_bytes(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const auto state = from_handle<JoinKeysState>(info[0]);
    const EncodedTuples& left = state->keys.left.tuples;
    const EncodedTuples& right = state->keys.right.tuples;
    return number(info.Env(), warpjoin::merge_join_device_bytes(
                                  left.layout, left.view.size, right.layout, right.view.size, to_count(info[1], "devices"),
                                  static_cast<uint32_t>(to_count(info[2], "subpartitions")), engine()));
  });
}

Napi::Value EngineWrap::hash_join(const Napi::CallbackInfo& info) {
  const auto keys = from_handle<JoinKeysState>(info[1]);
  const Napi::Object plan_object = to_object(info[3], "plan");
  const HashJoinPlan plan{to_ordinals(plan_object.Get("devices"), "plan.devices"),
                          static_cast<uint32_t>(to_count(plan_object.Get("rounds"), "plan.rounds")),
                          static_cast<uint32_t>(to_count(plan_object.Get("partitions"), "plan.partitions"))};
  return enqueue(info, {keys}, [keys = keys.get(), request = to_join_request(info[2]), plan](Engine& engine, Job& job) {
    return rows_to_handle(warpjoin::hash_join(engine, keys->keys, keys->columns, request, plan, job));
  });
}

Napi::Value EngineWrap::join_side_is_sorted(const Napi::CallbackInfo& info) {
  const auto keys = from_handle<JoinKeysState>(info[1]);
  const bool left = to_side_is_left(info[2]);
  return enqueue(info, {keys}, [keys = keys.get(), left](Engine& engine, Job& job) -> MakeResult {
    const PhaseTimer timer(job, "check order");
    const bool sorted = is_sorted((left ? keys->keys.left : keys->keys.right).tuples, engine, job);
    return [sorted](Napi::Env env) { return Napi::Boolean::New(env, sorted); };
  });
}

Napi::Value EngineWrap::sort_join_side(const Napi::CallbackInfo& info) {
  const auto keys = from_handle<JoinKeysState>(info[1]);
  const bool left = to_side_is_left(info[2]);
  return enqueue(info, {keys}, [keys = keys.get(), left, plan = to_sort_plan(info[3])](Engine& engine, Job& job) {
    const JoinSide& side = left ? keys->keys.left : keys->keys.right;
    return sort_to_handles(engine, job, side.tuples, varying_bits(side, engine, job), plan);
  });
}

Napi::Value EngineWrap::merge_join(const Napi::CallbackInfo& info) {
  const auto keys = from_handle<JoinKeysState>(info[1]);
  const auto run = [&](size_t i) { return info[i].IsNull() ? nullptr : from_handle<RunState>(info[i]); };
  const auto left = run(2), right = run(3);
  const Napi::Object plan_object = to_object(info[5], "plan");
  const MergeJoinPlan plan{to_ordinals(plan_object.Get("devices"), "plan.devices"),
                           static_cast<uint32_t>(to_count(plan_object.Get("subpartitions"), "plan.subpartitions"))};
  return enqueue(info, {keys, left, right},
                 [keys = keys.get(), left = left.get(), right = right.get(), request = to_join_request(info[4]), plan](
                     Engine& engine, Job& job) {
                   const auto view = [](const RunState* run, const JoinSide& side) {
                     return run ? run->run.view() : side.tuples.view;
                   };
                   return rows_to_handle(warpjoin::merge_join(engine, view(left, keys->keys.left), view(right, keys->keys.right),
                                                              keys->keys, keys->columns, request, plan, job));
                 });
}

Napi::Value EngineWrap::sort_merge_join_device_bytes(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const auto state = from_handle<JoinKeysState>(info[0]);
    const EncodedTuples& left = state->keys.left.tuples;
    const EncodedTuples& right = state->keys.right.tuples;
    return number(info.Env(),
                  warpjoin::sort_merge_join_device_bytes(left.layout, left.view.size, right.layout, right.view.size,
                                                         to_count(info[1], "devices"), to_join_request(info[2]), engine()));
  });
}

Napi::Value EngineWrap::sort_merge_join(const Napi::CallbackInfo& info) {
  const auto keys = from_handle<JoinKeysState>(info[1]);
  return enqueue(info, {keys},
                 [keys = keys.get(), request = to_join_request(info[2]), devices = to_ordinals(info[3], "devices")](
                     Engine& engine, Job& job) {
                   return rows_to_handle(warpjoin::sort_merge_join(engine, keys->keys, keys->columns, request, devices, job));
                 });
}

Napi::Value EngineWrap::cross_join(const Napi::CallbackInfo& info) {
  const uint64_t left = to_count(info[1], "leftRows"), right = to_count(info[2], "rightRows"),
                 most = to_bound(info[3], "maxRows");
  return enqueue(info, {}, [left, right, most](Engine& engine, Job& job) {
    return rows_to_handle(warpjoin::cross_join(engine, left, right, most, job));
  });
}

Napi::Value EngineWrap::take_join_keys(const Napi::CallbackInfo& info) {
  return to_array_buffer(info.Env(), std::move(from_handle<RowsState>(info[0])->rows.keys));
}

Napi::Value EngineWrap::take_join_values(const Napi::CallbackInfo& info) {
  JoinRows& rows = from_handle<RowsState>(info[0])->rows;
  return to_array_buffer(info.Env(), std::move(to_side_is_left(info[1]) ? rows.left : rows.right));
}

}  // namespace warpjoin::binding
