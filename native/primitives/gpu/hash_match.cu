// Hash joins of relations in device memory, after "Efficiently Processing Joins and Grouped Aggregations on GPUs" (PHJ) in
// outline: both sides are grouped by the topmost bits of their hashes, then each partition's build tuples go into a table in
// shared memory, which its probe tuples look their match up in.
//
//   hash_split    groups a side, in one pass
//   match_tasks   tasks: some of the probe tuples of a partition each
//   match_tables  a block builds the table of a task's partition and probes it
//   count_...     what each tile of rows adds to the result
//
// A table lists the rows of each bucket, with some bits of their hashes: what these let through is compared in device memory,
// unless partition, bucket and these are all there is to a hash. Partitions that do not fit, or where a probe tuple finds two
// build tuples, are left over ("crowded"). Once the host knows how many of their tuples there are, these are sorted, all at
// once, and probed by binary search: one key everywhere costs a sort.
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
constexpr unsigned kBucketBits = 12, kMatchThreads = 512;
constexpr uint32_t kMostRows = 12 << 10;
#else
constexpr unsigned kBucketBits = 15, kMatchThreads = 1024;
constexpr uint32_t kMostRows = 36 << 10;
#endif
constexpr uint32_t kBuckets = 1u << kBucketBits;
constexpr uint32_t kUsualBytes = 256 << 10;   // of a partition's build tuples: those under way stay in the second-level cache
constexpr unsigned kFewestBits = 6;           // of the partitions, if any: threads that count few wait for each other
constexpr unsigned kTagBits = 16;             // of the hash, beside the row
constexpr uint64_t kTaskRows = 4 * kBuckets;  // probe tuples
constexpr unsigned kProbes = 4;               // of a thread, under way
constexpr size_t kTableBytes = kBuckets * sizeof(uint16_t) + kMostRows * sizeof(uint32_t) + kMostRows / 8;
static_assert(kMostRows <= 1u << (32 - kTagBits) && kBuckets % (8 * kMatchThreads) == 0);

unsigned partition_bits(uint64_t build_rows, uint32_t stride) {
  const uint32_t usual_rows = std::min(kBuckets, kUsualBytes / stride);
  const uint64_t partitions = (build_rows + usual_rows - 1) / usual_rows;
  if (partitions < 2) return 0;
  return std::clamp(static_cast<unsigned>(std::bit_width(partitions - 1)), kFewestBits, kMostSplitBits);
}

uint64_t most_tasks(uint64_t partitions, uint64_t probe_rows) { return partitions + probe_rows / kTaskRows; }

template <class Key>
__device__ uint32_t bucket_of(Key hash, unsigned bits) {
  return static_cast<uint32_t>(static_cast<Key>(hash << bits) >> (key_bits<Key> - kBucketBits));
}
/// An entry but for its row.
template <class Key>
__device__ uint32_t tag_of(Key hash) {
  return static_cast<uint32_t>(hash) << (32 - kTagBits);
}
__device__ inline bool same_tag(uint32_t entry, uint32_t tag) { return ((entry ^ tag) >> (32 - kTagBits)) == 0; }
__device__ inline uint32_t row_of(uint32_t entry) { return entry % (1u << (32 - kTagBits)); }

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
template <class T>
__device__ void add_of_block(T* total, T number) {
  __shared__ T sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  for (unsigned distance = kLanes / 2; distance > 0; distance /= 2) number += shuffle(number, (lane() + distance) % kLanes);
  if (lane() == 0 && number) atomicAdd(&sum, number);
  __syncthreads();
  if (threadIdx.x == 0 && sum) atomicAdd(total, sum);
  __syncthreads();
}

/// A partition's build tuples, and in shared memory their rows by bucket.
template <class Key>
struct Table {
  HashTuples tuples;
  uint32_t begin, rows;  // of the partition
  unsigned bits;
  uint32_t* ends;     // of the buckets among the entries, two to a word
  uint32_t* entries;  // tag and row in the partition
  uint32_t* hits;     // a bit for each row: whether a probe tuple has it

  __device__ Table(const HashTuples& tuples, uint32_t begin, uint32_t rows, unsigned bits, uint32_t* shared)
      : tuples(tuples),
        begin(begin),
        rows(rows),
        bits(bits),
        ends(shared),
        entries(ends + kBuckets / 2),
        hits(entries + kMostRows) {}

