// The addon's Engine class (lib/native.ts, NativeEngine): argument checks, promises, handles; nothing else.
#pragma once

#include <napi.h>

#include <memory>

#include "binding/step.h"
#include "core/engine.h"

namespace warpjoin::binding {

class EngineWrap : public Napi::ObjectWrap<EngineWrap> {
 public:
  static Napi::Function define(Napi::Env env);
  explicit EngineWrap(const Napi::CallbackInfo& info);

 private:
  Napi::Value devices(const Napi::CallbackInfo& info);
  Napi::Value memory(const Napi::CallbackInfo& info);
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
  Napi::Value merge_runs(const Napi::CallbackInfo& info);
  Napi::Value refine_ties(const Napi::CallbackInfo& info);
  Napi::Value decode_keys(const Napi::CallbackInfo& info);
  Napi::Value take_values(const Napi::CallbackInfo& info);
  Napi::Value take_keys(const Napi::CallbackInfo& info);
  Napi::Value join_keys(const Napi::CallbackInfo& info);
  Napi::Value hash_join_device_bytes(const Napi::CallbackInfo& info);
  Napi::Value merge_join_device_bytes(const Napi::CallbackInfo& info);
  Napi::Value hash_join(const Napi::CallbackInfo& info);
  Napi::Value join_side_is_sorted(const Napi::CallbackInfo& info);
  Napi::Value sort_join_side(const Napi::CallbackInfo& info);
  Napi::Value merge_join(const Napi::CallbackInfo& info);
  Napi::Value sort_merge_join_device_bytes(const Napi::CallbackInfo& info);
  Napi::Value sort_merge_join(const Napi::CallbackInfo& info);
  Napi::Value cross_join(const Napi::CallbackInfo& info);
  Napi::Value take_join_keys(const Napi::CallbackInfo& info);
  Napi::Value take_join_values(const Napi::CallbackInfo& info);
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

  /// Queues `work(engine, job)` behind the job in argument 0. `inputs` stay alive until the promise settles.
  using Work = std::function<MakeResult(Engine&, Job&)>;
  Napi::Value enqueue(const Napi::CallbackInfo& info, std::vector<std::shared_ptr<void>> inputs, Work work);
  /// Keeps this object from being collected while a step runs.
  std::shared_ptr<void> hold();
  /// The engine; throws once it is disposed.
  Engine& engine();

  std::shared_ptr<Engine> engine_;  // shared with queued steps
  StepQueue queue_;                 // after engine_: joined before the engine goes
};

}  // namespace warpjoin::binding
