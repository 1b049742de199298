// Typed access to tuples for the host primitives: one instantiation for each layout.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/error.h"
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

template <class Key, class Value>
void write_tuple(const TupleSpan& out, uint64_t i, Key key, Value value) {
  static_cast<Key*>(out.keys)[i] = key;
  if constexpr (!std::is_same_v<Value, NoValue>) static_cast<Value*>(out.values)[i] = value;
}

}  // namespace warpjoin::host
