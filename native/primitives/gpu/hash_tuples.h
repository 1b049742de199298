// Tuples as the hash join's kernels keep them: key and value side by side, the key hashed.
//
// The hash is a bijection of the keys, so equal hashes are equal keys, and the keys come back out of them. All that a join
// does with a key is then digits and comparisons of the hash: its topmost bits are the partition, those below the slot.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/tuples.h"
#include "primitives/gpu/kernels.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

template <class Key>
inline constexpr unsigned key_bits = 8 * sizeof(Key);

/// Odd numbers, and others than mix_key's, whose topmost bits the tuples of a device have in common.
template <class Key>
inline constexpr Key hash_factor = static_cast<Key>(sizeof(Key) == 4 ? 0x85EBCA6B : 0xD1342543DE82EF95);
template <class Key>
__host__ __device__ constexpr Key inverse_of(Key odd) {
  Key inverse = odd;
  for (int i = 0; i < 6; ++i) inverse = static_cast<Key>(inverse * (2 - odd * inverse));  // doubles the right bits
  return inverse;
}

template <class Key>
__host__ __device__ constexpr Key hash_key(Key key) {
  key ^= key >> (key_bits<Key> / 2);
  key *= hash_factor<Key>;
  return key ^ (key >> (key_bits<Key> / 2));
}
/// The key whose hash it is.
template <class Key>
__host__ __device__ constexpr Key key_of_hash(Key hash) {
  constexpr Key kInverse = inverse_of(hash_factor<Key>);
  hash ^= hash >> (key_bits<Key> / 2);
  hash *= kInverse;
  return hash ^ (hash >> (key_bits<Key> / 2));
}

/// The topmost `bits` of a hash.
template <class Key>
__device__ unsigned top_bits(Key hash, unsigned bits) {
  return bits == 0 ? 0 : static_cast<unsigned>(hash >> (key_bits<Key> - bits));
}

template <class Key, class Value>
struct alignas(std::bit_ceil(sizeof(Key) + sizeof(Value))) HashTuple {
  Key hash;
  Value value;
};
template <class Key>
struct HashTuple<Key, NoValue> {
  Key hash;
};

/// All of a tuple, what pads it too.
template <class Tuple>
using TupleWord =
    std::conditional_t<sizeof(Tuple) == 4, uint32_t, std::conditional_t<sizeof(Tuple) == 8, unsigned long long, ulonglong2>>;

/// Reads a tuple, all at once, that will not be read again.
template <class Tuple>
__device__ Tuple load_tuple_once(const Tuple* at) {
  static_assert(sizeof(TupleWord<Tuple>) == sizeof(Tuple));
  const auto word = load_once(reinterpret_cast<const TupleWord<Tuple>*>(at));
  Tuple tuple;
  memcpy(&tuple, &word, sizeof(tuple));
  return tuple;
}
template <class Tuple>
__device__ void store_tuple(Tuple* at, const Tuple& tuple) {
  TupleWord<Tuple> word{};
  memcpy(&word, &tuple, sizeof(tuple));
  *reinterpret_cast<TupleWord<Tuple>*>(at) = word;
}

/// Hashed tuples of any value width as kernels see them that mostly look at the hashes.
struct HashTuples {
  char* data = nullptr;
  uint32_t stride = 0, value_at = 0;
  uint8_t value_bytes = 0;

  template <class Key>
  __device__ Key hash(uint64_t row) const {
    return *reinterpret_cast<const Key*>(data + row * stride);
  }
  template <class Key>
  __device__ Key hash_once(uint64_t row) const {
    return load_once(reinterpret_cast<const Key*>(data + row * stride));
  }
  template <class Value>
  __device__ Value value(uint64_t row) const {
    return *reinterpret_cast<const Value*>(data + row * stride + value_at);
  }
  template <class Key>
  __device__ void set_hash(uint64_t row, Key hash) const {
    *reinterpret_cast<Key*>(data + row * stride) = hash;
  }
  template <class Value>
  __device__ void set_value(uint64_t row, Value value) const {
    *reinterpret_cast<Value*>(data + row * stride + value_at) = value;
  }
};

/// Writes a tuple's key, or its value, to row `at` of a column; nothing where that is null.
template <class Key>
__device__ void write_key(void* keys, uint64_t at, const HashTuples& tuples, uint64_t row) {
  if (keys) static_cast<Key*>(keys)[at] = key_of_hash(tuples.hash<Key>(row));
}
__device__ inline void write_value(void* values, uint64_t at, const HashTuples& tuples, uint64_t row) {
  if (!values || tuples.value_bytes == 0) return;
  if (tuples.value_bytes == 4) {
    static_cast<uint32_t*>(values)[at] = tuples.value<uint32_t>(row);
  } else {
    static_cast<uint64_t*>(values)[at] = tuples.value<uint64_t>(row);
  }
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
