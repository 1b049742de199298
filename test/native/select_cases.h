// Tuples up to a bound, as a plain loop selects them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/tuples.h"

namespace warpjoin::test {

/// Tuples to select from: the keys, and the value of each.
struct SelectCase {
  TupleLayout layout;
  std::vector<uint64_t> keys, values;
  uint64_t flip = 0;
  uint64_t sampled = 0, index = 0;  ///< the bound; 0 sampled: all are selected

  using Tuple = std::pair<uint64_t, uint64_t>;

  uint64_t cut(uint64_t key) const { return layout.key_bytes == 4 ? key & 0xFFFFFFFF : key; }
  uint64_t flipped(uint64_t row) const { return cut(keys[row] ^ flip); }
  uint64_t bound_key() const { return flipped(sampled_row(keys.size(), sampled, index)); }

  /// In order. Keys are flipped.
  std::vector<Tuple> selected() const {
    std::vector<Tuple> found;
    for (uint64_t row = 0; row < keys.size(); ++row) {
      if (sampled) {
        const Tuple last{bound_key(), sampled_row(keys.size(), sampled, index)};
        if (Tuple{flipped(row), row} > last) continue;
      }
      found.emplace_back(flipped(row), layout.value_bytes ? values[row] : 0);
    }
    std::sort(found.begin(), found.end());
    return found;
  }
};

}  // namespace warpjoin::test
