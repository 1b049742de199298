// Keys that are indices of dictionaries: the ranks of the values, which are common to all columns, or the values themselves.
#include <atomic>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>

#include "columns/dictionary.h"
#include "columns/encoded_sort_keys.h"
#include "columns/gather.h"
#include "columns/host_sort.h"
#include "columns/plain_parts.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin::columns {
namespace {

template <class Rank>
inline constexpr Rank kNullRank = static_cast<Rank>(~Rank{0});

bool same_chunk(const ColumnChunk& a, const ColumnChunk& b) {
  return a.length == b.length && a.validity == b.validity && a.values == b.values && a.offsets == b.offsets &&
         a.bit_offset == b.bit_offset;
}

/// Dictionaries that are compared, each once.
struct Dictionaries {
  std::vector<KeySource> distinct;
  std::vector<size_t> of_source;  ///< which of them; kNone: none
  uint64_t entries = 0;

  static constexpr size_t kNone = SIZE_MAX;
  static KeySource values_of(const KeySource& source) { return {source.column->dictionary.get(), source.factor}; }

  explicit Dictionaries(std::span<const KeySource> sources) {
    std::vector<const KeySource*> first;
    for (const KeySource& source : sources) {
      if (!source.column->dictionary) {
        of_source.push_back(kNone);
        continue;
      }
      size_t found = 0;
      while (found < first.size() && !is_same_memory(values_of(*first[found]), values_of(source))) ++found;
      if (found == first.size()) {
        first.push_back(&source);
        distinct.push_back(values_of(source));
        entries += source.column->dictionary->length;
      }
      of_source.push_back(found);
    }
  }
};

/// Calls body(chunk, index, row, entry) for each row, `entry` being the position in the dictionary, or nothing for a null.
template <class Body>
void for_entries(const Column& column, const ChunkIndex& chunks, Engine& engine, const Job& job, Body&& body) {
  with_key_type(column.type, [&]<class Key>() {
    using Raw = typename Key::Raw;
    using Index = std::conditional_t<Key::kOrder == KeyOrder::signed_integer, std::make_signed_t<Raw>, Raw>;
    for_row_blocks(engine, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
      for_rows(chunks, begin, end, [&](const ColumnChunk& chunk, uint64_t index, uint64_t row, bool valid) {
        if (!valid) return body(row, std::optional<uint64_t>());
        const auto entry = load_once<Index>(chunk.values, index);
        // A negative index is larger than any size.
        if (static_cast<uint64_t>(entry) >= chunk.dictionary_size) {
          throw Error(ErrorCode::invalid_table, "Column '" + column.name + "': row " + std::to_string(row) + " has the index " +
                                                    std::to_string(entry) + ", but its dictionary has " +
                                                    std::to_string(chunk.dictionary_size) + " values");
        }
        body(row, std::optional(chunk.dictionary_base + static_cast<uint64_t>(entry)));
      });
    });
  });
}

void require_dictionary(const Column& column) {
  if (!is_integer_key(column.type) || column.type.kind != ColumnKind::fixed || column.type.width > 8)
    throw Error(ErrorCode::key_type, "Column '" + column.name + "' can't be a key: the indices of a dictionary are integers");
  const uint64_t entries = column.dictionary->length;
  for (const ColumnChunk& chunk : column.chunks) {
    if (chunk.dictionary_base <= entries && chunk.dictionary_size <= entries - chunk.dictionary_base) continue;
    throw Error(ErrorCode::invalid_table, "Column '" + column.name + "': a chunk's dictionary is not within its column's");
  }
}

// --- Values ---------------------------------------------------------------------------------------------------------

void take_buffers(OwnedChunk& chunk, std::vector<HostBuffer>& owned) {
  for (HostBuffer* buffer : {&chunk.validity, &chunk.values, &chunk.offsets}) owned.push_back(std::move(*buffer));
  std::move(chunk.buffers.begin(), chunk.buffers.end(), std::back_inserter(owned));
  for (OwnedChunk& child : chunk.children) take_buffers(child, owned);
}

/// A column that an operator made, of the type of `like`, as one that keys can be made of.
PlainKey key_of(OwnedColumn column, const Column& like) {
  PlainKey key;
  key.column = borrow(column, like);
  std::erase_if(key.column.chunks, [](const ColumnChunk& chunk) { return chunk.length == 0; });
  for (HostBuffer* buffer : {&column.values, &column.validity, &column.offsets}) key.owned.push_back(std::move(*buffer));
  for (OwnedChunk& chunk : column.nested) take_buffers(chunk, key.owned);
  return key;
}

