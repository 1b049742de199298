// Typed access to tuples for the host primitives: one instantiation for each layout.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/tuples.h"

namespace warpjoin::host {

/// Stands in for a value type where tuples have no values.
struct NoValue {};

/// Calls f(Key{}, Value{}) with the unsigned types of a layout; Value is NoValue for value_bytes 0.
template <class F>
decltype(auto) with_layout(TupleLayout layout, F&& f) {
  const auto with_value = [&](auto key) -> decltype(auto) {
    switch (layout.value_bytes) {
      case 0: return f(key, NoValue{});
      case 4: return f(key, uint32_t{});
      default: return f(key, uint64_t{});
    }
  };
  return layout.key_bytes == 4 ? with_value(uint32_t{}) : with_value(uint64_t{});
}

/// Reads keys and values of a view; implied values are computed.
template <class Key, class Value>
class TupleReader {
 public:
  explicit TupleReader(TupleView view)
      : keys_(static_cast<const Key*>(view.keys)), values_(static_cast<const Value*>(view.values)), first_(view.first_value) {}
  Key key(uint64_t i) const { return keys_[i]; }
  Value value(uint64_t i) const {
    if constexpr (std::is_same_v<Value, NoValue>) {
      return {};
    } else {
      return values_ ? values_[i] : static_cast<Value>(first_ + i);
    }
  }

 private:
  const Key* keys_;
  const Value* values_;
  uint64_t first_;
};

template <class Value>
inline constexpr bool has_values = !std::is_same_v<Value, NoValue>;

template <class Key, class Value>
constexpr size_t tuple_bytes = sizeof(Key) + (has_values<Value> ? sizeof(Value) : 0);

/// Writable tuples with their types. `values` is null where there are none.
template <class Key, class Value>
struct Tuples {
  Key* keys = nullptr;
  Value* values = nullptr;

  Tuples() = default;
  Tuples(Key* keys, Value* values) : keys(keys), values(values) {}
  explicit Tuples(const TupleSpan& span) : keys(static_cast<Key*>(span.keys)), values(static_cast<Value*>(span.values)) {}

  Tuples at(uint64_t i) const {
    if constexpr (has_values<Value>) return {keys + i, values + i};
    return {keys + i, nullptr};
  }
  void set(uint64_t i, Key key, Value value) const {
    keys[i] = key;
    if constexpr (has_values<Value>) values[i] = value;
  }
  void move(uint64_t to, uint64_t from) const {
    keys[to] = keys[from];
    if constexpr (has_values<Value>) values[to] = values[from];
  }
  Value value(uint64_t i) const {
    if constexpr (has_values<Value>) return values[i];
    return {};
  }
  TupleView view(uint64_t size) const { return {keys, values, 0, size}; }
};

/// Copies tuples; implied values are written out. Arrays that are the same stay as they are, others must not overlap.
template <class Key, class Value>
void copy_tuples(const TupleView& from, const Tuples<Key, Value>& to) {
  if (from.size == 0) return;
  if (from.keys != to.keys) std::memcpy(to.keys, from.keys, from.size * sizeof(Key));
  if constexpr (has_values<Value>) {
    if (from.values == to.values) return;
    if (from.values) {
      std::memcpy(to.values, from.values, from.size * sizeof(Value));
    } else {
      for (uint64_t i = 0; i < from.size; ++i) to.values[i] = static_cast<Value>(from.first_value + i);
    }
  }
}

template <class Key, class Value>
void write_tuple(const TupleSpan& out, uint64_t i, Key key, Value value) {
  static_cast<Key*>(out.keys)[i] = key;
  if constexpr (has_values<Value>) static_cast<Value*>(out.values)[i] = value;
}

}  // namespace warpjoin::host
