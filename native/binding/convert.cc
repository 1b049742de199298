#include "binding/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "columns/chunk_ends.h"
#include "core/error.h"

namespace warpjoin::binding {
namespace {

[[noreturn]] void expected(const Napi::Value& value, const char* what, const char* type) {
  throw Napi::TypeError::New(value.Env(), std::string("Expected ") + type + " for " + what);
}

struct View {
  const void* data = nullptr;
  uint64_t bytes = 0;
};

// Any ArrayBufferView, over a SharedArrayBuffer too; a detached one is empty. null gives nothing. `held` gets what is read.
View to_view(const Napi::Value& value, const char* what, Napi::Array& held) {
  if (value.IsNull() || value.IsUndefined()) return {};
  if (value.IsTypedArray() || value.IsDataView()) held.Set(held.Length(), value);
  const napi_env env = value.Env();
  void* data = nullptr;
  size_t length = 0;
  if (value.IsTypedArray()) {
    napi_typedarray_type type = napi_uint8_array;
    napi_get_typedarray_info(env, value, &type, &length, &data, nullptr, nullptr);
    const size_t width = value.As<Napi::TypedArray>().ElementSize();
    return {data, uint64_t{length} * width};
  }
  if (value.IsDataView()) {
    napi_get_dataview_info(env, value, &length, &data, nullptr, nullptr);
    return {data, length};
  }
  expected(value, what, "an ArrayBufferView or null");
}

ColumnKind to_kind(const std::string& name, const Napi::Value& value) {
  if (name == "boolean") return ColumnKind::boolean;
  if (name == "fixed") return ColumnKind::fixed;
  if (name == "utf8") return ColumnKind::utf8;
  if (name == "large_utf8") return ColumnKind::large_utf8;
  if (name == "null") return ColumnKind::null;
  if (name == "view") return ColumnKind::view;
  if (name == "list") return ColumnKind::list;
  if (name == "large_list") return ColumnKind::large_list;
  if (name == "fixed_list") return ColumnKind::fixed_list;
  if (name == "struct") return ColumnKind::structure;
  if (name == "sparse_union") return ColumnKind::sparse_union;
  if (name == "dense_union") return ColumnKind::dense_union;
  expected(value, "column.kind", "a column kind");
}

KeyOrder to_order(const std::string& name, const Napi::Value& value) {
  if (name == "none") return KeyOrder::none;
  if (name == "boolean") return KeyOrder::boolean;
  if (name == "signed") return KeyOrder::signed_integer;
  if (name == "unsigned") return KeyOrder::unsigned_integer;
  if (name == "floating") return KeyOrder::floating;
  if (name == "bytes") return KeyOrder::bytes;
  expected(value, "column.order", "a key order");
}

/// Throws for an order that values of the kind and width don't have.
void check_type(const Napi::Value& value, const ColumnType& type) {
  const uint32_t width = type.width;
  const bool fixed = type.kind == ColumnKind::fixed;
  const auto fits = [&] {
    switch (type.order) {
      case KeyOrder::none: return true;
      case KeyOrder::boolean: return type.kind == ColumnKind::boolean;
      case KeyOrder::bytes: return type.variable_width() || fixed || type.kind == ColumnKind::view;
      case KeyOrder::floating: return fixed && (width == 2 || width == 4 || width == 8);
      case KeyOrder::signed_integer: return fixed && std::has_single_bit(width) && width <= 32;
      case KeyOrder::unsigned_integer: return fixed && std::has_single_bit(width) && width <= 8;
    }
    return false;
  };
  if (!fits()) expected(value, "column.order", "an order that the column's kind and width have");
}

/// The kind, order and width of a column.
ColumnType to_type(const Napi::Object& object) {
  ColumnType type;
  type.kind = to_kind(to_string(object.Get("kind"), "column.kind"), object);
  type.order = to_order(to_string(object.Get("order"), "column.order"), object);
  const bool fixed = type.kind == ColumnKind::fixed, fixed_list = type.kind == ColumnKind::fixed_list;
  const uint64_t least = fixed && type.order != KeyOrder::bytes ? 1 : 0, most = fixed || fixed_list ? INT32_MAX : 0;
  type.width = static_cast<uint32_t>(to_count(object.Get("width"), "column.width", least, most));
  check_type(object, type);
  return type;
}

JoinKind to_join_kind(const Napi::Value& value) {
  const std::string name = to_string(value, "request.kind");
  if (name == "inner") return JoinKind::inner;
  if (name == "left") return JoinKind::left;
  if (name == "right") return JoinKind::right;
  if (name == "full") return JoinKind::full;
  if (name == "semi") return JoinKind::semi;
  if (name == "anti") return JoinKind::anti;
  throw Napi::TypeError::New(value.Env(), "Expected a join kind for request.kind");
}

}  // namespace

Napi::Value to_array_buffer(Napi::Env env, const std::shared_ptr<HostBuffer>& buffer, size_t begin, size_t size,
                            BufferOwner* owner) {
  if (size == 0) return Napi::ArrayBuffer::New(env, 0);
  if (!buffer->data() || buffer->size() < begin + size) {
    throw Error(ErrorCode::internal, "A column was handed over before, or was not asked for");
  }
  return to_array_buffer(env, buffer, buffer->as<char>() + begin, size, owner);
}

Napi::Value to_array_buffer(Napi::Env env, const std::shared_ptr<void>& kept, char* data, size_t size, BufferOwner* given) {
  if (size == 0) return Napi::ArrayBuffer::New(env, 0);
  const BufferOwner owner = std::make_shared<std::shared_ptr<void>>(kept);
  auto* const hint = new BufferOwner(owner);
  napi_value result = nullptr;
  const napi_status status = napi_create_external_arraybuffer(
      env, data, size, [](napi_env, void*, void* held) { delete static_cast<BufferOwner*>(held); }, hint, &result);
  if (status == napi_ok) {
    if (given) *given = owner;
    return {env, result};
  }
  // Node.js may have called the finalizer, call it later (as where the buffer is too large for it) or never: `hint` is its own.
  owner->reset();
  if (status != napi_no_external_buffers_allowed) throw Napi::Error::New(env);
  delete hint;
  Napi::ArrayBuffer copy = Napi::ArrayBuffer::New(env, size);
  std::memcpy(copy.Data(), data, size);
  return copy;
}

uint64_t to_count(const Napi::Value& value, const char* what) {
  if (!value.IsNumber()) expected(value, what, "a number");
  const double number = value.As<Napi::Number>().DoubleValue();
  if (!(number >= 0) || number > 9007199254740991.0 || number != std::floor(number))
    expected(value, what, "a non-negative integer");
  return static_cast<uint64_t>(number);
}

uint64_t to_count(const Napi::Value& value, const char* what, uint64_t least, uint64_t most) {
  const uint64_t count = to_count(value, what);
  if (count >= least && count <= most) return count;
  const std::string range = most == least ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most);
  throw Napi::RangeError::New(value.Env(), "Expected " + range + " for " + what + " but received " + std::to_string(count));
}

