// The host's sort for callers that have threads and no stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/job.h"
#include "core/thread_pool.h"
#include "core/tuples.h"

namespace warpjoin::host {

/// Sorts `in` into `b` as Primitives::sort does, and returns when it is done. `in` may be `a`.
void sort_tuples(ThreadPool& pool, TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t bits, void* scratch,
                 const Job& job);
size_t sort_tuples_scratch_bytes(ThreadPool& pool, TupleLayout layout, uint64_t size);

}  // namespace warpjoin::host
