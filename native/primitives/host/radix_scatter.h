// One stable pass that groups separate key and value arrays by a digit of the key (its bits, or the key range it lies in):
// per-block histograms, prefix sums in block order, and a scatter that gathers the tuples of each partition in a
// cache-resident line before it writes them (software write combining), past the caches where the output is larger than
// they are.
//
// Keys that lie in the caller's memory may change between the histogram and the scatter. Each line that is written is checked
// against the end of the output, and what a block wrote against its histogram: InputChanged is thrown where they differ.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "core/job.h"
#include "primitives/host/blocks.h"
#include "primitives/host/tuple_access.h"
#include "primitives/primitives.h"

namespace warpjoin::host {

inline constexpr uint32_t kMaxDigitBits = 12;

/// Keys whose digits are found together.
inline constexpr uint32_t kDigitBatch = 8;

/// Outputs from this size on are written past the caches.
inline constexpr uint64_t kStreamBytes = uint64_t{8} << 20;

/// A digit of a sort pass: a window of key bits and, below it, a second one, so that constant bits between them cost
/// nothing.
struct KeyDigit {
  uint32_t high_mask = 0, low_mask = 0;
  uint8_t high_shift = 0, low_shift = 0;
  uint8_t bits = 0;
  uint8_t lowest = 0;  ///< key bits below this one are not covered

  constexpr uint32_t count() const { return uint32_t{1} << bits; }
  constexpr uint32_t operator()(uint64_t key) const {
    return (static_cast<uint32_t>(key >> high_shift) & high_mask) | (static_cast<uint32_t>(key >> low_shift) & low_mask);
  }
  /// The bits of `varying` that are left to sort by after this digit.
  constexpr uint64_t rest(uint64_t varying) const { return lowest == 64 ? 0 : varying & ((uint64_t{1} << lowest) - 1); }
};

/// The digit of at most `bits` bits that covers the most of the topmost varying bits. varying != 0, bits >= 1.
inline KeyDigit top_digit(uint64_t varying, uint32_t bits) {
  const auto top = static_cast<uint32_t>(std::bit_width(varying));
  const auto lowest_bit = static_cast<uint32_t>(std::countr_zero(varying));
  const auto bits_from = [&](uint32_t low, uint32_t width) { return varying >> low & ((uint64_t{1} << width) - 1); };
  const auto window = [&](uint32_t high_bits) {  // high_bits in the first window, the rest in the second
    KeyDigit digit;
    const uint32_t high_low = top - high_bits;
    const uint64_t below = varying & ((uint64_t{1} << high_low) - 1);
    uint32_t low_bits = std::min(bits - high_bits, static_cast<uint32_t>(std::bit_width(below)));
    if (low_bits == 0) {
      digit = {(uint32_t{1} << high_bits) - 1, 0, static_cast<uint8_t>(high_low), 0, static_cast<uint8_t>(high_bits),
               static_cast<uint8_t>(high_low)};
      return digit;
    }
    uint32_t low = static_cast<uint32_t>(std::bit_width(below)) - low_bits;
    const auto spare = static_cast<uint32_t>(std::countr_zero(bits_from(low, low_bits)));
    low += spare;
    low_bits -= spare;
    digit.bits = static_cast<uint8_t>(high_bits + low_bits);
    digit.lowest = digit.low_shift = static_cast<uint8_t>(low);
    digit.low_mask = (uint32_t{1} << low_bits) - 1;
    // The first window lies above the second in the digit: shift its lowest bit to low_bits. The windows don't touch,
    // so high_low >= low + low_bits >= low_bits.
    digit.high_shift = static_cast<uint8_t>(high_low - low_bits);
    digit.high_mask = ((uint32_t{1} << high_bits) - 1) << low_bits;
    return digit;
  };
  const uint32_t whole = std::min(bits, top - lowest_bit);
  KeyDigit best = window(whole);
  auto covered = std::popcount(bits_from(top - whole, whole));
  for (uint32_t high_bits = 1; high_bits < whole && covered < static_cast<int>(whole); ++high_bits) {
    const KeyDigit digit = window(high_bits);
    const int covers = std::popcount(varying) - std::popcount(digit.rest(varying));
    if (covers > covered) {
      best = digit;
      covered = covers;
    }
  }
  return best;
}

/// A digit of a join partition: the bits of the mixed key.
struct MixedDigit {
  uint32_t mask;
  uint8_t shift;
  constexpr uint32_t operator()(uint64_t key) const { return static_cast<uint32_t>(mix_key(key) >> shift) & mask; }
};

/// Which key range a key lies in: range r has bounds[r - 1] <= key ^ flip < bounds[r], like Primitives::partition_ranges. The
/// bounds form a search tree that is walked without branches (super scalar sample sort: Sanders and Winkel 2004).
template <class Key>
class RangeDigit {
 public:
  /// Fewer than kMostRanges bounds, strictly ascending. Ranges of bounds beyond every key stay empty.
  RangeDigit(std::span<const uint64_t> bounds, Key flip) : flip_(flip) {
    // The tree has the greatest bound first, so that a node is passed to the right by the keys below its bound: no key is
    // below the zeros that fill the tree up.
    const auto reached = std::upper_bound(bounds.begin(), bounds.end(), uint64_t{std::numeric_limits<Key>::max()});
    const auto count = static_cast<uint32_t>(reached - bounds.begin());
    levels_ = static_cast<uint32_t>(std::bit_width(count));
    for (uint32_t level = 0; level < levels_; ++level) {
      const uint32_t nodes = uint32_t{1} << level;
      for (uint32_t i = 0; i < nodes; ++i) {
        const uint32_t above = ((2 * i + 1) << (levels_ - 1 - level)) - 1;
        if (above < count) tree_[nodes + i] = static_cast<Key>(bounds[count - 1 - above]);
      }
    }
    last_leaf_ = (uint32_t{1} << levels_) + count;
  }

