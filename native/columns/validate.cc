#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "columns/chunks.h"
#include "columns/encode.h"
#include "columns/nested.h"
#include "columns/value_bytes.h"
#include "core/error.h"

namespace warpjoin {
namespace {

using columns::kViewBytes;
using columns::load;
using columns::View;

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

/// Bytes that the chunk's buffers must have, but for what its offsets and views say.
void check_sizes(const Column& column, size_t index) {
  const ColumnChunk& chunk = column.chunks[index];
  const ColumnType& type = column.type;
  const auto bitmap_bytes = [&] {
    return checked_sum(column, index, checked_sum(column, index, chunk.bit_offset, chunk.length), 7) / 8;
  };
  const auto require = [&](const char* what, const void* data, uint64_t there, uint64_t count, uint64_t width) {
    uint64_t needed = 0;
    if (__builtin_mul_overflow(count, width, &needed)) invalid(column, index, "its length overflows 64 bits");
    require_bytes(column, index, what, data, there, needed);
  };
  const auto require_values = [&](const char* what, uint64_t width) {
    require(what, chunk.values, chunk.values_bytes, chunk.length, width);
  };
  const auto require_offsets = [&](uint64_t count, uint64_t width) {
    require("offsets", chunk.offsets, chunk.offsets_bytes, count, width);
  };
  if (chunk.validity) require_bytes(column, index, "validity", chunk.validity, chunk.validity_bytes, bitmap_bytes());
  switch (type.kind) {
    case ColumnKind::boolean: return require_bytes(column, index, "values", chunk.values, chunk.values_bytes, bitmap_bytes());
    case ColumnKind::fixed: return require_values("values", type.width);
    case ColumnKind::utf8:
    case ColumnKind::list: return require_offsets(checked_sum(column, index, chunk.length, 1), 4);
    case ColumnKind::large_utf8:
    case ColumnKind::large_list: return require_offsets(checked_sum(column, index, chunk.length, 1), 8);
    case ColumnKind::view: return require_values("views", kViewBytes);
    case ColumnKind::dense_union: require_offsets(chunk.length, 4); [[fallthrough]];
    case ColumnKind::sparse_union: return require_values("type ids", 1);
    case ColumnKind::null:
    case ColumnKind::fixed_list:
    case ColumnKind::structure: return;
  }
}

template <class Offset>
bool ascending(const void* offsets, uint64_t first, uint64_t last) {
  bool descends = false;
  for (uint64_t i = first; i < last; ++i) descends |= load<Offset>(offsets, i + 1) < load<Offset>(offsets, i);
  return !descends;
}

/// Offsets into a text's bytes, or into the child of a list.
template <class Offset>
void check_bounds(const Column& column, size_t index) {
  const ColumnChunk& chunk = column.chunks[index];
  const auto first = int64_t{load<Offset>(chunk.offsets, 0)}, last = int64_t{load<Offset>(chunk.offsets, chunk.length)};
  if (first < 0) invalid(column, index, "its first offset is " + std::to_string(first));
  if (last < first) {
    invalid(column, index, "its last offset, " + std::to_string(last) + ", is below its first, " + std::to_string(first));
  }
  const bool text = column.type.variable_width();
  const uint64_t there = !text ? column.children[0].chunks[index].length : chunk.values ? chunk.values_bytes : 0;
  if (static_cast<uint64_t>(last) > there) {
    invalid(column, index,
            (text ? "its values buffer has " + std::to_string(there) + " bytes"
                  : "its child has " + std::to_string(there) + " values") +
                ", but its last offset is " + std::to_string(last));
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

/// Runs body(index, chunk, first, count) for blocks of the rows of each chunk that has some. Sizes must have been checked.
template <class Body>
void for_chunk_blocks(const Column& column, ThreadPool& pool, const Job& job, Body&& body) {
  std::vector<size_t> with_rows;
  for (size_t i = 0; i < column.chunks.size(); ++i) {
    if (column.chunks[i].length) with_rows.push_back(i);
  }
  const columns::ChunkIndex chunks(column);
  columns::for_row_blocks(pool, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t) {
      body(with_rows[static_cast<size_t>(&chunk - chunks.chunks().data())], chunk, first, count);
    });
  });
}

template <class Offset>
void check_offsets(const Column& column, ThreadPool& pool, const Job& job) {
  for (size_t i = 0; i < column.chunks.size(); ++i) {
    if (column.chunks[i].length) check_bounds<Offset>(column, i);
  }
  for_chunk_blocks(column, pool, job, [&](size_t index, const ColumnChunk& chunk, uint64_t first, uint64_t count) {
    if (!ascending<Offset>(chunk.offsets, first, first + count)) report_descent<Offset>(column, index, first, first + count);
  });
}

/// Calls body(row) for those of the rows that are valid.
template <class Body>
void for_valid(const ColumnChunk& chunk, uint64_t first, uint64_t count, Body&& body) {
  for (uint64_t row = first; row < first + count; ++row) {
    if (columns::valid_at(chunk, row)) body(row);
  }
}

/// Null rows may have any index.
template <class Index>
void check_indices(const Column& column, ThreadPool& pool, const Job& job) {
  for_chunk_blocks(column, pool, job, [&](size_t index, const ColumnChunk& chunk, uint64_t first, uint64_t count) {
    Index most = 0;
    for (uint64_t row = first; row < first + count; ++row) most = std::max(most, load<Index>(chunk.values, row));
    if (most < chunk.dictionary_size) return;
    for_valid(chunk, first, count, [&](uint64_t row) {
      const Index value = load<Index>(chunk.values, row);
      if (value < chunk.dictionary_size) return;
      const bool negative = column.type.order == KeyOrder::signed_integer && value > static_cast<Index>(~Index{0}) / 2;
      const std::string shown = negative ? std::to_string(static_cast<std::make_signed_t<Index>>(value)) : std::to_string(value);
      invalid(column, index,
              "its index at row " + std::to_string(row) + " is " + shown + ", but its dictionary has " +
                  std::to_string(chunk.dictionary_size) + " values");
    });
  });
}

void check_indices(const Column& column, ThreadPool& pool, const Job& job) {
  columns::with_index(column.type.width, [&]<class Index>() { check_indices<Index>(column, pool, job); });
}

void check_views(const Column& column, ThreadPool& pool, const Job& job) {
  for_chunk_blocks(column, pool, job, [&](size_t index, const ColumnChunk& chunk, uint64_t first, uint64_t count) {
    for_valid(chunk, first, count, [&](uint64_t row) {
      const View view = columns::view_at(chunk, row);
      if (columns::is_within(view, chunk)) return;
      const std::string where = "its view at row " + std::to_string(row);
      if (view.length() < 0) invalid(column, index, where + " has the length " + std::to_string(view.length()));
      const auto buffer = static_cast<uint32_t>(view.buffer());
      if (buffer >= chunk.buffers.size()) {
        invalid(
            column, index,
            where + " is in buffer " + std::to_string(view.buffer()) + ", but there are " + std::to_string(chunk.buffers.size()));
      }
      invalid(column, index,
              where + " has " + std::to_string(view.length()) + " bytes at byte " + std::to_string(view.offset()) +
                  " of buffer " + std::to_string(buffer) + ", which has " + std::to_string(chunk.buffers[buffer].size));
    });
  });
}

void check_union(const Column& column, ThreadPool& pool, const Job& job) {
  const columns::UnionChildren children(column);
  const bool dense = column.type.kind == ColumnKind::dense_union;
  for_chunk_blocks(column, pool, job, [&](size_t index, const ColumnChunk& chunk, uint64_t first, uint64_t count) {
    for (uint64_t row = first; row < first + count; ++row) {
      const int child = children.of(chunk, row);
      if (child < 0) {
        invalid(column, index,
                "its type id at row " + std::to_string(row) + " is " + std::to_string(load<int8_t>(chunk.values, row)) +
                    ", which no child has");
      }
      if (!dense) continue;
      const auto offset = load<int32_t>(chunk.offsets, row);
      const uint64_t there = column.children[static_cast<size_t>(child)].chunks[index].length;
      if (offset >= 0 && static_cast<uint64_t>(offset) < there) continue;
      invalid(column, index,
              "its offset at row " + std::to_string(row) + " is " + std::to_string(offset) + ", but its child '" +
                  column.children[static_cast<size_t>(child)].name + "' has " + std::to_string(there) + " values");
    }
  });
}

/// Cuts the children's chunks to what their parents need, and checks them.
void check_children(Column& column, ThreadPool& pool, const Job& job) {
  const bool fixed_list = column.type.kind == ColumnKind::fixed_list;
  const bool as_long = fixed_list || column.type.kind == ColumnKind::structure || column.type.kind == ColumnKind::sparse_union;
  for (Column& child : column.children) {
    child.length = 0;
    for (size_t i = 0; i < column.chunks.size(); ++i) {
      const uint64_t rows = column.chunks[i].length;
      uint64_t& there = child.chunks[i].length;
      uint64_t needed = rows;
      if (fixed_list && __builtin_mul_overflow(rows, uint64_t{column.type.width}, &needed)) {
        invalid(column, i, "its length overflows 64 bits");
      }
      if (as_long && there < needed) {
        invalid(column, i,
                "its child '" + child.name + "' has " + std::to_string(there) + " values, but its " + std::to_string(rows) +
                    " rows need " + std::to_string(needed));
      }
      if (as_long || rows == 0) there = rows == 0 ? 0 : needed;
      child.length = checked_sum(child, i, child.length, there);
    }
    validate_column(child, pool, job);
  }
}

}  // namespace

void validate_column(Column& column, ThreadPool& pool, const Job& job) {
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
  check_children(column, pool, job);
  if (column.dictionary) {
    auto dictionary = std::make_shared<Column>(*column.dictionary);
    validate_column(*dictionary, pool, job);
    column.dictionary = std::move(dictionary);
    check_indices(column, pool, job);
  }
  switch (column.type.kind) {
    case ColumnKind::utf8:
    case ColumnKind::list: return check_offsets<int32_t>(column, pool, job);
    case ColumnKind::large_utf8:
    case ColumnKind::large_list: return check_offsets<int64_t>(column, pool, job);
    case ColumnKind::view: return check_views(column, pool, job);
    case ColumnKind::sparse_union:
    case ColumnKind::dense_union: return check_union(column, pool, job);
    default: return;
  }
}

}  // namespace warpjoin
