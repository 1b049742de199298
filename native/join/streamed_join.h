// A hash join on devices beyond a link, after the Triton join (fast-interconnects 4): the build side stays there, the probe
// side is matched as it arrives, and its rows go home meanwhile. Of what the devices can't keep, both sides are spilled by
// partition as they arrive, and joined afterwards, round after round. Internal to native/join.
#pragma once

#include <span>

#include "engine/engine.h"
#include "join/hash_cut.h"
#include "join/join.h"
#include "join/relation.h"

namespace warpjoin {

/// Whether devices like this one join this way.
bool can_stream(const Device& device);

struct StreamedJoinPlan {
  /// A power of two. With more than one a part of both sides is spilled, so that the devices keep about 1/rounds of the build
  /// side at a time, or more where they have room.
  uint32_t rounds = 1;
  bool force_waves = false;  ///< tuples come in several waves however few they are
  bool either_side = false;  ///< the sides take each other's part where by samples much less is spilled then
};

/// Joins relations in host memory, one view each. Device memory: streamed_join_bytes(), and where there is more, more rows on
/// their way home at a time, and room for keys that crowd; where there is none for these, more rounds are made. Host memory: the
/// result, which grows with what is found, twice the rows alone of joins that have pairs, too, and what is spilled. Throws
/// Error(device_memory) where a round's build side does not fit, as keys crowd.
JoinRows streamed_join(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe,
                       const JoinKeys& keys, const JoinRequest& request, const StreamedJoinPlan& plan, Job& job);
/// What so many devices like this one spill, and the host memory that they take for that, with what it has free now, where keys
/// spread.
HashJoinSpill streamed_join_spill(Device& device, size_t devices, TupleLayout build, uint64_t build_rows, TupleLayout probe,
                                  uint64_t probe_rows, const JoinRequest& request, uint32_t rounds);
/// Memory that each device takes at least: its part of a round's build side, once, and a few waves of tuples or, where that is
/// less and there is one round, each side as one wave.
size_t streamed_join_bytes(Device& device, size_t devices, TupleLayout build, uint64_t build_rows, TupleLayout probe,
                           uint64_t probe_rows, const JoinRequest& request, uint32_t rounds);

}  // namespace warpjoin
