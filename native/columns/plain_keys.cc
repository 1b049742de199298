#include "columns/plain_keys.h"

#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "columns/plain_parts.h"
#include "columns/scan.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin::columns {
namespace {

enum class Family : uint8_t { null, boolean, integer, floating, bytes };

constexpr bool is_one_of(uint32_t width, std::initializer_list<uint32_t> widths) {
  return std::find(widths.begin(), widths.end(), width) != widths.end();
}

/// Of the values, that a dictionary has.
Family family_of(const Column& column) {
  const Column* values = &column;
  while (values->dictionary) values = values->dictionary.get();
  const ColumnType& type = values->type;
  const bool fixed = type.kind == ColumnKind::fixed;
  if (type.kind == ColumnKind::null) return Family::null;
  if (type.kind == ColumnKind::boolean && type.order != KeyOrder::none) return Family::boolean;
  if (fixed && type.order == KeyOrder::unsigned_integer && is_one_of(type.width, {1, 2, 4, 8})) return Family::integer;
  if (fixed && type.order == KeyOrder::signed_integer && is_one_of(type.width, {1, 2, 4, 8, 16, 32})) return Family::integer;
  if (fixed && type.order == KeyOrder::floating && is_one_of(type.width, {2, 4, 8})) return Family::floating;
  if (type.order == KeyOrder::bytes && (fixed || type.variable_width() || type.kind == ColumnKind::view)) return Family::bytes;
  throw Error(ErrorCode::key_type, "Column '" + column.name +
                                       "' can't be a key: keys are booleans, numbers, decimals, dates and times, text, binary, "
                                       "dictionaries of these, and the null type");
}

/// Of all sources but those of the null type; null where all are of that.
Family common_family(std::span<const KeySource> sources) {
  const Column* first = nullptr;
  Family common = Family::null;
  for (const KeySource& source : sources) {
    const Family family = family_of(*source.column);
    if (family == Family::null) continue;
    if (common == Family::null) {
      common = family;
      first = source.column;
    } else if (family != common) {
      throw Error(ErrorCode::key_type, "Columns '" + first->name + "' and '" + source.column->name +
                                           "' can't be compared: their types order differently");
    }
  }
  return common;
}

PlainKey as_it_is(const KeySource& source) {
  PlainKey key;
  key.column = *source.column;
  key.is_source = true;
  return key;
}

/// A column of nulls. The memory behind its chunks is all zeros, which it shares.
PlainKey null_key(const Column& source, const ColumnType& type, Engine& engine) {
  PlainKey key = key_like(source, type);
  const uint64_t most = std::min(source.length, kBlockRows), bytes = (most + 1) * 8;
  HostBuffer zeros = engine.memory->allocate(bytes, "keys that are null");
  std::memset(zeros.data(), 0, bytes);
  ColumnChunk chunk;
  chunk.validity = zeros.as<uint8_t>();
  chunk.values = zeros.data();
  chunk.validity_bytes = chunk.values_bytes = bytes;
  if (type.variable_width()) {
    chunk.offsets = zeros.data();
    chunk.offsets_bytes = bytes;
    chunk.values_bytes = 0;
  }
  for (uint64_t row = 0; row < source.length; row += most) {
    chunk.length = std::min(most, source.length - row);
    key.column.chunks.push_back(chunk);
  }
  key.owned.push_back(std::move(zeros));
  return key;
}

/// Binary of at most 8 bytes as a number, the first byte most significant.
PlainKey binary_as_number(const Column& source, Engine& engine, const Job& job) {
  const uint32_t width = source.type.width, key_bytes = width <= 4 ? 4 : 8;
  PlainKey key = key_like(source, {ColumnKind::fixed, KeyOrder::unsigned_integer, key_bytes});
  const ChunkIndex chunks(source);
  HostBuffer values = engine.memory->allocate(source.length * key_bytes, "keys of binary");
  for_row_blocks(engine, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
      const auto* bytes = static_cast<const uint8_t*>(chunk.values);
      const uint8_t* const bytes_end = bytes + chunk.length * width;
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t number = leading_bytes(bytes + (first + i) * width, width, bytes_end) >> (64 - 8 * width);
        if (key_bytes == 4) {
          values.as<uint32_t>()[row + i] = static_cast<uint32_t>(number);
        } else {
          values.as<uint64_t>()[row + i] = number;
        }
      }
    });
  });
  add_fixed_chunks(key, chunks, std::move(values));
  return key;
}

