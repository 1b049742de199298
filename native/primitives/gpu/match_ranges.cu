// Match ranges by merge path: the merge of both relations, in which build tuples come before equal probe tuples, is cut into
// equal tiles. A range is found where a probe key that begins a run of equal keys follows an equal build key: that is one
// place in one tile, whatever the skew.
//   cut_tiles    finds where each tile begins, and how far the runs of keys that a cut divides reach
//   count_tiles  counts each tile's ranges
//   sum_tiles    adds the counts up: now the place of each tile's first range is known
//   write_tiles  finds the ranges again and writes them
// No thread walks along a run: its ends are searched, in a tile's shared memory or, beyond the tile, by cut_tiles.
#include <algorithm>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"
#include "primitives/host/blocks.h"

namespace warpjoin {
namespace {

using gpu::kLanes;
using gpu::kThreads;
using gpu::merge_path;

constexpr unsigned kItems = 11;  // keys of a thread: odd, so that their places in shared memory fall into different banks
constexpr unsigned kTile = kThreads * kItems;
constexpr unsigned kSumThreads = 1024;
constexpr unsigned kSumItems = 8;

constexpr uint64_t tiles_of(uint64_t size) { return (size + kTile - 1) / kTile; }

/// Where a tile begins in the merge.
struct Cut {
  uint64_t build;        // build rows before it; the other rows before it are probe rows
  uint64_t build_begin;  // where the run of the last of them begins
  uint64_t probe_end;    // where the run of the last probe row before it ends
};

struct Scratch {
  Cut* cuts;         // tiles + 1
  uint64_t* counts;  // of each tile's ranges, then of those before it
  size_t bytes;

  Scratch(void* scratch, uint64_t size) : Scratch(host::Carver(scratch), size) {}

