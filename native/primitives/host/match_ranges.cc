#include <algorithm>
#include <vector>

#include "primitives/host/blocks.h"
#include "primitives/host/host_primitives.h"

namespace warpjoin {
namespace {

using namespace host;

constexpr uint64_t kGrain = 1 << 14;
// From this ratio of sizes on it is cheaper to search the longer side than to walk along it.
constexpr uint64_t kSearchRatio = 16;

/// The first row in [begin, end) that doesn't compare `before` the key, found in steps that double.
template <class Key, class Before>
uint64_t gallop(const Key* keys, uint64_t begin, uint64_t end, const Before& before) {
  uint64_t low = begin, step = 1;
  while (low + step <= end && before(keys[low + step - 1])) {
    low += step;
    step *= 2;
  }
  uint64_t high = std::min(end, low + step);
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (before(keys[middle])) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

template <class Key>
uint64_t first_not_below(const Key* keys, uint64_t begin, uint64_t end, Key key) {
  return gallop(keys, begin, end, [key](Key other) { return other < key; });
}

template <class Key>
uint64_t end_of_key(const Key* keys, uint64_t begin, uint64_t end) {
  if (begin + 1 == end || keys[begin + 1] != keys[begin]) return begin + 1;
  return gallop(keys, begin, end, [key = keys[begin]](Key other) { return other == key; });
}

/// Two sorted relations and the part of them that one task matches.
template <class Key>
struct Sides {
  const Key* build;
  const Key* probe;
  MatchRange part;  // rows, cut where the key changes on both sides

  /// Counts the match ranges of the part, and writes them unless `out` is null.
  template <bool kWrite>
  uint64_t match(MatchRange* out, const Job& job) const {
    const uint64_t build_size = part.build_end - part.build_begin, probe_size = part.probe_end - part.probe_begin;
    if (build_size / kSearchRatio > probe_size || probe_size / kSearchRatio > build_size) return match<kWrite, true>(out, job);
    return match<kWrite, false>(out, job);
  }

 private:
  template <bool kWrite, bool kSearch>
  uint64_t match(MatchRange* out, const Job& job) const {
    uint64_t count = 0, i = part.build_begin, j = part.probe_begin;
    while (i < part.build_end && j < part.probe_end) {
      job.check();
      // Up to here a step moves by one row or by a whole key, so that a look at the job every so often is enough.
      const uint64_t i_stop = std::min(part.build_end, i + kCheckRows), j_stop = std::min(part.probe_end, j + kCheckRows);
      while (i < i_stop && j < j_stop) {
        const Key r = build[i], s = probe[j];
        if (r == s) {
          const uint64_t i_end = end_of_key(build, i, part.build_end), j_end = end_of_key(probe, j, part.probe_end);
          if constexpr (kWrite) out[count] = {i, i_end, j, j_end};
          ++count;
          i = i_end;
          j = j_end;
        } else if constexpr (kSearch) {
          if (r < s) {
            i = first_not_below(build, i, part.build_end, s);
          } else {
            j = first_not_below(probe, j, part.probe_end, r);
          }
        } else {
          i += r < s;
          j += s < r;
        }
      }
    }
    return count;
  }
};

/// Cuts both sides into at most `blocks` parts of about equal size, none of which shares a key with another.
template <class Key>
std::vector<Sides<Key>> cut_at_keys(const Key* build, uint64_t build_size, const Key* probe, uint64_t probe_size,
                                    uint64_t blocks) {
  const bool by_build = build_size >= probe_size;
  const Key* const longer = by_build ? build : probe;
  const Key* const shorter = by_build ? probe : build;
  const uint64_t longer_size = std::max(build_size, probe_size), shorter_size = std::min(build_size, probe_size);
  std::vector<Sides<Key>> sides;
  uint64_t longer_begin = 0, shorter_begin = 0;
  for (uint64_t block = 0; block < blocks; ++block) {
    uint64_t longer_end = longer_size, shorter_end = shorter_size;
    if (block + 1 < blocks) {
      const Key key = longer[block_begin(longer_size, blocks, block + 1)];
      longer_end = first_not_below(longer, longer_begin, longer_size, key);
      shorter_end = first_not_below(shorter, shorter_begin, shorter_size, key);
    }
    if (longer_end > longer_begin && shorter_end > shorter_begin) {
      const MatchRange part = by_build ? MatchRange{longer_begin, longer_end, shorter_begin, shorter_end}
                                       : MatchRange{shorter_begin, shorter_end, longer_begin, longer_end};
      sides.push_back({build, probe, part});
    }
    longer_begin = longer_end;
    shorter_begin = shorter_end;
  }
  return sides;
}

}  // namespace

void HostPrimitives::match_ranges(TupleLayout build_layout, TupleView build, TupleLayout, TupleView probe,
                                  MatchRange* host_ranges, uint64_t* host_count, const Job& job, Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    job.check();
    *host_count = 0;
    if (build.size == 0 || probe.size == 0) return;
    const auto match = [&]<class Key>(Key) {
      const auto parts = cut_at_keys(static_cast<const Key*>(build.keys), build.size, static_cast<const Key*>(probe.keys),
                                     probe.size, block_count(pool_, build.size + probe.size, kGrain));
      std::vector<uint64_t> counts(parts.size());
      pool_.parallel_for(parts.size(), [&](uint64_t i) { counts[i] = parts[i].template match<false>(nullptr, job); });
      uint64_t sum = 0;
      for (uint64_t& count : counts) sum += std::exchange(count, sum);
      *host_count = sum;
      if (!host_ranges) return;
      pool_.parallel_for(parts.size(), [&](uint64_t i) { parts[i].template match<true>(host_ranges + counts[i], job); });
    };
    if (build_layout.key_bytes == 4) {
      match(uint32_t{});
    } else {
      match(uint64_t{});
    }
  });
}

}  // namespace warpjoin
