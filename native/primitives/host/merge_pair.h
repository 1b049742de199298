// Merging two sorted sequences of tuples in one thread, without branches that depend on the keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "primitives/host/multisequence.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin::host {

/// Sorted tuples that lie anywhere.
template <class Key, class Value>
struct SortedRun {
  const Key* keys = nullptr;
  const Value* values = nullptr;
  uint64_t size = 0;

  SortedRun slice(uint64_t begin, uint64_t end) const {
    if constexpr (has_values<Value>) return {keys + begin, values + begin, end - begin};
    return {keys + begin, nullptr, end - begin};
  }
  TupleView view() const { return {keys, values, 0, size}; }
};

/// Merges a before b into a target, one tuple a step.
template <class Key, class Value>
class PairMerge {
 public:
  PairMerge() = default;
  PairMerge(const SortedRun<Key, Value>& a, const SortedRun<Key, Value>& b, const Tuples<Key, Value>& out)
      : a_(a), b_(b), out_(out) {}

  /// How many steps to the end of one of the sequences; up to there step() needs no bounds.
  uint64_t steps_to_an_end() const {
    if (a_.size == 0 || b_.size == 0) return 0;
    const Key a_last = a_.keys[a_.size - 1], b_last = b_.keys[b_.size - 1];
    if (a_last <= b_last) return a_.size + static_cast<uint64_t>(std::lower_bound(b_.keys, b_.keys + b_.size, a_last) - b_.keys);
    return b_.size + static_cast<uint64_t>(std::upper_bound(a_.keys, a_.keys + a_.size, b_last) - a_.keys);
  }

  [[gnu::always_inline]] void step() {
    const Key a_key = a_.keys[from_a_], b_key = b_.keys[from_b_];
    const bool take_b = b_key < a_key;
    out_.keys[from_a_ + from_b_] = std::min(a_key, b_key);
    if constexpr (has_values<Value>) {
      // Both are loaded and one is masked out: a choice of address would become a branch.
      const Value a_value = a_.values[from_a_], b_value = b_.values[from_b_];
      out_.values[from_a_ + from_b_] = a_value ^ ((a_value ^ b_value) & (Value{0} - static_cast<Value>(take_b)));
    }
    from_b_ += take_b;
    from_a_ += !take_b;
  }

  /// Copies what is left once one of the sequences has ended.
  void finish() {
    const uint64_t at = from_a_ + from_b_;
    copy_tuples(a_.slice(from_a_, a_.size).view(), out_.at(at));
    copy_tuples(b_.slice(from_b_, b_.size).view(), out_.at(at + a_.size - from_a_));
  }

 private:
  SortedRun<Key, Value> a_, b_;
  Tuples<Key, Value> out_;
  uint64_t from_a_ = 0, from_b_ = 0;
};

/// Merges a and b into `out`, stable: ties go to a. `out` overlaps neither.
template <class Key, class Value>
void merge_pair(const SortedRun<Key, Value>& a, const SortedRun<Key, Value>& b, const Tuples<Key, Value>& out) {
  // A step waits for the comparison of the step before. Independent merges of parts of the output, taken in turns,
  // overlap these waits.
  constexpr int kChains = 4;
  constexpr uint64_t kFewest = 64;
  const uint64_t size = a.size + b.size;
  PairMerge<Key, Value> chains[kChains];
  uint64_t steps[kChains] = {};
  const int used = size < kFewest * kChains ? 1 : kChains;
  uint64_t rank = 0, a_begin = 0;
  for (int c = 0; c < used; ++c) {
    const uint64_t next_rank = size / static_cast<uint64_t>(used) * static_cast<uint64_t>(c + 1);
    const uint64_t end = c + 1 == used ? size : next_rank;
    const uint64_t a_end = c + 1 == used ? a.size : merge_path(a.keys, a.size, b.keys, b.size, end);
    chains[c] = {a.slice(a_begin, a_end), b.slice(rank - a_begin, end - a_end), out.at(rank)};
    steps[c] = chains[c].steps_to_an_end();
    rank = end;
    a_begin = a_end;
  }
  if (used == kChains) {
    const uint64_t together = *std::min_element(steps, steps + kChains);
    PairMerge<Key, Value> c0 = chains[0], c1 = chains[1], c2 = chains[2], c3 = chains[3];
    for (uint64_t i = 0; i < together; ++i) {
      c0.step();
      c1.step();
      c2.step();
      c3.step();
    }
    chains[0] = c0;
    chains[1] = c1;
    chains[2] = c2;
    chains[3] = c3;
    for (uint64_t& left : steps) left -= together;
  }
  for (int c = 0; c < used; ++c) {
    for (; steps[c] > 0; --steps[c]) chains[c].step();
    chains[c].finish();
  }
}

}  // namespace warpjoin::host
