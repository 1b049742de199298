// Sorting tuples on any number of devices (multi-gpu-sort-merge-join 3.1 and 3.2).
#pragma once

#include <span>
#include <vector>

#include "core/job.h"
#include "core/tuples.h"
#include "engine/engine.h"

namespace warpjoin {

enum class SortAlgorithm {
  merge,   ///< P2P merge sort (3.1.1): sort chunks, cut them all at the devices' boundaries, exchange once, merge locally
  radix,   ///< P2P radix sort (3.1.2): partition by most significant bits, exchange buckets, sort them
  sample,  ///< sample sort: partition by key range while tuples arrive, collect and sort ranges while others go home
};

/// Sorted tuples in host memory.
struct SortedRun {
  TupleLayout layout;
  uint64_t size = 0;
  HostBuffer keys, values;
  uint64_t flip = 0;  ///< they ascend by key ^ flip

  TupleView view() const { return {keys.data(), values.data(), 0, size}; }
  TupleSpan span() const { return {keys.data(), values.data(), size}; }
};

struct SortPlan {
  SortAlgorithm algorithm = SortAlgorithm::merge;
  std::vector<int> devices;             ///< ordinals
  std::vector<uint64_t> chunkset_ends;  ///< ascending; the last is the number of tuples. Each chunkset becomes a run.
  uint64_t flip = 0;                    ///< keys compare as key ^ flip: 0 as they are, else signed, descending or both
  bool borrowed = false;                ///< keys are in memory that its owner may write to: varying bits may not be all of them
  bool spill = true;                    ///< whether a sample sort of several chunksets makes one run of them, where it can
};

/// Bytes of device memory that sorting a chunkset of `tuples` takes on each of `devices` devices, at most; what the
/// planner divides the limit by.
size_t sort_device_bytes(TupleLayout layout, uint64_t tuples, size_t devices, SortAlgorithm algorithm, bool several_chunksets,
                         Engine& engine);

/// Whether a sample sort on `devices` can make one run of `tuples` in several chunksets of up to `chunkset`.
bool sort_spills(uint64_t tuples, uint64_t chunkset, const std::vector<int>& devices, Engine& engine);

/// Sorts each chunkset of `in` (host memory; implied values allowed) into a run of its own, stable. Chunksets overlap:
/// while one goes home the next arrives (3.1.3). Equal results for every number of devices. A sample sort on devices that do
/// not address host memory sorts all chunksets into one run, where that is possible and plan.spill: see sample_sort.h.
/// Flips cost a sample sort nothing to speak of; the others need a flipped copy of the keys.
/// Throws Error(device_memory) naming the device where a chunkset does not fit. Host memory: the runs, and that copy.
std::vector<SortedRun> sort_chunksets(Engine& engine, TupleLayout layout, TupleView in, uint64_t varying_bits,
                                      const SortPlan& plan, Job& job);

/// The run of tuples (host memory; implied values allowed) that ascend by key ^ `flip` already: a copy.
SortedRun copy_run(Engine& engine, TupleLayout layout, TupleView sorted, uint64_t flip, Job& job);

/// Tuples [begin, end) of a run, end <= run.size, in its memory.
SortedRun cut_run(SortedRun run, uint64_t begin, uint64_t end);

/// Host memory of merge_runs() beside the runs and the merged one.
size_t merge_scratch_bytes(TupleLayout layout, uint64_t tuples, size_t runs, Engine& engine);

/// Merges runs into one on the host, stable in the order of the runs (3.2). Frees each input as soon as it can.
/// One run is returned as it is.
SortedRun merge_runs(Engine& engine, std::vector<SortedRun> runs, Job& job);

}  // namespace warpjoin