/// Binary of fixed width: its own bytes, with offsets.
PlainKey binary_as_text(const Column& source, Engine& engine) {
  PlainKey key = key_like(source, kTextKey);
  const ChunkIndex chunks(source);
  EvenOffsets even(source.type.width, source.length, engine);
  for (const ColumnChunk& chunk : chunks.chunks()) add_even_texts(key, even, chunk, chunk.values, source.type.width);
  key.owned.push_back(std::move(even.offsets));
  return key;
}

// --- Views --------------------------------------------------------------------------------------------------------

constexpr uint64_t kViewBytes = 16, kInlineBytes = 12;

/// A view, read once.
struct View {
  uint32_t size;
  uint32_t head;  ///< the first bytes of the text
  uint32_t buffer, offset;
};

/// Where the bytes of a view lie, if it is one of the chunk's; null otherwise. Texts of up to 12 bytes are in `inlined`.
const uint8_t* bytes_of(const ColumnChunk& chunk, uint64_t index, uint8_t (&inlined)[kInlineBytes], uint64_t& size) {
  const uint64_t words[2] = {load_once<uint64_t>(chunk.values, 2 * index), load_once<uint64_t>(chunk.values, 2 * index + 1)};
  const auto view = std::bit_cast<View>(words);
  size = view.size;
  if (view.size <= kInlineBytes) {
    std::memcpy(inlined, reinterpret_cast<const uint8_t*>(words) + 4, kInlineBytes);
    return inlined;
  }
  if (view.size > INT32_MAX || view.buffer >= chunk.buffers.size()) return nullptr;
  const ViewBuffer& buffer = chunk.buffers[view.buffer];
  if (view.offset > INT32_MAX || !buffer.data || view.offset > buffer.size || view.size > buffer.size - view.offset)
    return nullptr;
  return buffer.data + view.offset;
}

template <class Offset>
PlainKey view_as_text(const Column& source, const ChunkIndex& chunks, std::vector<uint64_t> starts, Engine& engine,
                      const Job& job) {
  PlainKey key = key_like(source, sizeof(Offset) == 4 ? kTextKey : kLargeTextKey);
  const uint64_t bytes = starts.back();
  // Each chunk has offsets of its own, one more than rows.
  HostBuffer offsets = engine.memory->allocate((source.length + chunks.chunks().size()) * sizeof(Offset), "offsets of keys");
  HostBuffer values = engine.memory->allocate(bytes, "keys of views");
  auto* const out = values.as<uint8_t>();
  const uint64_t blocks = starts.size() - 1;
  // Rows of a block that lie in several chunks have their offsets apart: chunk c's are c further on.
  const auto chunk_number = [&](const ColumnChunk& chunk) { return static_cast<uint64_t>(&chunk - chunks.chunks().data()); };
  for_row_blocks(engine, chunks.rows(), job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t at = starts[block];
    const uint64_t stop = block < blocks ? starts[block + 1] : bytes;
    for_rows(chunks, begin, end, [&](const ColumnChunk& chunk, uint64_t index, uint64_t row, bool valid) {
      Offset* const here = offsets.as<Offset>() + row + chunk_number(chunk);
      here[0] = static_cast<Offset>(at);
      if (valid) {
        uint8_t inlined[kInlineBytes];
        uint64_t size;
        const uint8_t* text = bytes_of(chunk, index, inlined, size);
        if (!text || size > stop - at) throw InputChanged("Column '" + source.name + "'");
        std::memcpy(out + at, text, size);
        at += size;
      }
      if (index + 1 == chunk.length) here[1] = static_cast<Offset>(at);
    });
    if (at != stop) throw InputChanged("Column '" + source.name + "'");
  });
  const auto* at = offsets.as<Offset>();
  for (const ColumnChunk& chunk : chunks.chunks()) {
    ColumnChunk part = validity_of(chunk, 0, chunk.length);
    part.values = out;
    part.values_bytes = bytes;
    part.offsets = at;
    part.offsets_bytes = (chunk.length + 1) * sizeof(Offset);
    at += chunk.length + 1;
    key.column.chunks.push_back(part);
  }
  key.owned.push_back(std::move(offsets));
  key.owned.push_back(std::move(values));
  return key;
}

