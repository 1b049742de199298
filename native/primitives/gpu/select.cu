// The tuples up to a bound: one pass over the keys at the speed of memory, as few of them pass.
#include <algorithm>
#include <cstring>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"

namespace warpjoin {
namespace {

constexpr unsigned kLoads = 4;             // of 16 bytes, on their way at a time for each thread
constexpr unsigned kMostBlocks = 1 << 13;  // several times those that run at once: the last ones end together

template <class Key>
struct Bound {
  const Key* key;
  const uint32_t* index;
  uint64_t count;
};

template <class Key>
constexpr unsigned kKeysOfLoad = 16 / sizeof(Key);
template <class Key>
constexpr unsigned kTile = gpu::kThreads* kLoads* kKeysOfLoad<Key>;

// Tiles begin at multiples of 16 bytes, `shift` keys before the first one.
template <class Key, class Value>
__global__ void __launch_bounds__(gpu::kThreads)
    select_tuples(const gpu::Run<Key, Value> in, unsigned shift, Key flip, Bound<Key> bound, Key* keys, Value* values,
                  uint64_t room, unsigned long long* count) {
  constexpr unsigned kKeys = kKeysOfLoad<Key>;
  const Key last = bound.key ? *bound.key : static_cast<Key>(~Key{0});
  const uint64_t last_row = bound.key ? sampled_row(in.size, bound.count, *bound.index) : in.size;
  const Key* const aligned = in.keys - shift;
  const uint64_t end = in.size + shift;
  for (uint64_t begin = uint64_t{blockIdx.x} * kTile<Key>; begin < end; begin += uint64_t{gridDim.x} * kTile<Key>) {
    Key own[kLoads][kKeys];
    unsigned hits = 0;
    const uint64_t first = begin + threadIdx.x * kKeys;  // of load l: first + l * kThreads * kKeys
    if (begin >= shift && begin + kTile<Key> <= end) {
#pragma unroll
      for (unsigned l = 0; l < kLoads; ++l) {
        const uint4 words = gpu::load_once(reinterpret_cast<const uint4*>(aligned + first + l * gpu::kThreads * kKeys));
        memcpy(own[l], &words, sizeof words);
      }
#pragma unroll
      for (unsigned l = 0; l < kLoads; ++l) {
#pragma unroll
        for (unsigned k = 0; k < kKeys; ++k) {
          own[l][k] ^= flip;
          hits |= unsigned{own[l][k] <= last} << (l * kKeys + k);
        }
      }
    } else {
#pragma unroll
      for (unsigned l = 0; l < kLoads; ++l) {
#pragma unroll
        for (unsigned k = 0; k < kKeys; ++k) {
          const uint64_t at = first + l * gpu::kThreads * kKeys + k;
          const bool is_there = at >= shift && at < end;
          own[l][k] = is_there ? aligned[at] ^ flip : Key{0};
          hits |= unsigned{is_there && own[l][k] <= last} << (l * kKeys + k);
        }
      }
    }
    if (gpu::ballot(hits != 0) == 0) continue;
    const auto row_of = [&](unsigned l, unsigned k) { return first + l * gpu::kThreads * kKeys + k - shift; };
#pragma unroll
    for (unsigned l = 0; l < kLoads; ++l) {
#pragma unroll
      for (unsigned k = 0; k < kKeys; ++k) {
        if (own[l][k] == last && row_of(l, k) > last_row) hits &= ~(1u << (l * kKeys + k));
      }
    }
    if (gpu::ballot(hits != 0) == 0) continue;
    const auto mine = static_cast<unsigned>(__popc(hits));
    unsigned before = mine;
#pragma unroll
    for (unsigned distance = 1; distance < gpu::kLanes; distance *= 2) {
      const unsigned other = gpu::shuffle_up(before, distance);
      if (gpu::lane() >= distance) before += other;
    }
    unsigned long long at = 0;
    if (gpu::lane() == gpu::kLanes - 1 && before) at = atomicAdd(count, static_cast<unsigned long long>(before));
    at = gpu::shuffle(at, gpu::kLanes - 1) + (before - mine);
#pragma unroll
    for (unsigned l = 0; l < kLoads; ++l) {
#pragma unroll
      for (unsigned k = 0; k < kKeys; ++k) {
        if (!(hits >> (l * kKeys + k) & 1)) continue;
        if (at < room) {
          keys[at] = own[l][k];
          if constexpr (gpu::is_value<Value>) values[at] = in.value(row_of(l, k));
        }
        ++at;
      }
    }
  }
}

}  // namespace

void GpuPrimitives::select_up_to(TupleLayout layout, TupleView in, uint64_t flip, const SampleBound& bound, TupleSpan out,
                                 uint64_t* host_count, void* scratch, const Job& job, Stream& stream) {
  job.check();
  if (in.size == 0) {
    *host_count = 0;
    return;
  }
  id_.select();
  const gpu_stream_t on = raw(stream);
  auto* const count = static_cast<unsigned long long*>(scratch);
  GPU_CHECK(id_.name, gpu_memset_async(count, 0, sizeof *count, on));
  gpu::with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    const auto shift = static_cast<unsigned>(reinterpret_cast<uintptr_t>(in.keys) % 16 / sizeof(Key));
    const uint64_t tiles = (in.size + shift + kTile<Key> - 1) / kTile<Key>;
    const Bound<Key> last{static_cast<const Key*>(bound.key), static_cast<const uint32_t*>(bound.index), bound.count};
    select_tuples<Key, Value><<<static_cast<unsigned>(std::min<uint64_t>(tiles, kMostBlocks)), gpu::kThreads, 0, on>>>(
        gpu::Run<Key, Value>(in), shift, static_cast<Key>(flip), last, static_cast<Key*>(out.keys),
        static_cast<Value*>(out.values), out.size, count);
  });
  check_launch("select_tuples");
  ResultSlots::Slot& slot = results_.acquire(sizeof *count, on);
  auto* const found = slot.as<unsigned long long>();
  gpu::copy_few<<<1, 1, 0, on>>>(found, count, 1);
  check_launch("copy_few");
  results_.finish(slot, [=] { *host_count = *found; });
}

}  // namespace warpjoin
