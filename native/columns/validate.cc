#include <atomic>
#include <string>

#include "columns/chunks.h"
#include "columns/encode.h"
#include "core/error.h"

namespace warpjoin {
namespace {

using columns::kBlockRows;
using columns::load;

[[noreturn]] void invalid(const Column& column, size_t chunk, const std::string& what) {
  throw Error(ErrorCode::invalid_table, "Column '" + column.name + "', chunk " + std::to_string(chunk) + ": " + what);
}

uint64_t checked_sum(const Column& column, size_t chunk, uint64_t a, uint64_t b) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) invalid(column, chunk, "its length and offset overflow 64 bits");
  return sum;
}

void require_bytes(const Column& column, size_t chunk, const char* buffer, const void* data, uint64_t there, uint64_t needed) {
  if (!data) there = 0;
  if (there >= needed) return;
  const ColumnChunk& claimed = column.chunks[chunk];
  invalid(column, chunk,
          std::string("its ") + buffer + " buffer has " + std::to_string(there) + " bytes, but " +
              std::to_string(claimed.length) + " rows at bit offset " + std::to_string(claimed.bit_offset) + " need " +
              std::to_string(needed));
}

/// Bytes that the chunk's buffers must have, but for what its offsets say.
void check_sizes(const Column& column, size_t index) {
  const ColumnChunk& chunk = column.chunks[index];
  const ColumnType& type = column.type;
  const auto bitmap_bytes = [&] {
    return checked_sum(column, index, checked_sum(column, index, chunk.bit_offset, chunk.length), 7) / 8;
  };
  if (chunk.validity) require_bytes(column, index, "validity", chunk.validity, chunk.validity_bytes, bitmap_bytes());
  uint64_t needed = 0;
  switch (type.kind) {
    case ColumnKind::boolean: require_bytes(column, index, "values", chunk.values, chunk.values_bytes, bitmap_bytes()); return;
    case ColumnKind::fixed:
      if (__builtin_mul_overflow(chunk.length, uint64_t{type.width}, &needed)) {
        invalid(column, index, "its length overflows 64 bits");
      }
      require_bytes(column, index, "values", chunk.values, chunk.values_bytes, needed);
      return;
    case ColumnKind::utf8:
    case ColumnKind::large_utf8:
      if (__builtin_mul_overflow(checked_sum(column, index, chunk.length, 1), type.kind == ColumnKind::utf8 ? 4u : 8u, &needed)) {
        invalid(column, index, "its length overflows 64 bits");
      }
      require_bytes(column, index, "offsets", chunk.offsets, chunk.offsets_bytes, needed);
      return;
    default: break;
  }
  throw Error(ErrorCode::not_supported, "Column '" + column.name + "' is nested, which is not supported yet");
}

template <class Offset>
bool ascending(const void* offsets, uint64_t first, uint64_t last) {
  bool descends = false;
  for (uint64_t i = first; i < last; ++i) descends |= load<Offset>(offsets, i + 1) < load<Offset>(offsets, i);
  return !descends;
}

template <class Offset>
void check_bounds(const Column& column, size_t index) {
  const ColumnChunk& chunk = column.chunks[index];
  const auto first = int64_t{load<Offset>(chunk.offsets, 0)}, last = int64_t{load<Offset>(chunk.offsets, chunk.length)};
  if (first < 0) invalid(column, index, "its first offset is " + std::to_string(first));
  if (last < first) {
    invalid(column, index, "its last offset, " + std::to_string(last) + ", is below its first, " + std::to_string(first));
  }
  const uint64_t there = chunk.values ? chunk.values_bytes : 0;
  if (static_cast<uint64_t>(last) > there) {
    invalid(column, index,
            "its values buffer has " + std::to_string(there) + " bytes, but its last offset is " + std::to_string(last));
  }
}

template <class Offset>
[[noreturn]] void report_descent(const Column& column, size_t index, uint64_t first, uint64_t last) {
  const void* offsets = column.chunks[index].offsets;
  while (first + 1 < last && ascending<Offset>(offsets, first, first + 1)) ++first;
  invalid(column, index,
          "its offsets descend at row " + std::to_string(first) + ", from " + std::to_string(load<Offset>(offsets, first)) +
              " to " + std::to_string(load<Offset>(offsets, first + 1)));
}

template <class Offset>
void check_offsets(const Column& column, Engine& engine, const Job& job) {
  for (size_t i = 0; i < column.chunks.size(); ++i) {
    if (column.chunks[i].length) check_bounds<Offset>(column, i);
  }
  // Sizes have been checked, so the chunk index is safe to build; it numbers the chunks that have rows.
  const columns::ChunkIndex chunks(column);
  columns::for_row_blocks(engine, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t) {
      if (ascending<Offset>(chunk.offsets, first, first + count)) return;
      const auto* wanted = &chunk;
      size_t index = 0, with_rows = static_cast<size_t>(wanted - chunks.chunks().data());
      while (column.chunks[index].length == 0 || with_rows-- > 0) ++index;
      report_descent<Offset>(column, index, first, first + count);
    });
  });
}

}  // namespace

void validate_column(const Column& column, Engine& engine, const Job& job) {
  if (column.dictionary)
    throw Error(ErrorCode::not_supported, "Column '" + column.name + "' has a dictionary, which is not supported yet");
  uint64_t rows = 0;
  for (size_t i = 0; i < column.chunks.size(); ++i) {
    if (column.chunks[i].length == 0) continue;  // Arrow lets it have no buffers at all
    check_sizes(column, i);
    rows = checked_sum(column, i, rows, column.chunks[i].length);
  }
  if (rows != column.length) {
    throw Error(ErrorCode::invalid_table, "Column '" + column.name + "' claims " + std::to_string(column.length) +
                                              " rows, but its chunks have " + std::to_string(rows));
  }
  if (column.type.kind == ColumnKind::utf8) check_offsets<int32_t>(column, engine, job);
  if (column.type.kind == ColumnKind::large_utf8) check_offsets<int64_t>(column, engine, job);
}

}  // namespace warpjoin
