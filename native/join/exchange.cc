#include "join/exchange.h"

#include <algorithm>
#include <utility>

#include "core/sharding.h"
#include "device/streams.h"
#include "join/rows_home.h"

namespace warpjoin {
namespace {

Digit partition_digit(HashCut cut) {
  return {static_cast<uint8_t>(64 - cut.partition_bits), static_cast<uint8_t>(cut.partition_bits), true};
}

/// The first partition that device i owns; i == devices gives the end.
uint32_t partition_begin(HashCut cut, size_t devices, size_t i) {
  return static_cast<uint32_t>(share_begin(uint64_t{1} << cut.partition_bits, devices, i));
}

/// The first partition of one of device i's parts; part == parts gives the end.
uint32_t part_begin(HashCut cut, size_t devices, size_t i, size_t part, size_t parts) {
  const uint32_t first = partition_begin(cut, devices, i), last = partition_begin(cut, devices, i + 1);
  return first + static_cast<uint32_t>(share_begin(last - first, parts, part));
}

/// Into how many partitions device i's tuples are cut for its match.
uint32_t partitions_of(HashCut cut, size_t devices, size_t i, Device& device) {
  if (cut.replicate || cuts_by_itself(device)) return 1;
  return partition_begin(cut, devices, i + 1) - partition_begin(cut, devices, i);
}

/// Bytes of device memory: tuples on their way to one of `devices`, and what it joins.
size_t exchange_bytes(Device& device, const OfSides<SideRows>& sides, uint32_t partitions, size_t devices, HashCut cut,
                      bool count_only, bool resident) {
  Primitives& primitives = device.primitives();
  const SideRows &build = sides[kBuild], &probe = sides[kProbe];
  const auto both = [&](uint64_t SideRows::*rows) {
    return OwnedTuples::bytes(build.layout, build.*rows) + OwnedTuples::bytes(probe.layout, probe.*rows);
  };
  const size_t share = both(&SideRows::share), joined = both(&SideRows::joined);
  const bool stages = !device.addresses_host_memory() && !count_only;
  const size_t leave = (stages ? std::clamp(joined, kLeastStagedBytes, kPlannedStagedBytes) : 0) +
                       StackAllocator::aligned(primitives.hash_match_scratch_bytes(build.layout, build.joined, probe.layout,
                                                                                   probe.joined, partitions, count_only));
  if (cut.replicate) return (resident && devices > 1 ? OwnedTuples::bytes(build.layout, build.share) : 0) + leave;
  const Digit digit = partition_digit(cut);
  const size_t scratch = StackAllocator::aligned(std::max(primitives.partition_scratch_bytes(build.layout, build.share, digit),
                                                          primitives.partition_scratch_bytes(probe.layout, probe.share, digit)));
  if (resident) return share + scratch + (devices == 1 ? 0 : joined) + leave;
  return devices == 1 ? share + std::max(scratch, leave) : joined + std::max(share + scratch, leave);
}

/// Rows [begin, end) of a relation, a piece of each view.
std::vector<Piece> cut_pieces(const Relation& relation, uint64_t begin, uint64_t end) {
  std::vector<Piece> pieces;
  for (const TupleView& view : cut(relation.layout, relation.views, begin, end - begin)) pieces.push_back({view, {}, {}});
  return pieces;
}

}  // namespace

SideRows SideRows::planned(TupleLayout layout, uint64_t rows, uint64_t share, size_t devices, HashCut cut) {
  const uint64_t even = share_begin(rows, devices, 1);
  return {layout, share, cut.replicate || devices == 1 ? share : std::min(rows, even + even / 8 + 4096)};
}

/// Takes memory for the chunk and gives every piece its place there.
void Exchange::Side::place_chunk(Device& device) {
  uint64_t tuples = 0;
  for (const Piece& piece : pieces) tuples += piece.in.size;
  chunk = OwnedTuples(device.memory(), rows.layout, tuples);
  uint64_t at = 0;
  for (Piece& piece : pieces) {
    piece.out = chunk.span.slice(rows.layout, at, at + piece.in.size);
    at += piece.in.size;
  }
}

void Exchange::Side::forget_received() {
  received = OwnedTuples();
  placed = 0;
  parcels.clear();
}

void Exchange::OnDevice::free_chunks() {
  scratch = Buffer();
  for (Side& side : sides) side.chunk = OwnedTuples();
}

Exchange::Exchange(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe, HashCut cut,
                   bool count_only, Job& job)
    : engine_(engine),
      relations_{build, probe},
      cut_(cut),
      job_(job),
      form_{{build.layout, probe.layout}, count_only, devices.size(), cut.partition_bits},
      lanes_(devices, kExchangeStreams, [&](Device& device, size_t d) { return plan(device, d, devices.size()); }) {
  set_parts(planned_parts());
}

Exchange::OnDevice Exchange::plan(Device& device, size_t d, size_t devices) const {
  const auto side = [&](SideIndex s, bool whole) {
    const Relation& relation = relations_[s];
    const uint64_t rows = relation.size();
    uint64_t begin = share_begin(rows, devices, d), end = share_begin(rows, devices, d + 1);
    if (relation.resident) {
      begin = 0;
      for (size_t i = 0; i < d; ++i) begin += relation.views[i].size;
      end = begin + relation.views[d].size;
    }
    if (whole) begin = 0, end = rows;
    const SideRows planned = SideRows::planned(relation.layout, rows, end - begin, devices, cut_);
    return Side{planned, cut_pieces(relation, begin, end), end - begin};
  };
  return {{side(kBuild, cut_.replicate), side(kProbe, false)},
          partitions_of(cut_, devices, d, device),
          create_events(device, planned_parts())};
}

void Exchange::set_parts(size_t count) {
  for (Lane& lane : lanes_) {
    lane.parts.clear();
    lane.parts.resize(count);
    for (JoinPart& part : lane.parts) part.partitions = lane.partitions;
  }
}

uint64_t Exchange::key_bytes() const {
  uint64_t bytes = 0;
  for (const Relation& relation : relations_) bytes += relation.size() * relation.layout.key_bytes;
  return bytes;
}

size_t Exchange::device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                              HashCut cut, bool count_only, bool resident, Device& device) {
  const auto planned = [&](TupleLayout layout, uint64_t rows, bool whole) {
    return SideRows::planned(layout, rows, whole ? rows : share_begin(rows, devices, 1), devices, cut);
  };
  const OfSides<SideRows> sides{planned(build, build_rows, cut.replicate), planned(probe, probe_rows, false)};
  size_t most = 0;
  for (const size_t owner : {size_t{0}, devices - 1}) {  // with the most partitions, and with the fewest
    const uint32_t partitions = partitions_of(cut, devices, owner, device);
    most = std::max(most, exchange_bytes(device, sides, partitions, devices, cut, count_only, resident));
  }
  return resident ? std::max(most, grouped_bytes(device, sides, build_rows, devices, cut, count_only)) : most;
}

