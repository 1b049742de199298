// Computing the words of a sort order.
#include <algorithm>
#include <cstring>

#include "columns/sort_order.h"
#include "core/key_types.h"

namespace warpjoin::columns {
namespace {

constexpr unsigned kTailBytes = 7;            // of text in a word of a tail; the lowest byte tells where it ends
constexpr uint64_t kGoesOn = kTailBytes + 1;  // the lowest byte where the text does not end in this word

// Each kind of field as a function of a chunk and a row; what it reads of the chunk is bound first, so that loops over
// rows keep it in registers and vectorize.

struct NullFlag {
  bool null_bit;
  auto bind(const ColumnChunk& chunk) const {
    return [validity = chunk.validity, offset = chunk.bit_offset, null_bit = null_bit](uint64_t index) -> uint64_t {
      return (!validity || bit_at(validity, offset + index)) != null_bit;
    };
  }
  static constexpr bool kNullIsZero = false;
};

template <class Key>
struct FixedValue {
  using Raw = typename Key::Raw;
  Raw flip, base;
  auto bind(const ColumnChunk& chunk) const {
    return [values = chunk.values, flip = flip, base = base](uint64_t index) -> Raw {
      return static_cast<Raw>(static_cast<Raw>(Key::ordered(load<Raw>(values, index)) ^ flip) - base);
    };
  }
  static constexpr bool kNullIsZero = true;
};

struct BooleanValue {
  uint64_t flip, base;
  auto bind(const ColumnChunk& chunk) const {
    return [values = chunk.values, offset = chunk.bit_offset, flip = flip, base = base](uint64_t index) -> uint64_t {
      return (uint64_t{bit_at(values, offset + index)} ^ flip) - base;
    };
  }
  static constexpr bool kNullIsZero = true;
};

template <class Offset>
struct TextValue {
  uint64_t prefix, least_size, flip;
  unsigned bytes, size_bits;
  bool whole;
  auto bind(const ColumnChunk& chunk) const {
    return [chunk = chunk, f = *this](uint64_t index) -> uint64_t {
      const Text text = text_at<Offset>(chunk, index);
      const uint64_t rest = text.size > f.prefix ? text.size - f.prefix : 0;
      const uint64_t head = std::min<uint64_t>(rest, f.bytes);
      uint64_t value = head ? leading_bytes(text.data + f.prefix, head, text.end) >> (64 - 8 * f.bytes) : 0;
      if (f.size_bits) {
        value = value << f.size_bits | (f.whole ? text.size - f.least_size : std::min<uint64_t>(rest, f.bytes + 1));
      }
      return value ^ f.flip;
    };
  }
  static constexpr bool kNullIsZero = true;
};

template <class Key, class Value>
Key shifted(Value value, int shift) {
  return shift >= 0 ? static_cast<Key>(static_cast<Key>(value) << shift) : static_cast<Key>(uint64_t{value} >> -shift);
}

/// Adds a field to words[0, count): rows from `first` of a chunk.
template <class Key, class Field>
void add_rows(const Field& field, int shift, const ColumnChunk& chunk, uint64_t first, uint64_t count, Key* __restrict words) {
  const auto value = field.bind(chunk);
  if (!Field::kNullIsZero || !chunk.validity) {
    if (shift >= 0) {
      for (uint64_t i = 0; i < count; ++i) words[i] |= static_cast<Key>(static_cast<Key>(value(first + i)) << shift);
    } else {
      for (uint64_t i = 0; i < count; ++i) words[i] |= shifted<Key>(value(first + i), shift);
    }
    return;
  }
  for_groups(chunk, first, count, [&](uint64_t row, unsigned rows, uint64_t valid) {
    Key* group = words + (row - first);
    for (unsigned i = 0; i < rows; ++i) {
      group[i] |= static_cast<Key>(shifted<Key>(value(row + i), shift) & static_cast<Key>(-((valid >> i) & 1)));
    }
  });
}

}  // namespace

template <class Body>
void SortOrder::with_field(const Field& field, Body&& body) const {
  const KeyColumn& column = columns_[field.column];
  if (field.kind == Field::Kind::null_flag) {
    body(NullFlag{.null_bit = column.nulls_last});
  } else if (field.kind == Field::Kind::text) {
    const uint64_t flip = column.descending ? low_bits(field.bits) : 0;
    const auto with_offset = [&]<class Offset>() {
      body(TextValue<Offset>{column.text.prefix, column.text.least_size, flip, column.text_bytes, column.size_bits,
                             column.whole_text});
    };
    if (column.chunks.type().kind == ColumnKind::utf8) {
      with_offset.template operator()<int32_t>();
    } else {
      with_offset.template operator()<int64_t>();
    }
  } else if (is_boolean_key(column.chunks.type())) {
    body(BooleanValue{column.flip, column.base});
  } else {
    with_key_type(column.chunks.type(), [&]<class Key>() {
      using Raw = typename Key::Raw;
      body(FixedValue<Key>{static_cast<Raw>(column.flip), static_cast<Raw>(column.base)});
    });
  }
}

template <class Key>
void SortOrder::first_words(uint64_t begin, uint64_t end, Key* words) const {
  std::fill(words, words + (end - begin), Key{0});
  for (const Part& part : stages_.front().parts) {
    with_field(part.field, [&](const auto& field) {
      columns_[part.field.column].chunks.for_pieces(begin, end,
                                                    [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
                                                      add_rows(field, part.shift, chunk, first, count, words + (row - begin));
                                                    });
    });
  }
}
template void SortOrder::first_words(uint64_t, uint64_t, uint32_t*) const;
template void SortOrder::first_words(uint64_t, uint64_t, uint64_t*) const;

SortOrder::State SortOrder::after(State state, uint64_t word) const {
  const Stage& stage = stages_[state.stage];
  if (stage.text) {
    const uint64_t plain = columns_[stage.column].descending ? ~word : word;
    if ((plain & 0xFF) == kGoesOn) return {state.stage, state.depth + kTailBytes};
  }
  return at_stage(state.stage + 1);
}

Text SortOrder::text_of(const Stage& stage, uint64_t row) const {
  const ChunkIndex& chunks = columns_[stage.column].chunks;
  const Place place = chunks.at(row);
  if (!valid_at(*place.chunk, place.index)) return {};
  return text_at(chunks.type().kind, *place.chunk, place.index);
}

uint64_t SortOrder::tail_word(const Stage& stage, Text text, uint64_t depth) const {
  const uint64_t rest = text.size > depth ? text.size - depth : 0;
  uint64_t word = std::min<uint64_t>(rest, kGoesOn);
  if (rest) word |= leading_bytes(text.data + depth, std::min<uint64_t>(rest, kTailBytes), text.end);
  return columns_[stage.column].descending ? ~word : word;
}

template <class Row>
void SortOrder::words(State state, const Row* rows, size_t size, uint64_t* words) const {
  const Stage& stage = stages_[state.stage];
  if (stage.text) {
    constexpr size_t kBatch = 64;
    const KeyColumn& column = columns_[stage.column];
    const ColumnKind kind = column.chunks.type().kind;
    Text texts[kBatch];
    for (size_t done = 0; done < size; done += kBatch) {
      const size_t batch = std::min(kBatch, size - done);
      for (size_t i = 0; i < batch; ++i) prefetch_offset(kind, column.chunks.at(rows[done + i]));
      for (size_t i = 0; i < batch; ++i) {
        texts[i] = text_of(stage, rows[done + i]);
        if (texts[i].size > state.depth) __builtin_prefetch(texts[i].data + state.depth);
      }
      for (size_t i = 0; i < batch; ++i) words[done + i] = tail_word(stage, texts[i], state.depth);
    }
    return;
  }
  std::fill(words, words + size, uint64_t{0});
  for (const Part& part : stage.parts) {
    const ChunkIndex& chunks = columns_[part.field.column].chunks;
    with_field(part.field, [&]<class Field>(const Field& field) {
      for (size_t i = 0; i < size; ++i) {
        const Place place = chunks.at(rows[i]);
        if (Field::kNullIsZero && !valid_at(*place.chunk, place.index)) continue;
        words[i] |= shifted<uint64_t>(field.bind(*place.chunk)(place.index), part.shift);
      }
    });
  }
}
template void SortOrder::words(State, const uint32_t*, size_t, uint64_t*) const;
template void SortOrder::words(State, const uint64_t*, size_t, uint64_t*) const;

uint64_t SortOrder::shared_bytes(State state, uint64_t row, uint64_t other, uint64_t limit) const {
  const Stage& stage = stages_[state.stage];
  const Text a = text_of(stage, row), b = text_of(stage, other);
  const uint64_t size = std::min(a.size, b.size);
  if (size <= state.depth) return 0;
  return common_bytes(a.data + state.depth, b.data + state.depth, std::min(limit, size - state.depth));
}

int SortOrder::compare(State state, uint64_t row, uint64_t other) const {
  while (!decided(state)) {
    const Stage& stage = stages_[state.stage];
    if (stage.text) {
      const Text a = text_of(stage, row), b = text_of(stage, other);
      const uint64_t size = std::min(a.size, b.size);
      int order = size > state.depth ? std::memcmp(a.data + state.depth, b.data + state.depth, size - state.depth) : 0;
      if (order == 0) order = a.size < b.size ? -1 : a.size > b.size;
      if (order != 0) return columns_[stage.column].descending ? -order : order;
    } else {
      const uint64_t pair[2] = {row, other};
      uint64_t both[2];
      words(state, pair, 2, both);
      if (both[0] != both[1]) return both[0] < both[1] ? -1 : 1;
    }
    state = at_stage(state.stage + 1);
  }
  return 0;
}

}  // namespace warpjoin::columns
