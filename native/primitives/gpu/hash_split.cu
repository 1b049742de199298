// The tuples are cut into tiles, each grouped by a block in shared memory and then written, so that a group's tuples of a
// tile go out together. All blocks write to the same few places of a group at nearly the same time, and the second-level cache
// makes whole lines of what they write before it goes to memory.
#include "primitives/gpu/hash_split.h"
#include "primitives/gpu/scan.h"
#include "primitives/host/blocks.h"

namespace warpjoin::gpu {
namespace {

#if defined(WARPJOIN_HIP)
constexpr size_t kStagedBytes = size_t{64} << 10;
constexpr unsigned kCountedBits = 13;  // groups that a block counts, in shared memory
#else
constexpr size_t kStagedBytes = size_t{112} << 10;  // of the blocks that share a multiprocessor
constexpr unsigned kCountedBits = 15;
#endif
constexpr unsigned kCountThreads = 1024;
constexpr unsigned kCountBlocks = 264, kSplitBlocks = 2112;  // some for each multiprocessor: they go from tile to tile
constexpr unsigned kLoadBytes = 16;                          // of a thread, at a time

template <class Key, class Value>
struct Tile {
  using Tuple = HashTuple<Key, Value>;
  // Two blocks share a multiprocessor, but wide tuples need large tiles: so that a group has some of each.
  static constexpr unsigned kBlocks = kLanes == 64 || sizeof(Tuple) <= 8 ? 2 : 1, kThreads = 1024 / kBlocks;
  static_assert(kThreads >= 1u << kPassBits);
  // Registers hold a thread's tuples.
  static constexpr unsigned kItems = std::min<size_t>(kStagedBytes / kBlocks / sizeof(Tuple) / kThreads, 24) / 2 * 2;
  static constexpr unsigned kSize = kThreads * kItems;
  static size_t shared_bytes(unsigned bits) { return kSize * sizeof(Tuple) + (size_t{2} << bits) * sizeof(uint32_t); }
};

/// Counts groups [window << kCountedBits, (window + 1) << kCountedBits), a window for each blockIdx.y.
template <class Key>
__global__ void __launch_bounds__(kCountThreads) count_groups(const Key* keys, uint64_t size, unsigned bits, uint32_t* counts) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto* const own = reinterpret_cast<uint32_t*>(shared_bytes);
  const unsigned groups = 1u << (bits < kCountedBits ? bits : kCountedBits);
  const uint32_t first_group = blockIdx.y << kCountedBits;
  for (unsigned g = threadIdx.x; g < groups; g += kCountThreads) own[g] = 0;
  __syncthreads();
  const auto count = [&](Key key) {
    const uint32_t group = top_bits(hash_key(key), bits) - first_group;
    if (group < groups) atomicAdd(&own[group], 1u);
  };
  constexpr unsigned kKeys = kLoadBytes / sizeof(Key), kLoads = 4;
  uint64_t head = -reinterpret_cast<uintptr_t>(keys) / sizeof(Key) % kKeys;  // before the first whole load
  if (head > size) head = size;
  const auto* const fours = reinterpret_cast<const uint4*>(keys + head);
  const uint64_t loads = (size - head) / kKeys;
  for (uint64_t first = uint64_t{blockIdx.x} * kCountThreads * kLoads; first < loads; first += loop_step() * kLoads) {
    uint4 loaded[kLoads];
#pragma unroll
    for (unsigned i = 0; i < kLoads; ++i) {
      const uint64_t at = first + i * kCountThreads + threadIdx.x;
      if (at < loads) loaded[i] = fours[at];
    }
#pragma unroll
    for (unsigned i = 0; i < kLoads; ++i) {
      if (first + i * kCountThreads + threadIdx.x >= loads) continue;
      const auto* const own_keys = reinterpret_cast<const Key*>(&loaded[i]);
#pragma unroll
      for (unsigned k = 0; k < kKeys; ++k) count(own_keys[k]);
    }
  }
  if (blockIdx.x == 0) {
    const uint64_t tail = head + loads * kKeys;
    if (threadIdx.x < head) count(keys[threadIdx.x]);
    if (tail + threadIdx.x < size) count(keys[tail + threadIdx.x]);
  }
  __syncthreads();
  for (unsigned g = threadIdx.x; g < groups; g += kCountThreads) {
    if (own[g]) atomicAdd(&counts[first_group + g], own[g]);
  }
}

/// Where a pass finds its tuples: in columns, not hashed yet, ...
template <class Key, class Value>
struct Columns {
  // A thread takes two that lie side by side, where that makes its loads as large as they can be.
  static constexpr unsigned kPack = sizeof(Key) == 8 && is_value<Value> && sizeof(Value) == 8 ? 2 : 1;
  Run<Key, Value> run;

