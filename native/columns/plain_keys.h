// Key columns of every type as columns of the plain kinds: booleans, numbers of up to 8 bytes, and texts.
#pragma once

#include <span>
#include <vector>

#include "core/column.h"
#include "core/job.h"
#include "engine/engine.h"

namespace warpjoin::columns {

/// What a value is multiplied by, so that values of two columns in different units compare: 10^pow10 * times.
struct KeyFactor {
  uint32_t pow10 = 0;  ///< decimals of a smaller scale, and times of a coarser unit
  uint32_t times = 1;  ///< 86400 for days

  bool one() const { return pow10 == 0 && times == 1; }
};

struct KeySource {
  const Column* column;
  KeyFactor factor;  ///< of integers and decimals
};

/// A column with the same rows and nulls as its source, whose kind is boolean, fixed with an order and of up to 8 bytes, or text.
struct PlainKey {
  Column column;  ///< its chunks are the source's, or refer to `owned`
  std::vector<HostBuffer> owned;
  bool is_source = false;  ///< the chunks are the source's: its values serve as they are
};

/// Brings key columns that are compared with each other (one of a sort, both of a join) to plain columns of one kind. The order
/// of the values is kept, and they are equal where the source's are:
/// - booleans, numbers of up to 8 bytes and texts are as they are, if their factor is 1 and the others are plain, too;
/// - integers and decimals are multiplied exactly. They become 8-byte integers where all of them fit, else texts of as many
///   bytes as the widest needs, most significant byte first and the sign bit flipped;
/// - fixed-size binary of 1 to 8 bytes becomes unsigned integers, other texts; views become texts;
/// - indices of dictionaries become the ranks of their values, which are common to all sources: a value listed twice has one
///   rank, and an index of a null in the dictionary is a null. Where a source has no dictionary, or the dictionaries have more
///   values than the sources have rows, the indices become the values;
/// - the null type becomes nulls of the kind of what it is compared with: booleans where there is nothing else.
/// Throws Error(key_type), naming the column, for a type that has no order (nested ones), for types that don't compare, and for
/// products of more than 1024 bits; Error(invalid_table) for indices outside the dictionary and views outside their buffers.
/// `one_type`: all columns are to have the same type, and not only types that compare.
std::vector<PlainKey> plain_keys(std::span<const KeySource> sources, Engine& engine, const Job& job, bool one_type = false);

/// Whether two dictionaries, with what their values are multiplied by, are the same memory.
bool is_same_memory(const KeySource& a, const KeySource& b);

}  // namespace warpjoin::columns
