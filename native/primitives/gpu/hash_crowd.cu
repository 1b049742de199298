// Partitions of a hash join whose build tuples no table holds: they are sorted, all at once, and probed by binary search, so that
// one key everywhere costs a sort.
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/hash_match.h"
#include "primitives/gpu/radix_sort.h"

namespace warpjoin {

namespace gpu {
inline namespace WARPJOIN_BLOCKS {
namespace {

/// The build tuples of crowded partitions, in the order of their hashes, and so by partition.
template <class Key>
struct Crowd {
  const Key* hashes;
  const uint32_t *before, *crowded;  // of each partition
  unsigned bits;
  uint32_t first_partition;

  explicit Crowd(const BuildSide& build)
      : hashes(static_cast<const Key*>(build.crowd.sorted.keys)),
        before(build.crowded_before),
        crowded(build.crowded),
        bits(build.bits),
        first_partition(build.first_partition) {}

  /// The crowded partition of a hash; false where its own is not.
  __device__ bool partition(Key hash, uint64_t& p) const {
    p = top_bits(hash, bits) - first_partition;
    return crowded[p];
  }
  /// The first that is not below a hash of this partition.
  __device__ uint64_t first(uint64_t p, Key hash) const;
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

template <class Key>
__device__ uint64_t Crowd<Key>::first(uint64_t p, Key hash) const {
  return first_not_below<Key>(hashes, before[p], before[p + 1], hash);
}

/// Takes the crowd's tuples, in any order. Lanes that run in step get their places together.
template <class Key, class Value>
__global__ void __launch_bounds__(kThreads)
    take_crowd(Crowd<Key> crowd, HashTuples tuples, uint64_t size, Key* hashes, Value* values, unsigned long long* taken) {
  const uint64_t loops = (size + loop_step() - 1) / loop_step();
  for (uint64_t loop = 0; loop < loops; ++loop) {
    const uint64_t row = loop * loop_step() + loop_begin();
    uint64_t p;
    const Key hash = row < size ? tuples.hash<Key>(row) : Key{};
    const bool takes = row < size && crowd.partition(hash, p);
    const LaneMask all = ballot(takes);
    if (all == 0) continue;
    unsigned long long at = 0;
    if (lane() == 0) at = atomicAdd(taken, static_cast<unsigned long long>(popcount(all)));
    at = shuffle(at, 0) + popcount(all & lanes_below());
    if (!takes) continue;
    hashes[at] = hash;
    if constexpr (is_value<Value>) values[at] = tuples.value<Value>(row);
  }
}

/// Puts keys and values side by side.
template <class Key, class Value>
__global__ void join_crowd(const Key* hashes, const Value* values, uint64_t size, HashTuple<Key, Value>* tuples) {
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) {
    HashTuple<Key, Value> tuple;
    tuple.hash = hashes[i];
    if constexpr (is_value<Value>) tuple.value = values[i];
    store_tuple(tuples + i, tuple);
  }
}

template <class Key>
__global__ void count_keys(const Key* hashes, uint64_t size, uint32_t* key_rows) {
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) {
    if (i > 0 && hashes[i - 1] == hashes[i]) continue;  // one key is in one partition
    uint64_t last = i, step = 1;                        // the last that is known to be the same
    while (last + step < size && hashes[last + step] == hashes[i]) last += step, step *= 2;
    for (; step > 0; step /= 2) {
      if (last + step < size && hashes[last + step] == hashes[i]) last += step;
    }
    key_rows[i] = static_cast<uint32_t>(last + 1 - i);
  }
}

/// Rows of the crowd are numbered from `first_row` on.
template <class Key>
__global__ void __launch_bounds__(kThreads) probe_crowd(Crowd<Key> crowd, HashTuples probe, uint64_t probe_size, CrowdRows rows,
                                                        uint32_t* first_match, uint8_t* matched, MatchCounts* counts) {
  unsigned long long pairs = 0, matches = 0;
  for (uint64_t i = loop_begin(); i < probe_size; i += loop_step()) {
    const Key hash = probe.hash<Key>(i);
    uint64_t p;
    if (!crowd.partition(hash, p)) continue;
    const uint64_t at = crowd.first(p, hash);
    const bool found = at < crowd.before[p + 1] && crowd.hashes[at] == hash;
    if (first_match) first_match[i] = found ? rows.first + static_cast<uint32_t>(at) : kNoRow;
    if (!found) continue;
    matched[at] = 1;
    pairs += rows.key_rows[at];
    ++matches;
  }
  add_of_block(&counts->crowded_pairs, pairs);
  add_of_block(&counts->crowded_probe, matches);
}

// All tuples of a key have matched if its first one in the crowd has, whatever their tables found.
template <class Key>
__global__ void spread_matched(Crowd<Key> crowd, HashTuples build, uint64_t size, const uint8_t* crowd_matched,
                               uint8_t* matched) {
  for (uint64_t row = loop_begin(); row < size; row += loop_step()) {
    const Key hash = build.hash<Key>(row);
    uint64_t p;
    if (crowd.partition(hash, p)) matched[row] = crowd_matched[crowd.first(p, hash)];
  }
}

}  // namespace
}  // namespace WARPJOIN_BLOCKS
}  // namespace gpu

