#include <cmath>

#include "primitives/gpu/hash_tuning.h"
#include "primitives/gpu/split_rooms.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {
namespace {

constexpr unsigned kMostGroups = 1u << kPassBits;
constexpr unsigned kSectorBytes = 32;  // what is read of memory at least
constexpr unsigned kDeviations = 6;    // of what a sample says, that a room has to spare
constexpr uint64_t kSampledShare = 4;  // one of so many keys at most
constexpr unsigned kCrowdedShare = 4;  // a group with one of so many keys: threads that count it wait for each other

/// Some of a column's whole sectors.
template <class Key>
struct Sample {
  static constexpr unsigned kKeys = kSectorBytes / sizeof(Key);
  const Key* keys;
  uint64_t sectors, sampled;

  Sample(const TupleView& fragment, uint64_t most) {
    const auto address = reinterpret_cast<uintptr_t>(fragment.keys), first = (address + kSectorBytes - 1) / kSectorBytes;
    const uintptr_t end = (address + fragment.size * sizeof(Key)) / kSectorBytes;
    keys = reinterpret_cast<const Key*>(first * kSectorBytes);
    sectors = end > first ? end - first : 0;
    sampled = std::min<uint64_t>(sectors, most);
  }
};

template <class Key>
__global__ void __launch_bounds__(kThreads) sample_groups(Sample<Key> in, unsigned bits, uint32_t* counts) {
  __shared__ uint32_t own[kMostGroups];
  const unsigned groups = 1u << bits;
  for (unsigned g = threadIdx.x; g < groups; g += kThreads) own[g] = 0;
  __syncthreads();
  for (uint64_t i = loop_begin(); i < in.sampled; i += loop_step()) {
    const Key* const sector = in.keys + sampled_row(in.sectors, in.sampled, i) * in.kKeys;
    const uint4 halves[] = {reinterpret_cast<const uint4*>(sector)[0], reinterpret_cast<const uint4*>(sector)[1]};
    const auto* const keys = reinterpret_cast<const Key*>(halves);
#pragma unroll
    for (unsigned k = 0; k < in.kKeys; ++k) atomicAdd(&own[top_bits(hash_key(keys[k]), bits)], 1u);
  }
  __syncthreads();
  for (unsigned g = threadIdx.x; g < groups; g += kThreads) {
    if (own[g]) atomicAdd(&counts[g], own[g]);
  }
}

/// A sampled key stands for `scale` of them. Those of a sector may be equal, and then say no more than one.
__global__ void __launch_bounds__(kMostGroups)
    make_rooms(GroupRooms rooms, unsigned groups, uint64_t sampled, float scale, float sector_keys, RoomPlan plan) {
  __shared__ uint64_t sums[kMostGroups / kLanes];
  const uint32_t own = threadIdx.x < groups ? rooms.sampled[threadIdx.x] : 0;
  const auto count = static_cast<float>(own);
  uint64_t rows = 0;
  if (threadIdx.x < groups) rows = plan.least + static_cast<uint64_t>(scale * (count + kDeviations * sqrtf(sector_keys * count)));
  const uint64_t begin = sum_before<kMostGroups>(rows, sums);
  if (begin + rows > plan.rows || uint64_t{own} * kCrowdedShare > sampled) *rooms.state = kCountFirst;
  if (threadIdx.x >= groups) return;
  rooms.begins[threadIdx.x] = rooms.ends[threadIdx.x] = static_cast<uint32_t>(begin);
  rooms.limits[threadIdx.x] = static_cast<uint32_t>(begin + rows);
}

}  // namespace

GroupRooms::GroupRooms(host::Carver& carver)
    : begins(carver.take<uint32_t>(kMostGroups)),
      ends(carver.take<uint32_t>(kMostGroups)),
      limits(carver.take<uint32_t>(kMostGroups)),
      state(carver.take<uint32_t>(2 + kMostGroups)) {
  if (!state) return;
  tiles_taken = state + 1;
  sampled = state + 2;
}

RoomPlan::RoomPlan(uint64_t size, unsigned bits, uint8_t key_bytes, uint32_t least, uint64_t group_sectors)
    : rows(size), least(least) {
  if (size < hash_tuning.fewest_sampled) return;
  const uint64_t groups = uint64_t{1} << bits;
  const uint64_t sampled = std::min(groups * group_sectors, size / (kSampledShare * kSectorBytes / key_bytes));
  if (sampled == 0) return;
  // Rooms are largest, all together, where groups are equally large.
  const double spare = kDeviations * std::sqrt(static_cast<double>(groups) / static_cast<double>(sampled));
  constexpr unsigned kRounding = 16;  // rows of a room
  const uint64_t all = size + groups * (least + kRounding) + static_cast<uint64_t>(spare * static_cast<double>(size));
  if (all > UINT32_MAX) return;
  rows = all;
  sectors = sampled;
}

void plan_rooms(uint8_t key_bytes, std::span<const TupleView> fragments, const RoomPlan& plan, unsigned bits,
                const GroupRooms& rooms, gpu_stream_t on, const std::string& device_name) {
  const auto check_launch = [&](const char* kernel) { gpu_check(gpu_get_last_error(), kernel, device_name); };
  const unsigned groups = 1u << bits;
  GPU_CHECK(device_name, gpu_memset_async(rooms.state, 0, (2 + groups) * sizeof(uint32_t), on));
  const auto plan_for = [&]<class Key>(Key) {
    constexpr unsigned kKeys = Sample<Key>::kKeys;
    uint64_t size = 0, sampled = 0;
    for (const TupleView& fragment : fragments) size += fragment.size;
    for (const TupleView& fragment : fragments) {
      const auto share = static_cast<double>(fragment.size) / static_cast<double>(size);
      const Sample<Key> in(fragment, static_cast<uint64_t>(std::ceil(share * static_cast<double>(plan.sectors))));
      if (in.sampled == 0) continue;
      sample_groups<<<loop_blocks(in.sampled), kThreads, 0, on>>>(in, bits, rooms.sampled);
      check_launch("sample_groups");
      sampled += in.sampled * kKeys;
    }
    const float scale = sampled ? static_cast<float>(static_cast<double>(size) / static_cast<double>(sampled)) : 0;
    make_rooms<<<1, kMostGroups, 0, on>>>(rooms, groups, sampled, scale, kKeys, plan);
    check_launch("make_rooms");
  };
  key_bytes == 4 ? plan_for(uint32_t{}) : plan_for(uint64_t{});
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
