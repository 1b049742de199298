// Joins of tables on host devices, and on such as behave like GPUs.
#include "failure_cases.h"
#include "far_device.h"
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

INSTANTIATE_TEST_SUITE_P(Devices, TableJoins, ::testing::Values(1, 2, 3, 4, 8), ::testing::PrintToStringParamName());

class TableJoinErrors : public ::testing::Test {
 protected:
  TableJoinErrors() : random(1), of(3000, 700, 8, random) {}

  ErrorCode code_of(Engine& engine, size_t key, std::optional<size_t> payload) {
    Job job;
    const ResidentTable table = load_table(engine, all_devices(engine), of.columns, of.rows, job);
    try {
      join_tables(engine, {&table, key, payload}, {&table, 0, {}}, {}, {}, job);
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::internal;
  }

  std::mt19937_64 random;
  JoinTable of;
};

TEST_F(TableJoinErrors, RefuseKeysAndPayloadsThatDoNotServeAsTheyAre) {
  Engine engine(config(2));
  EXPECT_EQ(code_of(engine, 2, {}), ErrorCode::not_supported);  // floats
  EXPECT_EQ(code_of(engine, 3, {}), ErrorCode::not_supported);  // booleans
  EXPECT_EQ(code_of(engine, 1, {}), ErrorCode::not_supported);  // signed with unsigned
  EXPECT_EQ(code_of(engine, 0, 4), ErrorCode::not_supported);   // 16 bytes, nulls
}

TEST_F(TableJoinErrors, LeaveNothingBehind) {
  const auto engine = make_far_engine(config(2));
  const RepeatedCall call(*engine, [&](Job& job) {
    const ResidentTable table = load_table(*engine, all_devices(*engine), of.columns, of.rows, job);
    const KeyedTable side{&table, 0, {}};
    join_tables(*engine, side, side, {.kind = JoinKind::full}, {{ResidentOrigin::From::left, 4}}, job);
    join_tables_home(*engine, side, side, {}, job);
  });
  check_failed_allocations(*engine, 2, call);
  check_cancelled_calls(call);
}

}  // namespace
}  // namespace warpjoin
