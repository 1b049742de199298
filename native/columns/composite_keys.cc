#include "columns/composite_keys.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "columns/dictionary_codes.h"
#include "columns/encoded_sort_keys.h"
#include "columns/matchable.h"
#include "columns/plain_keys.h"
#include "columns/scan.h"
#include "columns/text_codes.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin::columns {
namespace {

/// A code above every field's span: the row can't match.
constexpr uint64_t kNoMatch = ~uint64_t{0};
/// Texts up to this size are packed, which leaves codes below kNoMatch.
constexpr uint64_t kPackedTextBytes = 7;
/// Rows whose fields are packed together, which stay in a core's first cache.
constexpr uint64_t kBatchRows = 2048;
constexpr unsigned kWordBits = 64;

/// Codes of one side of a field.
struct FieldSide {
  enum class Values : uint8_t {
    none,         ///< no value can match
    valid,        ///< 0 of any value: a bit for nulls alone
    number,       ///< ordered bits, and booleans
    wide_number,  ///< ordered bits of floats, widened
    text,
    row_codes,    ///< of each row
    entry_codes,  ///< of each value of the dictionary
  };
  Values values = Values::none;
  const Column* column = nullptr;  ///< for messages
  ChunkIndex chunks;               ///< nulls, and values or indices of a dictionary
  uint64_t base = 0;               ///< ordered bits of the number with code 0

  explicit FieldSide(const Column& column) : column(&column), chunks(column) {}
};

/// One pair of columns.
struct Field {
  FieldSide left, right;
  std::vector<PlainKey> plain;  ///< what the sides refer to
  TextCodes codes;              ///< of rows or entries
  uint64_t span = 0;            ///< the greatest code of a value
  uint64_t null_code = kNoMatch;
  uint64_t least_size = 0, greatest_size = 0;  ///< packed texts: bytes
  unsigned bits = 0;
  unsigned word = 0, shift = 0;  ///< where it lies in a row's words

  Field(const Column& left, const Column& right) : left(left), right(right) {}
};

/// Whether some row may be null.
bool has_nulls(const Column& column, Engine& engine, const Job& job) {
  if (column.type.kind == ColumnKind::null) return column.length > 0;
  return count_nulls(ChunkIndex(column), engine, job) > 0 || (column.dictionary && has_nulls(*column.dictionary, engine, job));
}

bool nulls_match(const JoinKeyPair& pair, Engine& engine, const Job& job) {
  return pair.nulls_equal && has_nulls(*pair.left, engine, job) && has_nulls(*pair.right, engine, job);
}

/// Columns of values that compare, as columns of one plain kind. Of a column with itself there is one.
struct PlainPair {
  std::vector<PlainKey> keys;

