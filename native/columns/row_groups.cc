#include "columns/row_groups.h"

#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <type_traits>
#include <utility>

#include "columns/plain_parts.h"
#include "columns/scan.h"
#include "core/bytes_hash.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin {
namespace columns {
namespace {

constexpr uint64_t kHashesAtOnce = 1024;  // rows whose hashes are made together

/// Hashes of rows, a value at a time: multiplies 64 by 64 bits and folds the 128.
class RowHash {
 public:
  explicit RowHash(uint64_t seed) : texts_(seed) {
    std::mt19937_64 random(~seed);
    for (uint64_t* number : {&first_, &null_, &factor_, &last_}) *number = random();
    factor_ |= 1;
    last_ |= 1;
  }

  /// Of no values.
  uint64_t first() const { return first_; }
  /// What a null that equals others is mixed in as.
  uint64_t null() const { return null_; }
  uint64_t text(const Text& text) const { return texts_(text.data, text.size); }
  uint64_t mixed(uint64_t hash, uint64_t value) const { return fold(hash ^ value, factor_); }
  /// The topmost bits, which depend on all of a hash's.
  uint64_t top(uint64_t hash, unsigned bits) const { return bits ? fold(hash, last_) >> (64 - bits) : 0; }

 private:
  static uint64_t fold(uint64_t a, uint64_t b) {
    const auto wide = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(wide) ^ static_cast<uint64_t>(wide >> 64);
  }

  BytesHash texts_;
  uint64_t first_, null_, factor_, last_;
};

/// A key without a dictionary or views.
PlainKey with_values(const Column& column, Engine& engine, const Job& job) {
  if (column.dictionary) return decoded(column, with_values(*column.dictionary, engine, job).column, engine, job);
  if (column.type.kind == ColumnKind::view) return view_as_text(column, engine, job);
  if (column.type.kind == ColumnKind::fixed && column.type.order == KeyOrder::bytes) return binary_as_text(column, engine);
  PlainKey key;
  key.column = column;
  return key;
}

/// The lowest 64 bits: products of numbers are equal there where they are equal.
uint64_t low_bits_of(const KeyFactor& factor) {
  uint64_t product = factor.times;
  for (uint32_t i = 0; i < factor.pow10; ++i) product *= 10;
  return product;
}

/// A key column as values of 64 bits, which are equal where its own are, or those of a column that it compares with.
class HashedKey {
 public:
  HashedKey(const GroupKey& key, Engine& engine, const Job& job)
      : key_(with_values(*key.column, engine, job)),
        chunks_(key_.column),
        factor_(low_bits_of(key.factor)),
        nulls_equal_(key.nulls_equal) {
    const ColumnType& type = key_.column.type;
    const bool wide = type.kind == ColumnKind::fixed && is_integer_key(type) && (type.width == 16 || type.width == 32);
    if (!wide && type.kind != ColumnKind::null) require_key_type(key_.column);
  }

  /// Mixes the values of rows [begin, end) into their hashes.
  void mix_into(uint64_t* hashes, uint64_t begin, uint64_t end, const RowHash& hash) const {
    const ColumnType& type = chunks_.type();
    const auto mix = [&](auto&& value_of) { mix_values(hashes, begin, end, hash, value_of); };
    switch (type.kind) {
      case ColumnKind::null: return mix_nulls(hashes, begin, end, hash);
      case ColumnKind::boolean:
        return mix([](const ColumnChunk& chunk, uint64_t i) { return uint64_t{bit_at(chunk.values, chunk.bit_offset + i)}; });
      case ColumnKind::utf8:
        return mix([&](const ColumnChunk& chunk, uint64_t i) { return hash.text(text_at<int32_t>(chunk, i)); });
      case ColumnKind::large_utf8:
        return mix([&](const ColumnChunk& chunk, uint64_t i) { return hash.text(text_at<int64_t>(chunk, i)); });
      default: break;
    }
    if (type.width > 8) {
      const uint64_t words = type.width / 8;
      return mix([words, factor = factor_](const ColumnChunk& chunk, uint64_t i) {
        return load<uint64_t>(chunk.values, i * words) * factor;
      });
    }
    with_key_type(type, [&]<class Key>() {
      using Raw = typename Key::Raw;
      mix([factor = factor_](const ColumnChunk& chunk, uint64_t i) -> uint64_t {
        const Raw raw = load<Raw>(chunk.values, i);
        if constexpr (Key::kOrder == KeyOrder::floating) {
          return widened_float(Key::canonical(raw));
        } else if constexpr (Key::kOrder == KeyOrder::signed_integer) {
          return static_cast<uint64_t>(int64_t{static_cast<std::make_signed_t<Raw>>(raw)}) * factor;
        } else {
          return raw * factor;
        }
      });
    });
  }

