// What the bits of a key column mean: canonical bits (equality) and ordered bits (order) of a value.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/column.h"
#include "core/error.h"

namespace warpjoin {

template <class Raw, KeyOrder order>
struct KeyType;

template <class R>
struct KeyType<R, KeyOrder::unsigned_integer> {
  using Raw = R;
  static constexpr KeyOrder kOrder = KeyOrder::unsigned_integer;
  static constexpr R canonical(R raw) { return raw; }
  static constexpr R ordered(R raw) { return raw; }
  static constexpr R raw(R ordered) { return ordered; }
};

template <class R>
struct KeyType<R, KeyOrder::signed_integer> {
  using Raw = R;
  static constexpr KeyOrder kOrder = KeyOrder::signed_integer;
  static constexpr R kSign = static_cast<R>(R{1} << (8 * sizeof(R) - 1));
  static constexpr R canonical(R raw) { return raw; }
  static constexpr R ordered(R raw) { return raw ^ kSign; }
  static constexpr R raw(R ordered) { return ordered ^ kSign; }
};

template <class R>
struct KeyType<R, KeyOrder::floating> {
  using Raw = R;
  static constexpr KeyOrder kOrder = KeyOrder::floating;
  static constexpr R kSign = static_cast<R>(R{1} << (8 * sizeof(R) - 1));
  static constexpr unsigned kMantissa = sizeof(R) == 2 ? 10 : sizeof(R) == 4 ? 23 : 52;
  static constexpr R kInfinity = static_cast<R>((R{1} << (8 * sizeof(R) - 1)) - (R{1} << kMantissa));
  static constexpr R kNan = static_cast<R>(kInfinity | (R{1} << (kMantissa - 1)));
  /// -0.0 becomes 0.0, and every NaN the one positive quiet NaN.
  static constexpr R canonical(R raw) {
    const R magnitude = static_cast<R>(raw & static_cast<R>(~kSign));
    const R zero_cleared = magnitude == 0 ? R{0} : raw;
    return magnitude > kInfinity ? kNan : zero_cleared;
  }
  static constexpr R ordered(R raw) {
    const R bits = canonical(raw);
    return static_cast<R>(bits & kSign ? ~bits : bits ^ kSign);
  }
  static constexpr R raw(R ordered) { return static_cast<R>(ordered & kSign ? ordered ^ kSign : ~ordered); }
};

/// The bits of the float that has the value of a half.
inline uint32_t widened_half(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31, exponent = (half >> 10) & 31, mantissa = half & 0x3FF;
  if (exponent == 31) return sign | 0x7F800000u | mantissa << 13;
  if (exponent) return sign | (exponent + 112) << 23 | mantissa << 13;
  return sign | std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f);
}
/// The bits of the double that has the value of a float of any width.
template <class Raw>
uint64_t widened_float(Raw raw) {
  if constexpr (sizeof(Raw) == 8) {
    return raw;
  } else {
    uint32_t narrow;
    if constexpr (sizeof(Raw) == 2) {
      narrow = widened_half(raw);
    } else {
      narrow = static_cast<uint32_t>(raw);
    }
    return std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(narrow)));
  }
}

/// Calls body.operator()<KeyType>() for a fixed-width key type; throws Error(key_type) for what is none.
template <class Body>
auto with_key_type(const ColumnType& type, Body&& body) {
  const auto with_raw = [&]<KeyOrder order>() {
    switch (type.width) {
      case 1:
        if constexpr (order != KeyOrder::floating) return body.template operator()<KeyType<uint8_t, order>>();
        break;
      case 2: return body.template operator()<KeyType<uint16_t, order>>();
      case 4: return body.template operator()<KeyType<uint32_t, order>>();
      case 8: return body.template operator()<KeyType<uint64_t, order>>();
      default: break;
    }
    throw Error(ErrorCode::key_type, "A key can't be " + std::to_string(type.width) + " bytes wide");
  };
  if (type.kind == ColumnKind::fixed) {
    if (type.order == KeyOrder::unsigned_integer) return with_raw.template operator()<KeyOrder::unsigned_integer>();
    if (type.order == KeyOrder::signed_integer) return with_raw.template operator()<KeyOrder::signed_integer>();
    if (type.order == KeyOrder::floating) return with_raw.template operator()<KeyOrder::floating>();
  }
  throw Error(ErrorCode::key_type, "The column's type has no order");
}

inline bool is_integer_key(const ColumnType& type) {
  return type.order == KeyOrder::signed_integer || type.order == KeyOrder::unsigned_integer;
}
/// The least value of a type of integers, whose ordered bits are 0; 0 for other types.
inline __int128 least_value(const ColumnType& type) {
  return type.order == KeyOrder::signed_integer ? -(__int128{1} << (8 * type.width - 1)) : __int128{0};
}
inline bool is_text_key(const ColumnType& type) { return type.variable_width() && type.order == KeyOrder::bytes; }
inline bool is_boolean_key(const ColumnType& type) { return type.kind == ColumnKind::boolean; }

}  // namespace warpjoin
