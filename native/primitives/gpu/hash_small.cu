// Hash joins with small build sides: one table, in device memory, that the second-level cache holds. The probe side is neither
// grouped nor, unless its rows are kept, copied.
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/hash_lookup.h"
#include "primitives/gpu/hash_tuning.h"

namespace warpjoin {

namespace gpu {
namespace {

constexpr unsigned kProbes = 2;  // of a thread, under way: the more threads the better
constexpr unsigned kMostBlocks = 16384;

unsigned probe_blocks(uint64_t rows) {
  constexpr uint64_t kBlockRows = kThreads * kProbes;
  return static_cast<unsigned>(std::clamp<uint64_t>((rows + kBlockRows - 1) / kBlockRows, 1, kMostBlocks));
}

/// Four at least: an empty slot's hash must not be that of a tuple which gets there past all other slots.
constexpr uint64_t small_slots(uint64_t build_rows) { return std::bit_ceil(std::max<uint64_t>(2 * build_rows, 4)); }

/// Open addressing, half full. What is stored by hash: a build tuple's value, or its row.
template <class Key, class Stored>
struct SmallTable {
  using Entry = HashTuple<Key, Stored>;
  Entry* slots;
  unsigned bits;

  __device__ uint32_t slot_of(Key hash) const { return top_bits(hash, bits); }
  __device__ uint32_t next(uint32_t slot) const { return (slot + 1) & ((1u << bits) - 1); }
  /// The hash in a slot that is empty: of the slot behind it, so that no tuple's is there.
  __device__ Key empty(uint32_t slot) const { return static_cast<Key>(Key{next(slot)} << (key_bits<Key> - bits)); }

  __device__ Entry entry(uint32_t slot) const { return slots[slot]; }
  /// Goes on from what its own slot holds. Whether a build tuple has the hash; then `entry` is what is stored of it.
  __device__ bool find(Key hash, Entry& entry) const {
    for (uint32_t slot = slot_of(hash); entry.hash != hash; entry = slots[slot]) {
      if (entry.hash == empty(slot)) return false;
      slot = next(slot);
    }
    return true;
  }
};

template <class Key, class Stored>
__global__ void clear_slots(SmallTable<Key, Stored> table) {
  for (uint64_t i = loop_begin(); i < uint64_t{1} << table.bits; i += loop_step()) {
    table.slots[i].hash = table.empty(static_cast<uint32_t>(i));
  }
}

template <bool rows, class Key, class Stored>
__global__ void insert_build(SmallTable<Key, Stored> table, HashTuples build, uint32_t size, uint32_t* crowded) {
  using Word = std::conditional_t<sizeof(Key) == 8, unsigned long long, unsigned>;
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) {
    const Key hash = build.hash<Key>(i);
    for (uint32_t slot = table.slot_of(hash);; slot = table.next(slot)) {
      const Key empty = table.empty(slot);
      const auto there = static_cast<Key>(
          atomicCAS(reinterpret_cast<Word*>(&table.slots[slot].hash), static_cast<Word>(empty), static_cast<Word>(hash)));
      if (there == hash) {
        *crowded = 1;  // twice
        break;
      }
      if (there != empty) continue;
      if constexpr (rows) {
        table.slots[slot].value = static_cast<Stored>(i);
      } else {
        table.slots[slot].value = build.value<Stored>(i);
      }
      break;
    }
  }
}

template <class Key>
__global__ void __launch_bounds__(kThreads)
    keep_small(SmallTable<Key, uint32_t> table, const Key* keys, uint64_t size, const uint32_t* crowded, uint32_t* first_match,
               uint8_t* matched, uint32_t* table_matches) {
  if (*crowded) {
    for (uint64_t row = loop_begin(); first_match && row < size; row += loop_step()) first_match[row] = kNoRow;
    return;
  }
  uint32_t matches = 0;
  for (uint64_t first = uint64_t{blockIdx.x} * kThreads * kProbes + threadIdx.x; first < size; first += loop_step() * kProbes) {
    Key hashes[kProbes];
    typename SmallTable<Key, uint32_t>::Entry entries[kProbes];
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = first + i * kThreads;
      hashes[i] = hash_key(load_once(keys + (row < size ? row : first)));
    }
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) entries[i] = table.entry(table.slot_of(hashes[i]));
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = first + i * kThreads;
      if (row >= size) break;
      const bool match = table.find(hashes[i], entries[i]);
      if (first_match) first_match[row] = match ? entries[i].value : kNoRow;
      if (!match) continue;
      ++matches;
      if (!matched[entries[i].value]) matched[entries[i].value] = 1;
    }
  }
  add_of_block(table_matches, matches);
}

