#include "sort/key_ranges.h"

#include <algorithm>

namespace warpjoin::sorting {
namespace {

// One key from each of `count` stretches of `in` of equal length, at a place that looks random.
std::vector<uint64_t> sample(ThreadPool& pool, TupleLayout layout, const TupleView& in, uint64_t count) {
  std::vector<uint64_t> keys(count);
  static const Job never_cancelled;
  pool.for_blocks(count, 1024, never_cancelled, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      const uint64_t first = in.size / count * i + std::min(i, in.size % count);
      const uint64_t length = in.size / count + (i < in.size % count ? 1 : 0);
      const uint64_t at = first + mix_key(i + 1) % length;
      keys[i] = layout.key_bytes == 4 ? static_cast<const uint32_t*>(in.keys)[at] : static_cast<const uint64_t*>(in.keys)[at];
    }
  });
  return keys;
}

}  // namespace

KeyRanges KeyRanges::choose(ThreadPool& pool, TupleLayout layout, const TupleView& in, size_t most, uint64_t oversampling) {
  KeyRanges ranges;
  ranges.greatest_ = layout.key_bytes == 4 ? UINT32_MAX : UINT64_MAX;
  if (in.size == 0 || most < 2) return ranges;
  std::vector<uint64_t> keys = sample(pool, layout, in, std::min(in.size, most * oversampling));
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
