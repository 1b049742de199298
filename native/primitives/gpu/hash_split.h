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
inline namespace WARPJOIN_BLOCKS {

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

/// Where each group lies.
struct GroupBounds {
  const uint32_t *begins, *ends;
};
/// Enqueues the hashing and grouping of `in`, fewer than 2^32 tuples, by up to kPassBits bits. `out` has hash_group_rows() of
/// room; the bounds, of 2^bits groups, lie in `scratch`, and there are zeros between groups. Implied values are written out.
GroupBounds hash_group(TupleLayout layout, const TupleView& in, unsigned bits, void* out, void* scratch, gpu_stream_t on,
                       const std::string& device_name);
uint64_t hash_group_rows(TupleLayout layout, uint64_t size, unsigned bits);
size_t hash_group_scratch_bytes(unsigned bits, const std::string& device_name);

/// What hash_group made, of one or more devices: stretch i has group i % groups of those that are looked at.
struct GroupRun {
  const void* tuples;
  uint32_t stretches;
  GroupBounds bounds;
  uint64_t rows;  ///< of all stretches, about
};
/// Enqueues the grouping of all runs' tuples by the `bits` topmost bits of their hashes, from `groups` consecutive groups of
/// `group_bits`, without the groups before them: as hash_split does.
void hash_split_groups(TupleLayout layout, std::span<const GroupRun> in, uint32_t groups, unsigned group_bits, unsigned bits,
                       const HashTuples& out, uint32_t* offsets, void* scratch, gpu_stream_t on, const std::string& device_name);
size_t hash_split_groups_scratch_bytes(uint64_t partitions, const std::string& device_name);

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