void Exchange::bring() {
  if (cut_.replicate) {
    bring_whole();
  } else if (!bring_grouped()) {
    bring_partitioned();
  }
  job_.add_done(rows());
  if (cut_.replicate || lanes_.size() == 1) {
    for (Lane& lane : lanes_) lane.scratch = Buffer();
    return merge_parts();
  }
  const PhaseTimer timer(job_, "exchange", 2 * bytes());
  if (!resident()) {
    for (Lane& lane : lanes_) lane.scratch = Buffer();
  }
  on_their_way_ = form_.grouped() || (parts() > 1 && has_room_for_parts());
  if (on_their_way_) return;
  wait();
  for (Lane& lane : lanes_) lane.free_chunks();
  merge_parts();
}

void Exchange::await(size_t part, Stream& stream) const {
  if (!on_their_way_) return;
  for (const Lane& sender : lanes_) stream.wait(*sender.sent[part]);
}

// Tuples stay where they are, but for the other devices' parts of a resident build side.
void Exchange::bring_whole() {
  reserve();
  const bool collects = resident() && !lanes_[0].device->addresses_host_memory() && lanes_.size() > 1;
  for (Lane& lane : lanes_) {
    for (const SideIndex s : {kBuild, kProbe}) {
      Side& side = lane.sides[s];
      const bool moved = collects && s == kBuild;
      if (moved) side.place_chunk(*lane.device);
      for (const Piece& piece : side.pieces) {
        TupleView tuples = piece.in;
        if (moved) {
          tuples.keys = piece.out.keys;
          if (tuples.values) tuples.values = piece.out.values;
        }
        lane.parts[0].sides[s].add(tuples, {0, tuples.size});
      }
    }
  }
  if (!collects) return;
  const PhaseTimer timer(job_, "copy", 2 * relations_[kBuild].bytes() * lanes_.size());
  for (Lane& lane : lanes_) {
    for (const Piece& piece : lane.sides[kBuild].pieces) {
      for (const HostCopy::Stretch& stretch : host_copy(form_.layouts[kBuild], piece.out, piece.in, nullptr).stretches) {
        lane.device->copy(stretch.target, stretch.source, stretch.bytes, lane.stream(kCut));
      }
    }
  }
  wait();
}

