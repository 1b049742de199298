#include <algorithm>

#include "join/join_rows.h"

namespace warpjoin {
namespace {

template <class Row>
void write_cross(Engine& engine, uint64_t right_rows, const JoinRows& rows, Job& job) {
  constexpr uint64_t kGrain = 1 << 17;
  Row* const left = rows.left.as<Row>();
  Row* const right = rows.right.as<Row>();
  engine.pool.parallel_for(rows.size / kGrain + (rows.size % kGrain != 0), [&](uint64_t task) {
    job.check();
    const uint64_t end = std::min(rows.size, (task + 1) * kGrain);
    for (uint64_t i = task * kGrain; i < end;) {
      const uint64_t l = i / right_rows, r = i % right_rows;
      const uint64_t stop = std::min(end, i + right_rows - r);
      std::fill(left + i, left + stop, static_cast<Row>(l));
      for (uint64_t j = i; j < stop; ++j) right[j] = static_cast<Row>(r + (j - i));
      i = stop;
    }
    job.add_done(end - task * kGrain);
  });
}

}  // namespace

JoinRows cross_join(Engine& engine, uint64_t left_rows, uint64_t right_rows, uint64_t max_rows, Job& job) {
  JoinRows rows;
  if (left_rows && right_rows && left_rows > UINT64_MAX / right_rows) {
    throw Error(ErrorCode::memory_limit, "The cross join of " + std::to_string(left_rows) + " and " + std::to_string(right_rows) +
                                             " rows gives more than 2^64 - 1 rows");
  }
  rows.size = left_rows * right_rows;
  check_max_rows(rows.size, max_rows);
  const bool narrow = std::max(left_rows, right_rows) < UINT32_MAX;
  rows.left_layout.value_bytes = rows.right_layout.value_bytes = narrow ? 4 : 8;
  const uint64_t bytes = column_bytes(rows.size, rows.left_layout.value_bytes);
  rows.left = engine.memory->allocate(bytes, "the left rows of a cross join");
  rows.right = engine.memory->allocate(bytes, "the right rows of a cross join");
  job.add_planned(rows.size);
  const PhaseTimer timer(job, "write", 2 * bytes);
  if (narrow) {
    write_cross<uint32_t>(engine, right_rows, rows, job);
  } else {
    write_cross<uint64_t>(engine, right_rows, rows, job);
  }
  return rows;
}

}  // namespace warpjoin
