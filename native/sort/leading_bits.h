// How many of a key's topmost bits a sort has to look at: most keys differ in fewer than all. Internal to native/sort.
#pragma once

#include <cstdint>
#include <span>

namespace warpjoin::sorting {

/// The topmost of the key bits `varying` in which, going by a sorted sample of their keys, each of `tuples` agrees with a quarter
/// of another one on average, and next to none with a key that many tuples have, which agree with each other in any case. All of
/// `varying` where the sample is small, or many of its keys are equal to a few others. An estimate: bits below those that the
/// sample tells of are taken to be random.
uint64_t distinguishing_bits(std::span<const uint64_t> sample, uint64_t tuples, uint64_t varying);

/// Of the key bits `varying` of some of those tuples, the topmost that a radix sort looks at in the passes, of eight bits each,
/// that `distinguishing` takes there. All of them where that saves no pass.
uint64_t leading_bits(uint64_t varying, uint64_t distinguishing);

}  // namespace warpjoin::sorting
