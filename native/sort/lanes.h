// The devices of one sort: their tuple buffers, streams and chunks. Internal to native/sort.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "core/engine.h"
#include "core/job.h"
#include "core/sharding.h"
#include "core/tuples.h"
#include "primitives/primitives.h"
#include "sort/sort.h"
#include "transfer/arrival.h"

namespace warpjoin::sorting {

/// How far a device's part of a radix-sorted chunkset may end from its equal share: half of epsilon = 0.5 % (3.1.2), as
/// both its ends may move.
constexpr uint64_t share_tolerance(uint64_t size, size_t devices) { return size / devices / 400; }

/// One device's part. Streams come last: they wait for their work before what it refers to goes.
struct Lane {
  Device* device = nullptr;
  Buffer memory[5];
  void* scratch = nullptr;
  /// Chunk-sized tuple buffers. `y` is where a chunk arrives, and free again when its result leaves from `x`; on devices
  /// that address host memory there is no such buffer, for the run itself takes its place.
  TupleSpan x, y;
  TupleView in;                   ///< the present chunk: in y, or in host memory where the device addresses it
  std::vector<HostCopy> home;     ///< what goes from x to the run
  Event* y_free = nullptr;        ///< when nothing uses y any more; null: now
  std::vector<uint64_t> results;  ///< where primitives write counts and offsets
  std::vector<std::unique_ptr<Event>> events;
  std::unique_ptr<Stream> compute, copies;

  Primitives& primitives() const { return device->primitives(); }
};

/// One chunkset on its way through the devices.
struct Chunkset {
  TupleView in;   ///< host memory
  TupleSpan run;  ///< host memory: where it goes, sorted
  uint64_t varying_bits;
  TupleView next;  ///< the chunkset behind it, which arrives while this one leaves
  /// Keys are read where their owner may write to them: what they are sorted by may not be all that varies.
  bool doubtful = false;
};

class Lanes {
 public:
  /// Reserves each device's memory for chunksets of up to `tuples`; throws Error(device_memory) where it does not fit.
  Lanes(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, uint64_t tuples, SortAlgorithm algorithm,
        Job& job);
  /// Waits for all devices before any of their memory goes: they read each other's.
  ~Lanes();

  Engine& engine;
  const TupleLayout layout;
  Job& job;
  /// All devices address host memory: chunks are read where they are and results written where they belong.
  const bool in_place;

  size_t size() const { return lanes_.size(); }
  Lane& operator[](size_t i) { return lanes_[i]; }

  /// Runs body(i) for each lane, in parallel: enqueueing many copies takes a while.
  void for_each(const std::function<void(size_t lane)>& body);
  /// Sends what is in the lanes' `home` home and at the same time takes the chunks of `next` to y, once it is free; returns
  /// when they are there. Where the devices address host memory it only notes where the chunks are.
  void move(const TupleView& next);
  /// Waits for all lanes, then throws the first error.
  void wait(std::unique_ptr<Stream> Lane::*stream);

  /// Sorts `in` into `a` or `b` on the compute stream and sees to it that the result ends in `wanted`, one of them.
  void sort_into(Lane& lane, TupleView in, TupleSpan a, TupleSpan b, const TupleSpan& wanted, uint64_t varying_bits);
  /// Within the device's memory.
  void copy(Lane& lane, TupleSpan target, TupleView source, Stream& stream);
  void copy_to_peer(Lane& lane, TupleSpan target, Lane& peer, TupleView source, Stream& stream);

 private:
  std::vector<Lane> lanes_;
};

/// The algorithm that can run: all but radix read across devices, so they need direct links.
SortAlgorithm runnable(SortAlgorithm algorithm, const Engine& engine, const std::vector<Device*>& devices);

/// Throws InputChanged where the tuples, in host memory, are out of order: a merge would leave its bounds. A pass over the keys.
void require_sorted(Lanes& lanes, const TupleView& tuples);

/// Sort the chunkset whose chunks are the lanes' `in` into `set.run`; then those of `set.next` are the lanes' `in`.
void merge_sort(Lanes& lanes, const Chunkset& set);
void radix_sort(Lanes& lanes, const Chunkset& set);

}  // namespace warpjoin::sorting
