// What the encoded keys of a join say.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "columns/encode.h"

namespace warpjoin::test {

inline uint64_t read(const void* array, uint8_t width, uint64_t i) {
  uint64_t value = 0;
  std::memcpy(&value, static_cast<const char*>(array) + i * width, width);
  return value;
}

/// Checks that a side's tuples and excluded rows are its rows, each once; returns row and key of its tuples.
inline std::vector<std::pair<uint64_t, uint64_t>> tuples_of(const JoinSide& side, uint64_t rows) {
  const TupleView view = side.tuples.view;
  const TupleLayout layout = side.tuples.layout;
  EXPECT_EQ(side.rows, rows);
  EXPECT_EQ(view.size + side.excluded_rows, rows);
  std::vector<std::pair<uint64_t, uint64_t>> tuples;
  std::vector<int> seen(rows);
  uint64_t varying = 0, previous = 0;
  for (uint64_t i = 0; i < view.size; ++i) {
    const uint64_t row = view.values ? read(view.values, layout.value_bytes, i) : view.first_value + i;
    const uint64_t key = read(view.keys, layout.key_bytes, i);
    EXPECT_TRUE(i == 0 || row > previous);
    previous = row;
    varying |= key ^ read(view.keys, layout.key_bytes, 0);
    ++seen.at(row);
    tuples.push_back({row, key});
  }
  EXPECT_EQ(varying & ~side.tuples.varying_bits, 0u);
  for (uint64_t i = 0; i < side.excluded_rows; ++i) {
    const uint64_t row = read(side.excluded.data(), layout.value_bytes, i);
    EXPECT_TRUE(i == 0 || row > previous);
    previous = row;
    ++seen.at(row);
  }
  EXPECT_EQ(seen, std::vector<int>(rows, 1));
  return tuples;
}

}  // namespace warpjoin::test
