#include <napi.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <vector>

#include "binding/convert.h"
#include "binding/csv_reader.h"
#include "binding/engine_wrap.h"
#include "binding/entry.h"
#include "binding/growing_dictionary.h"
#include "binding/handles.h"
#include "binding/parquet_reader.h"
#include "binding/parquet_writer.h"
#include "columns/encode.h"
#include "columns/row_runs.h"
#include "core/mapped_file.h"
#include "core/thread_pool.h"
#include "core/threads.h"
#include "device/gpu_device.h"

namespace warpjoin::binding {
namespace {

Napi::Value list_gpus(const Napi::CallbackInfo& info) {
  const std::vector<GpuInfo> gpus = visible_gpus();
  Napi::Array array = Napi::Array::New(info.Env(), gpus.size());
  for (uint32_t i = 0; i < gpus.size(); ++i) {
    Napi::Object object = Napi::Object::New(info.Env());
    object.Set("kind", "gpu");
    object.Set("ordinal", gpus[i].ordinal);
    object.Set("name", gpus[i].name);
    object.Set("memoryBytes", static_cast<double>(gpus[i].memory_bytes));
    object.Set("limitBytes", static_cast<double>(gpus[i].limit_bytes));
    object.Set("peakBytes", 0);
    object.Set("architecture", gpus[i].architecture);
    Napi::Array peers = Napi::Array::New(info.Env(), gpus[i].peers.size());
    for (uint32_t peer = 0; peer < gpus[i].peers.size(); ++peer) peers.Set(peer, gpus[i].peers[peer]);
    object.Set("peers", peers);
    object.Set("failure", gpus[i].failure.empty() ? info.Env().Null() : Napi::String::New(info.Env(), gpus[i].failure));
    array.Set(i, object);
  }
  return array;
}

Napi::Value list_gpu_support(const Napi::CallbackInfo& info) {
  const GpuSupport support = gpu_support();
  Napi::Object object = Napi::Object::New(info.Env());
  object.Set("architectures", support.architectures);
  object.Set("runtimeVersion", support.runtime_version);
  object.Set("driverVersion", support.driver_version);
  object.Set("errorName", support.error_name);
  object.Set("error", support.error);
  return object;
}

// What they hold is freed once no other ArrayBuffer shares it: in a turn of its own where the addon made it.
Napi::Value detach(const Napi::CallbackInfo& info) {
  const Napi::Array buffers = to_array(info[0], "buffers");
  for (uint32_t i = 0; i < buffers.Length(); ++i) {
    const Napi::HandleScope scope(info.Env());
    const Napi::Value value = buffers.Get(i);
    if (!value.IsArrayBuffer()) throw Napi::TypeError::New(info.Env(), "Expected ArrayBuffers for buffers");
    auto buffer = value.As<Napi::ArrayBuffer>();
    if (!buffer.IsDetached()) buffer.Detach();
  }
  return info.Env().Undefined();
}

// mapFile(file: number, ends: number[]): ArrayBuffer[], as lib/native.ts has it.
Napi::Value map_file(const Napi::CallbackInfo& info) {
  const auto file = static_cast<int>(to_count(info[0], "file", 0, INT_MAX));
  const std::vector<uint64_t> ends = to_counts(info[1], "ends");
  if (!std::is_sorted(ends.begin(), ends.end())) throw Napi::RangeError::New(info.Env(), "Expected ascending ends");
  const auto mapped = std::make_shared<MappedFile>(file, ends.empty() ? 0 : ends.back());
  Napi::Array buffers = Napi::Array::New(info.Env(), ends.size());
  uint64_t begin = 0;
  for (size_t i = 0; i < ends.size(); begin = ends[i++]) {
    const Napi::HandleScope scope(info.Env());
    buffers.Set(i, to_array_buffer(info.Env(), mapped, mapped->data() + begin, ends[i] - begin));
  }
  return buffers;
}

// rowRuns(columns: NativeColumn[], rows: number): number[], as lib/io/file-classes.ts has it.
Napi::Value find_row_runs(const Napi::CallbackInfo& info) {
  const Napi::Array array = to_array(info[0], "columns");
  const uint64_t rows = to_count(info[1], "rows");
  Napi::Array views = Napi::Array::New(info.Env());
  std::vector<Column> columns;
  ThreadPool pool(1);
  const Job job;
  for (uint32_t i = 0; i < array.Length(); ++i) {
    Column& column = columns.emplace_back(to_column(array.Get(i), views));
    if (column.length != rows) throw Error(ErrorCode::invalid_table, "Column '" + column.name + "' has another number of rows");
    validate_column(column, pool, job);
  }
  const std::vector<uint64_t> begins = row_runs(columns, rows, job);
  Napi::Array made = Napi::Array::New(info.Env(), begins.size());
  for (size_t i = 0; i < begins.size(); ++i) {
    const Napi::HandleScope scope(info.Env());
    made.Set(static_cast<uint32_t>(i), number(info.Env(), begins[i]));
  }
  return made;
}

Napi::Value fail_threads(const Napi::CallbackInfo& info) {
  warpjoin::fail_threads(to_count(info[0], "n"), to_bound(info[1], "count"));
  return info.Env().Undefined();
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  try {
    handle_functions(env);
    exports.Set("version", WARPJOIN_VERSION);
    exports.Set("backend", gpu_backend());
    exports.Set("gpus", make_function<list_gpus>(env, "gpus"));
    exports.Set("gpuSupport", make_function<list_gpu_support>(env, "gpuSupport"));
    exports.Set("detach", make_function<detach>(env, "detach"));
    exports.Set("mapFile", make_function<map_file>(env, "mapFile"));
    exports.Set("rowRuns", make_function<find_row_runs>(env, "rowRuns"));
    exports.Set("failThreads", make_function<fail_threads>(env, "failThreads"));
    exports.Set("Engine", EngineWrap::define(env));
    exports.Set("CsvReader", CsvReaderWrap::define(env));
    exports.Set("ParquetReader", ParquetReaderWrap::define(env));
    exports.Set("ParquetWriter", ParquetWriterWrap::define(env));
    exports.Set("GrowingDictionary", GrowingDictionaryWrap::define(env));
    exports.Set("placeIndices", make_function<place_indices>(env, "placeIndices"));
  } catch (...) {
    throw_into_js(env);
  }
  return exports;
}

NODE_API_MODULE(warpjoin, init)

}  // namespace
}  // namespace warpjoin::binding
