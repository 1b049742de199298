// Where a key comes first: what makes ids of keys that only a hash stands for.
#pragma once

#include <vector>

#include "core/host_memory.h"
#include "core/job.h"
#include "core/thread_pool.h"
#include "core/tuples.h"

namespace warpjoin::host {

/// Tuples of 8-byte keys and row numbers, partitioned by hash so that the keys of a partition fit a core's own cache.
struct PartitionedKeys {
  uint8_t row_bytes = 4;
  unsigned bits = 0;  ///< there are 2^bits partitions
  HostBuffer keys, rows;
  std::vector<uint64_t> offsets;  ///< partition p is tuples [offsets[p], offsets[p + 1])
};

/// Bits for a relation whose first rows are looked for.
unsigned first_rows_bits(uint64_t size);
/// `in` has 8-byte keys; its values, of 4 or 8 bytes, are row numbers in ascending order, or implied.
PartitionedKeys partition_keys(ThreadPool& pool, HostMemory& memory, TupleLayout layout, TupleView in, unsigned bits,
                               const Job& job);

/// Finds the row of the first tuple of `own` with the same key. Tuple (key, row) of `own` sets own_first[row], unless that is the
/// row itself: the caller has set it. Tuple (key, row) of `other` sets other_first[row], to all ones if `own` lacks the key.
/// Entries are `first_bytes` (4 or 8) wide. Returns how many tuples of `own` are not the first with their key.
///
/// The time is linear in the tuples, whatever keys are frequent. Host memory: 60 bytes for each distinct key of the partitions at
/// work.
uint64_t find_first_rows(ThreadPool& pool, HostMemory& memory, const PartitionedKeys& own, const PartitionedKeys& other,
                         uint8_t first_bytes, void* own_first, void* other_first, const Job& job);

}  // namespace warpjoin::host
