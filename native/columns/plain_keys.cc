#include "columns/plain_keys.h"

#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "columns/nested.h"
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

}  // namespace

PlainKey binary_as_text(const Column& source, Engine& engine) {
  PlainKey key = key_like(source, kTextKey);
  const ChunkIndex chunks(source);
  EvenOffsets even(source.type.width, source.length, engine);
  for (const ColumnChunk& chunk : chunks.chunks()) add_even_texts(key, even, chunk, chunk.values, source.type.width);
  key.owned.push_back(std::move(even.offsets));
  return key;
}

namespace {

// --- Views --------------------------------------------------------------------------------------------------------

/// The text of a view, if it is in the view itself, of which `view` is a copy, or within the chunk's buffers.
Text text_of_view(const ColumnChunk& chunk, uint64_t index, View& view) {
  view = view_at(chunk, index);
  if (!is_within(view, chunk)) return {};
  const auto size = static_cast<uint64_t>(view.length());
  const uint8_t* const text = view.is_inline() ? reinterpret_cast<const uint8_t*>(&view) + 4
                                               : chunk.buffers[static_cast<size_t>(view.buffer())].data + view.offset();
  return {text, size, text + size};
}

template <class Offset>
PlainKey texts_of_views(const Column& source, const ChunkIndex& chunks, std::vector<uint64_t> starts, Engine& engine,
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
        View view;
        const Text text = text_of_view(chunk, index, view);
        if (!text.data || text.size > stop - at) throw InputChanged("Column '" + source.name + "'");
        std::memcpy(out + at, text.data, text.size);
        at += text.size;
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

/// Of each block of rows, and behind the last one.
std::vector<uint64_t> starts_of_views(const Column& source, const ChunkIndex& chunks, Engine& engine, const Job& job) {
  std::vector<uint64_t> starts(block_count(chunks.rows()) + 1, 0);
  for_row_blocks(engine, chunks.rows(), job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t bytes = 0;
    for_rows(chunks, begin, end, [&](const ColumnChunk& chunk, uint64_t index, uint64_t row, bool valid) {
      if (!valid) return;
      View view;
      const Text text = text_of_view(chunk, index, view);
      if (!text.data) {
        throw Error(ErrorCode::invalid_table,
                    "Column '" + source.name + "': the view of row " + std::to_string(row) + " is not within its buffers");
      }
      bytes += text.size;
    });
    starts[block + 1] = bytes;
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  return starts;
}

/// Texts with 64-bit offsets as such with 32-bit ones, in chunks of at most `most` bytes but for a longer text. The offsets are
/// the key's own.
PlainKey with_small_offsets(PlainKey key, uint64_t most, Engine& engine, const Job& job) {
  struct Part {
    const ColumnChunk* chunk;
    uint64_t first, count, begin;  ///< rows of the chunk; where its bytes begin
  };
  std::vector<Part> parts;
  uint64_t offsets_count = 0;
  for (const ColumnChunk& chunk : key.column.chunks) {
    const auto* const offsets = static_cast<const int64_t*>(chunk.offsets);
    for (uint64_t first = 0; first < chunk.length;) {
      const int64_t end = offsets[first] + static_cast<int64_t>(most);
      const auto* const behind = std::upper_bound(offsets + first + 1, offsets + chunk.length + 1, end);
      const uint64_t count = std::max<uint64_t>(1, static_cast<uint64_t>(behind - (offsets + first + 1)));
      parts.push_back({&chunk, first, count, static_cast<uint64_t>(offsets[first])});
      offsets_count += count + 1;
      first += count;
    }
  }
  PlainKey small = key_like(key.column, kTextKey);
  HostBuffer made = engine.memory->allocate(offsets_count * sizeof(int32_t), "offsets of texts");
  auto* out = made.as<int32_t>();
  for (const auto& [chunk, first, count, begin] : parts) {
    const auto* const offsets = static_cast<const int64_t*>(chunk->offsets) + first;
    engine.pool.for_blocks(count + 1, kBlockRows, job, [&, begin = begin](uint64_t from, uint64_t to) {
      for (uint64_t i = from; i < to; ++i) out[i] = static_cast<int32_t>(offsets[i] - static_cast<int64_t>(begin));
    });
    ColumnChunk part = validity_of(*chunk, first, count);
    part.values = static_cast<const uint8_t*>(chunk->values) + begin;
    part.values_bytes = static_cast<uint64_t>(offsets[count]) - begin;
    part.offsets = out;
    part.offsets_bytes = (count + 1) * sizeof(int32_t);
    small.column.chunks.push_back(part);
    out += count + 1;
  }
  small.owned = std::move(key.owned);
  small.owned.push_back(std::move(made));
  return small;
}

}  // namespace

PlainKey view_as_text(const Column& source, Engine& engine, const Job& job) {
  const ChunkIndex chunks(source);
  std::vector<uint64_t> starts = starts_of_views(source, chunks, engine, job);
  return starts.back() <= INT32_MAX ? texts_of_views<int32_t>(source, chunks, std::move(starts), engine, job)
                                    : texts_of_views<int64_t>(source, chunks, std::move(starts), engine, job);
}

PlainKey view_as_small_text(const Column& source, Engine& engine, const Job& job) {
  const uint64_t most = std::min<uint64_t>(job.max_buffer_bytes(), INT32_MAX);
  const ChunkIndex chunks(source);
  std::vector<uint64_t> starts = starts_of_views(source, chunks, engine, job);
  if (starts.back() <= most) return texts_of_views<int32_t>(source, chunks, std::move(starts), engine, job);
  return with_small_offsets(texts_of_views<int64_t>(source, chunks, std::move(starts), engine, job), most, engine, job);
}

// --- One type -------------------------------------------------------------------------------------------------------

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

namespace {

template <class Wide>
PlainKey floats_as(const Column& source, const ColumnType& to, Engine& engine, const Job& job) {
  PlainKey key = key_like(source, to);
  const ChunkIndex chunks(source);
  HostBuffer values = engine.memory->allocate(source.length * sizeof(Wide), "floats of another width");
  with_key_type(source.type, [&]<class Key>() {
    if constexpr (Key::kOrder == KeyOrder::floating && sizeof(typename Key::Raw) <= sizeof(Wide)) {
      for_row_blocks(engine, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
        chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
          for (uint64_t i = 0; i < count; ++i) {
            const auto raw = load<typename Key::Raw>(chunk.values, first + i);
            if constexpr (sizeof(Wide) == 8) {
              values.as<Wide>()[row + i] = widened_float(raw);
            } else if constexpr (sizeof(raw) == 2) {
              values.as<Wide>()[row + i] = widened_half(raw);
            } else {
              values.as<Wide>()[row + i] = raw;
            }
          }
        });
      });
    }
  });
  add_fixed_chunks(key, chunks, std::move(values));
  return key;
}

}  // namespace

PlainKey wider_floats(const Column& source, const ColumnType& to, Engine& engine, const Job& job) {
  return to.width == 4 ? floats_as<uint32_t>(source, to, engine, job) : floats_as<uint64_t>(source, to, engine, job);
}

namespace {

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
  for (const KeySource& source : sources)
    keys.push_back(widen ? wider_floats(*source.column, kDoubleKey, engine, job) : as_it_is(source));
  return keys;
}

std::vector<PlainKey> bytes_keys(std::span<const KeySource> sources, bool one_type, Engine& engine, const Job& job) {
  std::vector<PlainKey> keys;
  const ColumnType& first = sources[0].column->type;
  if (first.kind == ColumnKind::fixed && first.width > 0 && first.width <= 8 && same_types(sources)) {
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

std::vector<PlainKey> plain_keys(std::span<const KeySource> sources, Engine& engine, const Job& job, bool one_type) {
  common_family(sources);
  const bool plain = std::none_of(sources.begin(), sources.end(), [](const KeySource& source) {
    return source.column->dictionary && family_of(*source.column) != Family::null;
  });
  return plain ? plain_values(sources, one_type, engine, job) : dictionary_keys(sources, one_type, engine, job);
}

}  // namespace warpjoin::columns
