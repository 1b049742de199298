// Hash joins with small build sides: one table, in device memory, that the second-level cache holds. The probe side is neither
// grouped nor, unless its rows are kept, copied.
//
// The table is a cuckoo hash table: a tuple is in one of two buckets, of a sector each (Pagh and Rodler 2001; with buckets,
// Dietzfelbinger and Weidling 2007; on GPUs, Alcantara et al. 2009). A large one is four fifths full: the smaller it is the
// more of it stays in the cache, beside what streams through. And the fewer requests the cache has to serve the better: two
// lanes load a bucket together, which is one, and exchange the halves.
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/hash_lookup.h"
#include "primitives/gpu/hash_tuning.h"

namespace warpjoin {

namespace gpu {
inline namespace WARPJOIN_BLOCKS {
namespace {

constexpr unsigned kProbes = 2;  // of a thread, under way
constexpr unsigned kMostBlocks = 16384;
constexpr unsigned kMostMoves = 500;  // until a tuple has a place: far more than random hashes need
constexpr uint64_t kSpareSlots = 128;
constexpr uint32_t kNoBucket = ~uint32_t{0};
constexpr uint32_t kMatched = uint32_t{1} << 31;  // in a build row that is stored, which has fewer bits

unsigned probe_blocks(uint64_t rows) {
  constexpr uint64_t kBlockRows = kThreads * kProbes;
  return static_cast<unsigned>(std::clamp<uint64_t>((rows + kBlockRows - 1) / kBlockRows, 1, kMostBlocks));
}

/// What a lane loads of the bucket that it looks into, and of the one that its partner does.
struct BucketHalves {
  ulonglong2 own, partners;
};

/// What is stored by hash: a build tuple's value, or its row.
template <class Key, class Stored>
struct SmallTable {
  using Entry = HashTuple<Key, Stored>;
  static constexpr unsigned kHalf = sizeof(ulonglong2) / sizeof(Entry), kBucket = 2 * kHalf;  // entries
  Entry* slots;
  uint32_t buckets;

  __device__ uint32_t first(Key hash) const { return __umulhi(static_cast<uint32_t>(hash >> (key_bits<Key> - 32)), buckets); }
  __device__ uint32_t second(Key hash) const {
    return first(static_cast<Key>(hash << (key_bits<Key> / 2) | hash >> (key_bits<Key> / 2)));
  }
  __device__ uint32_t other(Key hash, uint32_t than) const { return first(hash) == than ? second(hash) : first(hash); }
  /// The hash in an empty slot, of a tuple that is nowhere near: both buckets of 0 are the first one, and of ~0 the last.
  __device__ static Key empty(uint32_t bucket) { return bucket ? 0 : static_cast<Key>(~Key{0}); }
  /// Notes with a build row, which is stored, that it has a match.
  __device__ void mark_matched(Key hash, Stored row) const {
    for (const uint32_t bucket : {first(hash), second(hash)}) {
      for (uint64_t slot = uint64_t{bucket} * kBucket; slot < uint64_t{bucket + 1} * kBucket; ++slot) {
        if (slots[slot].hash == hash) slots[slot].value = row | kMatched;
      }
    }
  }

  // All lanes call these together.

  __device__ BucketHalves load(uint32_t bucket) const {
    const auto* halves = reinterpret_cast<const ulonglong2*>(slots) + lane() % 2;
    const uint32_t partners = shuffle(bucket, lane() ^ 1);
    BucketHalves loaded{};
    if (bucket != kNoBucket) loaded.own = halves[2 * bucket];
    if (partners != kNoBucket) loaded.partners = halves[2 * partners];
    return loaded;
  }
  /// Goes on from the hash's first bucket. Whether a build tuple has the hash; then `stored` is what is stored of it.
  __device__ bool find(Key hash, const BucketHalves& loaded, Stored& stored) const {
    bool full = true, match = false;
    look(loaded, [&](const Entry& entry) {
      if (entry.hash == empty(first(hash))) full = false;
      if (entry.hash != hash) return;
      match = true;
      stored = entry.value;
    });
    const bool elsewhere = full && !match;
    if (ballot(elsewhere) == 0) return match;
    look(load(elsewhere ? second(hash) : kNoBucket), [&](const Entry& entry) {
      if (!elsewhere || entry.hash != hash) return;
      match = true;
      stored = entry.value;
    });
    return match;
  }

 private:
  template <class F>
  __device__ static void look(const BucketHalves& loaded, F&& f) {
    const ulonglong2 halves[] = {loaded.own, {shuffle(loaded.partners.x, lane() ^ 1), shuffle(loaded.partners.y, lane() ^ 1)}};
    Entry entries[kBucket];
    memcpy(entries, halves, sizeof(entries));
#pragma unroll
    for (const Entry& entry : entries) f(entry);
  }
};

/// Gives each build row one of its buckets' slots. Where all are taken, a row gives way, and goes to its other bucket.
template <class Key, class Stored>
__global__ void place_build(SmallTable<Key, Stored> table, uint32_t* rows, HashTuples build, uint32_t size, uint32_t* crowded) {
  constexpr unsigned kBucket = SmallTable<Key, Stored>::kBucket;
  const auto take_empty = [&](uint32_t bucket, uint32_t row) {
    for (uint32_t* slot = rows + uint64_t{bucket} * kBucket; slot < rows + uint64_t{bucket + 1} * kBucket; ++slot) {
      if (*slot == kNoRow && atomicCAS(slot, kNoRow, row) == kNoRow) return true;
    }
    return false;
  };
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) {
    auto row = static_cast<uint32_t>(i);
    Key hash = build.hash<Key>(row);
    uint32_t bucket = table.first(hash);
    if (take_empty(bucket, row) || take_empty(table.second(hash), row)) continue;
    for (unsigned moves = 0; !*static_cast<volatile uint32_t*>(crowded); ++moves) {
      const Key placed = hash;
      row = atomicExch(rows + uint64_t{bucket} * kBucket + (hash + moves) % kBucket, row);
      hash = build.hash<Key>(row);
      if (hash == placed || moves == kMostMoves) *crowded = 1;
      bucket = table.other(hash, bucket);
      if (take_empty(bucket, row)) break;
    }
  }
}

/// Fills the slots that rows were given, and looks for keys that are there twice.
template <bool rows_stored, class Key, class Stored>
__global__ void fill_slots(SmallTable<Key, Stored> table, const uint32_t* rows, HashTuples build, uint32_t* crowded) {
  using Table = SmallTable<Key, Stored>;
  for (uint64_t i = loop_begin(); i < uint64_t{table.buckets} * Table::kBucket; i += loop_step()) {
    const uint32_t row = rows[i];
    typename Table::Entry entry{};
    if (row == kNoRow) {
      entry.hash = Table::empty(static_cast<uint32_t>(i / Table::kBucket));
    } else {
      entry.hash = build.hash<Key>(row);
      if constexpr (rows_stored) {
        entry.value = static_cast<Stored>(row);
      } else {
        entry.value = build.value<Stored>(row);
      }
      for (const uint32_t bucket : {table.first(entry.hash), table.second(entry.hash)}) {
#pragma unroll
        for (unsigned slot = 0; slot < Table::kBucket; ++slot) {
          const uint32_t there = rows[uint64_t{bucket} * Table::kBucket + slot];
          if (there != kNoRow && there != row && build.hash<Key>(there) == entry.hash) *crowded = 1;
        }
      }
    }
    store_tuple(table.slots + i, entry);
  }
}

// Null for tuples that are only counted: `tuples` and `first_match`.
template <class Key, class Value>
__global__ void __launch_bounds__(kThreads)
    keep_small(SmallTable<Key, uint32_t> table, Run<Key, Value> probe, const uint32_t* crowded, HashTuple<Key, Value>* tuples,
               uint32_t* first_match, bool marks, uint32_t* table_matches) {
  if (*crowded) {
    for (uint64_t row = loop_begin(); first_match && row < probe.size; row += loop_step()) first_match[row] = kNoRow;
    return;
  }
  uint32_t matches = 0;
  for (uint64_t tile = uint64_t{blockIdx.x} * kThreads * kProbes; tile < probe.size; tile += loop_step() * kProbes) {
    HashTuple<Key, Value> own[kProbes];
    BucketHalves loaded[kProbes];
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      uint64_t row = tile + i * kThreads + threadIdx.x;
      if (row >= probe.size) row = tile;
      own[i].hash = hash_key(load_once(probe.keys + row));
      if constexpr (is_value<Value>) {
        own[i].value = probe.values ? load_once(probe.values + row) : static_cast<Value>(probe.first_value + row);
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) loaded[i] = table.load(table.first(own[i].hash));
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = tile + i * kThreads + threadIdx.x;
      uint32_t build_row;
      const bool match = table.find(own[i].hash, loaded[i], build_row);
      if (row < probe.size) {
        if (first_match) {
          first_match[row] = match ? build_row & ~kMatched : kNoRow;
          store_tuple(tuples + row, own[i]);
        }
        matches += match;
        if (marks && match && !(build_row & kMatched)) table.mark_matched(own[i].hash, build_row);
      }
    }
  }
  add_of_block(table_matches, matches);
}

/// Brings what is noted in the table to the build rows.
template <class Key>
__global__ void mark_build(SmallTable<Key, uint32_t> table, uint8_t* matched) {
  for (uint64_t i = loop_begin(); i < uint64_t{table.buckets} * table.kBucket; i += loop_step()) {
    const uint32_t row = table.slots[i].value;
    if (row & kMatched) matched[row & ~kMatched] = 1;
  }
}

// A block reserves room for all that it finds in a tile. Rows are counted from it, in 32 bits.
template <class Key, class BuildValue, class ProbeValue>
__global__ void __launch_bounds__(kThreads, 1536 / kThreads)
    write_small(SmallTable<Key, BuildValue> table, Run<Key, ProbeValue> probe, const uint32_t* crowded,
                PairColumns<Key, BuildValue, ProbeValue> out, unsigned long long most, unsigned long long* written) {
  constexpr unsigned kGroups = kThreads / kLanes, kTile = kThreads * kProbes;
  __shared__ unsigned counts[kGroups];
  __shared__ unsigned long long reserved;
  if (*crowded) return;
  const unsigned first = threadIdx.x / kLanes * kLanes * kProbes + lane();
  for (uint64_t tile = uint64_t{blockIdx.x} * kTile; tile < probe.size; tile += uint64_t{gridDim.x} * kTile) {
    const unsigned rows = probe.size - tile < kTile ? static_cast<unsigned>(probe.size - tile) : kTile;
    HashTuple<Key, ProbeValue> tuples[kProbes];
    BucketHalves loaded[kProbes];
    BuildValue build_values[kProbes];
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const unsigned row = first + i * kLanes < rows ? first + i * kLanes : 0;
      tuples[i].hash = hash_key(load_once(probe.keys + tile + row));
      tuples[i].value =
          probe.values ? load_once(probe.values + tile + row) : static_cast<ProbeValue>(probe.first_value + tile + row);
    }
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) loaded[i] = table.load(table.first(tuples[i].hash));
    LaneMask found[kProbes];
    unsigned count = 0;
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const bool match = table.find(tuples[i].hash, loaded[i], build_values[i]);
      found[i] = ballot(match && first + i * kLanes < rows);
      count += popcount(found[i]);
    }
    if (lane() == 0) counts[threadIdx.x / kLanes] = count;
    __syncthreads();
    unsigned before = 0, all = 0;
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
      if (g < threadIdx.x / kLanes) before += counts[g];
      all += counts[g];
    }
    if (threadIdx.x == 0) reserved = atomicAdd(written, static_cast<unsigned long long>(all));
    __syncthreads();
    if (reserved + all > most) continue;
    unsigned long long at = reserved + before;
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      if (found[i] >> lane() & 1) out.write(at + popcount(found[i] & lanes_below()), tuples[i], build_values[i]);
      at += popcount(found[i]);
    }
  }
}

}  // namespace