  const Column& left() const { return keys.front().column; }
  const Column& right() const { return keys.back().column; }
};

PlainPair plain_pair(const KeySource& left, const KeySource& right, bool own, Engine& engine, const Job& job) {
  const KeySource sources[] = {left, right};
  return {plain_keys({sources, own ? size_t{1} : size_t{2}}, engine, job)};
}

/// The value of ordered bits.
__int128 value_of(const ColumnType& type, uint64_t ordered) { return least_value(type) + static_cast<__int128>(ordered); }

/// Ordered bits of a float of any width as those of a double.
uint64_t widened_ordered(const ColumnType& type, uint64_t ordered) {
  uint64_t wide = 0;
  with_key_type(type, [&]<class Key>() {
    if constexpr (Key::kOrder == KeyOrder::floating) {
      using Wide = KeyType<uint64_t, KeyOrder::floating>;
      wide = Wide::ordered(widened_float(Key::raw(static_cast<typename Key::Raw>(ordered))));
    }
  });
  return wide;
}

bool is_float_key(const ColumnType& type) { return type.order == KeyOrder::floating; }

/// Numbers and booleans: the range that both sides share.
void set_range(Field& field, Engine& engine, const Job& job) {
  const ColumnType &a = field.left.chunks.type(), &b = field.right.chunks.type();
  FixedScan left = scan_fixed(field.left.chunks, engine, job);
  FixedScan right = field.left.column == field.right.column ? left : scan_fixed(field.right.chunks, engine, job);
  if (left.empty() || right.empty()) return;
  const bool widens = is_float_key(a) && a.width != b.width;
  if (widens) {
    for (FixedScan* scan : {&left, &right}) {
      const ColumnType& type = scan == &left ? a : b;
      scan->least = widened_ordered(type, scan->least);
      scan->greatest = widened_ordered(type, scan->greatest);
    }
  }
  const __int128 least = std::max(value_of(a, left.least), value_of(b, right.least));
  const __int128 greatest = std::min(value_of(a, left.greatest), value_of(b, right.greatest));
  if (least > greatest) return;
  field.span = static_cast<uint64_t>(greatest - least);
  for (FieldSide* side : {&field.left, &field.right}) {
    side->values = widens ? FieldSide::Values::wide_number : FieldSide::Values::number;
    side->base = static_cast<uint64_t>(least - least_value(side->chunks.type()));
  }
}

/// Texts: packed where those of one side are short; returns false where they are not.
bool pack_texts(Field& field, Engine& engine, const Job& job) {
  const TextScan left = scan_text(field.left.chunks, false, engine, job);
  const TextScan right = field.left.column == field.right.column ? left : scan_text(field.right.chunks, false, engine, job);
  if (left.empty() || right.empty()) return true;
  field.least_size = std::max(left.least_size, right.least_size);
  field.greatest_size = std::min(left.greatest_size, right.greatest_size);
  if (field.least_size > field.greatest_size) return true;
  if (field.greatest_size > kPackedTextBytes) return false;
  field.span = low_bits(static_cast<unsigned>(8 * field.greatest_size) +
                        static_cast<unsigned>(std::bit_width(field.greatest_size - field.least_size)));
  field.left.values = field.right.values = FieldSide::Values::text;
  return true;
}

void set_codes(Field& field, TextCodes codes) {
  field.span = codes.count ? codes.count - 1 : 0;
  field.left.values = field.right.values = FieldSide::Values::row_codes;
  field.codes = std::move(codes);
}

/// The field of two plain columns.
void set_values(Field& field, Engine& engine, const Job& job) {
  const ColumnType &a = field.left.chunks.type(), &b = field.right.chunks.type();
  if (is_text_key(a) != is_text_key(b) || is_boolean_key(a) != is_boolean_key(b) || is_float_key(a) != is_float_key(b))
    throw Error(ErrorCode::internal, "Plain keys that are compared differ in kind");
  if (!is_text_key(a)) {
    set_range(field, engine, job);
  } else if (!pack_texts(field, engine, job)) {
    const bool same = field.left.column == field.right.column;
    set_codes(field, text_codes(field.left.chunks, same ? field.left.chunks : field.right.chunks, engine, job));
  }
}

/// Gives a field the code of nulls, and its size. Where all codes of 64 bits are taken, nulls have that of another value; returns
/// true then, as they need a bit of their own.
bool finish(Field& field, bool nulls_equal) {
  const bool full = field.span >= kNoMatch - 1;
  if (nulls_equal) field.null_code = full ? 0 : field.span + 1;
  field.bits = static_cast<unsigned>(std::bit_width(nulls_equal && !full ? field.null_code : field.span));
  return nulls_equal && full;
}

/// Codes of a dictionary's values where the values can be null: those become null_code.
template <class Code>
void set_null_entries(const ChunkIndex& values, HostBuffer& codes, uint64_t null_code, Engine& engine, const Job& job) {
  for_row_blocks(engine, values.rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    values.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
      for_groups(chunk, first, count, [&](uint64_t index, unsigned group, uint64_t valid) {
        for_set_bits(~valid & low_bits(group),
                     [&](unsigned bit) { codes.as<Code>()[row + (index - first) + bit] = static_cast<Code>(null_code); });
      });
    });
  });
}

TextCodes codes_of(const Column& left, const Column& right, Giver giver, Engine& engine, const Job& job);

/// The ordered bits of zero: integers whose field's base this is are their own codes.
uint64_t ordered_zero(const ColumnType& type) { return static_cast<uint64_t>(-least_value(type)); }

