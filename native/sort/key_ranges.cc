#include "sort/key_ranges.h"

#include <algorithm>

namespace warpjoin::sorting {

std::vector<uint64_t> sampled_keys(ThreadPool& pool, TupleLayout layout, const TupleView& in, uint64_t flip, uint64_t count) {
  std::vector<uint64_t> keys(count);
  static const Job never_cancelled;
  pool.for_blocks(count, 1024, never_cancelled, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      const uint64_t at = sampled_row(in.size, count, i);
      keys[i] = layout.key_bytes == 4 ? static_cast<const uint32_t*>(in.keys)[at] ^ static_cast<uint32_t>(flip)
                                      : static_cast<const uint64_t*>(in.keys)[at] ^ flip;
    }
  });
  return keys;
}

namespace {

// The bound between two keys that differ: above the lower and at most the higher one, with the most trailing zeros.
uint64_t shortest_bound(uint64_t lower, uint64_t higher) {
  const auto bit = static_cast<unsigned>(std::bit_width(lower ^ higher)) - 1;
  return higher >> bit << bit;
}

// Bounds such that each range but the last one holds from `least` to `most` of the ascending keys, unless those are equal.
std::vector<uint64_t> cut(std::span<const uint64_t> keys, size_t least, size_t most, uint64_t greatest) {
  std::vector<uint64_t> bounds;
  for (size_t begin = 0; keys.size() - begin > most;) {
    const uint64_t lower = keys[begin + least - 1], higher = keys[begin + most - 1];
    const uint64_t before = bounds.empty() ? 0 : bounds.back();
    if (lower < higher) {
      bounds.push_back(shortest_bound(lower, higher));
    } else if (lower > before) {
      bounds.push_back(lower);
    } else if (lower < greatest) {
      bounds.push_back(lower + 1);  // a range of its own
    } else {
      break;
    }
    begin = static_cast<size_t>(std::lower_bound(keys.begin() + static_cast<std::ptrdiff_t>(begin), keys.end(), bounds.back()) -
                                keys.begin());
  }
  return bounds;
}

}  // namespace

KeyRanges KeyRanges::choose(ThreadPool& pool, TupleLayout layout, const TupleView& in, uint64_t flip, size_t most,
                            uint64_t oversampling) {
  std::vector<uint64_t> keys = sampled_keys(pool, layout, in, flip, std::min(in.size, most * oversampling));
  std::sort(keys.begin(), keys.end());
  return of_sample(layout, keys, most, flip);
}

KeyRanges KeyRanges::of_sample(TupleLayout layout, std::span<const uint64_t> keys, size_t most, uint64_t flip) {
  KeyRanges ranges;
  ranges.flip_ = flip;
  ranges.greatest_ = layout.key_bytes == 4 ? UINT32_MAX : UINT64_MAX;
  const size_t share = (keys.size() + most - 1) / most;
  // Room to either side of an equal share: bounds at the multiples of a power of two suit keys that are spread evenly, of
  // whose ranges the sample has more here and less there.
  ranges.bounds_ = cut(keys, std::max<size_t>(share * 5 / 8, 1), share * 11 / 8 + 1, ranges.greatest_);
  if (ranges.size() > most) ranges.bounds_ = cut(keys, share, 2 * share, ranges.greatest_);
  ranges.bounds_.resize(std::min(ranges.bounds_.size(), most - 1));  // a range behind the sample's last key may be one too many
  return ranges;
}

}  // namespace warpjoin::sorting
