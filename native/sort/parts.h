// What sample sorts cut their input and result into. Internal to native/sort and native/join.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/job.h"
#include "primitives/primitives.h"
#include "sort/key_ranges.h"
#include "transfer/arrival.h"

namespace warpjoin::sorting {

inline void copy_tuples(Device& device, TupleLayout layout, const TupleSpan& to, const TupleView& from, Stream& stream) {
  device.copy(to.keys, from.keys, from.size * layout.key_bytes, stream);
  if (layout.value_bytes) device.copy(to.values, from.values, from.size * layout.value_bytes, stream);
}

inline constexpr uint64_t kOversampling = 128;  // keys sampled for each range, at first

/// Tuples that a range holds where there are as many ranges as may be.
inline uint64_t finest_range(uint64_t tuples) {
  return std::max(kLeastTuples, (tuples + Primitives::kMostRanges - 1) / Primitives::kMostRanges);
}

/// Tuples that a range should hold where it goes home on its own: 32 MiB, for its blocks to keep a link busy, but so many
/// ranges that the first one goes home soon. Grows with the number of tuples.
inline uint64_t range_tuples(TupleLayout layout, uint64_t tuples, size_t devices) {
  constexpr size_t kBytes = size_t{32} << 20;
  const uint64_t eighth = tuples / (8 * devices) + 1;
  return std::max(finest_range(tuples), std::min<uint64_t>(eighth, kBytes / layout.tuple_bytes()));
}

/// How many ranges are chosen for ranges of so many tuples.
inline size_t ranges_of(uint64_t tuples, uint64_t range) {
  return static_cast<size_t>(std::clamp<uint64_t>((tuples + range - 1) / range, 1, Primitives::kMostRanges));
}

/// The most tuples of a part where ranges should hold `range` of them. A range of different keys holds at most two shares of
/// the sample; the rest is for the sample's error.
inline uint64_t most_in_part(uint64_t tuples, uint64_t range) { return std::min(tuples, 3 * (range + 1)); }

/// Partitions a piece that has arrived into `out`, and counts it as done. `offsets`: where each range will begin there.
void partition_piece(Primitives& primitives, TupleLayout layout, const TupleView& arrived, const KeyRanges& ranges,
                     const TupleSpan& out, std::vector<uint64_t>& offsets, void* scratch, Job& job, Stream& compute);

/// A stretch of the result that one device sorts in one go.
struct Part {
  uint64_t begin = 0, size = 0;  ///< in the result
  uint64_t bits = 0;             ///< key bits that vary; 0: all keys are equal
  std::vector<TupleView> from;   ///< in the order of the input
};

/// Where the tuples of the r-th key range are, in the order of the input.
using TuplesOfRange = std::function<std::vector<TupleView>(size_t r)>;

/// In these pieces, which are in the order of the input and outlive it.
TuplesOfRange tuples_in(TupleLayout layout, std::vector<const Piece*> pieces);

/// The parts of each device, ascending: every range goes to the device whose equal share of the result it falls into; ranges
/// of equal keys are cut where they need be. `size`: tuples of all ranges. No parts where a range of different keys has more than
/// `most` tuples: the sample was too small.
std::vector<std::vector<Part>> assign_parts(TupleLayout layout, const TuplesOfRange& tuples_of, const KeyRanges& ranges,
                                            uint64_t varying_bits, uint64_t size, uint64_t most, size_t devices);

/// Whether a radix sort of these key bits, eight at a time from one buffer to the other, ends where it did not begin. Where a
/// device sorts otherwise, its result is one copy away.
inline bool ends_in_other_buffer(uint64_t bits) {
  return bits && (std::bit_width(bits) - std::countr_zero(bits) + 7) / 8 % 2 != 0;
}

/// Calls attempt(oversampling) with larger and larger samples, until it is true; throws Error(device_memory) where it never is,
/// as a range keeps outgrowing `most` tuples.
void sort_with_samples(uint64_t most, TupleLayout layout, const std::function<bool(uint64_t oversampling)>& attempt);

}  // namespace warpjoin::sorting