// A block reserves room for all that it finds in a stretch.
template <class Key, class BuildValue, class ProbeValue>
__global__ void __launch_bounds__(kThreads, 2048 / kThreads)
    write_small(SmallTable<Key, BuildValue> table, Run<Key, ProbeValue> probe, const uint32_t* crowded,
                PairColumns<Key, BuildValue, ProbeValue> out, unsigned long long most, unsigned long long* written) {
  constexpr unsigned kGroups = kThreads / kLanes;
  __shared__ unsigned counts[kGroups];
  __shared__ unsigned long long reserved;
  if (*crowded) return;
  for (uint64_t tile = uint64_t{blockIdx.x} * kThreads * kProbes; tile < probe.size; tile += loop_step() * kProbes) {
    HashTuple<Key, ProbeValue> tuples[kProbes];
    HashTuple<Key, BuildValue> entries[kProbes];
    const uint64_t first = tile + threadIdx.x / kLanes * kLanes * kProbes + lane();
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = first + i * kLanes < probe.size ? first + i * kLanes : tile;
      tuples[i].hash = hash_key(load_once(probe.keys + row));
      tuples[i].value = probe.values ? load_once(probe.values + row) : static_cast<ProbeValue>(probe.first_value + row);
    }
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) entries[i] = table.entry(table.slot_of(tuples[i].hash));
    LaneMask found[kProbes];
    unsigned count = 0;
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      found[i] = ballot(first + i * kLanes < probe.size && table.find(tuples[i].hash, entries[i]));
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
      if (found[i] >> lane() & 1) out.write(at + popcount(found[i] & lanes_below()), tuples[i], entries[i].value);
      at += popcount(found[i]);
    }
  }
}

}  // namespace

uint64_t small_table_bytes(uint64_t build_rows, uint32_t entry_bytes) {
  const uint64_t bytes = small_slots(build_rows) * entry_bytes;
  return bytes <= hash_tuning.small_table_bytes ? bytes : 0;
}

}  // namespace gpu

using gpu::GpuHashMatch;
using gpu::kThreads;

namespace {

template <class Key, class Stored>
gpu::SmallTable<Key, Stored> table_of(const GpuHashMatch& match) {
  const auto bits = static_cast<unsigned>(std::countr_zero(gpu::small_slots(match.build.size)));
  return {reinterpret_cast<gpu::HashTuple<Key, Stored>*>(match.small_table), bits};
}

}  // namespace

void GpuPrimitives::build_small(GpuHashMatch& match, gpu_stream_t on) {
  const auto build = [&]<bool rows>(const auto& table) {
    gpu::clear_slots<<<gpu::loop_blocks(uint64_t{1} << table.bits), kThreads, 0, on>>>(table);
    check_launch("clear_slots");
    gpu::insert_build<rows>
        <<<gpu::loop_blocks(match.build.size), kThreads, 0, on>>>(table, match.build.tuples, match.build.size, match.crowded);
    check_launch("insert_build");
  };
  if (match.written()) {
    gpu::with_values(match, [&]<class Key, class BuildValue, class ProbeValue>(Key, BuildValue, ProbeValue) {
      build.template operator()<false>(table_of<Key, BuildValue>(match));
    });
  } else {
    gpu::with_key(match.build.layout, [&]<class Key>(Key) { build.template operator()<true>(table_of<Key, uint32_t>(match)); });
  }
}

void GpuPrimitives::match_small(GpuHashMatch& match, gpu_stream_t on) {
  if (match.written()) {
    gpu::with_values(match, [&]<class Key, class BuildValue, class ProbeValue>(Key, BuildValue, ProbeValue) {
      const auto table = table_of<Key, BuildValue>(match);
      for (const TupleView& fragment : match.probe_fragments) {
        gpu::write_small<<<gpu::probe_blocks(fragment.size), kThreads, 0, on>>>(
            table, gpu::Run<Key, ProbeValue>(fragment), match.crowded, gpu::PairColumns<Key, BuildValue, ProbeValue>(match.out),
            match.most_written, &match.counts->by_table);
        check_launch("write_small");
      }
    });
  } else {
    gpu::with_key(match.build.layout, [&]<class Key>(Key) {
      const auto table = table_of<Key, uint32_t>(match);
      uint32_t* first_match = match.first_match;
      for (const TupleView& fragment : match.probe_fragments) {
        gpu::keep_small<<<gpu::probe_blocks(fragment.size), kThreads, 0, on>>>(table, static_cast<const Key*>(fragment.keys),
                                                                               fragment.size, match.crowded, first_match,
                                                                               match.matched, match.table_matches);
        check_launch("keep_small");
        if (first_match) first_match += fragment.size;
      }
    });
  }
}

}  // namespace warpjoin
