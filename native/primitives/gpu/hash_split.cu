// The tuples are cut into tiles, each grouped by a block in shared memory and then written, so that a group's tuples of a
// tile go out together. Those are a few only, less than a sector; but all blocks write to the same few places of a group at
// nearly the same time, and the second-level cache makes whole lines of them before they go to memory.
#include "primitives/gpu/hash_split.h"
#include "primitives/gpu/scan.h"
#include "primitives/host/blocks.h"

namespace warpjoin::gpu {
namespace {

#if defined(WARPJOIN_HIP)
constexpr unsigned kSplitThreads = 512;
constexpr size_t kStagedBytes = size_t{32} << 10;  // a tile
#else
constexpr unsigned kSplitThreads = 1024;
constexpr size_t kStagedBytes = size_t{96} << 10;
#endif
constexpr unsigned kCountBlocks = 264, kSplitBlocks = 528;  // some for each multiprocessor: they go from tile to tile

template <class Key, class Value>
struct Tile {
  using Tuple = HashTuple<Key, Value>;
  // Registers hold a thread's tuples.
  static constexpr unsigned kItems = sizeof(Tuple) <= 8 ? kStagedBytes / 8 / kSplitThreads : kStagedBytes / 16 / kSplitThreads;
  static constexpr unsigned kSize = kSplitThreads * kItems;
  static size_t shared_bytes(unsigned bits) { return kSize * sizeof(Tuple) + (size_t{2} << bits) * sizeof(uint32_t); }
};

template <class Key>
__global__ void __launch_bounds__(kSplitThreads) count_groups(const Key* keys, uint64_t size, unsigned bits, uint32_t* counts) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto* const own = reinterpret_cast<uint32_t*>(shared_bytes);
  const unsigned groups = 1u << bits;
  for (unsigned g = threadIdx.x; g < groups; g += kSplitThreads) own[g] = 0;
  __syncthreads();
  constexpr unsigned kItems = 32 / sizeof(Key);
  for (uint64_t first = uint64_t{blockIdx.x} * kSplitThreads * kItems; first < size; first += loop_step() * kItems) {
    Key key[kItems];
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      const uint64_t at = first + i * kSplitThreads + threadIdx.x;
      if (at < size) key[i] = keys[at];
    }
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      if (first + i * kSplitThreads + threadIdx.x < size) atomicAdd(&own[top_bits(hash_key(key[i]), bits)], 1u);
    }
  }
  __syncthreads();
  for (unsigned g = threadIdx.x; g < groups; g += kSplitThreads) {
    if (own[g]) atomicAdd(&counts[g], own[g]);
  }
}

template <class Key, class Value>
__global__ void __launch_bounds__(kSplitThreads, 1)
    split_tiles(Run<Key, Value> in, unsigned bits, uint32_t* ends, HashTuple<Key, Value>* out) {
  using T = Tile<Key, Value>;
  using Tuple = typename T::Tuple;
  constexpr unsigned kItems = T::kItems;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  __shared__ uint32_t sums[kSplitThreads / kLanes];
  auto* const staged = reinterpret_cast<Tuple*>(shared_bytes);
  auto* const begins = reinterpret_cast<uint32_t*>(staged + T::kSize);  // counts first
  const unsigned groups = 1u << bits;
  uint32_t* const places = begins + groups;  // where slot 0 would go in `out` if it belonged to the group; wraps
  const unsigned share = (groups + kSplitThreads - 1) / kSplitThreads;  // groups that a thread looks after

  Tuple tuples[kItems];
  const auto load = [&](uint64_t tile) {
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      const uint64_t at = tile * T::kSize + i * kSplitThreads + threadIdx.x;
      if (at >= in.size) continue;
      tuples[i].hash = hash_key(load_once(in.keys + at));
      if constexpr (is_value<Value>) {
        tuples[i].value = in.values ? load_once(in.values + at) : static_cast<Value>(in.first_value + at);
      }
    }
  };
  load(blockIdx.x);
  for (uint64_t tile = blockIdx.x; tile * T::kSize < in.size; tile += gridDim.x) {
    const uint64_t left = in.size - tile * T::kSize;
    const unsigned count = left < T::kSize ? static_cast<unsigned>(left) : T::kSize;
    for (unsigned g = threadIdx.x; g < groups; g += kSplitThreads) begins[g] = 0;
    __syncthreads();
    uint16_t rank[kItems];
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      if (i * kSplitThreads + threadIdx.x < count) {
        rank[i] = static_cast<uint16_t>(atomicAdd(&begins[top_bits(tuples[i].hash, bits)], 1u));
      }
    }
    __syncthreads();
    for (unsigned g = threadIdx.x; g < groups; g += kSplitThreads) places[g] = begins[g] ? atomicAdd(&ends[g], begins[g]) : 0;
    __syncthreads();
    const unsigned first = threadIdx.x * share, last = first + share < groups ? first + share : groups;
    uint32_t own = 0;
    for (unsigned g = first; g < last; ++g) own += begins[g];
    uint32_t begin = sum_before<kSplitThreads>(own, sums);
    for (unsigned g = first; g < last; ++g) {
      const uint32_t here = begins[g];
      begins[g] = begin;
      places[g] -= begin;
      begin += here;
    }
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      if (i * kSplitThreads + threadIdx.x < count) staged[begins[top_bits(tuples[i].hash, bits)] + rank[i]] = tuples[i];
    }
    __syncthreads();
    load(tile + gridDim.x);  // on their way while this tile is written
    for (unsigned slot = threadIdx.x; slot < count; slot += kSplitThreads) {
      const Tuple tuple = staged[slot];
      out[places[top_bits(tuple.hash, bits)] + slot] = tuple;
    }
    __syncthreads();
  }
}

