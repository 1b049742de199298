// Partitions of a hash join whose build tuples no table holds: they are sorted, all at once, and probed by binary search, so that
// one key everywhere costs a sort.
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/hash_match.h"
#include "primitives/gpu/radix_sort.h"

namespace warpjoin {

namespace gpu {
inline namespace WARPJOIN_BLOCKS {
namespace {

/// The build tuples of crowded partitions, in order: tuple i of them is in partition `p`, row `row` of the build side.
struct Crowd {
  const uint32_t *before, *offsets;
  uint64_t partitions;
  uint32_t first_partition;

  explicit Crowd(const GpuHashMatch& match)
      : before(match.crowded_before),
        offsets(match.build.offsets),
        partitions(match.partitions()),
        first_partition(match.first_partition) {}

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
    const uint64_t p = top_bits(hash, bits) - crowd.first_partition;
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

}  // namespace
}  // namespace WARPJOIN_BLOCKS
}  // namespace gpu

using gpu::GpuHashMatch;
using gpu::kThreads;

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
  sort_crowd(match, on);
  match_crowd(match, on);
  count_matches(match, on);
  return true;
}

void GpuPrimitives::sort_crowd(GpuHashMatch& match, gpu_stream_t on) {
  match.sorted_crowd = true;
  const uint64_t size = match.crowded_rows;
  const gpu::Crowd crowd(match);
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
    match.crowd_hashes = keys.current;
    gpu::move_crowd<false>
        <<<blocks, kThreads, 0, on>>>(crowd, match.build.tuples, size, keys.current, values.current, match.matched);
    check_launch("move_crowd");
    gpu::fill_ones<<<gpu::loop_blocks(match.build.size), kThreads, 0, on>>>(match.key_rows, match.build.size);
    check_launch("fill_ones");
    gpu::count_keys<<<blocks, kThreads, 0, on>>>(crowd, keys.current, size, match.key_rows);
    check_launch("count_keys");
  });
}

void GpuPrimitives::match_crowd(GpuHashMatch& match, gpu_stream_t on) {
  hash_probe(match, on);
  const uint64_t size = match.crowded_rows;
  const gpu::Crowd crowd(match);
  gpu::with_key(match.build.layout, [&]<class Key>(Key) {
    const auto* const hashes = static_cast<const Key*>(match.crowd_hashes);
    gpu::probe_crowd<<<gpu::loop_blocks(match.probe.size), kThreads, 0, on>>>(crowd, hashes, match.probe.tuples, match.probe.size,
                                                                              match.bits, match.crowded, match.key_rows,
                                                                              match.first_match, match.matched, match.counts);
    check_launch("probe_crowd");
    gpu::spread_matched<<<gpu::loop_blocks(size), kThreads, 0, on>>>(crowd, hashes, size, match.matched);
    check_launch("spread_matched");
  });
}

}  // namespace warpjoin
