// Groups tuples by bucket, stable: at most 256 buckets in one pass that reads every key twice and everything else once.
//
// The tuples are cut into tiles, each the work of one block, and tiles into chunks.
//   count_tiles    counts each chunk's buckets, tile after tile, and notes the counts before every tile
//   sum_chunks     adds the counts up over the chunks
//   place_buckets  adds them up over the buckets: now the place of each tile's first tuple of each bucket is known
//   scatter_tiles  groups a tile in shared memory, then writes each bucket's tuples to their place
// There is no look-back at other blocks: two extra words for each tile and bucket are cheap where tiles are large, and
// large tiles are what makes a bucket's stretch of a tile several sectors long.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "core/tuples.h"
#include "primitives/gpu/kernels.h"
#include "primitives/host/blocks.h"

namespace warpjoin::gpu {

constexpr unsigned kMostBuckets = 256;

// --- Which bucket -----------------------------------------------------------------------------------------------

/// The bucket is a digit of the key, or of the mixed key.
template <class Key, bool mixed>
struct DigitBuckets {
  /// Whether a tuple's bucket is kept rather than found again from its key.
  static constexpr bool kKept = false;
  struct Shared {};

  unsigned shift, mask;

  explicit DigitBuckets(Digit digit) : shift(digit.shift), mask(digit.count() - 1) {
    if (!mixed && shift >= 8 * sizeof(Key)) shift = mask = 0;  // a shift that the processor would cut
  }
  __device__ void prepare(Shared&) const {}
  template <unsigned count>
  __device__ void find(const Shared&, const Key* keys, unsigned* buckets) const {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      if constexpr (mixed) {
        buckets[i] = static_cast<unsigned>(mix_key(keys[i]) >> shift) & mask;
      } else {
        buckets[i] = static_cast<unsigned>(keys[i] >> shift) & mask;
      }
    }
  }
};

/// The bucket is the number of bounds not greater than the key.
template <class Key>
struct RangeBuckets {
  static constexpr bool kKept = true;
  struct Shared {
    Key tree[kMostBuckets];
  };

  /// A search tree in level order, entry 0 unused: the upper levels lie in different banks of shared memory.
  const Key* tree;
  unsigned levels, last;

  /// Writes the tree of `count` ascending bounds, [0, size()) of `nodes`. The places left over hold the greatest key; a
  /// search that ends behind them is in the last bucket.
  template <class Bounds>
  static void plant(const Bounds& bounds, unsigned count, Key* nodes) {
    nodes[0] = 0;
    const unsigned size = std::bit_ceil(count + 1);
    for (unsigned node = 1; node < size; ++node) {
      const unsigned width = std::bit_floor(node);
      const unsigned at = (2 * (node - width) + 1) * (size / width / 2) - 1;
      nodes[node] = at < count ? static_cast<Key>(bounds[at]) : static_cast<Key>(~Key{0});
    }
  }
  RangeBuckets(const Key* tree, unsigned count)
      : tree(tree), levels(static_cast<unsigned>(std::bit_width(std::bit_ceil(count + 1)) - 1)), last(count) {}

  __device__ void prepare(Shared& shared) const {
    for (unsigned i = threadIdx.x; i < 1u << levels; i += blockDim.x) shared.tree[i] = tree[i];
  }
  template <unsigned count>
  __device__ void find(const Shared& shared, const Key* keys, unsigned* buckets) const {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) buckets[i] = 1;
    for (unsigned level = 0; level < levels; ++level) {
#pragma unroll
      for (unsigned i = 0; i < count; ++i) buckets[i] = 2 * buckets[i] + (keys[i] >= shared.tree[buckets[i]]);
    }
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      const unsigned bucket = buckets[i] - (1u << levels);
      buckets[i] = bucket < last ? bucket : last;
    }
  }
};

// --- Tiles and counts -------------------------------------------------------------------------------------------

