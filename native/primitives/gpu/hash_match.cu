// Hash joins of relations in device memory, after "Efficiently Processing Joins and Grouped Aggregations on GPUs" (PHJ) in
// outline: both sides are grouped by the topmost bits of their hashes, then each partition's build tuples go into a table in
// shared memory, which its probe tuples look their match up in.
//
//   hash_split    groups a side, in one pass
//   match_tasks   tasks: some of the probe tuples of a partition each
//   match_tables  a block builds the table of a task's partition and probes it
//   count_...     what each tile of rows adds to the result
//
// A table has one place for a key and holds row numbers with some bits of the hash: what these let through is compared in
// device memory. Partitions that do not fit, or have a key twice, are left over ("crowded"). Once the host knows how many of
// their tuples there are, these are sorted, all at once, and probed by binary search: one key everywhere costs a sort.
#include <bit>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/hash_match.h"
#include "primitives/gpu/hash_split.h"
#include "primitives/gpu/radix_sort.h"
#include "primitives/gpu/scan.h"
#include "primitives/host/blocks.h"

namespace warpjoin {

using gpu::GpuHashMatch;
using gpu::HashTuples;
using gpu::kEmitTile;
using gpu::kLanes;
using gpu::kNoRow;
using gpu::kThreads;

namespace gpu {
namespace {

#if defined(WARPJOIN_HIP)
constexpr unsigned kSlotBits = 13, kMatchThreads = 512;
#else
constexpr unsigned kSlotBits = 15, kMatchThreads = 1024;
#endif
constexpr uint32_t kSlots = 1u << kSlotBits, kMostRows = kSlots / 4 * 3, kUsualRows = kSlots / 2;
constexpr uint64_t kTaskRows = uint64_t{4} << kSlotBits;  // probe tuples
constexpr unsigned kProbes = 4;                           // of a thread, under way
constexpr uint32_t kEmpty = ~uint32_t{0};

unsigned partition_bits(uint64_t build_rows) {
  const uint64_t partitions = (build_rows + kUsualRows - 1) / kUsualRows;
  return std::min<unsigned>(partitions < 2 ? 0 : static_cast<unsigned>(std::bit_width(partitions - 1)), kMostSplitBits);
}

uint64_t most_tasks(uint64_t partitions, uint64_t probe_rows) { return partitions + probe_rows / kTaskRows; }

template <class Key>
__device__ uint32_t slot_of(Key hash, unsigned bits) {
  return static_cast<uint32_t>(static_cast<Key>(hash << bits) >> (key_bits<Key> - kSlotBits));
}
/// What a slot holds: the row in the partition, and above it low bits of the hash.
template <class Key>
__device__ uint32_t tag_of(Key hash) {
  return static_cast<uint32_t>(hash) << kSlotBits;
}
__device__ inline bool same_tag(uint32_t word, uint32_t tag) { return ((word ^ tag) >> kSlotBits) == 0; }

__global__ void count_tasks(const uint32_t* offsets, uint64_t partitions, uint32_t* tasks) {
  for (uint64_t p = loop_begin(); p <= partitions; p += loop_step()) {
    tasks[p] = p == partitions ? 0 : static_cast<uint32_t>((offsets[p + 1] - offsets[p] + kTaskRows - 1) / kTaskRows);
  }
}

/// The last index in [0, size) whose number is not greater; numbers ascend from 0.
template <class T>
__device__ uint64_t last_not_above(const T* numbers, uint64_t size, uint64_t number) {
  uint64_t low = 0, high = size;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (numbers[middle] <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Adds a number of each of a block's threads to one in memory.
__device__ void add_of_block(unsigned long long* total, unsigned long long number) {
  __shared__ unsigned long long sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  for (unsigned distance = kLanes / 2; distance > 0; distance /= 2) number += shuffle(number, (lane() + distance) % kLanes);
  if (lane() == 0 && number) atomicAdd(&sum, number);
  __syncthreads();
  if (threadIdx.x == 0 && sum) atomicAdd(total, sum);
  __syncthreads();
}

/// A partition's build tuples.
template <class Key>
struct Table {
  HashTuples tuples;
  uint32_t begin, rows;  // of the partition
  unsigned bits;
  uint32_t* slots;  // shared memory

  __device__ Key hash(uint32_t row) const { return tuples.hash<Key>(uint64_t{begin} + row); }

  /// All threads of the block call it, which synchronizes them. False where a key is there twice.
  __device__ bool build() const {
    for (unsigned s = threadIdx.x; s < kSlots / 4; s += kMatchThreads) {
      reinterpret_cast<uint4*>(slots)[s] = uint4{kEmpty, kEmpty, kEmpty, kEmpty};
    }
    __syncthreads();
    bool twice = false;
    for (uint32_t first = threadIdx.x; first < rows; first += kMatchThreads * kProbes) {
      Key hashes[kProbes];
#pragma unroll
      for (unsigned i = 0; i < kProbes; ++i) {
        if (first + i * kMatchThreads < rows) hashes[i] = hash(first + i * kMatchThreads);
      }
#pragma unroll
      for (unsigned i = 0; i < kProbes; ++i) {
        const uint32_t row = first + i * kMatchThreads;
        if (row >= rows) break;
        const uint32_t tag = tag_of(hashes[i]);
        uint32_t slot = slot_of(hashes[i], bits);
        for (;;) {
          const uint32_t there = atomicCAS(&slots[slot], kEmpty, tag | row);
          if (there == kEmpty) break;
          if (same_tag(there, tag) && hash(there % kSlots) == hashes[i]) {
            twice = true;
            break;
          }
          slot = (slot + 1) % kSlots;
        }
      }
    }
    return !__syncthreads_or(twice);
  }

  /// The next slot from `slot` on whose tag is the hash's; kSlots: there is none.
  __device__ uint32_t candidate(uint32_t slot, uint32_t tag) const {
    for (;; slot = (slot + 1) % kSlots) {
      const uint32_t word = slots[slot];
      if (word == kEmpty) return kSlots;
      if (same_tag(word, tag)) return slot;
    }
  }

  /// The rows in the partition that have the hashes, or kNoRow.
  __device__ void find(const Key* hashes, uint32_t* found) const {
    uint32_t slot[kProbes];
    Key there[kProbes];
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) slot[i] = candidate(slot_of(hashes[i], bits), tag_of(hashes[i]));
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      found[i] = slot[i] == kSlots ? kNoRow : slots[slot[i]] % kSlots;
      if (found[i] != kNoRow) there[i] = hash(found[i]);
    }
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      while (found[i] != kNoRow && there[i] != hashes[i]) {
        slot[i] = candidate((slot[i] + 1) % kSlots, tag_of(hashes[i]));
        found[i] = slot[i] == kSlots ? kNoRow : slots[slot[i]] % kSlots;
        if (found[i] != kNoRow) there[i] = hash(found[i]);
      }
    }
  }
};

struct MatchArguments {
  HashTuples build, probe;
  const uint32_t *build_offsets, *probe_offsets, *tasks_before;
  uint64_t partitions;
  unsigned bits;
  uint32_t *first_match, *crowded;
  uint8_t* matched;
  MatchCounts* counts;
  JoinOutput out;
  uint64_t most_written;
};

__device__ inline uint64_t partition_of_task(const MatchArguments& to) {
  // Mostly each partition is one task.
  const uint32_t task = blockIdx.x;
  if (task < to.partitions && to.tasks_before[task] == task && to.tasks_before[task + 1] > task) return task;
  return last_not_above(to.tasks_before, to.partitions, task);
}

/// Keeps the matches of probe tuples [begin, end).
template <class Key>
__device__ void keep_matches(const Table<Key>& table, const MatchArguments& to, uint64_t begin, uint64_t end) {
  unsigned long long matches = 0;
  for (uint64_t first = begin + threadIdx.x; first < end; first += kMatchThreads * kProbes) {
    Key hashes[kProbes];
    uint32_t found[kProbes];
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = first + i * kMatchThreads;
      hashes[i] = to.probe.hash<Key>(row < end ? row : first);
    }
    table.find(hashes, found);
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = first + i * kMatchThreads;
      if (row >= end) break;
      if (to.first_match) to.first_match[row] = found[i] == kNoRow ? kNoRow : table.begin + found[i];
      if (found[i] == kNoRow) continue;
      to.matched[table.begin + found[i]] = 1;
      ++matches;
    }
  }
  add_of_block(&to.counts->by_table, matches);
}