/// The field of a pair of columns of which one or both have a dictionary. `same`: both have the same one, of plain values `left`.
void set_dictionary_codes(Field& field, const Column& left, const Column& right, bool same, Engine& engine, const Job& job) {
  // Codes are positions in the dictionary of the longer column, so that its indices, if possible, need no look-up.
  const Column &left_column = *field.left.column, &right_column = *field.right.column;
  const bool both = left_column.dictionary && right_column.dictionary;
  const Giver giver = !both ? Giver::shorter : left_column.length >= right_column.length ? Giver::left : Giver::right;
  set_codes(field, codes_of(left, same ? left : right, giver, engine, job));
  const uint64_t count = field.codes.count;
  for (FieldSide* side : {&field.left, &field.right}) {
    if (!side->column->dictionary) continue;
    const bool is_left = side == &field.left;
    const Column& values = is_left || same ? left : right;
    const HostBuffer& codes = is_left || same ? field.codes.left : field.codes.right;
    // Indices behind the codes match nothing only where one side has none of them: the one that gives the codes must not.
    const bool all_coded = !(same || field.codes.left_gives == is_left) || values.length == count;
    const bool positions = all_coded && is_one_dictionary(side->chunks) && count_nulls(ChunkIndex(values), engine, job) == 0 &&
                           are_positions(codes, field.codes.bytes, values.length, count, engine, job);
    side->values = positions ? FieldSide::Values::number : FieldSide::Values::entry_codes;
    side->base = positions ? ordered_zero(side->chunks.type()) : 0;
  }
}

/// The fields of a pair: one, or two where nulls need a bit of their own. `own`: both sides are one column.
void add_fields(const JoinKeyPair& pair, bool own, std::vector<Field>& fields, Engine& engine, const Job& job) {
  const bool nulls_equal = nulls_match(pair, engine, job);
  const auto values_of = [](const Column& column) { return column.dictionary ? column.dictionary.get() : &column; };
  const KeySource left_source{values_of(*pair.left), pair.left_factor}, right_source{values_of(*pair.right), pair.right_factor};
  const bool dictionaries = pair.left->dictionary && pair.right->dictionary;
  const bool one = own || (dictionaries && is_same_memory(left_source, right_source));
  PlainPair plain = plain_pair(left_source, right_source, one, engine, job);
  const Column &left = plain.left(), &right = plain.right();
  if (!pair.left->dictionary && !pair.right->dictionary) {
    Field field(left, right);
    set_values(field, engine, job);
    if (finish(field, nulls_equal)) {
      Field& nulls = fields.emplace_back(left, right);
      nulls.left.values = nulls.right.values = FieldSide::Values::valid;
      finish(nulls, true);
    }
    field.plain = std::move(plain.keys);
    fields.push_back(std::move(field));
    return;
  }
  Field& field = fields.emplace_back(pair.left->dictionary ? *pair.left : left, pair.right->dictionary ? *pair.right : right);
  set_dictionary_codes(field, left, right, one || (dictionaries && same_values(left, right, engine, job)), engine, job);
  finish(field, nulls_equal);
  const auto set_nulls = [&](HostBuffer& codes, const Column& values) {
    if (!nulls_equal || !codes) return;
    if (field.codes.bytes == 4) {
      set_null_entries<uint32_t>(ChunkIndex(values), codes, field.null_code, engine, job);
    } else {
      set_null_entries<uint64_t>(ChunkIndex(values), codes, field.null_code, engine, job);
    }
  };
  if (pair.left->dictionary) set_nulls(field.codes.left, left);
  if (pair.right->dictionary) set_nulls(field.codes.right, right);
  field.plain = std::move(plain.keys);
}

[[noreturn]] void throw_outside(const Column& column) {
  throw Error(ErrorCode::invalid_table, "Column '" + column.name + "' has an index outside of its dictionary");
}