template <class Row>
PlainKey decoded_as(const Column& source, const Column& values, Engine& engine, const Job& job) {
  const ChunkIndex chunks(source);
  const HostBuffer rows = engine.memory->allocate(source.length * sizeof(Row), "decoding a dictionary");
  auto* const out = rows.as<Row>();
  for_entries(source, chunks, engine, job, [out](uint64_t row, std::optional<uint64_t> entry) {
    out[row] = entry ? static_cast<Row>(*entry) : static_cast<Row>(~Row{0});
  });
  PlainKey key = key_of(gather(values, {out, sizeof(Row), chunks.nullable(), source.length}, engine, job), values);
  key.column.name = source.name;
  return key;
}

}  // namespace

PlainKey decoded(const Column& source, const Column& values, Engine& engine, const Job& job) {
  require_dictionary(source);
  return row_bytes_for(source.dictionary->length) == 4 ? decoded_as<uint32_t>(source, values, engine, job)
                                                       : decoded_as<uint64_t>(source, values, engine, job);
}

namespace {

std::vector<PlainKey> decoded_keys(std::span<const KeySource> sources, bool one_type, Engine& engine, const Job& job) {
  std::vector<KeySource> values;
  for (const KeySource& source : sources) {
    values.push_back(source.column->dictionary ? KeySource{source.column->dictionary.get(), source.factor} : source);
  }
  std::vector<PlainKey> keys = plain_keys(values, engine, job, one_type);
  for (size_t i = 0; i < sources.size(); ++i) {
    const Column& source = *sources[i].column;
    if (source.dictionary) keys[i] = decoded(source, keys[i].column, engine, job);
  }
  return keys;
}

// --- Ranks ----------------------------------------------------------------------------------------------------------

/// The rank of each entry of a column, equal ones alike; of a null kNullRank.
template <class Rank>
HostBuffer ranks_of(const Column& entries, Engine& engine, const Job& job) {
  const SortColumn by{&entries, false, true};
  const EncodedSortKeys keys(PlainOrder({&by, 1}, engine, job), nullptr, engine, job);
  const EncodedTuples& tuples = keys.tuples();
  const TupleLayout layout = tuples.layout;
  const uint64_t size = tuples.view.size;
  const char* const purpose = "ranking a dictionary";
  HostBuffer memory[4];
  for (size_t i = 0; i < 4; ++i) {
    memory[i] = engine.memory->allocate(size * (i % 2 ? layout.value_bytes : layout.key_bytes), purpose);
  }
  const TupleSpan sorted = sort_on_host(layout, tuples.view, {memory[0].data(), memory[1].data(), size},
                                        {memory[2].data(), memory[3].data(), size}, tuples.varying_bits, engine, job);
  keys.refine_ties(sorted, engine, job);
  const ChunkIndex chunks(entries);
  const auto row_at = [&](uint64_t i) {
    return layout.value_bytes == 4 ? static_cast<const uint32_t*>(sorted.values)[i]
                                   : static_cast<const uint64_t*>(sorted.values)[i];
  };
  const auto begins = [&](uint64_t i) { return i == 0 || !keys.tie(sorted, i - 1, i); };
  std::vector<uint64_t> starts(block_count(size) + 1, 0);
  for_row_blocks(engine, size, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t found = 0;
    for (uint64_t i = begin; i < end; ++i) found += begins(i);
    starts[block + 1] = found;
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  HostBuffer ranks = engine.memory->allocate(size * sizeof(Rank), "ranks of a dictionary");
  for_row_blocks(engine, size, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t rank = starts[block];  // of the next one that begins
    for (uint64_t i = begin; i < end; ++i) {
      rank += begins(i);
      const uint64_t row = row_at(i);
      const Place place = chunks.at(row);
      ranks.as<Rank>()[row] = valid_at(*place.chunk, place.index) ? static_cast<Rank>(rank - 1) : kNullRank<Rank>;
    }
  });
  return ranks;
}

template <class Rank>
PlainKey ranked(const Column& source, const Rank* ranks, bool null_entries, Engine& engine, const Job& job) {
  PlainKey key = key_like(source, {ColumnKind::fixed, KeyOrder::unsigned_integer, sizeof(Rank)});
  const ChunkIndex chunks(source);
  HostBuffer values = engine.memory->allocate(source.length * sizeof(Rank), "keys of a dictionary");
  auto* const out = values.as<Rank>();
  if (!null_entries) {
    for_entries(source, chunks, engine, job,
                [=](uint64_t row, std::optional<uint64_t> entry) { out[row] = entry ? ranks[*entry] : Rank{0}; });
    add_fixed_chunks(key, chunks, std::move(values));
    return key;
  }
  const uint64_t bitmap_bytes = (source.length + 63) / 64 * 8;
  HostBuffer validity = engine.memory->allocate(bitmap_bytes, "keys of a dictionary");
  std::memset(validity.data(), 0, bitmap_bytes);
  auto* const bitmap = validity.as<uint64_t>();  // a block of rows has whole words
  for_entries(source, chunks, engine, job, [=](uint64_t row, std::optional<uint64_t> entry) {
    const Rank rank = entry ? ranks[*entry] : kNullRank<Rank>;
    out[row] = rank == kNullRank<Rank> ? Rank{0} : rank;
    if (rank != kNullRank<Rank>) bitmap[row / 64] |= uint64_t{1} << (row % 64);
  });
  if (source.length) {
    ColumnChunk chunk;
    chunk.length = source.length;
    chunk.values = values.data();
    chunk.values_bytes = source.length * sizeof(Rank);
    chunk.validity = validity.as<uint8_t>();
    chunk.validity_bytes = bitmap_bytes;
    key.column.chunks.push_back(chunk);
  }
  key.owned.push_back(std::move(values));
  key.owned.push_back(std::move(validity));
  return key;
}

template <class Rank>
std::vector<PlainKey> ranked_keys(std::span<const KeySource> sources, const Dictionaries& dictionaries, Engine& engine,
                                  const Job& job) {
  // Dictionaries of dictionaries, and those in several types, become one type first.
  std::vector<PlainKey> flat;
  std::vector<KeySource> values;
  for (const KeySource& dictionary : dictionaries.distinct) {
    const bool nested = dictionary.column->dictionary != nullptr;
    flat.push_back(nested ? std::move(decoded_keys({&dictionary, 1}, false, engine, job)[0]) : PlainKey{});
  }
  for (size_t i = 0; i < dictionaries.distinct.size(); ++i) {
    const KeySource& dictionary = dictionaries.distinct[i];
    values.push_back(dictionary.column->dictionary ? KeySource{&flat[i].column, {}} : dictionary);
  }
  const std::vector<PlainKey> plain = plain_values(values, true, engine, job);
  Column all;
  all.name = sources[0].column->name;
  all.type = plain[0].column.type;
  std::vector<uint64_t> begins;
  bool nullable = false;
  for (const PlainKey& part : plain) {
    begins.push_back(all.length);
    all.length += part.column.length;
    all.chunks.insert(all.chunks.end(), part.column.chunks.begin(), part.column.chunks.end());
  }
  for (const ColumnChunk& chunk : all.chunks) nullable |= chunk.length && chunk.validity;
  const HostBuffer ranks = ranks_of<Rank>(all, engine, job);
  std::vector<PlainKey> keys;
  for (size_t i = 0; i < sources.size(); ++i) {
    const size_t dictionary = dictionaries.of_source[i];
    keys.push_back(ranked(*sources[i].column, ranks.as<Rank>() + begins[dictionary], nullable, engine, job));
  }
  return keys;
}

}  // namespace