/// Writes the pairs of probe tuples [begin, end). Lanes that run in step reserve room for all that they find in a stretch.
template <class Key>
__device__ void write_matches(const Table<Key>& table, const MatchArguments& to, uint64_t begin, uint64_t end) {
  constexpr unsigned kRounds = 4, kRows = kRounds * kProbes, kStretch = kRows * kLanes;
  for (uint64_t stretch = begin + threadIdx.x / kLanes * kStretch; stretch < end; stretch += kMatchThreads * kRows) {
    const auto row_of = [&](unsigned i) { return stretch + i * kLanes + lane(); };
    uint32_t found[kRows];
    unsigned long long count = 0;
#pragma unroll
    for (unsigned round = 0; round < kRounds; ++round) {
      Key hashes[kProbes];
#pragma unroll
      for (unsigned i = 0; i < kProbes; ++i) {
        const uint64_t row = row_of(round * kProbes + i);
        hashes[i] = to.probe.hash<Key>(row < end ? row : begin);
      }
      table.find(hashes, found + round * kProbes);
#pragma unroll
      for (unsigned i = 0; i < kProbes; ++i) {
        uint32_t& match = found[round * kProbes + i];
        if (row_of(round * kProbes + i) >= end) match = kNoRow;
        count += popcount(ballot(match != kNoRow));
      }
    }
    unsigned long long at = 0;
    if (lane() == 0) at = atomicAdd(&to.counts->by_table, count);
    at = shuffle(at, 0);
    if (at + count > to.most_written) continue;
#pragma unroll
    for (unsigned i = 0; i < kRows; ++i) {
      const bool matches = found[i] != kNoRow;
      const LaneMask all = ballot(matches);
      if (matches) {
        const uint64_t out = at + popcount(all & lanes_below());
        write_key<Key>(to.out.keys, out, to.probe, row_of(i));
        write_value(to.out.probe_values, out, to.probe, row_of(i));
        write_value(to.out.build_values, out, to.build, table.begin + found[i]);
      }
      at += popcount(all);
    }
  }
}

