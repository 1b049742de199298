// The tables of hash joins, in shared memory: each partition's build rows by bucket, with some bits of their hashes. What these
// let through is compared in device memory, unless partition, bucket and these are all there is to a hash.
#include <bit>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/hash_match.h"
#include "primitives/gpu/hash_split.h"

namespace warpjoin {

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

}  // namespace

unsigned partition_bits(uint64_t build_rows, uint32_t stride) {
  const uint32_t usual_rows = std::min(kBuckets, kUsualBytes / stride);
  const uint64_t partitions = (build_rows + usual_rows - 1) / usual_rows;
  if (partitions < 2) return 0;
  return std::clamp(static_cast<unsigned>(std::bit_width(partitions - 1)), kFewestBits, kMostSplitBits);
}

}  // namespace gpu

using gpu::GpuHashMatch;
using gpu::kThreads;

void GpuPrimitives::match_tables(GpuHashMatch& match, gpu_stream_t on) {
  const uint64_t partitions = match.partitions();
  gpu::count_tasks<<<gpu::loop_blocks(partitions + 1), kThreads, 0, on>>>(match.probe.offsets, partitions, match.tasks_before);
  check_launch("count_tasks");
  match.sum(match.tasks_before, partitions + 1, on, id_.name);
  GPU_CHECK(id_.name, gpu_memset_async(match.counts, 0, sizeof(*match.counts), on));
  GPU_CHECK(id_.name, gpu_memset_async(match.matched, 0, match.build.size, on));
  GPU_CHECK(id_.name, gpu_memset_async(match.crowded, 0, partitions * sizeof(uint32_t), on));
  GPU_CHECK(id_.name, gpu_memset_async(match.table_matches, 0, partitions * sizeof(uint32_t), on));
  gpu::with_key(match.build.layout, [&]<class Key>(Key) {
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
  match.sum(match.crowded_before, partitions + 1, on, id_.name);
  count_matches(match, on);
}

}  // namespace warpjoin
