#include "binding/engine_wrap.h"

#include <utility>

#include "binding/convert.h"
#include "binding/handles.h"
#include "binding/row_source.h"
#include "binding/step_values.h"
#include "columns/device_gather.h"
#include "core/error.h"
#include "primitives/primitives.h"
#include "transfer/link_speeds.h"

namespace warpjoin::binding {

Napi::Function EngineWrap::define(Napi::Env env) {
  return DefineClass(env, "Engine",
                     {InstanceMethod<&EngineWrap::devices>("devices"),
                      InstanceMethod<&EngineWrap::memory>("memory"),
                      InstanceMethod<&EngineWrap::reset_peaks>("resetPeaks"),
                      InstanceMethod<&EngineWrap::create_job>("createJob"),
                      InstanceMethod<&EngineWrap::failure>("failure"),
                      InstanceMethod<&EngineWrap::dispose>("dispose"),
                      InstanceMethod<&EngineWrap::measure_links>("measureLinks"),
                      InstanceMethod<&EngineWrap::relation>("relation"),
                      InstanceMethod<&EngineWrap::sort_keys>("sortKeys"),
                      InstanceMethod<&EngineWrap::sort_device_bytes>("sortDeviceBytes"),
                      InstanceMethod<&EngineWrap::sort_spills>("sortSpills"),
                      InstanceMethod<&EngineWrap::sort_chunksets>("sortChunksets"),
                      InstanceMethod<&EngineWrap::copy_run>("copyRun"),
                      InstanceMethod<&EngineWrap::merge_runs>("mergeRuns"),
                      InstanceMethod<&EngineWrap::refine_ties>("refineTies"),
                      InstanceMethod<&EngineWrap::decode_keys>("decodeKeys"),
                      InstanceMethod<&EngineWrap::take_values>("takeValues"),
                      InstanceMethod<&EngineWrap::take_keys>("takeKeys"),
                      InstanceMethod<&EngineWrap::join_keys>("joinKeys"),
                      InstanceMethod<&EngineWrap::hash_join_device_bytes>("hashJoinDeviceBytes"),
                      InstanceMethod<&EngineWrap::merge_join_device_bytes>("mergeJoinDeviceBytes"),
                      InstanceMethod<&EngineWrap::hash_join>("hashJoin"),
                      InstanceMethod<&EngineWrap::join_side_is_sorted>("joinSideIsSorted"),
                      InstanceMethod<&EngineWrap::sort_join_side>("sortJoinSide"),
                      InstanceMethod<&EngineWrap::merge_join>("mergeJoin"),
                      InstanceMethod<&EngineWrap::sort_merge_join_device_bytes>("sortMergeJoinDeviceBytes"),
                      InstanceMethod<&EngineWrap::sort_merge_join>("sortMergeJoin"),
                      InstanceMethod<&EngineWrap::cross_join>("crossJoin"),
                      InstanceMethod<&EngineWrap::take_join_keys>("takeJoinKeys"),
                      InstanceMethod<&EngineWrap::take_join_values>("takeJoinValues"),
                      InstanceMethod<&EngineWrap::gather>("gather"),
                      InstanceMethod<&EngineWrap::gather_coalesced>("gatherCoalesced"),
                      InstanceMethod<&EngineWrap::gather_device_bytes>("gatherDeviceBytes"),
                      InstanceMethod<&EngineWrap::gather_on_devices>("gatherOnDevices"),
                      InstanceMethod<&EngineWrap::resident_bytes>("residentBytes"),
                      InstanceMethod<&EngineWrap::load_table>("loadTable"),
                      InstanceMethod<&EngineWrap::bring_home>("bringHome"),
                      InstanceMethod<&EngineWrap::table_join_keys>("tableJoinKeys"),
                      InstanceMethod<&EngineWrap::join_tables>("joinTables"),
                      InstanceMethod<&EngineWrap::join_tables_home>("joinTablesHome"),
                      InstanceMethod<&EngineWrap::join_tables_device_bytes>("joinTablesDeviceBytes"),
                      InstanceMethod<&EngineWrap::table_sort_keys>("tableSortKeys"),
                      InstanceMethod<&EngineWrap::sort_table>("sortTable"),
                      InstanceMethod<&EngineWrap::sort_table_device_bytes>("sortTableDeviceBytes"),
                      InstanceMethod<&EngineWrap::fail_allocation>("failAllocation"),
                      InstanceMethod<&EngineWrap::leave_device_memory>("leaveDeviceMemory"),
                      InstanceMethod<&EngineWrap::lose_device>("loseDevice")});
}

EngineWrap::EngineWrap(const Napi::CallbackInfo& info) : Napi::ObjectWrap<EngineWrap>(info) {
  const Napi::Object config = to_object(info[0], "config");
  EngineConfig native;
  native.threads = static_cast<unsigned>(to_count(config.Get("threads"), "config.threads"));
  native.host_devices = static_cast<int>(to_count(config.Get("hostDevices"), "config.hostDevices"));
  native.gpus = to_ordinals(config.Get("gpus"), "config.gpus");
  native.memory_limit_bytes = to_count(config.Get("memoryLimitBytes"), "config.memoryLimitBytes");
  native.device_memory_limit_bytes = to_count(config.Get("deviceMemoryLimitBytes"), "config.deviceMemoryLimitBytes");
  if (info.Length() > 1) {
    const Napi::Object other = to_object(info[1], "memoryOf");
    if (!other.InstanceOf(info.NewTarget().As<Napi::Function>())) throw Napi::TypeError::New(info.Env(), "Expected an engine");
    native.memory = Unwrap(other)->engine().memory;
  }
  guarded(info.Env(), [&]() -> Napi::Value {
    engine_ = std::make_shared<Engine>(native);
    return {};
  });
}

Engine& EngineWrap::engine() {
  if (!engine_) throw Error(ErrorCode::option, "The engine has been disposed");
  return *engine_;
}

std::shared_ptr<void> EngineWrap::hold() {
  Ref();
  return {this, [](void* self) {
            try {
              static_cast<EngineWrap*>(self)->Unref();
            } catch (const Napi::Error&) {
              // The environment is being torn down, and this object with it.
            }
          }};
}

Napi::Value EngineWrap::enqueue(const Napi::CallbackInfo& info, std::vector<std::shared_ptr<void>> inputs, Work work) {
  const std::shared_ptr<Job> job = from_handle<Job>(info[0]);
  auto step = std::make_unique<Step>(info.Env());
  inputs.push_back(hold());
  step->job = job;
  step->inputs = std::move(inputs);
  step->run = [engine = engine_, job = job.get(), work = std::move(work)] {
    if (!engine) throw Error(ErrorCode::option, "The engine has been disposed");
    engine->check();
    return work(*engine, *job);
  };
  return queue_.submit(info.Env(), std::move(step));
}

Napi::Value EngineWrap::devices(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    const auto& all = engine().devices;
    Napi::Array array = Napi::Array::New(env, all.size());
    for (uint32_t i = 0; i < all.size(); ++i) {
      const DeviceInfo& device = all[i]->info();
      Napi::Object object = Napi::Object::New(env);
      object.Set("kind", device.kind == DeviceKind::gpu ? "gpu" : "host");
      object.Set("ordinal", device.ordinal);
      object.Set("name", device.name);
      object.Set("memoryBytes", number(env, device.memory_bytes));
      object.Set("limitBytes", number(env, device.limit_bytes));
      object.Set("peakBytes", number(env, all[i]->memory().peak_bytes()));
      object.Set("residentBytes", number(env, all[i]->memory().resident_bytes()));
      Napi::Array peers = Napi::Array::New(env);
      for (uint32_t j = 0; j < all.size(); ++j) {
        const bool direct = engine().topology.link(static_cast<int>(i), static_cast<int>(j)).direct;
        if (i != j && direct) peers.Set(peers.Length(), j);
      }
      object.Set("peers", peers);
      array.Set(i, object);
    }
    return array;
  });
}