// Block t does task t.
template <bool write, class Key>
__global__ void __launch_bounds__(kMatchThreads, 1) match_tables(MatchArguments to) {
  extern __shared__ __align__(16) uint32_t slots[];
  if (blockIdx.x >= to.tasks_before[to.partitions]) return;
  const uint64_t p = partition_of_task(to);
  const uint32_t build_begin = to.build_offsets[p], rows = to.build_offsets[p + 1] - build_begin;
  const Table<Key> table{to.build, build_begin, rows, to.bits, slots};
  if (rows > kMostRows || !table.build()) {
    if (threadIdx.x == 0) to.crowded[p] = 1;
    return;
  }
  const uint64_t last = to.probe_offsets[p + 1], begin = to.probe_offsets[p] + (blockIdx.x - to.tasks_before[p]) * kTaskRows;
  const uint64_t end = begin + kTaskRows < last ? begin + kTaskRows : last;
  if constexpr (write) {
    write_matches(table, to, begin, end);
  } else {
    keep_matches(table, to, begin, end);
  }
}

// --- Crowded partitions -----------------------------------------------------------------------------------------

__global__ void count_crowded(const uint32_t* offsets, const uint32_t* crowded, uint64_t partitions, uint32_t* rows) {
  for (uint64_t p = loop_begin(); p <= partitions; p += loop_step()) {
    rows[p] = p < partitions && crowded[p] ? offsets[p + 1] - offsets[p] : 0;
  }
}

/// The build tuples of crowded partitions, in order: tuple i of them is in partition `p`, row `row` of the build side.
struct Crowd {
  const uint32_t *before, *offsets;
  uint64_t partitions;

  __device__ uint64_t partition(uint64_t i) const { return last_not_above(before, partitions, i); }
  __device__ uint32_t row(uint64_t p, uint64_t i) const { return static_cast<uint32_t>(offsets[p] + (i - before[p])); }
};

template <class Key>
__device__ uint64_t first_not_below(const Key* hashes, uint64_t begin, uint64_t end, Key hash) {
  while (begin < end) {
    const uint64_t middle = begin + (end - begin) / 2;
    if (hashes[middle] < hash) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

template <bool take, class Key, class Value>
__global__ void move_crowd(Crowd crowd, HashTuples tuples, uint64_t size, Key* hashes, Value* values) {
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) {
    const uint32_t row = crowd.row(crowd.partition(i), i);
    if constexpr (take) {
      hashes[i] = tuples.hash<Key>(row);
      if constexpr (is_value<Value>) values[i] = tuples.value<Value>(row);
    } else {
      tuples.set_hash(row, hashes[i]);
      if constexpr (is_value<Value>) tuples.set_value(row, values[i]);
    }
  }
}

__global__ void fill_ones(uint32_t* numbers, uint64_t size) {
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) numbers[i] = 1;
}

