// Joins of more rows, and to more pairs, than 32 bits count, on host devices. Those that take much memory are skipped where there
// is less.
#include <gtest/gtest.h>

#include "large_join_cases.h"
#include "places.h"

namespace warpjoin {
namespace {

using namespace testing;

TEST(LargeJoin, CountsMorePairsThan32BitsCount) {
  for (const Place place : {Place::host, Place::far}) check_counted_pairs(*make_engine(2, place));
}

TEST(LargeJoin, ProbesMoreRowsThan32BitsCount) {
  constexpr LargeSides sides{kTo32 + 12345, 1 << 16};  // of which no side is partitioned
  SKIP_WITHOUT_HOST_MEMORY(sides.key_bytes() + sides.left * 4 + kOther);
  const auto engine = make_large_engine();
  const JoinKeys keys = sides.keys(*engine);
  Job job;
  check_large_counts(*engine, sides, keys, {}, job);
  expect_large_rows(*engine, sides, join(*engine, keys, large_request(JoinKind::inner), {}, job), JoinKind::inner);
}

TEST(LargeJoin, WritesMorePairsThan32BitsCount) {
  SKIP_WITHOUT_HOST_MEMORY(kWrittenBytes + kOther);
  check_written_pairs(*make_large_engine(), {});
}

}  // namespace
}  // namespace warpjoin
