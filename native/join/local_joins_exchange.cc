// What each device joins, and the way there.
#include <algorithm>
#include <utility>

#include "join/local_joins_parts.h"

namespace warpjoin {
namespace {

/// The first partition of one of device i's parts; part == parts gives the end.
uint32_t part_begin(HashCut cut, size_t devices, size_t i, size_t part, size_t parts) {
  const uint32_t first = partition_begin(cut, devices, i), last = partition_begin(cut, devices, i + 1);
  return first + static_cast<uint32_t>(share_begin(last - first, parts, part));
}

}  // namespace

/// Adds up the partitions of the pieces.
void LocalJoins::count_pieces(Side Local::*side) {
  const uint32_t partitions = 1u << cut_.partition_bits;
  for (const auto& local : locals_) {
    Side& own = (*local).*side;
    own.partition_rows.assign(partitions, 0);
    for (const Piece& piece : own.pieces) {
      for (uint32_t p = 0; p < partitions; ++p) own.partition_rows[p] += piece.offsets[p + 1] - piece.offsets[p];
    }
  }
}

/// Counts what each device will join of a side, and of the build side once more when the probe side's heavy partitions are known.
/// False where more tuples come to a device than there is room for; that is planned for then.
bool LocalJoins::count(Side Local::*side) {
  const uint32_t partitions = 1u << cut_.partition_bits;
  count_pieces(side);
  const bool last = side == &Local::probe;
  if (!last) build_split_.assign(partitions, false), probe_split_.assign(partitions, false);
  if (last ? cut_.splits_probe : cut_.splits_build) split_heavy(side);
  bool room = true;
  for (size_t d = 0; d < locals_.size(); ++d) {
    for (Side Local::*counted : {&Local::build, &Local::probe}) {
      if (!last && counted != side) continue;
      Side& own = (*locals_[d]).*counted;
      own.size = rows_at(counted, d);
      if (own.size <= own.rows.joined) continue;
      own.rows.joined = own.size;
      room = false;
    }
  }
  return room || resident();
}

std::vector<bool>& LocalJoins::split(Side Local::*side) { return side == &Local::build ? build_split_ : probe_split_; }

uint64_t LocalJoins::rows_of_partition(Side Local::*side, uint32_t partition) const {
  uint64_t rows = 0;
  for (const auto& local : locals_) rows += ((*local).*side).partition_rows[partition];
  return rows;
}

/// How many tuples of a side a device joins.
uint64_t LocalJoins::rows_at(Side Local::*side, size_t device) {
  const uint32_t first = partition_begin(cut_, locals_.size(), device), last = partition_begin(cut_, locals_.size(), device + 1);
  const std::vector<bool>& stay = split(side);
  const std::vector<bool>& everywhere = split(side == &Local::build ? &Local::probe : &Local::build);
  uint64_t rows = 0;
  for (uint32_t p = 0; p < stay.size(); ++p) {
    if (stay[p]) {
      rows += ((*locals_[device]).*side).partition_rows[p];
    } else if ((first <= p && p < last) || everywhere[p]) {
      rows += rows_of_partition(side, p);
    }
  }
  return rows;
}

/// How many tuples a device joins at most before its heavy partitions are split.
uint64_t LocalJoins::most_joined() const {
  const uint64_t mean = (build_.size() + probe_.size()) / locals_.size();
  return mean + mean / 8 + kLeastTuples;
}

/// Where a device would have more to join than there is room for with keys that spread evenly, its largest partitions stay where
/// they are, and the other side's tuples of them go to every device. While the build side is looked at, the probe side is taken
/// to be spread evenly.
void LocalJoins::split_heavy(Side Local::*side) {
  const size_t g = locals_.size();
  const bool last = side == &Local::probe;
  std::vector<uint64_t> joined(g);
  for (size_t d = 0; d < g; ++d) joined[d] = rows_at(side, d) + (last ? locals_[d]->build.size : probe_.size() / g);
  for (size_t owner = 0; owner < g; ++owner) {
    std::vector<std::pair<uint64_t, uint32_t>> largest;
    for (uint32_t p = partition_begin(cut_, g, owner); p < partition_begin(cut_, g, owner + 1); ++p) {
      largest.emplace_back(rows_of_partition(side, p), p);
    }
    std::sort(largest.rbegin(), largest.rend());
    for (const auto& [rows, p] : largest) {
      if (joined[owner] <= most_joined() || rows < kLeastTuples) break;
      const uint64_t copied = last ? rows_of_partition(&Local::build, p) : 0;
      if (build_split_[p] || copied > rows) continue;
      split(side)[p] = true;
      joined[owner] -= rows + copied;
      for (size_t d = 0; d < g; ++d) joined[d] += ((*locals_[d]).*side).partition_rows[p] + copied;
    }
  }
}

/// Gives each partition of a side its place at its owner, part by part.
void LocalJoins::place(Side Local::*side) {
  const size_t g = locals_.size();
  for (const auto& local : locals_) {
    Side& own = (*local).*side;
    own.parts.resize(parts_);
    own.parcels.resize(parts_ + 1);
    if (g == 1) {
      for (const Piece& piece : own.pieces) {
        own.parts[0].add(piece.out.view(), local->one_partition ? std::vector<uint64_t>{0, piece.in.size} : piece.offsets);
      }
    } else if (resident()) {
      own.received = OwnedTuples(local->device->memory(), own.rows.layout, own.size);
    }
  }
  for (size_t p = 0; p < parts_ && g > 1; ++p) place_part(side, p);
}

/// Gives a part of each device's partitions their place at their owners.
void LocalJoins::place_part(Side Local::*side, size_t part) {
  const size_t g = locals_.size();
  const std::vector<bool>& stay = split(side);
  for (size_t owner = 0; owner < g; ++owner) {
    Side& to = (*locals_[owner]).*side;
    const TupleLayout layout = to.rows.layout;
    const uint32_t first = part_begin(cut_, g, owner, part, parts_), last = part_begin(cut_, g, owner, part + 1, parts_);
    const uint64_t begin = to.placed;
    for (const auto& sender : locals_) {
      Side& from = (*sender).*side;
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
          if (locals_[owner]->one_partition) continue;
          std::vector<uint64_t> offsets(&piece.offsets[first], &piece.offsets[last] + 1);
          for (uint64_t& offset : offsets) offset -= skipped;
          to.parts[part].add(target.view(), std::move(offsets));
        }
      }
    }
    if (locals_[owner]->one_partition) {
      to.parts[part].add(to.received.span.slice(layout, begin, to.placed).view(), {0, to.placed - begin});
    }
  }
}

