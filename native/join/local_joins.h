// A hash join of two relations in host memory, spread over devices: partition, exchange, match, emit.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/engine.h"
#include "primitives/primitives.h"
#include "transfer/arrival.h"

namespace warpjoin {

/// Tuples in host memory, in one or more stretches.
struct Relation {
  TupleLayout layout;
  std::vector<TupleView> views;

  uint64_t size() const;
  uint64_t bytes() const { return size() * layout.tuple_bytes(); }
};

/// How a hash join cuts the key space.
struct HashCut {
  uint32_t round_bits = 0;      ///< topmost bits of the mixed keys that are the same in all keys
  uint32_t partition_bits = 0;  ///< bits below: partitions over all devices
  bool replicate = false;       ///< no partitions: every device joins the whole build side with its chunk of the probe side
};

/// One use: run, look at the tally, emit. The tuples and the job must outlive it.
class LocalJoins {
 public:
  LocalJoins(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe, HashCut cut,
             bool count_only, Job& job);
  ~LocalJoins();
  LocalJoins(const LocalJoins&) = delete;
  LocalJoins& operator=(const LocalJoins&) = delete;

  /// Matches on all devices and waits for them.
  void run();

  /// Sums over the devices. With a replicated build side `build_matched` is meaningless.
  const JoinTally& tally() const { return tally_; }
  /// Largest over mean number of tuples a device joined.
  double skew() const { return skew_; }

  /// Writes all devices' rows to host memory, in the order of the devices, and waits for them.
  void emit(JoinEmit what, JoinOutput host_out);

  /// Device memory for relations of these sizes, where hashing spreads the tuples evenly.
  static size_t device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                             HashCut cut, bool count_only, Device& device);

 private:
  struct Side;
  struct Local;
  struct Column;

  void bring_whole();
  void bring_partitioned();
  void reserve();
  void partition();
  HostQueue arrival(Local& local, Side& side);
  void partition_piece(Local& local, const Side& side, Piece& piece, const TupleView& arrived);
  bool has_room();
  void exchange();
  void match();
  void start_match(Local& local);
  void wait();
  void emit_columns(JoinEmit what, JoinOutput host_out);
  HostQueue way_home(Local& local, JoinEmit what, const std::vector<Column>& columns, JoinOutput host_out);
  uint64_t rows_of(const Local& local, JoinEmit what) const;

  Engine& engine_;
  const Relation build_, probe_;
  const HashCut cut_;
  const bool count_only_;
  Job& job_;
  JoinTally tally_;
  double skew_ = 1;
  std::vector<std::unique_ptr<Local>> locals_;
};

}  // namespace warpjoin
