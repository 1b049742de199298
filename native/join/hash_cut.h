// How a hash join cuts the key space.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.h"
#include "join/join.h"

namespace warpjoin {

/// Partitions of all rounds and devices are told apart by at most so many bits.
inline constexpr uint32_t kMostPartitionBits = 12;

struct HashCut {
  uint32_t partition_bits = 0;  ///< topmost bits of the mixed keys: partitions over all devices
  bool replicate = false;       ///< no partitions: every device joins the whole build side with its chunk of the probe side
  uint32_t parts = 1;           ///< of a device's partitions: of resident relations each is matched while the next ones arrive
  /// Whether a side's tuples of a heavy partition may stay on the devices where they are: the other side's go to all of them.
  bool splits_build = false, splits_probe = false;
};

/// Whether a join asks which rows of a side match, which no device knows alone if each has them all, and no wave of the other
/// side.
bool asks(const JoinRequest& request, bool left);

/// Whether a build side is better sent to each device than exchanged, by hash, together with the probe side. The first takes
/// the build side over each link, to the host or of a device to the others, the second a device's share of both sides over its
/// links to the others, which are several times faster than those to the host. Tuples of both sides are about as wide. More
/// build rows take longer to match, too. `resident`: both lie on the devices.
bool worth_replicating(uint64_t build_rows, uint64_t probe_rows, size_t devices, bool resident);

/// The bits of a number of rounds or partitions; throws Error(option), naming `what`, for one that is no power of two up to 2^12.
uint32_t bits_of(uint32_t count, const char* what);

/// How to cut relations of so many rows, into `partitions` or, for 0, by size. `resident`: the build side lies on the devices.
HashCut cut_for(const JoinRequest& request, uint32_t partitions, uint64_t build_rows, uint64_t probe_rows, size_t devices,
                bool resident, Device& device);

/// Whether a device's primitives cut what they join by themselves: to them all partitions are one.
bool cuts_by_itself(Device& device);

}  // namespace warpjoin
