// The tables of hash joins, in shared memory: each partition's build tuples by bucket.
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/hash_lookup.h"
#include "primitives/gpu/hash_split.h"
#include "primitives/gpu/hash_tuning.h"

namespace warpjoin {

namespace gpu {
inline namespace WARPJOIN_BLOCKS {
namespace {

constexpr unsigned kBucketBits = kSmallBlocks ? 12 : 13, kMatchThreads = kSmallBlocks ? 256 : 512;
constexpr uint32_t kBuckets = 1u << kBucketBits;
constexpr unsigned kLargeThreads =
    kSmallBlocks ? kMatchThreads : 2 * kMatchThreads;  // of a block that has a multiprocessor for itself
constexpr size_t kThreadBytes = 160;                   // of a table: two blocks of kMatchThreads share a multiprocessor
constexpr uint64_t kTaskRows = 128 << 10;              // probe tuples
constexpr unsigned kProbes = 8;                        // of a thread, under way
constexpr unsigned kSortedThreads = 256;               // that look matches up without a table
constexpr unsigned kSlotBits = 9;                      // a slot has up to ten tuples
/// A table of a partition costs more than lookups without one where there are so many build tuples for a probe tuple.
constexpr uint64_t kSortedShare = 4;

constexpr unsigned most_entries(unsigned threads, size_t entry_bytes) {
  return kThreadBytes * threads / (entry_bytes <= 8 ? 8 : 16);
}

uint64_t most_tasks(uint64_t partitions, uint64_t probe_rows) { return partitions + probe_rows / kTaskRows; }

__global__ void count_tasks(const uint32_t* offsets, uint64_t partitions, uint32_t* tasks) {
  for (uint64_t p = loop_begin(); p <= partitions; p += loop_step()) {
    tasks[p] = p == partitions ? 0 : static_cast<uint32_t>((offsets[p + 1] - offsets[p] + kTaskRows - 1) / kTaskRows);
  }
}

/// The rows of a partition of a build side, for a block: they are numbered one after the other, through all pieces.
struct PartitionRows {
  static constexpr uint32_t kMostPieces = HashBuildPlan::kMostPieces;
  uint32_t before[kMostPieces + 1];  // of each piece: rows of those before it
  uint32_t begins[kMostPieces];      // added to a number, gives the row; wraps

  /// What is kept of a row in a table: its number, and its piece above that.
  static constexpr unsigned kNumberBits = 16;
  static_assert(kMostPieces <= 1u << (32 - kNumberBits));
  __device__ static uint32_t number_of(uint32_t place) { return place & ((1u << kNumberBits) - 1); }

  /// All threads of the block call it, which synchronizes them. How many rows there are.
  template <unsigned threads = kMatchThreads>
  __device__ uint32_t find(const HashPieces& pieces, uint64_t partition) {
    static_assert(kMostPieces <= threads);
    uint32_t begin = 0, rows = 0;
    if (threadIdx.x < pieces.count) {
      const uint32_t* const offsets = pieces.at(threadIdx.x, partition);
      begin = offsets[0], rows = offsets[1] - begin;
    }
    uint32_t first = 0;
    if (pieces.count > 1) {
      __shared__ uint32_t sums[threads / kLanes];
      first = sum_before<threads>(rows, sums);
    }
    if (threadIdx.x < pieces.count) before[threadIdx.x] = first, begins[threadIdx.x] = begin - first;
    if (threadIdx.x + 1 == pieces.count) before[pieces.count] = first + rows;
    __syncthreads();
    return before[pieces.count];
  }
  __device__ uint32_t place(uint32_t number, uint32_t count) const {
    uint32_t piece = 0;
    for (uint32_t end = count; end - piece > 1;) {
      const uint32_t middle = (piece + end) / 2;
      if (before[middle] <= number) {
        piece = middle;
      } else {
        end = middle;
      }
    }
    return piece << kNumberBits | number;
  }
  __device__ uint32_t row(uint32_t place) const { return begins[place >> kNumberBits] + number_of(place); }
};

/// What is stored by hash: a build tuple's value, or its place in the partition.
template <class Key, class Stored, unsigned threads = kMatchThreads>
struct Table {
  using Entry = HashTuple<Key, Stored>;
  static constexpr unsigned kRows = most_entries(threads, sizeof(Entry)), kOwnRows = kRows / threads;
  static constexpr size_t kBytes = kRows * sizeof(Entry) + (kBuckets / 2 + 1) * sizeof(uint32_t);
  static_assert(kRows < 1u << PartitionRows::kNumberBits && kOwnRows % 2 == 0 && kBuckets / 2 % threads == 0);

  Entry* entries;
  uint32_t* begins;  // of the buckets among the entries, two to a word
  unsigned bits;     // of the partition

  __device__ Table(uint32_t* shared, unsigned bits)
      : entries(reinterpret_cast<Entry*>(shared)), begins(reinterpret_cast<uint32_t*>(entries + kRows)), bits(bits) {}

  __device__ uint32_t bucket_of(Key hash) const { return top_bits(static_cast<Key>(hash << bits), kBucketBits); }
  __device__ uint32_t begin(uint32_t bucket) const { return reinterpret_cast<const uint16_t*>(begins)[bucket]; }

  /// Of the build tuples that load(row) gives, `rows` of them. All threads of the block call it, which synchronizes them.
  template <class Load>
  __device__ void build(uint32_t rows, Load&& load) const {
    __shared__ uint32_t sums[threads / kLanes];
    Entry own[kOwnRows];
    uint32_t ranks[kOwnRows / 2] = {};  // in their buckets, two to a register
    const auto for_own = [&](auto&& f) {
#pragma unroll
      for (unsigned i = 0; i < kOwnRows; ++i) {
        if (i * threads + threadIdx.x < rows) f(i);
      }
    };
    for_own([&](unsigned i) { own[i] = load(i * threads + threadIdx.x); });
    for (unsigned two = threadIdx.x; two < kBuckets / 2; two += threads) begins[two] = 0;
    __syncthreads();
    for_own([&](unsigned i) {
      const uint32_t bucket = bucket_of(own[i].hash), shift = bucket % 2 * 16;
      ranks[i / 2] |= (atomicAdd(&begins[bucket / 2], 1u << shift) >> shift & 0xFFFF) << i % 2 * 16;
    });
    __syncthreads();
    // Counts become begins.
    constexpr unsigned kOwnTwos = kBuckets / 2 / threads;
    uint32_t counts[kOwnTwos], sum = 0;
#pragma unroll
    for (unsigned i = 0; i < kOwnTwos; ++i) {
      counts[i] = begins[threadIdx.x * kOwnTwos + i];
      sum += (counts[i] & 0xFFFF) + (counts[i] >> 16);
    }
    uint32_t next = sum_before<threads>(sum, sums);
#pragma unroll
    for (unsigned i = 0; i < kOwnTwos; ++i) {
      const uint32_t first = next, second = first + (counts[i] & 0xFFFF);
      next = second + (counts[i] >> 16);
      begins[threadIdx.x * kOwnTwos + i] = first | second << 16;
    }
    if (threadIdx.x == threads - 1) begins[kBuckets / 2] = next;
    __syncthreads();
    for_own([&](unsigned i) { entries[begin(bucket_of(own[i].hash)) + (ranks[i / 2] >> i % 2 * 16 & 0xFFFF)] = own[i]; });
    __syncthreads();
  }

  /// Whether a build tuple has the hash, and what is stored of it. Sets `twice` where two have.
  __device__ bool find(Key hash, Stored& stored, bool& twice) const {
    const uint32_t bucket = bucket_of(hash), end = begin(bucket + 1);
    bool found = false;
    for (uint32_t at = begin(bucket); at < end; ++at) {
      if (entries[at].hash != hash) continue;
      twice |= found;
      found = true;
      stored = entries[at].value;
    }
    return found;
  }
};

struct Tasks {
  HashPieces build;
  const uint32_t *probe_offsets, *before;
  uint64_t partitions;
  uint32_t* crowded;
  bool crowds_known;  // all that are crowded are marked
};

/// What a block does: some of a partition's probe tuples.
struct Task {
  uint64_t partition;
  uint64_t begin, end;  // probe tuples

  __device__ explicit Task(const Tasks& tasks) {
    // Mostly each partition is one task.
    const uint32_t task = blockIdx.x;
    partition = task < tasks.partitions && tasks.before[task] == task && tasks.before[task + 1] > task
                    ? task
                    : last_not_above(tasks.before, tasks.partitions, task);
    const uint64_t last = tasks.probe_offsets[partition + 1];
    begin = tasks.probe_offsets[partition] + (task - tasks.before[partition]) * kTaskRows;
    end = begin + kTaskRows < last ? begin + kTaskRows : last;
  }
};

template <class Key>
__global__ void __launch_bounds__(kMatchThreads, 2)
    keep_matches(Tasks tasks, HashTuples build, HashTuples probe, unsigned bits, uint32_t* first_match, uint8_t* matched,
                 uint32_t* table_matches) {
  using RowTable = Table<Key, uint32_t>;
  extern __shared__ __align__(16) uint32_t shared_words[];
  __shared__ uint32_t hits[RowTable::kRows / 32];  // a bit for each build row: whether a probe tuple has it
  if (blockIdx.x >= tasks.before[tasks.partitions]) return;
  const Task task(tasks);
  __shared__ PartitionRows rows;
  const uint32_t build_rows = rows.find(tasks.build, task.partition);
  if (build_rows > RowTable::kRows || (tasks.crowds_known && tasks.crowded[task.partition])) {
    if (threadIdx.x == 0) tasks.crowded[task.partition] = 1;
    if (!first_match) return;
    for (uint64_t row = task.begin + threadIdx.x; row < task.end; row += kMatchThreads) first_match[row] = kNoRow;
    return;
  }
  const RowTable table(shared_words, bits);
  for (unsigned w = threadIdx.x; w < RowTable::kRows / 32; w += kMatchThreads) hits[w] = 0;
  table.build(build_rows, [&](uint32_t number) {
    const uint32_t place = rows.place(number, tasks.build.count);
    return typename RowTable::Entry{build.hash<Key>(rows.row(place)), place};
  });
  bool twice = false;
  uint32_t matches = 0;
  for (uint64_t first = task.begin + threadIdx.x; first < task.end; first += kMatchThreads * kProbes) {
    Key hashes[kProbes];
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = first + i * kMatchThreads;
      hashes[i] = probe.hash_once<Key>(row < task.end ? row : first);
    }
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = first + i * kMatchThreads;
      if (row >= task.end) break;
      uint32_t found;
      const bool match = table.find(hashes[i], found, twice);
      if (first_match) first_match[row] = match ? rows.row(found) : kNoRow;
      if (!match) continue;
      ++matches;
      const uint32_t number = rows.number_of(found), bit = 1u << number % 32;
      if (!(hits[number / 32] & bit)) atomicOr(&hits[number / 32], bit);  // threads that all hit one row need not wait
    }
  }
  if (twice) tasks.crowded[task.partition] = 1;
  add_of_block(&table_matches[task.partition], matches);
  for (uint32_t number = threadIdx.x; matched && number < build_rows; number += kMatchThreads) {
    if (hits[number / 32] >> number % 32 & 1) matched[rows.row(rows.place(number, tasks.build.count))] = 1;
  }
}

/// The slots of a partition whose tuples are in the order of their hashes' slots, and where each begins: for probes without a
/// table.
struct SortedSlots {
  static constexpr unsigned kBits = kSlotBits, kShift = kBucketBits - kBits;
  static constexpr uint64_t kStride = (1u << kBits) + 2;  // 16-bit numbers of a partition
  uint16_t* begins;

