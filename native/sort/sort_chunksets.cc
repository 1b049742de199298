// Chunksets through the devices, one behind the other (multi-gpu-sort-merge-join 3.1.3), and their merge (3.2).
#include <cstring>
#include <numeric>
#include <set>
#include <string>

#include "columns/encode.h"
#include "core/error.h"
#include "device/host_device.h"
#include "sort/lanes.h"
#include "sort/sample_sort.h"

namespace warpjoin {
namespace {

using sorting::ChunkLanes;
using sorting::Chunkset;
using sorting::Lane;

void check_plan(const SortPlan& plan, TupleLayout layout, const TupleView& in) {
  if (std::set<int>(plan.devices.begin(), plan.devices.end()).size() != plan.devices.size() || plan.devices.empty()) {
    throw Error(ErrorCode::option, "A sort needs at least one device, and each device once");
  }
  uint64_t previous = 0;
  for (const uint64_t end : plan.chunkset_ends) {
    if (end < previous) throw Error(ErrorCode::option, "The ends of a sort's chunksets must ascend");
    previous = end;
  }
  if (previous != in.size) {
    throw Error(ErrorCode::option, "The last of a sort's chunksets ends at tuple " + std::to_string(previous) + ", not at the " +
                                       std::to_string(in.size) + " there are");
  }
  constexpr uint64_t kNarrowRows = uint64_t{1} << 32;
  if (layout.value_bytes == 4 && !in.values && (in.size > kNarrowRows || in.first_value > kNarrowRows - in.size)) {
    throw Error(ErrorCode::not_supported, "Row numbers past 2^32 need 8-byte values");
  }
}

SortedRun allocate_run(Engine& engine, TupleLayout layout, uint64_t size) {
  SortedRun run{layout, size, {}, {}, 0};
  run.keys = engine.memory->allocate(size * layout.key_bytes, "the keys of a sorted run");
  if (layout.value_bytes) run.values = engine.memory->allocate(size * layout.value_bytes, "the values of a sorted run");
  return run;
}

// Writes `size` keys ^ flip to `to`, which may be `from`.
void flip_keys(Engine& engine, TupleLayout layout, const void* from, void* to, uint64_t size, uint64_t flip, Job& job) {
  PhaseTimer timer(job, "flip", 2 * size * layout.key_bytes);
  const auto flip_all = [&]<class Key>(const Key* source, Key* target) {
    engine.pool.for_blocks(size, 1 << 16, job, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) target[i] = source[i] ^ static_cast<Key>(flip);
    });
  };
  if (layout.key_bytes == 4) {
    flip_all(static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to));
  } else {
    flip_all(static_cast<const uint64_t*>(from), static_cast<uint64_t*>(to));
  }
}

// Flips the keys of a run, from ascending as they are to ascending by key ^ flip or back.
void flip_run(Engine& engine, SortedRun& run, uint64_t flip, Job& job) {
  flip_keys(engine, run.layout, run.keys.data(), run.keys.data(), run.size, flip, job);
  run.flip ^= flip;
}

// The bits that vary in the chunks that have arrived.
uint64_t find_varying_bits(ChunkLanes& lanes, const TupleView& in) {
  const uint64_t first_key =
      lanes.layout.key_bytes == 4 ? *static_cast<const uint32_t*>(in.keys) : *static_cast<const uint64_t*>(in.keys);
  for (size_t i = 0; i < lanes.size(); ++i) {
    Lane& lane = lanes[i];
    lane.results.assign({first_key, 0});
    lane.primitives().varying_bits(lanes.layout, lane.in, &lane.results[0], &lane.results[1], lanes.job,
                                   lane.stream(sorting::kCompute));
  }
  lanes.wait(sorting::kCompute);
  uint64_t bits = 0;
  for (size_t i = 0; i < lanes.size(); ++i) bits |= lanes[i].results[1];
  return bits;
}

}  // namespace