uint64_t to_bound(const Napi::Value& value, const char* what) {
  if (value.IsNumber() && value.As<Napi::Number>().DoubleValue() == std::numeric_limits<double>::infinity()) return UINT64_MAX;
  return to_count(value, what);
}

bool to_bool(const Napi::Value& value, const char* what) {
  if (!value.IsBoolean()) expected(value, what, "a boolean");
  return value.As<Napi::Boolean>().Value();
}

std::string to_string(const Napi::Value& value, const char* what) {
  if (!value.IsString()) expected(value, what, "a string");
  return value.As<Napi::String>().Utf8Value();
}

Napi::Array to_array(const Napi::Value& value, const char* what) {
  if (!value.IsArray()) throw Napi::TypeError::New(value.Env(), std::string("Expected an array for ") + what);
  return value.As<Napi::Array>();
}

Napi::Object to_object(const Napi::Value& value, const char* what) {
  if (!value.IsObject()) expected(value, what, "an object");
  return value.As<Napi::Object>();
}

std::vector<uint64_t> to_counts(const Napi::Value& value, const char* what) {
  if (!value.IsArray()) expected(value, what, "an array of numbers");
  const auto array = value.As<Napi::Array>();
  std::vector<uint64_t> counts;
  for (uint32_t i = 0; i < array.Length(); ++i) counts.push_back(to_count(array.Get(i), what));
  return counts;
}

