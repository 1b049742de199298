// The rows of a join that stay on its devices, while they are written: pairs as they are found, before all are known.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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
  /// To `rows`, which has the layouts; both must outlive this.
  KeptRows(std::span<Device* const> devices, const JoinRequest& request, ResidentRows& rows);

  /// Whether pairs are all rows, and are written.
  bool takes_pairs() const;
  /// Takes room for so many pairs, if the device has it twice: to move them together in the end, where not all of them are found.
  bool expect_at_most(size_t device, uint64_t pairs);
  /// Where the next pairs go, at most so many, if there is room for them.
  std::optional<JoinOutput> next_pairs(size_t device, uint64_t most);
  /// Only so many have been written where next_pairs() said the n-th time, counted from 0.
  void found(size_t device, size_t n, uint64_t pairs) { rooms_[device].stretches[n].pairs = pairs; }
  /// Makes the columns those of so many rows, the first of which are the pairs that have been written: returns how many. Room
  /// that is too small, or larger by some per cent, is taken anew, and pairs are moved by `copy`, which may take its time until
  /// this object goes.
  using Copy = std::function<void(void* target, const void* source, size_t bytes)>;
  uint64_t settle(size_t device, uint64_t size, const Copy& copy);
  /// Where pairs from the n-th on go.
  JoinOutput pairs_from(size_t device, uint64_t pair) const;

 private:
  // For rows [begin, begin + pairs), which have been written.
  struct Stretch {
    uint64_t begin, pairs;
  };
  struct Room {
    uint64_t rows = 0, taken = 0;
    std::vector<Stretch> stretches;
    std::array<Buffer, 3> former;  // columns that pairs are moved from
  };
  struct Column {
    Buffer ResidentRows::Chunk::*data;
    uint8_t width;  ///< 0: was not asked for
  };
  void take(size_t device, uint64_t rows);
  bool takes_room(size_t device, uint64_t rows);  // false: there is none, and what was there is forgotten

  const std::vector<Device*> devices_;
  const JoinRequest request_;
  ResidentRows& rows_;
  const std::array<Column, 3> columns_;
  std::vector<Room> rooms_;
};

}  // namespace warpjoin
