// Hash joins of relations in device memory, after "Efficiently Processing Joins and Grouped Aggregations on GPUs" (PHJ) in
// outline: both sides are grouped by the topmost bits of their hashes, then each partition's build tuples go into a table in
// shared memory, which its probe tuples look their match up in. A small build side has one table, in device memory.
//
//   hash_split     groups a side, in one pass or two
//   hash_tables    builds the table of each partition and probes it; or, where many waves are matched with one build side, puts
//   the
//                  tuples of each partition in order once, and looks matches up there
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
    count_probe_tiles(const uint32_t* first_match, CrowdRows crowd, uint64_t size, uint64_t* pairs, uint64_t* matched) {
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
    own_pairs += crowd.rows_with_key(own[i]);
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

// How many build tuples are in crowded partitions.
__global__ void __launch_bounds__(kThreads) count_crowded_rows(HashPieces pieces, const uint32_t* crowded, uint32_t* rows) {
  for (uint64_t p = loop_begin(); p <= pieces.partitions; p += loop_step()) {
    rows[p] = p < pieces.partitions && crowded[p] ? pieces.rows(p) : 0;
  }
}

// What was found in the others.
__global__ void __launch_bounds__(kThreads)
    count_by_table(const uint32_t* crowded, const uint32_t* table_matches, uint64_t partitions, unsigned long long* by_table) {
  unsigned long long matches = 0;
  for (uint64_t p = loop_begin(); p < partitions; p += loop_step()) matches += crowded[p] ? 0 : table_matches[p];
  add_of_block(by_table, matches);
}

__global__ void begin_piece(uint32_t* offsets, uint64_t size, uint32_t first_row) {
  for (uint64_t i = loop_begin(); i < size; i += loop_step()) offsets[i] += first_row;
}

/// More than any device has, for several matches too.
constexpr size_t kTooManyBytes = SIZE_MAX / 64;
bool too_many(uint64_t rows) { return rows >= kNoRow; }
[[noreturn]] void refuse_too_many() {
  throw Error(ErrorCode::internal, "A hash join on one GPU has fewer than 2^32 - 1 tuples a side");
}

}  // namespace

uint32_t table_entry_bytes(TupleLayout build) {
  return std::max<uint32_t>(hash_tuples(build, nullptr).stride, 2 * build.key_bytes);
}

namespace {

void take_side(host::Carver& carver, HashSide& side, TupleLayout layout, uint64_t size) {
  side.layout = layout;
  side.size = static_cast<uint32_t>(size);
  side.tuples = hash_tuples(layout, carver.take<char>(size * hash_tuples(layout, nullptr).stride));
}

/// What splits in so many partitions and sums of the tiles of so many rows take, but for what lies between two passes.
SplitRoom take_split(host::Carver& carver, size_t split_bytes, uint64_t rows, uint64_t partitions,
                     const std::string& device_name) {
  SplitRoom split;
  split.split_scratch = carver.take<char>(split_bytes);
  GPU_CHECK(device_name, sums_before<uint64_t>(nullptr, split.scan_scratch_bytes, nullptr,
                                               std::max(emit_tiles(rows), partitions) + 1, gpu_stream_t{}));
  split.scan_scratch = carver.take<char>(split.scan_scratch_bytes);
  return split;
}

TupleLayout without_values_if(bool count_only, TupleLayout layout) {
  return {layout.key_bytes, count_only ? uint8_t{0} : layout.value_bytes};
}

}  // namespace

CrowdRoom::CrowdRoom(host::Carver& carver, TupleLayout layout, uint64_t size, const std::string& device_name) {
  with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    sorted = {carver.take<Key>(size), nullptr, size};
    if constexpr (is_value<Value>) sorted.values = carver.take<Value>(size);
    // Keys lie beside values at an address that suits both, so keys apart and values apart fit, too.
    tuples = hash_tuples(layout, carver.take<char>((size + StackAllocator::kAlignment) * sizeof(HashTuple<Key, Value>)));
    TwoBuffers<Key> keys;
    TwoBuffers<Value> values;
    GPU_CHECK(device_name, radix_sort(nullptr, sort_scratch_bytes, keys, values, size, 0, key_bits<Key>, gpu_stream_t{}));
    sort_scratch = carver.take<char>(std::max(sort_scratch_bytes, sizeof(unsigned long long)));
  });
  key_rows = carver.take<uint32_t>(size);
  matched = carver.take<uint8_t>(size);
}

