// Tuples on their way from host memory to a device, piece by piece.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/tuples.h"
#include "device/device.h"
#include "transfer/host_transfer.h"

namespace warpjoin {

inline constexpr uint64_t kLeastTuples = 4096;  // of a piece or a range: less only costs launches
/// Pieces that arrive, wait and are partitioned at a time, and how many where there is room: those of ordinary memory arrive
/// beside each other, by many threads, so that few of them are all there, and their places free again, at about the same time.
inline constexpr size_t kArrivalSlots = 3, kMostArrivalSlots = 8;

/// Tuples that are partitioned together, of a device's share: at most `most_bytes`, and at least eight pieces where they are
/// not tiny, so that small inputs overlap too.
inline uint64_t piece_tuples(TupleLayout layout, uint64_t share, size_t most_bytes) {
  return std::min(share, std::clamp<uint64_t>(share / 8, kLeastTuples, most_bytes / layout.tuple_bytes()));
}

inline Buffer allocate(StackAllocator& memory, size_t bytes) { return bytes ? memory.allocate(bytes) : Buffer(); }

/// Tuples in a device's memory.
struct OwnedTuples {
  Buffer keys, values;
  TupleSpan span;

  OwnedTuples() = default;
  OwnedTuples(StackAllocator& memory, TupleLayout layout, uint64_t size)
      : keys(allocate(memory, size * layout.key_bytes)),
        values(allocate(memory, size * layout.value_bytes)),
        span{keys.data(), values.data(), size} {}

  static size_t bytes(TupleLayout layout, uint64_t size) {
    return StackAllocator::aligned(size * layout.key_bytes) + StackAllocator::aligned(size * layout.value_bytes);
  }
};

/// Tuples of the input that are partitioned together.
struct Piece {
  TupleView in;
  TupleSpan out;                  ///< where they are, partitioned
  std::vector<uint64_t> offsets;  ///< where each partition begins in it

  TupleView range(TupleLayout layout, size_t r) const { return out.slice(layout, offsets[r], offsets[r + 1]).view(); }
};

/// The copy of tuples, with values where the source has some, between host memory and a device.
HostCopy host_copy(TupleLayout layout, const TupleSpan& target, const TupleView& source, Event* after);

/// Whether a device copies all of these tuples' memory directly.
bool copies_directly(const Device& device, TupleLayout layout, const TupleView& tuples);

/// The way of `pieces` to a device, over `slots` that they take turns in; the event of a slot says when it is free again.
/// Each piece, in order, is given to `partition` with the place where it will be on `compute`, which waits for it: what is
/// enqueued there then may read it.
HostQueue arrival_of(Device& device, TupleLayout layout, std::span<Piece> pieces, const std::vector<OwnedTuples>& slots,
                     std::span<const std::unique_ptr<Event>> slot_free, Stream& compute,
                     std::function<void(Piece& piece, const TupleView& arrived)> partition);

/// `first` and then `second`, of the same device, direction and depth.
HostQueue one_after_the_other(HostQueue first, HostQueue second);

}  // namespace warpjoin
