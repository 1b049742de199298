// Exact integer keys in place of texts: equal texts have equal codes, and no others.
#pragma once

#include "columns/chunks.h"
#include "columns/encode.h"

namespace warpjoin::columns {

/// Encodes two text columns (utf8 or binary, 32- or 64-bit offsets) as the keys of a join. The column with fewer rows gives
/// the codes: the code of a text is the first row of that column that holds it. Keys have 4 bytes, or 8 where that column has
/// about 2^31 rows or more. Null rows, and rows of the longer column whose text the other column lacks, are excluded.
///
/// Each row's text is compared with one text at a time, nearly always with one alone, whatever is frequent. Different texts
/// with equal hashes (BytesHash is seeded, so nobody can choose them) take O(log n) comparisons. The codes depend on neither
/// the seed nor the threads. Host memory: 12 bytes for each row of the shorter column while they are made, and the keys.
void encode_texts(const ChunkIndex& left, const ChunkIndex& right, JoinSide& left_out, JoinSide& right_out, Engine& engine,
                  const Job& job);

}  // namespace warpjoin::columns
