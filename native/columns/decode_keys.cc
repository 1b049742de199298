#include <atomic>

#include "columns/encoded_sort_keys.h"
#include "columns/gather.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin::columns {
namespace {

/// Bits of a word as a column's values.
template <class Word>
struct Fields {
  const Word* words;
  int value_shift;
  Word mask;
  int null_shift;
  bool null_bit;
  uint64_t flip, base;  ///< value = raw((bits + base) ^ flip)

  Word value(uint64_t row) const { return static_cast<Word>(static_cast<Word>(words[row] >> value_shift) & mask); }
  uint64_t valid(uint64_t row) const { return static_cast<uint64_t>((words[row] >> null_shift) & 1) != uint64_t{null_bit}; }
};

/// Validity of rows [begin, end) into the words of a bitmap; returns the number of nulls.
template <class Word>
uint64_t write_validity(const Fields<Word>& fields, uint64_t begin, uint64_t end, uint64_t* bitmap) {
  uint64_t nulls = 0;
  for (uint64_t row = begin; row < end; row += 64) {
    const auto rows = static_cast<unsigned>(std::min<uint64_t>(64, end - row));
    uint64_t valid = 0;
    for (unsigned i = 0; i < rows; ++i) valid |= fields.valid(row + i) << i;
    nulls += rows - static_cast<unsigned>(std::popcount(valid));
    bitmap[row / 64] = valid;
  }
  return nulls;
}

template <class Key, class Word>
void write_values(const Fields<Word>& fields, const uint64_t* bitmap, uint64_t begin, uint64_t end,
                  typename Key::Raw* __restrict values) {
  using Raw = typename Key::Raw;
  const auto flip = static_cast<Raw>(fields.flip), base = static_cast<Raw>(fields.base);
  const auto value = [=, f = fields](uint64_t row) {
    return Key::raw(static_cast<Raw>(static_cast<Raw>(static_cast<Raw>(f.value(row)) + base) ^ flip));
  };
  if (!bitmap) {
    for (uint64_t row = begin; row < end; ++row) values[row] = value(row);
    return;
  }
  for (uint64_t row = begin; row < end; ++row) {
    values[row] = static_cast<Raw>(value(row) & static_cast<Raw>(-((bitmap[row / 64] >> (row % 64)) & 1)));
  }
}

template <class Word>
void write_bits(const Fields<Word>& fields, const uint64_t* bitmap, uint64_t begin, uint64_t end, uint64_t* values) {
  for (uint64_t row = begin; row < end; row += 64) {
    const auto rows = static_cast<unsigned>(std::min<uint64_t>(64, end - row));
    uint64_t bits = 0;
    for (unsigned i = 0; i < rows; ++i) bits |= (((uint64_t{fields.value(row + i)} + fields.base) ^ fields.flip) & 1) << i;
    values[row / 64] = bitmap ? bits & bitmap[row / 64] : bits;
  }
}

/// The column of the fields. `nullable`: whether they have a bit that says which values are null.
template <class Word>
OwnedColumn decode_fields(const Fields<Word>& fields, bool nullable, const ColumnType& type, uint64_t rows, Engine& engine,
                          const Job& job) {
  const bool bits = is_boolean_key(type);
  const uint64_t words = (rows + 63) / 64;
  OwnedColumn result;
  result.type = type;
  result.length = rows;
  result.values = engine.memory->allocate(std::max<uint64_t>(1, bits ? words * 8 : rows * type.width), "a decoded column");
  if (nullable) result.validity = engine.memory->allocate(words * 8, "a decoded column's validity");
  auto* const bitmap = result.validity.as<uint64_t>();
  std::atomic<uint64_t> nulls{0};
  for_row_blocks(engine, rows, job, [&](uint64_t, uint64_t begin, uint64_t end) {
    if (bitmap) nulls.fetch_add(write_validity(fields, begin, end, bitmap), std::memory_order_relaxed);
    if (bits) {
      write_bits(fields, bitmap, begin, end, result.values.as<uint64_t>());
    } else {
      with_key_type(type,
                    [&]<class Key>() { write_values<Key>(fields, bitmap, begin, end, result.values.as<typename Key::Raw>()); });
    }
  });
  result.null_count = nulls.load();
  if (result.validity) result.validity.shrink((rows + 7) / 8);
  if (bits) result.values.shrink(std::max<uint64_t>(1, (rows + 7) / 8));
  return result;
}

}  // namespace

std::optional<OwnedColumn> EncodedSortKeys::decode(size_t sort_column, const void* sorted_keys, uint64_t rows, Engine& engine,
                                                   const Job& job) const {
  const KeyColumn& column = order_.columns().at(sort_column);
  const bool placed = (column.value_bits == 0 || column.value_shift >= 0) && (!column.has_null_flag || column.null_shift >= 0);
  if (column.is_text() || !placed || !plain_.is_source(sort_column) || column.fixed.canonicalized ||
      (column.fixed.nulls != 0 && !column.has_null_flag))
    return {};
  const auto decode_words = [&]<class Word>() {
    const Fields<Word> fields{static_cast<const Word*>(sorted_keys),
                              std::max(column.value_shift, 0),
                              static_cast<Word>(low_bits(column.value_bits)),
                              std::max(column.null_shift, 0),
                              column.nulls_last,
                              column.flip,
                              column.base};
    return decode_fields(fields, column.has_null_flag, column.chunks.type(), rows, engine, job);
  };
  return tuples_.layout.key_bytes == 4 ? decode_words.template operator()<uint32_t>()
                                       : decode_words.template operator()<uint64_t>();
}

namespace {

/// Values by their numbers. Few of them stay in the cache, so that the result is written in sequence.
OwnedColumn decode_numbers(const PackedValue& value, uint8_t key_bytes, const void* keys, uint64_t rows, Engine& engine,
                           const Job& job) {
  const uint64_t count = value.by_number->column.length;
  if (rows > 0 && count == 0) throw InputChanged("A key column");
  const HostBuffer numbers = engine.memory->allocate(rows * sizeof(uint32_t), "the values of join keys");
  for_row_blocks(engine, rows, job, [&, out = numbers.as<uint32_t>()](uint64_t, uint64_t begin, uint64_t end) {
    const auto number = [&](const auto* words) {
      // Keys may be the caller's, and have changed since they were found.
      for (uint64_t row = begin; row < end; ++row)
        out[row] = static_cast<uint32_t>(std::min(uint64_t{words[row]} >> value.shift & low_bits(value.bits), count - 1));
    };
    key_bytes == 4 ? number(static_cast<const uint32_t*>(keys)) : number(static_cast<const uint64_t*>(keys));
  });
  return gather(value.by_number->column, {numbers.data(), sizeof(uint32_t), false, rows}, engine, job);
}

}  // namespace

}  // namespace warpjoin::columns

namespace warpjoin {

OwnedColumn decode_join_keys(const PackedValue& value, uint8_t key_bytes, const void* keys, uint64_t rows, Engine& engine,
                             const Job& job) {
  if (value.by_number) return columns::decode_numbers(value, key_bytes, keys, rows, engine, job);
  const auto decode_words = [&]<class Word>() {
    const columns::Fields<Word> fields{static_cast<const Word*>(keys),
                                       static_cast<int>(value.shift),
                                       static_cast<Word>(columns::low_bits(value.bits)),
                                       0,
                                       false,
                                       0,
                                       value.base};
    return columns::decode_fields(fields, false, value.type, rows, engine, job);
  };
  return key_bytes == 4 ? decode_words.template operator()<uint32_t>() : decode_words.template operator()<uint64_t>();
}

}  // namespace warpjoin
