// A hash join of tuples that lie on their devices: the exchange, the match, and the rows.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "join/exchange.h"
#include "join/row_writer.h"
#include "join/rows_home.h"

namespace warpjoin {

class KeptRows;

/// One use: run, look at what was found, emit. What it is given must outlive it.
class DeviceMatches {
 public:
  /// As Exchange. `kept`: rows of this join that stay on the devices: pairs are written there as they are found.
  DeviceMatches(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe, HashCut cut,
                bool count_only, Job& job, KeptRows* kept = nullptr);

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
  uint64_t split_rows() const { return exchange_.split_rows(); }

  /// Writes all devices' rows to host memory, in the order of the devices, and waits for them.
  void write(const JoinRequest& request, const JoinSections& sections, const RowPlaces& to) {
    write_rows(request, sections, to, [&](JoinEmit what, const JoinOutput& out) { emit(what, out); });
  }
  /// Enqueues the writing of one device's rows from `first` on to memory that it addresses. Pairs that were written as they were
  /// found are the first ones.
  void emit_there(size_t device, JoinEmit what, JoinOutput out, uint64_t first = 0);
  /// Enqueues a fill of such memory with all-ones.
  void fill_missing(size_t device, void* out, size_t bytes);
  /// Enqueues a copy within one device's memory.
  void copy_there(size_t device, void* target, const void* source, size_t bytes);
  /// Waits for all of that.
  void wait() const { lanes_.wait(job_); }

 private:
  /// Of a part.
  struct Match {
    Buffer scratch;
    std::unique_ptr<HashMatch> found;
  };
  struct OnDevice {
    Events emitted;
    std::vector<Match> matches{};
    bool at_once = false;  ///< their pairs may be written as they are found
    std::array<Buffer, kHomeParts> staged{};
  };
  using Lane = flow::Lane<OnDevice>;

  void match_device(size_t device);
  void complete();
  Found found(size_t device, size_t part) const;
  void emit(JoinEmit what, const JoinOutput& host_out);
  void emit_columns(JoinEmit what, JoinOutput host_out);
  HostQueue way_home(size_t device, JoinEmit what, const std::vector<RowColumn>& columns, JoinOutput host_out);

  Engine& engine_;
  Job& job_;
  KeptRows* const kept_;
  Exchange exchange_;
  JoinTally tally_;
  double skew_ = 1;
  flow::Lanes<OnDevice> lanes_;
};

}  // namespace warpjoin
