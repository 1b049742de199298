// Key ranges of about equal weight, from a sample. Internal to native/sort.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "core/thread_pool.h"
#include "core/tuples.h"

namespace warpjoin::sorting {

/// Row `i` of `count` that are sampled of `size`: one of each stretch of equal length, at a place that looks random.
constexpr uint64_t sampled_row(uint64_t size, uint64_t count, uint64_t i) {
  const uint64_t first = size / count * i + std::min(i, size % count), length = size / count + (i < size % count ? 1 : 0);
  return first + mix_key(i + 1) % length;
}

/// Ranges of keys in ascending order; together they hold every key. Keys are key ^ flip() of those in the input.
class KeyRanges {
 public:
  /// Chooses at most `most` ranges such that each holds about the same number of the tuples in `in` (host memory), with
  /// keys flipped: the quantiles of a sample are the bounds. A key that is a quantile more than once is a range of its own,
  /// so that only ranges of equal keys can be much larger than the others. `oversampling` sampled keys are taken for each
  /// range.
  static KeyRanges choose(ThreadPool& pool, TupleLayout layout, const TupleView& in, uint64_t flip, size_t most,
                          uint64_t oversampling);
  /// As choose(), from keys that were sampled already and are not flipped.
  static KeyRanges of_sample(TupleLayout layout, std::vector<uint64_t> keys, size_t most);

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
