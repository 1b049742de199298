// Where the tiles and the buckets of a split begin.
#include "primitives/gpu/multisplit.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {
namespace {

// Block b sums bucket b.
__global__ void __launch_bounds__(kThreads) sum_chunks(SplitCounts counts) {
  __shared__ uint64_t sums[kThreads / kLanes];
  __shared__ uint64_t total;
  uint64_t before = 0;
  for (uint64_t first = 0; first < counts.chunks; first += kThreads) {
    const uint64_t chunk = first + threadIdx.x, at = chunk * counts.buckets + blockIdx.x;
    const uint64_t count = chunk < counts.chunks ? counts.in_chunk[at] : 0;
    const uint64_t sum = before + sum_before<kThreads>(count, sums);
    if (chunk < counts.chunks) counts.before_chunk[at] = sum;
    if (threadIdx.x == kThreads - 1) total = sum + count;
    __syncthreads();
    before = total;
  }
  if (threadIdx.x == 0) counts.bucket_begins[blockIdx.x] = before;
}

// One block. `offsets` has a last entry for the number of tuples.
__global__ void __launch_bounds__(kMostBuckets) place_buckets(SplitCounts counts, uint64_t* offsets) {
  __shared__ uint64_t sums[kMostBuckets / kLanes];
  const unsigned bucket = threadIdx.x;
  const uint64_t size = bucket < counts.buckets ? counts.bucket_begins[bucket] : 0;
  const uint64_t begin = sum_before<kMostBuckets>(size, sums);
  if (bucket >= counts.buckets) return;
  counts.bucket_begins[bucket] = begin;
  offsets[bucket] = begin;
  if (bucket == counts.buckets - 1) offsets[counts.buckets] = begin + size;
}

}  // namespace

void place_tiles(const SplitCounts& counts, uint64_t* offsets, gpu_stream_t on, const std::string& device_name) {
  sum_chunks<<<counts.buckets, kThreads, 0, on>>>(counts);
  gpu_check(gpu_get_last_error(), "sum_chunks", device_name);
  place_buckets<<<1, kMostBuckets, 0, on>>>(counts, offsets);
  gpu_check(gpu_get_last_error(), "place_buckets", device_name);
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
