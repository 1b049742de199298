// Hash joins of relations that lie on the devices already, where the result may stay too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/job.h"
#include "core/tuples.h"
#include "device/device.h"
#include "engine/engine.h"
#include "join/join.h"

namespace warpjoin {

/// Tuples in the memory of a join's devices: chunk d lies on devices[d] (host devices: anywhere in host memory). Chunks may be
/// of any size. Where values are implied, each chunk's first_value says where they go on.
struct ResidentRelation {
  TupleLayout layout;
  std::vector<TupleView> chunks;  ///< one a device

  uint64_t size() const;
};

/// The rows of a join in the memory of its devices: chunk d lies on devices[d], the only one to use its buffers until they go.
struct ResidentRows {
  /// Row i is (left[i], right[i]), with all-ones in place of a row that is not there. Pairs come first, then left rows alone,
  /// then right rows alone.
  struct Chunk {
    uint64_t size = 0;
    Buffer keys, left, right;  ///< those that were asked for, exactly as large as they need be; none of no rows
  };

  TupleLayout left_layout, right_layout;  ///< as in JoinRows
  std::vector<Chunk> chunks;              ///< one a device
  bool left_may_be_missing = false, right_may_be_missing = false;
  double skew = 1;          ///< largest over mean number of tuples a device joined
  uint64_t split_rows = 0;  ///< as in JoinRows

  uint64_t size() const;
};

/// Joins keys of equal width; all kinds of joins, and count_only, which gives the chunks' sizes alone. Tuples cross to
/// other devices once; on one device they are matched where they lie. The relations are only read. `partitions`: over all
/// devices, a power of two; 0: by size.
///
/// Device memory: nothing is reserved: resident_hash_join_device_bytes have to fit what is reserved and free on each device, and
/// a result that stays what the limit leaves beside that; Error(device_memory) where they don't. Pairs that stay take room for
/// one of each probe tuple, and for as many again, for a while and where both are free. Host memory: none to speak of.
ResidentRows resident_hash_join(Engine& engine, std::span<Device* const> devices, const ResidentRelation& left,
                                const ResidentRelation& right, const JoinRequest& request, Job& job, uint32_t partitions = 0);

/// The same with the result in host memory.
JoinRows resident_hash_join_home(Engine& engine, std::span<Device* const> devices, const ResidentRelation& left,
                                 const ResidentRelation& right, const JoinRequest& request, Job& job, uint32_t partitions = 0);

/// Device memory of either on each of `devices` devices, beside the relations and a result that stays: where their chunks are
/// even, and hashing spreads the keys evenly. Keys that crowd on one device take more there.
size_t resident_hash_join_device_bytes(TupleLayout left, uint64_t left_rows, TupleLayout right, uint64_t right_rows,
                                       size_t devices, const JoinRequest& request, Engine& engine);

}  // namespace warpjoin
