// Exact integer keys in place of texts: equal texts have equal codes, and no others.
#pragma once

#include <memory>

#include "columns/chunks.h"
#include "columns/encode.h"
#include "columns/few_texts.h"

namespace warpjoin::columns {

/// The code of a row that is null, or whose text the column that gives the codes lacks.
template <class Code>
inline constexpr Code kNoCode = static_cast<Code>(~Code{0});

/// A code for each row of two columns.
struct TextCodes {
  HostBuffer left, right;                 ///< one of a column with itself: the left one alone
  uint8_t bytes = 4;                      ///< of a code: 4 or 8
  uint64_t count = 0;                     ///< codes are below
  bool left_gives = false;                ///< whether the left column gives the codes
  bool distinct = false;                  ///< no text is in that column twice, and its codes are its rows
  std::shared_ptr<const FewTexts> texts;  ///< of few distinct ones: the text of each code
};

/// Which column gives the codes.
enum class Giver : uint8_t { shorter, left, right };

/// Makes the codes of two columns of bytes: texts (utf8 or binary, 32- or 64-bit offsets), or values of one fixed width. One
/// column gives the codes. Where it has few distinct texts, they are numbered from 0 on; otherwise the code of a text is the
/// first row of that column that holds it. Codes have 4 bytes, or 8 where they are rows of about 2^32 or more. Null rows, and
/// rows of the other column whose text the giving one lacks, have kNoCode. Of one column with itself (the same ChunkIndex) each
/// row is looked at once.
///
/// Each row's text is compared with one text at a time, nearly always with one alone, whatever is frequent. Different texts
/// with equal hashes (BytesHash is seeded, so nobody can choose them) take O(log n) comparisons. The codes depend on neither
/// the seed nor the threads. Host memory: 12 bytes for each row of the giving column while they are made, and the codes.
TextCodes text_codes(const ChunkIndex& left, const ChunkIndex& right, Engine& engine, const Job& job,
                     Giver giver = Giver::shorter);

/// Makes the codes the keys of a join; rows without one are excluded. A side without codes stays as it is.
void take_codes(TextCodes codes, uint64_t left_rows, uint64_t right_rows, JoinSide& left, JoinSide& right, Engine& engine,
                const Job& job);

}  // namespace warpjoin::columns