Napi::Value EngineWrap::memory(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    Napi::Object object = Napi::Object::New(env);
    object.Set("usedBytes", number(env, engine().memory->used_bytes()));
    object.Set("peakBytes", number(env, engine().memory->peak_bytes()));
    object.Set("limitBytes", number(env, engine().memory->limit_bytes()));
    return object;
  });
}

Napi::Value EngineWrap::reset_peaks(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    engine().memory->reset_peak();
    for (const auto& device : engine().devices) device->memory().reset_peak();
    return info.Env().Undefined();
  });
}

Napi::Value EngineWrap::create_job(const Napi::CallbackInfo& info) {
  const bool by_default = info[0].IsUndefined();
  Napi::Object handle =
      to_handle(info.Env(), by_default ? std::make_shared<Job>() : std::make_shared<Job>(to_bound(info[0], "maxBufferBytes")));
  handle.Set("cancel",
             Napi::Function::New(info.Env(), [](const Napi::CallbackInfo& call) { from_handle<Job>(call.This())->cancel(); }));
  handle.Set("progress", Napi::Function::New(info.Env(), [](const Napi::CallbackInfo& call) -> Napi::Value {
               const auto job = from_handle<Job>(call.This());
               Napi::Object progress = Napi::Object::New(call.Env());
               progress.Set("planned", number(call.Env(), job->planned()));
               progress.Set("done", number(call.Env(), job->done()));
               return progress;
             }));
  handle.Set("phases", Napi::Function::New(info.Env(), [](const Napi::CallbackInfo& call) -> Napi::Value {
               const auto phases = from_handle<Job>(call.This())->phases();
               Napi::Array array = Napi::Array::New(call.Env(), phases.size());
               for (uint32_t i = 0; i < phases.size(); ++i) {
                 Napi::Object phase = Napi::Object::New(call.Env());
                 phase.Set("name", phases[i].name);
                 phase.Set("milliseconds", phases[i].milliseconds);
                 phase.Set("bytes", number(call.Env(), phases[i].bytes));
                 array.Set(i, phase);
               }
               return array;
             }));
  return handle;
}

