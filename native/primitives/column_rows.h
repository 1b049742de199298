// A column's rows, one after the other, as host threads and kernels encode and decode them.
#pragma once

#include <cstdint>

#include "core/key_types.h"
#include "primitives/primitives.h"

namespace warpjoin {

/// The values of a KeyType.
template <class Key>
struct FixedValues {
  using Raw = typename Key::Raw;
  static constexpr uint64_t ordered(const Raw* values, uint64_t row) { return Key::ordered(values[row]); }
  static constexpr bool is_canonical(const Raw* values, uint64_t row) { return Key::canonical(values[row]) == values[row]; }
  static constexpr Raw raw(uint64_t ordered) { return Key::raw(static_cast<Raw>(ordered)); }
};

/// Those of a bitmap.
struct BitValues {
  using Raw = uint64_t;
  static constexpr uint64_t ordered(const uint64_t* words, uint64_t row) { return (words[row / 64] >> (row % 64)) & 1; }
  static constexpr bool is_canonical(const uint64_t*, uint64_t) { return true; }
};

/// Whether a row is null, by a bitmap or none.
constexpr bool is_null(const uint64_t* validity, uint64_t row) { return validity && !BitValues::ordered(validity, row); }

/// A row's key with its field of a value's ordered bits; `key`: what the parts before this one have made of it.
constexpr uint64_t add_to_key(uint64_t key, const KeyField& field, uint64_t ordered, bool null, uint64_t row) {
  if (field.distinct_from && key >= field.distinct_from) return key;
  if (null && field.distinct_nulls) return field.distinct_from + row;
  return key | (null ? field.null_code : field.code(ordered)) << field.shift;
}

template <class Values>
class ColumnRows {
 public:
  constexpr ColumnRows(const void* values, const void* validity)
      : values_(static_cast<const typename Values::Raw*>(values)), validity_(static_cast<const uint64_t*>(validity)) {}

  /// Reads the value of a null, too, so that no load waits for another.
  constexpr void add_to(ValueRange& range, uint64_t row) const {
    const bool null = is_null(row);
    const uint64_t bits = Values::ordered(values_, row);
    range.add({null, null ? ~uint64_t{0} : bits, null ? 0 : bits, !null && !Values::is_canonical(values_, row)});
  }
  /// Reads the value of a null, too.
  constexpr uint64_t add_to_key(uint64_t key, const KeyField& field, uint64_t row) const {
    return warpjoin::add_to_key(key, field, Values::ordered(values_, row), is_null(row), row);
  }

 private:
  constexpr bool is_null(uint64_t row) const { return warpjoin::is_null(validity_, row); }

  const typename Values::Raw* values_;
  const uint64_t* validity_;
};

/// Calls body.operator()<FixedValues or BitValues>(); throws Error(key_type) for a type that has no order.
template <class Body>
void with_values(const ColumnType& type, Body&& body) {
  if (is_boolean_key(type)) return body.template operator()<BitValues>();
  with_key_type(type, [&]<class Key>() { body.template operator()<FixedValues<Key>>(); });
}

/// Calls body(ColumnRows).
template <class Body>
void with_rows(const ColumnStretch& stretch, Body&& body) {
  with_values(stretch.type, [&]<class Values>() { body(ColumnRows<Values>(stretch.values, stretch.validity)); });
}

}  // namespace warpjoin
