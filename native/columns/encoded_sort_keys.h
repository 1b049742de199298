#pragma once

#include "columns/encode.h"
#include "columns/sort_order.h"

namespace warpjoin::columns {

/// Gives tuples their values: the payload, if it can be carried, else implied row numbers. A payload in one chunk is
/// aliased, otherwise copied. Returns whether it is carried.
bool carry_payload(EncodedTuples& tuples, const Column* payload, Engine& engine, const Job& job);

/// Whether an Arrow buffer can serve as an array of keys or values of `width` bytes.
inline bool aliasable(const ChunkIndex& chunks, unsigned width) {
  return chunks.single() && reinterpret_cast<uintptr_t>(chunks.chunks()[0].values) % width == 0;
}

class EncodedSortKeys final : public SortKeys {
 public:
  EncodedSortKeys(std::span<const SortColumn> by, const Column* payload, Engine& engine, const Job& job);

  const EncodedTuples& tuples() const override { return tuples_; }
  bool are_values() const override { return are_values_; }
  bool complete() const override { return order_.complete(); }
  void refine_ties(TupleSpan tuples, Engine& engine, const Job& job) const override;
  /// Whether two rows of tuples that are sorted, ties refined, are equal in all columns.
  bool tie(const TupleSpan& sorted, uint64_t a, uint64_t b) const;
  std::optional<OwnedColumn> decode(size_t sort_column, const void* sorted_keys, Engine& engine, const Job& job) const override;

 private:
  bool alias(std::span<const SortColumn> by);
  template <class Key>
  void encode(Engine& engine, const Job& job);

  SortOrder order_;
  EncodedTuples tuples_;
  bool are_values_;
};

}  // namespace warpjoin::columns