/// Gives a side's tuples of split partitions their places at the devices that don't own them, in their first part: those that
/// `stay` where they are, or all at each.
void LocalJoins::place_split(Side Local::*side, const std::vector<bool>& split, bool stay) {
  const size_t g = locals_.size();
  for (size_t d = 0; d < g; ++d) {
    const uint32_t first = partition_begin(cut_, g, d), last = partition_begin(cut_, g, d + 1);
    Side& to = (*locals_[d]).*side;
    const TupleLayout layout = to.rows.layout;
    const auto for_stretches = [&](auto&& f) {
      for (uint32_t p = 0; p < split.size(); ++p) {
        if (!split[p] || (first <= p && p < last)) continue;
        for (const auto& sender : locals_) {
          Side& from = (*sender).*side;
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
    if (!fits) to.late = OwnedTuples(locals_[d]->device->memory(), layout, rows);
    const TupleSpan room = fits ? to.received.span.slice(layout, to.placed, to.placed + rows) : to.late.span;
    if (fits) to.placed += rows;
    uint64_t at = 0;
    for_stretches([&](Side& from, const TupleSpan& source) {
      from.parcels[parts_].push_back({d, room.slice(layout, at, at + source.size), source});
      at += source.size;
    });
    to.parts[0].add(room.view(), {0, rows});
  }
}

/// Enqueues the way of parts to their owners.
void LocalJoins::send(Side Local::*side, size_t first_part, size_t last_part) {
  engine_.pool.parallel_for(locals_.size(), [&](uint64_t sender) {
    Local& local = *locals_[sender];
    Side& own = local.*side;
    const TupleLayout layout = sent_layout(own);
    for (size_t p = first_part; p < last_part; ++p) {
      std::vector<Side::Parcel>& parcels = own.parcels[p];
      // Owner by owner in a different order for each, so that no two send to the same owner at first.
      std::rotate(parcels.begin(),
                  std::find_if(parcels.begin(), parcels.end(), [&](const auto& parcel) { return parcel.owner >= sender; }),
                  parcels.end());
      for (const Side::Parcel& parcel : parcels) {
        Device& owner = *locals_[parcel.owner]->device;
        const TupleSpan &target = parcel.target, &source = parcel.source;
        local.device->copy_to_peer(target.keys, owner, source.keys, source.size * layout.key_bytes, *local.sends);
        if (layout.value_bytes) {
          local.device->copy_to_peer(target.values, owner, source.values, source.size * layout.value_bytes, *local.sends);
        }
      }
    }
  });
}

}  // namespace warpjoin
