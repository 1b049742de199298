// Copies of host memory that say what they do to the caches; memcpy decides by size.
#pragma once

#include <cstddef>

namespace warpjoin {

/// Leaves the target in the caches. For memory that is read soon, by threads or copy engines. Ranges must not overlap.
void copy_through_caches(void* target, const void* source, size_t bytes);

/// Writes the target past the caches: its lines are not read first and push nothing out. Other threads see it as after
/// ordinary stores. Ranges must not overlap.
void copy_past_caches(void* target, const void* source, size_t bytes);

}  // namespace warpjoin
