// What plain key columns are made with.
#pragma once

#include <algorithm>
#include <utility>

#include "columns/chunks.h"
#include "columns/convert.h"
#include "columns/plain_keys.h"

namespace warpjoin::columns {

inline constexpr ColumnType kSignedKey{ColumnKind::fixed, KeyOrder::signed_integer, 8};
inline constexpr ColumnType kUnsignedKey{ColumnKind::fixed, KeyOrder::unsigned_integer, 8};
inline constexpr ColumnType kDoubleKey{ColumnKind::fixed, KeyOrder::floating, 8};
inline constexpr ColumnType kTextKey{ColumnKind::utf8, KeyOrder::bytes, 0};
inline constexpr ColumnType kLargeTextKey{ColumnKind::large_utf8, KeyOrder::bytes, 0};

/// A key named and as long as `source`, of another type; its chunks are still to come.
inline PlainKey key_like(const Column& source, const ColumnType& type) {
  PlainKey key;
  key.column.name = source.name;
  key.column.type = type;
  key.column.length = source.length;
  return key;
}

/// Rows [first, first + count) of a chunk: their validity alone.
inline ColumnChunk validity_of(const ColumnChunk& chunk, uint64_t first, uint64_t count) {
  ColumnChunk part;
  part.length = count;
  part.validity = chunk.validity;
  part.validity_bytes = chunk.validity_bytes;
  part.bit_offset = chunk.validity ? chunk.bit_offset + first : 0;
  return part;
}

/// Gives a key of fixed width its chunks: `values` of all rows, and the validity of the source's chunks.
inline void add_fixed_chunks(PlainKey& key, const ChunkIndex& source, HostBuffer values) {
  const uint64_t width = key.column.type.width;
  const auto* at = values.as<uint8_t>();
  const auto add = [&](ColumnChunk chunk) {
    chunk.values = at;
    chunk.values_bytes = chunk.length * width;
    at += chunk.values_bytes;
    key.column.chunks.push_back(chunk);
  };
  if (source.nullable()) {
    for (const ColumnChunk& chunk : source.chunks()) add(validity_of(chunk, 0, chunk.length));
  } else if (source.rows()) {
    add(validity_of({}, 0, source.rows()));
  }
  key.owned.push_back(std::move(values));
}

/// The offsets of texts of `width` bytes each, for chunks of at most so many rows.
struct EvenOffsets {
  uint64_t rows;
  HostBuffer offsets;

  EvenOffsets(uint64_t width, uint64_t most_rows, Engine& engine)
      : rows(std::clamp<uint64_t>(INT32_MAX / std::max<uint64_t>(width, 1), 1, std::min(most_rows, kBlockRows))) {
    offsets = engine.memory->allocate((rows + 1) * sizeof(int32_t), "offsets of keys");
    for (uint64_t i = 0; i <= rows; ++i) offsets.as<int32_t>()[i] = static_cast<int32_t>(i * width);
  }
};

/// Adds rows of a chunk, whose values are `values`, to a key of texts of `width` bytes each.
inline void add_even_texts(PlainKey& key, const EvenOffsets& even, const ColumnChunk& chunk, const void* values, uint64_t width) {
  for (uint64_t first = 0; first < chunk.length; first += even.rows) {
    ColumnChunk part = validity_of(chunk, first, std::min(even.rows, chunk.length - first));
    part.values = static_cast<const uint8_t*>(values) + first * width;
    part.values_bytes = part.length * width;
    part.offsets = even.offsets.data();
    part.offsets_bytes = (part.length + 1) * sizeof(int32_t);
    key.column.chunks.push_back(part);
  }
}

/// Runs body(chunk, index, row, valid) for each of a column's rows [begin, end), whether it is null or not.
template <class Body>
void for_rows(const ChunkIndex& chunks, uint64_t begin, uint64_t end, Body&& body) {
  chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
    for_groups(chunk, first, count, [&](uint64_t index, unsigned group, uint64_t valid) {
      for (unsigned i = 0; i < group; ++i) body(chunk, index + i, row + (index - first) + i, (valid >> i & 1) != 0);
    });
  });
}

/// The values that indices of a dictionary stand for, whose values are `values` now.
PlainKey decoded(const Column& source, const Column& values, Engine& engine, const Job& job);

/// Binary of fixed width as texts: its own bytes, with offsets.
PlainKey binary_as_text(const Column& source, Engine& engine);
/// Views as texts, with offsets as wide as all of them together need.
PlainKey view_as_text(const Column& source, Engine& engine, const Job& job);
/// The same with 32-bit offsets, in chunks of at most job.max_buffer_bytes() but for a longer text.
PlainKey view_as_small_text(const Column& source, Engine& engine, const Job& job);
/// Texts with 32-bit offsets as such with 64-bit ones; others are as they are.
PlainKey with_large_offsets(PlainKey key, Engine& engine, const Job& job);
/// Floats as such of 4 or 8 bytes, which are not narrower.
PlainKey wider_floats(const Column& source, const ColumnType& to, Engine& engine, const Job& job);
/// Integers and decimals as such of other widths, multiplied.
PlainKey converted_integers(const Column& source, const Conversion& to, Engine& engine, const Job& job);

/// Keys of columns without dictionaries. `one_type`: they are to have the same type, not only the same kind.
std::vector<PlainKey> plain_values(std::span<const KeySource> sources, bool one_type, Engine& engine, const Job& job);

/// Keys of columns of which some have dictionaries.
std::vector<PlainKey> dictionary_keys(std::span<const KeySource> sources, bool one_type, Engine& engine, const Job& job);

/// Integers and decimals multiplied by their factors.
std::vector<PlainKey> multiplied_integers(std::span<const KeySource> sources, Engine& engine, const Job& job);

}  // namespace warpjoin::columns
