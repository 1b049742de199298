// The rows of a join that stay on its devices, while they are written: those that are found early before all are known.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "join/join.h"
#include "join/resident_join.h"
#include "primitives/primitives.h"

namespace warpjoin {

/// Columns on each device, first for as many rows as are expected, then for those that there are. Devices may be asked for at the
/// same time. What is written there must be complete before anything of that device is taken anew.
class KeptRows {
 public:
  /// To `rows`, which has the layouts; both must outlive this. `expected`: rows of the whole result, evenly spread.
  KeptRows(std::span<Device* const> devices, const JoinRequest& request, uint64_t expected, ResidentRows& rows);

  /// Of device memory that the expected rows take, with some more than the mean.
  size_t expected_bytes() const;
  /// Whether pairs are all rows, and are written.
  bool takes_pairs() const;
  /// Takes room for some more than so many pairs, if the device has it.
  void expect_pairs(size_t device, uint64_t pairs);
  /// Where the next pairs go that were found early, if there is room for them.
  std::optional<JoinOutput> next_pairs(size_t device, uint64_t pairs);
  /// Forgets the room and what is there.
  void drop(size_t device) { take(device, 0); }
  /// Makes the columns those of so many rows. Room that is too small, or larger by some per cent, goes back before they are
  /// taken anew. Returns how many pairs have been written there.
  uint64_t settle(size_t device, uint64_t size);
  /// Where pairs from the n-th on go.
  JoinOutput pairs_from(size_t device, uint64_t pair) const;

 private:
  struct Room {
    uint64_t rows = 0, written = 0;
  };
  struct Column {
    Buffer ResidentRows::Chunk::*data;
    uint8_t width;  ///< 0: was not asked for
  };
  void take(size_t device, uint64_t rows);

  const std::vector<Device*> devices_;
  const JoinRequest request_;
  const uint64_t expected_;
  ResidentRows& rows_;
  const std::array<Column, 3> columns_;
  std::vector<Room> rooms_;
};

}  // namespace warpjoin