using gpu::GpuHashMatch;
using gpu::kThreads;

bool GpuPrimitives::hash_match_goes_on(HashMatch& found, const Job& job, Stream& stream) {
  auto& match = static_cast<GpuHashMatch&>(found);
  const bool crowded = match.build.crowded_rows > 0 && !match.build.sorted_crowd;
  if (!crowded && (!match.written() || match.found.pairs <= match.most_written)) return false;
  job.check();
  id_.select();
  const gpu_stream_t on = raw(stream);
  if (match.written()) {  // not all of them: they are kept after all
    match.most_written = 0;
    match_tables(match, on);
    return true;
  }
  sort_crowd(match.build, on);
  match_crowd(match, on);
  count_matches(match, on);
  return true;
}

void GpuPrimitives::sort_crowd(gpu::BuildSide& build, gpu_stream_t on) {
  build.sorted_crowd = true;
  const uint64_t size = build.crowded_rows;
  gpu::CrowdRoom& room = build.crowd;
  gpu::with_layout(build.layout, [&]<class Key, class Value>(Key, Value) {
    using Tuple = gpu::HashTuple<Key, Value>;
    gpu::TwoBuffers<Key> keys{static_cast<Key*>(room.sorted.keys), reinterpret_cast<Key*>(room.tuples.data)};
    gpu::TwoBuffers<Value> values;
    if constexpr (gpu::is_value<Value>) {
      values = {static_cast<Value*>(room.sorted.values),
                reinterpret_cast<Value*>(room.tuples.data + StackAllocator::aligned(size * sizeof(Key)))};
    }
    auto* const taken = static_cast<unsigned long long*>(room.sort_scratch);
    GPU_CHECK(id_.name, gpu_memset_async(taken, 0, sizeof(*taken), on));
    gpu::take_crowd<<<gpu::loop_blocks(build.size), kThreads, 0, on>>>(gpu::Crowd<Key>(build), build.tuples, build.size,
                                                                       keys.current, values.current, taken);
    check_launch("take_crowd");
    size_t bytes = room.sort_scratch_bytes;
    GPU_CHECK(id_.name, gpu::radix_sort(room.sort_scratch, bytes, keys, values, size, 0, gpu::key_bits<Key>, on));
    const auto bring_home = [&](void* to, const void* from, size_t width) {
      if (to != from) GPU_CHECK(id_.name, gpu_memcpy_async(to, from, size * width, gpu_memcpy_default, on));
    };
    bring_home(room.sorted.keys, keys.current, sizeof(Key));
    const Value* sorted_values = nullptr;
    if constexpr (gpu::is_value<Value>) {
      bring_home(room.sorted.values, values.current, sizeof(Value));
      sorted_values = static_cast<const Value*>(room.sorted.values);
    }
    const auto* const hashes = static_cast<const Key*>(room.sorted.keys);
    const unsigned blocks = gpu::loop_blocks(size);
    gpu::join_crowd<<<blocks, kThreads, 0, on>>>(hashes, sorted_values, size, reinterpret_cast<Tuple*>(room.tuples.data));
    check_launch("join_crowd");
    GPU_CHECK(id_.name, gpu_memset_async(room.matched, 0, size, on));
    gpu::count_keys<<<blocks, kThreads, 0, on>>>(hashes, size, room.key_rows);
    check_launch("count_keys");
  });
}

void GpuPrimitives::match_crowd(GpuHashMatch& match, gpu_stream_t on) {
  hash_probe(match, on);
  const gpu::BuildSide& build = match.build;
  gpu::with_key(build.layout, [&]<class Key>(Key) {
    const gpu::Crowd<Key> crowd(build);
    gpu::probe_crowd<<<gpu::loop_blocks(match.probe.size), kThreads, 0, on>>>(
        crowd, match.probe.tuples, match.probe.size, build.crowd_rows(), match.first_match, build.crowd.matched, match.counts);
    check_launch("probe_crowd");
    if (!build.matched) return;
    gpu::spread_matched<<<gpu::loop_blocks(build.size), kThreads, 0, on>>>(crowd, build.tuples, build.size, build.crowd.matched,
                                                                           build.matched);
    check_launch("spread_matched");
  });
}

}  // namespace warpjoin
