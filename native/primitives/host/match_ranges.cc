// Keys may lie in the caller's memory, who may write to them while they are matched. So all positions move forwards by what has
// been looked at, not by what is assumed of sorted keys: ranges ascend, are disjoint and within their part, and are no more than
// its shorter side has rows, whatever the keys are. What the second pass writes is checked against what the first one counted.
#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "primitives/host/blocks.h"
#include "primitives/host/host_primitives.h"

namespace warpjoin {
namespace {

using namespace host;

// From this ratio of sizes on it is cheaper to search the longer side than to walk along it.
constexpr uint64_t kSearchRatio = 16;
// Parts that one task matches.
constexpr size_t kTaskParts = 4;

/// The first row in [begin, end] that doesn't compare `before` the key, found in steps that double.
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

/// The end of the run of `key`, which begins in row `begin` or before. At least begin + 1.
template <class Key>
uint64_t end_of_key(const Key* keys, uint64_t begin, uint64_t end, Key key) {
  if (begin + 1 == end || keys[begin + 1] != key) return begin + 1;
  return gallop(keys, begin + 1, end, [key](Key other) { return other == key; });
}

/// `condition ? yes : no` that no compiler turns into a branch.
template <class T>
T choose(bool condition, T yes, T no) {
  return no ^ ((yes ^ no) & (T{0} - static_cast<T>(condition)));
}

/// Walks along a part of two sorted relations whose keys it shares with no other part, and counts the match ranges; unless
/// `Range` is void it writes them too.
template <class Key, class Range>
class Walk {
  static constexpr bool kWrite = !std::is_void_v<Range>;

 public:
  Walk() = default;
  Walk(const Key* build, const Key* probe, const MatchRange& part, Range* out)
      : build_(build), probe_(probe), part_(part), out_(out), i_(part.build_begin), j_(part.probe_begin) {}

  /// Walks to the first match: only then is there a range for a step to extend.
  void start(const Job& job) {
    for (uint64_t left; (left = std::min(rows_left(), kSteps)) > 0; leap_gap()) {
      job.check();
      for (; left > 0; --left) {
        const Key r = build_[i_], s = probe_[j_];
        if (r == s) {
          build_end_ = (build_begin_ = i_) + 1;
          probe_end_ = (probe_begin_ = j_) + 1;
          last_ = r;
          found_ = true;
          ++i_;
          ++j_;
          return;
        }
        i_ += r < s;
        j_ += s < r;
      }
    }
  }

  /// How many steps to take before the next leap.
  uint64_t steps() const { return found_ ? std::min(rows_left(), kSteps) : 0; }

  /// Looks at the next row of each side, and passes the smaller key, or both. No branch depends on the keys.
  [[gnu::always_inline]] void step() {
    const Key r = build_[i_], s = probe_[j_];
    const bool pass_r = r <= s, pass_s = s <= r;
    const bool is_new = pass_r & pass_s & (r != last_);
    at_ += is_new;
    last_ = choose(is_new, r, last_);
    if constexpr (kWrite) {
      build_begin_ = choose(is_new, i_, build_begin_);
      probe_begin_ = choose(is_new, j_, probe_begin_);
    }
    i_ += pass_r;
    j_ += pass_s;
    if constexpr (kWrite) {
      build_end_ = choose(r == last_, i_, build_end_);
      probe_end_ = choose(s == last_, j_, probe_end_);
      write();
    }
  }

  /// Passes many equal keys, or many that have no match, at once.
  void leap() {
    if (!found_) return;
    if (i_ < part_.build_end && build_[i_] == last_) build_end_ = i_ = end_of_key(build_, i_, part_.build_end, last_);
    if (j_ < part_.probe_end && probe_[j_] == last_) probe_end_ = j_ = end_of_key(probe_, j_, part_.probe_end, last_);
    if constexpr (kWrite) write();
    leap_gap();
  }

  uint64_t count() const { return found_ ? at_ + 1 : 0; }

