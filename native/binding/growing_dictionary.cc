#include "binding/growing_dictionary.h"

#include <span>
#include <utility>

#include "binding/step_values.h"
#include "columns/encode.h"
#include "core/error.h"
#include "core/job.h"
#include "core/thread_pool.h"

namespace warpjoin::binding {

Napi::Value GrowingDictionaryWrap::define(Napi::Env env) {
  return define_class<GrowingDictionaryWrap>(
      env, {method<&GrowingDictionaryWrap::place>("place"), method<&GrowingDictionaryWrap::joined>("joined")});
}

GrowingDictionaryWrap::GrowingDictionaryWrap(const FileRoom& room)
    : engine_({.threads = room.threads, .host_devices = 0, .gpus = {}, .memory_limit_bytes = room.memory->limit_bytes()}),
      dictionary_(engine_) {}

std::shared_ptr<GrowingDictionaryWrap> GrowingDictionaryWrap::make(Napi::Env env, const FileRoom& room,
                                                                   const Napi::Object& options) {
  (void)env;
  (void)options;
  return std::make_shared<GrowingDictionaryWrap>(room);
}

Napi::Value GrowingDictionaryWrap::place(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Array held = Napi::Array::New(env);
  Column values = to_column(info[0], held);
  if (!dictionary_.takes(values)) throw Napi::TypeError::New(env, "Expected values like those before for values");
  const Job job;
  validate_column(values, engine_, job);
  if (std::exchange(failed_, true)) throw Error(ErrorCode::option, "The GrowingDictionary has failed");
  PlacedValues placed = dictionary_.place(values, job);
  const auto positions = std::make_shared<HostBuffer>(std::move(placed.positions));
  Napi::Object made = Napi::Object::New(env);
  made.Set("positions", *positions ? to_array_buffer(env, positions, 0, positions->size()) : env.Null());
  made.Set("size", number(env, dictionary_.size()));
  made.Set("added", placed.added ? to_result_column(env, std::move(*placed.added), job.max_buffer_bytes(), &added_) : env.Null());
  failed_ = false;
  return made;
}

Napi::Value GrowingDictionaryWrap::joined(const Napi::CallbackInfo& info) {
  if (failed_) throw Error(ErrorCode::option, "The GrowingDictionary has failed");
  const Job job;
  return to_result_column(info.Env(), dictionary_.joined(job), job.max_buffer_bytes());
}

Napi::Value place_indices(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Array held = Napi::Array::New(env);
  Column indices = to_column(info[0], held);
  if (!indices.type.is_index() || indices.dictionary)
    throw Napi::TypeError::New(env, "Expected a column of integers for indices");
  if (!info[1].IsArrayBuffer()) throw Napi::TypeError::New(env, "Expected an ArrayBuffer for positions");
  auto positions = info[1].As<Napi::ArrayBuffer>();
  const Job job;
  ThreadPool pool(1);
  validate_column(indices, pool, job);
  const std::shared_ptr<HostMemory> memory = HostMemory::create(SIZE_MAX / 2);
  const std::span<const uint32_t> of(static_cast<const uint32_t*>(positions.Data()), positions.ByteLength() / sizeof(uint32_t));
  auto made = std::make_shared<HostBuffer>(placed_indices(indices, of, *memory, job));
  return to_array_buffer(env, made, 0, made->size());
}

}  // namespace warpjoin::binding