void BuildSide::take_rooms(host::Carver& carver, uint64_t rows, uint32_t entry_bytes, bool tracks) {
  small_table = carver.take<char>(small_slots * entry_bytes);
  small_rows = carver.take<uint32_t>(small_slots);
  if (tracks) matched = carver.take<uint8_t>(StackAllocator::aligned(rows));  // read 16 bytes at a time
  crowded = carver.take<uint32_t>(partitions);
  crowded_before = carver.take<uint32_t>(partitions + 1);
}

GpuHashBuild::GpuHashBuild(GpuPrimitives& on, const HashBuildPlan& plan, void* scratch, const std::string& device_name)
    : on_(on), plan_(plan), device_name_(device_name) {
  if (too_many(std::max(plan.build_rows, plan.probe_at_once))) {
    bytes = kTooManyBytes;
    if (!scratch) return;
    refuse_too_many();
  }
  const TupleLayout layout = without_values_if(plan.count_only, plan.build);
  const TupleLayout probe = without_values_if(plan.count_only, plan.probe);
  const uint32_t entry_bytes = table_entry_bytes(layout);
  side.small_slots = small_table_slots(plan.build_rows, entry_bytes);
  if (side.small_slots == 0) {
    side.bits = partition_bits(plan.build_rows, entry_bytes);
    side.large_partitions = has_large_partitions(plan.build_rows, side.bits, entry_bytes);
  }
  side.partitions = uint64_t{1} << side.bits;
  side.pieces = 0;
  side.most = plan.build_rows;
  host::Carver carver(scratch);
  side.offsets = carver.take<uint32_t>(plan.pieces * (side.partitions + 1));
  split = take_split(carver, hash_split_scratch_bytes(side.bits, device_name), std::max(plan.build_rows, plan.probe_at_once),
                     side.partitions, device_name);
  split.between = carver.take<char>(std::max(hash_split_between_bytes(layout, plan.build_at_once, side.bits, device_name),
                                             hash_split_between_bytes(probe, plan.probe_at_once, side.bits, device_name)));
  side.take_rooms(carver, plan.build_rows, entry_bytes, plan.tracks_build);
  if (side.bits) side.slot_begins = reinterpret_cast<uint16_t*>(carver.take<char>(slot_begins_bytes(side.partitions)));
  take_side(carver, side, layout, plan.build_rows);  // last, so that what crowds may have what is left of it
  side.size = 0;
  bytes = carver.bytes();
}

size_t GpuHashBuild::crowd_bytes(TupleLayout layout, uint64_t rows, const std::string& device_name) {
  host::Carver carver(nullptr);
  const CrowdRoom room(carver, layout, rows, device_name);
  return carver.bytes() + StackAllocator::kAlignment;
}

size_t GpuHashBuild::more_bytes() const {
  if (side.crowded_rows == 0) return 0;
  if (too_many(side.most + side.crowded_rows)) return kTooManyBytes;
  const size_t wanted = crowd_bytes(side.layout, side.crowded_rows, device_name_);
  return wanted <= free_bytes() ? 0 : wanted;
}

void GpuHashBuild::add(const PartitionedTuples& tuples, const Job& job, Stream& stream) {
  on_.add_piece(*this, tuples, job, stream);
}
void GpuHashBuild::finish(const Job& job, Stream& stream) { on_.finish_build(*this, job, stream); }
void GpuHashBuild::go_on(void* memory, const Job& job, Stream& stream) {
  if (side.crowded_rows == 0) return;
  if (!memory) {
    const auto begin = reinterpret_cast<uintptr_t>(side.tuples.data + uint64_t{side.size} * side.tuples.stride);
    memory = reinterpret_cast<void*>(StackAllocator::aligned(begin));
  }
  on_.go_on_with_build(*this, memory, job, stream);
}

