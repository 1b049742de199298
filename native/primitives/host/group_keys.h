// Rows by their keys: one row of each key, or the keys that are there twice.
#pragma once

#include <cstdint>
#include <optional>

#include "core/host_memory.h"
#include "core/job.h"
#include "core/thread_pool.h"
#include "core/tuples.h"

namespace warpjoin::host {

/// Which row of those with one key to keep; `none`: of keys that several rows have, no row.
enum class KeepRow : uint8_t { first, last, none };

/// Sets the bit of each row that is kept in `bits`, whole words of 64 rows, in which no bit of a tuple's row is set. The values
/// of `in` are row numbers, ascending or implied. Throws InputChanged where keys change meanwhile.
///
/// Keys of a small range are looked up in a table of all that there may be; others are partitioned, so that the keys of a
/// partition fit a core's own cache. The time is linear in the tuples, whatever keys are frequent. Host memory: the partitioned
/// tuples, and some MiB a thread; or the table, which is no larger.
void mark_rows(ThreadPool& pool, HostMemory& memory, TupleLayout layout, TupleView in, KeepRow keep, uint64_t* bits,
               const Job& job);

/// Two rows with one key.
struct RepeatedKey {
  uint64_t first, row;
};

/// The least row whose key an earlier one has, and the first such; nothing where no two tuples share a key. Like mark_rows.
std::optional<RepeatedKey> find_repeated(ThreadPool& pool, HostMemory& memory, TupleLayout layout, TupleView in, const Job& job);

}  // namespace warpjoin::host
