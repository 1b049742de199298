#include "binding/parquet_writer.h"

#include <iterator>
#include <string>
#include <utility>

#include "binding/step_values.h"
#include "core/error.h"

namespace warpjoin::binding {
namespace {

/// Names of a field's `type`, by the numbers of the physical types.
constexpr const char* kTypes[] = {"boolean", "int32", "int64", nullptr, "float32", "float64", "byte_array", "fixed_bytes"};
/// Names of a field's `logical`.
constexpr std::pair<const char*, parquet::LogicalType> kLogicalTypes[] = {
    {"string", parquet::LogicalType::string},   {"decimal", parquet::LogicalType::decimal},
    {"date", parquet::LogicalType::date},       {"time", parquet::LogicalType::time},
    {"integer", parquet::LogicalType::integer}, {"timestamp", parquet::LogicalType::timestamp},
    {"null", parquet::LogicalType::null},       {"float16", parquet::LogicalType::float16},
};
constexpr std::pair<const char*, parquet::TimeUnit> kUnits[] = {
    {"ms", parquet::TimeUnit::millis}, {"us", parquet::TimeUnit::micros}, {"ns", parquet::TimeUnit::nanos}};

parquet::PhysicalType to_physical_type(const Napi::Value& value) {
  const std::string name = to_string(value, "field.type");
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i] && name == kTypes[i]) return static_cast<parquet::PhysicalType>(i);
  }
  throw Napi::TypeError::New(value.Env(), "Expected a physical type for field.type");
}

template <class Value, size_t Count>
Value to_named(const Napi::Value& value, const std::pair<const char*, Value> (&names)[Count], const char* what) {
  const std::string name = to_string(value, what);
  for (const auto& [known, number] : names) {
    if (name == known) return number;
  }
  throw Napi::TypeError::New(value.Env(), std::string("Expected a known name for ") + what);
}

/// A ParquetLogical (lib/io/parquet-writer-native.ts).
parquet::Annotation to_annotation(const Napi::Object& object, parquet::Field& field) {
  parquet::Annotation made{.type = to_named(object.Get("type"), kLogicalTypes, "logical.type")};
  switch (made.type) {
    case parquet::LogicalType::time:
    case parquet::LogicalType::timestamp:
      made.unit = to_named(object.Get("unit"), kUnits, "logical.unit");
      made.utc = to_bool(object.Get("utc"), "logical.utc");
      break;
    case parquet::LogicalType::integer:
      made.bits = static_cast<int8_t>(to_count(object.Get("bits"), "logical.bits", 8, 64));
      made.is_signed = to_bool(object.Get("signed"), "logical.signed");
      break;
    case parquet::LogicalType::decimal: {
      constexpr uint64_t kMostDigits = 76;
      field.precision = static_cast<int32_t>(to_count(object.Get("precision"), "logical.precision", 1, kMostDigits));
      field.scale = static_cast<int32_t>(to_count(object.Get("scale"), "logical.scale", 0, kMostDigits));
      break;
    }
    default: break;
  }
  return made;
}

parquet::Field to_field(const Napi::Object& object) {
  parquet::Field field;
  field.name = to_string(object.Get("name"), "field.name");
  field.nullable = to_bool(object.Get("nullable"), "field.nullable");
  field.type = to_physical_type(object.Get("type"));
  const bool fixed = field.type == parquet::PhysicalType::fixed_bytes;
  constexpr uint64_t kMostWidth = uint64_t{1} << 20;
  field.width = static_cast<uint32_t>(to_count(object.Get("width"), "field.width", fixed ? 1 : 0, fixed ? kMostWidth : 0));
  const Napi::Value converted = object.Get("converted"), logical = object.Get("logical");
  if (!converted.IsNull()) {
    const auto most = static_cast<uint64_t>(parquet::ConvertedType::interval);
    field.converted = static_cast<parquet::ConvertedType>(to_count(converted, "field.converted", 0, most));
  }
  if (!logical.IsNull()) field.annotation = to_annotation(to_object(logical, "field.logical"), field);
  return field;
}

parquet::WriterOptions to_writer_options(const Napi::Object& object) {
  parquet::WriterOptions options;
  const Napi::Array fields = to_array(object.Get("fields"), "options.fields");
  for (uint32_t i = 0; i < fields.Length(); ++i) options.fields.push_back(to_field(to_object(fields.Get(i), "options.fields")));
  const Napi::Array metadata = to_array(object.Get("metadata"), "options.metadata");
  for (uint32_t i = 0; i < metadata.Length(); ++i) {
    const Napi::Array pair = to_array(metadata.Get(i), "options.metadata");
    options.metadata.emplace_back(to_string(pair.Get(0u), "options.metadata"), to_string(pair.Get(1u), "options.metadata"));
  }
  constexpr uint64_t kMostRows = uint64_t{1} << 26, kMostBytes = uint64_t{1} << 30;
  options.group_rows = to_count(object.Get("groupRows"), "options.groupRows", 1, kMostRows);
  options.group_bytes = to_count(object.Get("groupBytes"), "options.groupBytes", 1, kMostBytes);
  options.page_bytes = to_count(object.Get("pageBytes"), "options.pageBytes", 1, kMostBytes / 4);
  return options;
}

