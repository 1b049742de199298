// Values as bytes, which are the same where values are equal, and indices of dictionaries.
#pragma once

#include <cstdint>

#include "columns/chunks.h"
#include "columns/nested.h"
#include "core/column.h"
#include "core/error.h"

namespace warpjoin::columns {

/// Bytes that equal values have in common and no others.
struct Bytes {
  const uint8_t* data = nullptr;
  uint64_t size = 0;
};

inline bool has_bytes(const ColumnType& type) {
  return type.kind == ColumnKind::fixed || type.kind == ColumnKind::view || type.variable_width();
}

/// Of a valid value. `copy` holds those of a view that has its text itself.
inline Bytes bytes_at(const Column& column, Place place, View& copy) {
  const ColumnType& type = column.type;
  const ColumnChunk& chunk = *place.chunk;
  if (type.kind == ColumnKind::fixed) return {static_cast<const uint8_t*>(chunk.values) + place.index * type.width, type.width};
  if (type.kind != ColumnKind::view) {
    const Text text = text_at(type.kind, chunk, place.index);
    return {text.data, text.size};
  }
  copy = view_at(chunk, place.index);
  if (!is_within(copy, chunk)) throw InputChanged("Column '" + column.name + "'");
  const auto size = static_cast<uint64_t>(copy.length());
  if (copy.is_inline()) return {reinterpret_cast<const uint8_t*>(&copy) + 4, size};
  return {chunk.buffers[static_cast<size_t>(copy.buffer())].data + copy.offset(), size};
}

/// What body<Index>() gives for the type of indices of `width` bytes.
template <class Body>
decltype(auto) with_index(uint32_t width, Body&& body) {
  switch (width) {
    case 1: return body.template operator()<uint8_t>();
    case 2: return body.template operator()<uint16_t>();
    case 4: return body.template operator()<uint32_t>();
    default: return body.template operator()<uint64_t>();
  }
}

}  // namespace warpjoin::columns
