// Key ranges of about equal weight, from a sample. Internal to native/sort and native/join.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_pool.h"
#include "core/tuples.h"

namespace warpjoin::sorting {

/// The keys ^ flip of `count` <= in.size tuples spread over `in` (host memory), in its order.
std::vector<uint64_t> sampled_keys(ThreadPool& pool, TupleLayout layout, const TupleView& in, uint64_t flip, uint64_t count);

/// Ranges of keys in ascending order; together they hold every key. Keys are key ^ flip() of those in the input.
class KeyRanges {
 public:
  /// Chooses at most `most` ranges such that each holds a similar number of the tuples in `in` (host memory), with keys
  /// flipped, from a sample of `oversampling` keys for each. A range has at most two shares of the sample, but a key of more
  /// than two shares has a range of its own: only ranges of equal keys can be much larger than the others. Bounds have as many
  /// trailing zeros as that allows, so that few bits vary within a range.
  static KeyRanges choose(ThreadPool& pool, TupleLayout layout, const TupleView& in, uint64_t flip, size_t most,
                          uint64_t oversampling);
  /// As choose(), from keys that were sampled, flipped and sorted already.
  static KeyRanges of_sample(TupleLayout layout, std::span<const uint64_t> keys, size_t most, uint64_t flip = 0);

  size_t size() const { return bounds_.size() + 1; }
  /// The least key of each range but the first.
  const std::vector<uint64_t>& bounds() const { return bounds_; }
  uint64_t flip() const { return flip_; }
  /// Which of `varying_bits` may differ between keys of range `r`.
  uint64_t varying_bits(size_t r, uint64_t varying_bits) const {
    const uint64_t first = r == 0 ? 0 : bounds_[r - 1], last = r == bounds_.size() ? greatest_ : bounds_[r] - 1;
    const auto width = std::bit_width(first ^ last);
    return width == 64 ? varying_bits : varying_bits & ((uint64_t{1} << width) - 1);
  }

 private:
  std::vector<uint64_t> bounds_;
  uint64_t greatest_ = ~uint64_t{0};  // of the key width
  uint64_t flip_ = 0;
};

}  // namespace warpjoin::sorting
