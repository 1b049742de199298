#pragma once

#include "columns/encode.h"
#include "columns/plain_keys.h"
#include "columns/sort_order.h"

namespace warpjoin::columns {

/// Gives tuples their values: the payload, if it can be carried, else implied row numbers. A payload in one chunk is
/// aliased, otherwise copied. Returns whether it is carried.
bool carry_payload(EncodedTuples& tuples, const Column* payload, Engine& engine, const Job& job);

/// Whether an Arrow buffer can serve as an array of keys or values of `width` bytes.
inline bool aliasable(const ChunkIndex& chunks, unsigned width) {
  return chunks.single() && reinterpret_cast<uintptr_t>(chunks.chunks()[0].values) % width == 0;
}

/// The values of a column of fixed width, one behind the other.
HostBuffer in_one_piece(const ChunkIndex& chunks, const char* purpose, Engine& engine, const Job& job);

/// Rows whose words are computed together: they stay in the first-level cache.
inline constexpr uint64_t kWordsAtOnce = 4096;

/// The columns of a sort as plain ones, with what they own.
class PlainOrder {
 public:
  /// Throws Error(option) for no columns, Error(invalid_table) for columns of several lengths, and as plain_keys() does.
  PlainOrder(std::span<const SortColumn> by, Engine& engine, const Job& job);

  std::span<const SortColumn> by() const { return by_; }
  uint64_t rows() const { return by_[0].column->length; }
  /// Whether a column serves as it came: its values can be had from its keys.
  bool is_source(size_t column) const { return keys_[column].is_source; }

 private:
  std::vector<PlainKey> keys_;  // never grows: by_ points into it
  std::vector<SortColumn> by_;
};

class EncodedSortKeys final : public SortKeys {
 public:
  EncodedSortKeys(PlainOrder plain, const Column* payload, Engine& engine, const Job& job);

  const EncodedTuples& tuples() const override { return tuples_; }
  bool are_values() const override { return are_values_; }
  bool complete() const override { return order_.complete(); }
  void refine_ties(TupleSpan tuples, Engine& engine, const Job& job) const override {
    columns::refine_ties(order_, tuples_.layout, tuples, engine, job);
  }
  /// Whether two rows of tuples that are sorted, ties refined, are equal in all columns.
  bool tie(const TupleSpan& sorted, uint64_t a, uint64_t b) const;
  std::optional<OwnedColumn> decode(size_t sort_column, const void* sorted_keys, uint64_t rows, Engine& engine,
                                    const Job& job) const override;

 private:
  bool alias();
  template <class Key>
  void encode(Engine& engine, const Job& job);

  PlainOrder plain_;
  SortOrder order_;
  EncodedTuples tuples_;
  bool are_values_;
};

}  // namespace warpjoin::columns
