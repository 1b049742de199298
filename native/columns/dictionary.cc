#include "columns/dictionary.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "columns/chunk_ends.h"
#include "columns/chunks.h"
#include "columns/gather.h"
#include "columns/nested.h"
#include "columns/value_bytes.h"
#include "columns/value_table.h"
#include "core/error.h"

namespace warpjoin {
namespace {

using columns::bytes_at;
using columns::ChunkIndex;
using columns::has_bytes;
using columns::kBlockRows;
using columns::load_once;
using columns::ValueTable;
using columns::View;
using columns::with_index;

/// The rows of the first of equal values, and for each value which of them is equal to it.
struct Distinct {
  HostBuffer rows, codes;  ///< 4 bytes each
  uint64_t count = 0;
};

Distinct find_distinct(const Column& values, Engine& engine, const Job& job) {
  const ChunkIndex index(values);
  const uint64_t size = index.rows();
  Distinct found;
  found.rows = engine.memory->allocate(size * sizeof(uint32_t), "the distinct values of dictionaries");
  found.codes = engine.memory->allocate(size * sizeof(uint32_t), "which values of dictionaries are equal");
  auto* const rows = found.rows.as<uint32_t>();
  auto* const codes = found.codes.as<uint32_t>();
  const auto bytes_of = [&](uint32_t code, View& copy) { return bytes_at(values, index.at(rows[code]), copy); };
  ValueTable table(*engine.memory, engine.text_hash);
  if (has_bytes(values.type)) table.reserve(size, bytes_of);
  for (uint64_t row = 0; row < size; ++row) {
    if (row % kBlockRows == 0) job.check();
    const auto next = static_cast<uint32_t>(found.count);
    rows[next] = static_cast<uint32_t>(row);  // where bytes_of() finds it, if it is new
    codes[row] = table.number_of(values, index.at(row), next, bytes_of);
    if (codes[row] == next) ++found.count;
  }
  return found;
}

/// Writes what `code_of` gives for the place of each index among the values; null rows, which may have any index, get 0.
template <class From, class To, class CodeOf>
void recode(const ColumnChunk& chunk, uint64_t first, uint64_t count, const CodeOf& code_of, To* out) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t index = load_once<From>(chunk.values, first + i);
    out[i] = index < chunk.dictionary_size ? static_cast<To>(code_of(chunk.dictionary_base + index)) : To{0};
  }
}

/// Gives a column's chunks indices of its index_width below `size`: what `code_of` gives for the place of each among the values.
template <class CodeOf>
HostBuffer with_indices(Column& column, uint64_t size, const CodeOf& code_of, Engine& engine, const Job& job) {
  const uint32_t from = column.type.width, to = column.index_width;
  if (to < 8 && size > uint64_t{1} << (8 * to)) {
    throw Error(ErrorCode::internal, "Column '" + column.name + "' has too many dictionary values for its indices");
  }
  HostBuffer indices = engine.memory->allocate(std::max<uint64_t>(1, column.length * to), "indices of a dictionary");
  const ChunkIndex index(column);
  columns::for_row_blocks(engine, index.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    index.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
      with_index(from, [&]<class From>() {
        with_index(to, [&]<class To>() { recode<From>(chunk, first, count, code_of, indices.as<To>() + row); });
      });
    });
  });
  uint64_t row = 0;
  for (ColumnChunk& chunk : column.chunks) {
    chunk.values = indices.as<char>() + row * to;
    chunk.values_bytes = chunk.length * to;
    row += chunk.length;
  }
  column.type.width = to;
  return indices;
}

void unify(Column& column, UnifiedDictionaries& made, Engine& engine, const Job& job) {
  const Column& values = *column.dictionary;
  if (values.length >= ValueTable::kNone) {
    throw Error(ErrorCode::not_supported, "Column '" + column.name + "' has dictionaries of " + std::to_string(values.length) +
                                              " values together, and at most 4294967294 are supported");
  }
  const Distinct distinct = find_distinct(values, engine, job);
  OwnedColumn owned = gather(values, {distinct.rows.data(), 4, false, distinct.count}, engine, job);
  auto dictionary = std::make_shared<Column>(borrow(owned, values));
  const auto code_of = [codes = distinct.codes.as<uint32_t>()](uint64_t place) { return codes[place]; };
  made.indices.push_back(with_indices(column, distinct.count, code_of, engine, job));
  for (ColumnChunk& chunk : column.chunks) {
    chunk.dictionary_base = 0;
    chunk.dictionary_size = distinct.count;
  }
  column.dictionary = std::move(dictionary);
  column.is_unified = false;
  made.dictionaries.push_back(std::move(owned));
}

