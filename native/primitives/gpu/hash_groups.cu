// Hash joins of tuples that devices group where they lie: the first of the two passes, and at the owners of the groups the second
// and the match.
#include <algorithm>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/hash_match.h"
#include "primitives/gpu/hash_split.h"

namespace warpjoin {

using gpu::GpuHashMatch;
using gpu::kThreads;

HashGrouping GpuPrimitives::hash_grouping(TupleLayout build, uint64_t build_size, size_t devices, uint32_t parts) const {
  const uint32_t entry_bytes = gpu::table_entry_bytes(build);
  if (gpu::small_table_slots(build_size / parts, entry_bytes)) return {};
  // As many partitions on each device as it would make by itself, and groups so that their shares are even.
  const auto owner_bits = static_cast<unsigned>(std::bit_width(devices - 1));
  const unsigned bits = owner_bits + gpu::partition_bits(build_size, entry_bytes);
  const unsigned group_bits = std::max(bits / 2, static_cast<unsigned>(std::bit_width(16 * devices - 1)));
  if (group_bits > gpu::kPassBits || bits <= group_bits || bits - group_bits > gpu::kPassBits) return {};
  return {group_bits, bits};
}

uint32_t GpuPrimitives::grouped_tuple_bytes(TupleLayout layout) const { return gpu::hash_tuples(layout, nullptr).stride; }

uint64_t GpuPrimitives::grouped_rows(TupleLayout layout, uint64_t size, HashGrouping grouping) const {
  return gpu::hash_group_rows(layout, size, grouping.group_bits);
}

size_t GpuPrimitives::hash_group_scratch_bytes(HashGrouping grouping) const {
  id_.select();
  return gpu::hash_group_scratch_bytes(grouping.group_bits, id_.name);
}

void GpuPrimitives::hash_group(TupleLayout layout, TupleView in, HashGrouping grouping, void* out, uint32_t* host_begins,
                               uint32_t* host_ends, void* scratch, const Job& job, Stream& stream) {
  job.check();
  id_.select();
  const gpu_stream_t on = raw(stream);
  const gpu::GroupBounds bounds = gpu::hash_group(layout, in, grouping.group_bits, out, scratch, on, id_.name);
  const uint32_t groups = grouping.groups();
  ResultSlots::Slot& slot = results_.acquire(2 * groups * sizeof(uint32_t), on);
  auto* const found = slot.as<uint32_t>();
  gpu::copy_few<<<1, kThreads, 0, on>>>(found, bounds.begins, groups);
  gpu::copy_few<<<1, kThreads, 0, on>>>(found + groups, bounds.ends, groups);
  check_launch("copy_few");
  results_.finish(slot, [=] {
    std::copy_n(found, groups, host_begins);
    std::copy_n(found + groups, groups, host_ends);
  });
}

void GpuPrimitives::split_groups(GpuHashMatch& match, gpu::HashSide& side, const GroupedTuples& tuples, HashGrouping grouping,
                                 gpu_stream_t on) {
  const size_t stretches = tuples.stretches();
  if (stretches == 0) {
    GPU_CHECK(id_.name, gpu_memset_async(side.offsets, 0, (match.partitions() + 1) * sizeof(uint32_t), on));
    return;
  }
  ResultSlots::Slot& slot = results_.acquire(2 * stretches * sizeof(uint32_t), on);
  uint32_t *host = slot.as<uint32_t>(), *device = match.bounds;
  std::vector<gpu::GroupRun> runs;
  for (const GroupedTuples::Fragment& fragment : tuples.fragments) {
    const auto count = static_cast<uint32_t>(fragment.begins.size());
    runs.push_back({fragment.tuples, count, {device, device + count}, fragment.ends.back()});
    host = std::copy(fragment.begins.begin(), fragment.begins.end(), host);
    host = std::copy(fragment.ends.begin(), fragment.ends.end(), host);
    device += 2 * count;
  }
  gpu::copy_few<<<1, kThreads, 0, on>>>(match.bounds, slot.as<uint32_t>(), static_cast<unsigned>(2 * stretches));
  check_launch("copy_few");
  results_.finish(slot, [] {});
  gpu::hash_split_groups(side.layout, runs, tuples.groups, grouping.group_bits, grouping.bits, side.tuples, side.offsets,
                         match.split.split_scratch, on, id_.name);
}

std::unique_ptr<HashMatch> GpuPrimitives::match_groups(const GroupedTuples& build, const GroupedTuples& probe,
                                                       HashGrouping grouping, bool count_only,
                                                       const std::optional<JoinOutput>& out, void* scratch, const Job& job,
                                                       Stream& stream) {
  job.check();
  id_.select();
  const gpu::GroupCut cut{grouping, build.first_group, build.groups, std::max(build.stretches(), probe.stretches())};
  auto match =
      std::make_unique<GpuHashMatch>(build.layout, build.size, probe.layout, probe.size, count_only, &cut, scratch, id_.name);
  if (out && hash_match_writes(build.layout, probe.layout)) {
    match->out = *out;
    match->most_written = probe.size;
  }
  const gpu_stream_t on = raw(stream);
  split_groups(*match, match->build, build, grouping, on);
  split_groups(*match, match->probe, probe, grouping, on);
  match->probe_hashed = true;
  match_tables(*match, on);
  return match;
}

size_t GpuPrimitives::match_groups_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size,
                                                 HashGrouping grouping, uint32_t groups, size_t devices, bool count_only) const {
  id_.select();
  const gpu::GroupCut cut{grouping, 0, groups, groups * devices};
  return GpuHashMatch(build, build_size, probe, probe_size, count_only, &cut, nullptr, id_.name).bytes;
}

}  // namespace warpjoin