PlainKey view_as_text(const Column& source, Engine& engine, const Job& job) {
  const ChunkIndex chunks(source);
  std::vector<uint64_t> starts(block_count(chunks.rows()) + 1, 0);
  for_row_blocks(engine, chunks.rows(), job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t bytes = 0;
    for_rows(chunks, begin, end, [&](const ColumnChunk& chunk, uint64_t index, uint64_t row, bool valid) {
      if (!valid) return;
      uint8_t inlined[kInlineBytes];
      uint64_t size;
      if (!bytes_of(chunk, index, inlined, size)) {
        throw Error(ErrorCode::invalid_table,
                    "Column '" + source.name + "': the view of row " + std::to_string(row) + " is not within its buffers");
      }
      bytes += size;
    });
    starts[block + 1] = bytes;
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  return starts.back() <= INT32_MAX ? view_as_text<int32_t>(source, chunks, std::move(starts), engine, job)
                                    : view_as_text<int64_t>(source, chunks, std::move(starts), engine, job);
}

// --- One type -------------------------------------------------------------------------------------------------------

/// Texts with 32-bit offsets as such with 64-bit ones.
PlainKey with_large_offsets(PlainKey key, Engine& engine, const Job& job) {
  if (key.column.type.kind == ColumnKind::large_utf8) return key;
  key.column.type = kLargeTextKey;
  key.is_source = false;
  for (ColumnChunk& chunk : key.column.chunks) {
    if (chunk.length == 0) continue;
    chunk.offsets_bytes = (chunk.length + 1) * sizeof(int64_t);
    HostBuffer offsets = engine.memory->allocate(chunk.offsets_bytes, "offsets of keys");
    engine.pool.for_blocks(chunk.length + 1, kBlockRows, job, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) {
        // Offsets that have changed may be negative.
        offsets.as<int64_t>()[i] = std::max<int64_t>(0, load_once<int32_t>(chunk.offsets, i));
      }
    });
    chunk.offsets = offsets.data();
    key.owned.push_back(std::move(offsets));
  }
  return key;
}

/// Floats as such of 8 bytes.
PlainKey as_doubles(const Column& source, Engine& engine, const Job& job) {
  PlainKey key = key_like(source, {ColumnKind::fixed, KeyOrder::floating, 8});
  const ChunkIndex chunks(source);
  HostBuffer values = engine.memory->allocate(source.length * 8, "keys of floats");
  with_key_type(source.type, [&]<class Key>() {
    if constexpr (Key::kOrder == KeyOrder::floating) {
      for_row_blocks(engine, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
        chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
          for (uint64_t i = 0; i < count; ++i) {
            values.as<uint64_t>()[row + i] = widened_float(load<typename Key::Raw>(chunk.values, first + i));
          }
        });
      });
    }
  });
  add_fixed_chunks(key, chunks, std::move(values));
  return key;
}

bool same_types(std::span<const KeySource> sources) {
  return std::all_of(sources.begin(), sources.end(), [&](const KeySource& source) {
    const ColumnType &type = source.column->type, &first = sources[0].column->type;
    return type.kind == first.kind && type.order == first.order && type.width == first.width;
  });
}

std::vector<PlainKey> integer_keys(std::span<const KeySource> sources, bool one_type, Engine& engine, const Job& job) {
  const bool plain = std::all_of(sources.begin(), sources.end(),
                                 [](const KeySource& source) { return source.factor.one() && source.column->type.width <= 8; });
  if (!plain || (one_type && !same_types(sources))) return multiplied_integers(sources, engine, job);
  std::vector<PlainKey> keys;
  for (const KeySource& source : sources) keys.push_back(as_it_is(source));
  return keys;
}

std::vector<PlainKey> floating_keys(std::span<const KeySource> sources, bool one_type, Engine& engine, const Job& job) {
  const bool widen = one_type && !same_types(sources);
  std::vector<PlainKey> keys;
  for (const KeySource& source : sources) keys.push_back(widen ? as_doubles(*source.column, engine, job) : as_it_is(source));
  return keys;
}