bool sort_spills(uint64_t tuples, uint64_t chunkset, const std::vector<int>& devices, Engine& engine) {
  const std::vector<Device*> selected = engine.select(devices);
  return sorting::runnable(SortAlgorithm::sample, engine, selected) == SortAlgorithm::sample &&
         sorting::can_spill(selected, tuples, chunkset);
}

std::vector<SortedRun> sort_chunksets(Engine& engine, TupleLayout layout, TupleView in, uint64_t varying_bits,
                                      const SortPlan& plan, Job& job) {
  check_plan(plan, layout, in);
  const std::vector<Device*> devices = engine.select(plan.devices);
  job.check();

  std::vector<TupleView> parts;
  uint64_t largest = 0, begin = 0;
  for (const uint64_t end : plan.chunkset_ends) {
    parts.push_back(in.slice(layout, begin, end));
    largest = std::max(largest, end - begin);
    begin = end;
  }
  if (parts.empty()) parts.push_back(in);

  std::vector<SortedRun> runs;  // before the lanes: their streams write to it
  if (in.size == 0) {
    for (size_t c = 0; c < parts.size(); ++c) runs.push_back(allocate_run(engine, layout, 0));
    return runs;
  }
  const SortAlgorithm algorithm = sorting::runnable(plan.algorithm, engine, devices);
  // What devices are sent, or what was partitioned by range, may vary elsewhere than the keys did when they were looked at.
  const bool in_place = all_address_host_memory(devices);
  if (plan.borrowed && (algorithm == SortAlgorithm::sample || !in_place)) varying_bits = ~uint64_t{0};
  if (plan.flip != 0 && algorithm != SortAlgorithm::sample) {
    const HostBuffer flipped = engine.memory->allocate(in.size * layout.key_bytes, "flipped keys");
    flip_keys(engine, layout, in.keys, flipped.data(), in.size, plan.flip, job);
    in.keys = flipped.data();
    runs = sort_chunksets(engine, layout, in, varying_bits,
                          {.algorithm = algorithm, .devices = plan.devices, .chunkset_ends = plan.chunkset_ends}, job);
    for (SortedRun& run : runs) flip_run(engine, run, plan.flip, job);
    return runs;
  }
  if (algorithm == SortAlgorithm::sample) {
    job.add_planned(2 * in.size);
    if (parts.size() > 1 && plan.spill && sorting::can_spill(devices, in.size, largest)) {
      runs.push_back(allocate_run(engine, layout, in.size));
      sorting::spilled_sample_sort(engine, layout, devices, in, plan.flip, plan.chunkset_ends, runs.back().span(), varying_bits,
                                   job);
      runs.back().flip = plan.flip;
      return runs;
    }
    for (const TupleView& part : parts) {
      runs.push_back(allocate_run(engine, layout, part.size));
      if (part.size) sorting::sample_sort(engine, layout, devices, part, plan.flip, runs.back().span(), varying_bits, job);
      runs.back().flip = plan.flip;
    }
    return runs;
  }
  const bool one_step = algorithm == SortAlgorithm::merge && devices.size() == 1;
  job.add_planned(one_step ? in.size : 2 * in.size);

  ChunkLanes lanes(engine, layout, devices, largest, algorithm, job);
  const uint64_t key_mask = layout.key_bytes == 4 ? UINT32_MAX : UINT64_MAX;
  lanes.move(parts[0]);
  for (size_t c = 0; c < parts.size(); ++c) {
    const TupleView& part = parts[c];
    const TupleView next = c + 1 < parts.size() ? parts[c + 1] : TupleView{};
    runs.push_back(allocate_run(engine, layout, part.size));
    if (part.size == 0) {
      lanes.move(next);
      continue;
    }
    Chunkset set{part, runs.back().span(), varying_bits & key_mask, next, plan.borrowed && in_place};
    if (set.varying_bits == key_mask) {
      PhaseTimer timer(job, "sort", part.size * layout.key_bytes);
      set.varying_bits = find_varying_bits(lanes, part);
    }
    algorithm == SortAlgorithm::merge ? merge_sort(lanes, set) : radix_sort(lanes, set);
    if (set.doubtful && parts.size() > 1) sorting::require_sorted(lanes, runs.back().view());
  }
  return runs;
}