void Exchange::bring_partitioned() {
  const PhaseTimer timer(job_, "partition", 2 * bytes());
  // Keys that crowd on one device need more there than was planned; its memory can only grow while it is empty.
  for (bool room = false; !room;) {
    reserve();
    take_room();
    partition(kBuild);
    room = count(kBuild);
    if (!room) continue;
    place(kBuild);
    send(kBuild, 0, 1);  // the first part of both sides can be matched before the others are there
    partition(kProbe);
    room = count(kProbe);
    if (!room) wait();
  }
  place(kProbe);
  place_split(kBuild, split_[kBuild], true);
  place_split(kBuild, split_[kProbe], false);
  place_split(kProbe, split_[kProbe], true);
  place_split(kProbe, split_[kBuild], false);
  send(kBuild, parts(), parts() + 1);
  send(kProbe, parts(), parts() + 1);
  for (size_t p = 0; p < parts(); ++p) {
    if (p > 0) send(kBuild, p, p + 1);
    send(kProbe, p, p + 1);
    record_sent(p);
  }
}

void Exchange::reserve() {
  if (resident()) return;
  set_parts(planned_parts());
  for (Lane& lane : lanes_) {
    lane.free_chunks();
    for (Side& side : lane.sides) side.forget_received();
  }
  for (Lane& lane : lanes_) {
    lane.memory().reserve(exchange_bytes(*lane.device, {lane.sides[kBuild].rows, lane.sides[kProbe].rows}, lane.partitions,
                                         lanes_.size(), cut_, form_.count_only, false));
  }
}

/// Takes the memory for what is partitioned. On host devices what is to stay comes first: the rest makes room for the match.
void Exchange::take_room() {
  for (Lane& lane : lanes_) {
    if (!resident() && lanes_.size() > 1) {
      for (Side& side : lane.sides) side.received = OwnedTuples(lane.memory(), side.rows.layout, side.rows.joined);
    }
    size_t scratch = 0;
    for (Side& side : lane.sides) {
      side.place_chunk(*lane.device);
      const SideRows& rows = side.rows;
      scratch = std::max(scratch, lane.primitives().partition_scratch_bytes(rows.layout, rows.share, partition_digit(cut_)));
    }
    lane.scratch = allocate(lane.memory(), scratch);
  }
}

/// Partitions each device's chunk.
void Exchange::partition(SideIndex side) {
  const Digit digit = partition_digit(cut_);
  for (Lane& lane : lanes_) {
    Side& own = lane.sides[side];
    for (Piece& piece : own.pieces) {
      piece.offsets.assign(digit.count() + 1, 0);
      lane.primitives().partition(own.rows.layout, piece.in, digit, piece.out, piece.offsets.data(), lane.scratch.data(), job_,
                                  lane.stream(kCut));
    }
  }
  lanes_.wait(job_, kCut);
}

/// Adds up the partitions of the pieces.
void Exchange::count_pieces(SideIndex side) {
  const uint32_t partitions = 1u << cut_.partition_bits;
  for (Lane& lane : lanes_) {
    Side& own = lane.sides[side];
    own.partition_rows.assign(partitions, 0);
    for (const Piece& piece : own.pieces) {
      for (uint32_t p = 0; p < partitions; ++p) own.partition_rows[p] += piece.offsets[p + 1] - piece.offsets[p];
    }
  }
}

/// Counts what each device will join of a side, and of the build side once more when the probe side's heavy partitions are known.
/// False where more tuples come to a device than there is room for; that is planned for then.
bool Exchange::count(SideIndex side) {
  count_pieces(side);
  const bool last = side == kProbe;
  if (!last) split_.fill(std::vector<bool>(size_t{1} << cut_.partition_bits));
  if (last ? cut_.splits_probe : cut_.splits_build) split_heavy(side);
  bool room = true;
  for (size_t d = 0; d < lanes_.size(); ++d) {
    for (const SideIndex counted : {kBuild, kProbe}) {
      if (!last && counted != side) continue;
      Side& own = lanes_[d].sides[counted];
      own.size = rows_at(counted, d);
      if (own.size <= own.rows.joined) continue;
      own.rows.joined = own.size;
      room = false;
    }
  }
  return room || resident();
}

uint64_t Exchange::rows_of_partition(SideIndex side, uint32_t partition) const {
  uint64_t rows = 0;
  for (const Lane& lane : lanes_) rows += lane.sides[side].partition_rows[partition];
  return rows;
}

