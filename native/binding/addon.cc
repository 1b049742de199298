#include <napi.h>

#include "binding/convert.h"
#include "binding/csv_reader.h"
#include "binding/engine_wrap.h"
#include "binding/entry.h"
#include "binding/handles.h"
#include "core/threads.h"
#include "device/gpu_device.h"

namespace warpjoin::binding {
namespace {

Napi::Value list_gpus(const Napi::CallbackInfo& info) {
  const std::vector<DeviceInfo> gpus = visible_gpus();
  Napi::Array array = Napi::Array::New(info.Env(), gpus.size());
  for (uint32_t i = 0; i < gpus.size(); ++i) {
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("kind", "gpu");
    object.Set("ordinal", gpus[i].ordinal);
    object.Set("name", gpus[i].name);
    object.Set("memoryBytes", static_cast<double>(gpus[i].memory_bytes));
    object.Set("limitBytes", static_cast<double>(gpus[i].limit_bytes));
    object.Set("peakBytes", 0);
    object.Set("peers", Napi::Array::New(info.Env()));
    object.Set("failure", gpus[i].failure.empty() ? info.Env().Null() : Napi::String::New(info.Env(), gpus[i].failure));
    array.Set(i, object);
  }
  return array;
}

Napi::Value fail_threads(const Napi::CallbackInfo& info) {
  warpjoin::fail_threads(to_count(info[0], "n"), to_bound(info[1], "count"));
  return info.Env().Undefined();
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  try {
    handle_functions(env);
    exports.Set("backend", gpu_backend());
    exports.Set("gpus", make_function<list_gpus>(env, "gpus"));
    exports.Set("failThreads", make_function<fail_threads>(env, "failThreads"));
    exports.Set("Engine", EngineWrap::define(env));
    exports.Set("CsvReader", CsvReaderWrap::define(env));
  } catch (...) {
    throw_into_js(env);
  }
  return exports;
}

NODE_API_MODULE(warpjoin, init)

}  // namespace
}  // namespace warpjoin::binding
