// When GPU hash joins do what. Tests change it, to get everywhere with few tuples.
#pragma once

#include <cstdint>

#include "primitives/gpu/blocks.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

struct HashTuning {
#if defined(WARPJOIN_HIP)
  uint64_t small_table_bytes = 8 << 20;   ///< of a build side's one table, at most: more than the second-level cache is slow
  uint64_t sparse_table_slots = 1 << 17;  ///< that table may have so many, for a tuple in every fourth
#else
  uint64_t small_table_bytes = 48 << 20;
  uint64_t sparse_table_slots = 3 << 17;
#endif
  uint64_t fewest_sampled = uint64_t{1} << 24;  ///< tuples of a side whose split in two passes goes by a sample
  uint64_t sampled_sectors = 1 << 11;           ///< for each group of the first: rooms are 13 % larger than their groups
  uint64_t grouped_sectors = 1 << 13;           ///< the same of what crosses links: rooms are 7 % larger
  unsigned most_bits = 18;                      ///< of partitions: kMostSplitBits, or fewer
  unsigned fewest_bits = 6;                     ///< of partitions, if any: threads that count few groups wait for each other
};
inline HashTuning hash_tuning;

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
