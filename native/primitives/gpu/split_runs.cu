// Multisequence selection: bisects the key space, with one thread for each run.
#include <algorithm>
#include <vector>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"

namespace warpjoin {
namespace {

constexpr unsigned kMostRuns = 128;

template <class Key>
struct Runs {
  const Key* keys[kMostRuns];
  uint64_t sizes[kMostRuns];
  unsigned count;
};

// Block r finds the cuts of ranks[r]. The key of the tuple at that rank lies in [low, high]; `below` counts a run's keys
// less than low, `within` those not greater than high.
template <class Key>
__global__ void split_at_ranks(Runs<Key> runs, const uint64_t* ranks, uint64_t* cuts) {
  __shared__ uint64_t below[kMostRuns], within[kMostRuns], counted[kMostRuns];
  __shared__ Key lows[kMostRuns], highs[kMostRuns];
  __shared__ Key low, high;
  __shared__ bool take_low;
  const unsigned run = threadIdx.x;
  const uint64_t rank = ranks[blockIdx.x];
  uint64_t* cut = cuts + uint64_t{blockIdx.x} * runs.count;
  if (run < runs.count) {
    below[run] = 0;
    within[run] = runs.sizes[run];
    lows[run] = runs.sizes[run] ? runs.keys[run][0] : static_cast<Key>(~Key{0});
    highs[run] = runs.sizes[run] ? runs.keys[run][runs.sizes[run] - 1] : Key{0};
  }
  __syncthreads();
  if (run == 0) {
    low = static_cast<Key>(~Key{0});
    high = 0;
    for (unsigned i = 0; i < runs.count; ++i) {
      low = lows[i] < low ? lows[i] : low;
      high = highs[i] > high ? highs[i] : high;
    }
  }
  __syncthreads();
  while (low < high) {
    const Key middle = low + (high - low) / 2;
    if (run < runs.count) {
      uint64_t first = below[run], last = within[run];
      while (first < last) {
        const uint64_t at = first + (last - first) / 2;
        if (runs.keys[run][at] <= middle) {
          first = at + 1;
        } else {
          last = at;
        }
      }
      counted[run] = first;
    }
    __syncthreads();
    if (run == 0) {
      uint64_t total = 0;
      for (unsigned i = 0; i < runs.count; ++i) total += counted[i];
      take_low = total > rank;
      if (take_low) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    __syncthreads();
    if (run < runs.count) (take_low ? within : below)[run] = counted[run];
    __syncthreads();
  }
  // Equal keys go to the runs in their order.
  if (run == 0) {
    uint64_t missing = rank;
    for (unsigned i = 0; i < runs.count; ++i) missing -= below[i];
    for (unsigned i = 0; i < runs.count; ++i) {
      const uint64_t equal = within[i] - below[i], taken = equal < missing ? equal : missing;
      cut[i] = below[i] + taken;
      missing -= taken;
    }
  }
}

}  // namespace

void GpuPrimitives::split_runs(TupleLayout layout, std::span<const TupleView> runs, std::span<const uint64_t> ranks,
                               uint64_t* host_cuts, Stream& stream) {
  if (ranks.empty() || runs.empty()) return;
  if (runs.size() > kMostRuns) not_supported_on(device_, "Splitting more than 128 runs");
  id_.select();
  const size_t cut_count = ranks.size() * runs.size();
  ResultSlots::Slot& slot = results_.acquire((ranks.size() + cut_count) * sizeof(uint64_t), raw(stream));
  auto* cuts = slot.as<uint64_t>();
  uint64_t* device_ranks = cuts + cut_count;
  std::copy(ranks.begin(), ranks.end(), device_ranks);
  const auto launch = [&]<class Key>(Key) {
    Runs<Key> keys{};
    keys.count = static_cast<unsigned>(runs.size());
    for (unsigned i = 0; i < keys.count; ++i) {
      keys.keys[i] = static_cast<const Key*>(runs[i].keys);
      keys.sizes[i] = runs[i].size;
    }
    split_at_ranks<<<static_cast<unsigned>(ranks.size()), kMostRuns, 0, raw(stream)>>>(keys, device_ranks, cuts);
  };
  layout.key_bytes == 4 ? launch(uint32_t{}) : launch(uint64_t{});
  check_launch("split_at_ranks");
  results_.finish(slot, [=] { std::copy(cuts, cuts + cut_count, host_cuts); });
}

}  // namespace warpjoin
