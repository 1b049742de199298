// Arrow columns as the data plane sees them: borrowed chunks in, owned contiguous columns out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/host_memory.h"

namespace warpjoin {

/// How a column's values lie in memory; logical types are JavaScript's business, but for those that order differently.
enum class ColumnKind : uint8_t {
  boolean,     ///< bitmap
  fixed,       ///< `width` bytes a value, opaque: payload only unless 1, 2, 4 or 8 wide with a KeyOrder
  utf8,        ///< 32-bit offsets and bytes (utf8 and binary order alike: by bytes)
  large_utf8,  ///< 64-bit offsets and bytes
};

/// How a key's values compare.
enum class KeyOrder : uint8_t { none, boolean, signed_integer, unsigned_integer, floating, bytes };

struct ColumnType {
  ColumnKind kind = ColumnKind::fixed;
  KeyOrder order = KeyOrder::none;
  uint32_t width = 0;  ///< bytes a value where kind is fixed

  bool variable_width() const { return kind == ColumnKind::utf8 || kind == ColumnKind::large_utf8; }
};

/// One chunk, borrowed from Arrow buffers that the caller keeps alive. `bit_offset` applies to bitmaps alone (validity,
/// and values of a boolean column): slicing an Arrow vector trims values and offsets but not bitmaps.
struct ColumnChunk {
  const uint8_t* validity = nullptr;  ///< 1 = valid; null where no value is null
  const void* values = nullptr;       ///< fixed: values; boolean: bitmap; variable: bytes
  const void* offsets = nullptr;      ///< variable: length + 1 offsets, int32 or int64
  uint64_t bit_offset = 0;
  uint64_t length = 0;                                               ///< rows
  uint64_t validity_bytes = 0, values_bytes = 0, offsets_bytes = 0;  ///< sizes of the buffers behind the pointers
};

struct Column {
  std::string name;
  ColumnType type;
  uint64_t length = 0;  ///< rows of all chunks
  std::vector<ColumnChunk> chunks;
};

/// Where a chunk of a column ends: the rows and the bytes of values before that, from the column's begin.
struct ChunkEnd {
  uint64_t row = 0, byte = 0;

  bool operator==(const ChunkEnd&) const = default;
};

/// A column that an operator made: Arrow buffers that JavaScript takes over, in chunks.
struct OwnedColumn {
  ColumnType type;
  uint64_t length = 0;
  uint64_t null_count = 0;
  HostBuffer validity;               ///< of all rows; empty where null_count is 0
  HostBuffer values;                 ///< of all rows
  HostBuffer offsets;                ///< variable width only: for each chunk its length + 1 offsets, which begin at 0
  std::vector<ChunkEnd> chunk_ends;  ///< variable width only: others are cut when they are handed over
};

}  // namespace warpjoin
