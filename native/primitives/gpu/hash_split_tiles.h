// The tuples are cut into tiles, each grouped by a block in shared memory and then written, so that a group's tuples of a
// tile go out together. All blocks write to the same few places of a group at nearly the same time, and the second-level cache
// makes whole lines of what they write before it goes to memory.
//
// The first of two passes needs room for each of its groups. Where there are many tuples a sample of the keys says how much,
// nearly: rooms in `between` have some to spare, and the pass counts the groups of both passes while it has the tuples in hand.
// Should a group not fit, the pass is done again by these counts. Otherwise all keys are read once more, first, to be counted.
#pragma once

#include <algorithm>

#include "primitives/gpu/hash_split.h"
#include "primitives/gpu/split_rooms.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

constexpr size_t kStagedBytes = size_t{kSmallBlocks ? 64 : 112} << 10;  // of the blocks that share a multiprocessor
constexpr unsigned kCountedBits = kSmallBlocks ? 13 : 15;               // groups that a block counts, in shared memory
constexpr unsigned kCountThreads = 1024;
constexpr unsigned kCountBlocks = 264, kSplitBlocks = 2112;  // some for each multiprocessor: they go from tile to tile
constexpr unsigned kSampledBlocks = 264;                     // fewer, as each adds up all of its counts
constexpr unsigned kRepeatBlocks = 528;                      // where most often there is nothing to do
constexpr unsigned kLoadBytes = 16;                          // of a thread, at a time

template <class Key, class Value>
struct Tile {
  using Tuple = HashTuple<Key, Value>;
  // Two blocks share a multiprocessor, but wide tuples need large tiles: so that a group has some of each.
  static constexpr unsigned kBlocks = kSmallBlocks || sizeof(Tuple) <= 8 ? 2 : 1, kThreads = 1024 / kBlocks;
  static_assert(kThreads >= 1u << kPassBits);
  // Registers hold a thread's tuples.
  static constexpr unsigned kItems = std::min<size_t>(kStagedBytes / kBlocks / sizeof(Tuple) / kThreads, 24) / 2 * 2;
  static constexpr unsigned kSize = kThreads * kItems;
  static size_t shared_bytes(unsigned bits) { return kSize * sizeof(Tuple) + (size_t{2} << bits) * sizeof(uint32_t); }
};

/// A block's counts of all groups, in shared memory: of 16 bits, to fit beside a tile. What they don't hold goes to `all`.
struct BlockCounts {
  static constexpr uint32_t kHalf = 1u << 15;
  uint32_t *twos, *all;

  static constexpr size_t bytes(unsigned bits) { return sizeof(uint16_t) << bits; }
  __device__ void clear(unsigned bits) const {
    for (unsigned two = threadIdx.x; two < 1u << (bits - 1); two += blockDim.x) twos[two] = 0;
  }
  __device__ void add(uint32_t group) const {
    const unsigned shift = group % 2 * 16;
    if ((atomicAdd(&twos[group / 2], 1u << shift) >> shift & 0xFFFF) != kHalf - 1) return;
    // One thread gets here. Meanwhile the others add no more than a tile has, which is less than another half.
    atomicSub(&twos[group / 2], kHalf << shift);
    atomicAdd(&all[group], kHalf);
  }
  __device__ void add_to_all(unsigned bits) const {
    for (unsigned two = threadIdx.x; two < 1u << (bits - 1); two += blockDim.x) {
      const uint32_t counts = twos[two];
      if (counts & 0xFFFF) atomicAdd(&all[2 * two], counts & 0xFFFF);
      if (counts >> 16) atomicAdd(&all[2 * two + 1], counts >> 16);
    }
  }
};

