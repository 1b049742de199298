// Tuples that a device groups by their hashes where they lie, as the first of two passes of its hash join would, and that go on
// at the owners of the groups: so an exchange between devices costs no pass of its own. What a device may offer, beside the
// primitives that all have; their rules hold here too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/job.h"
#include "core/tuples.h"
#include "device/device.h"
#include "primitives/primitives.h"

namespace warpjoin {

/// By how many of the topmost bits of their hashes tuples are grouped where they lie, and how many make the partitions of a join.
struct HashGrouping {
  uint32_t group_bits = 0;  ///< 0: there is none
  uint32_t bits = 0;

  uint32_t groups() const { return uint32_t{1} << group_bits; }
};

/// The tuples of consecutive groups, hashed, as one or more devices had them.
struct GroupedTuples {
  /// Of one or more devices, one behind the other: tuples of device s's i-th group are rows [begins[s * groups + i],
  /// ends[s * groups + i]), the first of them row 0. They ascend; there may be gaps.
  struct Fragment {
    const void* tuples = nullptr;
    std::vector<uint32_t> begins, ends;
  };
  TupleLayout layout;
  uint32_t first_group = 0, groups = 0;
  std::vector<Fragment> fragments;
  uint64_t size = 0;

  /// Of rows that lie together: the groups of all fragments and devices.
  size_t stretches() const {
    size_t all = 0;
    for (const Fragment& fragment : fragments) all += fragment.begins.size();
    return all;
  }
};

class HashGroups {
 public:
  virtual ~HashGroups() = default;

  /// For a join where each of `devices` joins so many build tuples, in `parts` of its groups, of which it has at least as many;
  /// none where it is better without.
  virtual HashGrouping hash_grouping(TupleLayout build, uint64_t build_size, size_t devices, uint32_t parts) const = 0;

  /// Of a tuple, with what pads it.
  virtual uint32_t grouped_tuple_bytes(TupleLayout layout) const = 0;
  /// Rows of room for `size` grouped tuples: more, as groups get room before they are counted.
  virtual uint64_t grouped_rows(TupleLayout layout, uint64_t size, HashGrouping grouping) const = 0;
  /// Group g becomes rows [host_begins[g], host_ends[g]) of `out`, which has room for grouped_rows(). Between groups there may be
  /// gaps, of zeros: groups are copied together with them. Implied values are written out. in.size < 2^32.
  virtual void hash_group(TupleLayout layout, TupleView in, HashGrouping grouping, void* out, uint32_t* host_begins,
                          uint32_t* host_ends, void* scratch, const Job& job, Stream& stream) = 0;
  virtual size_t hash_group_scratch_bytes(HashGrouping grouping) const = 0;

  /// hash_match, or with `out` hash_match_into for as many pairs as there are probe tuples. Both sides are of the same groups,
  /// have fewer than 2^32 - 1 tuples, and lie in the device's own memory.
  virtual std::unique_ptr<HashMatch> match_groups(const GroupedTuples& build, const GroupedTuples& probe, HashGrouping grouping,
                                                  bool count_only, const std::optional<JoinOutput>& out, void* scratch,
                                                  const Job& job, Stream& stream) = 0;
  /// Of so many groups, from `devices`.
  virtual size_t match_groups_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size,
                                            HashGrouping grouping, uint32_t groups, size_t devices, bool count_only) const = 0;
};

}  // namespace warpjoin
