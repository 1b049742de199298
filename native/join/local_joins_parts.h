// The parts of a LocalJoins. Internal to it.
#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "core/sharding.h"
#include "join/local_joins.h"
#include "join/rows_home.h"
#include "primitives/hash_groups.h"

namespace warpjoin {

// A match runs beside what arrives and may hold all of a device for milliseconds: as much as comes meanwhile has room to wait.
inline constexpr size_t kPieceBytes = size_t{64} << 20, kPieceSlots = 8;

/// The first partition that device i owns; i == devices gives the end.
inline uint32_t partition_begin(HashCut cut, size_t devices, size_t i) {
  return static_cast<uint32_t>(share_begin(uint64_t{1} << cut.partition_bits, devices, i));
}

/// How many tuples of a relation a device has to do with.
struct SideRows {
  TupleLayout layout;
  uint64_t share = 0;   ///< come to it from host memory, or lie on it,
  uint64_t piece = 0;   ///< at most so many at a time,
  uint64_t joined = 0;  ///< and at most so many are joined

  /// Of a relation of `rows`, of which `share` come to or lie on a device, in `waves` at least. Hashing spreads them evenly; an
  /// eighth and some more than the mean is for the devices that get more than others.
  static SideRows planned(const Device& device, TupleLayout layout, uint64_t rows, uint64_t share, size_t devices, HashCut cut,
                          bool resident, uint32_t waves) {
    if (cut.replicate) return {layout, share, device.addresses_host_memory() ? share : share / waves + 1, share};
    const uint64_t even = share_begin(rows, devices, 1);
    return {layout, share, resident || device.addresses_host_memory() ? share : piece_tuples(layout, share, kPieceBytes),
            devices == 1 ? share : std::min(rows, even + even / 8 + 4096)};
  }
};

/// Of so many tuples that a device joins, the most that come in a wave: as many as in others, and a quarter more.
inline uint64_t most_in_a_wave(uint64_t joined, size_t waves) {
  const uint64_t mean = joined / waves;
  return std::min(joined, mean + mean / 4 + kLeastTuples);
}

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
  std::vector<OwnedTuples> slots;
  std::array<std::unique_ptr<Event>, kPieceSlots> slot_free;
  std::vector<std::vector<Parcel>> parcels;  ///< of each part, and behind them those of heavy partitions
  std::vector<Part> parts;                   ///< of the build side just one where the parts are waves

  /// The pieces of a wave.
  std::span<Piece> wave(size_t w, size_t waves) {
    const size_t begin = share_begin(pieces.size(), waves, w);
    return std::span(pieces).subspan(begin, share_begin(pieces.size(), waves, w + 1) - begin);
  }

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
  struct Built {
    Buffer scratch, more;
    std::unique_ptr<HashBuild> table;
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
  Built built;                               ///< what waves share, if there are any
  std::vector<std::unique_ptr<Event>> here;  ///< the build side, and each wave
  std::unique_ptr<Stream> stream, sends;
  std::unique_ptr<Stream> arrivals;  ///< from host memory, and what cuts them: where matches are to run beside them

  std::array<Side*, 2> sides() { return {&build, &probe}; }
  bool in_place() const { return device->addresses_host_memory(); }
  Stream& arriving() { return arrivals ? *arrivals : *stream; }

  Side::Part& build_part(size_t part) { return build.parts[std::min(part, build.parts.size() - 1)]; }
  const Side::Part& build_part(size_t part) const { return build.parts[std::min(part, build.parts.size() - 1)]; }
  /// Of build tuples that waves share, the last one knows all that were found.
  Found found(size_t part) const {
    Found own{build_part(part).size, probe.parts[part].size, matches[part].found->tally()};
    if (build.parts.size() < probe.parts.size() && part + 1 < probe.parts.size()) own.build_rows = own.tally.build_matched = 0;
    return own;
  }

  /// What the chunk came through.
  void free_arrival() {
    partition_scratch = Buffer();
    for (Side* side : sides()) side->slots.clear();
  }
  void free_chunk() {
    free_arrival();
    for (Side* side : sides()) side->chunk = OwnedTuples();
  }
};

/// Matches waves of the probe side, each as soon as it is on all devices, while the next ones arrive: on a thread of its own.
class LocalJoins::Waves {
 public:
  /// The build side is on all devices, or will be once build_enqueued() was called for each.
  explicit Waves(LocalJoins& joins);
  ~Waves();
  Waves(const Waves&) = delete;
  Waves& operator=(const Waves&) = delete;

  /// A device's part of the build side has been enqueued on its stream of arrivals.
  void build_enqueued(size_t device) { enqueued(device, 0); }
  /// A piece of its probe side has, and what cuts it.
  void piece_enqueued(size_t device, const Piece& piece);
  /// Waits until all waves have been enqueued to be matched. False where one did not fit, or keys crowd: then nothing is matched.
  bool finish();

 private:
  void enqueued(size_t device, size_t step);
  void run();
  void await(size_t step);
  void build();
  template <class Of>
  void complete(Of match_of);
  bool exchange(size_t wave);
  void write_pairs(size_t wave);

  LocalJoins& joins_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> devices_;  // that have enqueued the build side, and each wave
  bool stopping_ = false, gave_up_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace warpjoin