GpuHashMatch::GpuHashMatch(TupleLayout build_layout, uint64_t build_size, TupleLayout probe_layout, uint64_t probe_size,
                           bool count_only, const GroupCut* grouped, void* scratch, const std::string& device_name)
    : build(own_), count_only(count_only) {
  if (too_many(std::max(build_size, probe_size))) {
    bytes = kTooManyBytes;
    if (!scratch) return;
    refuse_too_many();
  }
  build_layout = without_values_if(count_only, build_layout);
  probe_layout = without_values_if(count_only, probe_layout);
  const uint32_t entry_bytes = table_entry_bytes(build_layout);
  if (!grouped) build.small_slots = small_table_slots(build_size, entry_bytes);
  if (grouped) {
    build.bits = grouped->grouping.bits;
    build.partitions = grouped->partitions();
    build.first_partition = grouped->first_group << (build.bits - grouped->grouping.group_bits);
  } else if (build.small_slots == 0) {
    build.bits = partition_bits(build_size, entry_bytes);
    build.partitions = uint64_t{1} << build.bits;
  }
  build.most = build_size;
  host::Carver carver(scratch);
  take_side(carver, build, build_layout, build_size);
  build.offsets = carver.take<uint32_t>(partitions() + 1);
  take_probe(carver, probe_layout, probe_size);
  if (grouped) bounds = carver.take<uint32_t>(2 * grouped->stretches);
  split = take_split(
      carver,
      grouped ? hash_split_groups_scratch_bytes(partitions(), device_name) : hash_split_scratch_bytes(build.bits, device_name),
      std::max(build_size, probe_size), partitions(), device_name);
  // What only comes after the splits lies where tuples are between their passes.
  const size_t split_bytes = carver.bytes();
  split.between = scratch ? static_cast<char*>(scratch) + split_bytes : nullptr;
  take_matches(carver);
  build.take_rooms(carver, build_size, entry_bytes, true);
  build.crowd = CrowdRoom(carver, build_layout, build_size, device_name);
  const auto between_bytes = [&](TupleLayout layout, uint64_t size) {
    return grouped ? 0 : hash_split_between_bytes(layout, size, build.bits, device_name);
  };
  bytes = std::max(carver.bytes(),
                   split_bytes + std::max(between_bytes(build_layout, build_size), between_bytes(probe_layout, probe_size)));
}

GpuHashMatch::GpuHashMatch(GpuHashBuild& built, TupleLayout probe_layout, uint64_t probe_size, bool count_only, void* scratch,
                           const std::string&)
    : build(built.side), count_only(count_only), split(built.split) {
  if (too_many(std::max<uint64_t>(built.side.most, probe_size))) {
    bytes = kTooManyBytes;
    if (!scratch) return;
    refuse_too_many();
  }
  host::Carver carver(scratch);
  take_probe(carver, without_values_if(count_only, probe_layout), probe_size);
  take_matches(carver);
  bytes = carver.bytes();
}

void GpuHashMatch::take_probe(host::Carver& carver, TupleLayout layout, uint64_t size) {
  take_side(carver, probe, layout, size);
  probe.offsets = carver.take<uint32_t>(partitions() + 1);
}