SortedRun cut_run(SortedRun run, uint64_t begin, uint64_t end) {
  const auto cut = [&](HostBuffer& buffer, size_t width) {
    if (!buffer) return;
    if (begin) std::memmove(buffer.data(), buffer.as<char>() + begin * width, (end - begin) * width);
    buffer.shrink((end - begin) * width);
  };
  cut(run.keys, run.layout.key_bytes);
  cut(run.values, run.layout.value_bytes);
  run.size = end - begin;
  return run;
}

SortedRun copy_run(Engine& engine, TupleLayout layout, TupleView sorted, uint64_t flip, Job& job) {
  job.add_planned(sorted.size);
  PhaseTimer timer(job, "copy", 2 * sorted.size * layout.tuple_bytes());
  SortedRun run = allocate_run(engine, layout, sorted.size);
  run.flip = flip;
  engine.pool.for_blocks(sorted.size, 1 << 16, job, [&](uint64_t begin, uint64_t end) {
    const TupleView from = sorted.slice(layout, begin, end);
    const TupleSpan to = run.span().slice(layout, begin, end);
    std::memcpy(to.keys, from.keys, from.size * layout.key_bytes);
    if (from.values && layout.value_bytes) {
      std::memcpy(to.values, from.values, from.size * layout.value_bytes);
    } else if (layout.value_bytes == 4) {
      std::iota(static_cast<uint32_t*>(to.values), static_cast<uint32_t*>(to.values) + from.size,
                static_cast<uint32_t>(from.first_value));
    } else if (layout.value_bytes == 8) {
      std::iota(static_cast<uint64_t*>(to.values), static_cast<uint64_t*>(to.values) + from.size, from.first_value);
    }
  });
  job.add_done(sorted.size);
  return run;
}

size_t merge_scratch_bytes(TupleLayout layout, uint64_t tuples, size_t runs, Engine& engine) {
  const auto host = create_host_device(0, engine.memory->limit_bytes(), engine.memory, engine.pool);
  return host->primitives().merge_scratch_bytes(layout, runs, tuples);
}

SortedRun merge_runs(Engine& engine, std::vector<SortedRun> runs, Job& job) {
  if (runs.empty()) return {};
  if (runs.size() == 1) return std::move(runs.front());
  const TupleLayout layout = runs.front().layout;
  const uint64_t flip = runs.front().flip;
  uint64_t size = 0;
  std::vector<TupleView> views;
  for (SortedRun& run : runs) {
    if (run.layout != layout || run.flip != flip) throw Error(ErrorCode::internal, "Runs of different orders cannot be merged");
    if (flip != 0) flip_run(engine, run, flip, job);
    size += run.size;
    views.push_back(run.view());
  }
  job.add_planned(size);
  PhaseTimer timer(job, "merge", 2 * size * layout.tuple_bytes());
  SortedRun merged = allocate_run(engine, layout, size);
  // A phase of the CPU whatever the devices are.
  const auto host = create_host_device(0, engine.memory->limit_bytes(), engine.memory, engine.pool);
  const HostBuffer scratch =
      engine.memory->allocate(host->primitives().merge_scratch_bytes(layout, views.size(), size), "merging sorted runs");
  const auto stream = host->create_stream();
  host->primitives().merge(layout, views, merged.span(), scratch.data(), job, *stream);
  stream->synchronize();
  if (flip != 0) flip_run(engine, merged, flip, job);
  job.add_done(size);
  return merged;
}

}  // namespace warpjoin
