#include "binding/handles.h"

#include <chrono>

#include "binding/step_values.h"

namespace warpjoin::binding {
namespace {

constexpr napi_type_tag kTag = {0x77617270'6a6f696e, 1};

Napi::Value release_handle(const Napi::CallbackInfo& info) {
  if (detail::Box* const box = detail::boxed(info.This())) box->release();
  return info.Env().Undefined();
}

Napi::Value cancel(const Napi::CallbackInfo& info) {
  from_handle<Job>(info.This())->cancel();
  return info.Env().Undefined();
}

Napi::Value progress(const Napi::CallbackInfo& info) {
  const auto job = from_handle<Job>(info.This());
  Napi::Object progress = Napi::Object::New(info.Env());
  progress.Set("planned", number(info.Env(), job->planned()));
  progress.Set("done", number(info.Env(), job->done()));
  return progress;
}

Napi::Value phases(const Napi::CallbackInfo& info) {
  const auto phases = from_handle<Job>(info.This())->phases();
  Napi::Array array = Napi::Array::New(info.Env(), phases.size());
  for (uint32_t i = 0; i < phases.size(); ++i) {
    Napi::Object phase = Napi::Object::New(info.Env());
    phase.Set("name", phases[i].name);
    phase.Set("milliseconds", phases[i].milliseconds);
    phase.Set("bytes", number(info.Env(), phases[i].bytes));
    array.Set(i, phase);
  }
  return array;
}

/// Of a job that has a trace; times in milliseconds since the job was made.
Napi::Value events(const Napi::CallbackInfo& info) {
  const auto job = from_handle<Job>(info.This());
  Napi::Array array = Napi::Array::New(info.Env());
  if (!job->trace()) return array;
  const auto milliseconds = [&](TraceClock::time_point at) {
    return std::chrono::duration<double, std::milli>(at - job->trace()->created()).count();
  };
  uint32_t index = 0;
  for (const TraceEvent& event : job->trace()->events()) {
    constexpr const char* kTracks[] = {"thread", "toDevice", "toHost", "kernels"};
    Napi::Object made = Napi::Object::New(info.Env());
    made.Set("name", event.name);
    made.Set("track", kTracks[static_cast<size_t>(event.track)]);
    made.Set("device", event.device);
    made.Set("number", event.number == TraceEvent::kDirect ? info.Env().Null() : number(info.Env(), event.number));
    made.Set("begin", milliseconds(event.begin));
    made.Set("end", milliseconds(event.end));
    made.Set("bytes", number(info.Env(), event.bytes));
    array.Set(index++, made);
  }
  return array;
}

}  // namespace

RowNumbersBelow SortKeysState::values() const {
  if (keys->tuples().view.values) return {};
  return {relation->rows};
}

RunOrigin origin_of(const std::shared_ptr<SortKeysState>& keys) {
  return {keys, false, keys->keys->tuples().view.size, keys->values()};
}

RunOrigin origin_of(const std::shared_ptr<JoinKeysState>& keys, bool left) {
  const JoinSide& side = keys->side(left);
  return {keys, left, side.tuples.view.size, values_of(side)};
}

HandleFunctions& handle_functions(Napi::Env env) {
  auto* functions = env.GetInstanceData<HandleFunctions>();
  if (!functions) {
    auto made = std::make_unique<HandleFunctions>();
    made->release = Napi::Persistent(make_function<release_handle>(env, "release"));
    made->cancel = Napi::Persistent(make_function<cancel>(env, "cancel"));
    made->progress = Napi::Persistent(make_function<progress>(env, "progress"));
    made->phases = Napi::Persistent(make_function<phases>(env, "phases"));
    made->events = Napi::Persistent(make_function<events>(env, "events"));
    env.SetInstanceData(made.get());
    functions = made.release();
  }
  return *functions;
}

Napi::Object to_job_handle(Napi::Env env, std::shared_ptr<Job> job) {
  const HandleFunctions& functions = handle_functions(env);
  Napi::Object handle = to_handle(env, std::move(job));
  handle.Set("cancel", functions.cancel.Value());
  handle.Set("progress", functions.progress.Value());
  handle.Set("phases", functions.phases.Value());
  handle.Set("events", functions.events.Value());
  return handle;
}

namespace detail {

Box* boxed(const Napi::Value& value) {
  if (!value.IsObject()) return nullptr;
  const auto object = value.As<Napi::Object>();
  if (!object.CheckTypeTag(&kTag)) return nullptr;
  void* data = nullptr;
  if (napi_unwrap(value.Env(), object, &data) != napi_ok) return nullptr;
  return static_cast<Box*>(data);
}

void wrap(const Napi::Object& object, std::unique_ptr<Box> box) {
  const auto finalize = [](napi_env, void* data, void*) { delete static_cast<Box*>(data); };
  object.TypeTag(&kTag);
  if (napi_wrap(object.Env(), object, box.get(), finalize, nullptr, nullptr) != napi_ok) throw Napi::Error::New(object.Env());
  box.release();
}

}  // namespace detail
}  // namespace warpjoin::binding
