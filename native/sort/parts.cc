#include "sort/parts.h"

#include "core/error.h"
#include "core/format.h"
#include "sort/lanes.h"

namespace warpjoin::sorting {

void partition_piece(Primitives& primitives, TupleLayout layout, const TupleView& arrived, const KeyRanges& ranges,
                     const TupleSpan& out, std::vector<uint64_t>& offsets, void* scratch, Job& job, Stream& compute) {
  offsets.assign(ranges.size() + 1, 0);
  primitives.partition_ranges(layout, arrived, ranges.flip(), ranges.bounds(), out, offsets.data(), scratch, job, compute);
  job.add_done(arrived.size);
}

TuplesOfRange tuples_in(TupleLayout layout, std::vector<const Piece*> pieces) {
  return [layout, pieces = std::move(pieces)](size_t r) {
    std::vector<TupleView> tuples;
    for (const Piece* piece : pieces) tuples.push_back(piece->range(layout, r));
    return tuples;
  };
}

std::vector<std::vector<Part>> assign_parts(TupleLayout layout, const TuplesOfRange& tuples_of, const KeyRanges& ranges,
                                            uint64_t varying_bits, uint64_t size, uint64_t most, size_t devices) {
  std::vector<std::vector<Part>> parts(devices);
  uint64_t begin = 0;
  size_t device = 0;
  for (size_t r = 0; r < ranges.size(); ++r) {
    const uint64_t bits = ranges.varying_bits(r, varying_bits);
    const std::vector<TupleView> from = tuples_of(r);
    uint64_t end = begin;
    for (const TupleView& tuples : from) end += tuples.size;
    if (bits != 0 && end - begin > most) return {};
    for (uint64_t at = begin; at < end;) {
      const uint64_t left = end - at, middle = bits ? at + left / 2 : at;
      while (share_begin(size, devices, device + 1) <= middle) ++device;
      const uint64_t part = bits ? left : std::min({left, most, share_begin(size, devices, device + 1) - at});
      parts[device].push_back({at, part, bits, cut(layout, from, at - begin, part)});
      at += part;
    }
    begin = end;
  }
  return parts;
}

void sort_with_samples(uint64_t most, TupleLayout layout, const std::function<bool(uint64_t)>& attempt) {
  constexpr unsigned kAttempts = 3;  // each with 16 times the sample of the one before
  uint64_t oversampling = kOversampling;
  for (unsigned i = 0; i < kAttempts; ++i, oversampling *= 16) {
    if (attempt(oversampling)) return;
  }
  throw Error(ErrorCode::device_memory, "A key range of the sort outgrew the " + format_bytes(most * layout.tuple_bytes()) +
                                            " that each device keeps for one");
}

}  // namespace warpjoin::sorting
