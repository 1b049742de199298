// A hash join that keeps its build side alone on the device: the probe side is matched as it arrives, and its rows go home
// meanwhile (the streamed probe side of fast-interconnects 4, without its spilling). Internal to native/join.
#pragma once

#include "join/hash_cut.h"
#include "join/join.h"
#include "join/local_joins.h"

namespace warpjoin {

/// Whether so many devices like this one join so many rounds this way: one that is beyond a link from host memory, in one round.
bool can_stream(const Device& device, size_t devices, uint32_t rounds);

/// Joins relations in host memory, one view each. `force_waves`: the probe side comes in several waves however small it is.
/// Device memory: streamed_join_bytes(), and where there is more, waves of a small probe side and more rows on their way home at
/// a time. Host memory: the result, which grows with what is found, and twice the rows alone of joins that have pairs, too.
JoinRows streamed_join(Engine& engine, Device& device, const Relation& build, const Relation& probe, const JoinKeys& keys,
                       const JoinRequest& request, bool force_waves, Job& job);
/// Device memory that it takes at least: the build side and its tables, and a few waves of the probe side or, where that is less,
/// all of it.
size_t streamed_join_bytes(Device& device, TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows,
                           const JoinRequest& request);

}  // namespace warpjoin
