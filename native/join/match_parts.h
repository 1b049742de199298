// The match ranges of two sorted relations in host memory, found part by part on devices (multi-gpu-sort-merge-join 3.3.2).
// Internal to native/join.
#pragma once

#include <vector>

#include "core/job.h"
#include "engine/engine.h"
#include "join/match_lists.h"

namespace warpjoin {

/// Rows of both relations whose keys are in no other part.
struct MergePart {
  uint64_t build_begin = 0, build_end = 0, probe_begin = 0, probe_end = 0;
  uint64_t build_rows() const { return build_end - build_begin; }
  uint64_t probe_rows() const { return probe_end - probe_begin; }
  uint64_t rows() const { return build_rows() + probe_rows(); }
};

struct SortedSides {
  TupleLayout build_layout;
  TupleView build;
  TupleLayout probe_layout;
  TupleView probe;
};

struct PartMatches {
  std::vector<MatchList> lists;  ///< of each part
  double skew = 1;               ///< largest over mean number of tuples a device matched
};

/// Into how many parts to cut `rows` rows of both relations for each of `devices` beyond links: enough for parts to arrive
/// while others are matched and the ranges of others go home.
size_t parts_beyond_link(uint64_t rows, uint8_t key_bytes, size_t devices);

/// Device g matches parts [g * per_device, (g + 1) * per_device), of at most `most_rows` rows each. Ranges take the host memory
/// of those found; on host devices, for the parts at work, that of those that there can be. With count_only devices beyond a link
/// add them up where they are.
PartMatches match_parts(Engine& engine, const std::vector<Device*>& devices, const SortedSides& sides,
                        const std::vector<MergePart>& parts, size_t per_device, uint64_t most_rows, bool count_only, Job& job);

/// The memory that it takes on a device beyond a link.
size_t match_parts_bytes(Device& device, TupleLayout build_layout, TupleLayout probe_layout, uint64_t most_rows);

}  // namespace warpjoin
