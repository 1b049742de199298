// Resident relations whose tuples are grouped by hash where they lie: the first of the passes that their match would make comes
// before the exchange, which has no pass of its own then.
#include <algorithm>
#include <utility>

#include "device/streams.h"
#include "join/local_joins_parts.h"

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

size_t grouped_bytes(Device& device, const SideRows& build, const SideRows& probe, uint64_t build_rows, size_t devices,
                     HashCut cut, bool count_only) {
  const HashGrouping grouping = grouping_for(device, build.layout, build_rows, devices, cut);
  if (grouping.group_bits == 0) return 0;
  const HashGroups& groups = *device.primitives().hash_groups();
  const auto bytes = [&](uint64_t SideRows::*rows) {
    size_t sum = 0;
    for (const SideRows* side : {&build, &probe}) {
      sum += OwnedTuples::bytes(whole(side->layout, groups), groups.grouped_rows(side->layout, side->*rows, grouping));
    }
    return sum;
  };
  const size_t match = groups.match_groups_scratch_bytes(
      build.layout, build.joined / cut.parts + 1, probe.layout, probe.joined / cut.parts + 1, grouping,
      grouping.groups() / static_cast<uint32_t>(devices) / cut.parts + 1, devices, count_only);
  return bytes(&SideRows::share) + StackAllocator::aligned(groups.hash_group_scratch_bytes(grouping)) + bytes(&SideRows::joined) +
         cut.parts * StackAllocator::aligned(match) + (count_only ? 0 : kLeastStagedBytes);
}

TupleLayout LocalJoins::sent_layout(const Side& side) const {
  return grouped() ? whole(side.rows.layout, *locals_[0]->device->primitives().hash_groups()) : side.rows.layout;
}

/// Groups both relations and sends the groups to their owners. False, with nothing changed, where that is not to be done, there
/// is no room for it, or a device would join many more tuples than the mean.
bool LocalJoins::bring_grouped() {
  if (!plan_groups()) return false;
  const PhaseTimer timer(job_, "partition", 2 * (build_.bytes() + probe_.bytes()));
  group_chunks();
  if (!place_groups()) {
    grouping_ = {};
    for (const auto& local : locals_) {
      local->free_chunk();
      for (Side* side : local->sides()) {
        side->received = OwnedTuples();
        side->parts.clear();
        side->parcels.clear();
      }
    }
    return false;
  }
  for (size_t p = 0; p < parts_; ++p) {
    send(&Local::build, p, p + 1);
    send(&Local::probe, p, p + 1);
    for (const auto& local : locals_) local->sends->record(*local->sent[p]);
  }
  return true;
}

/// Decides on the groups. False where there are to be none, or no room for them.
bool LocalJoins::plan_groups() {
  if (!resident()) return false;
  for (const auto& local : locals_) {
    Device& device = *local->device;
    grouping_ = grouping_for(device, build_.layout, build_.size(), locals_.size(), cut_);
    const size_t bytes =
        grouped_bytes(device, local->build.rows, local->probe.rows, build_.size(), locals_.size(), cut_, count_only_);
    const uint64_t most = std::max(local->build.rows.share, local->probe.rows.share);
    if (!grouped() || most >= UINT32_MAX || bytes > device.memory().room_bytes()) {
      grouping_ = {};
      return false;
    }
  }
  return true;
}

void LocalJoins::group_chunks() {
  std::vector<Stream*> streams;
  for (const auto& local : locals_) streams.push_back(local->stream.get());
  engine_.pool.parallel_for(locals_.size(), [&](uint64_t d) {
    Local& local = *locals_[d];
    HashGroups& groups = *local.device->primitives().hash_groups();
    local.partition_scratch = allocate(local.device->memory(), groups.hash_group_scratch_bytes(grouping_));
    for (const auto& [side, relation] : {std::pair(&local.build, &build_), std::pair(&local.probe, &probe_)}) {
      const TupleView& chunk = relation->views[d];
      side->chunk =
          OwnedTuples(local.device->memory(), sent_layout(*side), groups.grouped_rows(relation->layout, chunk.size, grouping_));
      side->group_begins.resize(grouping_.groups());
      side->group_ends.resize(grouping_.groups());
      groups.hash_group(relation->layout, chunk, grouping_, side->chunk.keys.data(), side->group_begins.data(),
                        side->group_ends.data(), local.partition_scratch.data(), job_, *local.stream);
    }
  });
  synchronize_all(streams);
  job_.check();
  for (const auto& local : locals_) local->partition_scratch = Buffer();
}

bool LocalJoins::place_groups() {
  for (Side Local::*side : {&Local::build, &Local::probe}) {
    for (const auto& local : locals_) ((*local).*side).parcels.resize(parts_ + 1);
    for (size_t owner = 0; owner < locals_.size(); ++owner) {
      if (!place_groups(side, owner)) return false;
    }
  }
  return has_room_for_parts();
}

/// Gives each group its place at its owner, part by part: what is there already stays. False where that would have too much.
bool LocalJoins::place_groups(Side Local::*side, size_t owner) {
  Side& to = (*locals_[owner]).*side;
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
  to.parts.resize(parts_);
  for (size_t p = 0; p < parts_; ++p) {
    const uint32_t first = part_begin(grouping_, locals_.size(), owner, p, parts_);
    const uint32_t last = part_begin(grouping_, locals_.size(), owner, p + 1, parts_);
    Side::Part& part = to.parts[p];
    part.grouped = {to.rows.layout, first, last - first, std::vector<GroupedTuples::Fragment>(2), 0};
    GroupedTuples::Fragment &here = part.grouped.fragments[0], &others = part.grouped.fragments[1];
    begins.push_back(received);
    for (const auto& sender : locals_) {
      Side& from = (*sender).*side;
      const bool stays = &from == &to;
      GroupedTuples::Fragment& fragment = stays ? here : others;
      const uint64_t source = from.group_begins[first], rows = from.group_ends[last - 1] - source;
      const uint64_t at = stays ? 0 : received - begins[p];
      for (uint32_t group = first; group < last; ++group) {
        part.size += from.group_ends[group] - from.group_begins[group];
        fragment.begins.push_back(static_cast<uint32_t>(at + from.group_begins[group] - source));
        fragment.ends.push_back(static_cast<uint32_t>(at + from.group_ends[group] - source));
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
  Device& device = *locals_[owner]->device;
  if (OwnedTuples::bytes(layout, received) > device.memory().room_bytes()) return false;
  to.received = OwnedTuples(device.memory(), layout, received);
  const TupleSpan& room = to.received.span;
  for (size_t p = 0; p < parts_; ++p) to.parts[p].grouped.fragments[1].tuples = room.slice(layout, begins[p], received).keys;
  for (const Stretch& stretch : stretches) {
    if (stretch.rows == 0) continue;
    stretch.from->parcels[stretch.part].push_back(
        {owner, room.slice(layout, stretch.target, stretch.target + stretch.rows),
         stretch.from->chunk.span.slice(layout, stretch.source, stretch.source + stretch.rows)});
  }
  return true;
}

}  // namespace warpjoin
