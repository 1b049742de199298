// Keys of joins that are not one plain column without equal nulls: several columns, nulls that equal each other, dictionaries.
#pragma once

#include <span>

#include "columns/encode.h"

namespace warpjoin::columns {

/// Whether the pair needs nothing of this: plain columns (plain_keys.h) as they are. Equal nulls mean nothing where a side has
/// none.
bool is_plain(const JoinKeyPair& pair, Engine& engine, const Job& job);

/// Encodes pairs of columns: rows of both sides have the same key where all pairs are equal, and no others.
///
/// Each pair becomes a field of as few bits as its values need:
/// - numbers: the distance from the greater one of both sides' least values; values outside of the range that both sides share
///   can't match;
/// - texts of up to 7 bytes: their bytes and their size;
/// - longer texts, and columns of which one has a dictionary: codes (text_codes.h), which a dictionary's indices look up;
/// - a null, where nulls are equal: one more code.
/// Fields that together need at most 64 bits are packed into keys of 4 or 8 bytes. Others are packed into several words a row,
/// and rows of words become codes the way texts do.
///
/// Rows that can't match are excluded. The columns are read once for their ranges and once for the fields; what is written is
/// bounded by the rows alone, so that a column that changes meanwhile gives rows of old and new values.
///
/// Host memory, besides the keys: a word for each row and 64 bits of the fields, a bit for each row, and what text_codes() needs.
/// Payloads are not carried: the caller does that. `own`: both columns of each pair are the same, and the left side is all that
/// is made.
JoinKeys encode_composite_keys(std::span<const JoinKeyPair> pairs, bool own, Engine& engine, const Job& job);

}  // namespace warpjoin::columns
