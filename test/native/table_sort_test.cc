// Sorts of tables on host devices, and on such as behave like GPUs.
#include "failure_cases.h"
#include "far_device.h"
#include "table_sort_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

class TableSorts : public ::testing::TestWithParam<int> {};

TEST_P(TableSorts, EqualAStableSortOfRowNumbers) {
  Engine engine(config(GetParam()));
  check_table_sorts(engine, 20'000, 700);
  check_table_sorts(engine, 3000, 100'000);
}

TEST_P(TableSorts, EqualItWhereDevicesReadNoHostMemory) {
  const auto engine = make_far_engine(config(GetParam()));
  check_table_sorts(*engine, 20'000, 100'000);
  check_table_sorts(*engine, 30'000, 3);
  check_table_sorts(*engine, 5, 10);
  check_table_sorts(*engine, 1, 1);
  check_table_sorts(*engine, 0, 1);
}

INSTANTIATE_TEST_SUITE_P(Devices, TableSorts, ::testing::Values(1, 2, 3, 4, 8), ::testing::PrintToStringParamName());

class TableSortErrors : public ::testing::Test {
 protected:
  TableSortErrors() : random(1), of(20'000, 700, random) {}

  ErrorCode code_of(Engine& engine, size_t key, std::optional<size_t> payload, const std::vector<size_t>& columns) {
    Job job;
    const ResidentTable table = load_table(engine, all_devices(engine), of.columns, of.rows(), job);
    try {
      sort_table(engine, {&table, key, payload}, false, columns, job);
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::internal;
  }

  std::mt19937_64 random;
  SortTable of;
};

TEST_F(TableSortErrors, RefuseKeysAndPayloadsThatDoNotServeAsTheyAre) {
  Engine engine(config(2));
  EXPECT_EQ(code_of(engine, 4, {}, {4}), ErrorCode::not_supported);    // floats
  EXPECT_EQ(code_of(engine, 6, {}, {6}), ErrorCode::not_supported);    // booleans
  EXPECT_EQ(code_of(engine, 5, {}, {5}), ErrorCode::not_supported);    // nulls
  EXPECT_EQ(code_of(engine, 0, 7, {7}), ErrorCode::not_supported);     // 16 bytes
  EXPECT_EQ(code_of(engine, 0, 1, {1, 2}), ErrorCode::not_supported);  // carried along and gathered
}

TEST_F(TableSortErrors, GatherFromEvenStretchesAlone) {
  Engine engine(config(2));
  Job job;
  const ResidentTable table = load_table(engine, all_devices(engine), of.columns, of.rows(), job);
  ResidentTable sorted = sort_table(engine, {&table, 0, {}}, false, {0, 1, 2}, job);
  ASSERT_FALSE(spread_evenly(sorted));
  EXPECT_EQ(sort_table(engine, {&sorted, 1, 0}, true, {0, 1}, job).size(), of.rows());
  EXPECT_THROW(sort_table(engine, {&sorted, 1, {}}, true, {0, 1}, job), Error);
}

TEST_F(TableSortErrors, TakeTheMemoryThatIsPlanned) {
  for (const int devices : {1, 2, 3}) {
    const auto engine = make_far_engine(config(devices));
    Job job;
    const ResidentTable table = load_table(*engine, all_devices(*engine), of.columns, of.rows(), job);
    for (const std::vector<size_t>& columns : {std::vector<size_t>{0}, {0, 1, 2, 3, 4, 5, 6, 7}}) {
      const KeyedTable keyed{&table, 0, {}};
      std::vector<size_t> before;
      for (Device* device : table.devices) before.push_back(device->memory().resident_bytes());
      const ResidentTable sorted = sort_table(*engine, keyed, false, columns, job);
      for (size_t d = 0; d < before.size(); ++d) {
        EXPECT_LE(table.devices[d]->memory().peak_bytes(), before[d] + sort_table_device_bytes(keyed, columns));
      }
    }
  }
}

TEST_F(TableSortErrors, LeaveNothingBehind) {
  const auto engine = make_far_engine(config(2));
  const RepeatedCall call(*engine, [&](Job& job) {
    const ResidentTable table = load_table(*engine, all_devices(*engine), of.columns, of.rows(), job);
    sort_table(*engine, {&table, 1, {}}, true, {0, 5, 6}, job);
    sort_table(*engine, {&table, 0, 4}, false, {4, 0}, job);
  });
  check_failed_allocations(*engine, 2, call);
  check_cancelled_calls(call);
}

}  // namespace
}  // namespace warpjoin