  __device__ Key hash(uint32_t row) const { return tuples.hash<Key>(uint64_t{begin} + row); }
  __device__ uint32_t end(uint32_t bucket) const { return reinterpret_cast<const uint16_t*>(ends)[bucket]; }
  /// Adds one to a bucket's number, and returns what it was.
  __device__ uint32_t add(uint32_t bucket) const {
    const unsigned shift = bucket % 2 * 16;
    return atomicAdd(&ends[bucket / 2], 1u << shift) >> shift & 0xFFFF;
  }

  /// Calls f(row, hash) for the thread's rows.
  template <class F>
  __device__ void for_rows(F&& f) const {
    for (uint32_t first = threadIdx.x; first < rows; first += kMatchThreads * kProbes) {
      Key hashes[kProbes];
#pragma unroll
      for (unsigned i = 0; i < kProbes; ++i) {
        if (first + i * kMatchThreads < rows) hashes[i] = hash(first + i * kMatchThreads);
      }
#pragma unroll
      for (unsigned i = 0; i < kProbes; ++i) {
        if (first + i * kMatchThreads < rows) f(first + i * kMatchThreads, hashes[i]);
      }
    }
  }

  /// All threads of the block call it, which synchronizes them.
  __device__ void build() const {
    __shared__ uint32_t sums[kMatchThreads / kLanes];
    constexpr unsigned kOwn = kBuckets / 8 / kMatchThreads;  // times eight buckets
    auto* const eights = reinterpret_cast<uint4*>(ends);
    for (unsigned e = threadIdx.x; e < kBuckets / 8; e += kMatchThreads) eights[e] = uint4{0, 0, 0, 0};
    for (unsigned w = threadIdx.x; w < kMostRows / 32; w += kMatchThreads) hits[w] = 0;
    __syncthreads();
    for_rows([&](uint32_t, Key hash) { add(bucket_of(hash, bits)); });
    __syncthreads();
    // Counts become begins.
    uint32_t sum = 0;
#pragma unroll
    for (unsigned i = 0; i < kOwn; ++i) {
      const uint4 counts = eights[threadIdx.x * kOwn + i];
      for (const uint32_t two : {counts.x, counts.y, counts.z, counts.w}) sum += (two & 0xFFFF) + (two >> 16);
    }
    uint32_t next = sum_before<kMatchThreads>(sum, sums);
    const auto place = [&](uint32_t two) {
      const uint32_t first = next, second = first + (two & 0xFFFF);
      next = second + (two >> 16);
      return first | second << 16;
    };
#pragma unroll
    for (unsigned i = 0; i < kOwn; ++i) {
      uint4 counts = eights[threadIdx.x * kOwn + i];
      counts.x = place(counts.x), counts.y = place(counts.y), counts.z = place(counts.z), counts.w = place(counts.w);
      eights[threadIdx.x * kOwn + i] = counts;
    }
    __syncthreads();
    // Begins become ends.
    for_rows([&](uint32_t row, Key hash) { entries[add(bucket_of(hash, bits))] = tag_of(hash) | row; });
    __syncthreads();
  }

  __device__ void hit(uint32_t row) const {
    const uint32_t bit = 1u << row % 32;
    if (!(hits[row / 32] & bit)) atomicOr(&hits[row / 32], bit);  // threads that all hit one row need not wait for each other
  }
  /// Behind a __syncthreads().
  __device__ void write_hits(uint8_t* matched) const {
    for (uint32_t row = threadIdx.x; row < rows; row += kMatchThreads) {
      if (hits[row / 32] >> row % 32 & 1) matched[begin + row] = 1;
    }
  }

  /// Whether equal bucket and tag are equal hashes.
  __device__ bool exact() const { return (bits + kBucketBits + kTagBits >= key_bits<Key>); }

  /// The rows in the partition that have the hashes, or kNoRow. Sets `twice` where one has two.
  __device__ void find(const Key* hashes, uint32_t* found, bool& twice) const {
    Key there[kProbes];
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint32_t bucket = bucket_of(hashes[i], bits), tag = tag_of(hashes[i]);
      uint32_t at = bucket ? end(bucket - 1) : 0;
      const uint32_t last = end(bucket);
      found[i] = kNoRow;
      for (; at < last; ++at) {
        if (!same_tag(entries[at], tag)) continue;
        const uint32_t row = row_of(entries[at]);
        // Rarely there is a second one: then each is looked at.
        if (found[i] != kNoRow && !exact() && hash(found[i]) != hashes[i]) found[i] = kNoRow;
        if (found[i] == kNoRow) {
          found[i] = row;
        } else if (exact() || hash(row) == hashes[i]) {
          twice = true;
        }
      }
    }
    if (exact()) return;
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      if (found[i] != kNoRow) there[i] = hash(found[i]);
    }
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      if (found[i] != kNoRow && there[i] != hashes[i]) found[i] = kNoRow;
    }
  }
};

