#include "join/hash_cut.h"

#include <algorithm>
#include <bit>
#include <string>

#include "core/error.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

bool asks_build(const JoinRequest& request) { return asks(request, request.build_left); }
bool asks_probe(const JoinRequest& request) { return asks(request, !request.build_left); }

constexpr uint64_t kWholeRows = 64 << 10;        // build rows that are matched sooner whole than both sides are partitioned
constexpr uint64_t kReplicatedRows = 128 << 10;  // build rows that always go to every device: a cache holds their table

/// How many partition bits leave a partition no more build rows than a device wants of one.
uint32_t partition_bits_for(uint64_t build_rows, uint64_t partition_rows) {
  if (build_rows <= kWholeRows) return 0;
  return std::min<uint32_t>(kMostPartitionBits, static_cast<uint32_t>(std::bit_width((build_rows - 1) / partition_rows)));
}

constexpr uint32_t kMostParts = 4;

/// Into how many parts a device's partitions are cut, each matched while the next ones come from other devices: little is to be
/// waited for, but no match is to be all launches.
uint32_t parts_for(uint64_t device_rows) {
  constexpr uint64_t kLeastRows = uint64_t{1} << 24;
  return static_cast<uint32_t>(std::clamp<uint64_t>(device_rows / kLeastRows, 1, kMostParts));
}

}  // namespace

bool asks(const JoinRequest& request, bool left) {
  switch (request.kind) {
    case JoinKind::inner: return false;
    case JoinKind::full: return true;
    case JoinKind::right: return !left;
    default: return left;
  }
}

bool worth_replicating(uint64_t build_rows, uint64_t probe_rows, size_t devices, bool resident) {
  const uint64_t faster = resident ? 2 : 8;
  return build_rows <= kReplicatedRows || build_rows <= (build_rows + probe_rows) / devices / faster;
}

uint32_t bits_of(uint32_t count, const char* what) {
  if (!std::has_single_bit(count) || count > 1u << kMostPartitionBits) {
    throw Error(ErrorCode::option, std::string(what) + " of a hash join: expected a power of two up to " +
                                       std::to_string(1u << kMostPartitionBits) + " but received " + std::to_string(count));
  }
  return static_cast<uint32_t>(std::countr_zero(count));
}

bool cuts_by_itself(Device& device) { return device.primitives().hash_partition_tuples() == UINT64_MAX; }

HashCut cut_for(const JoinRequest& request, uint32_t partitions, uint64_t build_rows, uint64_t probe_rows, size_t devices,
                bool resident, Device& device) {
  HashCut cut;
  cut.partition_bits = partitions ? bits_of(partitions, "Partitions")
                                  : partition_bits_for(build_rows, device.primitives().hash_partition_tuples());
  if (cut.partition_bits == 0 &&
      (devices == 1 || (!asks_build(request) && worth_replicating(build_rows, probe_rows, devices, resident)))) {
    cut.replicate = true;
  } else if (devices > 1) {
    // Enough partitions that the devices' shares are even.
    const auto even = static_cast<uint32_t>(std::bit_width(16 * devices - 1));
    const auto fewest = static_cast<uint32_t>(std::bit_width(devices - 1));
    cut.partition_bits = std::max(cut.partition_bits, partitions ? fewest : even);
    if (cuts_by_itself(device)) {
      const uint32_t most = (1u << cut.partition_bits) / static_cast<uint32_t>(devices);
      if (resident) cut.parts = std::min(most, partitions ? kMostParts : parts_for((build_rows + probe_rows) / devices));
      // Host devices share their threads, and so heavy partitions, anyway.
      cut.splits_build = !asks_probe(request);
      cut.splits_probe = !asks_build(request);
    }
  }
  return cut;
}

}  // namespace warpjoin