Napi::Value EngineWrap::failure(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const Engine& own = engine();
    try {
      own.check();
      return info.Env().Null();
    } catch (const Error& error) {
      return Napi::String::New(info.Env(), error.what());
    }
  });
}

Napi::Value EngineWrap::dispose(const Napi::CallbackInfo& info) {
  auto step = std::make_unique<Step>(info.Env());
  step->inputs.push_back(hold());
  // The last owner frees the devices and joins the pool, on the queue's thread once earlier steps are done.
  step->run = [engine = std::exchange(engine_, nullptr)]() mutable -> MakeResult {
    if (engine) engine->memory->close();
    engine.reset();
    return nullptr;
  };
  return queue_.submit(info.Env(), std::move(step));
}

Napi::Value EngineWrap::measure_links(const Napi::CallbackInfo& info) {
  return enqueue(info, {}, [](Engine& engine, Job& job) -> MakeResult {
    const PhaseTimer timer(job, "measure links");
    return [speeds = warpjoin::measure_links(engine, job)](Napi::Env env) { return to_js_links(env, speeds); };
  });
}

Napi::Value EngineWrap::relation(const Napi::CallbackInfo& info) {
  auto relation = std::make_shared<Relation>();
  if (!info[1].IsArray()) throw Napi::TypeError::New(info.Env(), "Expected an array for columns");
  const auto columns = info[1].As<Napi::Array>();
  for (uint32_t i = 0; i < columns.Length(); ++i) relation->columns.push_back(to_column(columns.Get(i)));
  relation->rows = to_count(info[2], "rows");
  relation->views = Napi::Persistent(columns.As<Napi::Object>());
  return enqueue(info, {relation},
                 [relation = relation.get(), held = std::weak_ptr(relation)](Engine& engine, Job& job) -> MakeResult {
                   const PhaseTimer timer(job, "validate");
                   for (const Column& column : relation->columns) {
                     if (column.length != relation->rows) {
                       throw Error(ErrorCode::invalid_table, "Column '" + column.name + "' has " + std::to_string(column.length) +
                                                                 " rows where its table has " + std::to_string(relation->rows));
                     }
                     validate_column(column, engine, job);
                   }
                   return [held](Napi::Env env) -> Napi::Value {
                     const auto state = held.lock();
                     Napi::Object handle = to_handle(env, state);
                     handle.Set("rows", number(env, state->rows));
                     return handle;
                   };
                 });
}

Napi::Value EngineWrap::sort_keys(const Napi::CallbackInfo& info) {
  const auto state = std::make_shared<SortKeysState>();
  state->relation = from_handle<Relation>(info[1]);
  if (!info[2].IsArray()) throw Napi::TypeError::New(info.Env(), "Expected an array for by");
  const auto specs = info[2].As<Napi::Array>();
  std::vector<SortColumn> by;
  for (uint32_t i = 0; i < specs.Length(); ++i) {
    const Napi::Object spec = to_object(specs.Get(i), "by");
    by.push_back({&column_at(*state->relation, spec.Get("column"), "by.column"), to_bool(spec.Get("descending"), "by.descending"),
                  to_bool(spec.Get("nullsLast"), "by.nullsLast")});
  }
  const Column* payload = optional_column_at(*state->relation, info[3], "payload");
  const bool allow_flip = to_bool(info[4], "allowFlip");
  return enqueue(info, {state},
                 [state = state.get(), held = std::weak_ptr(state), by = std::move(by), payload, allow_flip](
                     Engine& engine, Job& job) -> MakeResult {
                   const PhaseTimer timer(job, "encode");
                   state->keys = encode_sort_keys(by, payload, allow_flip, engine, job);
                   const bool sorted = state->keys->complete() && is_sorted(state->keys->tuples(), engine, job);
                   return [held, sorted](Napi::Env env) -> Napi::Value {
                     const auto made = held.lock();
                     const EncodedTuples& tuples = made->keys->tuples();
                     Napi::Object handle = to_handle(env, made);
                     handle.Set("rows", number(env, tuples.view.size));
                     handle.Set("keyBytes", number(env, tuples.layout.key_bytes));
                     handle.Set("valueBytes", number(env, tuples.layout.value_bytes));
                     handle.Set("carriesPayload", Napi::Boolean::New(env, tuples.view.values != nullptr));
                     handle.Set("complete", Napi::Boolean::New(env, made->keys->complete()));
                     handle.Set("areValues", Napi::Boolean::New(env, made->keys->are_values()));
                     handle.Set("sorted", Napi::Boolean::New(env, sorted));
                     return handle;
                   };
                 });
}