std::vector<PlainKey> bytes_keys(std::span<const KeySource> sources, bool one_type, Engine& engine, const Job& job) {
  std::vector<PlainKey> keys;
  const ColumnType& first = sources[0].column->type;
  if (first.kind == ColumnKind::fixed && first.width <= 8 && same_types(sources)) {
    for (const KeySource& source : sources) keys.push_back(binary_as_number(*source.column, engine, job));
    return keys;
  }
  bool large = false;
  for (const KeySource& source : sources) {
    const Column& column = *source.column;
    if (column.type.kind == ColumnKind::fixed) {
      keys.push_back(binary_as_text(column, engine));
    } else if (column.type.kind == ColumnKind::view) {
      keys.push_back(view_as_text(column, engine, job));
    } else {
      keys.push_back(as_it_is(source));
    }
    large |= keys.back().column.type.kind == ColumnKind::large_utf8;
  }
  if (!one_type || !large) return keys;
  for (PlainKey& key : keys) key = with_large_offsets(std::move(key), engine, job);
  return keys;
}

}  // namespace

std::vector<PlainKey> plain_values(std::span<const KeySource> sources, bool one_type, Engine& engine, const Job& job) {
  const Family family = common_family(sources);
  std::vector<KeySource> with_values;
  for (const KeySource& source : sources) {
    if (family_of(*source.column) != Family::null) with_values.push_back(source);
  }
  std::vector<PlainKey> made;
  switch (family) {
    case Family::null: break;
    case Family::boolean:
      for (const KeySource& source : with_values) made.push_back(as_it_is(source));
      break;
    case Family::integer: made = integer_keys(with_values, one_type, engine, job); break;
    case Family::floating: made = floating_keys(with_values, one_type, engine, job); break;
    case Family::bytes: made = bytes_keys(with_values, one_type, engine, job); break;
  }
  // Nulls have the type of what they are compared with.
  const ColumnType type = made.empty() ? ColumnType{ColumnKind::boolean, KeyOrder::boolean, 0} : made[0].column.type;
  std::vector<PlainKey> keys;
  size_t next = 0;
  for (const KeySource& source : sources) {
    const bool is_null = family_of(*source.column) == Family::null;
    keys.push_back(is_null ? null_key(*source.column, type, engine) : std::move(made[next++]));
  }
  return keys;
}

std::vector<PlainKey> plain_keys(std::span<const KeySource> sources, Engine& engine, const Job& job) {
  common_family(sources);
  const bool plain = std::none_of(sources.begin(), sources.end(), [](const KeySource& source) {
    return source.column->dictionary && family_of(*source.column) != Family::null;
  });
  return plain ? plain_values(sources, false, engine, job) : dictionary_keys(sources, engine, job);
}

PlainKey key_of(OwnedColumn column, const std::string& name) {
  PlainKey key;
  key.column.name = name;
  key.column.type = column.type;
  key.column.length = column.length;
  const bool variable = column.type.variable_width();
  const uint64_t offset_bytes = column.type.kind == ColumnKind::utf8 ? 4 : 8;
  const std::vector<ChunkEnd> ends = variable ? std::move(column.chunk_ends) : std::vector<ChunkEnd>{{column.length, 0}};
  ChunkEnd begin;
  for (size_t i = 0; i < ends.size(); ++i) {
    ColumnChunk chunk;
    chunk.length = ends[i].row - begin.row;
    chunk.values = column.values.as<uint8_t>() + begin.byte;
    chunk.values_bytes = column.values.size() - begin.byte;
    if (column.validity) {
      chunk.validity = column.validity.as<uint8_t>();
      chunk.validity_bytes = column.validity.size();
      chunk.bit_offset = begin.row;
    }
    if (variable) {
      chunk.values_bytes = ends[i].byte - begin.byte;
      chunk.offsets = column.offsets.as<uint8_t>() + (begin.row + i) * offset_bytes;
      chunk.offsets_bytes = (chunk.length + 1) * offset_bytes;
    }
    if (chunk.length) key.column.chunks.push_back(chunk);
    begin = ends[i];
  }
  for (HostBuffer* buffer : {&column.values, &column.validity, &column.offsets}) {
    if (*buffer) key.owned.push_back(std::move(*buffer));
  }
  return key;
}

}  // namespace warpjoin::columns
