// The devices of a sort of chunks. Internal to native/sort.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/job.h"
#include "core/sharding.h"
#include "core/tuples.h"
#include "engine/engine.h"
#include "flow/lanes.h"
#include "primitives/primitives.h"
#include "sort/sort.h"
#include "transfer/arrival.h"

namespace warpjoin::sorting {

/// How far a device's part of a radix-sorted chunkset may end from its equal share: half of epsilon = 0.5 % (3.1.2), as
/// both its ends may move.
constexpr uint64_t share_tolerance(uint64_t size, size_t devices) { return size / devices / 400; }

/// Device memory for a chunk of up to `rows` tuples.
struct ChunkRoom {
  /// `y` is where a chunk arrives, and free again when its result leaves from `x`; on devices that address host memory there is
  /// no such buffer, for the run itself takes its place.
  OwnedTuples x, y;
  Buffer scratch;

  ChunkRoom(StackAllocator& memory, Primitives& primitives, TupleLayout layout, uint64_t rows, size_t devices,
            SortAlgorithm algorithm, bool in_place);
};

/// One device's chunk.
struct Chunk {
  ChunkRoom room;
  TupleSpan x, y;                   ///< the room's, in turns
  TupleView in{};                   ///< the present chunk: in y, or in host memory where the device addresses it
  std::deque<HostCopy> home{};      ///< what goes from x to the run
  Event* y_free = nullptr;          ///< when nothing uses y any more; null: now
  std::vector<uint64_t> results{};  ///< where primitives write counts and offsets
  Events events{};

  explicit Chunk(ChunkRoom of) : room(std::move(of)), x(room.x.span), y(room.y.span) {}
};

enum ChunkStream : size_t { kCompute, kCopies, kChunkStreams };
using Lane = flow::Lane<Chunk>;

/// One chunkset on its way through the devices.
struct Chunkset {
  TupleView in;   ///< host memory
  TupleSpan run;  ///< host memory: where it goes, sorted
  uint64_t varying_bits;
  TupleView next;  ///< the chunkset behind it, which arrives while this one leaves
  /// Keys are read where their owner may write to them: what they are sorted by may not be all that varies.
  bool doubtful = false;
};

class ChunkLanes : public flow::Lanes<Chunk> {
 public:
  /// Reserves each device's memory for chunksets of up to `tuples`; throws Error(device_memory) where it does not fit.
  ChunkLanes(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, uint64_t tuples, SortAlgorithm algorithm,
             Job& job);

  Engine& engine;
  const TupleLayout layout;
  Job& job;
  /// All devices address host memory: chunks are read where they are and results written where they belong.
  const bool in_place;

  /// Runs body(i) for each lane, in parallel: enqueueing many copies takes a while.
  void for_each(const std::function<void(size_t lane)>& body);
  /// Sends what is in the lanes' `home` home and at the same time takes the chunks of `next` to y, once it is free; returns
  /// when they are there. Where the devices address host memory it only notes where the chunks are.
  void move(const TupleView& next);
  void wait(ChunkStream stream) const { flow::Lanes<Chunk>::wait(job, stream); }

  /// Sorts `in` into `a` or `b` on the compute stream and sees to it that the result ends in `wanted`, one of them.
  void sort_into(Lane& lane, TupleView in, TupleSpan a, TupleSpan b, const TupleSpan& wanted, uint64_t varying_bits);
  /// Within the device's memory.
  void copy(Lane& lane, TupleSpan target, TupleView source, Stream& stream);
  void copy_to_peer(Lane& lane, TupleSpan target, Lane& peer, TupleView source, Stream& stream);
};

/// The algorithm that can run: all but radix read across devices, so they need direct links.
SortAlgorithm runnable(SortAlgorithm algorithm, const Engine& engine, const std::vector<Device*>& devices);

/// Throws InputChanged where the tuples, in host memory, are out of order: a merge would leave its bounds. A pass over the keys.
void require_sorted(ChunkLanes& lanes, const TupleView& tuples);

/// Sort the chunkset whose chunks are the lanes' `in` into `set.run`; then those of `set.next` are the lanes' `in`.
void merge_sort(ChunkLanes& lanes, const Chunkset& set);
void radix_sort(ChunkLanes& lanes, const Chunkset& set);

}  // namespace warpjoin::sorting
