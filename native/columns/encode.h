// From Arrow key columns to tuples and back (design: semantics of keys).
//
// Order and equality: integers, dates and timestamps by value; -0.0 equals 0.0; NaN equals NaN and is greater than any
// number; utf8 by bytes. Nulls never reach a tuple of a join; in a sort their place is part of the key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "columns/plain_keys.h"
#include "core/column.h"
#include "core/key_types.h"
#include "core/tuples.h"
#include "engine/engine.h"

namespace warpjoin {

/// Tuples in host memory, ready for an operator. Views point into the owned buffers, or straight into an Arrow buffer
/// where its bytes serve as they are.
struct EncodedTuples {
  TupleLayout layout;
  TupleView view;
  uint64_t varying_bits = ~uint64_t{0};  ///< key bits that differ between some two keys (may be an overestimate)
  uint64_t flip = 0;                     ///< sort keys compare as key ^ flip
  HostBuffer keys, values;
  const Column* borrowed_from = nullptr;  ///< whose Arrow buffer the keys are; null where they are in `keys`
};

/// Throws InputChanged that names the columns whose Arrow buffers serve as keys.
[[noreturn]] void throw_changed(std::initializer_list<const EncodedTuples*> keys);

/// Runs f, which works on these keys: where they change meanwhile, the error names their columns.
template <class F>
decltype(auto) naming_columns(std::initializer_list<const EncodedTuples*> keys, F&& f) {
  try {
    return f();
  } catch (const InputChanged&) {
    throw_changed(keys);
  }
}

/// Whether the keys ascend, by key ^ flip, as far as a few hundred of them say.
bool seems_sorted(const EncodedTuples& tuples);
/// Whether they do. Keys out of order are noticed soon: most by seems_sorted(), others within a pass that ends there.
bool is_sorted(const EncodedTuples& tuples, Engine& engine, const Job& job);

/// Throws Error(invalid_table), naming the column, if a chunk's buffers are shorter than its length needs, its offsets are not
/// ascending within the bytes or the child, its indices are not within the dictionary, its views not within their buffers or its
/// type ids not those of children; the same for all that is within it. Children that have more values than their parent needs
/// lose the rest: of structs, sparse unions and fixed-size lists they are as long as it says. After this every read of the column
/// is within bounds, even where its owner writes to the buffers meanwhile: then its values are of any time, or
/// Error(invalid_table) is thrown.
void validate_column(Column& column, ThreadPool& pool, const Job& job);
inline void validate_column(Column& column, Engine& engine, const Job& job) { validate_column(column, engine.pool, job); }

// --- Sort -------------------------------------------------------------------------------------------------------

struct SortColumn {
  const Column* column;
  bool descending = false;
  bool nulls_last = true;  ///< absolute, whatever the direction
};

/// Whether values without nulls are keys as they are: integers of 4 or 8 bytes.
inline bool are_integer_keys(const ColumnType& type) {
  return is_integer_key(type) && type.kind == ColumnKind::fixed && (type.width == 4 || type.width == 8);
}
/// They come in order as unsigned keys do by key ^ this.
inline uint64_t integer_flip(const ColumnType& type, bool descending) {
  const uint64_t all = ~uint64_t{0} >> (64 - 8 * type.width), sign = all ^ (all >> 1);
  return (type.order == KeyOrder::signed_integer ? sign : 0) ^ (descending ? all : 0);
}

/// The order of a sort as a sequence of 64-bit words per row, most significant first. Each fixed-width column gives
/// [null bit][value - least value] in as few bits as its values need, columns packed next to each other; a utf8 column
/// ends the packing and gives its bytes eight at a time.
class SortKeys {
 public:
  virtual ~SortKeys() = default;
  /// Word 0 of each row with its row number (implied), or with the carried payload. 4-byte keys where 32 bits do, and
  /// 4-byte row numbers below 2^32 - 1 rows.
  virtual const EncodedTuples& tuples() const = 0;
  /// True where the keys are the values of the one sort column, bit for bit: sorted keys are the column as sorted, and there
  /// is nothing to decode.
  virtual bool are_values() const = 0;
  /// True where word 0 decides the order; otherwise runs of equal words need refine_ties.
  virtual bool complete() const = 0;
  /// Orders each run of equal keys in `tuples` (sorted by word 0, values are row numbers) by the remaining words, stable.
  virtual void refine_ties(TupleSpan tuples, Engine& engine, const Job& job) const = 0;
  /// The sort column as sorted, computed from `rows` sorted word-0 keys alone, where that is exact; otherwise nothing, and the
  /// column must be gathered.
  virtual std::optional<OwnedColumn> decode(size_t sort_column, const void* sorted_keys, uint64_t rows, Engine& engine,
                                            const Job& job) const = 0;
};

/// `payload`: a fixed column 4 or 8 bytes wide without nulls to carry along as the values, or null for row numbers.
/// A payload is carried only if the keys turn out complete(); tuples().view.values says (null: row numbers).
/// `allow_flip`: a column of 4- or 8-byte integers without nulls, in one chunk, serves as it is, not even read, with the flip
/// that gives it its order; a sample sort takes such keys at no cost.
std::unique_ptr<SortKeys> encode_sort_keys(std::span<const SortColumn> by, const Column* payload, bool allow_flip, Engine& engine,
                                           const Job& job);

// --- Join -------------------------------------------------------------------------------------------------------

/// One side of a join.
struct JoinSide {
  EncodedTuples tuples;  ///< rows that can match
  HostBuffer excluded;   ///< row numbers, ascending, of the rows that can't: null keys, and keys that the other side can't have
  uint64_t excluded_rows = 0;
  uint64_t rows = 0;             ///< tuples.view.size + excluded_rows
  bool carries_payload = false;  ///< values are the payload column; otherwise row numbers
  bool scanned = true;           ///< tuples.varying_bits are known; otherwise the keys have not been read
  /// Each tuple's key is its row number, and every key of the other side is the key of a tuple: see lookup_join.
  bool keys_are_rows = false;
};

/// The key bits that differ between some two keys of a side: a pass over the keys where they have not been read.
uint64_t varying_bits(const JoinSide& side, Engine& engine, const Job& job);

/// Where a packed key holds a value of a left column.
struct PackedValue {
  bool given = false;  ///< whether the value comes back bit for bit
  ColumnType type;
  unsigned shift = 0, bits = 0;
  uint64_t base = 0;                                   ///< ordered bits of the value whose field is 0
  std::shared_ptr<const columns::PlainKey> by_number;  ///< of texts and indices: the field is the row that has the value
};

struct JoinKeys {
  /// What a key is: a value of one column; several fields side by side; a number that stands for a text or a row of fields.
  enum class Made : uint8_t { value, packed, code };