struct MatchArguments {
  HashTuples build, probe;
  const uint32_t *build_offsets, *probe_offsets, *tasks_before;
  uint64_t partitions;
  unsigned bits;
  uint32_t *first_match, *crowded, *table_matches;
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

/// Keeps the matches of probe tuples [begin, end), and returns how many this thread found.
template <class Key>
__device__ uint32_t keep_matches(const Table<Key>& table, const MatchArguments& to, uint64_t begin, uint64_t end, bool& twice) {
  uint32_t matches = 0;
  for (uint64_t first = begin + threadIdx.x; first < end; first += kMatchThreads * kProbes) {
    Key hashes[kProbes];
    uint32_t found[kProbes];
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = first + i * kMatchThreads;
      hashes[i] = to.probe.hash_once<Key>(row < end ? row : first);
    }
    table.find(hashes, found, twice);
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = first + i * kMatchThreads;
      if (row >= end) break;
      if (to.first_match) to.first_match[row] = found[i] == kNoRow ? kNoRow : table.begin + found[i];
      if (found[i] == kNoRow) continue;
      table.hit(found[i]);
      ++matches;
    }
  }
  return matches;
}

/// Writes the pairs of probe tuples [begin, end). Lanes that run in step reserve room for all that they find in a stretch.
template <class Key>
__device__ void write_matches(const Table<Key>& table, const MatchArguments& to, uint64_t begin, uint64_t end, bool& twice) {
  constexpr unsigned kRows = 2 * kProbes, kStretch = kRows * kLanes;
  for (uint64_t stretch = begin + threadIdx.x / kLanes * kStretch; stretch < end; stretch += kMatchThreads * kRows) {
    Key hashes[kRows];
    uint64_t values[kRows];
    uint32_t found[kRows];
#pragma unroll
    for (unsigned i = 0; i < kRows; ++i) {
      const uint64_t row = stretch + i * kLanes + lane();
      hashes[i] = to.probe.hash_once<Key>(row < end ? row : begin);
      if (to.out.probe_values) values[i] = to.probe.any_value(row < end ? row : begin);
    }
    unsigned long long count = 0;
#pragma unroll
    for (unsigned i = 0; i < kRows; i += kProbes) table.find(hashes + i, found + i, twice);
#pragma unroll
    for (unsigned i = 0; i < kRows; ++i) {
      if (stretch + i * kLanes + lane() >= end) found[i] = kNoRow;
      count += popcount(ballot(found[i] != kNoRow));
    }
    unsigned long long at = 0;
    if (lane() == 0) at = atomicAdd(&to.counts->by_table, count);
    at = shuffle(at, 0);
    if (at + count > to.most_written) continue;
    uint64_t build_values[kRows];
#pragma unroll
    for (unsigned i = 0; i < kRows; ++i) {
      if (to.out.build_values && found[i] != kNoRow) build_values[i] = to.build.any_value(table.begin + found[i]);
    }
#pragma unroll
    for (unsigned i = 0; i < kRows; ++i) {
      const LaneMask all = ballot(found[i] != kNoRow);
      if (found[i] != kNoRow) {
        const uint64_t out = at + popcount(all & lanes_below());
        if (to.out.keys) store_once(static_cast<Key*>(to.out.keys) + out, key_of_hash(hashes[i]));
        store_value(to.out.probe_values, out, to.probe, values[i]);
        store_value(to.out.build_values, out, to.build, build_values[i]);
      }
      at += popcount(all);
    }
  }
}

