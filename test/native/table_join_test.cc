// Joins of tables on host devices, and on such as behave like GPUs.
#include <map>

#include "columns/table_sort_keys.h"
#include "failure_cases.h"
#include "far_device.h"
#include "sizes.h"
#include "table_join_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

class TableJoins : public ::testing::TestWithParam<int> {};

TEST_P(TableJoins, EqualAPlainLoop) {
  Engine engine(config(GetParam()));
  check_table_joins(engine, 3000, 2000, 700, 4);
  check_table_joins(engine, 500, 2000, 5000, 8);
}

TEST_P(TableJoins, EqualAPlainLoopWhereDevicesReadNoHostMemory) {
  const auto engine = make_far_engine(config(GetParam()));
  check_table_joins(*engine, 3000, 2000, 700, 8);
  check_table_joins(*engine, 1, 1, 1, 4);
  check_table_joins(*engine, 0, 100, 10, 4);
  check_table_joins(*engine, 100, 0, 10, 8);
}

TEST_P(TableJoins, EqualAPlainLoopByKeysThatAreMade) {
  const auto engine = make_far_engine(config(GetParam()));
  check_joins_by_made_keys(*engine, 150, 250);
  check_joins_by_any_values(*engine);
}

TEST_P(TableJoins, EqualAPlainLoopBySeveralKeys) {
  Engine engine(config(GetParam()));
  check_joins_by_several_keys(engine, many(160), many(240));
  const auto far = make_far_engine(config(GetParam()));
  check_joins_by_several_keys(*far, many(240), many(180));
  check_joins_by_several_keys(*far, 0, 3);
  check_joins_by_several_keys(*far, 2, 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, TableJoins, ::testing::Values(1, 2, 3, 4, 8), ::testing::PrintToStringParamName());

TEST(TableJoinsOfNoRows, HaveNoneByKeysThatAreMade) {
  const auto engine = make_far_engine(config(2));
  check_joins_by_made_keys(*engine, 0, 3);
  check_joins_by_made_keys(*engine, 2, 0);
}

class TableJoinErrors : public ::testing::Test {
 protected:
  TableJoinErrors() : random(1), of(join_table(3000, 700, 8, random)) {}

  ErrorCode code_of(Engine& engine, size_t left, size_t right, std::optional<size_t> payload) {
    Job job;
    const ResidentTable table = load_table(engine, all_devices(engine), of.columns, of.rows, job);
    try {
      const TableJoinKeys keys(table, table, {{left, right}}, job);
      join_tables(engine, {&keys, payload, {}}, {}, {}, job);
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::internal;
  }

  std::mt19937_64 random;
  JoinTable of;
};

TEST_F(TableJoinErrors, RefuseKeysAndPayloadsThatDoNotServe) {
  Engine engine(config(2));
  EXPECT_EQ(code_of(engine, 0, 2, {}), ErrorCode::not_supported);  // integers with floats
  EXPECT_EQ(code_of(engine, 3, 0, {}), ErrorCode::not_supported);  // booleans with integers
  EXPECT_EQ(code_of(engine, 4, 4, {}), ErrorCode::not_supported);  // no order
  EXPECT_EQ(code_of(engine, 0, 0, 4), ErrorCode::not_supported);   // 16 bytes, nulls
}

TEST_F(TableJoinErrors, TakeTheMemoryThatIsPlanned) {
  const JoinTable wide = join_table(50'000, 80'000, 8, random), narrow = join_table(50'000, 80'000, 4, random);
  for (const int devices : {1, 2, 3}) {
    size_t as_they_are = 0;
    for (const JoinTable* other : {&wide, &narrow}) {
      size_t matches[2], limit = 0;
      for (size_t& size : matches) {
        const auto engine = make_far_engine(config(devices, limit));
        Job job;
        const ResidentTable left = load_table(*engine, all_devices(*engine), wide.columns, wide.rows, job);
        const ResidentTable right = load_table(*engine, all_devices(*engine), other->columns, other->rows, job);
        const TableJoinKeys keys(left, right, {{0, 0}}, job);
        EXPECT_EQ(keys.are_columns(), other == &wide);
        const KeyedTables tables{&keys, 1, {}};
        const size_t planned = join_tables_device_bytes(*engine, tables, {});
        if (keys.are_columns()) as_they_are = planned;
        EXPECT_GE(planned, as_they_are + keys.made_bytes(left.rows[0]) + keys.made_bytes(right.rows[0]));
        limit = left.devices[0]->memory().resident_bytes() + planned;
        size = join_tables_home(*engine, tables, {}, job).size;
      }
      EXPECT_EQ(matches[0], matches[1]);
    }
  }
}

TEST_F(TableJoinErrors, OrderOfRowsThatCarryMoreThanNumbers) {
  Engine engine(config(2));
  Job job;
  const ResidentTable table = load_table(engine, all_devices(engine), of.columns, of.rows, job);
  const TableJoinKeys keys(table, table, {{0, 0}}, job);
  const auto code_of = [&](const KeyedTables& tables, const JoinRequest& request, const ResidentOrigin& origin) {
    try {
      join_tables(engine, tables, request, {origin}, job, TableRowOrder{});
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code_of({&keys, {}, {}}, {.want_keys = true}, {ResidentOrigin::From::keys, {}}), ErrorCode::option);
  EXPECT_EQ(code_of({&keys, 1, {}}, {}, {ResidentOrigin::From::left, {}}), ErrorCode::option);
  EXPECT_EQ(code_of({&keys, {}, {}}, {.want_left = false}, {ResidentOrigin::From::right, 1}), ErrorCode::option);
}

TEST_F(TableJoinErrors, LeaveNothingBehind) {
  const auto engine = make_far_engine(config(2));
  const RepeatedCall call(*engine, [&](Job& job) {
    const ResidentTable table = load_table(*engine, all_devices(*engine), of.columns, of.rows, job);
    const TableJoinKeys keys(table, table, {{0, 0}}, job), made(table, table, {{1, 0}}, job);
    join_tables(*engine, {&keys, {}, {}}, {.kind = JoinKind::full}, {{ResidentOrigin::From::left, 4}}, job);
    join_tables(*engine, {&keys, {}, {}}, {.kind = JoinKind::full}, {{ResidentOrigin::From::left, 4}}, job, TableRowOrder{});
    join_tables_home(*engine, {&keys, {}, {}}, {}, job);
    join_tables(*engine, {&made, {}, {}}, {.want_keys = true}, {{ResidentOrigin::From::keys, {}}}, job);
    const TableJoinKeys several(table, table, {{0, 0}, {3, 3, true}}, job);
    join_tables(*engine, {&several, {}, {}}, {.want_keys = true}, {{ResidentOrigin::From::keys, {}, 1}}, job);
  });
  check_failed_allocations(*engine, 2, call);
  check_cancelled_calls(call);
}

struct KeySide {
  ColumnType type;
  test::Values values;
};

class TableJoinKeysOf : public ::testing::Test {
 protected:
  void check(const KeySide& left, const KeySide& right, unsigned bits, bool are_columns, bool given = true) {
    std::mt19937_64 random(3);
    const test::TestColumn l("l", left.type, left.values, random), r("r", right.type, right.values, random);
    for (const int devices : {1, 2}) {
      Engine engine(config(devices));
      Job job;
      const ResidentTable a = load_table(engine, all_devices(engine), {&l.column}, left.values.size(), job);
      const ResidentTable b = load_table(engine, all_devices(engine), {&r.column}, right.values.size(), job);
      const TableJoinKeys keys(a, b, {{0, 0}}, job);
      EXPECT_EQ(keys.bits(), bits);
      EXPECT_EQ(keys.are_columns(), are_columns);
      EXPECT_EQ(keys.left().parts[0].given, given);
      if (bits <= kMostKeyBits) continue;
      const KeyedTables tables{&keys, {}, {}};
      EXPECT_THROW(join_tables_home(engine, tables, {}, job), Error);
    }
  }

  template <class T>
  KeySide side(const ColumnType& type, const std::vector<T>& numbers, size_t nulls = 0) {
    KeySide made{type, test::Values(nulls)};
    for (const T number : numbers) made.values.push_back(test::value_of(number));
    return made;
  }
};

TEST_F(TableJoinKeysOf, TakeAsFewBitsAsValuesAndNullsNeed) {
  const ColumnType i64 = test::signed_type(8), u64 = test::unsigned_type(8), i32 = test::signed_type(4),
                   u8 = test::unsigned_type(1);
  constexpr int64_t kLeast = INT64_MIN, kGreatest = INT64_MAX;
  check(side<int64_t>(i64, {5, -7}), side<int64_t>(i64, {kLeast, kGreatest}), 64, true);
  check(side<int32_t>(i32, {5, -7}), side<int32_t>(i32, {5}), 32, true);
  check(side<int32_t>(i32, {3}), side<int64_t>(i64, {3}), 0, false);
  check(side<int32_t>(i32, {3, -1}), side<int64_t>(i64, {2}), 3, false);
  check(side<int32_t>(i32, {3, -1}, 1), side<int64_t>(i64, {2}), 3, false);     // 5 values, 3 rows with nulls among them
  check(side<int32_t>(i32, {3, -1}, 1), side<int64_t>(i64, {2}, 3), 4, false);  // and 4 rows
  check(side<uint8_t>(u8, {0, 255}), side<int64_t>(i64, {-1}), 9, false);
  check(side<uint64_t>(u64, {~uint64_t{0}}), side<int64_t>(i64, {0}), 64, false);
  check(side<uint64_t>(u64, {~uint64_t{0}}), side<int64_t>(i64, {-1}), 65, false);
  check(side<int64_t>(i64, {kLeast, kGreatest}, 1), side<int64_t>(i64, {0}), 65, false);
  check(side<int64_t>(i64, {kLeast + 3, kGreatest}, 1), side<int64_t>(i64, {0}), 64, false);
  check(side<int64_t>(i64, {}, 4), side<int64_t>(i64, {}, 5), 4, false);
  check(side<int64_t>(i64, {}, 4), side<int64_t>(i64, {kLeast}), 3, false);
  check(side<uint8_t>(u8, {}), side<uint8_t>(u8, {}), 0, false);
}

TEST_F(TableJoinKeysOf, OfSeveralPairsTakeTheBitsOfEach) {
  std::mt19937_64 random(8);
  const ColumnType i32 = test::signed_type(4), i64 = test::signed_type(8);
  const auto bits_of = [&](const KeySide& one, const KeySide& two, bool one_equal, bool two_equal) {
    const test::TestColumn a("a", one.type, one.values, random), b("b", two.type, two.values, random);
    Engine engine(config(2));
    Job job;
    const ResidentTable table = load_table(engine, all_devices(engine), {&a.column, &b.column}, one.values.size(), job);
    return TableJoinKeys(table, table, {{0, 0, one_equal}, {1, 1, two_equal}}, job).bits();
  };
  const KeySide whole = side<int32_t>(i32, {INT32_MIN, INT32_MAX, 5}), wide = side<int64_t>(i64, {0, int64_t{1} << 31, 7});
  const KeySide small = side<int32_t>(i32, {2, 9, 3}), null = side<int32_t>(i32, {2, 8}, 1);  // 7 values, and a null
  EXPECT_EQ(bits_of(whole, whole, false, false), 64u);
  EXPECT_EQ(bits_of(whole, wide, false, false), 64u);
  EXPECT_EQ(bits_of(small, small, false, false), 6u);
  EXPECT_EQ(bits_of(null, small, true, false), 6u);   // the eighth code is that of nulls
  EXPECT_EQ(bits_of(null, small, false, false), 7u);  // behind 8 * 7 keys come those of 6 rows
  EXPECT_EQ(bits_of(small, null, false, false), 6u);  // 7 * 8 keys and 6 rows are 62
  EXPECT_EQ(bits_of(whole, side<int32_t>(i32, {INT32_MIN, INT32_MAX}, 1), false, true), 65u);
  EXPECT_EQ(bits_of(whole, side<int32_t>(i32, {INT32_MIN, INT32_MAX}, 1), false, false), 65u);
}

TEST_F(TableJoinKeysOf, AreMadeOfColumnsThatAreReadOnce) {
  std::mt19937_64 random(6);
  const KeySide numbers = side<int16_t>(test::signed_type(2), {-3, 4, 0, 1, 2, 2, 3}, 1);
  const test::TestColumn column("c", numbers.type, numbers.values, random);
  Engine engine(config(2));
  Job job;
  const ResidentTable table = load_table(engine, all_devices(engine), {&column.column}, numbers.values.size(), job);
  EXPECT_EQ(TableSortKeys(table, {{0}}, {}, job).bits(), 4u);
  static_cast<int16_t*>(table.columns[0].stretches[0].values)[3] = 30'000;
  EXPECT_EQ(TableSortKeys(table, {{0}}, {}, job).bits(), 4u);
  EXPECT_EQ(TableJoinKeys(table, table, {{0, 0}}, job).bits(), 5u);  // 8 values, and 16 nulls at most
}

TEST_F(TableJoinKeysOf, GiveEachNullAKeyOfItsOwn) {
  std::mt19937_64 random(5);
  const ColumnType type = test::signed_type(4);
  const test::Draw draw{.nulls = 0.5, .distinct = 10};
  const test::TestColumn l("l", type, test::draw_values(type, 1000, draw, random), random);
  const test::TestColumn r("r", type, test::draw_values(type, 777, draw, random), random);
  for (const int devices : {1, 3}) {
    Engine engine(config(devices));
    Job job;
    const ResidentTable left = load_table(engine, all_devices(engine), {&l.column}, 1000, job);
    const ResidentTable right = load_table(engine, all_devices(engine), {&r.column}, 777, job);
    const TableJoinKeys keys(left, right, {{0, 0}}, job);
    ASSERT_EQ(keys.key_bytes(), 4);
    const std::vector<Buffer> held = reserve_beside_tables(left.devices, size_t{1} << 20);
    std::map<uint32_t, int> rows;
    std::vector<Buffer> made;
    for (const TableJoinKeys::Side* side : {&keys.left(), &keys.right()}) {
      for (const TupleView& chunk : keys.chunks(*side, {}, made, job)) {
        const auto* const of = static_cast<const uint32_t*>(chunk.keys);
        for (uint64_t row = 0; row < chunk.size; ++row) ++rows[of[row]];
      }
    }
    for (const auto& [key, count] : rows) EXPECT_EQ(count > 1, key < 10) << "key " << key;
  }
}

TEST_F(TableJoinKeysOf, GiveTheLeftColumnButForZeroesAndNansOfOtherBits) {
  const ColumnType f64 = test::floating_type(8);
  const double nan = std::bit_cast<double>(uint64_t{0x7FF8} << 48), other_nan = std::bit_cast<double>(uint64_t{0xFFF8} << 48);
  const unsigned bits = 64;
  check(side<double>(f64, {0.0, -INFINITY, nan}), side<double>(f64, {-0.0, other_nan}), bits, false);
  check(side<double>(f64, {-0.0, -INFINITY, nan}), side<double>(f64, {0.0}), bits, false, false);
  check(side<double>(f64, {1, -INFINITY, other_nan}), side<double>(f64, {0.0}), bits, false, false);
}

}  // namespace
}  // namespace warpjoin
