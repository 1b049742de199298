#include "binding/parquet_reader.h"

#include <bit>
#include <iterator>
#include <utility>
#include <vector>

#include "binding/convert.h"
#include "binding/step_values.h"
#include "core/error.h"

namespace warpjoin::binding {
namespace {

std::vector<parquet::BatchRequest> to_batches(const Napi::Value& value) {
  const Napi::Array array = to_array(value, "request.batches");
  std::vector<parquet::BatchRequest> batches;
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::Object one = to_object(array.Get(i), "request.batches");
    batches.push_back({.groups = to_counts(one.Get("groups"), "batch.groups"), .rows = to_count(one.Get("rows"), "batch.rows")});
  }
  return batches;
}

std::vector<parquet::WantedColumn> to_columns(const Napi::Value& value) {
  const Napi::Array array = to_array(value, "request.columns");
  std::vector<parquet::WantedColumn> columns;
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::Object one = to_object(array.Get(i), "request.columns");
    columns.push_back({.leaf = to_count(one.Get("leaf"), "column.leaf"), .large = to_bool(one.Get("large"), "column.large")});
  }
  return columns;
}

Napi::Value optional_number(Napi::Env env, std::optional<int32_t> value) {
  return value ? Napi::Value(Napi::Number::New(env, *value)) : env.Null();
}

/// A ParquetColumn (lib/io/parquet-native.ts).
Napi::Object to_js_column(Napi::Env env, const parquet::FileMetadata& file, size_t index,
                          const std::optional<parquet::Layout>& layout) {
  const parquet::Leaf& leaf = file.leaves[index];
  Napi::Object made = Napi::Object::New(env);
  Napi::Array path = Napi::Array::New(env, leaf.path.size());
  for (uint32_t i = 0; i < leaf.path.size(); ++i) path.Set(i, leaf.path[i]);
  made.Set("path", path);
  made.Set("physical", static_cast<int>(leaf.physical));
  made.Set("typeLength", leaf.type_length);
  made.Set("logical", optional_number(env, leaf.logical));
  made.Set("converted", optional_number(env, leaf.converted));
  made.Set("repetition", static_cast<int>(leaf.repetition));
  made.Set("scale", leaf.scale);
  made.Set("precision", leaf.precision);
  made.Set("unit", leaf.unit);
  made.Set("utc", Napi::Boolean::New(env, leaf.utc));
  made.Set("bitWidth", leaf.bit_width);
  made.Set("signed", Napi::Boolean::New(env, leaf.is_signed));
  made.Set("fieldId", optional_number(env, leaf.field_id));
  made.Set("isRead", Napi::Boolean::New(env, layout.has_value()));
  // What the chunks of all row groups have that is not read.
  uint64_t encodings = 0;
  bool elsewhere = false;
  std::string codec, encoding;
  for (const parquet::RowGroup& group : file.groups) {
    const parquet::ChunkPlace& place = group.chunks[index];
    elsewhere |= place.elsewhere;
    if (!parquet::knows_codec(place.codec) && codec.empty()) codec = parquet::codec_name(place.codec);
    encodings |= place.encodings;
  }
  const uint64_t unknown = layout ? encodings & ~parquet::encodings_of(*layout) : 0;
  if (unknown) encoding = parquet::encoding_name(std::countr_zero(unknown));
  const auto text = [&](const std::string& name) {
    return name.empty() ? env.Null() : Napi::Value(Napi::String::New(env, name));
  };
  made.Set("unknownCodec", text(codec));
  made.Set("unknownEncoding", text(encoding));
  made.Set("elsewhere", Napi::Boolean::New(env, elsewhere));
  return made;
}