std::vector<bool> to_bools(const Napi::Value& value, const char* what) {
  if (!value.IsArray()) expected(value, what, "an array of booleans");
  const auto array = value.As<Napi::Array>();
  std::vector<bool> bools;
  for (uint32_t i = 0; i < array.Length(); ++i) bools.push_back(to_bool(array.Get(i), what));
  return bools;
}

namespace {

columns::KeyFactor to_factor(const Napi::Value& value) {
  const Napi::Object object = to_object(value, "factor");
  // The sum of two scales of decimals of 256 bits, and more than that, fits.
  return {.pow10 = static_cast<uint32_t>(to_count(object.Get("pow10"), "factor.pow10", 0, UINT32_MAX)),
          .times = static_cast<uint32_t>(to_count(object.Get("times"), "factor.times", 1, UINT32_MAX))};
}

}  // namespace

std::vector<JoinKeyPair> to_comparisons(const Napi::Value& value) {
  if (!value.IsArray()) expected(value, "comparisons", "an array");
  const auto array = value.As<Napi::Array>();
  std::vector<JoinKeyPair> pairs;
  for (uint32_t i = 0; i < array.Length(); ++i) {
    const Napi::Object comparison = to_object(array.Get(i), "comparison");
    const Napi::Object factors = to_object(comparison.Get("factors"), "comparison.factors");
    pairs.push_back({.left = nullptr,
                     .right = nullptr,
                     .nulls_equal = to_bool(comparison.Get("nullsEqual"), "comparison.nullsEqual"),
                     .left_factor = to_factor(factors.Get("left")),
                     .right_factor = to_factor(factors.Get("right"))});
  }
  return pairs;
}

std::optional<columns::Conversion> to_conversion(const Napi::Value& value) {
  if (value.IsNull()) return {};
  const Napi::Object object = to_object(value, "conversion");
  return columns::Conversion{to_type(object), to_factor(object.Get("factor")),
                             to_string(object.Get("column"), "conversion.column"),
                             to_string(object.Get("target"), "conversion.target")};
}

std::vector<int> to_ordinals(const Napi::Value& value, const char* what) {
  std::vector<int> ordinals;
  for (const uint64_t ordinal : to_counts(value, what)) {
    if (ordinal > 1'000'000) expected(value, what, "device ordinals");
    ordinals.push_back(static_cast<int>(ordinal));
  }
  return ordinals;
}

