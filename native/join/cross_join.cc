#include <algorithm>

#include "join/join_rows.h"

namespace warpjoin {
namespace {

/// Rows [offset, offset + size) of all pairs, by `outer` row and then by `inner` row, of which there are `inner_rows`.
template <class Row>
void write_cross(Engine& engine, uint64_t inner_rows, uint64_t offset, uint64_t size, Row* outer, Row* inner, Job& job) {
  constexpr uint64_t kGrain = 1 << 17;
  engine.pool.parallel_for(size / kGrain + (size % kGrain != 0), [&](uint64_t task) {
    job.check();
    const uint64_t end = std::min(size, (task + 1) * kGrain);
    for (uint64_t i = task * kGrain; i < end;) {
      const uint64_t o = (offset + i) / inner_rows, first = (offset + i) % inner_rows;
      const uint64_t stop = std::min(end, i + inner_rows - first);
      std::fill(outer + i, outer + stop, static_cast<Row>(o));
      for (uint64_t j = i; j < stop; ++j) inner[j] = static_cast<Row>(first + (j - i));
      i = stop;
    }
    job.add_done(end - task * kGrain);
  });
}

}  // namespace

JoinRows cross_join(Engine& engine, uint64_t left_rows, uint64_t right_rows, uint64_t max_rows, bool left_first, uint64_t offset,
                    uint64_t limit, Job& job) {
  JoinRows rows;
  uint64_t all;
  if (__builtin_mul_overflow(left_rows, right_rows, &all)) {
    throw Error(ErrorCode::output_rows, "The cross join of " + std::to_string(left_rows) + " and " + std::to_string(right_rows) +
                                            " rows gives more than 2^64 - 1 rows");
  }
  check_max_rows(all, max_rows);
  offset = std::min(offset, all);
  rows.size = std::min(limit, all - offset);
  const bool narrow = std::max(left_rows, right_rows) < UINT32_MAX;
  rows.left_layout.value_bytes = rows.right_layout.value_bytes = narrow ? 4 : 8;
  const uint64_t bytes = column_bytes(rows.size, rows.left_layout.value_bytes);
  rows.left = engine.memory->allocate(bytes, "the left rows of a cross join");
  rows.right = engine.memory->allocate(bytes, "the right rows of a cross join");
  job.add_planned(rows.size);
  const PhaseTimer timer(job, "write", 2 * bytes);
  const HostBuffer &outer = left_first ? rows.left : rows.right, &inner = left_first ? rows.right : rows.left;
  const uint64_t inner_rows = left_first ? right_rows : left_rows;
  if (narrow) {
    write_cross(engine, inner_rows, offset, rows.size, outer.as<uint32_t>(), inner.as<uint32_t>(), job);
  } else {
    write_cross(engine, inner_rows, offset, rows.size, outer.as<uint64_t>(), inner.as<uint64_t>(), job);
  }
  return rows;
}

}  // namespace warpjoin
