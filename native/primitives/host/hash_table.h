// The table of a host hash join: buckets of one vector of keys each, kept small enough for a core's second-level cache.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/tuples.h"

namespace warpjoin::host {

/// Keys whose table a core's own cache holds.
inline constexpr uint64_t kPartitionKeys = 4096;

/// Maps distinct keys to ids. A bucket holds 32 bytes of keys, which one comparison searches, and a key that finds its
/// bucket full goes to the next one; ids lie apart, so that probing touches them only after a hit. At most half the
/// slots are taken.
template <class Key>
class KeyTable {
 public:
  static constexpr uint64_t kSlots = 32 / sizeof(Key);  ///< keys a bucket

  static uint64_t buckets_for(uint64_t keys) { return keys * 3 / kSlots + 1; }
  /// Memory for a table of up to `keys` keys; wants 64-byte alignment.
  static uint64_t bytes_for(uint64_t keys) {
    return (buckets_for(keys) * kSlots * (sizeof(Key) + sizeof(uint32_t)) + 63) / 64 * 64;
  }

  /// An empty table for up to `keys` keys. `used_bits`: how many top bits of the mixed keys are the same in all keys.
  KeyTable(void* memory, uint64_t keys, unsigned used_bits)
      : buckets_(buckets_for(keys)),
        used_bits_(used_bits),
        keys_(static_cast<Key*>(memory)),
        ids_(reinterpret_cast<uint32_t*>(keys_ + buckets_ * kSlots)) {
    std::fill_n(keys_, buckets_ * kSlots, kEmpty);
  }

  /// The id of `key`, which becomes `id` if the key is new.
  uint32_t insert(Key key, uint32_t id) {
    if (key == kEmpty) [[unlikely]] {
      if (!has_empty_) empty_id_ = id;
      has_empty_ = true;
      return empty_id_;
    }
    for (uint64_t bucket = home(key);; bucket = bucket + 1 == buckets_ ? 0 : bucket + 1) {
      Key* const keys = keys_ + bucket * kSlots;
      uint32_t* const ids = ids_ + bucket * kSlots;
      if (const unsigned found = equal(keys, key)) return ids[std::countr_zero(found)];
      if (const unsigned free = equal(keys, kEmpty)) {
        const int slot = std::countr_zero(free);
        keys[slot] = key;
        ids[slot] = id;
        return id;
      }
    }
  }

  /// The id of `key`, or `none`. No branch depends on whether it is there: half the keys may be, at random.
  uint32_t find(Key key, uint32_t none) const {
    if (key == kEmpty) [[unlikely]]
      return has_empty_ ? empty_id_ : none;
    uint64_t bucket = home(key);
    unsigned found = equal(keys_ + bucket * kSlots, key);
    while ((found | equal(keys_ + bucket * kSlots, kEmpty)) == 0) [[unlikely]] {
        bucket = bucket + 1 == buckets_ ? 0 : bucket + 1;
        found = equal(keys_ + bucket * kSlots, key);
      }
    // In arithmetic, for compilers turn a conditional back into the branch. Without a hit the slot is any of the bucket.
    const auto slot = static_cast<unsigned>(__builtin_ctz(found | 1u << kSlots)) & (kSlots - 1);
    const uint32_t hit = 0 - ((found + ((1u << kSlots) - 1)) >> kSlots);
    return (ids_[bucket * kSlots + slot] & hit) | (none & ~hit);
  }

  void prefetch(Key key) const {
    const uint64_t bucket = home(key);
    __builtin_prefetch(keys_ + bucket * kSlots);
    __builtin_prefetch(ids_ + bucket * kSlots);
  }

 private:
  static constexpr Key kEmpty = static_cast<Key>(0x8F1BBCDC5A827999ull);  // as a key it is looked after separately

  uint64_t home(Key key) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(mix_key(key) << used_bits_) * buckets_) >> 64);
  }

  /// A bit for each slot of a bucket that holds `key`.
  static unsigned equal(const Key* keys, Key key) {
#if defined(__AVX2__)
    const __m256i slots = _mm256_load_si256(reinterpret_cast<const __m256i*>(keys));
    if constexpr (sizeof(Key) == 8) {
      const __m256i same = _mm256_cmpeq_epi64(slots, _mm256_set1_epi64x(static_cast<long long>(key)));
      return static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(same)));
    } else {
      const __m256i same = _mm256_cmpeq_epi32(slots, _mm256_set1_epi32(static_cast<int>(key)));
      return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(same)));
    }
#else
    unsigned same = 0;
    for (unsigned slot = 0; slot < kSlots; ++slot) same |= static_cast<unsigned>(keys[slot] == key) << slot;
    return same;
#endif
  }

  uint64_t buckets_;
  unsigned used_bits_;
  Key* keys_;
  uint32_t* ids_;
  uint32_t empty_id_ = 0;
  bool has_empty_ = false;
};

}  // namespace warpjoin::host