void GpuHashMatch::take_matches(host::Carver& carver) {
  if (!count_only) {
    first_match = carver.take<uint32_t>(probe.size);
    pairs_before = carver.take<uint64_t>(emit_tiles(probe.size) + 1);
    probe_matched_before = carver.take<uint64_t>(emit_tiles(probe.size) + 1);
    build_matched_before = carver.take<uint64_t>(emit_tiles(build.most) + 1);
  }
  tasks_before = carver.take<uint32_t>(partitions() + 1);
  table_matches = carver.take<uint32_t>(partitions());
  counts = carver.take<MatchCounts>(1);
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace gpu

namespace {

uint64_t size_of(const PartitionedTuples& tuples) {
  uint64_t size = 0;
  for (const TupleView& fragment : tuples.fragments) size += fragment.size;
  return size;
}

}  // namespace

std::unique_ptr<HashMatch> GpuPrimitives::hash_match(const PartitionedTuples& build, const PartitionedTuples& probe,
                                                     uint32_t /*partitions*/, uint32_t /*common_bits*/, bool count_only,
                                                     void* scratch, const Job& job, Stream& stream) {
  job.check();
  id_.select();
  auto match = std::make_unique<GpuHashMatch>(build.layout, size_of(build), probe.layout, size_of(probe), count_only, nullptr,
                                              scratch, id_.name);
  start_match(*match, &build, probe, raw(stream));
  return match;
}

std::unique_ptr<HashMatch> GpuPrimitives::hash_probe(HashBuild& built, const PartitionedTuples& probe, uint32_t /*common_bits*/,
                                                     void* scratch, const Job& job, Stream& stream) {
  job.check();
  id_.select();
  auto& build = static_cast<gpu::GpuHashBuild&>(built);
  auto match = std::make_unique<GpuHashMatch>(build, probe.layout, size_of(probe), build.plan_.count_only, scratch, id_.name);
  start_match(*match, nullptr, probe, raw(stream));
  return match;
}

std::unique_ptr<HashMatch> GpuPrimitives::hash_match_into(JoinOutput out, uint64_t most, const PartitionedTuples& build,
                                                          const PartitionedTuples& probe, uint32_t /*partitions*/,
                                                          uint32_t /*common_bits*/, void* scratch, const Job& job,
                                                          Stream& stream) {
  job.check();
  id_.select();
  auto match = std::make_unique<GpuHashMatch>(build.layout, size_of(build), probe.layout, size_of(probe), false, nullptr, scratch,
                                              id_.name);
  if (hash_match_writes(build.layout, probe.layout)) {
    match->out = out;
    match->most_written = most;
  }
  start_match(*match, &build, probe, raw(stream));
  return match;
}

std::unique_ptr<HashBuild> GpuPrimitives::hash_build(const HashBuildPlan& plan, void* scratch) {
  id_.select();
  return std::make_unique<gpu::GpuHashBuild>(*this, plan, scratch, id_.name);
}

void GpuPrimitives::add_piece(gpu::GpuHashBuild& build, const PartitionedTuples& tuples, const Job& job, Stream& stream) {
  job.check();
  id_.select();
  const gpu_stream_t on = raw(stream);
  gpu::BuildSide& side = build.side;
  const uint64_t size = size_of(tuples), offsets = side.partitions + 1;
  if (side.pieces == build.plan_.pieces || side.size + size > side.most) {
    throw Error(ErrorCode::internal, "A build side has more tuples or pieces than were planned");
  }
  gpu::HashTuples to = side.tuples;
  to.data += uint64_t{side.size} * to.stride;
  uint32_t* const own = side.offsets + side.pieces * offsets;
  gpu::hash_split(side.layout, tuples.fragments, side.bits, to, build.split.between, own, build.split.split_scratch, on,
                  id_.name);
  if (side.size) {
    gpu::begin_piece<<<gpu::loop_blocks(offsets), kThreads, 0, on>>>(own, offsets, side.size);
    check_launch("begin_piece");
  }
  side.size += static_cast<uint32_t>(size);
  ++side.pieces;
}

void GpuPrimitives::finish_build(gpu::GpuHashBuild& build, const Job& job, Stream& stream) {
  job.check();
  id_.select();
  const gpu_stream_t on = raw(stream);
  gpu::BuildSide& side = build.side;
  if (side.pieces == 0) {
    GPU_CHECK(id_.name, gpu_memset_async(side.offsets, 0, (side.partitions + 1) * sizeof(uint32_t), on));
    side.pieces = 1;
  }
  clear(side, on);
  if (side.bits) {
    sort_partitions(side, on);
  } else {
    build_small(side, on);
  }
  count_crowded(side, build.split, on);
  ResultSlots::Slot& slot = results_.acquire(sizeof(uint32_t), on);
  auto* const found = slot.as<uint32_t>();
  gpu::copy_few<<<1, kThreads, 0, on>>>(found, side.crowded_before + side.partitions, 1);
  check_launch("copy_few");
  results_.finish(slot, [&side, found] { side.crowded_rows = *found; });
}

void GpuPrimitives::go_on_with_build(gpu::GpuHashBuild& build, void* memory, const Job& job, Stream& stream) {
  job.check();
  id_.select();
  host::Carver carver(memory);
  build.side.crowd = gpu::CrowdRoom(carver, build.side.layout, build.side.crowded_rows, id_.name);
  sort_crowd(build.side, raw(stream));
}

/// `own`: of the build side, where the match does not share one.
void GpuPrimitives::start_match(GpuHashMatch& match, const PartitionedTuples* own, const PartitionedTuples& probe,
                                gpu_stream_t on) {
  if (own) {
    gpu::hash_split(match.build.layout, own->fragments, match.build.bits, match.build.tuples, match.split.between,
                    match.build.offsets, match.split.split_scratch, on, id_.name);
  }
  for (const TupleView& fragment : probe.fragments) {
    if (fragment.size) match.probe_fragments.push_back(fragment);
  }
  if (match.build.bits) hash_probe(match, on);
  match_tables(match, on);
}

void GpuPrimitives::hash_probe(GpuHashMatch& match, gpu_stream_t on) {
  if (match.probe_hashed) return;
  gpu::hash_split(match.probe.layout, match.probe_fragments, match.build.bits, match.probe.tuples, match.split.between,
                  match.probe.offsets, match.split.split_scratch, on, id_.name);
  match.probe_hashed = true;
}

void GpuPrimitives::clear(gpu::BuildSide& build, gpu_stream_t on) {
  if (build.matched) GPU_CHECK(id_.name, gpu_memset_async(build.matched, 0, StackAllocator::aligned(build.size), on));
  GPU_CHECK(id_.name, gpu_memset_async(build.crowded, 0, build.partitions * sizeof(uint32_t), on));
}

void GpuPrimitives::match_tables(GpuHashMatch& match, gpu_stream_t on) {
  GPU_CHECK(id_.name, gpu_memset_async(match.counts, 0, sizeof(*match.counts), on));
  GPU_CHECK(id_.name, gpu_memset_async(match.table_matches, 0, match.partitions() * sizeof(uint32_t), on));
  if (!match.shares_build()) clear(match.build, on);
  if (match.build.bits) {
    match_in_tables(match, on);
  } else {
    if (!match.shares_build()) build_small(match.build, on, &match);
    match_small(match, on);
  }
  if (!match.shares_build()) count_crowded(match.build, match.split, on);
  gpu::count_by_table<<<gpu::loop_blocks(match.partitions()), kThreads, 0, on>>>(match.build.crowded, match.table_matches,
                                                                                 match.partitions(), &match.counts->by_table);
  check_launch("count_by_table");
  if (match.build.sorted_crowd) match_crowd(match, on);
  count_matches(match, on);
}

/// How much is in partitions that tables don't hold.
void GpuPrimitives::count_crowded(gpu::BuildSide& build, const gpu::SplitRoom& split, gpu_stream_t on) {
  gpu::count_crowded_rows<<<gpu::loop_blocks(build.partitions + 1), kThreads, 0, on>>>(build.all_pieces(), build.crowded,
                                                                                       build.crowded_before);
  check_launch("count_crowded_rows");
  size_t scan_bytes = split.scan_scratch_bytes;
  GPU_CHECK(id_.name, gpu::sums_before(split.scan_scratch, scan_bytes, build.crowded_before, build.partitions + 1, on));
}

/// What the match adds up to: for the tally, and for the tiles of the result.
void GpuPrimitives::count_matches(GpuHashMatch& match, gpu_stream_t on) {
  if (match.written()) return fetch_counts(match, on);
  GPU_CHECK(id_.name, gpu_memset_async(&match.counts->build, 0, sizeof(match.counts->build), on));
  const uint64_t build_size = match.build.size, probe_size = match.probe.size;
  const auto* const matched = reinterpret_cast<const uint4*>(match.build.matched);
  const uint64_t loads = (build_size + sizeof(uint4) - 1) / sizeof(uint4);
  if (matched) {
    gpu::count_matched<<<gpu::loop_blocks(loads), kThreads, 0, on>>>(matched, loads, &match.counts->build);
    check_launch("count_matched");
  }
  if (!match.count_only) {
    const uint64_t probe_tiles = gpu::emit_tiles(probe_size);
    gpu::count_probe_tiles<<<static_cast<unsigned>(probe_tiles + 1), kThreads, 0, on>>>(
        match.first_match, match.build.crowd_rows(), probe_size, match.pairs_before, match.probe_matched_before);
    check_launch("count_probe_tiles");
    match.sum(match.pairs_before, probe_tiles + 1, on, id_.name);
    match.sum(match.probe_matched_before, probe_tiles + 1, on, id_.name);
  }
  if (!match.count_only && matched) {
    constexpr unsigned kTiles = kThreads / gpu::kLanes;
    const uint64_t build_tiles = gpu::emit_tiles(build_size);
    gpu::count_build_tiles<<<static_cast<unsigned>(build_tiles / kTiles + 1), kThreads, 0, on>>>(matched, loads, build_tiles,
                                                                                                 match.build_matched_before);
    check_launch("count_build_tiles");
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
  gpu::copy_few<<<1, kThreads, 0, on>>>(&found->crowded_rows, match.build.crowded_before + match.partitions(), 1);
  check_launch("copy_few");
  results_.finish(slot, [&match, found] {
    const gpu::MatchCounts& counts = found->counts;
    match.found = {counts.by_table + counts.crowded_pairs, counts.build, counts.by_table + counts.crowded_probe};
    if (!match.shares_build()) match.build.crowded_rows = found->crowded_rows;
  });
}

size_t GpuPrimitives::hash_match_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size,
                                               uint32_t /*partitions*/, bool count_only) {
  id_.select();
  const auto bytes_for = [&](uint64_t rows) {
    return GpuHashMatch(build, rows, probe, probe_size, count_only, nullptr, nullptr, id_.name).bytes;
  };
  // Just too many rows for one table take less than some fewer.
  const uint32_t entry_bytes = gpu::table_entry_bytes(count_only ? TupleLayout{build.key_bytes, 0} : build);
  return std::max(bytes_for(build_size), bytes_for(std::min(build_size, gpu::most_small_rows(entry_bytes))));
}

size_t GpuPrimitives::hash_build_scratch_bytes(const HashBuildPlan& plan) {
  id_.select();
  return gpu::GpuHashBuild(*this, plan, nullptr, id_.name).bytes;
}

size_t GpuPrimitives::hash_probe_scratch_bytes(const HashBuildPlan& plan) {
  id_.select();
  gpu::GpuHashBuild build(*this, plan, nullptr, id_.name);
  return GpuHashMatch(build, plan.probe, plan.probe_at_once, plan.count_only, nullptr, id_.name).bytes;
}

uint64_t GpuPrimitives::hash_build_crowded_room(TupleLayout build, uint64_t rows, bool count_only) {
  id_.select();
  const TupleLayout layout = gpu::without_values_if(count_only, build);
  const uint32_t stride = gpu::hash_tuples(layout, nullptr).stride;
  return rows + (gpu::GpuHashBuild::crowd_bytes(layout, rows, id_.name) + stride - 1) / stride;
}

}  // namespace warpjoin
