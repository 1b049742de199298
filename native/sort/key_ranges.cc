#include "sort/key_ranges.h"

#include <algorithm>

namespace warpjoin::sorting {
namespace {

std::vector<uint64_t> sample(ThreadPool& pool, TupleLayout layout, const TupleView& in, uint64_t flip, uint64_t count) {
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

}  // namespace

KeyRanges KeyRanges::choose(ThreadPool& pool, TupleLayout layout, const TupleView& in, uint64_t flip, size_t most,
                            uint64_t oversampling) {
  KeyRanges ranges = of_sample(layout, sample(pool, layout, in, flip, std::min(in.size, most * oversampling)), most);
  ranges.flip_ = flip;
  return ranges;
}

KeyRanges KeyRanges::of_sample(TupleLayout layout, std::vector<uint64_t> keys, size_t most) {
  KeyRanges ranges;
  ranges.greatest_ = layout.key_bytes == 4 ? UINT32_MAX : UINT64_MAX;
  if (keys.empty()) return ranges;
  std::sort(keys.begin(), keys.end());
  std::vector<uint64_t>& bounds = ranges.bounds_;
  for (size_t q = 1; q < most; ++q) {
    const uint64_t key = keys[keys.size() * q / most];
    const uint64_t before = bounds.empty() ? 0 : bounds.back();
    if (key > before) {
      bounds.push_back(key);
    } else if (key == before && key != ranges.greatest_) {
      bounds.push_back(key + 1);  // twice a quantile: [key, key + 1)
    }
  }
  return ranges;
}

}  // namespace warpjoin::sorting