  uint32_t operator()(Key key) const {
    Key written;
    uint32_t digit;
    find<1>(&key, &written, &digit);
    return digit;
  }
  /// The digits of kDigitBatch keys, which are read once, and the keys as they are written. Their searches take turns, so that
  /// each waits for its loads while the others go on.
  void operator()(const Key* keys, Key* written, uint32_t* digits) const { find<kDigitBatch>(keys, written, digits); }
  /// The key as it is written.
  Key written(Key key) const { return key ^ flip_; }

 private:
  template <uint32_t count>
  void find(const Key* keys, Key* flipped, uint32_t* digits) const {
    uint64_t node[count];
    for (uint32_t k = 0; k < count; ++k) {
      node[k] = 1;
      flipped[k] = keys[k] ^ flip_;
    }
    for (uint32_t level = 0; level < levels_; ++level) {
      for (uint32_t k = 0; k < count; ++k) node[k] = node[k] + node[k] + (flipped[k] < tree_[node[k]]);
    }
    for (uint32_t k = 0; k < count; ++k) digits[k] = last_leaf_ - static_cast<uint32_t>(node[k]);
  }

  Key flip_;
  uint32_t levels_, last_leaf_;
  Key tree_[Primitives::kMostRanges] = {};  // node n has children 2n and 2n + 1; the root is node 1
};

/// A digit that takes long to find: several together take less.
template <class DigitOf, class Key>
concept SearchedDigit = requires(const DigitOf& digit, const Key* keys, Key* written, uint32_t* digits) {
  digit(keys, written, digits);
};

/// digits[k] = digit(keys[k]) for kDigitBatch keys.
template <class DigitOf, class Key>
void find_digits(const DigitOf& digit, const Key* keys, uint32_t* digits) {
  if constexpr (SearchedDigit<DigitOf, Key>) {
    Key written[kDigitBatch];
    digit(keys, written, digits);
  } else {
    for (uint32_t k = 0; k < kDigitBatch; ++k) digits[k] = digit(keys[k]);
  }
}

/// Where a partition's next tuples gather until a line of each array can be written.
template <class Key, class Value>
struct alignas(64) Staged {
  static constexpr uint32_t kTuples = 64 / std::min(sizeof(Key), sizeof(Value));
  Key keys[kTuples];
  Value values[kTuples];
};
template <class Key>
struct alignas(64) Staged<Key, NoValue> {
  static constexpr uint32_t kTuples = 64 / sizeof(Key);
  Key keys[kTuples];
};

/// Copies whole lines to a 64-byte aligned target past the caches.
inline void stream_lines(void* target, const void* source, size_t bytes) {
#if defined(__AVX2__)
  for (size_t i = 0; i < bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(static_cast<char*>(target) + i),
                        _mm256_load_si256(reinterpret_cast<const __m256i*>(static_cast<const char*>(source) + i)));
  }
#else
  std::memcpy(target, source, bytes);
#endif
}