/// Calls body(code_at), where code_at(chunk, index, row) is the code of a valid row, above the span where none matches.
template <class Body>
void with_codes(const Field& field, const FieldSide& side, Body&& body) {
  using Values = FieldSide::Values;
  const auto with_text = [&]<class Offset>() {
    body([least = field.least_size, greatest = field.greatest_size](const ColumnChunk& chunk, uint64_t index, uint64_t) {
      const Text text = text_at<Offset>(chunk, index);
      if (text.size < least || text.size > greatest) return kNoMatch;
      if (greatest == 0) return uint64_t{0};
      return (text.size - least) << (8 * greatest) | leading_bytes(text.data, text.size, text.end) >> (64 - 8 * greatest);
    });
  };
  const bool of_left = &side == &field.left || !field.codes.right;  // one dictionary of both sides has codes once
  const void* const codes = (of_left ? field.codes.left : field.codes.right).data();
  const auto with_row_codes = [&]<class Code>() {
    body([codes = static_cast<const Code*>(codes)](const ColumnChunk&, uint64_t, uint64_t row) { return uint64_t{codes[row]}; });
  };
  switch (side.values) {
    case Values::none: return body([](const ColumnChunk&, uint64_t, uint64_t) { return kNoMatch; });
    case Values::valid: return body([](const ColumnChunk&, uint64_t, uint64_t) { return uint64_t{0}; });
    case Values::text:
      return side.chunks.type().kind == ColumnKind::utf8 ? with_text.template operator()<int32_t>()
                                                         : with_text.template operator()<int64_t>();
    case Values::row_codes:
      return field.codes.bytes == 4 ? with_row_codes.template operator()<uint32_t>()
                                    : with_row_codes.template operator()<uint64_t>();
    case Values::entry_codes:
      return with_key_type(side.chunks.type(), [&]<class Key>() {
        if constexpr (Key::kOrder != KeyOrder::floating) {
          // A negative index becomes a large one.
          body([&side, codes, bytes = field.codes.bytes](const ColumnChunk& chunk, uint64_t index, uint64_t) {
            const auto entry = uint64_t{load_once<typename Key::Raw>(chunk.values, index)};
            if (entry >= chunk.dictionary_size) {
              if (!valid_at(chunk, index)) return kNoMatch;
              throw_outside(*side.column);
            }
            const uint64_t at = chunk.dictionary_base + entry;
            return bytes == 4 ? uint64_t{load<uint32_t>(codes, at)} : load<uint64_t>(codes, at);
          });
        }
      });
    case Values::number:
      if (is_boolean_key(side.chunks.type())) {
        return body([base = side.base](const ColumnChunk& chunk, uint64_t index, uint64_t) {
          return uint64_t{bit_at(chunk.values, chunk.bit_offset + index)} - base;
        });
      }
      return with_key_type(side.chunks.type(), [&]<class Key>() {
        body([base = side.base](const ColumnChunk& chunk, uint64_t index, uint64_t) {
          return uint64_t{Key::ordered(load<typename Key::Raw>(chunk.values, index))} - base;
        });
      });
    case Values::wide_number:
      return with_key_type(side.chunks.type(), [&]<class Key>() {
        if constexpr (Key::kOrder == KeyOrder::floating) {
          body([base = side.base](const ColumnChunk& chunk, uint64_t index, uint64_t) {
            using Wide = KeyType<uint64_t, KeyOrder::floating>;
            return Wide::ordered(widened_float(load<typename Key::Raw>(chunk.values, index))) - base;
          });
        }
      });
  }
}

/// Of rows from a multiple of 64 on: a bit for each that can match so far.
class Matchable {
 public:
  explicit Matchable(uint64_t* words) : words_(words) {}

  /// Rows [at, at + count), count <= 64, match where `bits` says so.
  void restrict(uint64_t at, unsigned count, uint64_t bits) {
    const uint64_t clear = ~bits & low_bits(count);
    if (clear == 0) return;
    const unsigned shift = at % 64;
    words_[at / 64] &= ~(clear << shift);
    if (shift && clear >> (64 - shift)) words_[at / 64 + 1] &= ~(clear >> (64 - shift));
  }

 private:
  uint64_t* words_;
};

