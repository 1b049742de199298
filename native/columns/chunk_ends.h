// How the columns of results are cut into chunks of limited buffers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/column.h"

namespace warpjoin::columns {

/// Cuts `rows` rows of a column of booleans or of fixed width so that the values of a chunk have at most `max_bytes`, but at
/// least one row (eight booleans). Each chunk but the last has the same power of two of rows, so the cuts of columns of several
/// widths coincide. There is at least one chunk.
std::vector<ChunkEnd> fixed_chunk_ends(const ColumnType& type, uint64_t rows, uint64_t max_bytes);

/// Cuts texts so that neither the bytes nor the offsets of a chunk have more than `max_bytes`; a longer text is a chunk by
/// itself. `sizes`: of each text. `block_starts`: bytes of the texts before each block of kBlockRows, and of all. A chunk also
/// ends at each of the rows `group_ends`, which ascend. There is at least one chunk.
template <class Offset>
std::vector<ChunkEnd> text_chunk_ends(std::span<const Offset> sizes, std::span<const uint64_t> block_starts, uint64_t max_bytes,
                                      std::span<const uint64_t> group_ends = {});

}  // namespace warpjoin::columns
