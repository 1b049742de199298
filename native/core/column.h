// Arrow columns as the data plane sees them: borrowed chunks in, owned contiguous columns out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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
  // Payload alone:
  null,          ///< no buffers: every value is null
  view,          ///< views of 16 bytes (utf8 or binary), with any number of buffers behind them
  list,          ///< 32-bit offsets into one child (a map is a list of structs)
  large_list,    ///< 64-bit offsets into one child
  fixed_list,    ///< `width` values of one child for each value
  structure,     ///< children of the same length
  sparse_union,  ///< type ids (a byte a value), children of the same length
  dense_union,   ///< type ids, and 32-bit offsets into the children
};

/// How a key's values compare.
enum class KeyOrder : uint8_t { none, boolean, signed_integer, unsigned_integer, floating, bytes };

struct ColumnType {
  ColumnKind kind = ColumnKind::fixed;
  KeyOrder order = KeyOrder::none;
  uint32_t width = 0;  ///< fixed: bytes a value, 0 for binary of no bytes; fixed_list: values of the child for each value

  /// Whether a value is more than fixed-width bytes, a bit or a text.
  bool nested() const { return kind > ColumnKind::large_utf8; }
  bool variable_width() const { return kind == ColumnKind::utf8 || kind == ColumnKind::large_utf8; }
  /// Whether values may be indices of a dictionary: integers of 1, 2, 4 or 8 bytes.
  bool is_index() const { return (order == KeyOrder::signed_integer || order == KeyOrder::unsigned_integer) && width <= 8; }

  bool operator==(const ColumnType&) const = default;
};

/// Bytes that views refer to.
struct ViewBuffer {
  const uint8_t* data = nullptr;
  uint64_t size = 0;
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
  std::span<const ViewBuffer> buffers;                               ///< view alone: what the views refer to
  uint64_t dictionary_base = 0;  ///< of a dictionary's indices: where this chunk's dictionary begins in Column::dictionary
  uint64_t dictionary_size = 0;  ///< values of this chunk's dictionary: valid indices are below
};

struct Column {
  std::string name;
  ColumnType type;
  uint64_t length = 0;  ///< rows of all chunks
  std::vector<ColumnChunk> chunks;
  /// Nested kinds: chunk c of each child belongs to chunk c of this column.
  std::vector<Column> children;
  std::vector<int8_t> type_ids;  ///< unions: of each child
  /// Where the values, which are integers, are indices: the dictionaries of all chunks, one after the other. Keys compare by its
  /// values. Null for a column of values.
  std::shared_ptr<const Column> dictionary;
  /// Indices alone: bytes of an index after unify_dictionaries(); 0: those of the type.
  uint8_t index_width = 0;
  /// Indices alone: whether unify_dictionaries() makes one dictionary of those of all chunks. Otherwise they share one, which
  /// begins at 0.
  bool is_unified = false;
  /// What ColumnChunk::buffers refers to.
  std::vector<std::shared_ptr<const std::vector<ViewBuffer>>> view_buffers;
};

/// Where a chunk of a column ends: the rows and the bytes of values before that, from the column's begin.
struct ChunkEnd {
  uint64_t row = 0, byte = 0;

  bool operator==(const ChunkEnd&) const = default;
};

/// A chunk of a column of a nested kind that an operator made, or of what is within one: with buffers of its own.
struct OwnedChunk {
  ColumnType type;
  uint64_t length = 0;
  uint64_t null_count = 0;
  HostBuffer validity;              ///< empty where null_count is 0, and of kinds that have none
  HostBuffer values;                ///< as in a ColumnChunk
  HostBuffer offsets;               ///< the same; length + 1 that begin at 0, of a dense union length
  std::vector<HostBuffer> buffers;  ///< view alone: what the views refer to
  std::vector<OwnedChunk> children;
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
  std::vector<OwnedChunk> nested;    ///< nested kinds only, which have nothing else: at least one chunk
};

}  // namespace warpjoin
