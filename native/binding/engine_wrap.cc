#include "binding/engine_wrap.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "binding/convert.h"
#include "binding/handles.h"
#include "binding/row_source.h"
#include "binding/step_values.h"
#include "columns/device_gather.h"
#include "columns/row_search.h"
#include "columns/top_rows.h"
#include "core/error.h"
#include "primitives/primitives.h"
#include "transfer/link_speeds.h"

namespace warpjoin::binding {

Napi::Value EngineWrap::define(Napi::Env env) {
  const napi_property_descriptor methods[] = {method<&EngineWrap::threads>("threads"),
                                              method<&EngineWrap::devices>("devices"),
                                              method<&EngineWrap::memory>("memory"),
                                              method<&EngineWrap::set_memory_limit>("setMemoryLimit"),
                                              method<&EngineWrap::reset_peaks>("resetPeaks"),
                                              method<&EngineWrap::reserve>("reserve"),
                                              method<&EngineWrap::allocate>("allocate"),
                                              method<&EngineWrap::trim_memory>("trimMemory"),
                                              method<&EngineWrap::create_job>("createJob"),
                                              method<&EngineWrap::failure>("failure"),
                                              method<&EngineWrap::dispose>("dispose"),
                                              method<&EngineWrap::measure_links>("measureLinks"),
                                              method<&EngineWrap::relation>("relation"),
                                              method<&EngineWrap::sort_keys>("sortKeys"),
                                              method<&EngineWrap::sort_device_bytes>("sortDeviceBytes"),
                                              method<&EngineWrap::sort_spills>("sortSpills"),
                                              method<&EngineWrap::sort_chunksets>("sortChunksets"),
                                              method<&EngineWrap::copy_run>("copyRun"),
                                              method<&EngineWrap::cut_run>("cutRun"),
                                              method<&EngineWrap::rows_are_sorted>("rowsAreSorted"),
                                              method<&EngineWrap::search_sorted>("searchSorted"),
                                              method<&EngineWrap::cut_merge>("cutMerge"),
                                              method<&EngineWrap::top_rows>("topRows"),
                                              method<&EngineWrap::top_rows_bytes>("topRowsBytes"),
                                              method<&EngineWrap::merge_scratch_bytes>("mergeScratchBytes"),
                                              method<&EngineWrap::merge_runs>("mergeRuns"),
                                              method<&EngineWrap::drop_keys>("dropKeys"),
                                              method<&EngineWrap::refine_ties>("refineTies"),
                                              method<&EngineWrap::decode_keys>("decodeKeys"),
                                              method<&EngineWrap::take_values>("takeValues"),
                                              method<&EngineWrap::take_keys>("takeKeys"),
                                              method<&EngineWrap::join_keys>("joinKeys"),
                                              method<&EngineWrap::hash_join_device_bytes>("hashJoinDeviceBytes"),
                                              method<&EngineWrap::hash_join_spill>("hashJoinSpill"),
                                              method<&EngineWrap::merge_join_device_bytes>("mergeJoinDeviceBytes"),
                                              method<&EngineWrap::hash_join>("hashJoin"),
                                              method<&EngineWrap::join_side_is_sorted>("joinSideIsSorted"),
                                              method<&EngineWrap::sort_join_side>("sortJoinSide"),
                                              method<&EngineWrap::merge_join>("mergeJoin"),
                                              method<&EngineWrap::sort_merge_join_device_bytes>("sortMergeJoinDeviceBytes"),
                                              method<&EngineWrap::sort_merge_join>("sortMergeJoin"),
                                              method<&EngineWrap::lookup_join>("lookupJoin"),
                                              method<&EngineWrap::cross_join>("crossJoin"),
                                              method<&EngineWrap::order_rows>("orderRows"),
                                              method<&EngineWrap::order_rows_bytes>("orderRowsBytes"),
                                              method<&EngineWrap::slice_rows>("sliceRows"),
                                              method<&EngineWrap::unique_rows>("uniqueRows"),
                                              method<&EngineWrap::unique_rows_bytes>("uniqueRowsBytes"),
                                              method<&EngineWrap::group_rows>("groupRows"),
                                              method<&EngineWrap::repeated_key>("repeatedKey"),
                                              method<&EngineWrap::take_join_keys>("takeJoinKeys"),
                                              method<&EngineWrap::take_join_values>("takeJoinValues"),
                                              method<&EngineWrap::decode_join_keys>("decodeJoinKeys"),
                                              method<&EngineWrap::gather>("gather"),
                                              method<&EngineWrap::gather_coalesced>("gatherCoalesced"),
                                              method<&EngineWrap::gather_device_bytes>("gatherDeviceBytes"),
                                              method<&EngineWrap::gather_on_devices>("gatherOnDevices"),
                                              method<&EngineWrap::resident_bytes>("residentBytes"),
                                              method<&EngineWrap::load_table>("loadTable"),
                                              method<&EngineWrap::bring_home>("bringHome"),
                                              method<&EngineWrap::table_join_keys>("tableJoinKeys"),
                                              method<&EngineWrap::join_tables>("joinTables"),
                                              method<&EngineWrap::join_tables_home>("joinTablesHome"),
                                              method<&EngineWrap::join_tables_device_bytes>("joinTablesDeviceBytes"),
                                              method<&EngineWrap::table_sort_keys>("tableSortKeys"),
                                              method<&EngineWrap::sort_table>("sortTable"),
                                              method<&EngineWrap::sort_table_device_bytes>("sortTableDeviceBytes"),
                                              method<&EngineWrap::fail_allocation>("failAllocation"),
                                              method<&EngineWrap::leave_device_memory>("leaveDeviceMemory"),
                                              method<&EngineWrap::lose_device>("loseDevice")};
  napi_value made = nullptr;
  const napi_status status = napi_define_class(env, "Engine", NAPI_AUTO_LENGTH, entry<&EngineWrap::construct>, nullptr,
                                               std::size(methods), methods, &made);
  if (status != napi_ok) throw Napi::Error::New(env);
  return {env, made};
}

// The queue's thread first, for without it there is no engine; the pool can do with fewer.
EngineWrap::EngineWrap(Napi::Env env, const EngineConfig& config) : queue_(std::in_place, env) {
  engine_ = std::make_shared<Engine>(config);
  identity_ = engine_;
}

Napi::Value EngineWrap::construct(const Napi::CallbackInfo& info) {
  if (!info.IsConstructCall()) throw Napi::TypeError::New(info.Env(), "Expected new Engine()");
  constexpr uint64_t kMostThreads = 1024, kMostHostDevices = 64;  // as lib/options.ts
  const Napi::Object config = to_object(info[0], "config");
  EngineConfig native;
  native.threads = static_cast<unsigned>(to_count(config.Get("threads"), "config.threads", 1, kMostThreads));
  native.gpus = to_ordinals(config.Get("gpus"), "config.gpus");
  native.host_devices =
      static_cast<int>(to_count(config.Get("hostDevices"), "config.hostDevices", native.gpus.empty() ? 1 : 0, kMostHostDevices));
  native.memory_limit_bytes = to_count(config.Get("memoryLimitBytes"), "config.memoryLimitBytes");
  native.device_memory_limit_bytes = to_count(config.Get("deviceMemoryLimitBytes"), "config.deviceMemoryLimitBytes");
  if (!config.Get("hashBits").IsUndefined())
    native.hash_bits = static_cast<unsigned>(to_count(config.Get("hashBits"), "config.hashBits", 0, 64));
  if (!info[1].IsUndefined()) native.beside = &from_handle<EngineWrap>(info[1])->engine();
  auto made = std::make_unique<detail::BoxOf<EngineWrap>>(std::make_shared<EngineWrap>(info.Env(), native));
  detail::wrap(info.This().As<Napi::Object>(), std::move(made));
  return info.This();
}

Engine& EngineWrap::engine() const {
  if (!engine_) throw Error(ErrorCode::option, "The engine has been disposed");
  return *engine_;
}

RowSource EngineWrap::own_rows(const Napi::Value& handle, const Napi::Value& side, const Relation& relation) const {
  const bool left = to_side_is_left(side);
  if (is_handle<RunState>(handle)) {
    const auto run = own<RunState>(handle);
    check_rows(handle.Env(), run->origin.values, relation);
    return {run, run->origin.tuples, [run = run.get()] { return row_list(*run); }};
  }
  const auto rows = own<RowsState>(handle);
  check_rows(handle.Env(), left ? rows->left : rows->right, relation);
  return {rows, rows->most, [rows = rows.get(), left] { return row_list(*rows, left); }};
}

Napi::Value EngineWrap::enqueue(const Napi::CallbackInfo& info, Inputs inputs, bool brief, Work work) {
  const std::shared_ptr<Job> job = from_handle<Job>(info[0]);
  const bool on_host = engine().devices.front()->info().kind == DeviceKind::host;
  inputs.push_back(shared_from_this());
  const auto run = [engine = engine_, job = job.get(), work = std::move(work)] {
    engine->check();
    return work(*engine, *job);
  };
  return queue_->submit({.job = job, .inputs = std::move(inputs), .run = run, .brief = brief && on_host});
}

Napi::Value EngineWrap::threads(const Napi::CallbackInfo& info) { return number(info.Env(), engine().pool.threads()); }

Napi::Value EngineWrap::devices(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
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
    object.Set("bytesToDevice", number(env, all[i]->traffic().to_device));
    object.Set("bytesToHost", number(env, all[i]->traffic().to_host));
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
}

Napi::Value EngineWrap::create_job(const Napi::CallbackInfo& info) {
  const uint64_t bound = info[0].IsUndefined() ? kMaxBufferBytes : to_bound(info[0], "maxBufferBytes");
  const bool traced = !info[1].IsUndefined() && to_bool(info[1], "traced");
  return to_job_handle(info.Env(), std::make_shared<Job>(bound, traced));
}

Napi::Value EngineWrap::failure(const Napi::CallbackInfo& info) {
  const Engine& own = engine();
  try {
    own.check();
    return info.Env().Null();
  } catch (const Error& error) {
    return Napi::String::New(info.Env(), error.what());
  }
}

Napi::Value EngineWrap::dispose(const Napi::CallbackInfo& info) {
  if (!queue_) {
    const auto disposed = Napi::Promise::Deferred::New(info.Env());
    disposed.Resolve(info.Env().Undefined());
    return disposed.Promise();
  }
  // The last owner frees the devices and joins the pool, on the queue's thread once earlier steps are done.
  const auto run = [this, engine = engine_]() mutable -> MakeResult {
    if (engine) engine->memory->close();
    engine.reset();
    // No other step comes behind the last disposal: the queue's thread ends, too.
    return [this](Napi::Env env) {
      if (--disposals_ == 0) queue_.reset();
      return env.Undefined();
    };
  };
  Napi::Promise promise = queue_->submit({.job = nullptr, .inputs = {shared_from_this()}, .run = run});
  engine_.reset();
  ++disposals_;
  return promise;
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
  Napi::Array views = Napi::Array::New(info.Env());
  for (uint32_t i = 0; i < columns.Length(); ++i) relation->columns.push_back(to_column(columns.Get(i), views));
  relation->rows = to_count(info[2], "rows");
  relation->engine = engine_;
  relation->views = Napi::Persistent(views.As<Napi::Object>());
  const bool brief = std::ranges::all_of(relation->columns, [](const Column& column) { return is_brief(column); });
  return enqueue(info, {relation}, brief,
                 [relation = relation.get(), held = std::weak_ptr(relation)](Engine& engine, Job& job) -> MakeResult {
                   const PhaseTimer timer(job, "validate");
                   for (Column& column : relation->columns) {
                     if (column.length != relation->rows) {
                       throw Error(ErrorCode::invalid_table, "Column '" + column.name + "' has " + std::to_string(column.length) +
                                                                 " rows where its table has " + std::to_string(relation->rows));
                     }
                     validate_column(column, engine, job);
                     unify_dictionaries(column, relation->unified, engine, job);
                   }
                   return [held, max_bytes = job.max_buffer_bytes()](Napi::Env env) -> Napi::Value {
                     const auto state = held.lock();
                     Napi::Object handle = to_handle(env, state);
                     handle.Set("rows", number(env, state->rows));
                     Napi::Array dictionaries = Napi::Array::New(env);
                     for (OwnedColumn& made : state->unified.dictionaries) {
                       dictionaries.Set(dictionaries.Length(), to_result_column(env, std::move(made), max_bytes, &state->shared));
                     }
                     handle.Set("dictionaries", dictionaries);
                     return handle;
                   };
                 });
}

namespace {

std::vector<SortColumn> to_sort_columns(const Relation& relation, const Napi::Value& value) {
  if (!value.IsArray()) throw Napi::TypeError::New(value.Env(), "Expected an array for by");
  const auto specs = value.As<Napi::Array>();
  std::vector<SortColumn> by;
  for (uint32_t i = 0; i < specs.Length(); ++i) {
    const Napi::Object spec = to_object(specs.Get(i), "by");
    by.push_back({&column_at(relation, spec.Get("column"), "by.column"), to_bool(spec.Get("descending"), "by.descending"),
                  to_bool(spec.Get("nullsLast"), "by.nullsLast")});
  }
  if (by.empty()) throw Napi::RangeError::New(value.Env(), "Expected at least one column for by");
  return by;
}

}  // namespace

Napi::Value EngineWrap::sort_keys(const Napi::CallbackInfo& info) {
  const auto state = std::make_shared<SortKeysState>();
  state->engine = engine_;
  state->relation = own<Relation>(info[1]);
  std::vector<SortColumn> by = to_sort_columns(*state->relation, info[2]);
  state->columns = by.size();
  const Column* payload = optional_column_at(*state->relation, info[3], "payload");
  const bool allow_flip = to_bool(info[4], "allowFlip");
  const bool brief = std::ranges::all_of(by, [](const SortColumn& key) { return is_brief(*key.column); });
  return enqueue(info, {state}, brief,
                 [state = state.get(), held = std::weak_ptr(state), by = std::move(by), payload, allow_flip](
                     Engine& engine, Job& job) -> MakeResult {
                   const PhaseTimer timer(job, "encode");
                   state->keys = encode_sort_keys(by, payload, allow_flip, engine, job);
                   state->sorted = state->keys->complete() && is_sorted(state->keys->tuples(), engine, job);
                   return [held](Napi::Env env) -> Napi::Value {
                     const auto made = held.lock();
                     const EncodedTuples& tuples = made->keys->tuples();
                     Napi::Object handle = to_handle(env, made);
                     handle.Set("rows", number(env, tuples.view.size));
                     handle.Set("keyBytes", number(env, tuples.layout.key_bytes));
                     handle.Set("valueBytes", number(env, tuples.layout.value_bytes));
                     handle.Set("carriesPayload", Napi::Boolean::New(env, tuples.view.values != nullptr));
                     handle.Set("complete", Napi::Boolean::New(env, made->keys->complete()));
                     handle.Set("areValues", Napi::Boolean::New(env, made->keys->are_values()));
                     handle.Set("sorted", Napi::Boolean::New(env, made->sorted));
                     return handle;
                   };
                 });
}

namespace {

/// The bytes of a key or a value: 4 or 8, or none of a value that is not there.
uint8_t to_tuple_bytes(const Napi::Value& value, const char* what, bool may_be_none) {
  const uint64_t bytes = to_count(value, what);
  if (bytes != 4 && bytes != 8 && !(bytes == 0 && may_be_none)) {
    throw Napi::RangeError::New(value.Env(), std::string("Expected 4 or 8 for ") + what);
  }
  return static_cast<uint8_t>(bytes);
}

MakeResult run_to_handle(std::shared_ptr<RunState> run) {
  return [run = std::move(run)](Napi::Env env) { return to_run_handle(env, run); };
}

}  // namespace

Napi::Value EngineWrap::sort_device_bytes(const Napi::CallbackInfo& info) {
  const TupleLayout layout{to_tuple_bytes(info[0], "keyBytes", false), to_tuple_bytes(info[1], "valueBytes", true)};
  return number(info.Env(),
                warpjoin::sort_device_bytes(layout, to_count(info[2], "tuples"), to_device_count(info[3], engine()),
                                            to_sort_algorithm(info[4]), to_bool(info[5], "severalChunksets"), engine()));
}

Napi::Value EngineWrap::sort_spills(const Napi::CallbackInfo& info) {
  const uint64_t tuples = to_count(info[0], "tuples"), most = std::max<uint64_t>(tuples, 1);
  return Napi::Boolean::New(
      info.Env(), warpjoin::sort_spills(tuples, to_count(info[1], "chunkset", 1, most), to_devices(info[2], engine()), engine()));
}

Napi::Value EngineWrap::sort_chunksets(const Napi::CallbackInfo& info) {
  const auto keys = own<SortKeysState>(info[1]);
  return enqueue(info, {keys}, is_brief(keys->relation->rows),
                 [keys = keys.get(), origin = origin_of(keys), plan = to_sort_plan(info[2], engine())](Engine& engine, Job& job) {
                   const EncodedTuples& tuples = keys->keys->tuples();
                   return sort_to_handles(engine, job, origin, tuples, tuples.varying_bits, plan);
                 });
}

Napi::Value EngineWrap::copy_run(const Napi::CallbackInfo& info) {
  const auto keys = own<SortKeysState>(info[1]);
  if (!keys->sorted) throw Error(ErrorCode::option, "The tuples of these keys are not in order");
  return enqueue(info, {keys}, [keys = keys.get(), origin = origin_of(keys)](Engine& engine, Job& job) {
    const EncodedTuples& tuples = keys->keys->tuples();
    return run_to_handle(std::make_shared<RunState>(
        RunState{{engine.weak_from_this()}, origin, warpjoin::copy_run(engine, tuples.layout, tuples.view, tuples.flip, job)}));
  });
}

Napi::Value EngineWrap::cut_run(const Napi::CallbackInfo& info) {
  const auto run = own<RunState>(info[1]);
  const uint64_t begin = to_count(info[2], "begin"), end = to_count(info[3], "end", begin, UINT64_MAX);
  return enqueue(info, {run}, [run, begin, end](Engine& engine, Job& job) {
    if (!run->run.keys || !run->run.values) throw Error(ErrorCode::option, "The keys or values of a run have been taken");
    if (end > run->run.size) {
      throw Error(ErrorCode::option, "The run has " + std::to_string(run->run.size) + " tuples, not " + std::to_string(end));
    }
    const PhaseTimer timer(job, "cut");
    return run_to_handle(std::make_shared<RunState>(
        RunState{{engine.weak_from_this()}, run->origin, warpjoin::cut_run(std::exchange(run->run, {}), begin, end)}));
  });
}

Napi::Value EngineWrap::rows_are_sorted(const Napi::CallbackInfo& info) {
  const auto relation = own<Relation>(info[1]);
  return enqueue(info, {relation}, [by = to_sort_columns(*relation, info[2])](Engine& engine, Job& job) -> MakeResult {
    const PhaseTimer timer(job, "check order");
    const bool sorted = warpjoin::rows_are_sorted(by, engine, job);
    return [sorted](Napi::Env env) -> Napi::Value { return Napi::Boolean::New(env, sorted); };
  });
}

Napi::Value EngineWrap::search_sorted(const Napi::CallbackInfo& info) {
  const auto table = own<Relation>(info[1]), values = own<Relation>(info[3]);
  std::vector<const Column*> columns = columns_at(*values, info[4], "columns");
  const bool right = !to_side_is_left(info[5]);
  return enqueue(info, {table, values},
                 [by = to_sort_columns(*table, info[2]), columns = std::move(columns), right](Engine& engine, Job& job) {
                   const PhaseTimer timer(job, "search");
                   return column_result(warpjoin::search_sorted(by, columns, right, engine, job), job.max_buffer_bytes());
                 });
}

Napi::Value EngineWrap::cut_merge(const Napi::CallbackInfo& info) {
  const auto table = own<Relation>(info[1]);
  return enqueue(info, {table},
                 [by = to_sort_columns(*table, info[2]), ends = to_counts(info[3], "ends"), rows = to_counts(info[4], "rows")](
                     Engine& engine, Job& job) -> MakeResult {
                   const PhaseTimer timer(job, "cut");
                   return [cut = warpjoin::cut_merge(by, ends, rows, engine, job)](Napi::Env env) -> Napi::Value {
                     Napi::Object made = Napi::Object::New(env);
                     made.Set("run", number(env, cut.run));
                     Napi::Array rows = Napi::Array::New(env, cut.rows.size());
                     for (uint32_t run = 0; run < cut.rows.size(); ++run) rows.Set(run, number(env, cut.rows[run]));
                     made.Set("rows", rows);
                     return made;
                   };
                 });
}

Napi::Value EngineWrap::top_rows(const Napi::CallbackInfo& info) {
  const auto relation = own<Relation>(info[1]);
  std::vector<SortColumn> by = to_sort_columns(*relation, info[2]);
  const RunOrigin origin{relation, false, relation->rows, {relation->rows}};
  return enqueue(info, {relation},
                 [origin, by = std::move(by), skip = to_count(info[3], "skip"), count = to_count(info[4], "count")](
                     Engine& engine, Job& job) {
                   const PhaseTimer timer(job, "first rows");
                   TopRows top = warpjoin::top_rows(by, skip, count, engine, job);
                   SortedRun run;
                   run.layout = {8, top.row_bytes};
                   run.size = top.size;
                   run.values = std::move(top.rows);
                   return run_to_handle(std::make_shared<RunState>(RunState{{engine.weak_from_this()}, origin, std::move(run)}));
                 });
}

Napi::Value EngineWrap::top_rows_bytes(const Napi::CallbackInfo& info) {
  return number(info.Env(), warpjoin::top_rows_bytes(to_count(info[0], "rows"), to_count(info[1], "kept"), engine()));
}

Napi::Value EngineWrap::merge_scratch_bytes(const Napi::CallbackInfo& info) {
  constexpr uint64_t kMostRuns = 1 << 20;
  const TupleLayout layout{to_tuple_bytes(info[0], "keyBytes", false), to_tuple_bytes(info[1], "valueBytes", true)};
  return number(info.Env(), warpjoin::merge_scratch_bytes(layout, to_count(info[2], "tuples"),
                                                          to_count(info[3], "runs", 1, kMostRuns), engine()));
}

Napi::Value EngineWrap::drop_keys(const Napi::CallbackInfo& info) {
  own_idle<RunState>(info[0])->run.keys = HostBuffer();
  return info.Env().Undefined();
}

Napi::Value EngineWrap::merge_runs(const Napi::CallbackInfo& info) {
  if (!info[1].IsArray()) throw Napi::TypeError::New(info.Env(), "Expected an array for runs");
  const auto handles = info[1].As<Napi::Array>();
  std::vector<std::shared_ptr<RunState>> runs;
  std::set<const RunState*> distinct;
  for (uint32_t i = 0; i < handles.Length(); ++i) {
    runs.push_back(own<RunState>(handles.Get(i)));
    if (!distinct.insert(runs.back().get()).second) throw Napi::RangeError::New(info.Env(), "Expected each run once for runs");
    check_run(info.Env(), *runs.back(), runs.front()->origin);
  }
  if (runs.empty()) throw Napi::RangeError::New(info.Env(), "Expected at least one run for runs");
  return enqueue(info, {runs.begin(), runs.end()}, [runs](Engine& engine, Job& job) {
    uint64_t tuples = 0;
    std::vector<SortedRun> taken(runs.size());
    for (const auto& run : runs) {
      if (!run->run.keys || !run->run.values) throw Error(ErrorCode::option, "The keys or values of a run have been taken");
      tuples += run->run.size;
    }
    // Of two merges of the same run the other one finds it taken, so this does not count a tuple twice.
    if (tuples > runs.front()->origin.tuples) throw Error(ErrorCode::option, "The runs have more tuples than their keys");
    for (size_t i = 0; i < runs.size(); ++i) taken[i] = std::exchange(runs[i]->run, {});
    return run_to_handle(std::make_shared<RunState>(
        RunState{{engine.weak_from_this()}, runs.front()->origin, warpjoin::merge_runs(engine, std::move(taken), job)}));
  });
}

Napi::Value EngineWrap::refine_ties(const Napi::CallbackInfo& info) {
  const auto keys = own<SortKeysState>(info[1]);
  const auto run = own<RunState>(info[2]);
  check_run(info.Env(), *run, origin_of(keys));
  return enqueue(info, {keys, run}, [keys = keys.get(), run = run.get()](Engine& engine, Job& job) -> MakeResult {
    if (keys->keys->complete()) return nullptr;
    check_whole(*run);
    const PhaseTimer timer(job, "refine");
    keys->keys->refine_ties(run->run.span(), engine, job);
    return nullptr;
  });
}

Napi::Value EngineWrap::decode_keys(const Napi::CallbackInfo& info) {
  const auto keys = own<SortKeysState>(info[1]);
  const auto run = own<RunState>(info[3]);
  const uint64_t column = to_count(info[2], "sortColumn", 0, keys->columns - 1);
  check_run(info.Env(), *run, origin_of(keys));
  return enqueue(info, {keys, run}, [keys = keys.get(), run = run.get(), column](Engine& engine, Job& job) -> MakeResult {
    if (!run->run.keys) throw Error(ErrorCode::option, "The keys of the run have been taken");
    const PhaseTimer timer(job, "decode");
    auto decoded = keys->keys->decode(column, run->run.keys.data(), run->run.size, engine, job);
    if (!decoded) return [](Napi::Env env) { return env.Null(); };
    return column_result(std::move(*decoded), job.max_buffer_bytes());
  });
}

Napi::Value EngineWrap::take_values(const Napi::CallbackInfo& info) {
  const auto run = own_idle<RunState>(info[1]);
  return take_column(info.Env(), run->run.values, run->run.layout.value_bytes, run->run.size, *from_handle<Job>(info[0]));
}

Napi::Value EngineWrap::take_keys(const Napi::CallbackInfo& info) {
  const auto run = own_idle<RunState>(info[1]);
  return take_column(info.Env(), run->run.keys, run->run.layout.key_bytes, run->run.size, *from_handle<Job>(info[0]));
}

Napi::Value EngineWrap::take_join_keys(const Napi::CallbackInfo& info) {
  JoinRows& rows = own_idle<RowsState>(info[1])->rows;
  return take_column(info.Env(), rows.keys, rows.left_layout.key_bytes, rows.size, *from_handle<Job>(info[0]));
}

Napi::Value EngineWrap::take_join_values(const Napi::CallbackInfo& info) {
  const bool left = to_side_is_left(info[2]);
  JoinRows& rows = own_idle<RowsState>(info[1])->rows;
  const TupleLayout& layout = left ? rows.left_layout : rows.right_layout;
  return take_column(info.Env(), left ? rows.left : rows.right, layout.value_bytes, rows.size, *from_handle<Job>(info[0]));
}

Napi::Value EngineWrap::decode_join_keys(const Napi::CallbackInfo& info) {
  const auto rows = own<RowsState>(info[1]);
  const uint64_t pair = to_count(info[2], "pair");
  if (pair >= rows->left_values.size() || !rows->left_values[pair].given)
    throw Napi::RangeError::New(info.Env(), "Expected a pair whose left column the keys of the rows give");
  return enqueue(info, {rows}, [rows = rows.get(), pair](Engine& engine, Job& job) {
    const PhaseTimer timer(job, "decode");
    const JoinRows& made = rows->rows;
    if (!made.keys) throw Error(ErrorCode::option, "The keys of the rows have been taken, or were not asked for");
    return column_result(
        warpjoin::decode_join_keys(rows->left_values[pair], made.left_layout.key_bytes, made.keys.data(), made.size, engine, job),
        job.max_buffer_bytes());
  });
}

Napi::Value EngineWrap::gather(const Napi::CallbackInfo& info) {
  const auto relation = own<Relation>(info[1]);
  const Column* column = &column_at(*relation, info[2], "column");
  const RowSource rows = own_rows(info[3], info[4], *relation);
  return enqueue(info, {relation, rows.held}, is_brief(*column, rows.most), [column, list = rows.list](Engine& engine, Job& job) {
    const PhaseTimer timer(job, "gather");
    return column_result(warpjoin::gather(*column, list(), engine, job), job.max_buffer_bytes());
  });
}

Napi::Value EngineWrap::gather_device_bytes(const Napi::CallbackInfo& info) {
  const auto relation = own<Relation>(info[0]);
  const Napi::Object rows = to_object(info[2], "rows");
  const RowList list{nullptr, to_tuple_bytes(rows.Get("rowBytes"), "rows.rowBytes", false),
                     to_bool(rows.Get("mayBeMissing"), "rows.mayBeMissing"), to_count(rows.Get("size"), "rows.size")};
  const std::vector<const Column*> columns = columns_at(*relation, info[1], "columns");
  check_for_devices(info.Env(), columns);
  return number(info.Env(), warpjoin::device_gather_bytes(columns, list, to_device_count(info[3], engine())));
}

Napi::Value EngineWrap::gather_on_devices(const Napi::CallbackInfo& info) {
  const auto relation = own<Relation>(info[1]);
  const RowSource rows = own_rows(info[3], info[4], *relation);
  const std::vector<const Column*> columns = columns_at(*relation, info[2], "columns");
  return enqueue(info, {relation, rows.held},
                 [columns, list = rows.list, ordinals = to_devices(info[5], engine())](Engine& engine, Job& job) {
                   const PhaseTimer timer(job, "gather on devices");
                   return columns_result(warpjoin::gather_on_devices(engine, engine.select(ordinals), columns, list(), job),
                                         job.max_buffer_bytes());
                 });
}

}  // namespace warpjoin::binding
