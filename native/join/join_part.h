// What a device matches at a time. Internal to native/join.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "join/relation.h"
#include "primitives/hash_groups.h"
#include "primitives/primitives.h"

namespace warpjoin {

/// How tuples of all parts of a join have been cut.
struct PartForm {
  OfSides<TupleLayout> layouts;
  bool count_only;
  size_t devices;
  uint32_t partition_bits;  ///< topmost bits of the mixed keys that make partitions
  HashGrouping grouping{};  ///< of tuples that are grouped where they lie, in place of partitioned

  bool grouped() const { return grouping.group_bits > 0; }
};

/// Tuples of both sides that are matched together.
struct JoinPart {
  struct Side {
    PartitionedTuples joined;
    std::vector<std::vector<uint64_t>> offsets;
    GroupedTuples grouped;  ///< instead
    uint64_t size = 0;

    void add(const TupleView& tuples, std::vector<uint64_t> partitions) {
      joined.fragments.push_back(tuples);
      offsets.push_back(std::move(partitions));
      size += tuples.size;
    }
    /// Complete, to be matched.
    const PartitionedTuples& ready(TupleLayout layout, uint32_t partitions) {
      if (joined.fragments.empty()) add({}, std::vector<uint64_t>(partitions + 1));
      joined.layout = layout;
      for (size_t f = joined.host_offsets.size(); f < offsets.size(); ++f) joined.host_offsets.push_back(offsets[f].data());
      return joined;
    }
  };
  OfSides<Side> sides;
  uint32_t partitions = 1;  ///< that its tuples are in

  size_t match_bytes(Primitives& primitives, const PartForm& form) const {
    const Side &build = sides[kBuild], &probe = sides[kProbe];
    const auto& [build_layout, probe_layout] = form.layouts;
    if (form.grouped()) {
      return primitives.hash_groups()->match_groups_scratch_bytes(
          build_layout, build.size, probe_layout, probe.size, form.grouping, build.grouped.groups, form.devices, form.count_only);
    }
    return primitives.hash_match_scratch_bytes(build_layout, build.size, probe_layout, probe.size, partitions, form.count_only);
  }

  /// `out`: for pairs of each probe tuple, at most one, which are written as they are found where that is possible.
  std::unique_ptr<HashMatch> match(Primitives& primitives, const PartForm& form, const std::optional<JoinOutput>& out,
                                   void* scratch, const Job& job, Stream& stream) {
    if (form.grouped()) {
      return primitives.hash_groups()->match_groups(sides[kBuild].grouped, sides[kProbe].grouped, form.grouping, form.count_only,
                                                    out, scratch, job, stream);
    }
    const PartitionedTuples& build = sides[kBuild].ready(form.layouts[kBuild], partitions);
    const PartitionedTuples& probe = sides[kProbe].ready(form.layouts[kProbe], partitions);
    const uint32_t common_bits = partitions == 1 ? 0 : form.partition_bits;
    if (out) {
      return primitives.hash_match_into(*out, sides[kProbe].size, build, probe, partitions, common_bits, scratch, job, stream);
    }
    return primitives.hash_match(build, probe, partitions, common_bits, form.count_only, scratch, job, stream);
  }
};

}  // namespace warpjoin
