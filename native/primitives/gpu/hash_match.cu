// Hash joins of relations in device memory, after "Efficiently Processing Joins and Grouped Aggregations on GPUs" (PHJ) in
// outline: both sides are grouped by the topmost bits of their hashes, then each partition's build tuples go into a table in
// shared memory, which its probe tuples look their match up in. A small build side has one table, in device memory.
//
//   hash_split     groups a side, in one pass or two
//   hash_tables    builds the table of each partition and probes it
//   hash_small     does the same with one table for all
//   hash_crowd     does the same for partitions that have none
//   count_matches  counts what each tile of rows adds to the result
//   hash_emit      writes it
//
// Partitions that do not fit a table, or where a probe tuple finds two build tuples, are left over ("crowded"). Once the host
// knows how many of their tuples there are, they get their turn.
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/hash_match.h"
#include "primitives/gpu/hash_split.h"
#include "primitives/gpu/radix_sort.h"

namespace warpjoin {

using gpu::GpuHashMatch;
using gpu::kEmitTile;
using gpu::kThreads;

namespace gpu {
inline namespace WARPJOIN_BLOCKS {
namespace {

/// How many of 16 bytes are one; the others are zero.
__device__ uint32_t count_ones(uint4 bytes) {
  return popcount(bytes.x) + popcount(bytes.y) + popcount(bytes.z) + popcount(bytes.w);
}

// `matched` has room for whole loads, and zeros behind the last row.
__global__ void __launch_bounds__(kThreads) count_matched(const uint4* matched, uint64_t loads, unsigned long long* count) {
  unsigned long long own = 0;
  for (uint64_t i = loop_begin(); i < loads; i += loop_step()) own += count_ones(matched[i]);
  add_of_block(count, own);
}

// Block t counts tile t; behind the last one there is nothing.
__global__ void __launch_bounds__(kThreads)
    count_probe_tiles(const uint32_t* first_match, const uint32_t* key_rows, uint64_t size, uint64_t* pairs, uint64_t* matched) {
  constexpr unsigned kOwn = kEmitTile / kThreads;
  static_assert(kOwn == 4);
  __shared__ unsigned long long sums[2];
  if (threadIdx.x < 2) sums[threadIdx.x] = 0;
  const uint64_t begin = uint64_t{blockIdx.x} * kEmitTile;
  unsigned long long own_pairs = 0, own_matched = 0;
  const uint64_t first = begin + threadIdx.x * kOwn;
  uint32_t own[kOwn] = {kNoRow, kNoRow, kNoRow, kNoRow};
  if (first + kOwn <= size) {
    const uint4 four = *reinterpret_cast<const uint4*>(first_match + first);
    own[0] = four.x, own[1] = four.y, own[2] = four.z, own[3] = four.w;
  } else {
#pragma unroll
    for (unsigned i = 0; i < kOwn; ++i) {
      if (first + i < size) own[i] = first_match[first + i];
    }
  }
#pragma unroll
  for (unsigned i = 0; i < kOwn; ++i) {
    if (own[i] == kNoRow) continue;
    own_pairs += key_rows ? key_rows[own[i]] : 1;
    ++own_matched;
  }
  add_of_block(&sums[0], own_pairs);
  add_of_block(&sums[1], own_matched);
  if (threadIdx.x == 0) pairs[blockIdx.x] = sums[0];
  if (threadIdx.x == 1) matched[blockIdx.x] = sums[1];
}

// Lanes that run in step count a tile; behind the last one there is nothing.
__global__ void __launch_bounds__(kThreads)
    count_build_tiles(const uint4* matched, uint64_t loads, uint64_t tiles, uint64_t* counts) {
  constexpr unsigned kLoads = kEmitTile / sizeof(uint4);
  const uint64_t tile = loop_begin() / kLanes;
  if (tile > tiles) return;
  uint32_t own = 0;
#pragma unroll
  for (unsigned i = 0; i < kLoads; i += kLanes) {
    const uint64_t at = tile * kLoads + i + lane();
    if (i + lane() < kLoads && at < loads) own += count_ones(matched[at]);
  }
  for (unsigned distance = kLanes / 2; distance > 0; distance /= 2) own += shuffle(own, (lane() + distance) % kLanes);
  if (lane() == 0) counts[tile] = own;
}

// How many build tuples are in crowded partitions, unless that is known, and what was found in the others.
__global__ void __launch_bounds__(kThreads)
    count_crowded(const uint32_t* offsets, const uint32_t* crowded, const uint32_t* table_matches, uint64_t partitions,
                  uint32_t* rows, unsigned long long* by_table) {
  unsigned long long matches = 0;
  for (uint64_t p = loop_begin(); p <= partitions; p += loop_step()) {
    const bool is_crowded = p < partitions && crowded[p];
    if (rows) rows[p] = is_crowded ? offsets[p + 1] - offsets[p] : 0;
    if (p < partitions && !is_crowded) matches += table_matches[p];
  }
  add_of_block(by_table, matches);
}

}  // namespace

uint32_t table_entry_bytes(TupleLayout build) {
  return std::max<uint32_t>(hash_tuples(build, nullptr).stride, 2 * build.key_bytes);
}

GpuHashMatch::GpuHashMatch(TupleLayout build_layout, uint64_t build_size, TupleLayout probe_layout, uint64_t probe_size,
                           bool count_only, bool shares, const GpuHashMatch* built, const GroupCut* grouped, void* scratch,
                           const std::string& device_name)
    : count_only(count_only), shares_build(shares) {
  if (std::max(build_size, probe_size) >= kNoRow) {
    bytes = SIZE_MAX / 64;  // more than any device has, for several matches too
    if (!scratch) return;
    throw Error(ErrorCode::internal, "A hash join on one GPU has fewer than 2^32 - 1 tuples a side");
  }
  if (count_only) build_layout.value_bytes = probe_layout.value_bytes = 0;
  const uint32_t entry_bytes = table_entry_bytes(build_layout);
  small_slots = grouped ? 0 : small_table_slots(build_size, entry_bytes);
  if (grouped) {
    bits = grouped->grouping.bits;
    partitions_ = grouped->partitions();
    first_partition = grouped->first_group << (bits - grouped->grouping.group_bits);
  } else if (small_slots == 0) {
    bits = partition_bits(build_size, entry_bytes);
    partitions_ = uint64_t{1} << bits;
  }
  host::Carver carver(scratch);
  const auto take_side = [&](HashSide& side, TupleLayout layout, uint64_t size) {
    side.layout = layout;
    side.size = static_cast<uint32_t>(size);
    side.tuples = hash_tuples(layout, nullptr);
    side.tuples.data = carver.take<char>(size * side.tuples.stride);
    side.offsets = carver.take<uint32_t>(partitions() + 1);
  };
  if (!shares) take_side(build, build_layout, build_size);
  take_side(probe, probe_layout, probe_size);
  if (grouped) {
    bounds = carver.take<uint32_t>(2 * grouped->stretches);
    split_scratch = carver.take<char>(hash_split_groups_scratch_bytes(partitions(), device_name));
  } else {
    split_scratch = carver.take<char>(hash_split_scratch_bytes(bits, device_name));
  }
  GPU_CHECK(device_name,
            sums_before<uint64_t>(nullptr, scan_scratch_bytes, nullptr,
                                  std::max(emit_tiles(std::max(build_size, probe_size)), partitions()) + 1, gpu_stream_t{}));
  scan_scratch = carver.take<char>(scan_scratch_bytes);

  const size_t split_bytes = carver.bytes();
  between = scratch ? static_cast<char*>(scratch) + split_bytes : nullptr;
  if (!count_only) {
    first_match = carver.take<uint32_t>(probe_size);
    pairs_before = carver.take<uint64_t>(emit_tiles(probe_size) + 1);
    probe_matched_before = carver.take<uint64_t>(emit_tiles(probe_size) + 1);
    build_matched_before = carver.take<uint64_t>(emit_tiles(build_size) + 1);
  }
  tasks_before = carver.take<uint32_t>(partitions() + 1);
  table_matches = carver.take<uint32_t>(partitions());
  counts = carver.take<MatchCounts>(1);
  if (!shares) take_build_rooms(carver, entry_bytes, device_name);
  if (built) static_cast<HashBuild&>(*this) = *built;
  const auto between_bytes = [&](TupleLayout layout, uint64_t size) {
    return grouped ? 0 : hash_split_between_bytes(layout, size, bits, device_name);
  };
  bytes = std::max(carver.bytes(), split_bytes + std::max(shares ? 0 : between_bytes(build_layout, build_size),
                                                          between_bytes(probe_layout, probe_size)));
}

/// What is known of the build side beside its tuples.
void GpuHashMatch::take_build_rooms(host::Carver& carver, uint32_t entry_bytes, const std::string& device_name) {
  const uint64_t size = build.size;
  small_table = carver.take<char>(small_slots * entry_bytes);
  small_rows = carver.take<uint32_t>(small_slots);
  matched = carver.take<uint8_t>(StackAllocator::aligned(size));  // read 16 bytes at a time
  key_rows = carver.take<uint32_t>(size);
  crowded = carver.take<uint32_t>(partitions());
  crowded_before = carver.take<uint32_t>(partitions() + 1);
  with_layout(build.layout, [&]<class Key, class Value>(Key, Value) {
    for (TupleSpan& tuples : sorting) {
      tuples = {carver.take<Key>(size), nullptr, size};
      if constexpr (is_value<Value>) tuples.values = carver.take<Value>(size);
    }
    TwoBuffers<Key> keys;
    TwoBuffers<Value> values;
    GPU_CHECK(device_name, radix_sort(nullptr, sort_scratch_bytes, keys, values, size, 0, key_bits<Key>, gpu_stream_t{}));
    sort_scratch = carver.take<char>(sort_scratch_bytes);
  });
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace gpu

namespace {

uint64_t size_of(const PartitionedTuples& tuples) {
  uint64_t size = 0;
  for (const TupleView& fragment : tuples.fragments) size += fragment.size;
  return size;
}

/// Of a probe side that is not there.
TupleLayout no_tuples(TupleLayout build) { return {build.key_bytes, 0}; }

}  // namespace

std::unique_ptr<HashMatch> GpuPrimitives::hash_match(const PartitionedTuples& build, const PartitionedTuples& probe,
                                                     uint32_t /*partitions*/, uint32_t /*common_bits*/, bool count_only,
                                                     void* scratch, const Job& job, Stream& stream, const HashMatch* built) {
  job.check();
  id_.select();
  auto match =
      std::make_unique<GpuHashMatch>(build.layout, size_of(build), probe.layout, size_of(probe), count_only, built != nullptr,
                                     static_cast<const GpuHashMatch*>(built), nullptr, scratch, id_.name);
  start_match(*match, build, probe, raw(stream));
  return match;
}

std::unique_ptr<HashMatch> GpuPrimitives::hash_match_into(JoinOutput out, uint64_t most, const PartitionedTuples& build,
                                                          const PartitionedTuples& probe, uint32_t /*partitions*/,
                                                          uint32_t /*common_bits*/, void* scratch, const Job& job,
                                                          Stream& stream) {
  job.check();
  id_.select();
  auto match = std::make_unique<GpuHashMatch>(build.layout, size_of(build), probe.layout, size_of(probe), false, false, nullptr,
                                              nullptr, scratch, id_.name);
  if (hash_match_writes(build.layout, probe.layout)) {
    match->out = out;
    match->most_written = most;
  }
  start_match(*match, build, probe, raw(stream));
  return match;
}

std::unique_ptr<HashMatch> GpuPrimitives::hash_build(const PartitionedTuples& build, bool count_only, void* scratch,
                                                     const Job& job, Stream& stream) {
  job.check();
  id_.select();
  const gpu_stream_t on = raw(stream);
  auto built = std::make_unique<GpuHashMatch>(build.layout, size_of(build), no_tuples(build.layout), 0, count_only, false,
                                              nullptr, nullptr, scratch, id_.name);
  split_build(*built, build, on);
  clear(*built, on);
  GPU_CHECK(id_.name, gpu_memset_async(built->probe.offsets, 0, (built->partitions() + 1) * sizeof(uint32_t), on));
  if (built->bits) {
    find_crowded(*built, on);
  } else {
    build_small(*built, on);
  }
  count_crowded(*built, on);
  count_matches(*built, on);
  return built;
}

void GpuPrimitives::start_match(GpuHashMatch& match, const PartitionedTuples& build, const PartitionedTuples& probe,
                                gpu_stream_t on) {
  if (!match.shares_build) split_build(match, build, on);
  for (const TupleView& fragment : probe.fragments) {
    if (fragment.size) match.probe_fragments.push_back(fragment);
  }
  if (match.bits) hash_probe(match, on);
  match_tables(match, on);
}

void GpuPrimitives::split_build(GpuHashMatch& match, const PartitionedTuples& build, gpu_stream_t on) {
  gpu::hash_split(match.build.layout, build.fragments, match.bits, match.build.tuples, match.between, match.build.offsets,
                  match.split_scratch, on, id_.name);
}

void GpuPrimitives::hash_probe(GpuHashMatch& match, gpu_stream_t on) {
  if (match.probe_hashed) return;
  gpu::hash_split(match.probe.layout, match.probe_fragments, match.bits, match.probe.tuples, match.between, match.probe.offsets,
                  match.split_scratch, on, id_.name);
  match.probe_hashed = true;
}

void GpuPrimitives::clear(GpuHashMatch& match, gpu_stream_t on) {
  const uint64_t partitions = match.partitions();
  GPU_CHECK(id_.name, gpu_memset_async(match.counts, 0, sizeof(*match.counts), on));
  GPU_CHECK(id_.name, gpu_memset_async(match.table_matches, 0, partitions * sizeof(uint32_t), on));
  if (match.shares_build) return;
  if (!match.written()) GPU_CHECK(id_.name, gpu_memset_async(match.matched, 0, StackAllocator::aligned(match.build.size), on));
  GPU_CHECK(id_.name, gpu_memset_async(match.crowded, 0, partitions * sizeof(uint32_t), on));
}

void GpuPrimitives::match_tables(GpuHashMatch& match, gpu_stream_t on) {
  clear(match, on);
  if (match.bits) {
    match_in_tables(match, on);
  } else {
    if (!match.shares_build) build_small(match, on);
    match_small(match, on);
  }
  count_crowded(match, on);
  if (match.sorted_crowd) match_crowd(match, on);
  count_matches(match, on);
}

/// How much is in partitions that tables don't hold, and was found in the others.
void GpuPrimitives::count_crowded(GpuHashMatch& match, gpu_stream_t on) {
  const uint64_t partitions = match.partitions();
  gpu::count_crowded<<<gpu::loop_blocks(partitions + 1), kThreads, 0, on>>>(
      match.build.offsets, match.crowded, match.table_matches, partitions, match.shares_build ? nullptr : match.crowded_before,
      &match.counts->by_table);
  check_launch("count_crowded");
  if (!match.shares_build) match.sum(match.crowded_before, partitions + 1, on, id_.name);
}

/// What the match adds up to: for the tally, and for the tiles of the result.
void GpuPrimitives::count_matches(GpuHashMatch& match, gpu_stream_t on) {
  const uint64_t build_size = match.build.size, probe_size = match.probe.size;
  if (match.written()) return fetch_counts(match, on);
  GPU_CHECK(id_.name, gpu_memset_async(&match.counts->build, 0, sizeof(match.counts->build), on));
  const auto* const matched = reinterpret_cast<const uint4*>(match.matched);
  const uint64_t loads = (build_size + sizeof(uint4) - 1) / sizeof(uint4);
  gpu::count_matched<<<gpu::loop_blocks(loads), kThreads, 0, on>>>(matched, loads, &match.counts->build);
  check_launch("count_matched");
  if (!match.count_only) {
    const uint64_t build_tiles = gpu::emit_tiles(build_size), probe_tiles = gpu::emit_tiles(probe_size);
    gpu::count_probe_tiles<<<static_cast<unsigned>(probe_tiles + 1), kThreads, 0, on>>>(
        match.first_match, match.sorted_crowd ? match.key_rows : nullptr, probe_size, match.pairs_before,
        match.probe_matched_before);
    check_launch("count_probe_tiles");
    constexpr unsigned kTiles = kThreads / gpu::kLanes;
    gpu::count_build_tiles<<<static_cast<unsigned>(build_tiles / kTiles + 1), kThreads, 0, on>>>(matched, loads, build_tiles,
                                                                                                 match.build_matched_before);
    check_launch("count_build_tiles");
    match.sum(match.pairs_before, probe_tiles + 1, on, id_.name);
    match.sum(match.probe_matched_before, probe_tiles + 1, on, id_.name);
    match.sum(match.build_matched_before, build_tiles + 1, on, id_.name);
  }
  fetch_counts(match, on);
}

void GpuPrimitives::fetch_counts(GpuHashMatch& match, gpu_stream_t on) {
  struct Found {
    gpu::MatchCounts counts;
    uint32_t crowded_rows;
  };
  ResultSlots::Slot& slot = results_.acquire(sizeof(Found), on);
  auto* const found = slot.as<Found>();
  gpu::copy_few<<<1, kThreads, 0, on>>>(&found->counts, match.counts, 1);
  gpu::copy_few<<<1, kThreads, 0, on>>>(&found->crowded_rows, match.crowded_before + match.partitions(), 1);
  check_launch("copy_few");
  results_.finish(slot, [&match, found] {
    const gpu::MatchCounts& counts = found->counts;
    match.found = {counts.by_table + counts.crowded_pairs, counts.build, counts.by_table + counts.crowded_probe};
    match.crowded_rows = found->crowded_rows;
  });
}

size_t GpuPrimitives::hash_match_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size,
                                               uint32_t /*partitions*/, bool count_only, bool built) {
  id_.select();
  const auto bytes_for = [&](uint64_t rows) {
    return GpuHashMatch(build, rows, probe, probe_size, count_only, built, nullptr, nullptr, nullptr, id_.name).bytes;
  };
  // Just too many rows for one table take less than some fewer.
  const uint32_t entry_bytes = gpu::table_entry_bytes(count_only ? TupleLayout{build.key_bytes, 0} : build);
  return std::max(bytes_for(build_size), bytes_for(std::min(build_size, gpu::most_small_rows(entry_bytes))));
}

size_t GpuPrimitives::hash_build_scratch_bytes(TupleLayout build, uint64_t build_size, bool count_only) {
  return hash_match_scratch_bytes(build, build_size, no_tuples(build), 0, 1, count_only, false);
}

}  // namespace warpjoin