// One group: nothing moves.
template <class Key, class Value>
__global__ void hash_all(Run<Key, Value> in, HashTuple<Key, Value>* out) {
  for (uint64_t i = loop_begin(); i < in.size; i += loop_step()) {
    HashTuple<Key, Value> tuple;
    tuple.hash = hash_key(load_once(in.keys + i));
    if constexpr (is_value<Value>) tuple.value = in.value(i);
    out[i] = tuple;
  }
}

struct SplitScratch {
  uint32_t* ends;
  void* scan;
  size_t scan_bytes = 0, bytes;

  SplitScratch(void* scratch, unsigned bits, const std::string& device_name) {
    host::Carver carver(scratch);
    const uint64_t groups = uint64_t{1} << bits;
    ends = carver.take<uint32_t>(groups + 1);
    GPU_CHECK(device_name, sums_before<uint32_t>(nullptr, scan_bytes, nullptr, groups + 1, gpu_stream_t{}));
    scan = carver.take<char>(scan_bytes);
    bytes = carver.bytes();
  }
};

}  // namespace

HashTuples hash_tuples(TupleLayout layout, void* data) {
  return with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    using Tuple = HashTuple<Key, Value>;
    HashTuples tuples{static_cast<char*>(data), sizeof(Tuple), 0, layout.value_bytes};
    if constexpr (is_value<Value>) tuples.value_at = offsetof(Tuple, value);
    return tuples;
  });
}

void hash_split(TupleLayout layout, std::span<const TupleView> fragments, unsigned bits, const HashTuples& out, uint32_t* offsets,
                void* scratch, gpu_stream_t on, const std::string& device_name) {
  const auto check_launch = [&](const char* kernel) { gpu_check(gpu_get_last_error(), kernel, device_name); };
  const uint64_t groups = uint64_t{1} << bits;
  const SplitScratch own(scratch, bits, device_name);
  GPU_CHECK(device_name, gpu_memset_async(offsets, 0, (groups + 1) * sizeof(uint32_t), on));
  with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    using T = Tile<Key, Value>;
    const auto count = count_groups<Key>;
    GPU_CHECK(device_name, gpu_allow_shared_memory(count, groups * sizeof(uint32_t)));
    for (const TupleView& fragment : fragments) {
      if (fragment.size == 0) continue;
      count<<<kCountBlocks, kSplitThreads, groups * sizeof(uint32_t), on>>>(static_cast<const Key*>(fragment.keys), fragment.size,
                                                                            bits, offsets);
      check_launch("count_groups");
    }
    size_t scan_bytes = own.scan_bytes;
    GPU_CHECK(device_name, sums_before(own.scan, scan_bytes, offsets, groups + 1, on));
    GPU_CHECK(device_name, gpu_memcpy_async(own.ends, offsets, groups * sizeof(uint32_t), gpu_memcpy_default, on));
    auto* tuples = reinterpret_cast<typename T::Tuple*>(out.data);
    const auto split = split_tiles<Key, Value>;
    GPU_CHECK(device_name, gpu_allow_shared_memory(split, T::shared_bytes(kMostSplitBits)));
    for (const TupleView& fragment : fragments) {
      if (fragment.size == 0) continue;
      const Run<Key, Value> in(fragment);
      if (bits == 0) {
        hash_all<<<loop_blocks(in.size), kThreads, 0, on>>>(in, tuples);
        check_launch("hash_all");
        tuples += in.size;
        continue;
      }
      const auto tiles = (in.size + T::kSize - 1) / T::kSize;
      const auto blocks = static_cast<unsigned>(std::min<uint64_t>(tiles, kSplitBlocks));
      split<<<blocks, kSplitThreads, T::shared_bytes(bits), on>>>(in, bits, own.ends, tuples);
      check_launch("split_tiles");
    }
  });
}

size_t hash_split_scratch_bytes(unsigned bits, const std::string& device_name) {
  return SplitScratch(nullptr, bits, device_name).bytes;
}

}  // namespace warpjoin::gpu