/// Counts groups [window << kCountedBits, (window + 1) << kCountedBits), a window for each blockIdx.y.
template <class Key>
__global__ void __launch_bounds__(kCountThreads)
    count_groups(const Key* keys, uint64_t size, unsigned bits, uint32_t* counts, Condition condition) {
  if (!condition.holds()) return;
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

  __host__ __device__ uint64_t size() const { return run.size; }
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
/// ... or grouped by the pass before, which may have left gaps behind groups: in stretches one behind the other, `groups` of
/// each run of that pass.
template <class Key, class Value>
struct Grouped {
  static constexpr unsigned kPack = 1;
  const HashTuple<Key, Value>* tuples;
  uint32_t groups, stretches;
  const uint32_t *begins, *ends;

  __device__ uint64_t size() const { return ends[stretches - 1]; }
  __device__ HashTuple<Key, Value> tuple(uint64_t at) const { return load_tuple_once(tuples + at); }
  __device__ void load(uint64_t at, HashTuple<Key, Value>* to) const { to[0] = tuple(at); }
  __device__ bool packed(uint64_t) const { return true; }
};

/// What a pass groups by: the `bits` below the topmost `above`, by which the tuples are grouped already.
struct Pass {
  unsigned above, bits;
  uint32_t* ends;  // of what has been written of each group

  template <class Key>
  __device__ unsigned digit(Key hash) const {
    return top_bits(static_cast<Key>(hash << above), bits);
  }
};

/// Groups have the room that counts gave them, ...
struct CountedRooms {
  static constexpr bool kSampled = false, kCounts = false;
  Condition condition;
  __device__ bool serve() const { return condition.holds(); }
};
/// ... or a sample: the pass may count the groups of `bits` meanwhile.
template <bool counts_groups>
struct SampledRooms {
  static constexpr bool kSampled = true, kCounts = counts_groups;
  GroupRooms rooms;
  unsigned bits;
  uint32_t* counts;
  uint32_t tiles_before;  ///< of the fragments before

  __device__ bool serve() const { return *rooms.state != kCountFirst; }
  /// A tile that no block has, beside those that blocks begin with.
  __device__ uint32_t take_tile() const { return gridDim.x + atomicAdd(rooms.tiles_taken, 1u) - tiles_before; }
  /// Where `size` tuples go that have `place` in a group. Any room takes a tile: what does not fit goes where it harms nothing,
  /// for all of this will be done again.
  __device__ uint32_t fit(uint32_t place, unsigned group, uint32_t size) const {
    if (place <= rooms.limits[group] - size) return place;
    *rooms.state = kCounts ? kOverflowed : kCountFirst;
    return rooms.begins[group];
  }
};

template <class Source, class Rooms, class Key, class Value>
__global__ void __launch_bounds__((Tile<Key, Value>::kThreads), (Tile<Key, Value>::kBlocks))
    split_tiles(Source in, Pass pass, Rooms rooms, HashTuple<Key, Value>* out) {
  using T = Tile<Key, Value>;
  using Tuple = typename T::Tuple;
  constexpr unsigned kItems = T::kItems, kPack = Source::kPack;
  constexpr bool kGrouped = std::is_same_v<Source, Grouped<Key, Value>>;
  static_assert(kItems % kPack == 0 && T::kSize < BlockCounts::kHalf);
  if (!rooms.serve()) return;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  __shared__ uint32_t sums[T::kThreads / kLanes];
  __shared__ uint32_t taken_tile;
  auto* const staged = reinterpret_cast<Tuple*>(shared_bytes);
  auto* const begins = reinterpret_cast<uint32_t*>(staged + T::kSize);  // counts first
  const unsigned groups = 1u << pass.bits;
  uint32_t* const places = begins + groups;  // where slot 0 would go in `out` if it belonged to the group; wraps
  BlockCounts counts;
  if constexpr (Rooms::kCounts) counts = {places + groups, rooms.counts};

  // A block goes through a stretch of its own, or, where there are few blocks, takes one tile after the other, so that all end
  // together. No tile has tuples of two groups of the pass before.
  const uint64_t size = in.size();
  const uint64_t tiles = (size + T::kSize - 1) / T::kSize;
  const auto stretch = [&](unsigned block) { return block == gridDim.x ? size : tiles * block / gridDim.x * T::kSize; };
  uint64_t at = Rooms::kSampled ? uint64_t{blockIdx.x} * T::kSize : stretch(blockIdx.x);
  const uint64_t stop = Rooms::kSampled ? size : stretch(blockIdx.x + 1);
  uint32_t parent = 0;  // stretch
  if constexpr (kGrouped) parent = static_cast<uint32_t>(last_not_above(in.begins, in.stretches, at));
  const auto parent_group = [&]() -> uint32_t {
    if constexpr (kGrouped) return parent % in.groups;
    return 0;
  };
  const auto next_tile = [&]() -> unsigned {
    uint64_t end = stop;
    if constexpr (kGrouped) {
      while (at < stop && in.ends[parent] <= at) {
        ++parent;
        if (in.begins[parent] > at) at = in.begins[parent];
      }
      if (at < stop && in.ends[parent] < end) end = in.ends[parent];
    }
    if (at >= stop) return 0;
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
  if constexpr (Rooms::kCounts) counts.clear(rooms.bits);
  while (count) {
    if (threadIdx.x < groups) begins[threadIdx.x] = 0;
    __syncthreads();
    uint16_t rank[kItems];
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      if (place_of(i) < count) rank[i] = static_cast<uint16_t>(atomicAdd(&begins[pass.digit(tuples[i].hash)], 1u));
    }
    if constexpr (Rooms::kCounts) {
#pragma unroll
      for (unsigned i = 0; i < kItems; ++i) {
        if (place_of(i) < count) counts.add(top_bits(tuples[i].hash, rooms.bits));
      }
    }
    __syncthreads();
    const uint32_t own = threadIdx.x < groups ? begins[threadIdx.x] : 0;
    uint32_t place = own ? atomicAdd(&pass.ends[(uint64_t{parent_group()} << pass.bits) + threadIdx.x], own) : 0;
    if constexpr (Rooms::kSampled) {
      if (own) place = rooms.fit(place, threadIdx.x, own);
      if (threadIdx.x == T::kThreads - 1) taken_tile = rooms.take_tile();
    }
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
    at = Rooms::kSampled ? uint64_t{taken_tile} * T::kSize : at + count;
    count = next_tile();
    load(count);  // on their way while this tile is written
    for (unsigned slot = threadIdx.x; slot < written; slot += T::kThreads) {
      const Tuple tuple = staged[slot];
      store_tuple(out + (places[pass.digit(tuple.hash)] + slot), tuple);
    }
    __syncthreads();
  }
  if constexpr (Rooms::kCounts) counts.add_to_all(rooms.bits);
}

/// Counts the groups that a pass will make of each group of the one before: a block takes some of a stretch at a time.
template <class Key, class Value>
__global__ void __launch_bounds__(kCountThreads) count_grouped(Grouped<Key, Value> in, Pass pass, uint32_t* counts) {
  constexpr unsigned kShares = 32, kLoads = 4;
  __shared__ uint32_t own[1u << kPassBits];
  const unsigned groups = 1u << pass.bits;
  for (uint64_t task = blockIdx.x; task < uint64_t{in.stretches} * kShares; task += gridDim.x) {
    const auto parent = static_cast<uint32_t>(task / kShares);
    const unsigned share = task % kShares;
    const uint64_t begin = in.begins[parent], size = in.ends[parent] - begin;
    const uint64_t first = begin + size * share / kShares, last = begin + size * (share + 1) / kShares;
    if (threadIdx.x < groups) own[threadIdx.x] = 0;
    __syncthreads();
    for (uint64_t at = first + threadIdx.x; at < last; at += kCountThreads * kLoads) {
      Key hashes[kLoads];
#pragma unroll
      for (unsigned i = 0; i < kLoads; ++i) {
        if (at + i * kCountThreads < last) hashes[i] = in.tuples[at + i * kCountThreads].hash;
      }
#pragma unroll
      for (unsigned i = 0; i < kLoads; ++i) {
        if (at + i * kCountThreads < last) atomicAdd(&own[pass.digit(hashes[i])], 1u);
      }
    }
    __syncthreads();
    if (threadIdx.x < groups && own[threadIdx.x]) {
      atomicAdd(&counts[(uint64_t{parent % in.groups} << pass.bits) + threadIdx.x], own[threadIdx.x]);
    }
    __syncthreads();
  }
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
