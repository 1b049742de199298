#include <gtest/gtest.h>

#include "far_device.h"
#include "join_cases.h"
#include "places.h"
#include "sizes.h"

namespace warpjoin {
namespace {

using namespace testing;

/// The tuples of a table of so many rows, some of them excluded, whose keys are their rows.
Rows table_rows(std::mt19937_64& random, size_t size, double excluded) {
  Rows rows(size);
  for (size_t row = 0; row < size; ++row) {
    if (static_cast<double>(random() % 1000) >= excluded * 1000) rows[row] = row;
  }
  return rows;
}

/// Rows with keys of the table's tuples, or none.
Rows probe_rows(std::mt19937_64& random, size_t size, const Rows& table, double excluded) {
  Rows rows(size);
  for (auto& row : rows) {
    if (table.empty() || static_cast<double>(random() % 1000) < excluded * 1000) continue;
    row = table[random() % table.size()];
  }
  return rows;
}

TEST(LookupJoin, GivesTheRowsOfEveryKindOfJoin) {
  const auto engine = make_engine(1, Place::host);
  std::mt19937_64 random(1);
  for (const JoinKind kind : kKinds) {
    for (const bool table_is_left : {false, true}) {
      for (const double excluded : {0.0, 0.2}) {
        for (const auto& [table_size, probe_size] :
             {std::pair<uint64_t, uint64_t>{0, 50}, {50, 0}, {1, 1}, {300, 1000}, {many(150000), many(90000)}}) {
          const Rows table = table_rows(random, table_size, excluded), probe = probe_rows(random, probe_size, table, excluded);
          constexpr Shape shapes[] = {{8, 4, 4}, {8, 8, 4}, {4, 4, 8}};
          JoinKeys keys = make_keys(*engine, table_is_left ? table : probe, table_is_left ? probe : table, shapes[random() % 3]);
          (table_is_left ? keys.left : keys.right).keys_are_rows = true;
          JoinRequest request{.kind = kind};
          SCOPED_TRACE(::testing::Message() << "kind " << int(kind) << " table_is_left " << table_is_left << " excluded "
                                            << excluded << " rows " << table_size << " " << probe_size);
          Job job;
          // Tables this large take the naive reference too long: a hash join has been checked against it.
          std::vector<Row> expected;
          if (table_size > 1000) {
            JoinKeys same = make_keys(*engine, table_is_left ? table : probe, table_is_left ? probe : table, {4, 4, 4});
            expected = read(hash_join(*engine, same, request, {.devices = {0}}, job), request);
          } else {
            expected = naive(table_is_left ? table : probe, table_is_left ? probe : table, request);
          }
          Job own;
          const JoinRows rows = lookup_join(*engine, keys, request, own);
          ASSERT_EQ(rows.size, expected.size());
          ASSERT_EQ(read(rows, request), expected);
          ASSERT_EQ(own.done(), own.planned());
          request.count_only = true;
          ASSERT_EQ(lookup_join(*engine, keys, request, own).size, expected.size());
          if (expected.empty()) continue;
          request.max_rows = expected.size() - 1;
          ASSERT_THROW(lookup_join(*engine, keys, request, own), Error);
        }
      }
    }
  }
}

TEST(LookupJoin, RefusesKeysThatAreNoRows) {
  const auto engine = make_engine(1, Place::host);
  JoinKeys keys = make_keys(*engine, Rows(3, 1), Rows(3, 1), {});
  Job job;
  EXPECT_THROW(lookup_join(*engine, keys, {}, job), Error);
  keys.left.keys_are_rows = true;
  EXPECT_THROW(lookup_join(*engine, keys, {.want_keys = true}, job), Error);
}

}  // namespace
}  // namespace warpjoin
