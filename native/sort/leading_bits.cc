#include "sort/leading_bits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace warpjoin::sorting {
namespace {

// Neighbours in the sample that agree: fewer tell too little.
constexpr double kLeastAgreeing = 16;
// Tuples that each one may agree with: to bring as many into order takes less than one more pass.
constexpr double kTied = 1.0 / 4;

}  // namespace

uint64_t distinguishing_bits(std::span<const uint64_t> sample, uint64_t tuples, uint64_t varying) {
  const auto sampled = static_cast<double>(sample.size());
  if (sampled <= kLeastAgreeing) return varying;
  std::array<uint64_t, 65> neighbours{};  // by the highest bit in which they differ
  for (size_t i = 1; i < sample.size(); ++i) ++neighbours[static_cast<size_t>(std::bit_width(sample[i - 1] ^ sample[i]))];
  // A tuple agrees with tuples * 2 * agreeing / sampled^2 others.
  const double most_agreeing = kTied * sampled * sampled / (2 * static_cast<double>(tuples));
  const double least = std::max(kLeastAgreeing, most_agreeing);
  unsigned bit = 0;
  uint64_t agreeing = neighbours[0];  // in the bits from `bit` on
  while (static_cast<double>(agreeing) < least) agreeing += neighbours[++bit];
  // Each bit below halves them.
  const auto further = static_cast<unsigned>(std::ceil(std::log2(static_cast<double>(agreeing) / most_agreeing)));
  return bit > further ? varying & ~uint64_t{0} << (bit - further) : varying;
}

uint64_t leading_bits(uint64_t varying, uint64_t distinguishing) {
  const uint64_t needed = varying & distinguishing;
  if (needed == 0) return varying;
  const auto top = static_cast<int>(std::bit_width(varying)), passes = (top - std::countr_zero(needed) + 7) / 8;
  return 8 * passes < top ? varying & ~uint64_t{0} << (top - 8 * passes) : varying;
}

}  // namespace warpjoin::sorting