 private:
  static constexpr uint64_t kLeap = 64;
  static constexpr uint64_t kSteps = 1024;

  /// So many steps stay within both sides.
  uint64_t rows_left() const { return std::min(part_.build_end - i_, part_.probe_end - j_); }

  void leap_gap() {
    if (rows_left() == 0) return;
    const Key r = build_[i_], s = probe_[j_];
    if (part_.build_end - i_ > kLeap && build_[i_ + kLeap] < s) {
      i_ = first_not_below(build_, i_ + 1, part_.build_end, s);
    } else if (part_.probe_end - j_ > kLeap && probe_[j_ + kLeap] < r) {
      j_ = first_not_below(probe_, j_ + 1, part_.probe_end, r);
    }
  }

  [[gnu::always_inline]] void write() {
    using Row = decltype(Range::build_begin);
    Range& range = out_[at_];
    range.build_begin = static_cast<Row>(build_begin_);
    range.build_end = static_cast<Row>(build_end_);
    range.probe_begin = static_cast<Row>(probe_begin_);
    range.probe_end = static_cast<Row>(probe_end_);
  }

  const Key* build_ = nullptr;
  const Key* probe_ = nullptr;
  MatchRange part_{};
  Range* out_ = nullptr;
  uint64_t i_ = 0, j_ = 0;
  uint64_t at_ = 0;                                                             // of the latest range in out_
  uint64_t build_begin_ = 0, build_end_ = 0, probe_begin_ = 0, probe_end_ = 0;  // apart: they stay in registers
  Key last_ = 0;                                                                // its key
  bool found_ = false;
};

/// Two sorted relations and the part of them that one task matches.
template <class Key>
struct Sides {
  const Key* build;
  const Key* probe;
  MatchRange part;  // rows, cut where the key changes on both sides

  bool uneven() const {
    const uint64_t build_size = part.build_end - part.build_begin, probe_size = part.probe_end - part.probe_begin;
    return build_size / kSearchRatio > probe_size || probe_size / kSearchRatio > build_size;
  }