/// Adds a field's codes of rows [from, to) to `words`, one for each.
template <class Word>
void add_codes(const Field& field, const FieldSide& side, uint64_t from, uint64_t to, Word* words, Matchable matchable) {
  const unsigned shift = field.shift;
  const uint64_t null_code = field.null_code;
  // Entries of a dictionary may be null.
  const bool null_entries = side.values == FieldSide::Values::entry_codes && null_code != kNoMatch;
  const uint64_t greatest = null_entries ? null_code : field.span;
  with_codes(field, side, [&](auto&& code_at) {
    side.chunks.for_pieces(from, to, [&](const ColumnChunk& borrowed, uint64_t first, uint64_t count, uint64_t row) {
      const ColumnChunk chunk = borrowed;  // a local copy: its pointers stay in registers
      for_groups(chunk, first, count, [&](uint64_t index, unsigned group, uint64_t valid) {
        uint64_t codes[64];
        const uint64_t at = row + (index - first);
        bool beyond = false;
        for (unsigned i = 0; i < group; ++i) {
          codes[i] = code_at(chunk, index + i, at + i);
          beyond |= codes[i] > greatest;
        }
        uint64_t matches = low_bits(group);
        if (beyond) {
          for (unsigned i = 0; i < group; ++i) matches &= ~(uint64_t{codes[i] > greatest} << i);
        }
        if (valid != low_bits(group)) {
          const uint64_t nulls = ~valid & low_bits(group);
          if (null_code == kNoMatch) {
            matches &= valid;
          } else {
            matches |= nulls;
            for_set_bits(nulls, [&](unsigned bit) { codes[bit] = null_code; });
          }
        }
        matchable.restrict(at - from, group, matches);
        Word* __restrict const to_words = words + (at - from);
        for (unsigned i = 0; i < group; ++i) to_words[i] = static_cast<Word>(to_words[i] | codes[i] << shift);
      });
    });
  });
}

/// The fields of all rows of a side.
struct Packed {
  HostBuffer words;      ///< of each row
  HostBuffer matchable;  ///< a bit for each row
};

/// Packs fields of a side into `width` words a row.
template <class Word>
Packed pack(const std::vector<Field>& fields, FieldSide Field::*side, unsigned width, Engine& engine, const Job& job) {
  const uint64_t rows = (fields.front().*side).chunks.rows();
  Packed out;
  out.words = engine.memory->allocate(rows * width * sizeof(Word), "join keys");
  out.matchable = engine.memory->allocate((rows + 63) / 64 * sizeof(uint64_t), "which join keys can match");
  for_row_blocks(engine, rows, job, [&](uint64_t, uint64_t begin, uint64_t end) {
    Word plane[kBatchRows];
    for (uint64_t from = begin; from < end; from += kBatchRows) {
      job.check();  // texts may be long
      const uint64_t to = std::min(end, from + kBatchRows), count = to - from;
      uint64_t* const bits = out.matchable.as<uint64_t>() + from / 64;
      for (uint64_t i = 0; i < (count + 63) / 64; ++i)
        bits[i] = low_bits(static_cast<unsigned>(std::min<uint64_t>(64, count - 64 * i)));
      for (unsigned word = 0; word < width; ++word) {
        Word* const words = width == 1 ? out.words.as<Word>() + from : plane;
        std::fill_n(words, count, Word{0});
        for (const Field& field : fields) {
          if (field.word == word) add_codes(field, field.*side, from, to, words, Matchable(bits));
        }
        if (width == 1) continue;
        Word* const rows_words = out.words.as<Word>() + from * width + word;
        for (uint64_t i = 0; i < count; ++i) rows_words[i * width] = words[i];
      }
    }
  });
  return out;
}

/// Gives each field its place in as few words of 64 bits as a first fit finds; returns how many.
unsigned place(std::vector<Field>& fields) {
  std::vector<Field*> by_size;
  by_size.reserve(fields.size());
  for (Field& field : fields) by_size.push_back(&field);
  std::stable_sort(by_size.begin(), by_size.end(), [](const Field* a, const Field* b) { return a->bits > b->bits; });
  std::vector<unsigned> used;
  for (Field* field : by_size) {
    const auto fits = [&](unsigned bits) { return bits + field->bits <= kWordBits; };
    const auto word = std::find_if(used.begin(), used.end(), fits);
    field->word = static_cast<unsigned>(word - used.begin());
    field->shift = word == used.end() ? 0 : *word;
    if (word == used.end()) {
      used.push_back(field->bits);
    } else {
      *word += field->bits;
    }
    if (field->bits == 0) field->shift = 0;  // behind a full word it would be out of range
  }
  return static_cast<unsigned>(used.size());
}