 private:
  template <class ValueOf>
  void mix_values(uint64_t* hashes, uint64_t begin, uint64_t end, const RowHash& hash, ValueOf&& value_of) const {
    chunks_.for_pieces(begin, end, [&](const ColumnChunk& borrowed, uint64_t first, uint64_t count, uint64_t row) {
      const ColumnChunk chunk = borrowed;  // a local copy: its pointers stay in registers
      uint64_t* const of_piece = hashes + (row - begin);
      if (!chunk.validity) {
        for (uint64_t i = 0; i < count; ++i) of_piece[i] = hash.mixed(of_piece[i], value_of(chunk, first + i));
        return;
      }
      for_groups(chunk, first, count, [&](uint64_t index, unsigned group, uint64_t valid) {
        uint64_t* const at = of_piece + (index - first);
        for_set_bits(valid, [&](unsigned bit) { at[bit] = hash.mixed(at[bit], value_of(chunk, index + bit)); });
        for_set_bits(~valid & low_bits(group),
                     [&](unsigned bit) { at[bit] = hash.mixed(at[bit], null_of(row + (index - first) + bit, hash)); });
      });
    });
  }

  void mix_nulls(uint64_t* hashes, uint64_t begin, uint64_t end, const RowHash& hash) const {
    for (uint64_t row = begin; row < end; ++row) hashes[row - begin] = hash.mixed(hashes[row - begin], null_of(row, hash));
  }

  /// Rows with a null that equals nothing are spread over all groups.
  uint64_t null_of(uint64_t row, const RowHash& hash) const { return nulls_equal_ ? hash.null() : row; }

  PlainKey key_;
  ChunkIndex chunks_;
  uint64_t factor_;
  bool nulls_equal_;
};

/// The number of each row's group, and how many rows of each block of rows are in which.
struct Numbered {
  HostBuffer numbers;
  std::vector<uint64_t> counts;

  Numbered(std::span<const GroupKey> keys, uint64_t rows, uint64_t groups, uint64_t seed, Engine& engine, const Job& job)
      : numbers(engine.memory->allocate(rows, "the groups of rows")), counts(block_count(rows) * groups, 0) {
    const RowHash hash(seed);
    const auto bits = static_cast<unsigned>(std::countr_zero(groups));
    std::vector<HashedKey> hashed;
    hashed.reserve(keys.size());
    for (const GroupKey& key : keys) hashed.emplace_back(key, engine, job);
    for_row_blocks(engine, rows, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
      uint64_t* const found = counts.data() + block * groups;
      uint64_t hashes[kHashesAtOnce];
      for (uint64_t from = begin; from < end; from += kHashesAtOnce) {
        job.check();  // texts may be long
        const uint64_t to = std::min(end, from + kHashesAtOnce);
        std::fill_n(hashes, to - from, hash.first());
        for (const HashedKey& key : hashed) key.mix_into(hashes, from, to, hash);
        for (uint64_t row = from; row < to; ++row) {
          const uint64_t group = hash.top(hashes[row - from], bits);
          numbers.as<uint8_t>()[row] = static_cast<uint8_t>(group);
          ++found[group];
        }
      }
    });
  }
};

/// Makes of the counts where the rows of each block go, and returns where each group ends.
std::vector<uint64_t> starts_of(std::vector<uint64_t>& counts, uint64_t groups) {
  std::vector<uint64_t> ends;
  uint64_t row = 0;
  for (uint64_t group = 0; group < groups; ++group) {
    for (uint64_t at = group; at < counts.size(); at += groups) row += std::exchange(counts[at], row);
    ends.push_back(row);
  }
  return ends;
}

template <class Row>
void write_rows(const uint8_t* numbers, std::vector<uint64_t>& starts, uint64_t groups, uint64_t rows, Row* out, Engine& engine,
                const Job& job) {
  for_row_blocks(engine, rows, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t* const next = starts.data() + block * groups;
    for (uint64_t row = begin; row < end; ++row) out[next[numbers[row]]++] = static_cast<Row>(row);
  });
}

}  // namespace
}  // namespace columns

RowGroups group_rows(std::span<const GroupKey> keys, uint64_t groups, uint64_t seed, Engine& engine, const Job& job) {
  using namespace columns;
  if (keys.empty() || !std::has_single_bit(groups) || groups > kMostRowGroups)
    throw Error(ErrorCode::option, "Rows are grouped by one column at least, into a power of two of groups up to 256");
  const uint64_t rows = keys[0].column->length;
  for (const GroupKey& key : keys) {
    if (key.column->length == rows) continue;
    throw Error(ErrorCode::invalid_table, "Column '" + key.column->name + "' differs in length from others of its table");
  }
  Numbered numbered(keys, rows, groups, seed, engine, job);
  RowGroups out;
  out.row_bytes = row_bytes_for(rows);
  out.rows = engine.memory->allocate(rows * out.row_bytes, "the rows of groups");
  out.ends = starts_of(numbered.counts, groups);
  const auto* const numbers = numbered.numbers.as<uint8_t>();
  if (out.row_bytes == 4) {
    write_rows(numbers, numbered.counts, groups, rows, out.rows.as<uint32_t>(), engine, job);
  } else {
    write_rows(numbers, numbered.counts, groups, rows, out.rows.as<uint64_t>(), engine, job);
  }
  return out;
}

}  // namespace warpjoin