  __device__ uint16_t* of(uint64_t partition) const { return begins + partition * kStride; }
};

// Puts the tuples of partitions in the order of their slots. Marks those that no table holds, or that have a key twice.
template <unsigned threads, class Key, class Value>
__global__ void __launch_bounds__(threads, 2 * kMatchThreads / threads)
    sort_partitions(HashPieces pieces, HashTuple<Key, Value>* tuples, unsigned bits, uint32_t* crowded, SortedSlots slots) {
  using HashTable = Table<Key, uint32_t, threads>;
  extern __shared__ __align__(16) uint32_t shared_words[];
  __shared__ PartitionRows rows;
  __shared__ bool any_twice;
  if (threadIdx.x == 0) any_twice = false;
  const uint32_t count = rows.find<threads>(pieces, blockIdx.x);
  if (count > HashTable::kRows) {
    if (threadIdx.x == 0) crowded[blockIdx.x] = 1;
    return;
  }
  const auto row_of = [&](uint32_t number) { return rows.row(rows.place(number, pieces.count)); };
  const HashTable table(shared_words, bits);
  table.build(count, [&](uint32_t number) { return typename HashTable::Entry{tuples[row_of(number)].hash, number}; });
  bool twice = false;
  for (uint32_t at = threadIdx.x; at < count && !twice; at += threads) {
    uint32_t stored;
    table.find(table.entries[at].hash, stored, twice);
  }
  if (twice) any_twice = true;
  HashTuple<Key, Value> own[HashTable::kOwnRows];
#pragma unroll
  for (unsigned i = 0; i < HashTable::kOwnRows; ++i) {
    const uint32_t at = i * threads + threadIdx.x;
    if (at < count) own[i] = tuples[row_of(table.entries[at].value)];
  }
  __syncthreads();
  if (any_twice) {
    if (threadIdx.x == 0) crowded[blockIdx.x] = 1;
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < HashTable::kOwnRows; ++i) {
    const uint32_t at = i * threads + threadIdx.x;
    if (at < count) store_tuple(tuples + row_of(at), own[i]);
  }
  for (unsigned slot = threadIdx.x; slot <= 1u << slots.kBits; slot += threads) {
    slots.of(blockIdx.x)[slot] = static_cast<uint16_t>(table.begin(slot << slots.kShift));
  }
}

// Looks matches up where the tuples of partitions are in the order of their slots, without a table of them.
template <class Key>
__global__ void __launch_bounds__(kSortedThreads)
    keep_sorted_matches(Tasks tasks, HashTuples build, HashTuples probe, unsigned bits, SortedSlots slots, uint32_t* first_match,
                        uint8_t* matched, uint32_t* table_matches) {
  __shared__ PartitionRows rows;
  if (blockIdx.x >= tasks.before[tasks.partitions]) return;
  const Task task(tasks);
  if (tasks.crowded[task.partition]) {
    if (!first_match) return;
    for (uint64_t row = task.begin + threadIdx.x; row < task.end; row += kSortedThreads) first_match[row] = kNoRow;
    return;
  }
  rows.find<kSortedThreads>(tasks.build, task.partition);
  const uint16_t* const begins = slots.of(task.partition);
  uint32_t matches = 0;
  for (uint64_t row = task.begin + threadIdx.x; row < task.end; row += kSortedThreads) {
    const Key hash = probe.hash_once<Key>(row);
    const uint32_t slot = top_bits(static_cast<Key>(hash << bits), slots.kBits);
    uint32_t number = begins[slot];
    const uint32_t end = begins[slot + 1];
    uint32_t found = kNoRow;
    if (number < end) {
      uint32_t piece = rows.place(number, tasks.build.count) >> rows.kNumberBits;
      for (; number < end && found == kNoRow; ++number) {
        while (rows.before[piece + 1] <= number) ++piece;
        const uint32_t build_row = rows.begins[piece] + number;
        if (build.hash<Key>(build_row) == hash) found = build_row;
      }
    }
    if (first_match) first_match[row] = found;
    if (found == kNoRow) continue;
    ++matches;
    if (matched && !matched[found]) matched[found] = 1;
  }
  add_of_block(&table_matches[task.partition], matches);
}

// Lanes that run in step reserve room for all that they find in a stretch.
template <class Key, class BuildValue, class ProbeValue>
__global__ void __launch_bounds__(kMatchThreads, 2)
    write_matches(Tasks tasks, const HashTuple<Key, BuildValue>* build, const HashTuple<Key, ProbeValue>* probe, unsigned bits,
                  PairColumns<Key, BuildValue, ProbeValue> out, unsigned long long most, unsigned long long* written) {
  using ValueTable = Table<Key, BuildValue>;
  constexpr unsigned kProbes = sizeof(HashTuple<Key, ProbeValue>) <= 8 ? 8 : 6;  // of a thread, under way: registers hold them
  constexpr unsigned kStretch = kProbes * kLanes;
  extern __shared__ __align__(16) uint32_t shared_words[];
  if (blockIdx.x >= tasks.before[tasks.partitions]) return;
  const Task task(tasks);
  __shared__ PartitionRows rows;
  const uint32_t build_rows = rows.find(tasks.build, task.partition);
  if (build_rows > ValueTable::kRows) {
    if (threadIdx.x == 0) tasks.crowded[task.partition] = 1;
    return;
  }
  const ValueTable table(shared_words, bits);
  table.build(build_rows, [&](uint32_t number) { return build[rows.row(rows.place(number, tasks.build.count))]; });
  bool twice = false;
  for (uint64_t stretch = task.begin + threadIdx.x / kLanes * kStretch; stretch < task.end; stretch += kMatchThreads * kProbes) {
    HashTuple<Key, ProbeValue> tuples[kProbes];
    BuildValue values[kProbes];
    uint32_t found = 0;  // a bit for each
    unsigned count = 0;
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const uint64_t row = stretch + i * kLanes + lane();
      if (row < task.end) tuples[i] = load_tuple_once(probe + row);
    }
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const bool match = stretch + i * kLanes + lane() < task.end && table.find(tuples[i].hash, values[i], twice);
      found |= uint32_t{match} << i;
      count += popcount(ballot(match));
    }
    unsigned long long at = 0;
    if (lane() == 0) at = atomicAdd(written, static_cast<unsigned long long>(count));
    at = shuffle(at, 0);
    if (at + count > most) continue;
#pragma unroll
    for (unsigned i = 0; i < kProbes; ++i) {
      const bool match = found >> i & 1;
      const LaneMask all = ballot(match);
      if (match) out.write(at + popcount(all & lanes_below()), tuples[i], values[i]);
      at += popcount(all);
    }
  }
  if (twice) tasks.crowded[task.partition] = 1;
}