/// How lanes find those with the same bucket.
enum class Match {
  ballots,  ///< a vote on each bit of the bucket
  masks,    ///< a bit for each lane, set in shared memory
#if !defined(WARPJOIN_HIP)
  any,  ///< the match instruction
#endif
};

/// A tile: `threads` of a block with `items` tuples each, and how many `blocks` share a multiprocessor.
template <unsigned threads, unsigned items, unsigned blocks, Match match_>
struct Shape {
  static constexpr unsigned kThreads = threads, kItems = items, kBlocks = blocks;
  static constexpr Match kMatch = match_;
  static constexpr unsigned kTile = threads * items;
  static constexpr unsigned kGroups = threads / kLanes;  // of lanes
  static_assert(threads >= kMostBuckets && kTile <= uint32_t{UINT16_MAX} + 1);
};

// Limits are the registers of a multiprocessor, which hold a tile's keys and places, and its shared memory.
#if defined(WARPJOIN_HIP)
template <size_t width>
using ShapeOf = Shape<256, 16, 2, Match::ballots>;
#else
template <size_t width>
using ShapeOf = Shape<512, width == 4 ? 24 : 16, 2, Match::ballots>;
#endif

template <class Key, class Value>
constexpr size_t widest = is_value<Value> && sizeof(Value) > sizeof(Key) ? sizeof(Value) : sizeof(Key);

/// The counts of a split, in device memory.
struct SplitCounts {
  unsigned tile = 0, buckets = 0, tiles_in_chunk = 1;
  uint64_t tiles = 0, chunks = 0;
  uint32_t* before_tile = nullptr;    ///< [tile][bucket]: tuples in the tile's chunk before the tile
  uint32_t* in_chunk = nullptr;       ///< [chunk][bucket]
  uint64_t* before_chunk = nullptr;   ///< [chunk][bucket]: tuples before the chunk
  uint64_t* bucket_begins = nullptr;  ///< [bucket]; the buckets' sizes until place_buckets

  SplitCounts(host::Carver& scratch, unsigned tile, uint64_t size, unsigned buckets) : tile(tile), buckets(buckets) {
    constexpr uint64_t kMostChunks = 1024;  // several for each multiprocessor
    tiles = (size + tile - 1) / tile;
    tiles_in_chunk = static_cast<unsigned>(tiles ? (tiles + kMostChunks - 1) / kMostChunks : 1);
    chunks = (tiles + tiles_in_chunk - 1) / tiles_in_chunk;
    before_tile = scratch.take<uint32_t>(tiles * buckets);
    in_chunk = scratch.take<uint32_t>(chunks * buckets);
    before_chunk = scratch.take<uint64_t>(chunks * buckets);
    bucket_begins = scratch.take<uint64_t>(buckets);
  }
};

constexpr unsigned kCountThreads = 512;
constexpr unsigned kCountBytes = 32;  // that a thread has under way