/// How many tuples of a side a device joins.
uint64_t Exchange::rows_at(SideIndex side, size_t device) const {
  const uint32_t first = partition_begin(cut_, lanes_.size(), device), last = partition_begin(cut_, lanes_.size(), device + 1);
  const std::vector<bool>&stay = split_[side], &everywhere = split_[side == kBuild ? kProbe : kBuild];
  uint64_t rows = 0;
  for (uint32_t p = 0; p < stay.size(); ++p) {
    if (stay[p]) {
      rows += lanes_[device].sides[side].partition_rows[p];
    } else if ((first <= p && p < last) || everywhere[p]) {
      rows += rows_of_partition(side, p);
    }
  }
  return rows;
}

/// How many tuples a device joins at most before its heavy partitions are split.
uint64_t Exchange::most_joined() const {
  const uint64_t mean = rows() / lanes_.size();
  return mean + mean / 8 + kLeastTuples;
}

/// Where a device would have more to join than there is room for with keys that spread evenly, its largest partitions stay where
/// they are, and the other side's tuples of them go to every device. While the build side is looked at, the probe side is taken
/// to be spread evenly.
void Exchange::split_heavy(SideIndex side) {
  const size_t g = lanes_.size();
  const bool last = side == kProbe;
  std::vector<uint64_t> joined(g);
  for (size_t d = 0; d < g; ++d) {
    joined[d] = rows_at(side, d) + (last ? lanes_[d].sides[kBuild].size : relations_[kProbe].size() / g);
  }
  for (size_t owner = 0; owner < g; ++owner) {
    std::vector<std::pair<uint64_t, uint32_t>> largest;
    for (uint32_t p = partition_begin(cut_, g, owner); p < partition_begin(cut_, g, owner + 1); ++p) {
      largest.emplace_back(rows_of_partition(side, p), p);
    }
    std::sort(largest.rbegin(), largest.rend());
    for (const auto& [rows, p] : largest) {
      if (joined[owner] <= most_joined() || rows < kLeastTuples) break;
      const uint64_t copied = last ? rows_of_partition(kBuild, p) : 0;
      if (split_[kBuild][p] || copied > rows) continue;
      split_[side][p] = true;
      joined[owner] -= rows + copied;
      for (size_t d = 0; d < g; ++d) joined[d] += lanes_[d].sides[side].partition_rows[p] + copied;
    }
  }
}

/// Gives each partition of a side its place at its owner, part by part.
void Exchange::place(SideIndex side) {
  const size_t g = lanes_.size();
  for (Lane& lane : lanes_) {
    Side& own = lane.sides[side];
    own.parcels.resize(parts() + 1);
    if (g == 1) {
      for (const Piece& piece : own.pieces) {
        lane.parts[0].sides[side].add(piece.out.view(),
                                      cuts_by_itself(*lane.device) ? std::vector<uint64_t>{0, piece.in.size} : piece.offsets);
      }
    } else if (resident()) {
      own.received = OwnedTuples(lane.memory(), own.rows.layout, own.size);
    }
  }
  for (size_t p = 0; p < parts() && g > 1; ++p) place_part(side, p);
}

/// Gives a part of each device's partitions their place at their owners.
void Exchange::place_part(SideIndex side, size_t part) {
  const size_t g = lanes_.size();
  const std::vector<bool>& stay = split_[side];
  for (size_t owner = 0; owner < g; ++owner) {
    Lane& at = lanes_[owner];
    Side& to = at.sides[side];
    JoinPart::Side& joined = at.parts[part].sides[side];
    const bool cut_there = cuts_by_itself(*at.device);
    const TupleLayout layout = to.rows.layout;
    const uint32_t first = part_begin(cut_, g, owner, part, parts()), last = part_begin(cut_, g, owner, part + 1, parts());
    const uint64_t begin = to.placed;
    for (Lane& sender : lanes_) {
      Side& from = sender.sides[side];
      const auto stays = [&](uint32_t partition) { return &from != &to && stay[partition]; };
      for (const Piece& piece : from.pieces) {
        for (uint32_t begins = first, ends = first; begins < last; begins = ends) {
          const bool staying = stays(begins);
          while (ends < last && stays(ends) == staying) ++ends;
          const uint64_t skipped = piece.offsets[begins], rows = piece.offsets[ends] - skipped;
          if (staying || rows == 0) continue;
          const TupleSpan target = to.received.span.slice(layout, to.placed, to.placed + rows);
          from.parcels[part].push_back({owner, target, piece.out.slice(layout, skipped, skipped + rows)});
          to.placed += rows;
          if (cut_there) continue;
          std::vector<uint64_t> offsets(&piece.offsets[first], &piece.offsets[last] + 1);
          for (uint64_t& offset : offsets) offset -= skipped;
          joined.add(target.view(), std::move(offsets));
        }
      }
    }
    if (cut_there) {
      joined.add(to.received.span.slice(layout, begin, to.placed).view(), {0, to.placed - begin});
    }
  }
}

