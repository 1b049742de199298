// The parts of a LocalJoins. Internal to it.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "core/sharding.h"
#include "join/local_joins.h"
#include "join/rows_home.h"
#include "primitives/hash_groups.h"

namespace warpjoin {

/// The first partition that device i owns; i == devices gives the end.
inline uint32_t partition_begin(HashCut cut, size_t devices, size_t i) {
  return static_cast<uint32_t>(share_begin(uint64_t{1} << cut.partition_bits, devices, i));
}

/// How many tuples of a relation a device has to do with.
struct SideRows {
  TupleLayout layout;
  uint64_t share = 0;   ///< lie on it, or are given to it,
  uint64_t joined = 0;  ///< and at most so many are joined

  /// Of a relation of `rows`, of which a device has `share`. Hashing spreads them evenly; an eighth and some more than the mean
  /// is for the devices that get more than others.
  static SideRows planned(TupleLayout layout, uint64_t rows, uint64_t share, size_t devices, HashCut cut) {
    const uint64_t even = share_begin(rows, devices, 1);
    return {layout, share, cut.replicate || devices == 1 ? share : std::min(rows, even + even / 8 + 4096)};
  }
};

/// Bytes of device memory for the join of a resident build side of so many rows in all, where devices group tuples where they
/// lie; 0 where they don't.
size_t grouped_bytes(Device& device, const SideRows& build, const SideRows& probe, uint64_t build_rows, size_t devices,
                     HashCut cut, bool count_only);

/// One relation's part of a device's join.
struct LocalJoins::Side {
  /// Tuples that are joined together.
  struct Part {
    PartitionedTuples joined;
    std::vector<std::vector<uint64_t>> offsets;
    GroupedTuples grouped;  ///< instead, where devices group tuples where they lie
    uint64_t size = 0;

    void add(const TupleView& tuples, std::vector<uint64_t> partitions) {
      joined.fragments.push_back(tuples);
      offsets.push_back(std::move(partitions));
      size += tuples.size;
    }
    /// Complete, to be matched.
    const PartitionedTuples& ready(TupleLayout layout, uint32_t partitions) {
      if (joined.fragments.empty()) add({}, std::vector<uint64_t>(partitions + 1));
      joined.layout = layout;
      for (size_t f = joined.host_offsets.size(); f < offsets.size(); ++f) joined.host_offsets.push_back(offsets[f].data());
      return joined;
    }
  };
  /// Tuples of a part that go to one owner.
  struct Parcel {
    size_t owner;
    TupleSpan target, source;
  };

  SideRows rows;
  std::vector<Piece> pieces;                       ///< the device's chunk
  uint64_t size = 0;                               ///< tuples to join here
  OwnedTuples received;                            ///< what the devices sent
  OwnedTuples late;                                ///< what they sent in the end and was not known before
  uint64_t placed = 0;                             ///< tuples that have their place in what is received
  std::vector<uint64_t> partition_rows;            ///< of the device's chunk
  OwnedTuples chunk;                               ///< the pieces, as they came or partitioned, or grouped
  std::vector<uint32_t> group_begins, group_ends;  ///< rows of the chunk, where that is grouped
  std::vector<std::vector<Parcel>> parcels;        ///< of each part, and behind them those of heavy partitions
  std::vector<Part> parts;

  /// Takes memory for the chunk and gives every piece its place there.
  void place_chunk(Device& device) {
    uint64_t tuples = 0;
    for (const Piece& piece : pieces) tuples += piece.in.size;
    chunk = OwnedTuples(device.memory(), rows.layout, tuples);
    uint64_t at = 0;
    for (Piece& piece : pieces) {
      piece.out = chunk.span.slice(rows.layout, at, at + piece.in.size);
      at += piece.in.size;
    }
  }
};

/// One device's part of the join. The streams come last: they wait for their work before what that refers to goes.
struct LocalJoins::Local {
  /// Of a part.
  struct Match {
    Buffer scratch;
    std::unique_ptr<HashMatch> found;
  };

  Device* device = nullptr;
  uint32_t partitions = 1;
  bool one_partition = true;  ///< the device cuts what it joins by itself
  Side build, probe;
  Buffer partition_scratch;
  std::vector<Match> matches;
  bool at_once = false;  ///< their pairs may be written as they are found
  std::array<Buffer, kHomeParts> staged;
  std::array<std::unique_ptr<Event>, kHomeParts> emitted;
  std::vector<std::unique_ptr<Event>> sent;  ///< each part, to all owners
  std::unique_ptr<Stream> stream, sends;

  std::array<Side*, 2> sides() { return {&build, &probe}; }
  bool in_place() const { return device->addresses_host_memory(); }
  Found found(size_t part) const { return {build.parts[part].size, probe.parts[part].size, matches[part].found->tally()}; }

  void free_chunk() {
    partition_scratch = Buffer();
    for (Side* side : sides()) side->chunk = OwnedTuples();
  }
};

}  // namespace warpjoin
