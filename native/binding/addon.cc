#include <napi.h>

#include "binding/engine_wrap.h"
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
    array.Set(i, object);
  }
  return array;
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  exports.Set("backend", gpu_backend());
  exports.Set("gpus", Napi::Function::New(env, list_gpus));
  exports.Set("Engine", EngineWrap::define(env));
  return exports;
}

NODE_API_MODULE(warpjoin, init)

}  // namespace
}  // namespace warpjoin::binding
