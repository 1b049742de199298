#include <atomic>
#include <cstring>

#include "columns/encoded_sort_keys.h"
#include "core/error.h"

namespace warpjoin {
namespace columns {

HostBuffer in_one_piece(const ChunkIndex& chunks, const char* purpose, Engine& engine, const Job& job) {
  const uint64_t width = chunks.type().width;
  HostBuffer values = engine.memory->allocate(chunks.rows() * width, purpose);
  for_row_blocks(engine, chunks.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    chunks.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
      std::memcpy(values.as<char>() + row * width, static_cast<const char*>(chunk.values) + first * width, count * width);
    });
  });
  return values;
}

bool carry_payload(EncodedTuples& tuples, const Column* payload, Engine& engine, const Job& job) {
  const uint64_t rows = tuples.view.size;
  if (payload && payload->type.kind == ColumnKind::fixed && (payload->type.width == 4 || payload->type.width == 8) &&
      payload->length == rows && rows > 0) {
    const ChunkIndex chunks(*payload);
    const unsigned width = payload->type.width;
    if (count_nulls(chunks, engine, job) == 0) {
      tuples.layout.value_bytes = static_cast<uint8_t>(width);
      if (aliasable(chunks, width)) {
        tuples.view.values = chunks.chunks()[0].values;
        return true;
      }
      tuples.values = in_one_piece(chunks, "a payload column", engine, job);
      tuples.view.values = tuples.values.data();
      return true;
    }
  }
  tuples.layout.value_bytes = row_bytes_for(rows);
  return false;
}

PlainOrder::PlainOrder(std::span<const SortColumn> by, Engine& engine, const Job& job) {
  if (by.empty()) throw Error(ErrorCode::option, "A sort needs at least one column to sort by");
  keys_.reserve(by.size());
  for (const SortColumn& column : by) {
    if (column.column->length != by[0].column->length) {
      throw Error(ErrorCode::invalid_table, "Column '" + column.column->name + "' has " + std::to_string(column.column->length) +
                                                " rows, but column '" + by[0].column->name + "' has " +
                                                std::to_string(by[0].column->length));
    }
    const KeySource source{column.column, {}};
    keys_.push_back(std::move(plain_keys({&source, 1}, engine, job)[0]));
    by_.push_back({&keys_.back().column, column.descending, column.nulls_last});
  }
}

EncodedSortKeys::EncodedSortKeys(PlainOrder plain, const Column* payload, Engine& engine, const Job& job)
    : plain_(std::move(plain)), order_(plain_.by(), Extents::values, engine, job) {
  tuples_.view.size = plain_.rows();
  const bool aliased = alias();
  are_values_ = aliased && plain_.is_source(0);
  if (!aliased) {
    if (order_.first_word_bits() <= 32) {
      encode<uint32_t>(engine, job);
    } else {
      encode<uint64_t>(engine, job);
    }
  }
  carry_payload(tuples_, complete() ? payload : nullptr, engine, job);
}

/// Uses the Arrow buffer of a single unsigned column as it is, where its values fill the words that it would get.
bool EncodedSortKeys::alias() {
  if (order_.columns().size() != 1) return false;
  KeyColumn& column = order_.columns()[0];
  const ColumnType& type = column.chunks.type();
  if (type.order != KeyOrder::unsigned_integer || column.descending || column.nulls() != 0) return false;
  const unsigned key_bytes = order_.first_word_bits() <= 32 ? 4 : 8;
  if (type.width != key_bytes || !aliasable(column.chunks, key_bytes)) return false;
  column.base = 0;
  column.value_bits = 8 * key_bytes;
  column.value_shift = 0;
  tuples_.layout.key_bytes = static_cast<uint8_t>(key_bytes);
  tuples_.view.keys = column.chunks.chunks()[0].values;
  if (plain_.is_source(0)) tuples_.borrowed_from = plain_.by()[0].column;
  tuples_.varying_bits = column.fixed.varying_bits();
  return true;
}

template <class Key>
void EncodedSortKeys::encode(Engine& engine, const Job& job) {
  const uint64_t rows = tuples_.view.size;
  tuples_.layout.key_bytes = sizeof(Key);
  tuples_.keys = engine.memory->allocate(rows * sizeof(Key), "sort keys");
  tuples_.view.keys = tuples_.keys.data();
  std::atomic<uint64_t> any{0}, all{~uint64_t{0}};
  for_row_blocks(engine, rows, job, [&](uint64_t, uint64_t begin, uint64_t end) {
    Key* const keys = tuples_.keys.as<Key>();
    Key block_any = 0, block_all = ~Key{0};
    for (uint64_t at = begin; at < end; at += kWordsAtOnce) {
      job.check();  // texts may be long
      const uint64_t stop = std::min(end, at + kWordsAtOnce);
      order_.first_words(at, stop, keys + at);
      for (uint64_t i = at; i < stop; ++i) {
        block_any |= keys[i];
        block_all &= keys[i];
      }
    }
    any.fetch_or(block_any, std::memory_order_relaxed);
    all.fetch_and(block_all, std::memory_order_relaxed);
  });
  tuples_.varying_bits = any.load() & ~all.load();
}

}  // namespace columns

namespace {

/// A column of integers whose buffer is the keys.
class ColumnAsKeys final : public SortKeys {
 public:
  /// Null where the column can't be.
  static std::unique_ptr<SortKeys> make(std::span<const SortColumn> by, const Column* payload, Engine& engine, const Job& job) {
    if (by.size() != 1 || by[0].column->dictionary) return nullptr;
    const columns::ChunkIndex chunks(*by[0].column);
    const ColumnType& type = chunks.type();
    if (!are_integer_keys(type) || !columns::aliasable(chunks, type.width) || columns::count_nulls(chunks, engine, job) != 0)
      return nullptr;
    auto keys = std::make_unique<ColumnAsKeys>();
    EncodedTuples& tuples = keys->tuples_;
    tuples.layout.key_bytes = static_cast<uint8_t>(type.width);
    tuples.view.keys = chunks.chunks()[0].values;
    tuples.view.size = chunks.rows();
    tuples.borrowed_from = by[0].column;
    tuples.flip = integer_flip(type, by[0].descending);
    columns::carry_payload(tuples, payload, engine, job);
    return keys;
  }

  const EncodedTuples& tuples() const override { return tuples_; }
  bool are_values() const override { return true; }
  bool complete() const override { return true; }
  void refine_ties(TupleSpan, Engine&, const Job&) const override {}
  std::optional<OwnedColumn> decode(size_t, const void*, uint64_t, Engine&, const Job&) const override { return {}; }

 private:
  EncodedTuples tuples_;
};

}  // namespace

std::unique_ptr<SortKeys> encode_sort_keys(std::span<const SortColumn> by, const Column* payload, bool allow_flip, Engine& engine,
                                           const Job& job) {
  if (allow_flip) {
    if (auto keys = ColumnAsKeys::make(by, payload, engine, job)) return keys;
  }
  return std::make_unique<columns::EncodedSortKeys>(columns::PlainOrder(by, engine, job), payload, engine, job);
}

}  // namespace warpjoin