/// Full buckets, and some more than tuples: few easily have the same few buckets. The emptier they are the fewer lanes look
/// into a second one. Never fewer for more rows: memory is planned for the most that there may be.
uint64_t small_table_slots(uint64_t build_rows, uint32_t entry_bytes) {
  const uint64_t fewest = build_rows + build_rows / 4 + kSpareSlots;
  if (fewest * entry_bytes > hash_tuning.small_table_bytes) return 0;
  return std::max(fewest, std::min(4 * build_rows, hash_tuning.sparse_table_slots)) / 4 * 4;
}

uint64_t most_small_rows(uint32_t entry_bytes) {
  const uint64_t slots = hash_tuning.small_table_bytes / entry_bytes;
  const uint64_t filled = slots - std::min(slots, kSpareSlots);
  return filled / 5 * 4 + std::min<uint64_t>(filled % 5, 3);
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace gpu

using gpu::GpuHashMatch;
using gpu::kThreads;

namespace {

template <class Key, class Stored>
gpu::SmallTable<Key, Stored> table_of(const gpu::BuildSide& build) {
  using Table = gpu::SmallTable<Key, Stored>;
  return {reinterpret_cast<typename Table::Entry*>(build.small_table), static_cast<uint32_t>(build.small_slots / Table::kBucket)};
}

}  // namespace

/// `match`: that writes pairs as it finds them, if there is one.
void GpuPrimitives::build_small(gpu::BuildSide& build, gpu_stream_t on, const GpuHashMatch* match) {
  GPU_CHECK(id_.name, gpu_memset_async(build.small_rows, 0xFF, build.small_slots * sizeof(uint32_t), on));
  const auto fill = [&]<bool rows_stored>(const auto& table) {
    gpu::place_build<<<build.size / kThreads + 1, kThreads, 0, on>>>(table, build.small_rows, build.tuples, build.size,
                                                                     build.crowded);
    check_launch("place_build");
    gpu::fill_slots<rows_stored>
        <<<gpu::loop_blocks(build.small_slots), kThreads, 0, on>>>(table, build.small_rows, build.tuples, build.crowded);
    check_launch("fill_slots");
  };
  if (match && match->written()) {
    gpu::with_values(*match, [&]<class Key, class BuildValue, class ProbeValue>(Key, BuildValue, ProbeValue) {
      fill.template operator()<false>(table_of<Key, BuildValue>(build));
    });
  } else {
    gpu::with_key(build.layout, [&]<class Key>(Key) { fill.template operator()<true>(table_of<Key, uint32_t>(build)); });
  }
}

void GpuPrimitives::match_small(GpuHashMatch& match, gpu_stream_t on) {
  if (match.written()) {
    gpu::with_values(match, [&]<class Key, class BuildValue, class ProbeValue>(Key, BuildValue, ProbeValue) {
      const auto table = table_of<Key, BuildValue>(match.build);
      for (const TupleView& fragment : match.probe_fragments) {
        gpu::write_small<<<gpu::probe_blocks(fragment.size), kThreads, 0, on>>>(
            table, gpu::Run<Key, ProbeValue>(fragment), match.build.crowded,
            gpu::PairColumns<Key, BuildValue, ProbeValue>(match.out), match.most_written, &match.counts->by_table);
        check_launch("write_small");
      }
    });
  } else {
    gpu::with_layout(match.probe.layout, [&]<class Key, class Value>(Key, Value) {
      const auto table = table_of<Key, uint32_t>(match.build);
      auto* tuples = reinterpret_cast<gpu::HashTuple<Key, Value>*>(match.probe.tuples.data);
      uint32_t* first_match = match.first_match;
      for (const TupleView& fragment : match.probe_fragments) {
        gpu::keep_small<<<gpu::probe_blocks(fragment.size), kThreads, 0, on>>>(
            table, gpu::Run<Key, Value>(fragment), match.build.crowded, tuples, first_match, match.build.matched != nullptr,
            match.table_matches);
        check_launch("keep_small");
        if (!first_match) continue;
        first_match += fragment.size;
        tuples += fragment.size;
      }
      if (!match.build.matched) return;
      gpu::mark_build<<<gpu::loop_blocks(match.build.small_slots), kThreads, 0, on>>>(table, match.build.matched);
      check_launch("mark_build");
    });
  }
}

}  // namespace warpjoin