/// Makes streamed lines visible to threads that synchronize with this one.
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// Adds the digits of keys[0 .. size) to histogram[0 .. partitions).
template <class Key, class DigitOf>
void count_digits(const Key* keys, uint64_t size, DigitOf digit, uint32_t partitions, uint64_t* histogram, const Job& job) {
  // Two tables break the chain of increments of one counter where neighbours share a digit.
  alignas(64) uint32_t counts[2][size_t{1} << kMaxDigitBits];
  for (uint64_t begin = 0; begin < size; begin += kCheckRows) {
    job.check();
    const uint64_t end = std::min(size, begin + kCheckRows);
    for (auto& table : counts) std::fill_n(table, partitions, 0);
    uint64_t i = begin;
    for (; i + kDigitBatch <= end; i += kDigitBatch) {
      uint32_t digits[kDigitBatch];
      find_digits(digit, keys + i, digits);
      for (uint32_t k = 0; k < kDigitBatch; ++k) ++counts[k % 2][digits[k]];
    }
    for (; i < end; ++i) ++counts[0][digit(keys[i])];
    for (uint32_t p = 0; p < partitions; ++p) histogram[p] += uint64_t{counts[0][p]} + counts[1][p];
  }
}

/// Scatters in[begin, end): the tuples of partition p go to out[first[p], last[p]), of which as many were counted. `staged` and
/// `next` are working memory of `partitions` entries. With `stream` whole lines are written past the caches. Throws InputChanged
/// where the keys are not those that were counted; what `out` holds then is of no use.
template <class Key, class Value, bool kImplied, class DigitOf>
class Scatter {
 public:
  Scatter(const TupleView& in, DigitOf digit, uint32_t partitions, const uint64_t* first, const uint64_t* last,
          Staged<Key, Value>* staged, uint64_t* next, const Tuples<Key, Value>& out, bool stream)
      : keys_(static_cast<const Key*>(in.keys)),
        values_(static_cast<const Value*>(in.values)),
        first_value_(in.first_value),
        digit_(digit),
        partitions_(partitions),
        size_(in.size),
        first_(first),
        last_(last),
        next_(next),
        staged_(staged),
        out_(out) {
    // Positions are shifted so that slot 0 of a line of keys is 64-byte aligned in `out`, and one of values if it can.
    phase_ = line_phase(out.keys);
    stream_keys_ = stream_values_ = stream;
    if constexpr (has_values<Value>) {
      const uint64_t values_phase = line_phase(out.values);
      if constexpr (sizeof(Value) < sizeof(Key)) {
        if (values_phase % (64 / sizeof(Key)) == phase_) phase_ = values_phase;
      } else if (phase_ % (64 / sizeof(Value)) == values_phase) {
        return;
      }
      if (values_phase != phase_) stream_values_ = false;
    }
  }

  void run(uint64_t begin, uint64_t end, const Job& job) {
    for (uint32_t p = 0; p < partitions_; ++p) next_[p] = first_[p] + phase_;
    for (uint64_t from = begin; from < end; from += kCheckRows) {
      job.check();
      rows(from, std::min(end, from + kCheckRows));
    }
    for (uint32_t p = 0; p < partitions_; ++p) {
      if (next_[p] != last_[p] + phase_) throw InputChanged();
      const uint64_t line = next_[p] & ~uint64_t{kLast};
      put(p, std::max(first_[p] + phase_, line), next_[p]);
    }
    stream_fence();
  }

 private:
  static constexpr uint32_t kLast = Staged<Key, Value>::kTuples - 1;

  template <class T>
  static uint64_t line_phase(const T* target) {
    return reinterpret_cast<uintptr_t>(target) % 64 / sizeof(T);
  }

  void rows(uint64_t begin, uint64_t end) {
    // Locals: the stores below could alias members.
    const Key* const keys = keys_;
    const Value* const values = values_;
    uint64_t* const next = next_;
    Staged<Key, Value>* const staged = staged_;
    const DigitOf digit = digit_;
    const auto place = [&](uint64_t i, Key key, uint32_t p) {
      const uint64_t at = next[p];
      next[p] = at + 1;
      const uint64_t slot = at & kLast;
      staged[p].keys[slot] = key;
      if constexpr (kImplied) {
        staged[p].values[slot] = static_cast<Value>(first_value_ + i);
      } else if constexpr (has_values<Value>) {
        staged[p].values[slot] = values[i];
      }
      if (slot == kLast) flush(p, at - kLast);
    };
    uint64_t i = begin;
    if constexpr (SearchedDigit<DigitOf, Key>) {  // others are found while the tuple before is placed
      for (; i + kDigitBatch <= end; i += kDigitBatch) {
        uint32_t digits[kDigitBatch];
        Key written[kDigitBatch];
        digit(keys + i, written, digits);
        for (uint32_t k = 0; k < kDigitBatch; ++k) place(i + k, written[k], digits[k]);
      }
    }
    for (; i < end; ++i) {
      const Key key = keys[i];
      if constexpr (SearchedDigit<DigitOf, Key>) {
        place(i, digit.written(key), digit(key));
      } else {
        place(i, key, digit(key));
      }
    }
  }