/// Where packed keys hold the values of a pair's left column, which serve as they are: integers and booleans, few distinct texts
/// and indices of a dictionary. Nulls are nowhere.
PackedValue left_value(const Field& field, Engine& engine, const Job& job) {
  using Values = FieldSide::Values;
  const FieldSide& left = field.left;
  PackedValue value{false, left.chunks.type(), field.shift, field.bits, left.base, nullptr};
  if (field.null_code != kNoMatch || field.plain.empty()) return value;
  const bool indices = left.column->dictionary != nullptr, source = field.plain.front().is_source;
  if (left.values == Values::number) {
    value.given = indices || (source && !is_float_key(value.type));
  } else if (left.values == Values::row_codes && source && is_text_key(value.type) && field.codes.texts) {
    value.by_number = std::make_shared<const PlainKey>(field.codes.texts->column(value.type, engine));
  } else if (left.values == Values::entry_codes && is_one_dictionary(left.chunks)) {
    if (field.codes.bytes == 4)
      value.by_number = indices_of_codes(field.codes.left.as<uint32_t>(), left.column->dictionary->length, field.codes.count,
                                         value.type, engine, job);
  }
  value.given |= value.by_number != nullptr;
  return value;
}

/// Whether codes of rows are all there is, so that they may serve as they are.
bool are_codes(const std::vector<Field>& fields) {
  const auto row_codes = [](const FieldSide& side) { return side.values == FieldSide::Values::row_codes; };
  return fields.size() == 1 && row_codes(fields[0].left) && row_codes(fields[0].right) && fields[0].null_code == kNoMatch;
}

/// Packed words as a column of values of fixed width, of which those that can't match are null. Borrows.
Column column_of(const Packed& packed, uint64_t rows, unsigned width) {
  Column column;
  column.type = {ColumnKind::fixed, KeyOrder::none, static_cast<uint32_t>(width * sizeof(uint64_t))};
  column.length = rows;
  ColumnChunk chunk;
  chunk.length = rows;
  chunk.values = packed.words.data();
  chunk.values_bytes = rows * column.type.width;
  chunk.validity = packed.matchable.as<uint8_t>();
  chunk.validity_bytes = (rows + 7) / 8;
  column.chunks.push_back(chunk);
  return column;
}

/// Codes of the values of two plain columns; nulls have none.
TextCodes codes_of(const Column& left, const Column& right, Giver giver, Engine& engine, const Job& job) {
  const bool same = &left == &right;
  if (is_text_key(left.type)) {
    const ChunkIndex of_left(left);
    return same ? text_codes(of_left, of_left, engine, job) : text_codes(of_left, ChunkIndex(right), engine, job, giver);
  }
  std::vector<Field> fields;
  set_range(fields.emplace_back(left, right), engine, job);
  const auto rows_of = [&](FieldSide Field::*side) { return pack<uint64_t>(fields, side, 1, engine, job); };
  const Packed left_words = rows_of(&Field::left);
  const Column left_column = column_of(left_words, left.length, 1);
  const ChunkIndex left_chunks(left_column);
  if (same) return text_codes(left_chunks, left_chunks, engine, job);
  const Packed right_words = rows_of(&Field::right);
  const Column right_column = column_of(right_words, right.length, 1);
  return text_codes(left_chunks, ChunkIndex(right_column), engine, job, giver);
}

/// Whether keys are the indices of a side's dictionary.
template <class Word>
bool are_indices(const std::vector<Field>& fields, FieldSide Field::*of = &Field::left) {
  const FieldSide& side = fields.front().*of;
  return fields.size() == 1 && fields.front().null_code == kNoMatch && side.column->dictionary &&
         side.values == FieldSide::Values::number && side.chunks.type().width == sizeof(Word);
}