/// Of a partition: hashing spreads them nearly evenly.
uint64_t usual_rows(uint32_t entry_bytes) { return most_entries(kMatchThreads, entry_bytes) / 5 * 4; }

}  // namespace

size_t slot_begins_bytes(uint64_t partitions) { return partitions * SortedSlots::kStride * sizeof(uint16_t); }

unsigned partition_bits(uint64_t build_rows, uint32_t entry_bytes) {
  const uint64_t others = build_rows ? (build_rows - 1) / usual_rows(entry_bytes) : 0;  // partitions beside one
  return std::clamp(static_cast<unsigned>(std::bit_width(others)), hash_tuning.fewest_bits, hash_tuning.most_bits);
}

bool has_large_partitions(uint64_t build_rows, unsigned bits, uint32_t entry_bytes) {
  return build_rows >> bits > usual_rows(entry_bytes);
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace gpu

using gpu::GpuHashMatch;
using gpu::kThreads;

void GpuPrimitives::sort_partitions(gpu::BuildSide& build, gpu_stream_t on) {
  gpu::with_layout(build.layout, [&]<class Key, class Value>(Key, Value) {
    const auto sort = [&]<unsigned threads>() {
      const auto kernel = gpu::sort_partitions<threads, Key, Value>;
      constexpr size_t kBytes = gpu::Table<Key, uint32_t, threads>::kBytes;
      GPU_CHECK(id_.name, gpu_allow_shared_memory(kernel, kBytes));
      kernel<<<static_cast<unsigned>(build.partitions), threads, kBytes, on>>>(
          build.all_pieces(), reinterpret_cast<gpu::HashTuple<Key, Value>*>(build.tuples.data), build.bits, build.crowded,
          gpu::SortedSlots{build.slot_begins});
      check_launch("sort_partitions");
    };
    build.large_partitions ? sort.template operator()<gpu::kLargeThreads>() : sort.template operator()<gpu::kMatchThreads>();
  });
}

void GpuPrimitives::match_in_tables(GpuHashMatch& match, gpu_stream_t on) {
  const uint64_t partitions = match.partitions();
  gpu::count_tasks<<<gpu::loop_blocks(partitions + 1), kThreads, 0, on>>>(match.probe.offsets, partitions, match.tasks_before);
  check_launch("count_tasks");
  match.sum(match.tasks_before, partitions + 1, on, id_.name);
  const gpu::Tasks tasks{match.build.all_pieces(), match.probe.offsets, match.tasks_before, partitions,
                         match.build.crowded,      match.shares_build()};
  const auto blocks = static_cast<unsigned>(gpu::most_tasks(partitions, match.probe.size));
  if (match.written()) {
    gpu::with_values(match, [&]<class Key, class BuildValue, class ProbeValue>(Key, BuildValue, ProbeValue) {
      const auto kernel = gpu::write_matches<Key, BuildValue, ProbeValue>;
      constexpr size_t kBytes = gpu::Table<Key, BuildValue>::kBytes;
      GPU_CHECK(id_.name, gpu_allow_shared_memory(kernel, kBytes));
      kernel<<<blocks, gpu::kMatchThreads, kBytes, on>>>(
          tasks, reinterpret_cast<const gpu::HashTuple<Key, BuildValue>*>(match.build.tuples.data),
          reinterpret_cast<const gpu::HashTuple<Key, ProbeValue>*>(match.probe.tuples.data), match.build.bits,
          gpu::PairColumns<Key, BuildValue, ProbeValue>(match.out), match.most_written, &match.counts->by_table);
      check_launch("write_matches");
    });
  } else if (match.build.large_partitions ||
             (match.build.slot_begins && uint64_t{match.probe.size} * gpu::kSortedShare < match.build.size)) {
    gpu::with_key(match.build.layout, [&]<class Key>(Key) {
      gpu::keep_sorted_matches<Key><<<blocks, gpu::kSortedThreads, 0, on>>>(
          tasks, match.build.tuples, match.probe.tuples, match.build.bits, gpu::SortedSlots{match.build.slot_begins},
          match.first_match, match.build.matched, match.table_matches);
      check_launch("keep_sorted_matches");
    });
  } else {
    gpu::with_key(match.build.layout, [&]<class Key>(Key) {
      const auto kernel = gpu::keep_matches<Key>;
      constexpr size_t kBytes = gpu::Table<Key, uint32_t>::kBytes;
      GPU_CHECK(id_.name, gpu_allow_shared_memory(kernel, kBytes));
      kernel<<<blocks, gpu::kMatchThreads, kBytes, on>>>(tasks, match.build.tuples, match.probe.tuples, match.build.bits,
                                                         match.first_match, match.build.matched, match.table_matches);
      check_launch("keep_matches");
    });
  }
}

}  // namespace warpjoin
