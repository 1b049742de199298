// A hash join of two relations, spread over devices: partition, exchange, match, emit.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "join/hash_cut.h"
#include "join/rows_home.h"
#include "primitives/hash_groups.h"
#include "primitives/primitives.h"
#include "transfer/arrival.h"

namespace warpjoin {

class KeptRows;

/// Tuples in host memory, in one or more stretches, or resident: view d lies on device d of the join.
struct Relation {
  TupleLayout layout;
  std::vector<TupleView> views;
  bool resident = false;

  /// The same tuples, without values that are not wanted.
  Relation with_values_if(bool wanted) const;
  uint64_t size() const;
  uint64_t bytes() const { return size() * layout.tuple_bytes(); }
};

/// One use: run, look at what was found, emit. The tuples and the job must outlive it. Both relations are resident, or neither
/// is: then the devices are host devices, whose memory is reserved.
class LocalJoins {
 public:
  /// `kept`: rows of this join that stay on the devices: pairs are written there as they are found.
  LocalJoins(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe, HashCut cut,
             bool count_only, Job& job, KeptRows* kept = nullptr);
  ~LocalJoins();
  LocalJoins(const LocalJoins&) = delete;
  LocalJoins& operator=(const LocalJoins&) = delete;

  /// Matches on all devices and waits for them.
  void run();

  /// What a device joined, and what it found.
  struct Found {
    uint64_t build_rows = 0, probe_rows = 0;
    JoinTally tally;
  };
  Found found(size_t device) const;
  /// Sums over the devices. Where tuples of a side are on all devices, of which the cut says when they may be, how many of that
  /// side match is meaningless.
  const JoinTally& tally() const { return tally_; }
  /// Largest over mean number of tuples a device joined.
  double skew() const { return skew_; }
  /// Tuples of heavy partitions that stayed on the devices where they were.
  uint64_t split_rows() const { return split_rows_; }

  /// Writes all devices' rows to host memory, in the order of the devices, and waits for them.
  void emit(JoinEmit what, JoinOutput host_out);
  /// Enqueues the writing of one device's rows from `first` on to memory that it addresses. Pairs that were written as they were
  /// found are the first ones.
  void emit_there(size_t device, JoinEmit what, JoinOutput out, uint64_t first = 0);
  /// Enqueues a fill of such memory with all-ones.
  void fill_missing(size_t device, void* out, size_t bytes);
  /// Enqueues a copy within one device's memory.
  void copy_there(size_t device, void* target, const void* source, size_t bytes);
  /// Waits for all of that.
  void wait();

  /// Device memory for relations of these sizes, where hashing spreads the tuples evenly.
  static size_t device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                             HashCut cut, bool count_only, bool resident, Device& device);

 private:
  struct Side;
  struct Local;

  bool resident() const { return build_.resident; }
  void bring_whole();
  bool bring_grouped();
  bool plan_groups();
  void group_chunks();
  bool place_groups();
  bool place_groups(Side Local::*side, size_t owner);
  TupleLayout sent_layout(const Side& side) const;
  bool grouped() const { return grouping_.group_bits > 0; }
  void bring_partitioned();
  void reserve();
  void take_room();
  void partition(Side Local::*side);
  void count_pieces(Side Local::*side);
  bool count(Side Local::*side);
  uint64_t most_joined() const;
  void split_heavy(Side Local::*side);
  std::vector<bool>& split(Side Local::*side);
  uint64_t rows_of_partition(Side Local::*side, uint32_t partition) const;
  uint64_t rows_at(Side Local::*side, size_t device);
  void place(Side Local::*side);
  void place_part(Side Local::*side, size_t part);
  void place_split(Side Local::*side, const std::vector<bool>& split, bool stay);
  void send(Side Local::*side, size_t first_part, size_t last_part);
  void match();
  void match_device(size_t device);
  void complete_matches();
  void merge_parts();
  uint64_t match_bytes_read() const;
  bool has_room_for_parts() const;
  size_t match_bytes(const Local& local, size_t part) const;
  void start_match(Local& local, size_t part, const std::optional<JoinOutput>& out = {});
  void emit_columns(JoinEmit what, JoinOutput host_out);
  HostQueue way_home(Local& local, JoinEmit what, const std::vector<RowColumn>& columns, JoinOutput host_out);

  Engine& engine_;
  const Relation build_, probe_;
  const HashCut cut_;
  const bool count_only_;
  Job& job_;
  KeptRows* const kept_;
  size_t parts_;                                 ///< of a device's partitions: what is matched by itself
  HashGrouping grouping_;                        // of resident tuples, where devices group them where they lie
  std::vector<bool> build_split_, probe_split_;  // heavy partitions whose tuples of this side stay where they are
  uint64_t split_rows_ = 0;
  JoinTally tally_;
  double skew_ = 1;
  std::vector<std::unique_ptr<Local>> locals_;
};

}  // namespace warpjoin