  uint64_t size() const { return run.size; }
  __device__ HashTuple<Key, Value> tuple(uint64_t at) const {
    HashTuple<Key, Value> tuple;
    tuple.hash = hash_key(load_once(run.keys + at));
    if constexpr (is_value<Value>) {
      tuple.value = run.values ? load_once(run.values + at) : static_cast<Value>(run.first_value + at);
    }
    return tuple;
  }
  /// kPack tuples, the first of them at an address that the load divides.
  __device__ void load(uint64_t at, HashTuple<Key, Value>* tuples) const {
    if constexpr (kPack == 1) {
      tuples[0] = tuple(at);
    } else {
      const auto keys = load_once(reinterpret_cast<const ulonglong2*>(run.keys + at));
      const auto values = run.values ? load_once(reinterpret_cast<const ulonglong2*>(run.values + at))
                                     : ulonglong2{run.first_value + at, run.first_value + at + 1};
      tuples[0] = {hash_key<Key>(keys.x), values.x};
      tuples[1] = {hash_key<Key>(keys.y), values.y};
    }
  }
  __device__ bool packed(uint64_t at) const {
    return ((reinterpret_cast<uintptr_t>(run.keys + at) | reinterpret_cast<uintptr_t>(run.values ? run.values + at : nullptr)) %
            (kPack * sizeof(Key))) == 0;
  }
};
/// ... or grouped by the pass before.
template <class Key, class Value>
struct Grouped {
  static constexpr unsigned kPack = 1;
  const HashTuple<Key, Value>* tuples;
  uint64_t all;

  uint64_t size() const { return all; }
  __device__ HashTuple<Key, Value> tuple(uint64_t at) const { return load_tuple_once(tuples + at); }
  __device__ void load(uint64_t at, HashTuple<Key, Value>* to) const { to[0] = tuple(at); }
  __device__ bool packed(uint64_t) const { return true; }
};

/// What a pass groups by: the `bits` below the topmost `above`, by which the tuples are grouped already, at `offsets`.
struct Pass {
  unsigned above, bits;
  const uint32_t* offsets;
  uint32_t* ends;  // of what has been written of each group