/// `own`: the keys must be the engine's own.
template <class Word>
JoinSide packed_side(const std::vector<Field>& fields, FieldSide Field::*of, bool own, Engine& engine, const Job& job) {
  const FieldSide& side = fields.front().*of;
  const uint64_t rows = side.chunks.rows();
  JoinSide out;
  unsigned bits = 0;
  for (const Field& field : fields) bits += field.bits;
  if (!own && are_indices<Word>(fields, of) && aliasable(side.chunks, sizeof(Word)) &&
      count_nulls(side.chunks, engine, job) == 0) {
    out.rows = rows;
    out.tuples.layout = {sizeof(Word), row_bytes_for(rows)};
    out.tuples.view.keys = side.chunks.chunks()[0].values;
    out.tuples.view.size = rows;
    out.tuples.borrowed_from = side.column;
    bits = std::max(bits, static_cast<unsigned>(std::bit_width(side.column->dictionary->length)));
  } else {
    Packed packed = pack<Word>(fields, of, 1, engine, job);
    out = matchable_side<Word>(
        std::move(packed.words), rows,
        [matchable = packed.matchable.as<uint64_t>()](uint64_t row, unsigned) { return matchable[row / 64]; }, engine, job);
  }
  out.tuples.varying_bits = low_bits(bits);
  return out;
}

}  // namespace

bool is_plain(const JoinKeyPair& pair, Engine& engine, const Job& job) {
  const auto plain = [](const Column& column) {
    const ColumnType& type = column.type;
    const bool number = type.kind == ColumnKind::fixed && type.order != KeyOrder::none && type.order != KeyOrder::bytes;
    return !column.dictionary && (is_boolean_key(type) || is_text_key(type) || (number && type.width <= 8));
  };
  return plain(*pair.left) && plain(*pair.right) && pair.left_factor.one() && pair.right_factor.one() &&
         !nulls_match(pair, engine, job);
}

JoinKeys encode_composite_keys(std::span<const JoinKeyPair> pairs, bool own, Engine& engine, const Job& job) {
  std::vector<Field> fields;
  std::vector<size_t> values;  // of each pair: its field of values
  values.reserve(pairs.size());
  for (const JoinKeyPair& pair : pairs) {
    if (pair.left->length != pairs[0].left->length || pair.right->length != pairs[0].right->length)
      throw Error(ErrorCode::internal, "Key columns of one side have different lengths");
    add_fields(pair, own, fields, engine, job);
    values.push_back(fields.size() - 1);
  }
  JoinKeys keys;
  if (are_codes(fields)) {
    keys.made = JoinKeys::Made::code;
    take_codes(std::move(fields[0].codes), pairs[0].left->length, pairs[0].right->length, keys.left, keys.right, engine, job);
    return keys;
  }
  unsigned bits = 0;
  for (const Field& field : fields) bits += field.bits;
  keys.bits = bits;
  const unsigned words = place(fields);
  if (words == 1) {
    keys.made = JoinKeys::Made::packed;
    keys.left_values.reserve(values.size());
    for (const size_t value : values) keys.left_values.push_back(left_value(fields[value], engine, job));
    const auto side = [&](FieldSide Field::*of) {
      return bits <= 32 ? packed_side<uint32_t>(fields, of, own, engine, job)
                        : packed_side<uint64_t>(fields, of, own, engine, job);
    };
    if (bits <= 32 ? are_indices<uint32_t>(fields) : are_indices<uint64_t>(fields)) {
      keys.made = JoinKeys::Made::value;
      keys.keys_are_left_values = true;
    }
    keys.left = side(&Field::left);
    if (!own) keys.right = side(&Field::right);
    return keys;
  }
  keys.made = JoinKeys::Made::code;
  const auto pack_words = [&](FieldSide Field::*of) { return pack<uint64_t>(fields, of, words, engine, job); };
  const uint64_t left_rows = pairs[0].left->length, right_rows = pairs[0].right->length;
  const Packed left = pack_words(&Field::left);
  const Column left_column = column_of(left, left_rows, words);
  const ChunkIndex left_chunks(left_column);
  if (own) {
    take_codes(text_codes(left_chunks, left_chunks, engine, job), left_rows, 0, keys.left, keys.right, engine, job);
    return keys;
  }
  const Packed right = pack_words(&Field::right);
  const Column right_column = column_of(right, right_rows, words);
  fields.clear();  // frees codes of texts
  take_codes(text_codes(left_chunks, ChunkIndex(right_column), engine, job), left_rows, right_rows, keys.left, keys.right, engine,
             job);
  return keys;
}

}  // namespace warpjoin::columns
