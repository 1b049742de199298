// The order of a sort, row by row: how key columns become words, and what decides once word 0 ties.
//
// Fields (null flags, values, short texts) are laid next to each other as a bit string that is cut into 64-bit words. A
// text column too long for a field ends the bit string: its leading bytes fill word 0 where there is room, the rest is
// compared seven bytes a word (a tail). What follows starts a new bit string.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "columns/chunks.h"
#include "columns/encode.h"
#include "columns/scan.h"

namespace warpjoin::columns {

struct KeyColumn {
  ChunkIndex chunks;
  bool descending, nulls_last;
  FixedScan fixed;
  TextScan text;
  unsigned value_bits = 0;      ///< of its field; 0: the field says nothing
  unsigned text_bytes = 0;      ///< text: leading bytes in the field, behind the common prefix
  unsigned size_bits = 0;       ///< text: bits of the field that hold the size, below the bytes
  bool whole_text = false;      ///< text: the field holds all of every value, and its size above the least one
  int null_shift = -1;          ///< where the null flag is in word 0; -1: not there
  int value_shift = -1;         ///< where the value is in word 0 as a whole; -1: not there
  bool has_null_flag = false;   ///< some rows are null and some are not
  uint64_t flip = 0, base = 0;  ///< value = (ordered bits ^ flip) - base

  bool is_text() const { return chunks.type().variable_width(); }
  uint64_t nulls() const { return is_text() ? text.nulls : fixed.nulls; }
};

/// What the fields of a sort order are as wide as.
enum class Extents : uint8_t {
  values,  ///< the distances between the columns' values, which are read for that: a pass over each column
  types,   ///< what the columns' types allow: no value is read, and fewer columns fit word 0
};

/// Columns are of plain kinds: see plain_keys.h.
class SortOrder {
 public:
  SortOrder(std::span<const SortColumn> by, Extents extents, Engine& engine, const Job& job);

  std::vector<KeyColumn>& columns() { return columns_; }
  const std::vector<KeyColumn>& columns() const { return columns_; }
  bool complete() const { return stages_.size() == 1; }
  unsigned first_word_bits() const { return first_word_bits_; }

  /// Word 0 of rows [begin, end), in `Key` (uint32_t, uint64_t).
  template <class Key>
  void first_words(uint64_t begin, uint64_t end, Key* words) const;

  /// How far rows that tie have been compared. Rows tie at a state if all before it is equal.
  struct State {
    uint32_t stage = 1;
    uint64_t depth = 0;  ///< in a text tail: leading bytes known to be equal
  };
  State after_first_word() const { return at_stage(1); }
  bool decided(State state) const { return state.stage == stages_.size(); }
  /// Where rows stand that tie with this word at `state`.
  State after(State state, uint64_t word) const;

  /// The words of rows at `state`; in any order, prefetched.
  template <class Row>
  void words(State state, const Row* rows, size_t size, uint64_t* words) const;
  /// In a text tail: how many more bytes two rows that tie share, at most `limit`.
  uint64_t shared_bytes(State state, uint64_t row, uint64_t other, uint64_t limit) const;
  bool in_text(State state) const { return !decided(state) && stages_[state.stage].text; }
  /// Compares two rows that tie at `state` to the end: negative, 0 or positive.
  int compare(State state, uint64_t row, uint64_t other) const;

 private:
  struct Field {
    enum class Kind : uint8_t { null_flag, value, text } kind;
    uint32_t column;
    unsigned bits;
  };
  struct Part {
    Field field;
    int shift;  ///< left; right if negative
  };
  struct Stage {
    bool text = false;
    uint32_t column = 0;
    uint64_t depth = 0;  ///< text: bytes that are equal once the stages before tie
    std::vector<Part> parts;
  };

  void scan(std::span<const SortColumn> by, Extents extents, Engine& engine, const Job& job);
  void lay_out();
  void cut(std::vector<Field>& fields);
  State at_stage(uint32_t stage) const { return {stage, stage < stages_.size() ? stages_[stage].depth : 0}; }
  Text text_of(const Stage& stage, uint64_t row) const;
  uint64_t tail_word(const Stage& stage, Text text, uint64_t depth) const;
  template <class Body>
  void with_field(const Field& field, Body&& body) const;

  std::vector<KeyColumn> columns_;
  std::vector<Stage> stages_;
  unsigned first_word_bits_ = 0;
};

/// Orders each run of equal keys in `tuples`, which are sorted by word 0 of `order` with row numbers as values, by the words that
/// follow, stable.
void refine_ties(const SortOrder& order, TupleLayout layout, TupleSpan tuples, Engine& engine, const Job& job);

}  // namespace warpjoin::columns
