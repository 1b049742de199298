#include "binding/csv_reader.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "binding/convert.h"
#include "binding/step_values.h"
#include "core/error.h"

namespace warpjoin::binding {
namespace {

constexpr uint64_t kMostBlockBytes = uint64_t{1} << 28;

csv::Type to_type(const Napi::Value& value, const char* what) {
  const std::string name = to_string(value, what);
  for (unsigned i = 0; i < csv::kTypes; ++i) {
    const auto type = static_cast<csv::Type>(i);
    if (type != csv::Type::empty && name == csv::type_name(type)) return type;
  }
  throw Napi::TypeError::New(value.Env(), std::string("Expected a type of CSV columns for ") + what);
}

csv::ReaderOptions to_reader_options(const Napi::Object& object) {
  csv::ReaderOptions options;
  constexpr uint64_t kAscii = 127;
  options.delimiter = static_cast<uint8_t>(to_count(object.Get("delimiter"), "options.delimiter", 1, kAscii));
  if (options.delimiter == '"' || options.delimiter == '\n' || options.delimiter == '\r') {
    throw Napi::RangeError::New(object.Env(), "options.delimiter is a quote or a line end");
  }
  options.header = to_bool(object.Get("header"), "options.header");
  const Napi::Array nulls = to_array(object.Get("nullValues"), "options.nullValues");
  for (uint32_t i = 0; i < nulls.Length(); ++i) options.nulls.push_back(to_string(nulls.Get(i), "options.nullValues"));
  const Napi::Array given = to_array(object.Get("given"), "options.given");
  for (uint32_t i = 0; i < given.Length(); ++i) {
    const Napi::Object one = to_object(given.Get(i), "options.given");
    const csv::Type type = to_type(one.Get("type"), "options.given");
    options.given.emplace_back(to_string(one.Get("name"), "options.given"), type);
  }
  const Napi::Array known = to_array(object.Get("known"), "options.known");
  for (uint32_t i = 0; i < known.Length(); ++i) options.known.push_back(to_type(known.Get(i), "options.known"));
  options.streaming = to_bool(object.Get("streaming"), "options.streaming");
  options.most_rows = to_bound(object.Get("maxRows"), "options.maxRows");
  constexpr uint64_t kMostRows = uint64_t{1} << 26, kMostBytes = uint64_t{1} << 30;
  options.batch_rows = to_count(object.Get("batchRows"), "options.batchRows", 1, kMostRows);
  options.part_bytes = to_count(object.Get("partBytes"), "options.partBytes", 1, kMostBytes);
  options.most_record_bytes = to_count(object.Get("maxRecordBytes"), "options.maxRecordBytes", 1, kMostBytes);
  return options;
}

}  // namespace

Napi::Value CsvReaderWrap::define(Napi::Env env) {
  return define_class<CsvReaderWrap>(env, {method<&CsvReaderWrap::push>("push"), method<&CsvReaderWrap::finish>("finish"),
                                           method<&CsvReaderWrap::cancel>("cancel")});
}

CsvReaderWrap::CsvReaderWrap(Napi::Env env, FileRoom room, csv::ReaderOptions options)
    : memory_(std::move(room.memory)), pool_(room.threads), reader_(std::move(options), memory_, pool_), queue_(env) {}

std::shared_ptr<CsvReaderWrap> CsvReaderWrap::make(Napi::Env env, FileRoom room, const Napi::Object& options) {
  return std::make_shared<CsvReaderWrap>(env, std::move(room), to_reader_options(options));
}

Napi::Value CsvReaderWrap::cancel(const Napi::CallbackInfo& info) {
  job_->cancel();
  return info.Env().Undefined();
}

Napi::Value CsvReaderWrap::enqueue(Napi::Env, std::function<void()> work) {
  return queue_.submit({.job = job_, .inputs = {shared_from_this()}, .run = [this, work = std::move(work)] {
                          if (finished_) throw Error(ErrorCode::option, "The CsvReader has finished");
                          if (std::exchange(failed_, true)) throw Error(ErrorCode::option, "The CsvReader has failed");
                          work();
                          failed_ = false;
                          return progress();
                        }});
}

Napi::Value CsvReaderWrap::push(const Napi::CallbackInfo& info) {
  if (!info[0].IsTypedArray() || info[0].As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array) {
    throw Napi::TypeError::New(info.Env(), "Expected a Uint8Array for bytes");
  }
  const auto bytes = info[0].As<Napi::Uint8Array>();
  const size_t size = bytes.ByteLength();
  if (size > kMostBlockBytes) throw Napi::RangeError::New(info.Env(), "Expected at most 256 MiB for bytes");
  // A copy: what is checked can't change before it is read.
  auto block = std::make_shared<HostBuffer>(reader_.make_block(bytes.Data(), size));
  return enqueue(info.Env(), [this, block, size] { reader_.push(std::move(*block), size, *job_); });
}

Napi::Value CsvReaderWrap::finish(const Napi::CallbackInfo& info) {
  return enqueue(info.Env(), [this] {
    reader_.finish(*job_);
    finished_ = true;
  });
}

/// A CsvProgress (lib/io/csv-native.ts).
MakeResult CsvReaderWrap::progress() {
  struct Found {
    std::optional<csv::Fault> fault;
    bool done, lost;
    std::vector<std::string> names;
    std::vector<csv::Type> types;
    std::vector<csv::Reader::Finished> batches;
  };
  const bool hands_over = finished_ || reader_.streams();
  auto found = std::make_shared<Found>(Found{.fault = reader_.fault(),
                                             .done = reader_.done(),
                                             .lost = reader_.lost(),
                                             .names = reader_.names(),
                                             .types = reader_.types(),
                                             .batches = {}});
  if (hands_over) found->batches = reader_.take_batches();
  return [found](Napi::Env env) -> Napi::Value {
    Napi::Object made = Napi::Object::New(env);
    made.Set("fault", env.Null());
    if (found->fault) {
      Napi::Object fault = Napi::Object::New(env);
      fault.Set("what", found->fault->what);
      fault.Set("line", number(env, found->fault->line));
      made.Set("fault", fault);
    }
    made.Set("done", Napi::Boolean::New(env, found->done));
    made.Set("lost", Napi::Boolean::New(env, found->lost));
    Napi::Array names = Napi::Array::New(env), types = Napi::Array::New(env), batches = Napi::Array::New(env);
    for (uint32_t i = 0; i < found->names.size(); ++i) {
      names.Set(i, found->names[i]);
      types.Set(i, csv::type_name(found->types[i]));
    }
    for (uint32_t i = 0; i < found->batches.size(); ++i) {
      const Napi::HandleScope scope(env);
      csv::Reader::Finished& batch = found->batches[i];
      Napi::Object object = Napi::Object::New(env);
      object.Set("rows", number(env, batch.rows));
      Napi::Array columns = Napi::Array::New(env, batch.columns.size());
      for (uint32_t c = 0; c < batch.columns.size(); ++c) {
        columns.Set(c, to_result_column(env, std::move(batch.columns[c]), UINT64_MAX));
      }
      object.Set("columns", columns);
      batches.Set(i, object);
    }
    made.Set("names", names);
    made.Set("types", types);
    made.Set("batches", batches);
    return made;
  };
}

}  // namespace warpjoin::binding
