#include "sort/lanes.h"

#include <functional>
#include <utility>

#include "columns/encode.h"
#include "core/error.h"
#include "flow/budget.h"
#include "sort/parts.h"
#include "sort/sample_sort.h"

namespace warpjoin::sorting {
namespace {

uint64_t capacity(uint64_t tuples, size_t devices, SortAlgorithm algorithm) {
  const uint64_t share = tuples / devices + (tuples % devices ? 1 : 0);
  return algorithm == SortAlgorithm::merge ? share : share + 2 * share_tolerance(tuples, devices);
}

size_t scratch_bytes(Primitives& primitives, TupleLayout layout, uint64_t tuples, size_t devices, SortAlgorithm algorithm) {
  const size_t sort = primitives.sort_scratch_bytes(layout, tuples);
  if (algorithm == SortAlgorithm::radix) {
    return std::max(sort, primitives.partition_scratch_bytes(layout, tuples, Digit{0, 8, false}));
  }
  return devices == 1 ? sort : std::max(sort, primitives.merge_scratch_bytes(layout, devices, tuples));
}

size_t chunk_bytes(Device& device, bool in_place, TupleLayout layout, uint64_t tuples, size_t devices, SortAlgorithm algorithm) {
  return flow::counted_bytes([&](StackAllocator& memory) {
    flow::count<ChunkRoom>(memory, device.primitives(), layout, capacity(tuples, devices, algorithm), devices, algorithm,
                           in_place);
  });
}

}  // namespace

SortAlgorithm runnable(SortAlgorithm algorithm, const Engine& engine, const std::vector<Device*>& devices) {
  for (const Device* from : devices) {
    for (const Device* to : devices) {
      if (from != to && !engine.topology.link(from->info().ordinal, to->info().ordinal).direct) return SortAlgorithm::radix;
    }
  }
  return algorithm;
}

ChunkRoom::ChunkRoom(StackAllocator& memory, Primitives& primitives, TupleLayout layout, uint64_t rows, size_t devices,
                     SortAlgorithm algorithm, bool in_place)
    : x(memory, layout, rows),
      y(memory, layout, in_place ? 0 : rows),
      scratch(allocate(memory, scratch_bytes(primitives, layout, rows, devices, algorithm))) {}

ChunkLanes::ChunkLanes(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, uint64_t tuples,
                       SortAlgorithm algorithm, Job& job)
    : flow::Lanes<Chunk>(devices, kChunkStreams,
                         [&](Device& device, size_t) {
                           const bool in_place = all_address_host_memory(devices);
                           device.memory().reserve(chunk_bytes(device, in_place, layout, tuples, devices.size(), algorithm));
                           return Chunk({device.memory(), device.primitives(), layout,
                                         capacity(tuples, devices.size(), algorithm), devices.size(), algorithm, in_place});
                         }),
      engine(engine),
      layout(layout),
      job(job),
      in_place(all_address_host_memory(devices)) {}

void ChunkLanes::for_each(const std::function<void(size_t)>& body) { engine.pool.parallel_for(size(), body); }

void ChunkLanes::move(const TupleView& next) {
  std::vector<HostQueue> queues;
  uint64_t bytes = 0;
  const auto add = [&](Device* device, HostQueue::Direction direction, std::deque<HostCopy> copies) {
    for (const HostCopy& copy : copies) {
      for (const HostCopy::Stretch& stretch : copy.stretches) bytes += stretch.bytes;
    }
    const size_t depth = copies.size();
    if (depth) queues.push_back({device, direction, std::move(copies), depth, {}});
  };
  for (size_t i = 0; i < size(); ++i) {
    Lane& lane = (*this)[i];
    lane.in = next.slice(layout, share_begin(next.size, size(), i), share_begin(next.size, size(), i + 1));
    if (in_place) continue;
    add(lane.device, HostQueue::Direction::to_host, std::exchange(lane.home, {}));
    if (lane.in.size == 0) continue;
    add(lane.device, HostQueue::Direction::to_device, {host_copy(layout, lane.y, lane.in, std::exchange(lane.y_free, nullptr))});
    lane.in.keys = lane.y.keys;
    if (lane.in.values) lane.in.values = lane.y.values;
  }
  if (queues.empty()) return;
  PhaseTimer timer(job, "copy", 2 * bytes);
  transfer(engine, queues, job);
}

void ChunkLanes::sort_into(Lane& lane, TupleView in, TupleSpan a, TupleSpan b, const TupleSpan& wanted, uint64_t varying_bits) {
  const TupleSpan sorted =
      lane.primitives().sort(layout, in, a, b, varying_bits, lane.room.scratch.data(), job, lane.stream(kCompute));
  if (sorted.keys != wanted.keys) copy(lane, wanted, sorted.view(), lane.stream(kCompute));
}

void ChunkLanes::copy(Lane& lane, TupleSpan target, TupleView source, Stream& stream) {
  if (source.size == 0) return;
  copy_tuples(*lane.device, layout, target, source, stream);
}

void ChunkLanes::copy_to_peer(Lane& lane, TupleSpan target, Lane& peer, TupleView source, Stream& stream) {
  if (source.size == 0) return;
  lane.device->copy_to_peer(target.keys, *peer.device, source.keys, source.size * layout.key_bytes, stream);
  if (layout.value_bytes) {
    lane.device->copy_to_peer(target.values, *peer.device, source.values, source.size * layout.value_bytes, stream);
  }
}

void require_sorted(ChunkLanes& lanes, const TupleView& tuples) {
  EncodedTuples sorted;
  sorted.layout = lanes.layout;
  sorted.view = tuples;
  if (!is_sorted(sorted, lanes.engine, lanes.job)) throw InputChanged();
}

}  // namespace warpjoin::sorting

namespace warpjoin {

size_t sort_device_bytes(TupleLayout layout, uint64_t tuples, size_t devices, SortAlgorithm algorithm, bool several_chunksets,
                         Engine& engine) {
  std::vector<Device*> all;
  for (const auto& device : engine.devices) all.push_back(device.get());
  const bool in_place = all_address_host_memory(all);
  const SortAlgorithm runs = sorting::runnable(algorithm, engine, all);
  size_t most = 0;
  for (Device* device : all) {
    const size_t count = std::max<size_t>(devices, 1);
    if (runs != SortAlgorithm::sample) {
      most = std::max(most, sorting::chunk_bytes(*device, in_place, layout, tuples, count, runs));
      continue;
    }
    most = std::max(most, sorting::sample_sort_bytes(*device, layout, tuples, count));
    if (several_chunksets && !in_place) most = std::max(most, sorting::spilled_sample_sort_bytes(*device, layout, tuples, count));
  }
  return most;
}

}  // namespace warpjoin
