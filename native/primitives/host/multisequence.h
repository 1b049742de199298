// Where the stable merge of sorted runs is at a given rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace warpjoin::host {

/// How many of the first `rank` tuples of the stable merge of a and b come from a (the merge path at diagonal `rank`).
template <class Key>
uint64_t merge_path(const Key* a, uint64_t a_size, const Key* b, uint64_t b_size, uint64_t rank) {
  uint64_t low = rank > b_size ? rank - b_size : 0, high = std::min(rank, a_size);
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (a[middle] <= b[rank - 1 - middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Cuts k sorted runs at ranks of their stable merge, among which ties go to the earlier run.
template <class Key>
class RunCutter {
 public:
  explicit RunCutter(size_t runs) : keys_(runs), high_(runs), at_(runs) {}

  void set_run(size_t run, const Key* keys) { keys_[run] = keys; }

  /// Moves low[] to the cuts whose parts before them are the first `rank` tuples in all, knowing that each cut lies in
  /// [low[i], high[i]].
  ///
  /// Each round takes the middle of the widest interval for a pivot and finds the pivot's place in every run. That says
  /// on which side of it all cuts are, which halves that interval and, unless the runs are disjoint, most others too.
  void cut(uint64_t* low, const uint64_t* most, uint64_t rank) {
    const size_t runs = keys_.size();
    uint64_t before = 0;
    for (size_t i = 0; i < runs; ++i) {
      high_[i] = most[i];
      before += low[i];
    }
    if (runs == 2) {
      const uint64_t first =
          merge_path(keys_[0] + low[0], high_[0] - low[0], keys_[1] + low[1], high_[1] - low[1], rank - before);
      low[0] += first;
      low[1] = rank - low[0];
      return;
    }
    while (before != rank) {
      size_t widest = 0;
      for (size_t i = 1; i < runs; ++i) {
        if (high_[i] - low[i] > high_[widest] - low[widest]) widest = i;
      }
      const uint64_t middle = low[widest] + (high_[widest] - low[widest]) / 2;
      const Key pivot = keys_[widest][middle];
      uint64_t pivot_rank = 0;
      for (size_t i = 0; i < runs; ++i) {
        const Key* const begin = keys_[i] + low[i];
        const Key* const end = keys_[i] + high_[i];
        if (i == widest) {
          at_[i] = middle;
        } else {
          at_[i] = static_cast<uint64_t>(
              (i < widest ? std::upper_bound(begin, end, pivot) : std::lower_bound(begin, end, pivot)) - keys_[i]);
        }
        pivot_rank += at_[i];
      }
      if (pivot_rank >= rank) {
        high_.swap(at_);
      } else {
        std::copy(at_.begin(), at_.end(), low);
        ++low[widest];
        before = pivot_rank + 1;
      }
      if (pivot_rank == rank) {
        std::copy(high_.begin(), high_.end(), low);
        return;
      }
    }
  }

 private:
  std::vector<const Key*> keys_;
  std::vector<uint64_t> high_, at_;
};

}  // namespace warpjoin::host