/// A ParquetOutline (lib/io/parquet-native.ts).
Napi::Value to_js_outline(Napi::Env env, const parquet::FileReader& reader) {
  const parquet::FileMetadata& file = reader.metadata();
  Napi::Object made = Napi::Object::New(env);
  made.Set("rows", number(env, file.rows));
  Napi::Array groups = Napi::Array::New(env, file.groups.size());
  for (uint32_t i = 0; i < file.groups.size(); ++i) {
    const Napi::HandleScope scope(env);
    Napi::Object group = Napi::Object::New(env);
    group.Set("rows", number(env, file.groups[i].rows));
    Napi::Array bytes = Napi::Array::New(env, file.leaves.size());
    for (uint32_t c = 0; c < file.leaves.size(); ++c) bytes.Set(c, number(env, file.groups[i].chunks[c].bytes));
    group.Set("bytes", bytes);
    groups.Set(i, group);
  }
  made.Set("groups", groups);
  Napi::Array columns = Napi::Array::New(env, file.leaves.size());
  for (uint32_t i = 0; i < file.leaves.size(); ++i) {
    const Napi::HandleScope scope(env);
    columns.Set(i, to_js_column(env, file, i, reader.layouts()[i]));
  }
  made.Set("columns", columns);
  Napi::Array entries = Napi::Array::New(env, file.key_values.size());
  for (uint32_t i = 0; i < file.key_values.size(); ++i) {
    const Napi::HandleScope scope(env);
    Napi::Array entry = Napi::Array::New(env, 2);
    entry.Set(uint32_t{0}, file.key_values[i].first);
    entry.Set(uint32_t{1}, file.key_values[i].second);
    entries.Set(i, entry);
  }
  made.Set("keyValues", entries);
  return made;
}

}  // namespace

Napi::Value ParquetReaderWrap::define(Napi::Env env) {
  return define_class<ParquetReaderWrap>(env, {method<&ParquetReaderWrap::open>("open"), method<&ParquetReaderWrap::read>("read"),
                                               method<&ParquetReaderWrap::cancel>("cancel")});
}

ParquetReaderWrap::ParquetReaderWrap(Napi::Env env, FileRoom room, std::string path)
    : memory_(std::move(room.memory)), pool_(room.threads), reader_(std::move(path), memory_, pool_), queue_(env) {}

std::shared_ptr<ParquetReaderWrap> ParquetReaderWrap::make(Napi::Env env, FileRoom room, const Napi::Object& options) {
  std::string path = to_string(options.Get("path"), "options.path");
  if (path.find('\0') != std::string::npos) throw Napi::RangeError::New(env, "options.path has a null character");
  return std::make_shared<ParquetReaderWrap>(env, std::move(room), std::move(path));
}

Napi::Value ParquetReaderWrap::cancel(const Napi::CallbackInfo& info) {
  job_->cancel();
  return info.Env().Undefined();
}

Napi::Value ParquetReaderWrap::open(const Napi::CallbackInfo&) {
  return queue_.submit({.job = job_, .inputs = {shared_from_this()}, .run = [this]() -> MakeResult {
                          job_->check();
                          reader_.open();
                          return [this, held = shared_from_this()](Napi::Env env) { return to_js_outline(env, reader_); };
                        }});
}

Napi::Value ParquetReaderWrap::read(const Napi::CallbackInfo& info) {
  const Napi::Object request = to_object(info[0], "request");
  auto batches = std::make_shared<std::vector<parquet::BatchRequest>>(to_batches(request.Get("batches")));
  auto columns = std::make_shared<std::vector<parquet::WantedColumn>>(to_columns(request.Get("columns")));
  return queue_.submit({.job = job_, .inputs = {shared_from_this()}, .run = [this, batches, columns]() -> MakeResult {
                          auto read = std::make_shared<std::vector<parquet::ReadBatch>>(reader_.read(*batches, *columns, *job_));
                          return [read](Napi::Env env) -> Napi::Value {
                            Napi::Array made = Napi::Array::New(env, read->size());
                            for (uint32_t i = 0; i < read->size(); ++i) {
                              const Napi::HandleScope scope(env);
                              parquet::ReadBatch& batch = (*read)[i];
                              Napi::Object object = Napi::Object::New(env);
                              object.Set("rows", number(env, batch.rows));
                              Napi::Array columns = Napi::Array::New(env, batch.columns.size());
                              for (uint32_t c = 0; c < batch.columns.size(); ++c) {
                                columns.Set(c, to_result_column(env, std::move(batch.columns[c]), kMaxBufferBytes));
                              }
                              object.Set("columns", columns);
                              made.Set(i, object);
                            }
                            return made;
                          };
                        }});
}

}  // namespace warpjoin::binding