Napi::Value EngineWrap::sort_device_bytes(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const TupleLayout layout{static_cast<uint8_t>(to_count(info[0], "keyBytes")),
                             static_cast<uint8_t>(to_count(info[1], "valueBytes"))};
    return number(info.Env(),
                  warpjoin::sort_device_bytes(layout, to_count(info[2], "tuples"), to_count(info[3], "devices"),
                                              to_sort_algorithm(info[4]), to_bool(info[5], "severalChunksets"), engine()));
  });
}

Napi::Value EngineWrap::sort_spills(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    return Napi::Boolean::New(info.Env(), warpjoin::sort_spills(to_count(info[0], "tuples"), to_count(info[1], "chunkset"),
                                                                to_ordinals(info[2], "devices"), engine()));
  });
}

Napi::Value EngineWrap::sort_chunksets(const Napi::CallbackInfo& info) {
  const auto keys = from_handle<SortKeysState>(info[1]);
  return enqueue(info, {keys}, [keys = keys.get(), plan = to_sort_plan(info[2])](Engine& engine, Job& job) {
    const EncodedTuples& tuples = keys->keys->tuples();
    return sort_to_handles(engine, job, tuples, tuples.varying_bits, plan);
  });
}

Napi::Value EngineWrap::copy_run(const Napi::CallbackInfo& info) {
  const auto keys = from_handle<SortKeysState>(info[1]);
  return enqueue(info, {keys}, [keys = keys.get()](Engine& engine, Job& job) -> MakeResult {
    const EncodedTuples& tuples = keys->keys->tuples();
    auto run = std::make_shared<RunState>(RunState{warpjoin::copy_run(engine, tuples.layout, tuples.view, tuples.flip, job)});
    return [run](Napi::Env env) { return make_runs(env, {run}).As<Napi::Array>().Get(0u); };
  });
}

Napi::Value EngineWrap::merge_runs(const Napi::CallbackInfo& info) {
  if (!info[1].IsArray()) throw Napi::TypeError::New(info.Env(), "Expected an array for runs");
  const auto handles = info[1].As<Napi::Array>();
  auto runs = std::make_shared<std::vector<SortedRun>>();
  for (uint32_t i = 0; i < handles.Length(); ++i) runs->push_back(std::move(from_handle<RunState>(handles.Get(i))->run));
  return enqueue(info, {}, [runs](Engine& engine, Job& job) -> MakeResult {
    auto merged = std::make_shared<RunState>(RunState{warpjoin::merge_runs(engine, std::move(*runs), job)});
    return [merged](Napi::Env env) { return make_runs(env, {merged}).As<Napi::Array>().Get(0u); };
  });
}

Napi::Value EngineWrap::refine_ties(const Napi::CallbackInfo& info) {
  const auto keys = from_handle<SortKeysState>(info[1]);
  const auto run = from_handle<RunState>(info[2]);
  return enqueue(info, {keys, run}, [keys = keys.get(), run = run.get()](Engine& engine, Job& job) -> MakeResult {
    if (keys->keys->complete()) return nullptr;
    const PhaseTimer timer(job, "refine");
    keys->keys->refine_ties(run->run.span(), engine, job);
    return nullptr;
  });
}

Napi::Value EngineWrap::decode_keys(const Napi::CallbackInfo& info) {
  const auto keys = from_handle<SortKeysState>(info[1]);
  const auto run = from_handle<RunState>(info[3]);
  const uint64_t column = to_count(info[2], "sortColumn");
  return enqueue(info, {keys, run}, [keys = keys.get(), run = run.get(), column](Engine& engine, Job& job) -> MakeResult {
    const PhaseTimer timer(job, "decode");
    auto decoded = keys->keys->decode(column, run->run.keys.data(), engine, job);
    if (!decoded) return [](Napi::Env env) { return env.Null(); };
    return column_result(std::move(*decoded), job.max_buffer_bytes());
  });
}

