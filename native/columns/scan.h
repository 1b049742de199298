// One parallel pass over a key column: what its encoding needs to know.
#pragma once

#include <cstdint>

#include "columns/chunks.h"

namespace warpjoin::columns {

/// Throws Error(key_type), naming the column, for a type that can't be a key.
void require_key_type(const Column& column);

/// Of the values that are not null; ordered and canonical bits are those of key_types.h (boolean: 0 and 1).
struct FixedScan {
  uint64_t nulls = 0;
  uint64_t least = ~uint64_t{0}, greatest = 0;  ///< ordered bits; least > greatest if there are no values
  uint64_t any = 0, all = ~uint64_t{0};         ///< OR and AND of the canonical bits
  bool canonicalized = false;                   ///< some value's bits are not canonical: -0.0 or an unusual NaN

  bool empty() const { return least > greatest; }
  uint64_t varying_bits() const { return empty() ? 0 : any & ~all; }
};

struct TextScan {
  uint64_t nulls = 0;
  uint64_t least_size = ~uint64_t{0}, greatest_size = 0;  ///< bytes; least > greatest if there are no values
  uint64_t prefix = 0;                                    ///< leading bytes that all values share

  bool empty() const { return least_size > greatest_size; }
};

/// Throws Error(key_type) for a type without an order. Memory speed.
FixedScan scan_fixed(const ChunkIndex& chunks, Engine& engine, const Job& job);

/// Looks for a common prefix only if asked to; the bytes are read no further than it reaches.
TextScan scan_text(const ChunkIndex& chunks, bool find_prefix, Engine& engine, const Job& job);

/// Null rows of a column.
uint64_t count_nulls(const ChunkIndex& chunks, Engine& engine, const Job& job);

}  // namespace warpjoin::columns
