// Memory of an engine: its limits, what JavaScript takes of it, and faults for tests.
#include <memory>
#include <string>

#include "binding/convert.h"
#include "binding/engine_wrap.h"
#include "binding/handles.h"
#include "core/error.h"
#include "primitives/primitives.h"

namespace warpjoin::binding {

Napi::Value EngineWrap::memory(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Object object = Napi::Object::New(env);
  object.Set("usedBytes", number(env, engine().memory->used_bytes() - engine().pinned.held_bytes()));
  object.Set("peakBytes", number(env, engine().memory->peak_bytes()));
  object.Set("limitBytes", number(env, engine().memory->limit_bytes()));
  return object;
}

Napi::Value EngineWrap::set_memory_limit(const Napi::CallbackInfo& info) {
  engine().memory->set_limit(to_count(info[0], "bytes"));
  return info.Env().Undefined();
}

Napi::Value EngineWrap::reserve(const Napi::CallbackInfo& info) {
  const uint64_t bytes = to_count(info[0], "bytes");
  return to_handle(info.Env(), std::make_shared<ReservationState>(
                                   ReservationState{{engine_}, engine().memory->reserve(bytes, "record batches")}));
}

Napi::Value EngineWrap::allocate(const Napi::CallbackInfo& info) {
  const uint64_t bytes = to_count(info[0], "bytes", 0, kMaxBufferBytes);
  const auto buffer = std::make_shared<HostBuffer>(engine().memory->allocate(bytes, "record batches from a file"));
  return to_array_buffer(info.Env(), buffer, 0, bytes);
}

Napi::Value EngineWrap::trim_memory(const Napi::CallbackInfo& info) {
  return enqueue(info, {}, [](Engine&, Job&) -> MakeResult {
    trim_malloc();
    return [](Napi::Env env) { return env.Undefined(); };
  });
}

Napi::Value EngineWrap::reset_peaks(const Napi::CallbackInfo& info) {
  engine().memory->reset_peak();
  for (const auto& device : engine().devices) {
    device->memory().reset_peak();
    device->traffic().reset();
  }
  return info.Env().Undefined();
}

Napi::Value EngineWrap::fail_allocation(const Napi::CallbackInfo& info) {
  const std::string where = to_string(info[0], "where");
  const uint64_t n = to_count(info[1], "n");
  if (where != "memory" && where != "devices") throw Napi::TypeError::New(info.Env(), "Expected 'memory' or 'devices' for where");
  if (where == "memory") engine().memory->fail_allocation(n);
  if (where == "devices") {
    for (const auto& device : engine().devices) device->memory().fail_allocation(n);
  }
  return info.Env().Undefined();
}

Napi::Value EngineWrap::leave_device_memory(const Napi::CallbackInfo& info) {
  const uint64_t bytes = to_bound(info[0], "bytes");
  for (const auto& device : engine().devices) device->memory().leave_free(bytes);
  return info.Env().Undefined();
}

Napi::Value EngineWrap::lose_device(const Napi::CallbackInfo& info) {
  Device& device = *engine().select({static_cast<int>(to_count(info[0], "ordinal"))})[0];
  if (device.addresses_host_memory()) throw Error(ErrorCode::not_supported, "The processor can't be lost");
  // A kernel that writes where nothing is.
  const auto stream = device.create_stream();
  void* const nothing = reinterpret_cast<void*>(StackAllocator::kAlignment);
  device.primitives().flip_keys({8, 0}, nothing, nothing, 1, 0, Job(), *stream);
  return info.Env().Undefined();
}

}  // namespace warpjoin::binding