 private:
  Scratch(host::Carver carver, uint64_t size)
      : cuts(carver.take<Cut>(tiles_of(size) + 1)), counts(carver.take<uint64_t>(tiles_of(size))), bytes(carver.bytes()) {}
};

template <class Key>
struct Relations {
  const Key* build;
  const Key* probe;
  uint64_t build_size, probe_size;
};

// Where the run of equal keys with row `at` begins. Steps double: most runs are short.
template <class Key, class Index>
__device__ Index run_begin(const Key* keys, Index at) {
  const Key key = keys[at];
  Index high = at, step = 1;
  while (step <= high && keys[high - step] == key) {
    high -= step;
    step *= 2;
  }
  Index low = step <= high ? high - step + 1 : 0;
  while (low < high) {
    const Index middle = low + (high - low) / 2;
    if (keys[middle] == key) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

// Where it ends.
template <class Key, class Index>
__device__ Index run_end(const Key* keys, Index at, Index size) {
  const Key key = keys[at];
  Index low = at + 1, step = 1;
  while (step <= size - low && keys[low + step - 1] == key) {
    low += step;
    step *= 2;
  }
  Index high = step <= size - low ? low + step - 1 : size;
  while (low < high) {
    const Index middle = low + (high - low) / 2;
    if (keys[middle] == key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A kernel of its own, so that the searches' latencies overlap.
template <class Key>
__global__ void cut_tiles(Relations<Key> in, uint64_t tiles, Cut* cuts) {
  const uint64_t size = in.build_size + in.probe_size;
  for (uint64_t tile = gpu::loop_begin(); tile <= tiles; tile += gpu::loop_step()) {
    const uint64_t rank = tile < tiles ? tile * kTile : size;
    const uint64_t build = merge_path(in.build, in.build_size, in.probe, in.probe_size, rank), probe = rank - build;
    cuts[tile] = {build, build ? run_begin(in.build, build - 1) : 0, probe ? run_end(in.probe, probe - 1, in.probe_size) : 0};
  }
}

/// A tile's keys in shared memory. Its build keys are build[1], build[2], ... and build[0] is the one before them; so are
/// its probe keys.
template <class Key>
struct Tile {
  static constexpr unsigned kKeys = kTile + 3;  // the last one is read, but decides nothing

  uint64_t build_row, probe_row;  // of build[1] and probe[1]
  unsigned size, build_size, probe_size;
  const Key *build, *probe;

  /// All threads of a block call it, which synchronizes them.
  __device__ Tile(const Relations<Key>& in, const Cut* cuts, uint64_t tile, Key* keys) {
    const uint64_t begin = tile * kTile, left = in.build_size + in.probe_size - begin;
    size = left < kTile ? static_cast<unsigned>(left) : kTile;
    build_row = cuts[tile].build;
    probe_row = begin - build_row;
    build_size = static_cast<unsigned>(cuts[tile + 1].build - build_row);
    probe_size = size - build_size;
    build = keys;
    probe = keys + build_size + 1;
    Key own[kItems];
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      const unsigned at = threadIdx.x + i * kThreads;
      if (at < size)
        own[i] = gpu::load_once(at < build_size ? in.build + build_row + at : in.probe + probe_row + (at - build_size));
    }
#pragma unroll
    for (unsigned i = 0; i < kItems; ++i) {
      const unsigned at = threadIdx.x + i * kThreads;
      if (at < size) keys[at + (at < build_size ? 1 : 2)] = own[i];
    }
    // Before the first build key there is nothing less than it that a probe key could equal; before the first probe key there
    // must be another key.
    if (threadIdx.x == 0) keys[0] = in.build[build_row ? build_row - 1 : 0];
    if (threadIdx.x == kLanes) keys[build_size + 1] = probe_row ? in.probe[probe_row - 1] : ~in.probe[0];
    __syncthreads();
  }
};

/// A thread's part of a tile, a bit for each of its keys.
struct Steps {
  unsigned first, first_build;  // how many of the tile's keys, and of its build keys, are before
  uint32_t from_build = 0;      // the build keys
  uint32_t found = 0;           // the probe keys at which a range is found
  static_assert(kItems <= 32);

  template <class Key>
  __device__ explicit Steps(const Tile<Key>& tile) : first(threadIdx.x * kItems), first_build(0) {
    if (first >= tile.size) return;
    unsigned i = merge_path(tile.build + 1, tile.build_size, tile.probe + 1, tile.probe_size, first), j = first - i;
    first_build = i;
    Key last_build = tile.build[i], build = tile.build[i + 1], last_probe = tile.probe[j], probe = tile.probe[j + 1];
#pragma unroll
    for (unsigned k = 0; k < kItems; ++k) {
      if (first + k >= tile.size) continue;
      if (j == tile.probe_size || (i < tile.build_size && build <= probe)) {
        from_build |= 1u << k;
        last_build = build;
        build = tile.build[++i + 1];
      } else {
        if (probe == last_build && probe != last_probe) found |= 1u << k;
        last_probe = probe;
        probe = tile.probe[++j + 1];
      }
    }
  }
  __device__ unsigned count() const { return static_cast<unsigned>(__popc(found)); }
};

// Block t counts tile t.
template <class Key>
__global__ void __launch_bounds__(kThreads) count_tiles(Relations<Key> in, const Cut* cuts, uint64_t* counts) {
  __shared__ Key keys[Tile<Key>::kKeys];
  __shared__ unsigned sums[kThreads / kLanes];
  const Tile<Key> tile(in, cuts, blockIdx.x, keys);
  const unsigned count = Steps(tile).count(), before = gpu::sum_before<kThreads>(count, sums);
  if (threadIdx.x == kThreads - 1) counts[blockIdx.x] = before + count;
}

// One block.
__global__ void __launch_bounds__(kSumThreads) sum_tiles(uint64_t* counts, uint64_t tiles, uint64_t* total) {
  __shared__ uint64_t sums[kSumThreads / kLanes];
  __shared__ uint64_t until;
  uint64_t before = 0;
  for (uint64_t begin = 0; begin < tiles; begin += kSumThreads * kSumItems) {
    const uint64_t first = begin + threadIdx.x * kSumItems;
    uint64_t own[kSumItems], sum = 0;
#pragma unroll
    for (unsigned i = 0; i < kSumItems; ++i) {
      own[i] = sum;
      sum += first + i < tiles ? counts[first + i] : 0;
    }
    const uint64_t here = before + gpu::sum_before<kSumThreads>(sum, sums);
#pragma unroll
    for (unsigned i = 0; i < kSumItems; ++i) {
      if (first + i < tiles) counts[first + i] = here + own[i];
    }
    if (threadIdx.x == kSumThreads - 1) until = here + sum;
    __syncthreads();
    before = until;
  }
  if (threadIdx.x == 0) *total = before;
}

/// How many build and probe keys of a tile are before the place where a range is found.
struct Place {
  uint16_t build, probe;
};

// Block t writes the ranges of tile t; two lanes write a range, one of them its build rows and the other its probe rows.
template <class Key, class Row>
__global__ void __launch_bounds__(kThreads)
    write_tiles(Relations<Key> in, const Cut* cuts, const uint64_t* counts, MatchRangeOf<Row>* ranges) {
  struct alignas(2 * sizeof(Row)) Rows {  // one access
    Row begin, end;
  };
  static_assert(2 * sizeof(Rows) == sizeof(MatchRangeOf<Row>));
  __shared__ Key keys[Tile<Key>::kKeys];
  __shared__ unsigned sums[kThreads / kLanes];
  __shared__ Place found[kTile / 2 + 1];
  __shared__ unsigned total;
  static_assert(kTile <= UINT16_MAX);
  const Tile<Key> tile(in, cuts, blockIdx.x, keys);
  const Steps steps(tile);
  unsigned at = gpu::sum_before<kThreads>(steps.count(), sums);
  for (uint32_t left = steps.found; left; left &= left - 1) {
    const uint32_t before = (left & -left) - 1;  // a bit for each key before it
    const unsigned build = steps.first_build + static_cast<unsigned>(__popc(steps.from_build & before));
    const unsigned probe = steps.first + static_cast<unsigned>(__popc(before)) - build;
    found[at++] = {static_cast<uint16_t>(build), static_cast<uint16_t>(probe)};
  }
  if (threadIdx.x == kThreads - 1) total = at;
  __syncthreads();
  auto* const out = reinterpret_cast<Rows*>(ranges + counts[blockIdx.x]);
  for (unsigned i = threadIdx.x; i < 2 * total; i += kThreads) {
    const Place range = found[i / 2];
    uint64_t begin, end;
    if (i % 2 == 0) {
      const unsigned first = run_begin(tile.build, unsigned{range.build});
      begin = first ? tile.build_row + first - 1 : cuts[blockIdx.x].build_begin;
      end = tile.build_row + range.build;
    } else {
      const unsigned past = run_end(tile.probe, unsigned{range.probe} + 1, tile.probe_size + 1);
      begin = tile.probe_row + range.probe;
      end = past <= tile.probe_size ? tile.probe_row + past - 1 : cuts[blockIdx.x + 1].probe_end;
    }
    out[i] = {static_cast<Row>(begin), static_cast<Row>(end)};
  }
}

/// Each block leaves the sums of the ranges that it reads.
__global__ void __launch_bounds__(kThreads)
    sum_ranges_of_blocks(const NarrowMatchRange* ranges, uint64_t count, MatchSums* sums) {
  __shared__ uint64_t before[4][kThreads / kLanes];
  MatchSums own;
  for (uint64_t i = gpu::loop_begin(); i < count; i += gpu::loop_step()) {
    const uint4 range = gpu::load_once(reinterpret_cast<const uint4*>(ranges) + i);
    own.add(range.y - range.x, range.w - range.z);
  }
  own.build_rows += gpu::sum_before<kThreads>(own.build_rows, before[0]);
  own.probe_rows += gpu::sum_before<kThreads>(own.probe_rows, before[1]);
  own.pairs_low += gpu::sum_before<kThreads>(own.pairs_low, before[2]);
  own.pairs_high += gpu::sum_before<kThreads>(own.pairs_high, before[3]);
  if (threadIdx.x == kThreads - 1) sums[blockIdx.x] = own;
}

}  // namespace

void GpuPrimitives::match_ranges(TupleLayout build_layout, TupleView build, TupleLayout, TupleView probe, void* ranges,
                                 uint8_t row_bytes, uint64_t* host_count, void* scratch, const Job& job, Stream& stream) {
  job.check();
  if (build.size == 0 || probe.size == 0) {
    *host_count = 0;
    return;
  }
  id_.select();
  const gpu_stream_t on = raw(stream);
  const uint64_t size = build.size + probe.size, tiles = tiles_of(size);
  const auto blocks = static_cast<unsigned>(tiles);
  const Scratch own(scratch, size);
  ResultSlots::Slot& slot = results_.acquire(sizeof(uint64_t), on);
  auto* const total = slot.as<uint64_t>();
  const auto match = [&]<class Key>(Key) {
    const Relations<Key> in{static_cast<const Key*>(build.keys), static_cast<const Key*>(probe.keys), build.size, probe.size};
    cut_tiles<<<gpu::loop_blocks(tiles + 1), kThreads, 0, on>>>(in, tiles, own.cuts);
    check_launch("cut_tiles");
    count_tiles<<<blocks, kThreads, 0, on>>>(in, own.cuts, own.counts);
    check_launch("count_tiles");
    sum_tiles<<<1, kSumThreads, 0, on>>>(own.counts, tiles, total);
    check_launch("sum_tiles");
    if (!ranges) return;
    if (row_bytes == 4) {
      write_tiles<<<blocks, kThreads, 0, on>>>(in, own.cuts, own.counts, static_cast<NarrowMatchRange*>(ranges));
    } else {
      write_tiles<<<blocks, kThreads, 0, on>>>(in, own.cuts, own.counts, static_cast<MatchRange*>(ranges));
    }
    check_launch("write_tiles");
  };
  build_layout.key_bytes == 4 ? match(uint32_t{}) : match(uint64_t{});
  results_.finish(slot, [=] { *host_count = *total; });
}

size_t GpuPrimitives::match_ranges_scratch_bytes(TupleLayout, uint64_t build_size, TupleLayout, uint64_t probe_size) {
  return build_size && probe_size ? Scratch(nullptr, build_size + probe_size).bytes : 0;
}

void GpuPrimitives::sum_ranges(const NarrowMatchRange* ranges, uint64_t count, MatchSums* host_sums, const Job& job,
                               Stream& stream) {
  static_assert(sizeof(NarrowMatchRange) == sizeof(uint4));
  job.check();
  *host_sums = {};
  if (count == 0) return;
  id_.select();
  const gpu_stream_t on = raw(stream);
  const unsigned blocks = gpu::loop_blocks(count);
  ResultSlots::Slot& slot = results_.acquire(blocks * sizeof(MatchSums), on);
  auto* const sums = slot.as<MatchSums>();
  sum_ranges_of_blocks<<<blocks, kThreads, 0, on>>>(ranges, count, sums);
  check_launch("sum_ranges_of_blocks");
  results_.finish(slot, [=] {
    for (unsigned b = 0; b < blocks; ++b) host_sums->add(sums[b]);
  });
}

}  // namespace warpjoin
