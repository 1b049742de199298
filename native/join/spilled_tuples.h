// Tuples that left a device for host memory, grouped by partition: what a join comes back to.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/host_memory.h"
#include "core/tuples.h"
#include "transfer/host_transfer.h"

namespace warpjoin {

/// Consecutive partitions of one relation.
struct PartitionRange {
  uint32_t begin = 0, end = 0;
};

/// One relation's tuples, piece by piece. A piece has some consecutive partitions, in order. One thread at a time.
class SpilledTuples {
 public:
  /// Takes host memory for `expected` tuples at once. Throws Error(memory_limit).
  SpilledTuples(HostMemory& memory, TupleLayout layout, uint64_t expected);

  /// Host memory of so many expected ones.
  static size_t host_bytes(TupleLayout layout, uint64_t expected);

  uint64_t size() const { return size_; }
  /// Tuples of these partitions.
  uint64_t size_of(PartitionRange range) const;
  /// Where they are, a view for each piece that has some, in the order of their numbers.
  std::vector<TupleView> views_of(PartitionRange range) const;

  /// Adds the `number`-th piece of all, whichever comes first: of `range`, whose partition p has offsets[p + 1] - offsets[p]
  /// tuples; `from`: all of these on a device. Gives the copy that brings them; the memory is theirs when that has ended. Where
  /// more come than were expected, throws Error(memory_limit).
  HostCopy add(uint64_t number, PartitionRange range, const std::vector<uint64_t>& offsets, const TupleView& from);

 private:
  struct Block {
    HostBuffer keys, values;
    uint64_t most, size;  ///< tuples that it has room for, and that it has
  };
  struct Piece {
    uint64_t number;
    TupleView tuples;
    PartitionRange range;
    std::vector<uint64_t> offsets;  ///< of each partition in the piece, and the end

    std::pair<uint64_t, uint64_t> rows_of(PartitionRange wanted) const;
  };
  void take_block(uint64_t tuples);

  HostMemory& memory_;
  const TupleLayout layout_;
  std::vector<Block> blocks_;  // the last one is filled
  std::vector<Piece> pieces_;  // in the order of their numbers
  uint64_t size_ = 0;
};

}  // namespace warpjoin
