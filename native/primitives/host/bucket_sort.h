// Sorting what fits a core's caches: two LSD passes over the topmost varying bits, then the few ties one by one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "primitives/host/radix_scatter.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin::host {

/// The most bits that one pass of a bucket sort takes: its counters and open lines stay in the L1 cache.
inline constexpr uint32_t kBucketDigitBits = 10;

/// Bits in which any of the keys differ.
template <class Key>
uint64_t differing_bits(const Key* keys, uint64_t size) {
  Key bits = 0;
  for (uint64_t i = 0; i < size; ++i) bits |= keys[i] ^ keys[0];
  return bits;
}

/// The same for any number of keys.
template <class Key>
uint64_t differing_bits(const Key* keys, uint64_t size, const Job& job) {
  uint64_t bits = 0;
  for (uint64_t begin = 0; begin < size; begin += kCheckRows) {
    job.check();
    bits |= differing_bits(keys + begin, std::min(size - begin, kCheckRows)) | (keys[begin] ^ keys[0]);
  }
  return bits;
}

template <class Key>
bool is_sorted(const Key* keys, uint64_t size) {
  constexpr uint64_t kStep = 64;  // compared without a branch, so that the loop vectorizes
  uint64_t i = 1;
  for (; i + kStep <= size; i += kStep) {
    unsigned inversions = 0;
    for (uint64_t j = i; j < i + kStep; ++j) inversions |= keys[j] < keys[j - 1];
    if (inversions) return false;
  }
  for (; i < size; ++i) {
    if (keys[i] < keys[i - 1]) return false;
  }
  return true;
}

template <class Key, class Value>
void insertion_sort(const Tuples<Key, Value>& tuples, uint64_t begin, uint64_t end) {
  for (uint64_t i = begin + 1; i < end; ++i) {
    const Key key = tuples.keys[i];
    if (tuples.keys[i - 1] <= key) continue;
    const Value value = tuples.value(i);
    uint64_t j = i;
    do {
      tuples.move(j, j - 1);
      --j;
    } while (j > begin && tuples.keys[j - 1] > key);
    tuples.set(j, key, value);
  }
}

template <class Key, class Value>
class BucketSort {
 public:
  /// `spare`: working memory for as many tuples as the largest bucket.
  explicit BucketSort(const Tuples<Key, Value>& spare) : spare_(spare) {}

  /// Sorts `in` into `out`, stable; their arrays are the same memory or don't overlap. Only bits in `varying` may differ. Keys
  /// are read several times: nobody may write to them meanwhile.
  void run(const TupleView& in, const Tuples<Key, Value>& out, uint64_t varying) const {
    if constexpr (has_values<Value>) {
      if (!in.values) return sort<true>(in, out, varying);
    }
    sort<false>(in, out, varying);
  }

 private:
  static constexpr uint64_t kInsertion = 24;
  /// Bits sorted by beyond log2(size): about one tuple in 2^kSlackBits then ties with another that is not its equal.
  static constexpr uint32_t kSlackBits = 3;

  template <bool kImplied>
  void sort(const TupleView& in, const Tuples<Key, Value>& out, uint64_t varying) const {
    const auto* const keys = static_cast<const Key*>(in.keys);
    const uint64_t size = in.size;
    if (size > kInsertion && varying) varying &= differing_bits(keys, size);
    if (size <= kInsertion || varying == 0) {
      copy_tuples(in, out);
      if (varying) insertion_sort(out, 0, size);
      return;
    }
    const auto enough = static_cast<uint32_t>(std::bit_width(size - 1)) + kSlackBits;
    const uint32_t bits = std::min({enough, static_cast<uint32_t>(std::popcount(varying)), 2 * kBucketDigitBits});
    const KeyDigit high = top_digit(varying, (bits + 1) / 2);
    const uint64_t below = high.rest(varying);
    KeyDigit low;
    if (below) low = top_digit(below, std::max(bits / 2, uint32_t{1}));
    const uint64_t rest = below ? low.rest(below) : 0;

    alignas(64) uint32_t high_next[size_t{1} << kBucketDigitBits], low_next[size_t{1} << kBucketDigitBits];
    std::fill_n(high_next, high.count(), 0);
    std::fill_n(low_next, low.count(), 0);
    for (uint64_t i = 0; i < size; ++i) {
      ++high_next[high(keys[i])];
      ++low_next[low(keys[i])];
    }
    to_offsets(high_next, high.count());
    if (below) {
      to_offsets(low_next, low.count());
      scatter<kImplied>(in, low, low_next, spare_);
    } else {
      copy_tuples(in, spare_);
    }
    scatter<false>(spare_.view(size), high, high_next, out);
    if (rest) sort_ties(out, size, rest);
  }

  static void to_offsets(uint32_t* counts, uint32_t partitions) {
    uint32_t sum = 0;
    for (uint32_t p = 0; p < partitions; ++p) {
      const uint32_t count = counts[p];
      counts[p] = sum;
      sum += count;
    }
  }

  template <bool kImplied>
  static void scatter(const TupleView& in, KeyDigit digit, uint32_t* next, const Tuples<Key, Value>& out) {
    const auto* const keys = static_cast<const Key*>(in.keys);
    const auto* const values = static_cast<const Value*>(in.values);
    for (uint64_t i = 0; i < in.size; ++i) {
      const Key key = keys[i];
      const uint32_t at = next[digit(key)]++;
      out.keys[at] = key;
      if constexpr (kImplied) {
        out.values[at] = static_cast<Value>(in.first_value + i);
      } else if constexpr (has_values<Value>) {
        out.values[at] = values[i];
      }
    }
  }

  /// Sorts runs of keys that differ only in the bits `rest`; the tuples are sorted by the bits above.
  void sort_ties(const Tuples<Key, Value>& tuples, uint64_t size, uint64_t rest) const {
    const auto shift = static_cast<int>(std::bit_width(rest));
    const Key* const keys = tuples.keys;
    const auto tie = [&](uint64_t i, uint64_t j) { return ((keys[i] ^ keys[j]) >> shift) == 0; };
    uint64_t done = 0;  // tuples before this one are sorted
    for (uint64_t i = 1; i < size; ++i) {
      if (keys[i - 1] <= keys[i]) continue;
      uint64_t begin = i - 1, end = i + 1;
      while (begin > done && tie(begin - 1, i)) --begin;
      while (end < size && tie(end, i)) ++end;
      if (end - begin <= kInsertion) {
        insertion_sort(tuples, begin, end);
      } else {
        run(tuples.at(begin).view(end - begin), tuples.at(begin), rest);
      }
      done = end;
      i = end;
    }
  }

  Tuples<Key, Value> spare_;
};

}  // namespace warpjoin::host
