// Writes what a hash match found. Rows add anything from nothing to millions of rows to the result: blocks share the rows read
// and the rows written evenly, as a merge path of both.
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/hash_match.h"

namespace warpjoin {
namespace {

using gpu::GpuHashMatch;
using gpu::HashTuples;
using gpu::kEmitTile;
using gpu::kNoRow;
using gpu::kThreads;

constexpr unsigned kRowsAThread = kEmitTile / kThreads;
constexpr uint64_t kBlockWork = 4 * kEmitTile;

/// The result's rows [first, first + rows).
struct Window {
  const uint64_t* counted;  // of each tile, and all: rows before it
  bool others;              // the result has those rows of `size` that were not counted
  uint64_t size, tiles, first, rows;

  /// Rows of the result before a tile.
  __device__ uint64_t before(uint64_t tile) const {
    return others ? (tile * kEmitTile < size ? tile * kEmitTile : size) - counted[tile] : counted[tile];
  }
  /// Rows of the window before a tile.
  __device__ uint64_t begin(uint64_t tile) const {
    const uint64_t at = before(tile);
    return at <= first ? 0 : at - first < rows ? at - first : rows;
  }
  /// The work before a tile: its rows are read before what they add is written.
  __device__ uint64_t work(uint64_t tile) const { return tile * kEmitTile + begin(tile); }
};

/// Probe tuples with each of their build tuples.
struct Pairs {
  const uint32_t* first_match;
  gpu::CrowdRows crowd;
  HashTuples crowd_tuples;

  __device__ uint32_t count(uint64_t row) const {
    const uint32_t match = first_match[row];
    return match == kNoRow ? 0 : crowd.rows_with_key(match);
  }
  /// The n-th build tuple of a probe tuple.
  __device__ void write_build_value(void* values, uint64_t to, const HashTuples& build, uint64_t from, uint64_t n) const {
    const uint32_t match = first_match[from];
    if (match < crowd.first) {
      gpu::write_value(values, to, build, match);
    } else {
      gpu::write_value(values, to, crowd_tuples, match - crowd.first + n);
    }
  }
};
/// Probe tuples that have a match, or have none.
struct ProbeRows {
  const uint32_t* first_match;
  bool wanted;
  __device__ uint32_t count(uint64_t row) const { return (first_match[row] != kNoRow) == wanted; }
};
struct BuildRows {
  const uint8_t* matched;
  bool wanted;
  __device__ uint32_t count(uint64_t row) const { return (matched[row] != 0) == wanted; }
};

template <class Key, class Rows>
__global__ void __launch_bounds__(kThreads)
    emit_rows(Window window, Rows rows, HashTuples build, HashTuples probe, JoinOutput out) {
  __shared__ uint64_t begins[kEmitTile];  // of each row in the tile's part of the result
  __shared__ uint64_t sums[kThreads / gpu::kLanes];
  const uint64_t work_begin = blockIdx.x * kBlockWork, work_end = work_begin + kBlockWork;
  uint64_t tile = 0;
  for (uint64_t end = window.tiles; end - tile > 1;) {
    const uint64_t middle = tile + (end - tile) / 2;
    if (window.work(middle) <= work_begin) {
      tile = middle;
    } else {
      end = middle;
    }
  }
  for (; tile < window.tiles && window.work(tile) < work_end; ++tile) {
    const uint64_t writes = window.work(tile) + kEmitTile;  // the work before the first row that the tile adds
    const uint64_t added = window.begin(tile + 1) - window.begin(tile);
    const uint64_t first = work_begin > writes ? work_begin - writes : 0;
    const uint64_t last = work_end > writes ? (work_end - writes < added ? work_end - writes : added) : 0;
    if (first >= last) continue;

    const uint64_t tile_begin = tile * kEmitTile;
    for (unsigned i = threadIdx.x; i < kEmitTile; i += kThreads) {
      begins[i] = tile_begin + i < window.size ? rows.count(tile_begin + i) : 0;
    }
    __syncthreads();
    uint64_t own[kRowsAThread], sum = 0;
#pragma unroll
    for (unsigned i = 0; i < kRowsAThread; ++i) {
      own[i] = begins[threadIdx.x * kRowsAThread + i];
      sum += own[i];
    }
    uint64_t begin = gpu::sum_before<kThreads>(sum, sums);
#pragma unroll
    for (unsigned i = 0; i < kRowsAThread; ++i) {
      begins[threadIdx.x * kRowsAThread + i] = begin;
      begin += own[i];
    }
    __syncthreads();
    const uint64_t skipped = window.before(tile) < window.first ? window.first - window.before(tile) : 0;
    const uint64_t out_begin = window.begin(tile);
    for (uint64_t i = first + threadIdx.x; i < last; i += kThreads) {
      unsigned row = 0;
#pragma unroll
      for (unsigned step = kEmitTile / 2; step > 0; step /= 2) {
        if (begins[row + step] <= i + skipped) row += step;
      }
      const uint64_t from = tile_begin + row, to = out_begin + i;
      if constexpr (std::is_same_v<Rows, BuildRows>) {
        gpu::write_key<Key>(out.keys, to, build, from);
        gpu::write_value(out.build_values, to, build, from);
      } else {
        gpu::write_key<Key>(out.keys, to, probe, from);
        gpu::write_value(out.probe_values, to, probe, from);
        if constexpr (std::is_same_v<Rows, Pairs>) {
          rows.write_build_value(out.build_values, to, build, from, i + skipped - begins[row]);
        }
      }
    }
    __syncthreads();
  }
}

}  // namespace

void GpuPrimitives::hash_emit(const HashMatch& found, JoinEmit what, uint64_t first, uint64_t rows, JoinOutput out,
                              const Job& job, Stream& stream) {
  job.check();
  if (rows == 0) return;
  id_.select();
  const auto& match = static_cast<const GpuHashMatch&>(found);
  const auto emit = [&](const gpu::HashSide& side, const uint64_t* counted, bool others, const auto& from) {
    const Window window{counted, others, side.size, gpu::emit_tiles(side.size), first, rows};
    const auto blocks = static_cast<unsigned>((window.tiles * kEmitTile + rows + kBlockWork - 1) / kBlockWork);
    gpu::with_key(side.layout, [&]<class Key>(Key) {
      emit_rows<Key><<<blocks, kThreads, 0, raw(stream)>>>(window, from, match.build.tuples, match.probe.tuples, out);
    });
    check_launch("emit_rows");
  };
  const bool wanted = what == JoinEmit::build_matched || what == JoinEmit::probe_matched;
  switch (what) {
    case JoinEmit::pairs:
      return emit(match.probe, match.pairs_before, false,
                  Pairs{match.first_match, match.build.crowd_rows(), match.build.crowd.tuples});
    case JoinEmit::probe_matched:
    case JoinEmit::probe_unmatched:
      return emit(match.probe, match.probe_matched_before, !wanted, ProbeRows{match.first_match, wanted});
    case JoinEmit::build_matched:
    case JoinEmit::build_unmatched:
      return emit(match.build, match.build_matched_before, !wanted, BuildRows{match.build.matched, wanted});
  }
}

}  // namespace warpjoin
