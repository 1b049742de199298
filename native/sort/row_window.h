// Which rows of an order are wanted.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/sharding.h"

namespace warpjoin {

/// Rows [first, first + rows) of an order, as far as there are so many.
struct RowWindow {
  uint64_t first = 0, rows = UINT64_MAX;

  /// What is there of it in an order of `size` rows.
  constexpr RowWindow within(uint64_t size) const {
    const uint64_t begin = std::min(first, size);
    return {begin, std::min(rows, size - begin)};
  }
  /// Where it ends, if it is within an order.
  constexpr uint64_t end() const { return first + rows; }
};

/// Shard d of rows that are spread over devices: rows [begin, end).
struct Shard {
  uint64_t begin, end;

  static constexpr Shard of(uint64_t rows, size_t devices, size_t d) {
    const uint64_t each = Sharding::of(rows, devices).shard_rows;
    return {std::min(rows, each * d), std::min(rows, each * (d + 1))};
  }
};

}  // namespace warpjoin
