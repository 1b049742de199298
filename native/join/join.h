// Joins on any number of devices: sort-merge (multi-gpu-sort-merge-join 3.3) and radix-partitioned hash join.
#pragma once

#include <vector>

#include "columns/encode.h"
#include "core/job.h"
#include "core/tuples.h"
#include "engine/engine.h"
#include "sort/sort.h"

namespace warpjoin {

enum class JoinKind { inner, left, right, full, semi, anti };

/// What to produce. Values are what the sides' tuples carry: row numbers or payload.
struct JoinRequest {
  JoinKind kind = JoinKind::inner;
  bool build_left = true;  ///< which side is the build side (R); the planner picks the smaller
  bool count_only = false;
  bool want_keys = false;  ///< inner joins only
  bool want_left = true;
  bool want_right = true;          ///< ignored by semi and anti joins, which give left rows alone
  uint64_t max_rows = UINT64_MAX;  ///< more throw Error(output_rows)
};

/// The rows of a join: row i is (left[i], right[i]), with all-ones in place of a row that is not there (outer joins).
/// Pairs come first, then rows without a match. On host devices, and from merge joins, the order is
/// the same on every run with the same plan.
struct JoinRows {
  uint64_t size = 0;
  TupleLayout left_layout, right_layout;  ///< value_bytes: width of left[i], right[i]; key_bytes: of keys[i]
  HostBuffer keys, left, right;           ///< those that were asked for
  bool left_may_be_missing = false, right_may_be_missing = false;
  double skew = 1;  ///< largest over mean number of tuples a device joined
  /// Tuples of partitions with heavy keys that a hash join left on the devices where they were, in place of all on one.
  uint64_t split_rows = 0;
  /// Tuples of both sides that left the devices for host memory, and came back for a later round.
  uint64_t spilled_rows = 0;
  std::vector<uint64_t> group_ends;  ///< of rows in groups (columns/row_groups.h): where each one ends
};

struct HashJoinPlan {
  std::vector<int> devices;
  uint32_t rounds = 1;       ///< power of two: parts of the key space joined one after the other, as device memory is short
  uint32_t partitions = 0;   ///< of each round over all devices, power of two; 0: by size
  bool either_side = false;  ///< with several rounds the other side may be the build side, where keys of this one repeat
};

/// Radix-partitioned hash join: each device partitions its chunks by hash, sends every partition to its owner, and joins
/// the partitions that it owns. Devices beyond a link keep the build side, and match the probe side as it arrives; with
/// rounds > 1 they keep a part of it and spill the rest of both (fast-interconnects 4). Device memory: see
/// hash_join_device_bytes. Host memory: the result, and what is spilled; devices beyond a link have rows alone beside pairs there
/// twice at the end. Throws Error(option) for rounds > 1 on host devices, which have nothing to spill.
JoinRows hash_join(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const HashJoinPlan& plan, Job& job);
/// Device memory of a hash join in `rounds` rounds, on each device, where hashing spreads the keys evenly. Values that the
/// request does not want stay behind, and take none. Keys with more build tuples than that come in blocks; but a full join
/// throws Error(device_memory) where no device has room for a key's tuples of either side. On host devices more may be needed
/// where one key has most of the tuples.
size_t hash_join_device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                              const JoinRequest& request, uint32_t rounds, Engine& engine);

/// What a hash join sends home of its inputs, and takes back.
struct HashJoinSpill {
  uint64_t rows = 0;        ///< tuples of both sides
  uint64_t bytes = 0;       ///< of these: they cross the links once in each direction
  uint64_t host_bytes = 0;  ///< host memory that is taken for them
};
/// For relations of which hashing spreads the keys evenly, with what the devices have free now. Throws Error(option) for
/// rounds > 1 on host devices.
HashJoinSpill hash_join_spill(const EncodedTuples& left, const EncodedTuples& right, size_t devices, const JoinRequest& request,
                              uint32_t rounds, Engine& engine);

/// Subpartitions of a device's partition at least: one for each stage, keys in, match, ranges out.
inline constexpr uint32_t kLeastSubpartitions = 3;

struct MergeJoinPlan {
  std::vector<int> devices;
  uint32_t subpartitions = kLeastSubpartitions;  ///< of each device's partition (3.3.1); there are more where keys cross a link
};

/// Joins two sorted relations: merge-path partitions for the devices and subpartitions for their three streams, with
/// boundary validation so that equal keys never straddle two; match ranges on the devices; materialization on the host.
/// `left` and `right` are the tuples of `keys` in ascending order, in host memory: runs, or these tuples where they are in order.
JoinRows merge_join(Engine& engine, TupleView left, TupleView right, const JoinKeys& keys, const JoinRequest& request,
                    const MergeJoinPlan& plan, Job& job);
/// Device memory of a merge join, on each device.
size_t merge_join_device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                               uint32_t subpartitions, Engine& engine);

/// Sorts and joins two relations in the devices' joint memory: both are partitioned by the same key ranges while they arrive;
/// then each device collects a range of both, sorts it and finds its matches, while the values of the range before go home in
/// order, and its match ranges. Keys cross the links once. Materialization on the host; the rows are those of merge_join, in the
/// same order. Devices must address each other's memory. Host memory: the result, the values that it takes, match ranges.
JoinRows sort_merge_join(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const std::vector<int>& devices,
                         Job& job);
/// Device memory that it takes on each device, at most.
size_t sort_merge_join_device_bytes(TupleLayout left, uint64_t left_rows, TupleLayout right, uint64_t right_rows, size_t devices,
                                    const JoinRequest& request, Engine& engine);

/// Joins by looking up rows: one side's keys are its row numbers (JoinSide::keys_are_rows), so that every tuple of the other side
/// says which row it matches. Pairs come in the order of that side. Host memory: the result, and a bit a row.
JoinRows lookup_join(Engine& engine, const JoinKeys& keys, const JoinRequest& request, Job& job);

/// Every left row with every right row, by left rows and then by right ones, or with `left_first` false the other way round: rows
/// [offset, offset + limit) of these, or those of them that there are. `max_rows` is compared with all.
JoinRows cross_join(Engine& engine, uint64_t left_rows, uint64_t right_rows, uint64_t max_rows, bool left_first, uint64_t offset,
                    uint64_t limit, Job& job);

}  // namespace warpjoin
