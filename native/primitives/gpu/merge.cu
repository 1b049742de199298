// Merges by merge path: the output is cut into equal tiles, each the merge of one piece of either run.
#include <vector>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"

namespace warpjoin {
namespace {

using gpu::kThreads;
using gpu::merge_path;
using gpu::Run;

// Tuples a thread merges: odd, so that the threads' places in shared memory fall into different banks.
constexpr unsigned kItems = 7;
constexpr unsigned kTile = kThreads * kItems;

constexpr uint64_t tiles_of(uint64_t size) { return (size + kTile - 1) / kTile; }

// A kernel of its own, so that the searches' latencies (over a link, perhaps) overlap.
template <class Key>
__global__ void cut_tiles(const Key* a, uint64_t a_size, const Key* b, uint64_t b_size, uint64_t cuts, uint64_t* a_cuts) {
  for (uint64_t i = gpu::loop_begin(); i < cuts; i += gpu::loop_step()) {
    const uint64_t size = a_size + b_size;
    a_cuts[i] = merge_path(a, a_size, b, b_size, i * kTile < size ? i * kTile : size);
  }
}

template <class Key, class Value>
__global__ void merge_tiles(Run<Key, Value> a, Run<Key, Value> b, Key* out_keys, Value* out_values, const uint64_t* a_cuts) {
  __shared__ Key keys[kTile];         // the piece of a, then that of b
  __shared__ uint16_t source[kTile];  // where in `keys` each tuple of the tile comes from
  static_assert(kTile <= UINT16_MAX);
  const uint64_t size = a.size + b.size;
  const uint64_t tile = blockIdx.x, begin = tile * kTile;
  const auto count = static_cast<unsigned>(size - begin < kTile ? size - begin : kTile);
  const uint64_t a_begin = a_cuts[tile], b_begin = begin - a_begin;
  const auto a_count = static_cast<unsigned>(a_cuts[tile + 1] - a_begin), b_count = count - a_count;
  for (unsigned i = threadIdx.x; i < count; i += kThreads) {
    keys[i] = i < a_count ? a.keys[a_begin + i] : b.keys[b_begin + (i - a_count)];
  }
  __syncthreads();
  const unsigned first = threadIdx.x * kItems;
  if (first < count) {
    unsigned i = merge_path(keys, a_count, keys + a_count, b_count, first), j = first - i;
    for (unsigned k = first; k < first + kItems && k < count; ++k) {
      const bool from_a = j >= b_count || (i < a_count && keys[i] <= keys[a_count + j]);
      source[k] = static_cast<uint16_t>(from_a ? i++ : a_count + j++);
    }
  }
  __syncthreads();
  for (unsigned k = threadIdx.x; k < count; k += kThreads) {
    const unsigned from = source[k];
    out_keys[begin + k] = keys[from];
    if constexpr (gpu::is_value<Value>) {
      out_values[begin + k] = from < a_count ? a.value(a_begin + from) : b.value(b_begin + (from - a_count));
    }
  }
}

size_t levels_of(size_t runs) {
  size_t levels = 1;
  while ((size_t{1} << levels) < runs) ++levels;
  return levels;
}

size_t cut_bytes(uint64_t size) { return StackAllocator::aligned((tiles_of(size) + 1) * sizeof(uint64_t)); }

}  // namespace

void GpuPrimitives::merge(TupleLayout layout, std::span<const TupleView> runs, TupleSpan out, void* scratch, const Job& job,
                          Stream& stream) {
  job.check();
  if (out.size == 0) return;
  id_.select();
  gpu::with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    const gpu_stream_t on = raw(stream);
    auto* cuts = static_cast<uint64_t*>(scratch);
    const auto merge_two = [&](const TupleView& a, const TupleView& b, const TupleSpan& to) {
      if (to.size == 0) return;
      const uint64_t tiles = tiles_of(to.size);
      const Run<Key, Value> left(a), right(b);
      cut_tiles<<<gpu::loop_blocks(tiles + 1), kThreads, 0, on>>>(left.keys, left.size, right.keys, right.size, tiles + 1, cuts);
      check_launch("cut_tiles");
      merge_tiles<<<static_cast<unsigned>(tiles), kThreads, 0, on>>>(left, right, static_cast<Key*>(to.keys),
                                                                     static_cast<Value*>(to.values), cuts);
      check_launch("merge_tiles");
    };

    // A tree of merges between `out` and the scratch, such that the last one writes `out`.
    TupleSpan between;
    if (runs.size() > 2) {
      char* keys = static_cast<char*>(scratch) + cut_bytes(out.size);
      between = {keys, layout.value_bytes ? keys + StackAllocator::aligned(out.size * sizeof(Key)) : nullptr, out.size};
    }
    std::vector<TupleView> level(runs.begin(), runs.end());
    for (size_t left = levels_of(level.size()); left > 0; --left) {
      const TupleSpan& target = left % 2 ? out : between;
      std::vector<TupleView> merged;
      uint64_t at = 0;
      for (size_t i = 0; i < level.size(); i += 2) {
        const TupleView a = level[i], b = i + 1 < level.size() ? level[i + 1] : TupleView{};
        const TupleSpan to = target.slice(layout, at, at + a.size + b.size);
        merge_two(a, b, to);
        merged.push_back(to.view());
        at += to.size;
      }
      level = std::move(merged);
    }
  });
}

size_t GpuPrimitives::merge_scratch_bytes(TupleLayout layout, size_t runs, uint64_t size) {
  if (size == 0) return 0;
  const size_t between = StackAllocator::aligned(size * layout.key_bytes) + StackAllocator::aligned(size * layout.value_bytes);
  return cut_bytes(size) + (runs > 2 ? between : 0);
}

}  // namespace warpjoin
