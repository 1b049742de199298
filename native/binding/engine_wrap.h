// The addon's Engine class (lib/native.ts, NativeEngine): argument checks, promises, handles; nothing else.
#pragma once

#include <napi.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "binding/handles.h"
#include "binding/row_source.h"
#include "binding/step.h"
#include "binding/step_values.h"
#include "core/error.h"
#include "engine/engine.h"

namespace warpjoin::binding {

class EngineWrap : public std::enable_shared_from_this<EngineWrap> {
 public:
  static Napi::Value define(Napi::Env env);
  EngineWrap(Napi::Env env, const EngineConfig& config);

  /// The state behind a handle that this engine has made.
  template <class State>
  std::shared_ptr<State> own(const Napi::Value& value) const {
    std::shared_ptr<State> state = from_handle<State>(value);
    if (!same_owner(state->engine, identity_)) {
      throw Napi::TypeError::New(value.Env(), std::string("The ") + kHandleName<State> + " handle belongs to another engine");
    }
    return state;
  }
  /// The same of one that no step uses: to be taken from. Handles and steps hold states on the JavaScript thread alone.
  template <class State>
  std::shared_ptr<State> own_idle(const Napi::Value& value) const {
    std::shared_ptr<State> state = own<State>(value);
    if (state.use_count() > 2) {  // the handle and this
      throw Error(ErrorCode::option, std::string("The ") + kHandleName<State> + " is in use by a step that has not ended");
    }
    return state;
  }

 private:
  static Napi::Value construct(const Napi::CallbackInfo& info);

