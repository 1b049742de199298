// Reads rows in any order from a column that lies in the memory of several GPUs. Random reads wait for memory or a link, not
// for the processors: each thread has several of them under way.
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"

namespace warpjoin {
namespace {

using gpu::kLanes;
using gpu::kThreads;
using gpu::LaneMask;

constexpr unsigned kMostShards = Primitives::kMostShards;
constexpr unsigned kReads = 8;  // reads that a thread has under way, at least

/// Where a column's rows are. A shard's address is that of row 0, as if the shard went back as far, so that a row's place in
/// it is the row number itself.
struct Shards {
  Sharding sharding;
  uint64_t addresses[kMostShards];

  Shards(const ShardedColumn& column, uint64_t bits_a_row) : sharding(column.sharding), addresses{} {
    for (size_t s = 0; s < column.shards.size(); ++s) {
      addresses[s] = reinterpret_cast<uint64_t>(column.shards[s]) - s * sharding.shard_rows * bits_a_row / 8;
    }
  }
};

/// The addresses in shared memory: threads that look up different shards don't wait for each other there.
class ShardTable {
 public:
  __device__ ShardTable(const Shards& shards, uint64_t* shared) : sharding_(shards.sharding), addresses_(shared) {
    if (threadIdx.x < kMostShards) shared[threadIdx.x] = shards.addresses[threadIdx.x];
    __syncthreads();
  }
  template <class T>
  __device__ const T* of(uint64_t row) const {
    return reinterpret_cast<const T*>(addresses_[sharding_.shard_of(row)]);
  }

 private:
  const Sharding sharding_;
  const uint64_t* addresses_;
};

/// Items that are read or written together, up to 16 bytes at a time.
template <class T, unsigned count>
struct alignas(sizeof(T) * count < 16 ? sizeof(T) * count : 16) Group {
  T items[count];
};

struct alignas(16) Wide {
  uint64_t halves[2];
};

template <class Element, class Row>
__global__ void __launch_bounds__(kThreads)
    gather_elements(const Shards shards, const Row* rows, const uint32_t* valid, uint64_t size, Element* out) {
  constexpr unsigned kItems = 16 / sizeof(Element);  // of a group
  constexpr unsigned kGroups = kReads > kItems ? kReads / kItems : 1;
  using Rows = Group<Row, kItems>;
  using Elements = Group<Element, kItems>;
  __shared__ uint64_t addresses[kMostShards];
  const ShardTable column(shards, addresses);

  const uint64_t groups = size / kItems, step = uint64_t{gridDim.x} * kThreads * kGroups;
  for (uint64_t first = uint64_t{blockIdx.x} * kThreads * kGroups + threadIdx.x; first < groups; first += step) {
    Rows from[kGroups];
    uint32_t wanted[kGroups];
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
      const uint64_t at = first + g * kThreads;
      wanted[g] = 0;
      if (at >= groups) continue;
      from[g] = reinterpret_cast<const Rows*>(rows)[at];
      wanted[g] = valid ? valid[at * kItems / 32] >> (at * kItems % 32) : ~0u;
    }
    Elements found[kGroups];
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
#pragma unroll
      for (unsigned i = 0; i < kItems; ++i) {
        found[g].items[i] = Element{};
        if ((wanted[g] >> i) & 1) found[g].items[i] = column.of<Element>(from[g].items[i])[from[g].items[i]];
      }
    }
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
      if (first + g * kThreads < groups) reinterpret_cast<Elements*>(out)[first + g * kThreads] = found[g];
    }
  }
  const uint64_t last = groups * kItems + threadIdx.x;
  if (blockIdx.x == 0 && last < size) {
    const bool is_valid = !valid || (valid[last / 32] >> (last % 32)) & 1;
    out[last] = is_valid ? column.of<Element>(rows[last])[rows[last]] : Element{};
  }
}

// Every group of lanes makes kReads words at a time, a bit a lane.
template <class Row>
__global__ void __launch_bounds__(kThreads)
    gather_lane_bits(const Shards shards, const Row* rows, const LaneMask* valid, uint64_t size, LaneMask* out) {
  __shared__ uint64_t addresses[kMostShards];
  const ShardTable bitmap(shards, addresses);

  const uint64_t words = (size + 63) / 64 * (64 / kLanes);
  const uint64_t step = uint64_t{gridDim.x} * (kThreads / kLanes) * kReads;
  const unsigned lane = gpu::lane();
  for (uint64_t word = (uint64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes) * kReads; word < words; word += step) {
    Row from[kReads];
    bool wanted[kReads];
#pragma unroll
    for (unsigned d = 0; d < kReads; ++d) {
      const uint64_t at = (word + d) * kLanes + lane;
      wanted[d] = at < size && (!valid || (valid[word + d] >> lane) & 1);
      if (!wanted[d]) continue;
      from[d] = rows[at];
      wanted[d] = from[d] != static_cast<Row>(~Row{0});
    }
    bool bits[kReads];
#pragma unroll
    for (unsigned d = 0; d < kReads; ++d) {
      bits[d] = wanted[d] && (bitmap.of<uint8_t>(from[d])[from[d] / 8] >> (from[d] % 8)) & 1;
    }
    LaneMask mine = 0;
#pragma unroll
    for (unsigned d = 0; d < kReads; ++d) {
      const LaneMask made = gpu::ballot(bits[d]);
      if (lane == d) mine = made;
    }
    if (lane < kReads && word + lane < words) out[word + lane] = mine;
  }
}

/// Calls body(row number of that type) for the width of row numbers.
template <class Body>
void with_row_type(const RowNumbers& rows, Body&& body) {
  rows.row_bytes == 4 ? body(static_cast<const uint32_t*>(rows.rows)) : body(static_cast<const uint64_t*>(rows.rows));
}

template <class Body>
void with_element_type(uint8_t width, Body&& body) {
  switch (width) {
    case 1: return body(uint8_t{});
    case 2: return body(uint16_t{});
    case 4: return body(uint32_t{});
    case 8: return body(uint64_t{});
    case 16: return body(Wide{});
    default: throw Error(ErrorCode::internal, "Gathered values have 1, 2, 4, 8 or 16 bytes");
  }
}

}  // namespace

void GpuPrimitives::gather(const ShardedColumn& column, uint8_t width, RowNumbers rows, const void* valid, void* out,
                           const Job& job, Stream& stream) {
  job.check();
  if (rows.size == 0) return;
  id_.select();
  const Shards shards(column, uint64_t{width} * 8);
  with_element_type(width, [&]<class Element>(Element) {
    with_row_type(rows, [&](const auto* numbers) {
      gather_elements<<<gpu::loop_blocks(rows.size / kReads + 1), kThreads, 0, raw(stream)>>>(
          shards, numbers, static_cast<const uint32_t*>(valid), rows.size, static_cast<Element*>(out));
    });
  });
  check_launch("gather_elements");
}

void GpuPrimitives::gather_bits(const ShardedColumn& bitmap, RowNumbers rows, const void* valid, void* out, const Job& job,
                                Stream& stream) {
  job.check();
  if (rows.size == 0) return;
  id_.select();
  const Shards shards(bitmap, 1);
  with_row_type(rows, [&](const auto* numbers) {
    gather_lane_bits<<<gpu::loop_blocks(rows.size / kReads + 1), kThreads, 0, raw(stream)>>>(
        shards, numbers, static_cast<const LaneMask*>(valid), rows.size, static_cast<LaneMask*>(out));
  });
  check_launch("gather_lane_bits");
}

}  // namespace warpjoin
