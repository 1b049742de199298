// How many of a key's topmost bits a sort has to look at: most keys differ in fewer than all. Internal to native/sort.
#pragma once

#include <cstdint>
#include <span>

namespace warpjoin::sorting {

/// The topmost of the key bits `varying` in which, as an ascending sample of their keys has it, all but an eighth of `tuples`
/// differ from each other. All of `varying` where the sample is small, or has equal keys. An estimate: it takes bits below those
/// in which the sample's keys differ to be as random as the ones above.
uint64_t distinguishing_bits(std::span<const uint64_t> sample, uint64_t tuples, uint64_t varying);

/// Of the key bits `varying` of some of those tuples, the topmost that a radix sort looks at in the passes, of eight bits each,
/// that `distinguishing` takes there. All of them where that saves no pass.
uint64_t leading_bits(uint64_t varying, uint64_t distinguishing);

}  // namespace warpjoin::sorting