// Block c counts chunk c.
template <class Key, class Buckets>
__global__ void __launch_bounds__(kCountThreads, 2048 / kCountThreads)
    count_tiles(const Key* keys, uint64_t size, Buckets buckets, SplitCounts to) {
  constexpr unsigned kItems = kCountBytes / sizeof(Key);
  __shared__ uint32_t counts[kMostBuckets + 1];  // the last one is for lanes without a tuple
  __shared__ typename Buckets::Shared shared;
  for (unsigned b = threadIdx.x; b <= kMostBuckets; b += kCountThreads) counts[b] = 0;
  buckets.prepare(shared);
  const uint64_t first_tile = uint64_t{blockIdx.x} * to.tiles_in_chunk;
  const uint64_t last_tile = first_tile + to.tiles_in_chunk < to.tiles ? first_tile + to.tiles_in_chunk : to.tiles;
  for (uint64_t tile = first_tile; tile < last_tile; ++tile) {
    __syncthreads();
    for (unsigned b = threadIdx.x; b < to.buckets; b += kCountThreads) to.before_tile[tile * to.buckets + b] = counts[b];
    __syncthreads();
    const Key* from = keys + tile * to.tile;
    const uint64_t left = size - tile * to.tile;
    const unsigned count = left < to.tile ? static_cast<unsigned>(left) : to.tile;
    for (unsigned begin = threadIdx.x; begin - threadIdx.x < count; begin += kCountThreads * kItems) {
      Key key[kItems];
      unsigned bucket[kItems];
#pragma unroll
      for (unsigned i = 0; i < kItems; ++i) {
        const unsigned at = begin + i * kCountThreads;
        key[i] = at < count ? load_once(from + at) : Key{0};
      }
      buckets.template find<kItems>(shared, key, bucket);
#pragma unroll
      for (unsigned i = 0; i < kItems; ++i) {
        if (begin + i * kCountThreads >= count) bucket[i] = kMostBuckets;
        // Additions to one word go one after the other: sorted and skewed keys would take 32 turns.
        if (ballot(bucket[i] != shuffle(bucket[i], 0)) == 0) {
          if (lane() == 0) atomicAdd(&counts[bucket[i]], kLanes);
        } else {
          atomicAdd(&counts[bucket[i]], 1u);
        }
      }
    }
  }
  __syncthreads();
  for (unsigned b = threadIdx.x; b < to.buckets; b += kCountThreads) {
    to.in_chunk[uint64_t{blockIdx.x} * to.buckets + b] = counts[b];
  }
}

/// Enqueues what is between counting and scattering: adds the counts up, and writes counts.buckets + 1 `offsets`.
void place_tiles(const SplitCounts& counts, uint64_t* offsets, gpu_stream_t on, const std::string& device_name);

// --- Scatter ----------------------------------------------------------------------------------------------------

/// Small numbers, several to a register. Positions are constants once loops are unrolled.
template <unsigned count, unsigned bits>
class Packed {
 public:
  __device__ unsigned operator[](unsigned i) const { return words_[i / kEach] >> (i % kEach * bits) & kMask; }
  __device__ void set(unsigned i, unsigned value) {
    uint32_t& word = words_[i / kEach];
    word = (word & ~(kMask << (i % kEach * bits))) | value << (i % kEach * bits);
    make_opaque(word);  // or the compiler would keep the numbers as they were before they were packed
  }

 private:
  static constexpr unsigned kEach = 32 / bits, kMask = (1u << bits) - 1;
  uint32_t words_[(count + kEach - 1) / kEach] = {};
};

/// The shared memory of scatter_tiles: counts first, then the grouped keys, then the grouped values.
template <class Shape, class Key, class Value, class Buckets>
struct TileMemory {
  struct Counts {
    uint32_t of[Shape::kGroups][kMostBuckets];
    LaneMask lanes[Shape::kMatch == Match::masks ? Shape::kGroups : 1][kMostBuckets];
  };
  union {
    Counts counts;
    Key keys[Shape::kTile];
    std::conditional_t<is_value<Value>, Value, Key> values[Shape::kTile];
  };
  uint64_t out_begins[kMostBuckets];  // where slot 0 would go in `out` if it belonged to the bucket
  uint32_t sums[Shape::kGroups];
  typename Buckets::Shared shared;
  uint8_t bucket_of_slot[Buckets::kKept ? Shape::kTile : 1];
};

/// The lanes with the same bucket as this one. `masks` has a zero for each bucket, and is left so by `forget_lanes`.
template <Match match>
__device__ LaneMask lanes_with(unsigned bucket, [[maybe_unused]] LaneMask* masks) {
  if constexpr (match == Match::ballots) {
    LaneMask same = ~LaneMask{0};
#pragma unroll
    for (unsigned bit = 1; bit < kMostBuckets; bit *= 2) {
      const LaneMask set = ballot(bucket & bit);
      same &= bucket & bit ? set : ~set;
    }
    return same;
  } else if constexpr (match == Match::masks) {
    atomicOr(&masks[bucket], LaneMask{1} << lane());
    sync_lanes();
    return masks[bucket];
#if !defined(WARPJOIN_HIP)
  } else {
    return __match_any_sync(~LaneMask{0}, bucket);
#endif
  }
}

