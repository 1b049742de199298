// Tuples that left the devices for host memory, grouped by partition, and come back later.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/host_memory.h"
#include "core/sharding.h"
#include "core/tuples.h"

namespace warpjoin {

/// Consecutive partitions of one relation: of hashes, or key ranges.
struct PartitionRange {
  uint32_t begin = 0, end = 0;

  uint32_t size() const { return end - begin; }
  /// The i-th of `shares` even ones.
  PartitionRange share(size_t shares, size_t i) const {
    const auto at = [&](size_t share) { return begin + static_cast<uint32_t>(share_begin(size(), shares, share)); };
    return {at(i), at(i + 1)};
  }
};

/// One relation's tuples, piece by piece. A piece has some consecutive partitions, in order. They are read once all are there.
class SpilledTuples {
 public:
  struct Piece {
    TupleSpan tuples;
    PartitionRange range;
    std::vector<uint64_t> offsets;  ///< of each partition in the piece, and the end

    /// The rows of some partitions.
    std::pair<uint64_t, uint64_t> rows_of(PartitionRange wanted) const;
  };

  /// Takes host memory for `expected` tuples at once. Throws Error(memory_limit), naming `purpose`.
  SpilledTuples(HostMemory& memory, TupleLayout layout, uint64_t expected, const char* purpose);

  /// Host memory of so many expected ones.
  static size_t host_bytes(TupleLayout layout, uint64_t expected);

  /// Takes room for the `number`-th piece of all, whichever comes first, of so many tuples of `range`. Its tuples and offsets
  /// must be there before any are read; it stays where it is. From any thread. Where more come than were expected, throws
  /// Error(memory_limit).
  Piece& add(uint64_t number, PartitionRange range, uint64_t size);

  /// The room for what was expected.
  TupleView expected_room() const;
  uint64_t size() const { return size_; }
  /// Tuples of these partitions. As views_of(), from one thread at a time.
  uint64_t size_of(PartitionRange range) const;
  /// Where they are, a view for each piece that has some, in the order of their numbers.
  std::vector<TupleView> views_of(PartitionRange range) const;

 private:
  struct Block {
    HostBuffer keys, values;
    uint64_t most, size;  ///< tuples that it has room for, and that it has

    TupleSpan span(TupleLayout layout, uint64_t begin, uint64_t end) const;
  };
  void take_block(uint64_t tuples);

  HostMemory& memory_;
  const TupleLayout layout_;
  const char* const purpose_;
  std::mutex mutex_;           // while pieces are added
  std::vector<Block> blocks_;  // the last one is filled
  std::map<uint64_t, Piece> pieces_;
  uint64_t size_ = 0;
  mutable std::vector<uint64_t> begins_;  // of each partition among all tuples, and the end; none: they have to be counted
};

}  // namespace warpjoin