Napi::Value EngineWrap::take_values(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    SortedRun& run = from_handle<RunState>(info[1])->run;
    return take_column(info.Env(), run.values, run.layout.value_bytes, run.size, *from_handle<Job>(info[0]));
  });
}

Napi::Value EngineWrap::take_keys(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    SortedRun& run = from_handle<RunState>(info[1])->run;
    return take_column(info.Env(), run.keys, run.layout.key_bytes, run.size, *from_handle<Job>(info[0]));
  });
}

Napi::Value EngineWrap::gather(const Napi::CallbackInfo& info) {
  const auto relation = from_handle<Relation>(info[1]);
  const Column* column = &column_at(*relation, info[2], "column");
  const RowSource rows(info[3], info[4]);
  return enqueue(info, {relation, rows.held}, [column, list = rows.list](Engine& engine, Job& job) {
    const PhaseTimer timer(job, "gather");
    return column_result(warpjoin::gather(*column, list(), engine, job), job.max_buffer_bytes());
  });
}

Napi::Value EngineWrap::gather_coalesced(const Napi::CallbackInfo& info) {
  const auto left = from_handle<Relation>(info[1]);
  const auto right = from_handle<Relation>(info[3]);
  const Column* first = &column_at(*left, info[2], "leftColumn");
  const Column* second = &column_at(*right, info[4], "rightColumn");
  const auto rows = from_handle<RowsState>(info[5]);
  return enqueue(info, {left, right, rows}, [first, second, rows = rows.get()](Engine& engine, Job& job) {
    const PhaseTimer timer(job, "gather");
    return column_result(
        warpjoin::gather_coalesced(*first, row_list(rows->rows, true), *second, row_list(rows->rows, false), engine, job),
        job.max_buffer_bytes());
  });
}

Napi::Value EngineWrap::gather_device_bytes(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const auto relation = from_handle<Relation>(info[0]);
    const Napi::Object rows = to_object(info[2], "rows");
    const RowList list{nullptr, static_cast<uint8_t>(to_count(rows.Get("rowBytes"), "rows.rowBytes")),
                       to_bool(rows.Get("mayBeMissing"), "rows.mayBeMissing"), to_count(rows.Get("size"), "rows.size")};
    return number(info.Env(),
                  warpjoin::device_gather_bytes(columns_at(*relation, info[1], "columns"), list, to_count(info[3], "devices")));
  });
}

Napi::Value EngineWrap::gather_on_devices(const Napi::CallbackInfo& info) {
  const auto relation = from_handle<Relation>(info[1]);
  const RowSource rows(info[3], info[4]);
  return enqueue(info, {relation, rows.held},
                 [columns = columns_at(*relation, info[2], "columns"), list = rows.list,
                  ordinals = to_ordinals(info[5], "devices")](Engine& engine, Job& job) {
                   const PhaseTimer timer(job, "gather on devices");
                   return columns_result(warpjoin::gather_on_devices(engine, engine.select(ordinals), columns, list(), job),
                                         job.max_buffer_bytes());
                 });
}

Napi::Value EngineWrap::fail_allocation(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const std::string where = to_string(info[0], "where");
    const uint64_t n = to_count(info[1], "n");
    if (where == "memory") engine().memory->fail_allocation(n);
    if (where == "devices") {
      for (const auto& device : engine().devices) device->memory().fail_allocation(n);
    }
    return info.Env().Undefined();
  });
}

Napi::Value EngineWrap::leave_device_memory(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const uint64_t bytes = to_bound(info[0], "bytes");
    for (const auto& device : engine().devices) device->memory().leave_free(bytes);
    return info.Env().Undefined();
  });
}

Napi::Value EngineWrap::lose_device(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Device& device = *engine().select({static_cast<int>(to_count(info[0], "ordinal"))})[0];
    if (device.addresses_host_memory()) throw Error(ErrorCode::not_supported, "The processor can't be lost");
    // A kernel that writes where nothing is.
    const auto stream = device.create_stream();
    void* const nothing = reinterpret_cast<void*>(StackAllocator::kAlignment);
    device.primitives().flip_keys({8, 0}, nothing, nothing, 1, 0, Job(), *stream);
    return info.Env().Undefined();
  });
}

}  // namespace warpjoin::binding
