// Key ranges of about equal weight, from a sample. Internal to native/sort.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "core/thread_pool.h"
#include "core/tuples.h"

namespace warpjoin::sorting {

/// Ranges of keys in ascending order; together they hold every key.
class KeyRanges {
 public:
  /// Chooses at most `most` ranges such that each holds about the same number of the tuples in `in` (host memory): the
  /// quantiles of a sample are the bounds. A key that is a quantile more than once is a range of its own, so that only
  /// ranges of equal keys can be much larger than the others. `oversampling` sampled keys are taken for each range.
  static KeyRanges choose(ThreadPool& pool, TupleLayout layout, const TupleView& in, size_t most, uint64_t oversampling);

  size_t size() const { return bounds_.size() + 1; }
  /// The least key of each range but the first.
  const std::vector<uint64_t>& bounds() const { return bounds_; }
  /// Which of `varying_bits` may differ between keys of range `r`.
  uint64_t varying_bits(size_t r, uint64_t varying_bits) const {
    const uint64_t first = r == 0 ? 0 : bounds_[r - 1], last = r == bounds_.size() ? greatest_ : bounds_[r] - 1;
    const auto width = std::bit_width(first ^ last);
    return width == 64 ? varying_bits : varying_bits & ((uint64_t{1} << width) - 1);
  }

 private:
  std::vector<uint64_t> bounds_;
  uint64_t greatest_ = ~uint64_t{0};  // of the key width
};

}  // namespace warpjoin::sorting
