// Match ranges of a merge join on their way to rows (multi-gpu-sort-merge-join 3.3.2, materialization on the host).
#pragma once

#include <span>
#include <vector>

#include "join/join_rows.h"
#include "primitives/primitives.h"

namespace warpjoin {

/// Match ranges in ascending order, relative to these rows of the sorted sides; or, where pairs are counted, their sums.
struct MatchList {
  HostBuffer ranges;      ///< MatchRange or NarrowMatchRange; none: their sums
  uint8_t row_bytes = 8;  ///< of row numbers in them
  uint64_t count = 0;
  uint64_t build_offset = 0, probe_offset = 0;
  MatchSums sums = {};
};

/// All match ranges of a join in ascending order, each key once.
class MatchLists {
 public:
  /// `lists` in ascending order. Counts pairs and rows; throws Error(not_supported) past 2^64 - 1 pairs.
  MatchLists(Engine& engine, std::vector<MatchList> lists, bool build_left, const Job& job);

  const JoinCounts& counts() const { return counts_; }

  /// Writes the pairs: by key, then left row, then right row. Null columns are not written.
  void write_pairs(TupleLayout left_layout, TupleView left, TupleLayout right_layout, TupleView right, void* keys,
                   void* left_values, void* right_values, Job& job) const;

  /// Writes the values of one side's tuples that match, or of those that don't, in the side's order.
  void write_alone(bool of_left, bool matched, TupleLayout layout, TupleView side, void* values, const Job& job) const;

 private:
  /// A range by side.
  struct Range {
    uint64_t left_begin, left_end, right_begin, right_end;
    uint64_t left_rows() const { return left_end - left_begin; }
    uint64_t right_rows() const { return right_end - right_begin; }
  };
  /// A few ranges of one list, and what is before them.
  struct Block {
    const MatchList* list;
    uint64_t begin, end;
    JoinCounts here, before;
  };
  struct Window;

  Range range(const Block& block, uint64_t i) const;
  template <class F>
  void for_segments(const Window& window, F&& f) const;

  Engine& engine_;
  const std::vector<MatchList> lists_;
  const bool build_left_;
  std::vector<Block> blocks_;
  JoinCounts counts_;
};

/// The rows of a join of sorted sides that have these matches, which are in ascending order. What is read of the sides: the
/// values that the request wants, and the left keys where it wants keys.
JoinRows rows_of_matches(Engine& engine, const JoinKeys& keys, const JoinRequest& request, TupleView left, TupleView right,
                         std::vector<MatchList> lists, Job& job);

}  // namespace warpjoin
