#include <algorithm>
#include <optional>

#include "join/match_parts.h"

namespace warpjoin {
namespace {

/// Where the sorted relations are cut: parts to join on devices, and after part i the match range of the key at the
/// cut, found beforehand.
struct MergePath {
  std::vector<MergePart> parts;
  std::vector<MatchRange> at_cut;  // parts - 1; empty ranges where the key is on one side alone
};

/// Cuts at equidistant points of the merge path (3.3.1), forwards whatever the keys are: those of a side that is joined where it
/// lies may change meanwhile. The key at each cut is taken out of both relations, all its
/// rows, and its match range stored at once: no key straddles two parts, no part is larger than its share, and one key
/// everywhere leaves nothing but its range.
template <class Key>
MergePath cut_path(TupleView build, TupleView probe, uint64_t parts) {
  const Key* const r = static_cast<const Key*>(build.keys);
  const Key* const s = static_cast<const Key*>(probe.keys);
  const uint64_t all = build.size + probe.size;
  MergePath path;
  MergePart part;
  std::optional<Key> last;
  for (uint64_t i = 1; i < parts; ++i) {
    const uint64_t rank = all / parts * i + std::min(i, all % parts);
    uint64_t low = rank > probe.size ? rank - probe.size : 0, high = std::min(rank, build.size);
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (r[middle] <= s[rank - 1 - middle]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const uint64_t b = low, p = rank - low;
    if (b == build.size && p == probe.size) break;
    const Key key = b == build.size ? s[p] : p == probe.size ? r[b] : std::min(r[b], s[p]);
    if (last == key) {  // all of it is out already
      path.parts.push_back({part.build_begin, part.build_begin, part.probe_begin, part.probe_begin});
      path.at_cut.push_back({});
      continue;
    }
    last = key;
    const auto [build_first, build_last] = std::equal_range(r + part.build_begin, r + build.size, key);
    const auto [probe_first, probe_last] = std::equal_range(s + part.probe_begin, s + probe.size, key);
    const MatchRange at{static_cast<uint64_t>(build_first - r), static_cast<uint64_t>(build_last - r),
                        static_cast<uint64_t>(probe_first - s), static_cast<uint64_t>(probe_last - s)};
    path.parts.push_back({part.build_begin, at.build_begin, part.probe_begin, at.probe_begin});
    path.at_cut.push_back(at);
    part = {at.build_end, 0, at.probe_end, 0};
  }
  path.parts.push_back({part.build_begin, build.size, part.probe_begin, probe.size});
  return path;
}

/// The largest part that cut_path gives.
uint64_t part_rows(uint64_t build_rows, uint64_t probe_rows, uint64_t parts) {
  const uint64_t all = build_rows + probe_rows;
  return all / parts + (all % parts != 0);
}

/// Where keys cross a link, more subpartitions than asked for keep it busy.
size_t subpartitions_of(uint32_t asked, uint64_t rows, uint8_t key_bytes, const std::vector<Device*>& on, size_t devices) {
  return all_address_host_memory(on) ? asked : std::max<size_t>(asked, parts_beyond_link(rows, key_bytes, devices));
}

JoinRows join_tuples(Engine& engine, TupleView left, TupleView right, const JoinKeys& keys, const JoinRequest& request,
                     const MergeJoinPlan& plan, Job& job) {
  const std::vector<Device*> devices = engine.select(plan.devices);
  if (devices.empty()) throw Error(ErrorCode::option, "A merge join needs at least one device");
  if (plan.subpartitions < kLeastSubpartitions) {
    throw Error(ErrorCode::option,
                "Subpartitions of a merge join: expected at least 3 but received " + std::to_string(plan.subpartitions));
  }
  const TupleLayout left_layout = keys.left.tuples.layout, right_layout = keys.right.tuples.layout;
  const SortedSides sides = request.build_left ? SortedSides{left_layout, left, right_layout, right}
                                               : SortedSides{right_layout, right, left_layout, left};
  const TupleView &build = sides.build, &probe = sides.probe;
  const uint8_t key_bytes = left_layout.key_bytes;
  job.add_planned(2 * (build.size + probe.size));
  const size_t per_device = subpartitions_of(plan.subpartitions, build.size + probe.size, key_bytes, devices, devices.size());
  const size_t parts = devices.size() * per_device;
  MergePath path;
  std::vector<MatchList> lists;
  double skew = 1;
  {
    const PhaseTimer timer(job, "match", (build.size + probe.size) * key_bytes);
    path = key_bytes == 4 ? cut_path<uint32_t>(build, probe, parts) : cut_path<uint64_t>(build, probe, parts);
    PartMatches found = match_parts(engine, devices, sides, path.parts, per_device, part_rows(build.size, probe.size, parts),
                                    request.count_only, job);
    skew = found.skew;
    for (size_t i = 0; i < found.lists.size(); ++i) {
      lists.push_back(std::move(found.lists[i]));
      if (i == path.at_cut.size()) continue;
      const MatchRange& at = path.at_cut[i];
      job.add_done(at.build_end - at.build_begin + at.probe_end - at.probe_begin);
      if (at.build_begin == at.build_end || at.probe_begin == at.probe_end) continue;
      MatchList& list = lists.emplace_back();
      list.ranges = engine.memory->allocate(sizeof(MatchRange), "the match ranges of a merge join");
      *list.ranges.as<MatchRange>() = at;
      list.count = 1;
    }
  }
  JoinRows rows = rows_of_matches(engine, keys, request, left, right, std::move(lists), job);
  rows.skew = skew;
  return rows;
}

}  // namespace

JoinRows merge_join(Engine& engine, TupleView left, TupleView right, const JoinKeys& keys, const JoinRequest& request,
                    const MergeJoinPlan& plan, Job& job) {
  check_request(keys, request);
  return naming_columns({&keys.left.tuples, &keys.right.tuples},
                        [&] { return join_tuples(engine, left, right, keys, request, plan, job); });
}

size_t merge_join_device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                               uint32_t subpartitions, Engine& engine) {
  std::vector<Device*> all;
  for (const auto& device : engine.devices) all.push_back(device.get());
  const size_t per_device = subpartitions_of(subpartitions, build_rows + probe_rows, build.key_bytes, all, devices);
  const uint64_t rows = part_rows(build_rows, probe_rows, devices * per_device);
  // Host devices match the keys where they are: what counts is how many are at work.
  if (all_address_host_memory(all)) return kLeastSubpartitions * StackAllocator::aligned(rows * build.key_bytes);
  size_t most = 0;
  for (Device* device : all) most = std::max(most, match_parts_bytes(*device, build, probe, rows));
  return most;
}

}  // namespace warpjoin