namespace {

ColumnChunk to_chunk(const Napi::Object& source, Column& column, Napi::Array& held) {
  ColumnChunk chunk;
  chunk.length = to_count(source.Get("length"), "chunk.length");
  chunk.bit_offset = to_count(source.Get("bitOffset"), "chunk.bitOffset");
  const Napi::Value bitmap = source.Get("validity");
  const View validity = to_view(bitmap, "chunk.validity", held);
  const View values = to_view(source.Get("values"), "chunk.values", held);
  const View offsets = to_view(source.Get("offsets"), "chunk.offsets", held);
  // An empty view may have no address, but it is not the same as "no nulls".
  static const uint8_t nothing = 0;
  const bool has_validity = !bitmap.IsNull() && !bitmap.IsUndefined();
  chunk.validity = has_validity ? static_cast<const uint8_t*>(validity.data ? validity.data : &nothing) : nullptr;
  chunk.values = values.data;
  chunk.offsets = offsets.data;
  chunk.validity_bytes = validity.bytes;
  chunk.values_bytes = values.bytes;
  chunk.offsets_bytes = offsets.bytes;
  if (column.dictionary) {
    chunk.dictionary_base = to_count(source.Get("dictionaryBase"), "chunk.dictionaryBase");
    chunk.dictionary_size = to_count(source.Get("dictionarySize"), "chunk.dictionarySize");
    const uint64_t there = column.dictionary->length;
    if (chunk.dictionary_base > there || chunk.dictionary_size > there - chunk.dictionary_base)
      throw Napi::RangeError::New(source.Env(), "Expected a chunk's dictionary within the dictionary of its column");
  }
  if (column.type.kind == ColumnKind::view) {
    const Napi::Value value = source.Get("buffers");
    if (!value.IsArray()) expected(value, "chunk.buffers", "an array");
    const auto array = value.As<Napi::Array>();
    auto buffers = std::make_shared<std::vector<ViewBuffer>>();
    for (uint32_t i = 0; i < array.Length(); ++i) {
      const View bytes = to_view(array.Get(i), "chunk.buffers", held);
      buffers->push_back({static_cast<const uint8_t*>(bytes.data), bytes.bytes});
    }
    chunk.buffers = *buffers;
    column.view_buffers.push_back(std::move(buffers));
  }
  return chunk;
}

/// Type ids of a union's children.
std::vector<int8_t> to_type_ids(const Napi::Value& value, size_t children) {
  std::vector<int8_t> ids;
  for (const uint64_t id : to_counts(value, "column.typeIds")) {
    if (id > 127 || std::find(ids.begin(), ids.end(), static_cast<int8_t>(id)) != ids.end())
      expected(value, "column.typeIds", "distinct type ids from 0 to 127");
    ids.push_back(static_cast<int8_t>(id));
  }
  if (ids.size() != children) expected(value, "column.typeIds", "a type id for each child");
  return ids;
}

constexpr unsigned kMostDepth = 64;

Column to_column(const Napi::Value& value, Napi::Array& held, unsigned depth) {
  if (depth > kMostDepth) expected(value, "column.children", "at most 64 levels of them");
  const Napi::Object object = to_object(value, "column");
  Column column;
  column.name = to_string(object.Get("name"), "column.name");
  const ColumnType type = column.type = to_type(object);
  const Napi::Value children = object.Get("children");
  if (type.nested() && type.kind != ColumnKind::null && type.kind != ColumnKind::view) {
    if (!children.IsArray()) expected(children, "column.children", "an array");
    const auto array = children.As<Napi::Array>();
    for (uint32_t i = 0; i < array.Length(); ++i) column.children.push_back(to_column(array.Get(i), held, depth + 1));
    const bool one = type.kind == ColumnKind::list || type.kind == ColumnKind::large_list || type.kind == ColumnKind::fixed_list;
    if (one && column.children.size() != 1) expected(children, "column.children", "one child");
    const bool is_union = type.kind == ColumnKind::sparse_union || type.kind == ColumnKind::dense_union;
    if (is_union) column.type_ids = to_type_ids(object.Get("typeIds"), column.children.size());
  }
  const Napi::Value dictionary = object.Get("dictionary");
  if (!dictionary.IsUndefined() && !dictionary.IsNull()) {
    if (!type.is_index()) expected(value, "column.order", "integers, which are indices of a dictionary");
    column.dictionary = std::make_shared<const Column>(to_column(dictionary, held, depth + 1));
  }
  if (column.dictionary) {
    const Napi::Value index_width = object.Get("indexWidth");
    const uint64_t width = to_count(index_width, "column.indexWidth", 1, 8);
    if (!std::has_single_bit(width)) expected(index_width, "column.indexWidth", "1, 2, 4 or 8 bytes of an index");
    column.index_width = static_cast<uint8_t>(width);
    column.is_unified = to_bool(object.Get("isUnified"), "column.isUnified");
  }
  const Napi::Value chunks_value = object.Get("chunks");
  if (!chunks_value.IsArray()) expected(chunks_value, "column.chunks", "an array");
  const auto chunks = chunks_value.As<Napi::Array>();
  column.chunks.reserve(chunks.Length());
  for (uint32_t i = 0; i < chunks.Length(); ++i) {
    const Napi::HandleScope scope(value.Env());
    column.chunks.push_back(to_chunk(to_object(chunks.Get(i), "column.chunks"), column, held));
    column.length += column.chunks.back().length;
  }
  for (const Column& child : column.children) {
    if (child.chunks.size() != column.chunks.size()) expected(children, "column.children", "as many chunks as their parent has");
  }
  return column;
}

}  // namespace