  __device__ uint64_t begin(uint32_t group) const { return offsets[uint64_t{group} << bits]; }
  template <class Key>
  __device__ unsigned digit(Key hash) const {
    return top_bits(static_cast<Key>(hash << above), bits);
  }
};

template <class Source, class Key, class Value>
__global__ void __launch_bounds__((Tile<Key, Value>::kThreads), (Tile<Key, Value>::kBlocks))
    split_tiles(Source in, uint64_t size, Pass pass, HashTuple<Key, Value>* out) {
  using T = Tile<Key, Value>;
  using Tuple = typename T::Tuple;
  constexpr unsigned kItems = T::kItems, kPack = Source::kPack;
  static_assert(kItems % kPack == 0);
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  __shared__ uint32_t sums[T::kThreads / kLanes];
  auto* const staged = reinterpret_cast<Tuple*>(shared_bytes);
  auto* const begins = reinterpret_cast<uint32_t*>(staged + T::kSize);  // counts first
  const unsigned groups = 1u << pass.bits;
  uint32_t* const places = begins + groups;  // where slot 0 would go in `out` if it belonged to the group; wraps

  // A block goes through a stretch of its own. No tile has tuples of two groups of the pass before.
  const auto stretch = [&](unsigned block) { return block == gridDim.x ? size : size * block / gridDim.x / kPack * kPack; };
  uint64_t at = stretch(blockIdx.x);
  const uint64_t stop = stretch(blockIdx.x + 1);
  uint32_t parent = 0;
  if (pass.above) {
    for (uint32_t end = 1u << pass.above; end - parent > 1;) {
      const uint32_t middle = parent + (end - parent) / 2;
      if (pass.begin(middle) <= at) {
        parent = middle;
      } else {
        end = middle;
      }
    }
  }
  const auto next_tile = [&]() -> unsigned {
    if (at >= stop) return 0;
    uint64_t end = stop;
    if (pass.above) {
      while (pass.begin(parent + 1) <= at) ++parent;
      if (pass.begin(parent + 1) < end) end = pass.begin(parent + 1);
    }
    return end - at < T::kSize ? static_cast<unsigned>(end - at) : T::kSize;
  };
  const auto place_of = [](unsigned item) { return (item / kPack * T::kThreads + threadIdx.x) * kPack + item % kPack; };

  Tuple tuples[kItems];
  const auto load = [&](unsigned count) {
    const bool packed = count == T::kSize && in.packed(at);
#pragma unroll
    for (unsigned i = 0; i < kItems; i += kPack) {
      if (kPack > 1 && packed) {
        in.load(at + place_of(i), &tuples[i]);
      } else {
#pragma unroll
        for (unsigned p = i; p < i + kPack; ++p) {
          if (place_of(p) < count) tuples[p] = in.tuple(at + place_of(p));
        }
      }
    }
  };
  unsigned count = next_tile();
  load(count);
  while (count) {
    if (threadIdx.x < groups) begins[threadIdx.x] = 0;
    __syncthreads();
    uint16_t rank[kItems];
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      if (place_of(i) < count) rank[i] = static_cast<uint16_t>(atomicAdd(&begins[pass.digit(tuples[i].hash)], 1u));
    }
    __syncthreads();
    const uint32_t own = threadIdx.x < groups ? begins[threadIdx.x] : 0;
    const uint32_t place = own ? atomicAdd(&pass.ends[(uint64_t{parent} << pass.bits) + threadIdx.x], own) : 0;
    const uint32_t begin = sum_before<T::kThreads>(own, sums);
    if (threadIdx.x < groups) {
      begins[threadIdx.x] = begin;
      places[threadIdx.x] = place - begin;
    }
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      if (place_of(i) < count) staged[begins[pass.digit(tuples[i].hash)] + rank[i]] = tuples[i];
    }
    __syncthreads();
    const unsigned written = count;
    at += count;
    count = next_tile();
    load(count);  // on their way while this tile is written
    for (unsigned slot = threadIdx.x; slot < written; slot += T::kThreads) {
      const Tuple tuple = staged[slot];
      out[places[pass.digit(tuple.hash)] + slot] = tuple;
    }
    __syncthreads();
  }
}

// One group: nothing moves.
__global__ void one_group(uint32_t* offsets, uint32_t size) {
  offsets[0] = 0;
  offsets[1] = size;
}
template <class Key, class Value>
__global__ void hash_all(Columns<Key, Value> in, HashTuple<Key, Value>* out) {
  for (uint64_t i = loop_begin(); i < in.run.size; i += loop_step()) out[i] = in.tuple(i);
}

/// Where groups of 2^bits begin.
__global__ void begin_groups(const uint32_t* offsets, unsigned bits, uint64_t groups, uint32_t* ends) {
  for (uint64_t g = loop_begin(); g < groups; g += loop_step()) ends[g] = offsets[g << bits];
}

struct SplitScratch {
  uint32_t* ends;
  void* scan;
  size_t scan_bytes = 0, bytes;