template <class Key>
__global__ void count_keys(Crowd crowd, const Key* hashes, uint64_t size, uint32_t* key_rows) {
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) {
    if (i > 0 && hashes[i - 1] == hashes[i]) continue;  // one key is in one partition
    uint64_t last = i, step = 1;                        // the last that is known to be the same
    while (last + step < size && hashes[last + step] == hashes[i]) last += step, step *= 2;
    for (; step > 0; step /= 2) {
      if (last + step < size && hashes[last + step] == hashes[i]) last += step;
    }
    key_rows[crowd.row(crowd.partition(i), i)] = static_cast<uint32_t>(last + 1 - i);
  }
}

template <class Key>
__global__ void __launch_bounds__(kThreads)
    probe_crowd(Crowd crowd, const Key* hashes, HashTuples probe, uint64_t probe_size, unsigned bits, const uint32_t* crowded,
                const uint32_t* key_rows, uint32_t* first_match, uint8_t* matched, MatchCounts* counts) {
  unsigned long long pairs = 0, matches = 0;
  for (uint64_t i = loop_begin(); i < probe_size; i += loop_step()) {
    const Key hash = probe.hash<Key>(i);
    const uint64_t p = top_bits(hash, bits);
    if (!crowded[p]) continue;
    const uint64_t end = crowd.before[p + 1];
    const uint64_t at = first_not_below<Key>(hashes, crowd.before[p], end, hash);
    const bool found = at < end && hashes[at] == hash;
    const uint32_t row = found ? crowd.row(p, at) : kNoRow;
    if (first_match) first_match[i] = row;
    if (!found) continue;
    matched[row] = 1;
    pairs += key_rows[row];
    ++matches;
  }
  add_of_block(&counts->crowded_pairs, pairs);
  add_of_block(&counts->crowded_probe, matches);
}

// All tuples of a key have matched if its first one has.
template <class Key>
__global__ void spread_matched(Crowd crowd, const Key* hashes, uint64_t size, uint8_t* matched) {
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) {
    const uint64_t p = crowd.partition(i);
    const uint64_t first = first_not_below<Key>(hashes, crowd.before[p], i, hashes[i]);
    if (first < i && matched[crowd.row(p, first)]) matched[crowd.row(p, i)] = 1;
  }
}

// --- Counts -----------------------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads) count_matched(const uint8_t* matched, uint64_t size, unsigned long long* count) {
  unsigned long long own = 0;
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) own += matched[i];
  add_of_block(count, own);
}

// Block t counts tile t; behind the last one there is nothing.
__global__ void __launch_bounds__(kThreads)
    count_probe_tiles(const uint32_t* first_match, const uint32_t* key_rows, uint64_t size, uint64_t* pairs, uint64_t* matched) {
  __shared__ unsigned long long sums[2];
  if (threadIdx.x < 2) sums[threadIdx.x] = 0;
  const uint64_t begin = uint64_t{blockIdx.x} * kEmitTile;
  unsigned long long own_pairs = 0, own_matched = 0;
#pragma unroll
  for (unsigned i = 0; i < kEmitTile / kThreads; ++i) {
    const uint64_t row = begin + i * kThreads + threadIdx.x;
    const uint32_t match = row < size ? first_match[row] : kNoRow;
    if (match == kNoRow) continue;
    own_pairs += key_rows ? key_rows[match] : 1;
    ++own_matched;
  }
  add_of_block(&sums[0], own_pairs);
  add_of_block(&sums[1], own_matched);
  if (threadIdx.x == 0) pairs[blockIdx.x] = sums[0];
  if (threadIdx.x == 1) matched[blockIdx.x] = sums[1];
}

__global__ void __launch_bounds__(kThreads) count_build_tiles(const uint8_t* matched, uint64_t size, uint64_t* counts) {
  __shared__ unsigned long long sum;
  if (threadIdx.x == 0) sum = 0;
  const uint64_t begin = uint64_t{blockIdx.x} * kEmitTile;
  unsigned long long own = 0;
  for (unsigned i = threadIdx.x; i < kEmitTile && begin + i < size; i += kThreads) own += matched[begin + i];
  add_of_block(&sum, own);
  if (threadIdx.x == 0) counts[blockIdx.x] = sum;
}

}  // namespace