// Block t does task t.
template <bool write, class Key>
__global__ void __launch_bounds__(kMatchThreads, 1) match_tables(MatchArguments to) {
  extern __shared__ __align__(16) uint32_t shared_words[];
  if (blockIdx.x >= to.tasks_before[to.partitions]) return;
  const uint64_t p = partition_of_task(to);
  const uint32_t build_begin = to.build_offsets[p], rows = to.build_offsets[p + 1] - build_begin;
  if (rows > kMostRows) {
    if (threadIdx.x == 0) to.crowded[p] = 1;
    return;
  }
  const Table<Key> table(to.build, build_begin, rows, to.bits, shared_words);
  table.build();
  const uint64_t last = to.probe_offsets[p + 1], begin = to.probe_offsets[p] + (blockIdx.x - to.tasks_before[p]) * kTaskRows;
  const uint64_t end = begin + kTaskRows < last ? begin + kTaskRows : last;
  bool twice = false;
  if constexpr (write) {
    write_matches(table, to, begin, end, twice);
  } else {
    add_of_block(&to.table_matches[p], keep_matches(table, to, begin, end, twice));
    table.write_hits(to.matched);
  }
  if (twice) to.crowded[p] = 1;
}

// --- Crowded partitions -----------------------------------------------------------------------------------------

// What is in crowded partitions, and what was found in the others.
__global__ void __launch_bounds__(kThreads)
    count_crowded(const uint32_t* offsets, const uint32_t* crowded, const uint32_t* table_matches, uint64_t partitions,
                  uint32_t* rows, unsigned long long* by_table) {
  unsigned long long matches = 0;
  for (uint64_t p = loop_begin(); p <= partitions; p += loop_step()) {
    const bool is_crowded = p < partitions && crowded[p];
    rows[p] = is_crowded ? offsets[p + 1] - offsets[p] : 0;
    if (p < partitions && !is_crowded) matches += table_matches[p];
  }
  add_of_block(by_table, matches);
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
__global__ void move_crowd(Crowd crowd, HashTuples tuples, uint64_t size, Key* hashes, Value* values, uint8_t* matched) {
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) {
    const uint32_t row = crowd.row(crowd.partition(i), i);
    if constexpr (take) {
      hashes[i] = tuples.hash<Key>(row);
      if constexpr (is_value<Value>) values[i] = tuples.value<Value>(row);
    } else {
      matched[row] = 0;  // what their tables found does not count
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
    : count_only(count_only) {
  if (std::max(build_size, probe_size) >= kNoRow) {
    bytes = SIZE_MAX / 4;  // more than any device has
    if (!scratch) return;
    throw Error(ErrorCode::internal, "A hash join on one GPU has fewer than 2^32 - 1 tuples a side");
  }
  if (count_only) build_layout.value_bytes = probe_layout.value_bytes = 0;
  bits = partition_bits(build_size, hash_tuples(build_layout, nullptr).stride);
  host::Carver carver(scratch);
  const auto take_side = [&](HashSide& side, TupleLayout layout, uint64_t size) {
    side.layout = layout;
    side.size = static_cast<uint32_t>(size);
    side.tuples = hash_tuples(layout, nullptr);
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
  table_matches = carver.take<uint32_t>(partitions());
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
  GPU_CHECK(id_.name, gpu_memset_async(match.table_matches, 0, partitions * sizeof(uint32_t), on));
  with_key(match.build.layout, [&]<class Key>(Key) {
    const auto kernel = match.written() ? gpu::match_tables<true, Key> : gpu::match_tables<false, Key>;
    GPU_CHECK(id_.name, gpu_allow_shared_memory(kernel, gpu::kTableBytes));
    const gpu::MatchArguments to{match.build.tuples, match.probe.tuples,  match.build.offsets, match.probe.offsets,
                                 match.tasks_before, partitions,          match.bits,          match.first_match,
                                 match.crowded,      match.table_matches, match.matched,       match.counts,
                                 match.out,          match.most_written};
    const auto tasks = static_cast<unsigned>(gpu::most_tasks(partitions, match.probe.size));
    kernel<<<tasks, gpu::kMatchThreads, gpu::kTableBytes, on>>>(to);
    check_launch("match_tables");
  });
  gpu::count_crowded<<<gpu::loop_blocks(partitions + 1), kThreads, 0, on>>>(
      match.build.offsets, match.crowded, match.table_matches, partitions, match.crowded_before, &match.counts->by_table);
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
    gpu::move_crowd<true>
        <<<blocks, kThreads, 0, on>>>(crowd, match.build.tuples, size, keys.current, values.current, match.matched);
    check_launch("move_crowd");
    size_t bytes = match.sort_scratch_bytes;
    GPU_CHECK(id_.name, gpu::radix_sort(match.sort_scratch, bytes, keys, values, size, 0, gpu::key_bits<Key>, on));
    gpu::move_crowd<false>
        <<<blocks, kThreads, 0, on>>>(crowd, match.build.tuples, size, keys.current, values.current, match.matched);
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
