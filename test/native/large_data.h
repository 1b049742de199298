// Data of more rows than 32 bits count: made and looked at with all threads, where the host has room for it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/engine.h"

namespace warpjoin::testing {

inline constexpr uint64_t kTo31 = uint64_t{1} << 31, kTo32 = uint64_t{1} << 32;

inline size_t free_host_bytes() {
  return static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

#define SKIP_WITHOUT_HOST_MEMORY(bytes)                                                               \
  if (::warpjoin::testing::free_host_bytes() < (bytes)) {                                             \
    GTEST_SKIP() << "needs " << static_cast<double>(bytes) / 1e9 << " GB of host memory; "            \
                 << static_cast<double>(::warpjoin::testing::free_host_bytes()) / 1e9 << " are free"; \
  }

/// The sum of value(row) over all rows.
template <class F>
uint64_t sum_rows(Engine& engine, uint64_t size, const F& value) {
  std::atomic<uint64_t> sum{0};
  const Job job;
  engine.pool.for_blocks(size, 1 << 12, job, [&](uint64_t begin, uint64_t end) {
    uint64_t own = 0;
    for (uint64_t row = begin; row < end; ++row) own += value(row);
    sum.fetch_add(own, std::memory_order_relaxed);
  });
  return sum.load();
}

template <class F>
void each_row(Engine& engine, uint64_t size, const F& body) {
  sum_rows(engine, size, [&](uint64_t row) {
    body(row);
    return uint64_t{0};
  });
}

}  // namespace warpjoin::testing