GpuHashMatch::GpuHashMatch(TupleLayout build_layout, uint64_t build_size, TupleLayout probe_layout, uint64_t probe_size,
                           bool count_only, void* scratch)
    : bits(partition_bits(build_size)), count_only(count_only) {
  for (const uint64_t size : {build_size, probe_size}) {
    if (size >= kNoRow) {
      throw Error(ErrorCode::not_supported, "A hash join of " + std::to_string(size) +
                                                " tuples of one side on one GPU is not supported yet: the most are " +
                                                std::to_string(kNoRow - 1));
    }
  }
  host::Carver carver(scratch);
  const auto take_side = [&](HashSide& side, TupleLayout layout, uint64_t size) {
    side.layout = layout;
    if (count_only) side.layout.value_bytes = 0;
    side.size = static_cast<uint32_t>(size);
    side.tuples = hash_tuples(side.layout, nullptr);
    side.tuples.data = carver.take<char>(size * side.tuples.stride);
    side.offsets = carver.take<uint32_t>(partitions() + 1);
  };
  take_side(build, build_layout, build_size);
  take_side(probe, probe_layout, probe_size);
  matched = carver.take<uint8_t>(build_size);
  key_rows = carver.take<uint32_t>(build_size);
  if (!count_only) {
    first_match = carver.take<uint32_t>(probe_size);
    pairs_before = carver.take<uint64_t>(emit_tiles(probe_size) + 1);
    probe_matched_before = carver.take<uint64_t>(emit_tiles(probe_size) + 1);
    build_matched_before = carver.take<uint64_t>(emit_tiles(build_size) + 1);
  }
  tasks_before = carver.take<uint32_t>(partitions() + 1);
  crowded = carver.take<uint32_t>(partitions());
  crowded_before = carver.take<uint32_t>(partitions() + 1);
  counts = carver.take<MatchCounts>(1);
  split_scratch = carver.take<char>(hash_split_scratch_bytes(bits));
  sums_before<uint64_t>(nullptr, scan_scratch_bytes, nullptr,
                        std::max(emit_tiles(std::max(build_size, probe_size)), partitions()) + 1, gpu_stream_t{});
  scan_scratch = carver.take<char>(scan_scratch_bytes);
  with_layout(build.layout, [&]<class Key, class Value>(Key, Value) {
    for (TupleSpan& tuples : sorting) {
      tuples = {carver.take<Key>(build_size), nullptr, build_size};
      if constexpr (is_value<Value>) tuples.values = carver.take<Value>(build_size);
    }
    TwoBuffers<Key> keys;
    TwoBuffers<Value> values;
    radix_sort(nullptr, sort_scratch_bytes, keys, values, build_size, 0, key_bits<Key>, gpu_stream_t{});
    sort_scratch = carver.take<char>(sort_scratch_bytes);
  });
  bytes = carver.bytes();
}

}  // namespace gpu

namespace {

uint64_t size_of(const PartitionedTuples& tuples) {
  uint64_t size = 0;
  for (const TupleView& fragment : tuples.fragments) size += fragment.size;
  return size;
}

template <class F>
void with_key(TupleLayout layout, F&& f) {
  layout.key_bytes == 4 ? f(uint32_t{}) : f(uint64_t{});
}

/// Replaces numbers by the sums of those before them.
template <class T>
void sum(const GpuHashMatch& match, T* numbers, uint64_t size, gpu_stream_t on, const std::string& device_name) {
  size_t bytes = match.scan_scratch_bytes;
  GPU_CHECK(device_name, gpu::sums_before(match.scan_scratch, bytes, numbers, size, on));
}

}  // namespace

std::unique_ptr<HashMatch> GpuPrimitives::hash_match(const PartitionedTuples& build, const PartitionedTuples& probe,
                                                     uint32_t /*partitions*/, uint32_t /*common_bits*/, bool count_only,
                                                     void* scratch, const Job& job, Stream& stream) {
  job.check();
  auto match = std::make_unique<GpuHashMatch>(build.layout, size_of(build), probe.layout, size_of(probe), count_only, scratch);
  start_match(*match, build, probe, raw(stream));
  return match;
}

