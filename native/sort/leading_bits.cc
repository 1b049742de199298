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
// A key that is in the sample so often is a tie longer than what is sorted within ties, however many bits are looked at.
constexpr size_t kHeavy = 32;
// Other tuples in the ties of all such keys together: one of them out of order has all sorted again.
constexpr double kAmongHeavy = 1.0 / 16;

unsigned highest_difference(uint64_t a, uint64_t b) { return static_cast<unsigned>(std::bit_width(a ^ b)); }

struct Neighbours {
  std::array<uint64_t, 65> differing{};  // by the highest bit in which they differ; those of heavy keys are left out
  double around_heavy = 0;  // the share of a sampled key that is as near to a heavy one as their last bit, all added up

  explicit Neighbours(std::span<const uint64_t> sample) {
    for (size_t begin = 0, end; begin < sample.size(); begin = end) {
      end = begin + 1;
      while (end < sample.size() && sample[end] == sample[begin]) ++end;
      const unsigned before = begin > 0 ? highest_difference(sample[begin - 1], sample[begin]) : 65;
      const unsigned after = end < sample.size() ? highest_difference(sample[end - 1], sample[end]) : 65;
      if (begin > 0) ++differing[before];
      if (end - begin < kHeavy) {
        differing[0] += end - begin - 1;
      } else if (const unsigned nearest = std::min(before, after); nearest <= 64) {
        around_heavy += std::ldexp(1.0, 1 - static_cast<int>(nearest));
      }
    }
  }
};

}  // namespace

uint64_t distinguishing_bits(std::span<const uint64_t> sample, uint64_t tuples, uint64_t varying) {
  const auto sampled = static_cast<double>(sample.size()), all = static_cast<double>(tuples);
  const Neighbours neighbours(sample);
  // A tuple agrees with tuples * 2 * agreeing / sampled^2 others.
  const double most_agreeing = kTied * sampled * sampled / (2 * all);
  const double least = std::max(kLeastAgreeing, most_agreeing);
  unsigned bit = 0;
  uint64_t agreeing = neighbours.differing[0];  // in the bits from `bit` on
  while (static_cast<double>(agreeing) < least && bit < 64) agreeing += neighbours.differing[++bit];
  if (static_cast<double>(agreeing) < least) return varying;
  // Each bit below halves them, and what is among heavy keys.
  double lowest = bit - std::ceil(std::log2(static_cast<double>(agreeing) / most_agreeing));
  if (neighbours.around_heavy > 0)
    lowest = std::min(lowest, std::floor(std::log2(kAmongHeavy * sampled / (all * neighbours.around_heavy))));
  return lowest > 0 ? varying & ~uint64_t{0} << static_cast<unsigned>(std::min(lowest, 63.0)) : varying;
}

uint64_t leading_bits(uint64_t varying, uint64_t distinguishing) {
  const uint64_t needed = varying & distinguishing;
  if (needed == 0) return varying;
  const auto top = static_cast<int>(std::bit_width(varying)), passes = (top - std::countr_zero(needed) + 7) / 8;
  return 8 * passes < top ? varying & ~uint64_t{0} << (top - 8 * passes) : varying;
}

}  // namespace warpjoin::sorting
