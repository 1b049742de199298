// The columns of a hash join's rows, and the device memory that they wait in on their way home. Internal to native/join.
#pragma once

#include <cstdint>
#include <vector>

#include "primitives/primitives.h"
#include "transfer/host_transfer.h"

namespace warpjoin {

// Of all parts of a result that leaves a device. Plans don't count on the most: what has arrived leaves room.
inline constexpr size_t kLeastStagedBytes = size_t{1} << 20, kPlannedStagedBytes = size_t{64} << 20;
inline constexpr size_t kMostStagedBytes = kHomeParts * kHomePartBytes;

/// What is written of each row.
struct RowColumn {
  void* JoinOutput::*data;
  uint8_t width;
};

/// Those that `out` has a place for.
inline std::vector<RowColumn> columns_in(const JoinOutput& out, TupleLayout build, TupleLayout probe) {
  std::vector<RowColumn> columns{{&JoinOutput::keys, build.key_bytes},
                                 {&JoinOutput::build_values, build.value_bytes},
                                 {&JoinOutput::probe_values, probe.value_bytes}};
  std::erase_if(columns, [&](const RowColumn& column) { return !(out.*column.data); });
  return columns;
}

inline uint64_t row_bytes_of(const std::vector<RowColumn>& columns) {
  uint64_t bytes = 0;
  for (const RowColumn& column : columns) bytes += column.width;
  return bytes;
}

}  // namespace warpjoin