std::unique_ptr<HashMatch> GpuPrimitives::hash_match_into(JoinOutput out, uint64_t most, const PartitionedTuples& build,
                                                          const PartitionedTuples& probe, uint32_t /*partitions*/,
                                                          uint32_t /*common_bits*/, void* scratch, const Job& job,
                                                          Stream& stream) {
  job.check();
  auto match = std::make_unique<GpuHashMatch>(build.layout, size_of(build), probe.layout, size_of(probe), false, scratch);
  match->out = out;
  match->most_written = most;
  start_match(*match, build, probe, raw(stream));
  return match;
}

void GpuPrimitives::start_match(GpuHashMatch& match, const PartitionedTuples& build, const PartitionedTuples& probe,
                                gpu_stream_t on) {
  id_.select();
  const uint64_t partitions = match.partitions();
  gpu::hash_split(match.build.layout, build.fragments, match.bits, match.build.tuples, match.build.offsets, match.split_scratch,
                  on, id_.name);
  gpu::hash_split(match.probe.layout, probe.fragments, match.bits, match.probe.tuples, match.probe.offsets, match.split_scratch,
                  on, id_.name);
  gpu::count_tasks<<<gpu::loop_blocks(partitions + 1), kThreads, 0, on>>>(match.probe.offsets, partitions, match.tasks_before);
  check_launch("count_tasks");
  sum(match, match.tasks_before, partitions + 1, on, id_.name);
  match_tables(match, on);
}

void GpuPrimitives::match_tables(GpuHashMatch& match, gpu_stream_t on) {
  const uint64_t partitions = match.partitions();
  GPU_CHECK(id_.name, gpu_memset_async(match.counts, 0, sizeof(*match.counts), on));
  GPU_CHECK(id_.name, gpu_memset_async(match.matched, 0, match.build.size, on));
  GPU_CHECK(id_.name, gpu_memset_async(match.crowded, 0, partitions * sizeof(uint32_t), on));
  with_key(match.build.layout, [&]<class Key>(Key) {
    constexpr size_t kBytes = gpu::kSlots * sizeof(uint32_t);
    const auto kernel = match.written() ? gpu::match_tables<true, Key> : gpu::match_tables<false, Key>;
    GPU_CHECK(id_.name, gpu_allow_shared_memory(kernel, kBytes));
    const gpu::MatchArguments to{match.build.tuples, match.probe.tuples, match.build.offsets, match.probe.offsets,
                                 match.tasks_before, partitions,         match.bits,          match.first_match,
                                 match.crowded,      match.matched,      match.counts,        match.out,
                                 match.most_written};
    const auto tasks = static_cast<unsigned>(gpu::most_tasks(partitions, match.probe.size));
    kernel<<<tasks, gpu::kMatchThreads, kBytes, on>>>(to);
    check_launch("match_tables");
  });
  gpu::count_crowded<<<gpu::loop_blocks(partitions + 1), kThreads, 0, on>>>(match.build.offsets, match.crowded, partitions,
                                                                            match.crowded_before);
  check_launch("count_crowded");
  sum(match, match.crowded_before, partitions + 1, on, id_.name);
  count_matches(match, on);
}

