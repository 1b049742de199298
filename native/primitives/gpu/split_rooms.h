// The rooms of groups that a pass splits tuples into before anybody has counted them: from a sample of the keys.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/tuples.h"
#include "device/gpu_runtime.h"
#include "primitives/gpu/hash_split.h"
#include "primitives/host/blocks.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

// What has become of the rooms.
constexpr uint32_t kOverflowed = 1;  ///< a group did not fit its room
constexpr uint32_t kCountFirst = 2;  ///< there are none: by the sample, most threads would wait for each other to count

/// Of a kernel that may have been enqueued in vain: none, or that the state is `least` or more.
struct Condition {
  const uint32_t* state = nullptr;
  uint32_t least = 0;
  __device__ bool holds() const { return !state || *state >= least; }
};

/// In device memory, for a pass of up to 2^kPassBits groups. Those of exact counts have no limits.
struct GroupRooms {
  uint32_t *begins = nullptr, *ends = nullptr;  ///< of what has been written of each
  uint32_t* limits = nullptr;                   ///< the ends of their rooms
  uint32_t *state = nullptr, *tiles_taken = nullptr;
  uint32_t* sampled = nullptr;  ///< keys of each

  GroupRooms() = default;
  explicit GroupRooms(host::Carver& carver);
};

struct RoomPlan {
  uint64_t rows;         ///< of all rooms
  uint64_t sectors = 0;  ///< of memory whose keys are the sample; 0: all keys are counted
  uint32_t least = 0;    ///< rows of a room

  /// Without a sample.
  explicit RoomPlan(uint64_t size) : rows(size) {}
  /// Of 2^bits groups, for each of which so many sectors are sampled, or fewer. Any room takes `least` rows.
  RoomPlan(uint64_t size, unsigned bits, uint8_t key_bytes, uint32_t least, uint64_t group_sectors);
};

/// Enqueues the sampling, and what makes rooms of it.
void plan_rooms(uint8_t key_bytes, std::span<const TupleView> fragments, const RoomPlan& plan, unsigned bits,
                const GroupRooms& rooms, gpu_stream_t on, const std::string& device_name);

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
