#include "columns/chunk_ends.h"

#include <algorithm>
#include <bit>

#include "columns/chunks.h"

namespace warpjoin::columns {

std::vector<ChunkEnd> fixed_chunk_ends(const ColumnType& type, uint64_t rows, uint64_t max_bytes) {
  const bool bits = type.kind == ColumnKind::boolean;
  const uint64_t least = bits ? 8 : 1;
  const uint64_t most = bits ? std::min(max_bytes, UINT64_MAX / 8) * 8 : max_bytes / std::max(type.width, 1u);
  const uint64_t chunk_rows = std::bit_floor(std::max(most, least));
  const auto bytes = [&](uint64_t count) { return bits ? (count + 7) / 8 : count * type.width; };
  std::vector<ChunkEnd> ends;
  for (uint64_t row = 0; rows - row > chunk_rows; row += chunk_rows) ends.push_back({row + chunk_rows, bytes(row + chunk_rows)});
  ends.push_back({rows, bytes(rows)});
  return ends;
}

template <class Offset>
std::vector<ChunkEnd> text_chunk_ends(std::span<const Offset> sizes, std::span<const uint64_t> block_starts, uint64_t max_bytes,
                                      std::span<const uint64_t> group_ends) {
  // There is one offset more than rows.
  const uint64_t max_rows = std::max<uint64_t>(2, max_bytes / sizeof(Offset)) - 1;
  std::vector<ChunkEnd> ends;
  ChunkEnd begin;  // of the chunk that is being filled
  auto group_end = group_ends.begin();
  const auto last_row = [&] {  // where the chunk ends at the latest
    while (group_end != group_ends.end() && *group_end <= begin.row) ++group_end;
    const uint64_t end = begin.row + max_rows;
    return group_end == group_ends.end() ? end : std::min(end, *group_end);
  };
  for (uint64_t block = 0; block + 1 < block_starts.size(); ++block) {
    const uint64_t block_end = std::min<uint64_t>(sizes.size(), (block + 1) * kBlockRows);
    uint64_t last = last_row();
    if (block_end <= last && block_starts[block + 1] - begin.byte <= max_bytes) continue;
    uint64_t byte = block_starts[block];
    for (uint64_t row = block * kBlockRows; row < block_end; ++row) {
      const auto size = static_cast<uint64_t>(sizes[row]);
      if (row > begin.row && (row == last || byte + size - begin.byte > max_bytes)) {
        begin = {row, byte};
        ends.push_back(begin);
        last = last_row();
      }
      byte += size;
    }
  }
  ends.push_back({sizes.size(), block_starts.back()});
  return ends;
}

template std::vector<ChunkEnd> text_chunk_ends(std::span<const int32_t>, std::span<const uint64_t>, uint64_t,
                                               std::span<const uint64_t>);
template std::vector<ChunkEnd> text_chunk_ends(std::span<const int64_t>, std::span<const uint64_t>, uint64_t,
                                               std::span<const uint64_t>);

}  // namespace warpjoin::columns