// A block groups a tile. A group of lanes has consecutive tuples, and its rows of kLanes are ranked one after the other.
template <bool full, class Shape, class Key, class Value, class Buckets>
__device__ __forceinline__ void scatter_tile(TileMemory<Shape, Key, Value, Buckets>& memory, const Run<Key, Value>& in,
                                             uint64_t tile, const Buckets& buckets, const SplitCounts& counts, Key* out_keys,
                                             Value* out_values) {
  constexpr unsigned kItems = Shape::kItems, kBatch = Buckets::kKept && kItems % 4 == 0 ? 4 : 1;
  const uint64_t tile_begin = tile * Shape::kTile;
  const unsigned count = full ? Shape::kTile : static_cast<unsigned>(in.size - tile_begin);
  const unsigned group = threadIdx.x / kLanes, first = group * kLanes * kItems + lane();
  // This thread reads the tile's tuples first + i * kLanes, and writes those in slots threadIdx.x + i * kThreads. What is
  // left of the tile behind the first of them: comparing i alone with that keeps 2 * kItems sums out of registers.
  const unsigned left = first < count ? count - first : 0, left_to_write = threadIdx.x < count ? count - threadIdx.x : 0;

  Key keys[kItems];
  const Key* const in_keys = in.keys + tile_begin + first;
#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) keys[i] = full || i * kLanes < left ? load_once(in_keys + i * kLanes) : Key{0};
  if (threadIdx.x < counts.buckets) {
    const uint64_t chunk = static_cast<uint32_t>(tile) / counts.tiles_in_chunk;
    memory.out_begins[threadIdx.x] = counts.bucket_begins[threadIdx.x] +
                                     counts.before_chunk[chunk * counts.buckets + threadIdx.x] +
                                     counts.before_tile[tile * counts.buckets + threadIdx.x];
  }
  buckets.prepare(memory.shared);
  uint32_t* const own = memory.counts.of[group];
  LaneMask* const masks = memory.counts.lanes[Shape::kMatch == Match::masks ? group : 0];
  for (unsigned b = lane(); b < kMostBuckets; b += kLanes) {
    own[b] = 0;
    if constexpr (Shape::kMatch == Match::masks) masks[b] = 0;
  }
  __syncthreads();

  // Places within the bucket, among the tuples of these lanes. Lanes without a tuple are last in the last bucket.
  Packed<kItems, 8> bucket;
  Packed<kItems, 16> slot;
#pragma unroll
  for (unsigned begin = 0; begin < kItems; begin += kBatch) {
    unsigned found[kBatch];
    buckets.template find<kBatch>(memory.shared, keys + begin, found);
#pragma unroll
    for (unsigned i = begin; i < begin + kBatch; ++i) {
      const unsigned b = full || i * kLanes < left ? found[i - begin] : kMostBuckets - 1;
      const LaneMask same = lanes_with<Shape::kMatch>(b, masks);
      const unsigned rank = own[b] + popcount(same & lanes_below());
      sync_lanes();
      if (same >> lane() == 1) {  // the last one of them
        own[b] = rank + 1;
        if constexpr (Shape::kMatch == Match::masks) masks[b] = 0;
      }
      sync_lanes();
      bucket.set(i, b);
      slot.set(i, rank);
    }
  }
  __syncthreads();

  // Counts become slots: bucket after bucket, and in a bucket one group's tuples after the other's.
  uint32_t total = 0;
  if (threadIdx.x < kMostBuckets) {
#pragma unroll 4  // the keys leave no more registers
    for (unsigned g = 0; g < Shape::kGroups; ++g) total += memory.counts.of[g][threadIdx.x];
  }
  uint32_t next = sum_before<Shape::kThreads>(total, memory.sums);
  if (threadIdx.x < kMostBuckets) {
    memory.out_begins[threadIdx.x] -= next;
#pragma unroll 4
    for (unsigned g = 0; g < Shape::kGroups; ++g) {
      const uint32_t here = memory.counts.of[g][threadIdx.x];
      memory.counts.of[g][threadIdx.x] = next;
      next += here;
    }
  }
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) slot.set(i, slot[i] + own[bucket[i]]);
  __syncthreads();  // the keys take the place of the counts