Column to_column(const Napi::Value& value, Napi::Array& held) { return to_column(value, held, 0); }

JoinRequest to_join_request(const Napi::Value& value) {
  const Napi::Object object = to_object(value, "request");
  return {.kind = to_join_kind(object.Get("kind")),
          .build_left = to_bool(object.Get("buildLeft"), "request.buildLeft"),
          .count_only = to_bool(object.Get("countOnly"), "request.countOnly"),
          .want_keys = to_bool(object.Get("wantKeys"), "request.wantKeys"),
          .want_left = to_bool(object.Get("wantLeft"), "request.wantLeft"),
          .want_right = to_bool(object.Get("wantRight"), "request.wantRight"),
          .max_rows = to_bound(object.Get("maxRows"), "request.maxRows")};
}

namespace {

using SharedBuffer = std::shared_ptr<HostBuffer>;

/// Hands buffers of a column over.
class BufferGiver {
 public:
  BufferGiver(Napi::Env env, std::vector<SharedBuffer>* kept) : env_(env), kept_(kept) {}

  SharedBuffer share(HostBuffer& buffer) const {
    auto shared = std::make_shared<HostBuffer>(std::move(buffer));
    if (kept_) kept_->push_back(shared);
    return shared;
  }
  Napi::Value give(HostBuffer& buffer, size_t size) const { return to_array_buffer(env_, share(buffer), 0, size); }
  Napi::Value give_bits(HostBuffer& buffer, uint64_t count) const { return give(buffer, (count + 7) / 8); }
  Napi::Value number(uint64_t value) const { return Napi::Number::New(env_, static_cast<double>(value)); }
  Napi::Env env() const { return env_; }

 private:
  Napi::Env env_;
  std::vector<SharedBuffer>* kept_;
};

/// Bytes of a chunk's values, but for texts.
uint64_t chunk_values_bytes(const ColumnType& type, uint64_t rows) {
  switch (type.kind) {
    case ColumnKind::boolean: return (rows + 7) / 8;
    case ColumnKind::fixed: return rows * type.width;
    case ColumnKind::view: return rows * 16;
    case ColumnKind::sparse_union:
    case ColumnKind::dense_union: return rows;
    default: return 0;
  }
}

uint64_t offsets_bytes(const ColumnType& type, uint64_t rows) {
  switch (type.kind) {
    case ColumnKind::utf8:
    case ColumnKind::list: return (rows + 1) * 4;
    case ColumnKind::large_utf8:
    case ColumnKind::large_list: return (rows + 1) * 8;
    case ColumnKind::dense_union: return rows * 4;
    default: return 0;
  }
}

/// Bytes of a text's chunk: its last offset.
uint64_t text_bytes(const OwnedChunk& chunk) {
  const void* offsets = chunk.offsets.data();
  return static_cast<uint64_t>(chunk.type.kind == ColumnKind::utf8 ? static_cast<const int32_t*>(offsets)[chunk.length]
                                                                   : static_cast<const int64_t*>(offsets)[chunk.length]);
}

Napi::Object to_result_chunk(const BufferGiver& giver, OwnedChunk& chunk) {
  const Napi::Env env = giver.env();
  const ColumnType& type = chunk.type;
  const uint64_t bytes = type.variable_width() ? text_bytes(chunk) : chunk_values_bytes(type, chunk.length);
  Napi::Object result = Napi::Object::New(env);
  result.Set("length", giver.number(chunk.length));
  result.Set("values", giver.give(chunk.values, bytes));
  const uint64_t offsets = offsets_bytes(type, chunk.length);
  result.Set("offsets", offsets || type.kind == ColumnKind::dense_union ? giver.give(chunk.offsets, offsets) : env.Null());
  Napi::Object nested = Napi::Object::New(env);
  nested.Set("nullCount", giver.number(chunk.null_count));
  nested.Set("validity", chunk.validity ? giver.give_bits(chunk.validity, chunk.length) : env.Null());
  Napi::Array buffers = Napi::Array::New(env, chunk.buffers.size());
  for (uint32_t i = 0; i < chunk.buffers.size(); ++i) buffers.Set(i, giver.give(chunk.buffers[i], chunk.buffers[i].size()));
  nested.Set("buffers", buffers);
  Napi::Array children = Napi::Array::New(env, chunk.children.size());
  for (uint32_t i = 0; i < chunk.children.size(); ++i) children.Set(i, to_result_chunk(giver, chunk.children[i]));
  nested.Set("children", children);
  result.Set("nested", nested);
  return result;
}

Napi::Array to_flat_chunks(const BufferGiver& giver, OwnedColumn& column, uint64_t max_buffer_bytes) {
  const Napi::Env env = giver.env();
  const SharedBuffer values = giver.share(column.values), offsets = giver.share(column.offsets);
  const bool variable = column.type.variable_width();
  const size_t offset_bytes = column.type.kind == ColumnKind::utf8 ? 4 : 8;
  const std::vector<ChunkEnd> ends =
      variable ? std::move(column.chunk_ends) : columns::fixed_chunk_ends(column.type, column.length, max_buffer_bytes);
  Napi::Array chunks = Napi::Array::New(env, ends.size());
  ChunkEnd begin;
  for (uint32_t i = 0; i < ends.size(); ++i) {
    const Napi::HandleScope scope(env);
    const uint64_t rows = ends[i].row - begin.row;
    Napi::Object chunk = Napi::Object::New(env);
    chunk.Set("length", giver.number(rows));
    chunk.Set("values", to_array_buffer(env, values, begin.byte, ends[i].byte - begin.byte));
    chunk.Set("offsets",
              variable ? to_array_buffer(env, offsets, (begin.row + i) * offset_bytes, (rows + 1) * offset_bytes) : env.Null());
    chunks.Set(i, chunk);
    begin = ends[i];
  }
  return chunks;
}

}  // namespace

