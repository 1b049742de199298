// Resident relations whose tuples are grouped by hash where they lie: the first of the passes that their match would make comes
// before the exchange, which has no pass of its own then.
#include <algorithm>
#include <utility>

#include "core/sharding.h"
#include "join/exchange.h"
#include "join/rows_home.h"

namespace warpjoin {
namespace {

/// Grouped tuples as they travel: whole.
TupleLayout whole(TupleLayout layout, const HashGroups& groups) {
  return {static_cast<uint8_t>(groups.grouped_tuple_bytes(layout)), 0};
}

/// How to group for such a join, if the device can and it is not too small for that.
HashGrouping grouping_for(Device& device, TupleLayout build, uint64_t build_rows, size_t devices, HashCut cut) {
  HashGroups* const groups = device.primitives().hash_groups();
  return groups && devices > 1 && !cut.replicate ? groups->hash_grouping(build, build_rows / devices, devices, cut.parts)
                                                 : HashGrouping();
}

/// The first group of one of device i's parts; part == parts gives the end.
uint32_t part_begin(HashGrouping grouping, size_t devices, size_t i, size_t part, size_t parts) {
  const uint64_t first = share_begin(grouping.groups(), devices, i), last = share_begin(grouping.groups(), devices, i + 1);
  return static_cast<uint32_t>(first + share_begin(last - first, parts, part));
}

}  // namespace

size_t grouped_bytes(Device& device, const OfSides<SideRows>& sides, uint64_t build_rows, size_t devices, HashCut cut,
                     bool count_only) {
  const auto& [build, probe] = sides;
  const HashGrouping grouping = grouping_for(device, build.layout, build_rows, devices, cut);
  if (grouping.group_bits == 0) return 0;
  const HashGroups& groups = *device.primitives().hash_groups();
  const auto bytes = [&](uint64_t SideRows::*rows) {
    size_t sum = 0;
    for (const SideRows& side : sides) {
      sum += OwnedTuples::bytes(whole(side.layout, groups), groups.grouped_rows(side.layout, side.*rows, grouping));
    }
    return sum;
  };
  const size_t match = groups.match_groups_scratch_bytes(
      build.layout, build.joined / cut.parts + 1, probe.layout, probe.joined / cut.parts + 1, grouping,
      grouping.groups() / static_cast<uint32_t>(devices) / cut.parts + 1, devices, count_only);
  return bytes(&SideRows::share) + StackAllocator::aligned(groups.hash_group_scratch_bytes(grouping)) + bytes(&SideRows::joined) +
         cut.parts * StackAllocator::aligned(match) + (count_only ? 0 : kLeastStagedBytes);
}

TupleLayout Exchange::sent_layout(const Side& side) const {
  return form_.grouped() ? whole(side.rows.layout, *lanes_[0].primitives().hash_groups()) : side.rows.layout;
}

/// Groups both relations and sends the groups to their owners. False, with nothing changed, where that is not to be done, there
/// is no room for it, or a device would join many more tuples than the mean.
bool Exchange::bring_grouped() {
  if (!plan_groups()) return false;
  const PhaseTimer timer(job_, "partition", 2 * bytes());
  group_chunks();
  if (!place_groups()) {
    form_.grouping = {};
    set_parts(planned_parts());
    for (Lane& lane : lanes_) {
      lane.free_chunks();
      for (Side& side : lane.sides) side.forget_received();
    }
    return false;
  }
  for (size_t p = 0; p < parts(); ++p) {
    send(kBuild, p, p + 1);
    send(kProbe, p, p + 1);
    record_sent(p);
  }
  return true;
}

/// Decides on the groups. False where there are to be none, or no room for them.
bool Exchange::plan_groups() {
  if (!resident()) return false;
  const uint64_t build_rows = relations_[kBuild].size();
  for (const Lane& lane : lanes_) {
    form_.grouping = grouping_for(*lane.device, form_.layouts[kBuild], build_rows, lanes_.size(), cut_);
    const OfSides<SideRows> rows{lane.sides[kBuild].rows, lane.sides[kProbe].rows};
    const size_t bytes = grouped_bytes(*lane.device, rows, build_rows, lanes_.size(), cut_, form_.count_only);
    const uint64_t most = std::max(rows[kBuild].share, rows[kProbe].share);
    if (!form_.grouped() || most >= UINT32_MAX || bytes > lane.memory().room_bytes()) {
      form_.grouping = {};
      return false;
    }
  }
  return true;
}

void Exchange::group_chunks() {
  engine_.pool.parallel_for(lanes_.size(), [&](uint64_t d) {
    Lane& lane = lanes_[d];
    HashGroups& groups = *lane.primitives().hash_groups();
    lane.scratch = allocate(lane.memory(), groups.hash_group_scratch_bytes(form_.grouping));
    for (const SideIndex s : {kBuild, kProbe}) {
      Side& side = lane.sides[s];
      const TupleLayout layout = form_.layouts[s];
      const TupleView& chunk = relations_[s].views[d];
      side.chunk = OwnedTuples(lane.memory(), sent_layout(side), groups.grouped_rows(layout, chunk.size, form_.grouping));
      side.group_begins.resize(form_.grouping.groups());
      side.group_ends.resize(form_.grouping.groups());
      groups.hash_group(layout, chunk, form_.grouping, side.chunk.keys.data(), side.group_begins.data(), side.group_ends.data(),
                        lane.scratch.data(), job_, lane.stream(kCut));
    }
  });
  lanes_.wait(job_, kCut);
  for (Lane& lane : lanes_) lane.scratch = Buffer();
}

bool Exchange::place_groups() {
  for (const SideIndex side : {kBuild, kProbe}) {
    for (Lane& lane : lanes_) lane.sides[side].parcels.resize(parts() + 1);
    for (size_t owner = 0; owner < lanes_.size(); ++owner) {
      if (!place_groups(side, owner)) return false;
    }
  }
  return has_room_for_parts();
}

/// Gives each group its place at its owner, part by part: what is there already stays. False where that would have too much.
bool Exchange::place_groups(SideIndex side, size_t owner) {
  Lane& at = lanes_[owner];
  Side& to = at.sides[side];
  const TupleLayout layout = sent_layout(to);
  struct Stretch {
    Side* from;
    size_t part;
    uint64_t source, target, rows;
  };
  std::vector<Stretch> stretches;
  std::vector<uint64_t> begins;  // of each part, among the rows received
  uint64_t received = 0;
  to.size = 0;
  for (size_t p = 0; p < parts(); ++p) {
    const uint32_t first = part_begin(form_.grouping, lanes_.size(), owner, p, parts());
    const uint32_t last = part_begin(form_.grouping, lanes_.size(), owner, p + 1, parts());
    JoinPart::Side& part = at.parts[p].sides[side];
    part.grouped = {to.rows.layout, first, last - first, std::vector<GroupedTuples::Fragment>(2), 0};
    GroupedTuples::Fragment &here = part.grouped.fragments[0], &others = part.grouped.fragments[1];
    begins.push_back(received);
    for (Lane& sender : lanes_) {
      Side& from = sender.sides[side];
      const bool stays = &from == &to;
      GroupedTuples::Fragment& fragment = stays ? here : others;
      const uint64_t source = from.group_begins[first], rows = from.group_ends[last - 1] - source;
      const uint64_t begin = stays ? 0 : received - begins[p];
      for (uint32_t group = first; group < last; ++group) {
        part.size += from.group_ends[group] - from.group_begins[group];
        fragment.begins.push_back(static_cast<uint32_t>(begin + from.group_begins[group] - source));
        fragment.ends.push_back(static_cast<uint32_t>(begin + from.group_ends[group] - source));
      }
      if (stays) {
        here.tuples = to.chunk.span.slice(layout, source, source + rows).keys;
      } else {
        stretches.push_back({&from, p, source, received, rows});
        received += rows;
      }
    }
    if (received - begins[p] > UINT32_MAX) return false;
    part.grouped.size = part.size;
    to.size += part.size;
  }
  if (to.size > to.rows.joined) return false;
  if (OwnedTuples::bytes(layout, received) > at.memory().room_bytes()) return false;
  to.received = OwnedTuples(at.memory(), layout, received);
  const TupleSpan& room = to.received.span;
  for (size_t p = 0; p < parts(); ++p) {
    at.parts[p].sides[side].grouped.fragments[1].tuples = room.slice(layout, begins[p], received).keys;
  }
  for (const Stretch& stretch : stretches) {
    if (stretch.rows == 0) continue;
    stretch.from->parcels[stretch.part].push_back(
        {owner, room.slice(layout, stretch.target, stretch.target + stretch.rows),
         stretch.from->chunk.span.slice(layout, stretch.source, stretch.source + stretch.rows)});
  }
  return true;
}

}  // namespace warpjoin
