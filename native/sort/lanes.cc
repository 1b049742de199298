#include "sort/lanes.h"

#include <functional>
#include <utility>

#include "columns/encode.h"
#include "core/error.h"
#include "device/streams.h"
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

size_t lane_bytes(Device& device, bool in_place, TupleLayout layout, uint64_t tuples, size_t devices, SortAlgorithm algorithm) {
  const uint64_t rows = capacity(tuples, devices, algorithm);
  const size_t buffer = StackAllocator::aligned(std::max<size_t>(rows * layout.key_bytes, 1)) +
                        (layout.value_bytes ? StackAllocator::aligned(std::max<size_t>(rows * layout.value_bytes, 1)) : 0);
  return (in_place ? 1 : 2) * buffer +
         StackAllocator::aligned(std::max<size_t>(scratch_bytes(device.primitives(), layout, rows, devices, algorithm), 1));
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

Lanes::Lanes(Engine& engine, TupleLayout layout, const std::vector<Device*>& devices, uint64_t tuples, SortAlgorithm algorithm,
             Job& job)
    : engine(engine), layout(layout), job(job), in_place(all_address_host_memory(devices)), lanes_(devices.size()) {
  const uint64_t rows = capacity(tuples, devices.size(), algorithm);
  for (size_t i = 0; i < devices.size(); ++i) {
    Device& device = *devices[i];
    Lane& lane = lanes_[i];
    lane.device = &device;
    device.memory().reserve(lane_bytes(device, in_place, layout, tuples, devices.size(), algorithm));
    size_t next = 0;
    const auto allocate = [&](size_t bytes) { return (lane.memory[next++] = device.memory().allocate(bytes)).data(); };
    const auto buffer = [&] {
      void* keys = allocate(rows * layout.key_bytes);
      return TupleSpan{keys, layout.value_bytes ? allocate(rows * layout.value_bytes) : nullptr, rows};
    };
    lane.x = buffer();
    if (!in_place) lane.y = buffer();
    lane.scratch = allocate(scratch_bytes(device.primitives(), layout, rows, devices.size(), algorithm));
    lane.compute = device.create_stream();
    lane.copies = device.create_stream();
  }
}

Lanes::~Lanes() {
  for (Lane& lane : lanes_) lane.compute.reset(), lane.copies.reset();
}

void Lanes::for_each(const std::function<void(size_t)>& body) { engine.pool.parallel_for(lanes_.size(), body); }

void Lanes::move(const TupleView& next) {
  std::vector<HostQueue> queues;
  uint64_t bytes = 0;
  const auto add = [&](Device* device, HostQueue::Direction direction, std::vector<HostCopy> copies) {
    for (const HostCopy& copy : copies) {
      for (const HostCopy::Stretch& stretch : copy.stretches) bytes += stretch.bytes;
    }
    const size_t depth = copies.size();
    if (depth) queues.push_back({device, direction, std::move(copies), depth, {}});
  };
  for (size_t i = 0; i < size(); ++i) {
    Lane& lane = lanes_[i];
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

void Lanes::wait(std::unique_ptr<Stream> Lane::*stream) {
  std::vector<Stream*> streams;
  for (Lane& lane : lanes_) streams.push_back((lane.*stream).get());
  synchronize_all(streams);
  job.check();
}

void Lanes::sort_into(Lane& lane, TupleView in, TupleSpan a, TupleSpan b, const TupleSpan& wanted, uint64_t varying_bits) {
  const TupleSpan sorted = lane.primitives().sort(layout, in, a, b, varying_bits, lane.scratch, job, *lane.compute);
  if (sorted.keys != wanted.keys) copy(lane, wanted, sorted.view(), *lane.compute);
}

void Lanes::copy(Lane& lane, TupleSpan target, TupleView source, Stream& stream) {
  if (source.size == 0) return;
  lane.device->copy(target.keys, source.keys, source.size * layout.key_bytes, stream);
  if (layout.value_bytes) lane.device->copy(target.values, source.values, source.size * layout.value_bytes, stream);
}

void Lanes::copy_to_peer(Lane& lane, TupleSpan target, Lane& peer, TupleView source, Stream& stream) {
  if (source.size == 0) return;
  lane.device->copy_to_peer(target.keys, *peer.device, source.keys, source.size * layout.key_bytes, stream);
  if (layout.value_bytes) {
    lane.device->copy_to_peer(target.values, *peer.device, source.values, source.size * layout.value_bytes, stream);
  }
}

void require_sorted(Lanes& lanes, const TupleView& tuples) {
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
      most = std::max(most, sorting::lane_bytes(*device, in_place, layout, tuples, count, runs));
      continue;
    }
    most = std::max(most, sorting::sample_sort_bytes(*device, layout, tuples, count));
    if (several_chunksets && !in_place) most = std::max(most, sorting::spilled_sample_sort_bytes(*device, layout, tuples, count));
  }
  return most;
}

}  // namespace warpjoin