  SplitScratch(void* scratch, unsigned bits, const std::string& device_name) {
    host::Carver carver(scratch);
    const uint64_t groups = uint64_t{1} << bits;
    ends = carver.take<uint32_t>(groups);
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

void hash_split(TupleLayout layout, std::span<const TupleView> fragments, unsigned bits, const HashTuples& out, char* between,
                uint32_t* offsets, void* scratch, gpu_stream_t on, const std::string& device_name) {
  const auto check_launch = [&](const char* kernel) { gpu_check(gpu_get_last_error(), kernel, device_name); };
  const uint64_t groups = uint64_t{1} << bits;
  const SplitScratch own(scratch, bits, device_name);
  uint64_t size = 0;
  for (const TupleView& fragment : fragments) size += fragment.size;
  with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    using T = Tile<Key, Value>;
    using Tuple = typename T::Tuple;
    auto* const tuples = reinterpret_cast<Tuple*>(out.data);
    const auto for_fragments = [&](auto&& f) {
      for (const TupleView& fragment : fragments) {
        if (fragment.size) f(Columns<Key, Value>{Run<Key, Value>(fragment)});
      }
    };

    if (bits == 0) {
      one_group<<<1, 1, 0, on>>>(offsets, static_cast<uint32_t>(size));
      check_launch("one_group");
      Tuple* to = tuples;
      for_fragments([&](const auto& in) {
        hash_all<<<loop_blocks(in.size()), kThreads, 0, on>>>(in, to);
        check_launch("hash_all");
        to += in.size();
      });
      return;
    }

    GPU_CHECK(device_name, gpu_memset_async(offsets, 0, (groups + 1) * sizeof(uint32_t), on));
    const auto count = count_groups<Key>;
    const unsigned counted = std::min(bits, kCountedBits);
    GPU_CHECK(device_name, gpu_allow_shared_memory(count, sizeof(uint32_t) << counted));
    for_fragments([&](const auto& in) {
      const dim3 blocks(static_cast<unsigned>(std::clamp<uint64_t>(in.size() / T::kSize, 1, kCountBlocks)),
                        1u << (bits - counted));
      count<<<blocks, kCountThreads, sizeof(uint32_t) << counted, on>>>(in.run.keys, in.size(), bits, offsets);
      check_launch("count_groups");
    });
    size_t scan_bytes = own.scan_bytes;
    GPU_CHECK(device_name, sums_before(own.scan, scan_bytes, offsets, groups + 1, on));

    const auto begin_pass = [&](unsigned above, unsigned pass_bits) {
      const uint64_t ends = uint64_t{1} << (above + pass_bits);
      begin_groups<<<loop_blocks(ends), kThreads, 0, on>>>(offsets, bits - above - pass_bits, ends, own.ends);
      check_launch("begin_groups");
      return Pass{above, pass_bits, offsets, own.ends};
    };
    const auto split = [&](const auto& in, const Pass& pass, Tuple* to) {
      const auto kernel = split_tiles<std::decay_t<decltype(in)>, Key, Value>;
      GPU_CHECK(device_name, gpu_allow_shared_memory(kernel, T::shared_bytes(kPassBits)));
      const auto blocks = static_cast<unsigned>(std::clamp<uint64_t>(in.size() / T::kSize, 1, kSplitBlocks));
      kernel<<<blocks, T::kThreads, T::shared_bytes(pass.bits), on>>>(in, in.size(), pass, to);
      check_launch("split_tiles");
    };
    if (bits <= kPassBits) {
      const Pass pass = begin_pass(0, bits);
      for_fragments([&](const auto& in) { split(in, pass, tuples); });
    } else {
      auto* const half_way = reinterpret_cast<Tuple*>(between);
      const Pass first = begin_pass(0, bits / 2);
      for_fragments([&](const auto& in) { split(in, first, half_way); });
      const Pass second = begin_pass(bits / 2, bits - bits / 2);
      if (size) split(Grouped<Key, Value>{half_way, size}, second, tuples);
    }
  });
}

size_t hash_split_scratch_bytes(unsigned bits, const std::string& device_name) {
  return SplitScratch(nullptr, bits, device_name).bytes;
}

}  // namespace warpjoin::gpu
