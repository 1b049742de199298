// Groups tuples by the topmost bits of their hashes: in one pass, or by half of the bits in each of two, which are faster than
// one where a block has but a few tuples for each group. For hash joins, which need no order within a group: a block takes its
// place in a group when it gets there.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/tuples.h"
#include "primitives/gpu/hash_tuples.h"

namespace warpjoin::gpu {

constexpr unsigned kPassBits = 9;  // a pass has no more groups than a block threads
constexpr unsigned kMostSplitBits = 2 * kPassBits;

/// How tuples of a layout lie in `data`, hashed.
HashTuples hash_tuples(TupleLayout layout, void* data);

/// Enqueues the hashing and grouping of all fragments' tuples, fewer than 2^32 together. `offsets` (2^bits + 1), `scratch` and,
/// where there are two passes, `between` are device memory; group g is rows [offsets[g], offsets[g + 1]) of `out`. Fragments may
/// lie on peer devices; implied values are written out.
void hash_split(TupleLayout layout, std::span<const TupleView> fragments, unsigned bits, const HashTuples& out, char* between,
                uint32_t* offsets, void* scratch, gpu_stream_t on, const std::string& device_name);
/// Of `between`: 0 for one pass, else the tuples' and, where a sample makes room for groups, several per cent more.
size_t hash_split_between_bytes(TupleLayout layout, uint64_t size, unsigned bits, const std::string& device_name);
size_t hash_split_scratch_bytes(unsigned bits, const std::string& device_name);

}  // namespace warpjoin::gpu
