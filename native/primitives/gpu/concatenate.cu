// Copies any number of parts, small and large, with one launch: every group of lanes takes pieces of the output, which are
// of one size whatever the parts are, so that thousands of small parts keep a link as busy as one large part does.
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"

namespace warpjoin {
namespace {

using gpu::kLanes;
using gpu::kThreads;

constexpr unsigned kMostPieceBytes = 16 << 10;
constexpr unsigned kLeastPieceBytes = 256;  // of few tuples, too, many lanes take a part each: parts may be single tuples
constexpr unsigned kPieces = 1 << 12;       // enough to keep a link busy, or memory
constexpr unsigned kWords = 8;              // words that a lane has under way

struct SourcePart {
  const char* columns[2];  // keys and values
  uint64_t begin;          // its first row of the output
};

/// Where a column goes, and the width of its elements in bytes (0: there is no such column).
struct Columns {
  char* out[2];
  unsigned width[2];
};

// All words that a lane copies in a turn are under way together, in the last turn too: a link's latency is long.
template <class Word>
__device__ void copy_words(Word* to, const Word* from, uint64_t count) {
  for (uint64_t at = gpu::lane(); at < count; at += kWords * kLanes) {
    Word words[kWords];
#pragma unroll
    for (unsigned i = 0; i < kWords; ++i) {
      if (at + i * kLanes < count) words[i] = from[at + i * kLanes];
    }
#pragma unroll
    for (unsigned i = 0; i < kWords; ++i) {
      if (at + i * kLanes < count) to[at + i * kLanes] = words[i];
    }
  }
}

// 16 bytes at a time where both ends are aligned alike.
template <class T>
__device__ void copy_elements(char* to_bytes, const char* from_bytes, uint64_t count) {
  constexpr unsigned kWide = sizeof(uint4) / sizeof(T);
  T* to = reinterpret_cast<T*>(to_bytes);
  const T* from = reinterpret_cast<const T*>(from_bytes);
  const auto to_at = reinterpret_cast<uintptr_t>(to), from_at = reinterpret_cast<uintptr_t>(from);
  if ((to_at ^ from_at) % sizeof(uint4) != 0) return copy_words(to, from, count);
  uint64_t head = (sizeof(uint4) - to_at % sizeof(uint4)) % sizeof(uint4) / sizeof(T);
  head = head < count ? head : count;
  const uint64_t words = (count - head) / kWide, tail = head + words * kWide;
  if (gpu::lane() < head) to[gpu::lane()] = from[gpu::lane()];
  copy_words(reinterpret_cast<uint4*>(to + head), reinterpret_cast<const uint4*>(from + head), words);
  if (gpu::lane() < count - tail) to[tail + gpu::lane()] = from[tail + gpu::lane()];
}

// The last of `parts` that begins at or before `row`.
__device__ unsigned part_of(const SourcePart* parts, unsigned count, uint64_t row) {
  unsigned first = 0, last = count;
  while (last - first > 1) {
    const unsigned middle = first + (last - first) / 2;
    if (parts[middle].begin <= row) {
      first = middle;
    } else {
      last = middle;
    }
  }
  return first;
}

// `parts` has an entry behind the last one, which begins where the output ends. No part is empty.
__global__ void __launch_bounds__(kThreads)
    copy_parts(const SourcePart* parts, unsigned count, unsigned piece_bytes, Columns columns) {
  const unsigned column = blockIdx.y, width = columns.width[column], piece_rows = piece_bytes / width;
  const uint64_t size = parts[count].begin, pieces = (size + piece_rows - 1) / piece_rows;
  constexpr unsigned kGroups = kThreads / kLanes;
  const uint64_t groups = uint64_t{gridDim.x} * kGroups;
  for (uint64_t piece = uint64_t{blockIdx.x} * kGroups + threadIdx.x / kLanes; piece < pieces; piece += groups) {
    uint64_t row = piece * piece_rows;
    const uint64_t end = row + piece_rows < size ? row + piece_rows : size;
    for (unsigned p = part_of(parts, count, row); row < end; ++p) {
      const uint64_t part_end = parts[p + 1].begin < end ? parts[p + 1].begin : end;
      const char* from = parts[p].columns[column] + (row - parts[p].begin) * width;
      char* to = columns.out[column] + row * width;
      if (width == 4) {
        copy_elements<uint32_t>(to, from, part_end - row);
      } else {
        copy_elements<uint64_t>(to, from, part_end - row);
      }
      row = part_end;
    }
  }
}

}  // namespace

void GpuPrimitives::concatenate(TupleLayout layout, std::span<const TupleView> parts, TupleSpan out, void* scratch,
                                const Job& job, Stream& stream) {
  job.check();
  if (out.size == 0) return;
  if (parts.size() >= UINT32_MAX) not_supported_on(device_, "Concatenating 2^32 parts");
  id_.select();
  const gpu_stream_t on = raw(stream);
  ResultSlots::Slot& slot = results_.acquire((parts.size() + 1) * sizeof(SourcePart), on);
  auto* const table = slot.as<SourcePart>();
  unsigned count = 0;
  uint64_t row = 0;
  for (const TupleView& part : parts) {
    if (part.size == 0) continue;
    table[count++] = {{static_cast<const char*>(part.keys), static_cast<const char*>(part.values)}, row};
    row += part.size;
  }
  table[count] = {{nullptr, nullptr}, row};
  gpu::copy_few<<<1, kThreads, 0, on>>>(static_cast<SourcePart*>(scratch), table, count + 1);
  check_launch("copy_few");
  const Columns columns{{static_cast<char*>(out.keys), static_cast<char*>(out.values)}, {layout.key_bytes, layout.value_bytes}};
  const uint64_t bytes = row * std::max(layout.key_bytes, layout.value_bytes);
  const auto piece = static_cast<unsigned>(std::clamp<uint64_t>(bytes / kPieces, kLeastPieceBytes, kMostPieceBytes) / 16 * 16);
  const dim3 grid(gpu::loop_blocks((bytes / piece + 1) * kLanes), layout.value_bytes ? 2 : 1);
  copy_parts<<<grid, kThreads, 0, on>>>(static_cast<const SourcePart*>(scratch), count, piece, columns);
  check_launch("copy_parts");
  results_.finish(slot, [] {});
}

size_t GpuPrimitives::concatenate_scratch_bytes(size_t parts) { return (parts + 1) * sizeof(SourcePart); }

}  // namespace warpjoin