Napi::Value to_result_column(Napi::Env env, OwnedColumn column, uint64_t max_buffer_bytes, std::vector<SharedBuffer>* kept) {
  const BufferGiver giver(env, kept);
  Napi::Object result = Napi::Object::New(env);
  result.Set("length", giver.number(column.length));
  result.Set("nullCount", giver.number(column.null_count));
  const bool nested = column.type.nested();
  result.Set("validity", column.null_count && !nested ? giver.give_bits(column.validity, column.length) : env.Null());
  Napi::Array chunks = Napi::Array::New(env);
  for (uint32_t i = 0; i < column.nested.size(); ++i) {
    const Napi::HandleScope scope(env);
    chunks.Set(i, to_result_chunk(giver, column.nested[i]));
  }
  result.Set("chunks", nested ? chunks : to_flat_chunks(giver, column, max_buffer_bytes));
  return result;
}

Napi::Value to_js_links(Napi::Env env, const LinkSpeeds& speeds) {
  Napi::Array sets = Napi::Array::New(env, speeds.sets.size());
  for (uint32_t i = 0; i < speeds.sets.size(); ++i) {
    const LinkSpeeds::Set& set = speeds.sets[i];
    Napi::Array devices = Napi::Array::New(env, set.devices.size());
    for (uint32_t j = 0; j < set.devices.size(); ++j) devices.Set(j, set.devices[j]);
    Napi::Object object = Napi::Object::New(env);
    object.Set("devices", devices);
    object.Set("h2d", set.h2d);
    object.Set("d2h", set.d2h);
    object.Set("both", set.both);
    sets.Set(i, object);
  }
  Napi::Array peers = Napi::Array::New(env, speeds.peers.size());
  for (uint32_t i = 0; i < speeds.peers.size(); ++i) {
    Napi::Object object = Napi::Object::New(env);
    object.Set("from", speeds.peers[i].from);
    object.Set("to", speeds.peers[i].to);
    object.Set("speed", speeds.peers[i].speed);
    peers.Set(i, object);
  }
  Napi::Object links = Napi::Object::New(env);
  links.Set("sets", sets);
  links.Set("peers", peers);
  return links;
}

}  // namespace warpjoin::binding
