// Rows of a table by their keys: one of each key, or the first key that is there twice.
#pragma once

#include <optional>

#include "columns/encode.h"
#include "core/job.h"
#include "engine/engine.h"
#include "primitives/host/group_keys.h"

namespace warpjoin {

using host::KeepRow;
using host::RepeatedKey;

/// The numbers of the rows that are kept, ascending. `side` is one of the keys of columns that were encoded with themselves
/// (encode_join_keys of each column with itself): tuples are rows whose key others may have, and the rows that are excluded are
/// nulls. These are equal to each other. Row numbers have 4 bytes, or 8 from 2^32 - 1 rows on.
struct UniqueRows {
  uint64_t size = 0;
  uint8_t row_bytes = 4;
  HostBuffer rows;
};
UniqueRows unique_rows(Engine& engine, const JoinSide& side, KeepRow keep, Job& job);
/// Host memory of unique_rows, at most, with its result.
size_t unique_rows_bytes(Engine& engine, const JoinSide& side);

/// The least row whose key an earlier row has, and the first one with that key; nothing where all keys are there once. Keys of
/// columns that were encoded with themselves; excluded rows have none.
std::optional<RepeatedKey> find_repeated_key(Engine& engine, const JoinSide& side, Job& job);

}  // namespace warpjoin
