// Tuples as the operators see them: separate arrays of unsigned keys and of values (structure of arrays).
//
// A key is an unsigned 32- or 64-bit integer whose order (sort) or identity (join) is that of the column it encodes.
// A value is what travels with the key: a row number, or a payload of the same width carried along.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace warpjoin {

/// Width of one tuple's parts in bytes. `value_bytes` is 0 where only keys move (counting).
struct TupleLayout {
  uint8_t key_bytes = 8;    ///< 4 or 8
  uint8_t value_bytes = 8;  ///< 0, 4 or 8

  constexpr size_t tuple_bytes() const { return size_t{key_bytes} + value_bytes; }
  friend constexpr bool operator==(TupleLayout, TupleLayout) = default;
};

/// Read-only tuples. With `values == nullptr` (and `value_bytes != 0`) the values are the row numbers
/// first_value, first_value + 1, ... and take no memory.
struct TupleView {
  const void* keys = nullptr;
  const void* values = nullptr;
  uint64_t first_value = 0;
  uint64_t size = 0;

  /// Rows [begin, end) of this view.
  TupleView slice(TupleLayout layout, uint64_t begin, uint64_t end) const {
    return {static_cast<const char*>(keys) + begin * layout.key_bytes,
            values ? static_cast<const char*>(values) + begin * layout.value_bytes : nullptr, first_value + begin, end - begin};
  }
};

/// Tuples [begin, begin + size) of `from`, taken as one sequence, as far as there are some.
inline std::vector<TupleView> cut(TupleLayout layout, const std::vector<TupleView>& from, uint64_t begin, uint64_t size) {
  std::vector<TupleView> found;
  uint64_t at = 0;
  for (const TupleView& view : from) {
    const uint64_t first = std::clamp(begin, at, at + view.size) - at, last = std::clamp(begin + size, at, at + view.size) - at;
    if (first < last) found.push_back(view.slice(layout, first, last));
    at += view.size;
  }
  return found;
}

/// Writable tuples. `values` may be null only when `value_bytes == 0`.
struct TupleSpan {
  void* keys = nullptr;
  void* values = nullptr;
  uint64_t size = 0;

  TupleSpan slice(TupleLayout layout, uint64_t begin, uint64_t end) const {
    return {static_cast<char*>(keys) + begin * layout.key_bytes,
            values ? static_cast<char*>(values) + begin * layout.value_bytes : nullptr, end - begin};
  }
  TupleView view() const { return {keys, values, 0, size}; }
};

/// Mixes a key so that its high bits partition well and its low bits stay distinct (a bijection of 64-bit keys).
/// Join partitions take the highest bits of the mixed key, hash tables the ones below.
constexpr uint64_t mix_key(uint64_t key) {
  key ^= key >> 32;
  key *= 0x9E3779B97F4A7C15ull;
  return key ^ (key >> 29);
}

/// Row `i` of `count` <= `size` that are sampled of `size`: one of each stretch of equal length, at a place that looks random.
constexpr uint64_t sampled_row(uint64_t size, uint64_t count, uint64_t i) {
  const uint64_t length = size / count, longer = size % count;
  return length * i + (i < longer ? i : longer) + mix_key(i + 1) % (length + (i < longer ? 1 : 0));
}

/// Which partition a key belongs to: `bits` bits of the key (or of the mixed key) below bit position `shift + bits`.
struct Digit {
  uint8_t shift = 0;
  uint8_t bits = 0;
  bool mixed = false;  ///< take the bits of mix_key(key): joins; otherwise of the key itself: sorts

  constexpr uint32_t count() const { return uint32_t{1} << bits; }
  constexpr uint32_t operator()(uint64_t key) const {
    return static_cast<uint32_t>(((mixed ? mix_key(key) : key) >> shift) & (count() - 1));
  }
};

/// Equal keys in sorted build and probe relations: rows [build_begin, build_end) match rows [probe_begin, probe_end).
template <class Row>
struct alignas(2 * sizeof(Row)) MatchRangeOf {
  Row build_begin, build_end, probe_begin, probe_end;
  friend constexpr bool operator==(const MatchRangeOf&, const MatchRangeOf&) = default;
};
using MatchRange = MatchRangeOf<uint64_t>;
using NarrowMatchRange = MatchRangeOf<uint32_t>;  ///< half the bytes where neither relation has 2^32 rows

/// Bytes of a row number in the match ranges of relations of these sizes: 4 or 8.
constexpr uint8_t match_row_bytes(uint64_t build_size, uint64_t probe_size) { return (build_size | probe_size) >> 32 ? 8 : 4; }

}  // namespace warpjoin
