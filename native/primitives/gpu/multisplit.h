// Groups tuples by bucket, stable: at most 256 buckets in one pass that reads every key twice and everything else once.
//
// The tuples are cut into tiles, each the work of one block, and tiles into chunks.
//   count_tiles    counts each chunk's buckets, tile after tile, and notes the counts before every tile; buckets that are
//                  dear to find are kept for scatter_tiles, a byte for each tuple
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
inline namespace WARPJOIN_BLOCKS {

constexpr unsigned kSplitBits = 8, kMostBuckets = 1u << kSplitBits;

// --- Which bucket -----------------------------------------------------------------------------------------------

/// The bucket is a digit of the key, or of the mixed key.
template <class Key, bool mixed>
struct DigitBuckets {
  /// Whether count_tiles keeps a tuple's bucket for scatter_tiles, or that finds it again from the key.
  static constexpr bool kKept = false;
  struct Shared {};

  unsigned shift, mask;

  explicit DigitBuckets(Digit digit) : shift(digit.shift), mask(digit.count() - 1) {
    if (!mixed && shift >= 8 * sizeof(Key)) shift = mask = 0;  // a shift that the processor would cut
  }
  __device__ void prepare(Shared&) const {}
  /// The key as it is written.
  __device__ Key written(Key key) const { return key; }
  __device__ unsigned of(Key key) const {
    if constexpr (mixed) {
      return static_cast<unsigned>(mix_key(key) >> shift) & mask;
    } else {
      return static_cast<unsigned>(key >> shift) & mask;
    }
  }
  template <unsigned count>
  __device__ void find(const Shared&, const Key* keys, unsigned* buckets) const {
#pragma unroll
    for (unsigned i = 0; i < count; ++i) buckets[i] = of(keys[i]);
  }
};

/// The bucket is the number of bounds not greater than the key, as it is flipped and written. The keys from the first bound to
/// the last are cut into cells of 2^shift keys; a table says between which buckets to search in a cell: mostly there is one, or
/// two.
template <class Key>
struct RangeBuckets {
  static constexpr bool kKept = true;
  static constexpr unsigned kCellBits = 10, kCells = 1u << kCellBits;
  struct Shared {
    Key bounds[kMostBuckets];
    uint16_t cell[kCells];  // the first bucket, and the last one in the upper byte
  };

  const Key* bounds;  // `last` of them, ascending, in device memory
  unsigned last;      // bucket
  unsigned shift = 0;
  Key base = 0, flip;

  /// `host_bounds` are those that will be in device memory at `bounds`.
  RangeBuckets(const Key* bounds, const Key* host_bounds, unsigned count, Key flip) : bounds(bounds), last(count), flip(flip) {
    if (count == 0) return;
    base = host_bounds[0];
    const auto width = static_cast<unsigned>(std::bit_width(static_cast<Key>(host_bounds[count - 1] - base)));
    shift = width > kCellBits ? width - kCellBits : 0;
  }

  /// All threads of a block call it, which synchronizes them.
  __device__ void prepare(Shared& shared) const {
    for (unsigned i = threadIdx.x; i < last; i += blockDim.x) shared.bounds[i] = bounds[i];
    __syncthreads();
    for (unsigned c = threadIdx.x; c < kCells; c += blockDim.x) {
      const Key begin = static_cast<Key>(base + (Key{c} << shift)), end = static_cast<Key>(begin + ((Key{1} << shift) - 1));
      // The outer cells also have the keys before the first bound and those behind the last one.
      const unsigned lower = c == 0 || last == 0 ? 0 : search(shared, begin, 0, last);
      // Cells whose numbers no key has may be past the greatest key.
      const unsigned upper = c == kCells - 1 || end < begin || begin < base ? last : search(shared, end, lower, last);
      shared.cell[c] = static_cast<uint16_t>(lower | upper << 8);
    }
    __syncthreads();
  }
  template <unsigned count>
  __device__ void find(const Shared& shared, const Key* unflipped, unsigned* buckets) const {
    Key keys[count];
    unsigned end[count];
    bool more = false;
#pragma unroll
    for (unsigned i = 0; i < count; ++i) {
      keys[i] = unflipped[i] ^ flip;
      const Key cell = keys[i] < base ? Key{0} : static_cast<Key>(keys[i] - base) >> shift;
      const unsigned range = shared.cell[cell < kCells ? static_cast<unsigned>(cell) : kCells - 1];
      buckets[i] = range & 255;
      end[i] = range >> 8;
      more = more || buckets[i] < end[i];
    }
    while (more) {
      more = false;
#pragma unroll
      for (unsigned i = 0; i < count; ++i) {
        if (buckets[i] >= end[i]) continue;
        const unsigned middle = (buckets[i] + end[i]) / 2;
        if (keys[i] >= shared.bounds[middle]) {
          buckets[i] = middle + 1;
        } else {
          end[i] = middle;
        }
        more = more || buckets[i] < end[i];
      }
    }
  }

 private:
  __device__ static unsigned search(const Shared& shared, Key key, unsigned begin, unsigned end) {
    while (begin < end) {
      const unsigned middle = (begin + end) / 2;
      if (key >= shared.bounds[middle]) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
};

// --- Tiles and counts -------------------------------------------------------------------------------------------

/// How the lanes of a row find those with the same bucket.
enum class Match {
  ballots,  ///< a vote on each bit of the bucket
  marks,    ///< a bit for each lane in the word of the bucket's count, which has 16 to spare: so many lanes are a row
};

/// How a tile's tuples go through shared memory, where they take the place of the counts.
enum class Through {
  turns,  ///< keys, then values
  pairs,  ///< keys with their values: fewer steps, but twice the memory
};

/// A tile: `threads` of a block with `items` tuples each, and how many `blocks` share a multiprocessor.
template <unsigned threads, unsigned items, unsigned blocks, Match match, Through through>
struct Shape {
  static constexpr unsigned kThreads = threads, kItems = items, kBlocks = blocks;
  static constexpr Match kMatch = match;
  static constexpr Through kThrough = through;
  static constexpr unsigned kTile = threads * items;
  static constexpr unsigned kRow = match == Match::marks ? 16 : kLanes;
  static constexpr unsigned kGroups = threads / kRow;  // of threads that share rows
  static_assert(threads >= kMostBuckets && kTile < UINT16_MAX && items % 4 == 0);
};

// Limits are the registers of a multiprocessor, which hold a tile's keys and places, and its shared memory.
// Those for large blocks are the fastest that were measured on an H200.
template <class Key, class Value>
struct ShapeFor {
  using type = Shape<768, 16, 1, Match::marks, Through::turns>;
};
template <>
struct ShapeFor<uint32_t, uint32_t> {
  using type = Shape<768, 16, 1, Match::marks, Through::pairs>;
};
template <>
struct ShapeFor<uint64_t, NoValue> {
  using type = Shape<512, 16, 2, Match::marks, Through::turns>;
};
template <>
struct ShapeFor<uint32_t, NoValue> {
  using type = Shape<512, 20, 2, Match::marks, Through::turns>;
};
using SmallShape = Shape<256, 16, 2, kLanes == 64 ? Match::ballots : Match::marks, Through::turns>;
template <class Key, class Value>
using ShapeOf = std::conditional_t<kSmallBlocks, SmallShape, typename ShapeFor<Key, Value>::type>;

/// The counts of a split, in device memory.
struct SplitCounts {
  unsigned tile = 0, buckets = 0, tiles_in_chunk = 1;
  uint64_t tiles = 0, chunks = 0;
  uint32_t* before_tile = nullptr;    ///< [tile][bucket]: tuples in the tile's chunk before the tile
  uint32_t* in_chunk = nullptr;       ///< [chunk][bucket]
  uint64_t* before_chunk = nullptr;   ///< [chunk][bucket]: tuples before the chunk
  uint64_t* bucket_begins = nullptr;  ///< [bucket]; the buckets' sizes until place_buckets
  /// Null, or every tuple's bucket as scatter_tiles reads them: four rows of a group of threads are kRow words, in which
  /// byte r belongs to row r.
  uint32_t* kept = nullptr;

  SplitCounts(host::Carver& scratch, unsigned tile, uint64_t size, unsigned buckets, bool keep) : tile(tile), buckets(buckets) {
    constexpr uint64_t kMostChunks = 1024;  // several for each multiprocessor
    tiles = (size + tile - 1) / tile;
    tiles_in_chunk = static_cast<unsigned>(tiles ? (tiles + kMostChunks - 1) / kMostChunks : 1);
    chunks = (tiles + tiles_in_chunk - 1) / tiles_in_chunk;
    before_tile = scratch.take<uint32_t>(tiles * buckets);
    in_chunk = scratch.take<uint32_t>(chunks * buckets);
    before_chunk = scratch.take<uint64_t>(chunks * buckets);
    bucket_begins = scratch.take<uint64_t>(buckets);
    if (keep) kept = scratch.take<uint32_t>(tiles * (tile / 4));
  }
};

constexpr unsigned kCountThreads = 512, kCountBlocks = 4;  // on a multiprocessor

// Block c counts chunk c.
template <unsigned row, class Key, class Buckets>
__global__ void __launch_bounds__(kCountThreads, kCountBlocks)
    count_tiles(const Key* keys, uint64_t size, Buckets buckets, SplitCounts to) {
  constexpr unsigned kItems = 32 / sizeof(Key);  // keys that a thread has under way
  static_assert(kItems % 4 == 0);
  __shared__ uint32_t counts[kMostBuckets];
  __shared__ typename Buckets::Shared shared;
  for (unsigned b = threadIdx.x; b < kMostBuckets; b += kCountThreads) counts[b] = 0;
  buckets.prepare(shared);
  // The first of four tuples that are one row apart.
  const unsigned first = threadIdx.x / row * (4 * row) + threadIdx.x % row;
  const uint64_t first_tile = uint64_t{blockIdx.x} * to.tiles_in_chunk;
  const uint64_t last_tile = first_tile + to.tiles_in_chunk < to.tiles ? first_tile + to.tiles_in_chunk : to.tiles;
  for (uint64_t tile = first_tile; tile < last_tile; ++tile) {
    __syncthreads();
    for (unsigned b = threadIdx.x; b < to.buckets; b += kCountThreads) to.before_tile[tile * to.buckets + b] = counts[b];
    __syncthreads();
    const Key* from = keys + tile * to.tile;
    const uint64_t left = size - tile * to.tile;
    const unsigned count = left < to.tile ? static_cast<unsigned>(left) : to.tile;
    for (unsigned begin = 0; begin < count; begin += kCountThreads * kItems) {
      Key key[kItems];
      unsigned bucket[kItems];
      const auto place = [&](unsigned i) { return begin + i / 4 * (4 * kCountThreads) + first + i % 4 * row; };
#pragma unroll
      for (unsigned i = 0; i < kItems; ++i) key[i] = place(i) < count ? load_once(from + place(i)) : Key{0};
      buckets.template find<kItems>(shared, key, bucket);
      if constexpr (Buckets::kKept) {
#pragma unroll
        for (unsigned i = 0; i < kItems; i += 4) {
          if (place(i) >= count) continue;
          to.kept[(tile * to.tile + begin) / 4 + i / 4 * kCountThreads + threadIdx.x] =
              bucket[i] | bucket[i + 1] << 8 | bucket[i + 2] << 16 | bucket[i + 3] << 24;
        }
      }
      // Lanes that add one to the same word do it in one go: sorted and equal keys take no longer.
#pragma unroll
      for (unsigned i = 0; i < kItems; ++i) {
        if (place(i) < count) atomicAdd(&counts[bucket[i]], 1u);
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
  static constexpr unsigned kEach = 32 / bits, kWords = (count + kEach - 1) / kEach;

  __device__ unsigned operator[](unsigned i) const { return words_[i / kEach] >> (i % kEach * bits) & kMask; }
  __device__ void set(unsigned i, unsigned value) {
    uint32_t& word = words_[i / kEach];
    word = (word & ~(kMask << (i % kEach * bits))) | value << (i % kEach * bits);
    make_opaque(word);  // or the compiler would keep the numbers as they were before they were packed
  }
  __device__ void set_word(unsigned w, uint32_t word) { words_[w] = word; }

 private:
  static constexpr unsigned kMask = (1u << bits) - 1;
  uint32_t words_[kWords] = {};
};

/// In whose place scatter_tiles reads the buckets that were kept.
template <class Key>
struct KeptBuckets {
  static constexpr bool kKept = true;
  Key flip;
  __device__ Key written(Key key) const { return key ^ flip; }
};
template <class Key, class Buckets>
using BucketsToScatter = std::conditional_t<Buckets::kKept, KeptBuckets<Key>, Buckets>;

/// The counts of each group, and how its lanes find each other.
template <class Shape, Match match = Shape::kMatch>
struct GroupCounts {
  uint16_t of[Shape::kGroups][kMostBuckets];

  __device__ void clear(unsigned group) {
    for (unsigned b = lane(); b < kMostBuckets; b += kLanes) of[group][b] = 0;
    sync_lanes();
  }
  /// The number of the group's tuples in the bucket until now, and adds the row.
  __device__ unsigned add_row(unsigned group, unsigned bucket) {
    LaneMask same = ~LaneMask{0};
#pragma unroll
    for (unsigned bit = 1; bit < kMostBuckets; bit *= 2) {
      const LaneMask set = ballot(bucket & bit);
      same &= bucket & bit ? set : ~set;
    }
    const unsigned rank = of[group][bucket] + popcount(same & lanes_below());
    sync_lanes();
    if (same >> lane() == 1) of[group][bucket] = static_cast<uint16_t>(rank + 1);  // the last one of them
    sync_lanes();
    return rank;
  }
  /// Writes where the group's first tuple of the bucket goes, and returns where the next group's one does.
  __device__ unsigned place(unsigned group, unsigned bucket, unsigned next) {
    const unsigned here = of[group][bucket];
    of[group][bucket] = static_cast<uint16_t>(next);
    return next + here;
  }
};
template <class Shape>
struct GroupCounts<Shape, Match::marks> {
  uint32_t of[Shape::kGroups][kMostBuckets];  // the count is in the upper half until it is placed

  __device__ void clear(unsigned group) {
    for (unsigned b = threadIdx.x % Shape::kRow; b < kMostBuckets; b += Shape::kRow) of[group][b] = 0;
    sync_lanes();
  }
  __device__ unsigned add_row(unsigned group, unsigned bucket) {
    uint32_t& word = of[group][bucket];
    const uint32_t own = 1u << threadIdx.x % Shape::kRow;
    atomicOr(&word, own);
    sync_lanes();
    const uint32_t marked = word;
    const unsigned rank = (marked >> 16) + popcount(marked & (own - 1));
    sync_lanes();
    if ((marked & 0xFFFF) < 2 * own) word = (rank + 1) << 16;  // the last one of them
    sync_lanes();
    return rank;
  }
  __device__ unsigned place(unsigned group, unsigned bucket, unsigned next) {
    const unsigned here = of[group][bucket] >> 16;
    of[group][bucket] = next;
    return next + here;
  }
};

template <class Key, class Value>
struct alignas(sizeof(Key) + sizeof(Value)) Pair {  // one access of shared memory
  Key key;
  Value value;
};

/// The shared memory of scatter_tiles.
template <class Shape, class Key, class Value, class Buckets>
struct TileMemory {
  union Turns {
    GroupCounts<Shape> counts;
    Key keys[Shape::kTile];
    std::conditional_t<is_value<Value>, Value, Key> values[Shape::kTile];
  };
  union Pairs {
    GroupCounts<Shape> counts;
    Pair<Key, Value> pairs[Shape::kTile];
  };
  std::conditional_t<Shape::kThrough == Through::pairs, Pairs, Turns> through;
  uint64_t out_begins[kMostBuckets];  // where slot 0 would go in `out` if it belonged to the bucket
  uint32_t sums[Shape::kThreads / kLanes];
  uint8_t bucket_of_slot[Buckets::kKept ? Shape::kTile : 1];
};

// A block groups a tile. A group of threads has consecutive tuples, and its rows are ranked one after the other.
template <bool full, class Shape, class Key, class Value, class Buckets>
__device__ __forceinline__ void scatter_tile(TileMemory<Shape, Key, Value, Buckets>& memory, const Run<Key, Value>& in,
                                             uint64_t tile, const Buckets& buckets, const SplitCounts& counts, Key* out_keys,
                                             Value* out_values) {
  constexpr unsigned kItems = Shape::kItems, kRow = Shape::kRow;
  constexpr bool kPairs = Shape::kThrough == Through::pairs;
  static_assert(!kPairs || is_value<Value>);
  const uint64_t tile_begin = tile * Shape::kTile;
  const unsigned count = full ? Shape::kTile : static_cast<unsigned>(in.size - tile_begin);
  const unsigned group = threadIdx.x / kRow, first = group * kRow * kItems + threadIdx.x % kRow;
  // This thread reads the tile's tuples first + i * kRow, and writes those in slots threadIdx.x + i * kThreads. What is
  // left of the tile behind the first of them: comparing i alone with that keeps 2 * kItems sums out of registers.
  const unsigned left = first < count ? count - first : 0, left_to_write = threadIdx.x < count ? count - threadIdx.x : 0;

  Key keys[kItems];
  const Key* const in_keys = in.keys + tile_begin + first;
#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) {
    keys[i] = full || i * kRow < left ? buckets.written(load_once(in_keys + i * kRow)) : Key{0};
  }
  Packed<kItems, 8> bucket;
  if constexpr (Buckets::kKept) {
    const uint32_t* const words = counts.kept + tile_begin / 4 + group * (kRow * kItems / 4) + threadIdx.x % kRow;
#pragma unroll
    for (unsigned w = 0; w < bucket.kWords; ++w) {
      bucket.set_word(w, full || w * 4 * kRow < left ? load_once(words + w * kRow) : 0);
    }
  }
  // Lanes without a tuple are last in the last bucket.
  const auto bucket_of = [&](unsigned i) {
    if (!full && i * kRow >= left) return kMostBuckets - 1;
    if constexpr (Buckets::kKept) {
      return bucket[i];
    } else {
      return buckets.of(keys[i]);
    }
  };

  // Counts are known already: the tile's next ones less its own.
  uint64_t out_begin = 0;
  uint32_t size = 0;
  if (threadIdx.x < counts.buckets) {
    const auto chunk = static_cast<uint32_t>(tile) / counts.tiles_in_chunk;
    const bool last = tile + 1 == counts.tiles || static_cast<uint32_t>(tile) + 1 == (chunk + 1) * counts.tiles_in_chunk;
    const uint64_t at = tile * counts.buckets + threadIdx.x, in_chunk = uint64_t{chunk} * counts.buckets + threadIdx.x;
    const uint32_t before = counts.before_tile[at];
    size = (last ? counts.in_chunk[in_chunk] : counts.before_tile[at + counts.buckets]) - before;
    out_begin = counts.bucket_begins[threadIdx.x] + counts.before_chunk[in_chunk] + before;
  }
  GroupCounts<Shape>& groups = memory.through.counts;
  groups.clear(group);
  unsigned next = sum_before<Shape::kThreads>(size, memory.sums);
  if (threadIdx.x < kMostBuckets) memory.out_begins[threadIdx.x] = out_begin - next;

  // Places within the bucket, among the group's tuples.
  Packed<kItems, 16> slot;
#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) slot.set(i, groups.add_row(group, bucket_of(i)));
  std::conditional_t<is_value<Value>, Value, char> values[is_value<Value> ? kItems : 1];
  const auto load_values = [&] {
    if constexpr (is_value<Value>) {
      if (in.values) {
        const Value* const in_values = in.values + tile_begin + first;
#pragma unroll
        for (unsigned i = 0; i < kItems; ++i) values[i] = full || i * kRow < left ? load_once(in_values + i * kRow) : Value{0};
      } else {
        const auto value = static_cast<Value>(in.first_value + tile_begin + first);
#pragma unroll
        for (unsigned i = 0; i < kItems; ++i) values[i] = value + i * kRow;
      }
    }
  };
  if constexpr (kPairs) load_values();
  __syncthreads();
  // Counts become slots: bucket after bucket, and in a bucket one group's tuples after the other's.
  if (threadIdx.x < kMostBuckets) {
#pragma unroll 8
    for (unsigned g = 0; g < Shape::kGroups; ++g) next = groups.place(g, threadIdx.x, next);
  }
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) slot.set(i, slot[i] + groups.of[group][bucket_of(i)]);
  __syncthreads();  // the tuples take the place of the counts

#pragma unroll
  for (unsigned i = 0; i < kItems; ++i) {
    if constexpr (kPairs) {
      memory.through.pairs[slot[i]] = {keys[i], values[i]};
    } else {
      memory.through.keys[slot[i]] = keys[i];
    }
    if constexpr (Buckets::kKept) memory.bucket_of_slot[slot[i]] = static_cast<uint8_t>(bucket_of(i));
  }
  __syncthreads();
  const auto out_bucket_of = [&](unsigned row, Key key) -> unsigned {
    if constexpr (Buckets::kKept) {
      return memory.bucket_of_slot[threadIdx.x + row];
    } else {
      return buckets.of(key);
    }
  };
  if constexpr (kPairs) {
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      const unsigned row = i * Shape::kThreads;
      if (!full && row >= left_to_write) continue;
      const Pair<Key, Value> pair = memory.through.pairs[threadIdx.x + row];
      const uint64_t to = memory.out_begins[out_bucket_of(row, pair.key)] + row;
      (out_keys + threadIdx.x)[to] = pair.key;
      (out_values + threadIdx.x)[to] = pair.value;
    }
  } else {
    load_values();  // they are under way while the keys are written
    Packed<kItems, 8> out_bucket;
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      const unsigned row = i * Shape::kThreads;
      if (!full && row >= left_to_write) continue;
      const Key key = memory.through.keys[threadIdx.x + row];
      const unsigned b = out_bucket_of(row, key);
      (out_keys + threadIdx.x)[memory.out_begins[b] + row] = key;
      if constexpr (is_value<Value>) out_bucket.set(i, b);
    }
    if constexpr (is_value<Value>) {
      __syncthreads();
#pragma unroll
      for (unsigned i = 0; i < kItems; ++i) memory.through.values[slot[i]] = values[i];
      __syncthreads();
#pragma unroll
      for (unsigned i = 0; i < kItems; ++i) {
        const unsigned row = i * Shape::kThreads;
        if (!full && row >= left_to_write) continue;
        (out_values + threadIdx.x)[memory.out_begins[out_bucket[i]] + row] = memory.through.values[threadIdx.x + row];
      }
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
  count_tiles<Shape::kRow><<<static_cast<unsigned>(counts.chunks), kCountThreads, 0, on>>>(in.keys, in.size, buckets, counts);
  check_launch("count_tiles");
  place_tiles(counts, offsets, on, device_name);
  using ToScatter = BucketsToScatter<Key, Buckets>;
  constexpr size_t bytes = sizeof(TileMemory<Shape, Key, Value, ToScatter>);
  const auto scatter = scatter_tiles<Shape, Key, Value, ToScatter>;
  GPU_CHECK(device_name, gpu_allow_shared_memory(scatter, bytes));
  const auto blocks = static_cast<unsigned>(counts.tiles);
  if constexpr (Buckets::kKept) {
    scatter<<<blocks, Shape::kThreads, bytes, on>>>(in, ToScatter{buckets.flip}, counts, out_keys, out_values);
  } else {
    scatter<<<blocks, Shape::kThreads, bytes, on>>>(in, buckets, counts, out_keys, out_values);
  }
  check_launch("scatter_tiles");
}

/// The same for a digit of the key, of at most 8 bits, and counts of ShapeOf<Key, Value>::kTile (instantiated in partition.cu).
template <class Key, class Value>
void split_by_digit(const Run<Key, Value>& in, Digit digit, const SplitCounts& counts, Key* out_keys, Value* out_values,
                    uint64_t* offsets, gpu_stream_t on, const std::string& device_name);

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