/// Gives a side's tuples of split partitions their places at the devices that don't own them, in their first part: those that
/// `stay` where they are, or all at each.
void Exchange::place_split(SideIndex side, const std::vector<bool>& split, bool stay) {
  const size_t g = lanes_.size();
  for (size_t d = 0; d < g; ++d) {
    const uint32_t first = partition_begin(cut_, g, d), last = partition_begin(cut_, g, d + 1);
    Side& to = lanes_[d].sides[side];
    const TupleLayout layout = to.rows.layout;
    const auto for_stretches = [&](auto&& f) {
      for (uint32_t p = 0; p < split.size(); ++p) {
        if (!split[p] || (first <= p && p < last)) continue;
        for (Lane& sender : lanes_) {
          Side& from = sender.sides[side];
          if (stay && &from != &to) continue;
          for (const Piece& piece : from.pieces) {
            if (piece.offsets[p] < piece.offsets[p + 1]) f(from, piece.out.slice(layout, piece.offsets[p], piece.offsets[p + 1]));
          }
        }
      }
    };
    uint64_t rows = 0;
    for_stretches([&](Side&, const TupleSpan& source) { rows += source.size; });
    if (stay) split_rows_ += rows;
    if (rows == 0) continue;
    const bool fits = to.placed + rows <= to.received.span.size;
    if (!fits) to.late = OwnedTuples(lanes_[d].memory(), layout, rows);
    const TupleSpan room = fits ? to.received.span.slice(layout, to.placed, to.placed + rows) : to.late.span;
    if (fits) to.placed += rows;
    uint64_t at = 0;
    for_stretches([&](Side& from, const TupleSpan& source) {
      from.parcels[parts()].push_back({d, room.slice(layout, at, at + source.size), source});
      at += source.size;
    });
    lanes_[d].parts[0].sides[side].add(room.view(), {0, rows});
  }
}

/// Enqueues the way of parts to their owners.
void Exchange::send(SideIndex side, size_t first_part, size_t last_part) {
  engine_.pool.parallel_for(lanes_.size(), [&](uint64_t sender) {
    Lane& lane = lanes_[sender];
    Side& own = lane.sides[side];
    const TupleLayout layout = sent_layout(own);
    for (size_t p = first_part; p < last_part; ++p) {
      std::vector<Parcel>& parcels = own.parcels[p];
      // Owner by owner in a different order for each, so that no two send to the same owner at first.
      std::rotate(parcels.begin(),
                  std::find_if(parcels.begin(), parcels.end(), [&](const Parcel& parcel) { return parcel.owner >= sender; }),
                  parcels.end());
      for (const Parcel& parcel : parcels) {
        Device& owner = *lanes_[parcel.owner].device;
        const TupleSpan &target = parcel.target, &source = parcel.source;
        lane.device->copy_to_peer(target.keys, owner, source.keys, source.size * layout.key_bytes, lane.stream(kSend));
        if (layout.value_bytes) {
          lane.device->copy_to_peer(target.values, owner, source.values, source.size * layout.value_bytes, lane.stream(kSend));
        }
      }
    }
  });
}

void Exchange::record_sent(size_t part) {
  for (Lane& lane : lanes_) lane.stream(kSend).record(*lane.sent[part]);
}

/// Whether all parts can be matched beside what is on its way.
bool Exchange::has_room_for_parts() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    size_t bytes = form_.count_only ? 0 : kLeastStagedBytes;
    for (const JoinPart& part : lane.parts) bytes += StackAllocator::aligned(part.match_bytes(lane.primitives(), form_));
    return bytes <= lane.memory().room_bytes();
  });
}

/// What was to be matched part by part is matched together.
void Exchange::merge_parts() {
  if (parts() == 1) return;
  for (Lane& lane : lanes_) {
    const std::vector<JoinPart> parts = std::move(lane.parts);
    lane.parts.clear();
    lane.parts.resize(1);
    lane.parts[0].partitions = lane.partitions;
    for (const JoinPart& part : parts) {
      for (const SideIndex s : {kBuild, kProbe}) {
        for (const TupleView& tuples : part.sides[s].joined.fragments) lane.parts[0].sides[s].add(tuples, {0, tuples.size});
      }
    }
  }
}

}  // namespace warpjoin