bool is_same_memory(const KeySource& a, const KeySource& b) {
  const Column &x = *a.column, &y = *b.column;
  if (&x == &y) return true;
  const bool nested = x.dictionary || y.dictionary || x.type.kind == ColumnKind::view || y.type.kind == ColumnKind::view;
  return !nested && a.factor.pow10 == b.factor.pow10 && a.factor.times == b.factor.times && x.type.kind == y.type.kind &&
         x.type.order == y.type.order && x.type.width == y.type.width && x.chunks.size() == y.chunks.size() &&
         std::equal(x.chunks.begin(), x.chunks.end(), y.chunks.begin(), same_chunk);
}

std::vector<PlainKey> dictionary_keys(std::span<const KeySource> sources, bool one_type, Engine& engine, const Job& job) {
  uint64_t rows = 0;
  for (const KeySource& source : sources) {
    rows += source.column->length;
    if (source.column->dictionary) require_dictionary(*source.column);
  }
  const Dictionaries dictionaries(sources);
  const bool all = std::find(dictionaries.of_source.begin(), dictionaries.of_source.end(), Dictionaries::kNone) ==
                   dictionaries.of_source.end();
  // Values of large dictionaries that few rows refer to are sooner read than ranked.
  if (!all || dictionaries.entries > rows) return decoded_keys(sources, one_type, engine, job);
  return row_bytes_for(dictionaries.entries) == 4 ? ranked_keys<uint32_t>(sources, dictionaries, engine, job)
                                                  : ranked_keys<uint64_t>(sources, dictionaries, engine, job);
}

}  // namespace warpjoin::columns
