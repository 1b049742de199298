#include "join/match_lists.h"

#include <algorithm>
#include <numeric>

namespace warpjoin {
namespace {

constexpr uint64_t kBlockRanges = 1 << 13;
constexpr uint64_t kWindowPairs = 1 << 18;  // pairs a thread writes at a time
constexpr uint64_t kAloneRows = 1 << 16;

/// Calls f(Value*) with the type of a column; not at all where there is none.
template <class F>
void with_column(void* column, uint8_t width, F&& f) {
  if (!column) return;
  if (width == 4) {
    f(static_cast<uint32_t*>(column));
  } else {
    f(static_cast<uint64_t*>(column));
  }
}

template <class Value>
void copy_values(TupleView side, uint64_t begin, uint64_t rows, Value* out) {
  if (side.values) {
    std::copy_n(static_cast<const Value*>(side.values) + begin, rows, out);
  } else {
    std::iota(out, out + rows, static_cast<Value>(side.first_value + begin));
  }
}

template <class Value>
Value value_of(TupleView side, uint64_t row) {
  return side.values ? static_cast<const Value*>(side.values)[row] : static_cast<Value>(side.first_value + row);
}

}  // namespace

/// Pairs of a block from its pair `skip` on, to output row `at` on.
struct MatchLists::Window {
  const Block* block;
  uint64_t skip, count, at;
};

[[gnu::always_inline]] inline MatchLists::Range MatchLists::range(const Block& block, uint64_t i) const {
  const uint64_t b = block.list->build_offset, p = block.list->probe_offset;
  const auto by_side = [&](const auto& r) {
    return build_left_ ? Range{b + r.build_begin, b + r.build_end, p + r.probe_begin, p + r.probe_end}
                       : Range{p + r.probe_begin, p + r.probe_end, b + r.build_begin, b + r.build_end};
  };
  return block.list->row_bytes == 4 ? by_side(block.list->ranges.as<NarrowMatchRange>()[i])
                                    : by_side(block.list->ranges.as<MatchRange>()[i]);
}

MatchLists::MatchLists(Engine& engine, std::vector<MatchList> lists, bool build_left, const Job& job)
    : engine_(engine), lists_(std::move(lists)), build_left_(build_left) {
  for (const MatchList& list : lists_) {
    if (!list.ranges) {
      const MatchSums& sums = list.sums;
      counts_.pairs = add_rows(counts_.pairs, add_rows(multiply_rows(sums.pairs_high, uint64_t{1} << 32), sums.pairs_low));
      counts_.left_matched += build_left_ ? sums.build_rows : sums.probe_rows;
      counts_.right_matched += build_left_ ? sums.probe_rows : sums.build_rows;
      continue;
    }
    for (uint64_t begin = 0; begin < list.count; begin += kBlockRanges) {
      blocks_.push_back({&list, begin, std::min(list.count, begin + kBlockRanges), {}, {}});
    }
  }
  engine.pool.parallel_for(blocks_.size(), [&](uint64_t b) {
    job.check();
    Block& block = blocks_[b];
    for (uint64_t i = block.begin; i < block.end; ++i) {
      const Range r = range(block, i);
      block.here.pairs = add_rows(block.here.pairs, multiply_rows(r.left_rows(), r.right_rows()));
      block.here.left_matched += r.left_rows();
      block.here.right_matched += r.right_rows();
    }
  });
  for (Block& block : blocks_) {
    block.before = counts_;
    counts_.pairs = add_rows(counts_.pairs, block.here.pairs);
    counts_.left_matched += block.here.left_matched;
    counts_.right_matched += block.here.right_matched;
  }
}

/// Calls f(range, first, count, at) for the parts of ranges that are in a window: pairs [first, first + count) of the
/// range, left row major, to output row `at` on.
template <class F>
void MatchLists::for_segments(const Window& window, F&& f) const {
  uint64_t skip = window.skip, left = window.count, at = window.at;
  for (uint64_t i = window.block->begin; left > 0; ++i) {
    const Range r = range(*window.block, i);
    const uint64_t pairs = r.left_rows() * r.right_rows();
    if (pairs <= skip) {
      skip -= pairs;
      continue;
    }
    const uint64_t count = std::min(pairs - skip, left);
    f(r, skip, count, at);
    skip = 0;
    left -= count;
    at += count;
  }
}

void MatchLists::write_pairs(TupleLayout left_layout, TupleView left, TupleLayout right_layout, TupleView right, void* keys,
                             void* left_values, void* right_values, Job& job) const {
  std::vector<Window> windows;
  for (const Block& block : blocks_) {
    for (uint64_t skip = 0; skip < block.here.pairs; skip += kWindowPairs) {
      windows.push_back({&block, skip, std::min(kWindowPairs, block.here.pairs - skip), block.before.pairs + skip});
    }
  }
  engine_.pool.parallel_for(windows.size(), [&](uint64_t task) {
    job.check();
    const Window& window = windows[task];
    const Block& block = *window.block;
    if (block.here.pairs == block.end - block.begin) {  // every key once on both sides: nothing to expand
      const auto for_ranges = [&](auto&& f) {
        for (uint64_t i = 0; i < window.count; ++i) f(range(block, block.begin + window.skip + i), window.at + i);
      };
      with_column(keys, left_layout.key_bytes, [&]<class Key>(Key* out) {
        for_ranges([&](const Range& r, uint64_t at) { out[at] = static_cast<const Key*>(left.keys)[r.left_begin]; });
      });
      with_column(left_values, left_layout.value_bytes, [&]<class Value>(Value* out) {
        for_ranges([&](const Range& r, uint64_t at) { out[at] = value_of<Value>(left, r.left_begin); });
      });
      with_column(right_values, right_layout.value_bytes, [&]<class Value>(Value* out) {
        for_ranges([&](const Range& r, uint64_t at) { out[at] = value_of<Value>(right, r.right_begin); });
      });
      return;
    }
    with_column(keys, left_layout.key_bytes, [&]<class Key>(Key* out) {
      for_segments(window, [&](const Range& r, uint64_t, uint64_t count, uint64_t at) {
        std::fill_n(out + at, count, static_cast<const Key*>(left.keys)[r.left_begin]);
      });
    });
    with_column(left_values, left_layout.value_bytes, [&]<class Value>(Value* out) {
      for_segments(window, [&](const Range& r, uint64_t first, uint64_t count, uint64_t at) {
        const uint64_t run = r.right_rows();
        if (run == 1 && count == 1) {  // without divisions and calls
          out[at] = value_of<Value>(left, r.left_begin + first);
          return;
        }
        for (const uint64_t end = first + count; first < end;) {
          const uint64_t part = std::min(end - first, run - first % run);
          std::fill_n(out + at, part, value_of<Value>(left, r.left_begin + first / run));
          first += part;
          at += part;
        }
      });
    });
    with_column(right_values, right_layout.value_bytes, [&]<class Value>(Value* out) {
      for_segments(window, [&](const Range& r, uint64_t first, uint64_t count, uint64_t at) {
        const uint64_t run = r.right_rows();
        if (run == 1) {
          std::fill_n(out + at, count, value_of<Value>(right, r.right_begin));
          return;
        }
        for (const uint64_t end = first + count; first < end;) {
          const uint64_t part = std::min(end - first, run - first % run);
          copy_values(right, r.right_begin + first % run, part, out + at);
          first += part;
          at += part;
        }
      });
    });
  });
}

void MatchLists::write_alone(bool of_left, bool matched, TupleLayout layout, TupleView side, void* values, const Job& job) const {
  const auto begin_of = [&](const Range& r) { return of_left ? r.left_begin : r.right_begin; };
  const auto end_of = [&](const Range& r) { return of_left ? r.left_end : r.right_end; };
  with_column(values, layout.value_bytes, [&]<class Value>(Value* out) {
    engine_.pool.parallel_for((side.size + kAloneRows - 1) / kAloneRows, [&](uint64_t task) {
      job.check();
      const uint64_t begin = task * kAloneRows, end = std::min(side.size, begin + kAloneRows);
      // The last block whose first range begins at or before `begin`: the first that can cover it.
      size_t b = static_cast<size_t>(
          std::upper_bound(blocks_.begin(), blocks_.end(), begin,
                           [&](uint64_t row, const Block& block) { return row < begin_of(range(block, block.begin)); }) -
          blocks_.begin());
      b -= b > 0;
      uint64_t row = begin, before = 0;  // matching rows before `row`
      if (b < blocks_.size()) before = of_left ? blocks_[b].before.left_matched : blocks_[b].before.right_matched;
      for (bool past = false; b < blocks_.size() && !past; ++b) {
        for (uint64_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
          const Range r = range(blocks_[b], i);
          if (begin_of(r) >= end) {
            past = true;
            break;
          }
          if (end_of(r) <= begin) {
            before += end_of(r) - begin_of(r);
            continue;
          }
          const uint64_t from = std::max(begin_of(r), begin), to = std::min(end_of(r), end);
          before += from - begin_of(r);
          if (matched) {
            copy_values(side, from, to - from, out + before);
          } else {
            copy_values(side, row, from - row, out + (row - before));
          }
          before += to - from;
          row = to;
        }
      }
      if (!matched) copy_values(side, row, end - row, out + (row - before));
    });
  });
}

JoinRows rows_of_matches(Engine& engine, const JoinKeys& keys, const JoinRequest& request, TupleView left, TupleView right,
                         std::vector<MatchList> lists, Job& job) {
  const TupleLayout left_layout = keys.left.tuples.layout, right_layout = keys.right.tuples.layout;
  const MatchLists matches(engine, std::move(lists), request.build_left, job);
  const JoinSections sections = join_sections(keys, request.kind, matches.counts());
  JoinRows rows = make_rows(engine, keys, request, sections, job);
  if (!request.count_only) {
    const auto at = [](const HostBuffer& column, TupleLayout layout, uint64_t row) -> void* {
      return column ? column.as<char>() + row * layout.value_bytes : nullptr;
    };
    const PhaseTimer timer(job, "write", rows.keys.size() + rows.left.size() + rows.right.size());
    if (sections.pairs) {
      matches.write_pairs(left_layout, left, right_layout, right, rows.keys ? rows.keys.data() : nullptr,
                          rows.left ? rows.left.data() : nullptr, rows.right ? rows.right.data() : nullptr, job);
    }
    if (sections.left) {
      matches.write_alone(true, request.kind == JoinKind::semi, left_layout, left,
                          at(rows.left, left_layout, sections.left_begin()), job);
    }
    if (sections.right) {
      matches.write_alone(false, false, right_layout, right, at(rows.right, right_layout, sections.right_begin()), job);
    }
  }
  job.add_done(left.size + right.size);
  return rows;
}

}  // namespace warpjoin
