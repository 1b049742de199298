// Which of several devices join the tuples of a partition. Internal to streamed_join.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/tuples.h"
#include "flow/spilled_tuples.h"

namespace warpjoin::streaming {

/// How many tuples of each partition a relation has, and of those how many have the key of many others, by a sample of its keys.
class KeySample {
 public:
  /// None: partitions are taken to be even.
  KeySample() = default;
  /// Of a relation in host memory.
  KeySample(TupleLayout layout, const TupleView& tuples);

  /// Expected in each of 2^bits partitions, of `rows` in all.
  std::vector<uint64_t> rows_of_partitions(uint32_t bits, uint64_t rows) const;
  /// Of those in one, how many have a key that is in the sample more than once.
  uint64_t repeats_of_partition(uint32_t partition, uint32_t bits, uint64_t rows) const {
    return sampled_ ? expected(repeats_, partition, bits, rows) : 0;
  }

 private:
  using Counts = std::vector<uint32_t>;  // by the topmost kMostPartitionBits bits of mixed keys

  uint64_t expected(const Counts& counts, uint32_t partition, uint32_t bits, uint64_t rows) const;

  Counts counts_, repeats_;
  uint32_t sampled_ = 0;
};

/// A side's tuples of some partitions.
struct RoutedSide {
  std::vector<uint64_t> rows;  ///< of each of them
  bool may_stay = false;       ///< whether those of a heavy one may stay where they are
};

/// The partitions that are joined at a time. Each has an owner, to which its tuples go; but those of a heavy one stay on the
/// devices where they are, and the other side's go to all.
class Routes {
 public:
  Routes() = default;
  /// `replicate`: all of the probe side stay, which may.
  Routes(size_t devices, PartitionRange partitions, const RoutedSide& build, const RoutedSide& probe, bool replicate = false);

  /// The partitions of a side that a device sends to another, or keeps.
  const std::vector<PartitionRange>& of(bool build, size_t from, size_t to) const {
    return ranges_[build ? 0 : 1][from == to ? 0 : 1][to];
  }
  /// All that a device joins some tuples of.
  PartitionRange all_of(size_t device) const { return splits_ ? partitions_ : owned(device); }
  /// Whether a side's tuples of a partition stay where they are, which some other device owns.
  bool split(bool build, uint32_t partition, size_t device) const {
    const bool stays = route_of(partition) == (build ? Route::build_stays : Route::probe_stays);
    return stays && !replicates_ && !owns(device, partition);
  }
  bool splits() const { return splits_ && !replicates_; }
  /// Build tuples that a device is expected to join at most.
  uint64_t most_kept() const { return most_kept_; }

 private:
  PartitionRange owned(size_t device) const { return partitions_.share(devices_, device); }
  bool owns(size_t device, uint32_t partition) const { return owned(device).begin <= partition && partition < owned(device).end; }
  enum class Route : uint8_t { to_owner, build_stays, probe_stays };
  Route route_of(uint32_t partition) const { return routes_[partition - partitions_.begin]; }
  void split_heavy(const RoutedSide& build, const RoutedSide& probe);
  bool goes(bool build, uint32_t partition, bool from_other, size_t to) const;

  size_t devices_ = 0;
  PartitionRange partitions_;
  std::vector<Route> routes_;  // of each
  bool splits_ = false, replicates_ = false;
  uint64_t most_kept_ = 0;
  std::array<std::array<std::vector<std::vector<PartitionRange>>, 2>, 2> ranges_;  // by side; kept or sent; device
};

}  // namespace warpjoin::streaming