bool GpuPrimitives::hash_match_goes_on(HashMatch& found, const Job& job, Stream& stream) {
  auto& match = static_cast<GpuHashMatch&>(found);
  const bool crowded = match.crowded_rows > 0 && !match.sorted_crowd;
  if (!crowded && (!match.written() || match.found.pairs <= match.most_written)) return false;
  job.check();
  id_.select();
  const gpu_stream_t on = raw(stream);
  if (match.written()) {  // not all of them: they are kept after all
    match.most_written = 0;
    match_tables(match, on);
    return true;
  }
  match.sorted_crowd = true;
  const uint64_t size = match.crowded_rows;
  const gpu::Crowd crowd{match.crowded_before, match.build.offsets, match.partitions()};
  const unsigned blocks = gpu::loop_blocks(size);
  gpu::with_layout(match.build.layout, [&]<class Key, class Value>(Key, Value) {
    gpu::TwoBuffers<Key> keys{static_cast<Key*>(match.sorting[0].keys), static_cast<Key*>(match.sorting[1].keys)};
    gpu::TwoBuffers<Value> values;
    if constexpr (gpu::is_value<Value>) {
      values = {static_cast<Value*>(match.sorting[0].values), static_cast<Value*>(match.sorting[1].values)};
    }
    gpu::move_crowd<true><<<blocks, kThreads, 0, on>>>(crowd, match.build.tuples, size, keys.current, values.current);
    check_launch("move_crowd");
    size_t bytes = match.sort_scratch_bytes;
    GPU_CHECK(id_.name, gpu::radix_sort(match.sort_scratch, bytes, keys, values, size, 0, gpu::key_bits<Key>, on));
    gpu::move_crowd<false><<<blocks, kThreads, 0, on>>>(crowd, match.build.tuples, size, keys.current, values.current);
    check_launch("move_crowd");
    gpu::fill_ones<<<gpu::loop_blocks(match.build.size), kThreads, 0, on>>>(match.key_rows, match.build.size);
    check_launch("fill_ones");
    gpu::count_keys<<<blocks, kThreads, 0, on>>>(crowd, keys.current, size, match.key_rows);
    check_launch("count_keys");
    gpu::probe_crowd<<<gpu::loop_blocks(match.probe.size), kThreads, 0, on>>>(
        crowd, keys.current, match.probe.tuples, match.probe.size, match.bits, match.crowded, match.key_rows, match.first_match,
        match.matched, match.counts);
    check_launch("probe_crowd");
    gpu::spread_matched<<<blocks, kThreads, 0, on>>>(crowd, keys.current, size, match.matched);
    check_launch("spread_matched");
  });
  count_matches(match, on);
  return true;
}

/// What the match adds up to: for the tally, and for the tiles of the result.
void GpuPrimitives::count_matches(GpuHashMatch& match, gpu_stream_t on) {
  const uint64_t build_size = match.build.size, probe_size = match.probe.size;
  if (match.written()) return fetch_counts(match, on);
  GPU_CHECK(id_.name, gpu_memset_async(&match.counts->build, 0, sizeof(match.counts->build), on));
  gpu::count_matched<<<gpu::loop_blocks(build_size), kThreads, 0, on>>>(match.matched, build_size, &match.counts->build);
  check_launch("count_matched");
  if (!match.count_only) {
    const uint64_t build_tiles = gpu::emit_tiles(build_size), probe_tiles = gpu::emit_tiles(probe_size);
    gpu::count_probe_tiles<<<static_cast<unsigned>(probe_tiles + 1), kThreads, 0, on>>>(
        match.first_match, match.sorted_crowd ? match.key_rows : nullptr, probe_size, match.pairs_before,
        match.probe_matched_before);
    check_launch("count_probe_tiles");
    gpu::count_build_tiles<<<static_cast<unsigned>(build_tiles + 1), kThreads, 0, on>>>(match.matched, build_size,
                                                                                        match.build_matched_before);
    check_launch("count_build_tiles");
    sum(match, match.pairs_before, probe_tiles + 1, on, id_.name);
    sum(match, match.probe_matched_before, probe_tiles + 1, on, id_.name);
    sum(match, match.build_matched_before, build_tiles + 1, on, id_.name);
  }
  fetch_counts(match, on);
}

void GpuPrimitives::fetch_counts(GpuHashMatch& match, gpu_stream_t on) {
  struct Found {
    gpu::MatchCounts counts;
    uint32_t crowded_rows;
  };
  ResultSlots::Slot& slot = results_.acquire(sizeof(Found));
  auto* const found = slot.as<Found>();
  GPU_CHECK(id_.name, gpu_memcpy_async(&found->counts, match.counts, sizeof(found->counts), gpu_memcpy_default, on));
  GPU_CHECK(id_.name, gpu_memcpy_async(&found->crowded_rows, match.crowded_before + match.partitions(),
                                       sizeof(found->crowded_rows), gpu_memcpy_default, on));
  results_.finish(
      slot,
      [&match, found] {
        const gpu::MatchCounts& counts = found->counts;
        match.found = {counts.by_table + counts.crowded_pairs, counts.build, counts.by_table + counts.crowded_probe};
        match.crowded_rows = found->crowded_rows;
      },
      on);
}

size_t GpuPrimitives::hash_match_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size,
                                               uint32_t /*partitions*/, bool count_only) {
  id_.select();
  return GpuHashMatch(build, build_size, probe, probe_size, count_only, nullptr).bytes;
}

}  // namespace warpjoin
