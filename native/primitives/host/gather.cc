#include <bit>
#include <cstring>

#include "core/error.h"
#include "primitives/host/blocks.h"
#include "primitives/host/host_primitives.h"

namespace warpjoin {
namespace {

constexpr uint64_t kGatherGrain = uint64_t{1} << 14;
constexpr uint64_t kCheckWords = host::kCheckRows / 64;

inline bool bit_of(const void* bitmap, uint64_t bit) { return (static_cast<const uint8_t*>(bitmap)[bit / 8] >> (bit % 8)) & 1; }

// Row i of the list; UINT64_MAX where it is missing.
inline uint64_t row_at(const RowNumbers& rows, uint64_t i) {
  if (rows.row_bytes == 8) return static_cast<const uint64_t*>(rows.rows)[i];
  const uint32_t row = static_cast<const uint32_t*>(rows.rows)[i];
  return row == UINT32_MAX ? UINT64_MAX : row;
}

// Calls body(shard, row within it).
template <class Body>
inline void with_row(const ShardedColumn& column, uint64_t row, Body&& body) {
  const uint32_t shard = column.sharding.shard_of(row);
  body(column.shards[shard], row - shard * column.sharding.shard_rows);
}

}  // namespace

void HostPrimitives::gather(const ShardedColumn& column, uint8_t width, RowNumbers rows, const void* valid, void* out,
                            const Job& job, Stream& stream) {
  if (!std::has_single_bit(width) || width > 16) throw Error(ErrorCode::internal, "Gathered values have 1, 2, 4, 8 or 16 bytes");
  host(stream).enqueue([=, this, &job] {
    job.check();
    pool_.for_blocks(rows.size, kGatherGrain, job, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) {
        if (i % host::kCheckRows == 0) job.check();
        char* const to = static_cast<char*>(out) + i * width;
        if (valid && !bit_of(valid, i)) {
          std::memset(to, 0, width);
          continue;
        }
        with_row(column, row_at(rows, i),
                 [&](const void* shard, uint64_t at) { std::memcpy(to, static_cast<const char*>(shard) + at * width, width); });
      }
    });
  });
}

void HostPrimitives::gather_bits(const ShardedColumn& bitmap, RowNumbers rows, const void* valid, void* out, const Job& job,
                                 Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    job.check();
    pool_.for_blocks((rows.size + 63) / 64, kGatherGrain / 64, job, [&](uint64_t begin, uint64_t end) {
      for (uint64_t word = begin; word < end; ++word) {
        if (word % kCheckWords == 0) job.check();
        uint64_t bits = 0;
        for (uint64_t i = word * 64; i < std::min(rows.size, word * 64 + 64); ++i) {
          const uint64_t row = row_at(rows, i);
          if (row == UINT64_MAX || (valid && !bit_of(valid, i))) continue;
          with_row(bitmap, row, [&](const void* shard, uint64_t at) { bits |= uint64_t{bit_of(shard, at)} << (i % 64); });
        }
        static_cast<uint64_t*>(out)[word] = bits;
      }
    });
  });
}

}  // namespace warpjoin