/// Views that columns refer to. Destroyed on the JavaScript thread.
struct Views {
  Napi::ObjectReference array;
};

}  // namespace

Napi::Value ParquetWriterWrap::define(Napi::Env env) {
  return define_class<ParquetWriterWrap>(
      env, {method<&ParquetWriterWrap::begin>("begin"), method<&ParquetWriterWrap::write>("write"),
            method<&ParquetWriterWrap::finish>("finish"), method<&ParquetWriterWrap::reclaim>("reclaim"),
            method<&ParquetWriterWrap::cancel>("cancel")});
}

ParquetWriterWrap::ParquetWriterWrap(Napi::Env env, FileRoom room, parquet::WriterOptions options)
    : memory_(std::move(room.memory)), pool_(room.threads), writer_(std::move(options), memory_, pool_), queue_(env) {}

std::shared_ptr<ParquetWriterWrap> ParquetWriterWrap::make(Napi::Env env, FileRoom room, const Napi::Object& options) {
  return std::make_shared<ParquetWriterWrap>(env, std::move(room), to_writer_options(options));
}

Napi::Value ParquetWriterWrap::cancel(const Napi::CallbackInfo& info) {
  job_->cancel();
  return info.Env().Undefined();
}

Napi::Value ParquetWriterWrap::enqueue(std::vector<std::shared_ptr<void>> inputs, std::function<Parts()> work) {
  inputs.push_back(shared_from_this());
  return queue_.submit({.job = job_, .inputs = std::move(inputs), .run = [this, work = std::move(work)] {
                          if (finished_) throw Error(ErrorCode::option, "The ParquetWriter has finished");
                          if (std::exchange(failed_, true)) throw Error(ErrorCode::option, "The ParquetWriter has failed");
                          Parts parts = work();
                          failed_ = false;
                          return to_progress(std::move(parts));
                        }});
}

Napi::Value ParquetWriterWrap::begin(const Napi::CallbackInfo& info) {
  const Napi::Array given = to_array(info[0], "columns");
  Napi::Array held = Napi::Array::New(info.Env());
  auto columns = std::make_shared<std::vector<Column>>();
  for (uint32_t i = 0; i < given.Length(); ++i) columns->push_back(to_column(given.Get(i), held));
  const uint64_t rows = to_count(info[1], "rows");
  auto views = std::make_shared<Views>();
  views->array = Napi::Persistent(held.As<Napi::Object>());
  views_ = views;
  return enqueue({views}, [this, columns, rows] {
    writer_.set_columns(std::move(*columns), rows, *job_);
    return Parts();
  });
}

Napi::Value ParquetWriterWrap::write(const Napi::CallbackInfo& info) {
  (void)info;
  // The columns are those of the last begin(): if that fails, nothing is written any more.
  return enqueue({views_}, [this] { return writer_.write(*job_); });
}

Napi::Value ParquetWriterWrap::finish(const Napi::CallbackInfo& info) {
  (void)info;
  return enqueue({views_}, [this] {
    Parts parts;
    parts.push_back(writer_.finish());
    finished_ = true;
    return parts;
  });
}

/// A ParquetProgress (lib/io/parquet-writer-native.ts).
MakeResult ParquetWriterWrap::to_progress(Parts parts) {
  const uint64_t left = writer_.rows_left();
  auto shared = std::make_shared<Parts>(std::move(parts));
  return [this, shared, left](Napi::Env env) -> Napi::Value {
    Given given;
    Napi::Array buffers = Napi::Array::New(env, shared->size());
    for (uint32_t i = 0; i < shared->size(); ++i) {
      const Napi::HandleScope scope(env);
      auto& [bytes, size] = (*shared)[i];
      BufferOwner owner;
      buffers.Set(i, to_array_buffer(env, std::make_shared<HostBuffer>(std::move(bytes)), 0, size, &owner));
      given.owners.push_back(std::move(owner));
    }
    // The array is JavaScript's to change: the writer has one of its own.
    Napi::Array kept = Napi::Array::New(env, shared->size());
    for (uint32_t i = 0; i < shared->size(); ++i) kept.Set(i, buffers.Get(i));
    given.buffers = Napi::Persistent(kept.As<Napi::Object>());
    given_.push_back(std::move(given));
    Napi::Object made = Napi::Object::New(env);
    made.Set("buffers", buffers);
    made.Set("rowsLeft", number(env, left));
    return made;
  };
}

Napi::Value ParquetWriterWrap::reclaim(const Napi::CallbackInfo& info) {
  if (given_.empty()) return info.Env().Undefined();
  Given given = std::move(given_.front());
  given_.pop_front();
  const Napi::Object buffers = given.buffers.Value();
  for (uint32_t i = 0; i < given.owners.size(); ++i) {
    const Napi::HandleScope scope(info.Env());
    if (!given.owners[i]) continue;
    auto buffer = buffers.Get(i).As<Napi::ArrayBuffer>();
    if (buffer.IsDetached()) continue;  // somebody else has the memory now
    buffer.Detach();
    if (buffer.IsDetached()) given.owners[i]->reset();
  }
  return info.Env().Undefined();
}

}  // namespace warpjoin::binding