  Napi::Value threads(const Napi::CallbackInfo& info);
  Napi::Value devices(const Napi::CallbackInfo& info);
  Napi::Value memory(const Napi::CallbackInfo& info);
  Napi::Value reserve(const Napi::CallbackInfo& info);
  Napi::Value allocate(const Napi::CallbackInfo& info);
  Napi::Value trim_memory(const Napi::CallbackInfo& info);
  Napi::Value reset_peaks(const Napi::CallbackInfo& info);
  Napi::Value create_job(const Napi::CallbackInfo& info);
  Napi::Value failure(const Napi::CallbackInfo& info);
  Napi::Value dispose(const Napi::CallbackInfo& info);
  Napi::Value measure_links(const Napi::CallbackInfo& info);
  Napi::Value relation(const Napi::CallbackInfo& info);
  Napi::Value sort_keys(const Napi::CallbackInfo& info);
  Napi::Value sort_device_bytes(const Napi::CallbackInfo& info);
  Napi::Value sort_spills(const Napi::CallbackInfo& info);
  Napi::Value sort_chunksets(const Napi::CallbackInfo& info);
  Napi::Value copy_run(const Napi::CallbackInfo& info);
  Napi::Value cut_run(const Napi::CallbackInfo& info);
  Napi::Value rows_are_sorted(const Napi::CallbackInfo& info);
  Napi::Value search_sorted(const Napi::CallbackInfo& info);
  Napi::Value cut_merge(const Napi::CallbackInfo& info);
  Napi::Value top_rows(const Napi::CallbackInfo& info);
  Napi::Value top_rows_bytes(const Napi::CallbackInfo& info);
  Napi::Value merge_scratch_bytes(const Napi::CallbackInfo& info);
  Napi::Value set_memory_limit(const Napi::CallbackInfo& info);
  Napi::Value drop_keys(const Napi::CallbackInfo& info);
  Napi::Value merge_runs(const Napi::CallbackInfo& info);
  Napi::Value refine_ties(const Napi::CallbackInfo& info);
  Napi::Value decode_keys(const Napi::CallbackInfo& info);
  Napi::Value take_values(const Napi::CallbackInfo& info);
  Napi::Value take_keys(const Napi::CallbackInfo& info);
  Napi::Value join_keys(const Napi::CallbackInfo& info);
  Napi::Value hash_join_device_bytes(const Napi::CallbackInfo& info);
  Napi::Value hash_join_spill(const Napi::CallbackInfo& info);
  Napi::Value merge_join_device_bytes(const Napi::CallbackInfo& info);
  Napi::Value hash_join(const Napi::CallbackInfo& info);
  Napi::Value join_side_is_sorted(const Napi::CallbackInfo& info);
  Napi::Value sort_join_side(const Napi::CallbackInfo& info);
  Napi::Value merge_join(const Napi::CallbackInfo& info);
  Napi::Value sort_merge_join_device_bytes(const Napi::CallbackInfo& info);
  Napi::Value sort_merge_join(const Napi::CallbackInfo& info);
  Napi::Value lookup_join(const Napi::CallbackInfo& info);
  Napi::Value cross_join(const Napi::CallbackInfo& info);
  Napi::Value order_rows(const Napi::CallbackInfo& info);
  Napi::Value order_rows_bytes(const Napi::CallbackInfo& info);
  Napi::Value slice_rows(const Napi::CallbackInfo& info);
  Napi::Value unique_rows(const Napi::CallbackInfo& info);
  Napi::Value unique_rows_bytes(const Napi::CallbackInfo& info);
  Napi::Value group_rows(const Napi::CallbackInfo& info);
  Napi::Value repeated_key(const Napi::CallbackInfo& info);
  Napi::Value take_join_keys(const Napi::CallbackInfo& info);
  Napi::Value take_join_values(const Napi::CallbackInfo& info);
  Napi::Value decode_join_keys(const Napi::CallbackInfo& info);
  Napi::Value gather(const Napi::CallbackInfo& info);
  Napi::Value gather_coalesced(const Napi::CallbackInfo& info);
  Napi::Value gather_device_bytes(const Napi::CallbackInfo& info);
  Napi::Value gather_on_devices(const Napi::CallbackInfo& info);
  Napi::Value resident_bytes(const Napi::CallbackInfo& info);
  Napi::Value load_table(const Napi::CallbackInfo& info);
  Napi::Value bring_home(const Napi::CallbackInfo& info);
  Napi::Value table_join_keys(const Napi::CallbackInfo& info);
  Napi::Value join_tables(const Napi::CallbackInfo& info);
  Napi::Value join_tables_home(const Napi::CallbackInfo& info);
  Napi::Value join_tables_device_bytes(const Napi::CallbackInfo& info);
  Napi::Value table_sort_keys(const Napi::CallbackInfo& info);
  Napi::Value sort_table(const Napi::CallbackInfo& info);
  Napi::Value sort_table_device_bytes(const Napi::CallbackInfo& info);
  Napi::Value fail_allocation(const Napi::CallbackInfo& info);
  Napi::Value leave_device_memory(const Napi::CallbackInfo& info);
  Napi::Value lose_device(const Napi::CallbackInfo& info);

  /// Queues `work(engine, job)` of the job in argument 0. `inputs` stay alive until the promise settles. What is `brief` on the
  /// processor may run at once.
  using Work = std::function<MakeResult(Engine&, Job&)>;
  using Inputs = std::vector<std::shared_ptr<void>>;
  Napi::Value enqueue(const Napi::CallbackInfo& info, Inputs inputs, bool brief, Work work);
  Napi::Value enqueue(const Napi::CallbackInfo& info, Inputs inputs, Work work) {
    return enqueue(info, std::move(inputs), false, std::move(work));
  }
  /// The engine; throws once it is disposed.
  Engine& engine() const;

  /// Row numbers that may be used for a relation of so many rows.
  RowSource own_rows(const Napi::Value& handle, const Napi::Value& side, const Relation& relation) const;

  std::shared_ptr<Engine> engine_;  // shared with queued steps
  std::weak_ptr<Engine> identity_;  // of a disposed engine, too
  std::optional<StepQueue> queue_;  // after engine_: joined before the engine goes. None once all disposals have ended.
  size_t disposals_ = 0;            // that have not ended
};

}  // namespace warpjoin::binding
