// Sample sorts on any number of devices, and sorts of what lies there already; why and how: docs/decisions/0007. Internal to
// native/sort.
#pragma once

#include <functional>
#include <vector>

#include "core/job.h"
#include "core/tuples.h"
#include "engine/engine.h"

namespace warpjoin::sorting {

/// Bytes of device memory that sorting `tuples` takes on `device`, one of `devices`, at most.
size_t sample_sort_bytes(Device& device, TupleLayout layout, uint64_t tuples, size_t devices);

/// Sorts `in` (host memory) into `run` (host memory), stable, by key ^ `flip`. Tuples are partitioned by key range while they
/// arrive; each range is collected, sorted and sent home while the next one is being sorted. Devices that do not address host
/// memory must be linked directly. `varying_bits` as in Primitives::sort, all ones where unknown.
void sample_sort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, TupleView in, uint64_t flip,
                 TupleSpan run, uint64_t varying_bits, Job& job);

/// Bytes of device memory that spilled_sample_sort() takes on `device`, one of `devices`, for chunksets of up to `tuples`.
size_t spilled_sample_sort_bytes(Device& device, TupleLayout layout, uint64_t tuples, size_t devices);

/// Whether it can sort `tuples` in chunksets of up to `largest_chunkset`: devices must hold a key range twice, and there are
/// at most 256 of them.
bool can_spill(const std::vector<Device*>& devices, uint64_t tuples, uint64_t largest_chunkset);

/// As sample_sort(), of more tuples than the devices hold: chunkset after chunkset is partitioned and spilled to host memory, for
/// which it takes as much as `in` has, then range after range is sorted into `run`.
void spilled_sample_sort(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, TupleView in, uint64_t flip,
                         const std::vector<uint64_t>& chunkset_ends, TupleSpan run, uint64_t varying_bits, Job& job);

/// Where a device's stretch of a result goes. Called once for each device, one after the other, with the stretch's size.
using StretchOf = std::function<TupleSpan(size_t device, uint64_t size)>;

/// Sorts tuples that lie in memory that the devices' kernels address, each device's own, stable, by key ^ `flip`: devices[i]
/// holds in[i], and gets the i-th stretch of the result, about an equal share, in memory of its own. Implied values are written
/// out. One device sorts by itself, several, which must be linked directly, by key range. `varying_bits`: those in which keys
/// may differ. Takes sort_resident_bytes() on each device, which its caller has reserved.
void sort_resident(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, const std::vector<TupleView>& in,
                   uint64_t flip, uint64_t varying_bits, const StretchOf& out, Job& job);

/// For `own` tuples on `device`, of `tuples` on all devices.
size_t sort_resident_bytes(Device& device, TupleLayout layout, uint64_t own, uint64_t tuples, size_t devices);
/// The most tuples of a device's stretch.
uint64_t most_in_stretch(uint64_t tuples, size_t devices);

}  // namespace warpjoin::sorting