  /// Counts the match ranges of a part with sides of very different sizes; writes them unless `Range` is void.
  template <class Range>
  uint64_t search(Range* out, const Job& job) const {
    uint64_t count = 0;
    for (uint64_t i = part.build_begin, j = part.probe_begin; i < part.build_end && j < part.probe_end;) {
      if (count % kCheckRows == 0) job.check();
      const Key r = build[i], s = probe[j];
      if (r < s) {
        i = first_not_below(build, i + 1, part.build_end, s);
      } else if (s < r) {
        j = first_not_below(probe, j + 1, part.probe_end, r);
      } else {
        const uint64_t i_end = end_of_key(build, i, part.build_end, r), j_end = end_of_key(probe, j, part.probe_end, r);
        if constexpr (!std::is_void_v<Range>) {
          using Row = decltype(Range::build_begin);
          out[count] = {static_cast<Row>(i), static_cast<Row>(i_end), static_cast<Row>(j), static_cast<Row>(j_end)};
        }
        ++count;
        i = i_end;
        j = j_end;
      }
    }
    return count;
  }
};

/// Matches kWalks neighbouring parts in turns: a step waits for the comparison of the step before, and the waits of
/// independent walks overlap. counts[] is in and out: where the parts' ranges begin in `out`, and how many they are.
template <class Key, class Range>
void match(std::span<const Sides<Key>> parts, uint64_t* counts, Range* out, const Job& job) {
  using PartWalk = Walk<Key, Range>;
  constexpr size_t kWalks = 2;
  PartWalk walks[kWalks];
  size_t used = 0, of_part[kWalks] = {};
  const auto finish = [&](PartWalk& walk, size_t part) {
    for (;;) {
      job.check();
      walk.leap();
      const uint64_t steps = walk.steps();
      if (steps == 0) break;
      for (uint64_t i = 0; i < steps; ++i) walk.step();
    }
    counts[part] = walk.count();
  };
  for (size_t p = 0; p < parts.size(); ++p) {
    Range* target = nullptr;
    if constexpr (!std::is_void_v<Range>) target = out + counts[p];
    if (parts[p].uneven()) {
      counts[p] = parts[p].search(target, job);
      continue;
    }
    walks[used] = PartWalk(parts[p].build, parts[p].probe, parts[p].part, target);
    walks[used].start(job);
    of_part[used++] = p;
    if (used < kWalks) continue;
    for (;;) {
      job.check();
      for (PartWalk& walk : walks) walk.leap();
      const uint64_t steps = std::min(walks[0].steps(), walks[1].steps());
      if (steps == 0) break;
      PartWalk first = walks[0], second = walks[1];
      for (uint64_t i = 0; i < steps; ++i) {
        first.step();
        second.step();
      }
      walks[0] = first;
      walks[1] = second;
    }
    for (size_t w = 0; w < kWalks; ++w) finish(walks[w], of_part[w]);
    used = 0;
  }
  for (size_t w = 0; w < used; ++w) finish(walks[w], of_part[w]);
}

/// Cuts both sides into at most `blocks` parts of about equal size, none of which shares a key with another.
template <class Key>
std::vector<Sides<Key>> cut_at_keys(const Key* build, uint64_t build_size, const Key* probe, uint64_t probe_size,
                                    uint64_t blocks) {
  const bool by_build = build_size >= probe_size;
  const Key* const longer = by_build ? build : probe;
  const Key* const shorter = by_build ? probe : build;
  const uint64_t longer_size = std::max(build_size, probe_size), shorter_size = std::min(build_size, probe_size);
  blocks = std::min(blocks, longer_size);  // of a key at least
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

void HostPrimitives::match_ranges(TupleLayout build_layout, TupleView build, TupleLayout, TupleView probe, void* ranges,
                                  uint8_t row_bytes, uint64_t* host_count, void*, const Job& job, Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    job.check();
    *host_count = 0;
    if (build.size == 0 || probe.size == 0) return;
    const auto match_keys = [&]<class Key>(Key) {
      const auto parts = cut_at_keys(static_cast<const Key*>(build.keys), build.size, static_cast<const Key*>(probe.keys),
                                     probe.size, kTaskParts * block_count(pool_, build.size + probe.size, kBlockGrain));
      std::vector<uint64_t> counts(parts.size());
      const auto match_all = [&](auto* out) {
        pool_.parallel_for((parts.size() + kTaskParts - 1) / kTaskParts, [&](uint64_t task) {
          const size_t begin = task * kTaskParts, size = std::min(parts.size() - begin, kTaskParts);
          match<Key>(std::span(parts).subspan(begin, size), counts.data() + begin, out, job);
        });
      };
      match_all(static_cast<void*>(nullptr));
      const std::vector<uint64_t> counted = counts;
      uint64_t sum = 0;
      for (uint64_t& count : counts) sum += std::exchange(count, sum);
      *host_count = sum;
      if (!ranges) return;
      row_bytes == 4 ? match_all(static_cast<NarrowMatchRange*>(ranges)) : match_all(static_cast<MatchRange*>(ranges));
      if (counts != counted) throw InputChanged();
    };
    if (build_layout.key_bytes == 4) {
      match_keys(uint32_t{});
    } else {
      match_keys(uint64_t{});
    }
  });
}

void HostPrimitives::sum_ranges(const NarrowMatchRange* ranges, uint64_t count, MatchSums* host_sums, const Job& job,
                                Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    std::vector<MatchSums> sums(block_count(pool_, count, kBlockGrain));
    pool_.parallel_for(sums.size(), [&](uint64_t b) {
      job.check();
      for (uint64_t i = block_begin(count, sums.size(), b); i < block_begin(count, sums.size(), b + 1); ++i) {
        sums[b].add(ranges[i].build_end - ranges[i].build_begin, ranges[i].probe_end - ranges[i].probe_begin);
      }
    });
    *host_sums = {};
    for (const MatchSums& each : sums) host_sums->add(each);
  });
}

}  // namespace warpjoin
