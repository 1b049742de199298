// Plans of the benchmarks on GPUs: as the engine makes them (lib/plan), by the data plane's figures.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "engine/engine.h"
#include "join/join.h"
#include "sort/sort.h"

namespace warpjoin::bench {

inline std::vector<int> ordinals_of(std::span<Device* const> devices) {
  std::vector<int> ordinals;
  for (const Device* device : devices) ordinals.push_back(device->info().ordinal);
  return ordinals;
}

/// Memory that a plan may take on each device: deviceBudget() in lib/plan/plan.ts.
inline size_t device_budget(std::span<Device* const> devices) {
  size_t budget = SIZE_MAX;
  for (Device* device : devices) {
    const StackAllocator& memory = device->memory();
    budget = std::min(budget, memory.limit_bytes() - std::min(memory.limit_bytes(), memory.resident_bytes()));
  }
  return budget;
}

/// The least of first, 2 * first and so on up to `most` whose `bytes` fit the budget. Throws Error(device_memory), naming `what`,
/// where none does.
inline uint32_t doubled_until_it_fits(const char* what, uint32_t first, uint32_t most, size_t budget,
                                      const std::function<size_t(uint32_t count)>& bytes) {
  for (uint32_t count = first; count <= most; count *= 2) {
    if (bytes(count) <= budget) return count;
  }
  throw Error(ErrorCode::device_memory, std::string(what) + " takes " + format_bytes(bytes(most)) +
                                            " on each device, of which the limit leaves " + format_bytes(budget));
}

/// A hash join of tuples in host memory, in as few rounds as fit the devices: hashJoinOn() in lib/plan/join.ts.
inline HashJoinPlan hash_join_plan(Engine& engine, std::span<Device* const> devices, const JoinKeys& keys,
                                   const JoinRequest& request, size_t budget) {
  constexpr uint32_t kMostRounds = 64;  // MAX_ROUNDS
  const EncodedTuples* sides[] = {&keys.left.tuples, &keys.right.tuples};
  if (!request.build_left) std::swap(sides[0], sides[1]);
  const uint32_t rounds = doubled_until_it_fits("A hash join", 1, kMostRounds, budget, [&](uint32_t count) {
    return hash_join_device_bytes(sides[0]->layout, sides[0]->view.size, sides[1]->layout, sides[1]->view.size, devices.size(),
                                  request, count, engine);
  });
  return {ordinals_of(devices), rounds, 0, true};
}

/// A merge join of sorted sides: matchSorted() in lib/plan/join.ts.
inline MergeJoinPlan merge_join_plan(Engine& engine, std::span<Device* const> devices, const JoinKeys& keys) {
  constexpr uint32_t kFewest = 3, kMost = 3 << 16;  // MIN_SUBPARTITIONS, MAX_SUBPARTITIONS
  const EncodedTuples &left = keys.left.tuples, &right = keys.right.tuples;
  const uint32_t subpartitions =
      doubled_until_it_fits("A merge join", kFewest, kMost, device_budget(devices), [&](uint32_t count) {
        return merge_join_device_bytes(left.layout, left.view.size, right.layout, right.view.size, devices.size(), count, engine);
      });
  return {ordinals_of(devices), subpartitions};
}

/// A sample sort in at least `least` chunksets of even size, and in as few as fit the devices: chunksetEnds() in
/// lib/plan/plan.ts.
inline SortPlan sort_plan(Engine& engine, std::span<Device* const> devices, TupleLayout layout, uint64_t tuples,
                          uint64_t least = 1) {
  constexpr uint64_t kMostChunksets = 1024;  // MAX_CHUNKSETS
  const size_t budget = device_budget(devices);
  uint64_t chunksets = least;
  const auto bytes = [&] {
    return sort_device_bytes(layout, (tuples + chunksets - 1) / chunksets, devices.size(), SortAlgorithm::sample, chunksets > 1,
                             engine);
  };
  while (bytes() > budget) {
    if (++chunksets > kMostChunksets) {
      throw Error(ErrorCode::device_memory,
                  "A sort of " + std::to_string(tuples) + " tuples does not fit " + format_bytes(budget) + " on each device");
    }
  }
  SortPlan plan{SortAlgorithm::sample, ordinals_of(devices), {}};
  for (uint64_t c = 1; c <= chunksets; ++c) {
    plan.chunkset_ends.push_back(tuples / chunksets * c + std::min(c, tuples % chunksets));
  }
  return plan;
}

}  // namespace warpjoin::bench