  JoinSide left, right;
  bool keys_are_left_values = false;  ///< the tuples' key bits are the left column's values: they can become the key column
  Made made = Made::value;
  unsigned bits = 0;  ///< that fields need together: more than 64 become codes; 0: the key is made of one column
  std::vector<PackedValue> left_values;  ///< packed keys: of each pair

  /// Whether keys give the left column of a pair: as they are, or decoded where they are packed.
  bool give_left(size_t pair) const { return made == Made::packed ? left_values[pair].given : keys_are_left_values; }
};

/// Gives a side's tuples another payload, or row numbers for null. It is carried only if nothing is excluded there.
void carry_payload(JoinSide& side, const Column* payload, Engine& engine, const Job& job);

/// A left column of the rows of an inner join, computed from their packed keys. Memory: the column.
OwnedColumn decode_join_keys(const PackedValue& value, uint8_t key_bytes, const void* keys, uint64_t rows, Engine& engine,
                             const Job& job);

/// A column of each side that are to be equal.
struct JoinKeyPair {
  const Column *left, *right;
  bool nulls_equal = false;  ///< whether two nulls are; otherwise a null equals nothing
  columns::KeyFactor left_factor = {}, right_factor = {};
};

/// Encodes both sides' columns alike: rows have equal keys where all pairs are equal. Columns of any type that plain_keys()
/// takes; throws Error(key_type) where two do not compare. Payloads as for sort, one a side, null for row numbers; a side's
/// payload is carried only if nothing is excluded there. See columns/composite_keys.h for several pairs, equal nulls and
/// dictionaries.
JoinKeys encode_join_keys(std::span<const JoinKeyPair> pairs, const Column* left_payload, const Column* right_payload,
                          Engine& engine, const Job& job);

/// Keys by which rows of one table are compared with each other: two rows have the same key where all columns are equal. With
/// `nulls_equal` no row is excluded; otherwise rows with a null are.
JoinSide encode_own_keys(std::span<const Column* const> columns, bool nulls_equal, Engine& engine, const Job& job);

/// The same of one pair of plain columns (plain_keys.h). Texts become codes (columns/text_codes.h).
JoinKeys encode_join_keys(const Column& left, const Column& right, const Column* left_payload, const Column* right_payload,
                          Engine& engine, const Job& job);

}  // namespace warpjoin
