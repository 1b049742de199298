// Sorting tuples where they are, in host memory, whatever the engine's devices.
#pragma once

#include "core/job.h"
#include "core/tuples.h"
#include "engine/engine.h"

namespace warpjoin::columns {

/// Sorts `in` (implied values allowed) by the key bits in `varying`, stable, into `a` or `b`; returns which. `in` may be `a`.
/// Host memory: the primitive's scratch.
TupleSpan sort_on_host(TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t varying, Engine& engine,
                       const Job& job);

}  // namespace warpjoin::columns
