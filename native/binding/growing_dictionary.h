// The addon's GrowingDictionary class (lib/columns/dictionary-native.ts): argument checks; nothing else. It needs no engine, and
// its calls are over when they return.
#pragma once

#include <napi.h>

#include <memory>
#include <vector>

#include "binding/convert.h"
#include "binding/file_class.h"
#include "columns/growing_dictionary.h"
#include "core/host_memory.h"
#include "engine/engine.h"

namespace warpjoin::binding {

class GrowingDictionaryWrap {
 public:
  static Napi::Value define(Napi::Env env);
  static std::shared_ptr<GrowingDictionaryWrap> make(Napi::Env env, const FileRoom& room, const Napi::Object& options);
  explicit GrowingDictionaryWrap(const FileRoom& room);
  GrowingDictionaryWrap(const GrowingDictionaryWrap&) = delete;
  GrowingDictionaryWrap& operator=(const GrowingDictionaryWrap&) = delete;

 private:
  Napi::Value place(const Napi::CallbackInfo& info);
  Napi::Value joined(const Napi::CallbackInfo& info);

  Engine engine_;
  GrowingDictionary dictionary_;
  std::vector<std::shared_ptr<HostBuffer>> added_;  ///< what the dictionary refers to
  bool failed_ = false;                             ///< a call has thrown: what the dictionary refers to may be gone
};

template <>
inline constexpr const char* kHandleName<GrowingDictionaryWrap> = "GrowingDictionary";

/// placeIndices(indices: NativeColumn, positions: ArrayBuffer): ArrayBuffer, as lib/columns/dictionary-native.ts has it.
Napi::Value place_indices(const Napi::CallbackInfo& info);

}  // namespace warpjoin::binding
