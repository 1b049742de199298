// The first rows of a sort of what lies on devices, found without a sort of all. Internal to native/sort.
#pragma once

#include <cstdint>
#include <vector>

#include "core/job.h"
#include "sort/row_window.h"
#include "sort/sample_sort.h"

namespace warpjoin::sorting {

/// Whether top_resident() is the faster way to these rows of a sort of so many tuples.
bool are_few(const RowWindow& window, uint64_t tuples, size_t devices);

/// Writes the tuples of a window, of which the sort has as many rows as that says, of what sort_resident() would write: spread as
/// Sharding::of says, to where `out` says. On each device a sample says up to which key there are about as many tuples as are
/// needed; one pass over the keys selects these, and they are sorted. False, and nothing is written, where the sample misled:
/// then it takes a sort of all. `bits`: those in which keys may differ. Takes top_resident_bytes() on each device, which its
/// caller has reserved. Several devices must be linked directly.
bool top_resident(TupleLayout layout, const std::vector<Device*>& devices, const std::vector<TupleView>& in, uint64_t flip,
                  uint64_t bits, const RowWindow& window, const StretchOf& out, Job& job);

/// For up to `own` tuples on each device.
size_t top_resident_bytes(Device& device, TupleLayout layout, uint64_t own, const RowWindow& window, size_t devices);

}  // namespace warpjoin::sorting
