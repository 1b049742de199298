// Tables in order: whether one is, and where rows of another would go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "columns/encode.h"
#include "core/job.h"
#include "engine/engine.h"

namespace warpjoin {

/// Whether rows are in the order of a sort by these columns. Reads no further than the first rows that are not.
bool rows_are_sorted(std::span<const SortColumn> by, Engine& engine, const Job& job);

/// For each row of `values`, where it would go among the rows of the table that `by` are columns of, and which are in that order:
/// before rows that are equal, or with `behind_equal` behind them. `values`: columns of one length, of types that compare with
/// those of `by`. Positions, from 0 to the rows of the table, take 4 bytes below 2^32 - 1 rows, else 8.
/// Throws Error(option) where rows of the table that are looked at are not in order; others give any position.
OwnedColumn search_sorted(std::span<const SortColumn> by, std::span<const Column* const> values, bool behind_equal,
                          Engine& engine, const Job& job);

/// A row of one of several sorted runs, and how many rows of each run a stable merge of them has before it.
struct MergeCut {
  size_t run = 0;
  std::vector<uint64_t> rows;
};

/// The rows of the table that `by` are columns of lie in runs, each in that order: run i ends before row ends[i]. Cuts a merge of
/// the runs at the least of `rows`, which are some of the table's, one at least. Equal rows come in the order of their runs.
/// Throws Error(option) where a row is not of the table.
MergeCut cut_merge(std::span<const SortColumn> by, std::span<const uint64_t> ends, std::span<const uint64_t> rows, Engine& engine,
                   const Job& job);

}  // namespace warpjoin
