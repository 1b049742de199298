// What the addon's classes that read and write files have in common. JavaScript makes their objects, which need no engine.
#pragma once

#include <napi.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "binding/convert.h"
#include "binding/entry.h"
#include "binding/handles.h"
#include "core/host_memory.h"

namespace warpjoin::binding {

/// What each of these classes has of its own.
struct FileRoom {
  unsigned threads;
  std::shared_ptr<HostMemory> memory;
};

/// `new Class(options)`: wraps what Self::make(env, room, options) gives. options.threads, .memoryBytes and .leastMapped say how
/// much room.
template <class Self>
Napi::Value construct(const Napi::CallbackInfo& info) {
  if (!info.IsConstructCall()) {
    throw Napi::TypeError::New(info.Env(), std::string("Expected new ") + kHandleName<Self> + "()");
  }
  constexpr uint64_t kMostThreads = 256, kMostBytes = uint64_t{1} << 53;
  const Napi::Object options = to_object(info[0], "options");
  const auto threads = static_cast<unsigned>(to_count(options.Get("threads"), "options.threads", 1, kMostThreads));
  const uint64_t bytes = to_count(options.Get("memoryBytes"), "options.memoryBytes", 0, kMostBytes);
  const Napi::Value least = options.Get("leastMapped");
  const uint64_t least_mapped = least.IsUndefined() ? HostMemory::kHugePage : to_count(least, "options.leastMapped");
  std::shared_ptr<Self> made = Self::make(info.Env(), {threads, HostMemory::create(bytes, least_mapped)}, options);
  detail::wrap(info.This().As<Napi::Object>(), std::make_unique<detail::BoxOf<Self>>(std::move(made)));
  return info.This();
}

/// Lets go of what an object wraps; nothing where that was done before.
template <class Self>
Napi::Value release(const Napi::CallbackInfo& info) {
  if (is_handle<Self>(info.This())) detail::boxed(info.This())->release();
  return info.Env().Undefined();
}

/// The class, with release() beside these methods.
template <class Self>
Napi::Value define_class(Napi::Env env, std::initializer_list<napi_property_descriptor> methods) {
  std::vector<napi_property_descriptor> all(methods);
  all.push_back(method<&release<Self>>("release"));
  napi_value made = nullptr;
  const napi_status status = napi_define_class(env, kHandleName<Self>, NAPI_AUTO_LENGTH, entry<&construct<Self>>, nullptr,
                                               all.size(), all.data(), &made);
  if (status != napi_ok) throw Napi::Error::New(env);
  return {env, made};
}

}  // namespace warpjoin::binding