/// The part of a column that one owned chunk is.
ColumnChunk borrow_chunk(const OwnedChunk& owned, Column& into) {
  ColumnChunk chunk;
  chunk.length = owned.length;
  if (owned.null_count && owned.validity) chunk.validity = owned.validity.as<uint8_t>();
  chunk.values = owned.values.data();
  chunk.offsets = owned.offsets.data();
  chunk.validity_bytes = owned.validity.size();
  chunk.values_bytes = owned.values.size();
  chunk.offsets_bytes = owned.offsets.size();
  if (owned.type.kind == ColumnKind::view) {
    auto buffers = std::make_shared<std::vector<ViewBuffer>>();
    for (const HostBuffer& buffer : owned.buffers) buffers->push_back({buffer.as<uint8_t>(), buffer.size()});
    chunk.buffers = *buffers;
    into.view_buffers.push_back(std::move(buffers));
  }
  return chunk;
}

void borrow_nested(const std::vector<const OwnedChunk*>& owned, const Column& like, Column& column) {
  column.name = like.name;
  column.type = like.type;
  column.type_ids = like.type_ids;
  column.dictionary = like.dictionary;
  for (const OwnedChunk* chunk : owned) {
    column.chunks.push_back(borrow_chunk(*chunk, column));
    if (column.dictionary) column.chunks.back().dictionary_size = column.dictionary->length;
    column.length += chunk->length;
  }
  for (size_t i = 0; i < like.children.size(); ++i) {
    std::vector<const OwnedChunk*> children;
    children.reserve(owned.size());
    for (const OwnedChunk* chunk : owned) children.push_back(&chunk->children[i]);
    borrow_nested(children, like.children[i], column.children.emplace_back());
  }
}

}  // namespace

Column borrow(const OwnedColumn& owned, const Column& like) {
  Column column;
  if (owned.type.nested()) {
    std::vector<const OwnedChunk*> chunks;
    for (const OwnedChunk& chunk : owned.nested) chunks.push_back(&chunk);
    borrow_nested(chunks, like, column);
    return column;
  }
  column.name = like.name;
  column.type = like.type;
  column.dictionary = like.dictionary;
  column.length = owned.length;
  const bool variable = owned.type.variable_width();
  const uint64_t offset_bytes = owned.type.kind == ColumnKind::utf8 ? 4 : 8;
  const std::vector<ChunkEnd> ends =
      variable ? owned.chunk_ends : columns::fixed_chunk_ends(owned.type, owned.length, UINT64_MAX / 8);
  ChunkEnd begin;
  for (size_t i = 0; i < ends.size(); ++i) {
    ColumnChunk& chunk = column.chunks.emplace_back();
    chunk.length = ends[i].row - begin.row;
    chunk.bit_offset = begin.row;
    if (owned.null_count) chunk.validity = owned.validity.as<uint8_t>();
    chunk.validity_bytes = owned.validity.size();
    chunk.values = owned.values.as<char>() + begin.byte;
    chunk.values_bytes = ends[i].byte - begin.byte;
    if (variable) {
      chunk.offsets = owned.offsets.as<char>() + (begin.row + i) * offset_bytes;
      chunk.offsets_bytes = (chunk.length + 1) * offset_bytes;
    }
    if (column.dictionary) chunk.dictionary_size = column.dictionary->length;
    begin = ends[i];
  }
  return column;
}

void unify_dictionaries(Column& column, UnifiedDictionaries& made, Engine& engine, const Job& job) {
  for (Column& child : column.children) unify_dictionaries(child, made, engine, job);
  if (!column.dictionary) return;
  auto dictionary = std::make_shared<Column>(*column.dictionary);
  unify_dictionaries(*dictionary, made, engine, job);
  column.dictionary = std::move(dictionary);
  if (column.is_unified) {
    unify(column, made, engine, job);
  } else if (column.index_width != 0 && column.index_width != column.type.width) {
    made.indices.push_back(with_indices(column, column.dictionary->length, std::identity(), engine, job));
  }
}

}  // namespace warpjoin