  void flush(uint32_t p, uint64_t line) {
    if (line + kLast + 1 > size_ + phase_) [[unlikely]]
      throw InputChanged();
    if (const uint64_t first = first_[p] + phase_; line < first) {
      put(p, first, line + kLast + 1);
      return;
    }
    const Tuples<Key, Value> target = out_.at(line - phase_);
    copy_line(target.keys, staged_[p].keys, stream_keys_);
    if constexpr (has_values<Value>) copy_line(target.values, staged_[p].values, stream_values_);
  }

  template <class T>
  static void copy_line(T* target, const T* source, bool stream) {
    constexpr size_t kBytes = (size_t{kLast} + 1) * sizeof(T);
    if (stream) {
      stream_lines(target, source, kBytes);
    } else {
      std::memcpy(target, source, kBytes);
    }
  }

  /// Writes a part of a line: positions [from, to).
  void put(uint32_t p, uint64_t from, uint64_t to) {
    const Tuples<Key, Value> target = out_.at(from - phase_);
    const uint64_t slot = from & kLast;
    for (uint64_t i = 0; i < to - from; ++i) {
      target.keys[i] = staged_[p].keys[slot + i];
      if constexpr (has_values<Value>) target.values[i] = staged_[p].values[slot + i];
    }
  }

  const Key* keys_;
  const Value* values_;
  uint64_t first_value_;
  DigitOf digit_;
  uint32_t partitions_;
  uint64_t size_;
  const uint64_t* first_;
  const uint64_t* last_;
  uint64_t* next_;
  Staged<Key, Value>* staged_;
  Tuples<Key, Value> out_;
  uint64_t phase_ = 0;
  bool stream_keys_ = false, stream_values_ = false;
};

/// Working memory of a runner for its scatters.
template <class Key, class Value>
struct ScatterScratch {
  Staged<Key, Value>* staged;
  uint64_t* next;

  ScatterScratch(Carver& carver, uint32_t partitions)
      : staged(carver.take<Staged<Key, Value>>(partitions)), next(carver.take<uint64_t>(partitions)) {}
};

/// Groups `in` by digit into `out`, stable, in `blocks` blocks. `offsets` gets partitions + 1 entries, `histograms` holds
/// blocks * partitions; `scratch(runner)` gives a ScatterScratch.
template <class Key, class Value, class DigitOf, class ScratchOf>
void radix_pass(ThreadPool& pool, const TupleView& in, DigitOf digit, uint32_t partitions, const Tuples<Key, Value>& out,
                uint64_t* offsets, uint64_t* histograms, uint64_t blocks, const ScratchOf& scratch, const Job& job) {
  for_each_task(pool, blocks, job, [&](uint64_t block, uint64_t) {
    uint64_t* const histogram = histograms + block * partitions;
    std::fill_n(histogram, partitions, 0);
    const uint64_t begin = block_begin(in.size, blocks, block), end = block_begin(in.size, blocks, block + 1);
    count_digits(static_cast<const Key*>(in.keys) + begin, end - begin, digit, partitions, histogram, job);
  });
  offsets[0] = 0;
  std::fill_n(offsets + 1, partitions, 0);
  for (uint64_t block = 0; block < blocks; ++block) {
    for (uint32_t p = 0; p < partitions; ++p) offsets[p + 1] += histograms[block * partitions + p];
  }
  for (uint32_t p = 0; p < partitions; ++p) offsets[p + 1] += offsets[p];
  // Block by block, offsets[p] moves on through partition p, and ends where p + 1 begins: shifted back afterwards.
  for (uint64_t block = 0; block < blocks; ++block) {
    for (uint32_t p = 0; p < partitions; ++p) {
      const uint64_t count = histograms[block * partitions + p];
      histograms[block * partitions + p] = offsets[p];
      offsets[p] += count;
    }
  }
  for (uint32_t p = partitions; p > 0; --p) offsets[p] = offsets[p - 1];
  offsets[0] = 0;
  const bool stream = in.size * tuple_bytes<Key, Value> >= kStreamBytes;
  for_each_task(pool, blocks, job, [&](uint64_t block, uint64_t runner) {
    const uint64_t begin = block_begin(in.size, blocks, block), end = block_begin(in.size, blocks, block + 1);
    const ScatterScratch<Key, Value>& own = scratch(runner);
    const uint64_t* const first = histograms + block * partitions;
    const uint64_t* const last = block + 1 < blocks ? first + partitions : offsets + 1;
    const auto run = [&]<bool kImplied>() {
      Scatter<Key, Value, kImplied, DigitOf>(in, digit, partitions, first, last, own.staged, own.next, out, stream)
          .run(begin, end, job);
    };
    if constexpr (has_values<Value>) {
      if (!in.values) return run.template operator()<true>();
    }
    run.template operator()<false>();
  });
}

}  // namespace warpjoin::host
