// How the tuples of two relations come to the devices that join them: whole, by partition, or by group.
#pragma once

#include <span>
#include <vector>

#include "engine/engine.h"
#include "flow/lanes.h"
#include "join/hash_cut.h"
#include "join/join_part.h"
#include "join/relation.h"
#include "transfer/arrival.h"

namespace warpjoin {

/// How many tuples of a relation a device has to do with.
struct SideRows {
  TupleLayout layout;
  uint64_t share = 0;   ///< lie on it, or are given to it,
  uint64_t joined = 0;  ///< and at most so many are joined

  /// Of a relation of `rows`, of which a device has `share`. Hashing spreads them evenly; an eighth and some more than the mean
  /// is for the devices that get more than others.
  static SideRows planned(TupleLayout layout, uint64_t rows, uint64_t share, size_t devices, HashCut cut);
};

/// One use. The tuples and the job must outlive it. Both relations are resident, or neither is: then the devices are host
/// devices, whose memory is reserved.
class Exchange {
 public:
  Exchange(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe, HashCut cut,
           bool count_only, Job& job);

  /// Sends what a device does not have. Parts are on their way then: see await().
  void bring();

  const PartForm& form() const { return form_; }
  /// Of each device as many.
  std::vector<JoinPart>& parts(size_t device) { return lanes_[device].parts; }
  const std::vector<JoinPart>& parts(size_t device) const { return lanes_[device].parts; }
  /// What is enqueued on the stream of a device from now on has the n-th part of it.
  void await(size_t part, Stream& stream) const;
  /// Waits for all that is on its way.
  void wait() const { lanes_.wait(job_); }

  uint64_t bytes() const { return relations_[kBuild].bytes() + relations_[kProbe].bytes(); }
  uint64_t key_bytes() const;
  uint64_t rows() const { return relations_[kBuild].size() + relations_[kProbe].size(); }
  /// Tuples of heavy partitions that stayed on the devices where they were.
  uint64_t split_rows() const { return split_rows_; }

  /// Device memory for relations of these sizes, with that of the matches, where hashing spreads the tuples evenly.
  static size_t device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                             HashCut cut, bool count_only, bool resident, Device& device);

 private:
  /// Tuples of a part that go to one owner.
  struct Parcel {
    size_t owner;
    TupleSpan target, source;
  };
  /// One relation's tuples on a device.
  struct Side {
    SideRows rows;
    std::vector<Piece> pieces;                           ///< the device's chunk
    uint64_t size = 0;                                   ///< tuples to join here
    OwnedTuples received{};                              ///< what the devices sent
    OwnedTuples late{};                                  ///< what they sent in the end and was not known before
    uint64_t placed = 0;                                 ///< tuples that have their place in what is received
    std::vector<uint64_t> partition_rows{};              ///< of the device's chunk
    OwnedTuples chunk{};                                 ///< the pieces, as they came or partitioned, or grouped
    std::vector<uint32_t> group_begins{}, group_ends{};  ///< rows of the chunk, where that is grouped
    std::vector<std::vector<Parcel>> parcels{};          ///< of each part, and behind them those of heavy partitions

    void place_chunk(Device& device);
    void forget_received();
  };
  enum ExchangeStream : size_t { kCut, kSend, kExchangeStreams };
  struct OnDevice {
    OfSides<Side> sides;
    uint32_t partitions;  ///< of a part
    Events sent;          ///< each part, to all owners
    Buffer scratch{};
    std::vector<JoinPart> parts{};

    void free_chunks();
  };
  using Lane = flow::Lane<OnDevice>;

  OnDevice plan(Device& device, size_t d, size_t devices) const;
  bool resident() const { return relations_[kBuild].resident; }
  size_t parts() const { return lanes_[0].parts.size(); }
  size_t planned_parts() const { return resident() ? cut_.parts : 1; }
  void set_parts(size_t count);

  void bring_whole();
  void bring_partitioned();
  void reserve();
  void take_room();
  void partition(SideIndex side);
  void count_pieces(SideIndex side);
  bool count(SideIndex side);
  uint64_t most_joined() const;
  void split_heavy(SideIndex side);
  uint64_t rows_of_partition(SideIndex side, uint32_t partition) const;
  uint64_t rows_at(SideIndex side, size_t device) const;
  void place(SideIndex side);
  void place_part(SideIndex side, size_t part);
  void place_split(SideIndex side, const std::vector<bool>& split, bool stay);
  void send(SideIndex side, size_t first_part, size_t last_part);
  void record_sent(size_t part);

  bool bring_grouped();
  bool plan_groups();
  void group_chunks();
  bool place_groups();
  bool place_groups(SideIndex side, size_t owner);
  TupleLayout sent_layout(const Side& side) const;

  bool has_room_for_parts() const;
  void merge_parts();

  Engine& engine_;
  const OfSides<Relation> relations_;
  const HashCut cut_;
  Job& job_;
  PartForm form_;
  bool on_their_way_ = false;         // parts, for which their events stand
  OfSides<std::vector<bool>> split_;  // heavy partitions whose tuples of a side stay where they are
  uint64_t split_rows_ = 0;
  flow::Lanes<OnDevice> lanes_;
};

/// Bytes of device memory for the join of a resident build side of so many rows in all, where devices group tuples where they
/// lie; 0 where they don't.
size_t grouped_bytes(Device& device, const OfSides<SideRows>& sides, uint64_t build_rows, size_t devices, HashCut cut,
                     bool count_only);

}  // namespace warpjoin