#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) {
    memory.keys[slot[i]] = keys[i];
    if constexpr (Buckets::kKept) memory.bucket_of_slot[slot[i]] = static_cast<uint8_t>(bucket[i]);
  }
  __syncthreads();
  // Values are under way while the keys are written.
  std::conditional_t<is_value<Value>, Value, char> values[is_value<Value> ? kItems : 1];
  if constexpr (is_value<Value>) {
    if (in.values) {
      const Value* const in_values = in.values + tile_begin + first;
#pragma unroll
      for (unsigned i = 0; i < kItems; ++i) values[i] = full || i * kLanes < left ? load_once(in_values + i * kLanes) : Value{0};
    } else {
      const auto value = static_cast<Value>(in.first_value + tile_begin + first);
#pragma unroll
      for (unsigned i = 0; i < kItems; ++i) values[i] = value + i * kLanes;
    }
  }
  Packed<kItems, 8> out_bucket;
#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) {
    const unsigned row = i * Shape::kThreads;
    if (!full && row >= left_to_write) continue;
    const Key key = memory.keys[threadIdx.x + row];
    unsigned b;
    if constexpr (Buckets::kKept) {
      b = memory.bucket_of_slot[threadIdx.x + row];
    } else {
      buckets.template find<1>(memory.shared, &key, &b);
    }
    out_bucket.set(i, b);
    (out_keys + threadIdx.x)[memory.out_begins[b] + row] = key;
  }
  if constexpr (is_value<Value>) {
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) memory.values[slot[i]] = values[i];
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      const unsigned row = i * Shape::kThreads;
      if (!full && row >= left_to_write) continue;
      (out_values + threadIdx.x)[memory.out_begins[out_bucket[i]] + row] = memory.values[threadIdx.x + row];
    }
  }
}

// Block t groups tile t.
template <class Shape, class Key, class Value, class Buckets>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    scatter_tiles(Run<Key, Value> in, Buckets buckets, SplitCounts counts, Key* out_keys, Value* out_values) {
  using Memory = TileMemory<Shape, Key, Value, Buckets>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(shared_bytes);
  const uint64_t tile = blockIdx.x;
  if ((tile + 1) * Shape::kTile <= in.size) {
    scatter_tile<true, Shape>(memory, in, tile, buckets, counts, out_keys, out_values);
  } else {
    scatter_tile<false, Shape>(memory, in, tile, buckets, counts, out_keys, out_values);
  }
}

// --- All of it --------------------------------------------------------------------------------------------------

/// Enqueues a split of in.size > 0 tuples. `offsets` (counts.buckets + 1 entries) is memory that kernels write.
template <class Shape, class Key, class Value, class Buckets>
void split(const Run<Key, Value>& in, const Buckets& buckets, const SplitCounts& counts, Key* out_keys, Value* out_values,
           uint64_t* offsets, gpu_stream_t on, const std::string& device_name) {
  const auto check_launch = [&](const char* kernel) { gpu_check(gpu_get_last_error(), kernel, device_name); };
  count_tiles<<<static_cast<unsigned>(counts.chunks), kCountThreads, 0, on>>>(in.keys, in.size, buckets, counts);
  check_launch("count_tiles");
  place_tiles(counts, offsets, on, device_name);
  constexpr size_t bytes = sizeof(TileMemory<Shape, Key, Value, Buckets>);
  const auto scatter = scatter_tiles<Shape, Key, Value, Buckets>;
  GPU_CHECK(device_name, gpu_allow_shared_memory(scatter, bytes));
  scatter<<<static_cast<unsigned>(counts.tiles), Shape::kThreads, bytes, on>>>(in, buckets, counts, out_keys, out_values);
  check_launch("scatter_tiles");
}

}  // namespace warpjoin::gpu
