// Sorts of tables on host devices, and on such as behave like GPUs.
#include "failure_cases.h"
#include "far_device.h"
#include "sizes.h"
#include "table_sort_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

class TableSorts : public ::testing::TestWithParam<int> {};

TEST_P(TableSorts, EqualAStableSortOfRowNumbers) {
  Engine engine(config(GetParam()));
  check_table_sorts(engine, 7000, 700);
  check_table_sorts(engine, 3000, 100'000);
}

TEST_P(TableSorts, EqualItWhereDevicesReadNoHostMemory) {
  const auto engine = make_far_engine(config(GetParam()));
  check_table_sorts(*engine, 9000, 100'000);
  check_table_sorts(*engine, 9000, 3);
  check_table_sorts(*engine, 5, 10);
  check_table_sorts(*engine, 1, 1);
  check_table_sorts(*engine, 0, 1);
}

TEST_P(TableSorts, TakeTheRowsThatAreWanted) {
  const auto engine = make_far_engine(config(GetParam()));
  check_top_rows(*engine, many(9000), many(100'000));
  check_top_rows(*engine, 9000, 5);
  check_top_rows(*engine, 3, 10);
  check_top_rows(*engine, 0, 1);
  Engine host(config(GetParam()));
  check_top_rows(host, many(20'000), many(700));
}

INSTANTIATE_TEST_SUITE_P(Devices, TableSorts, ::testing::Values(1, 2, 3, 4, 8), ::testing::PrintToStringParamName());

class TableSortErrors : public ::testing::Test {
 protected:
  TableSortErrors() : random(1), of(20'000, 700, random) {}

  ErrorCode code_of(Engine& engine, const std::vector<size_t>& by, std::optional<size_t> payload,
                    const std::vector<size_t>& columns) {
    Job job;
    const ResidentTable table = load_table(engine, all_devices(engine), of.columns, of.rows(), job);
    std::vector<TableSortColumn> ascending;
    for (const size_t column : by) ascending.push_back({column});
    try {
      sort_table(engine, {table, ascending, payload, job}, columns, job);
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::internal;
  }

  std::mt19937_64 random;
  SortTable of;
};

TEST_F(TableSortErrors, RefuseKeysAndPayloadsThatDoNotServe) {
  Engine engine(config(2));
  EXPECT_EQ(code_of(engine, {}, {}, {4}), ErrorCode::option);            // no column
  EXPECT_EQ(code_of(engine, {7}, {}, {7}), ErrorCode::key_type);         // 16 bytes
  EXPECT_EQ(code_of(engine, {0}, 7, {7}), ErrorCode::not_supported);     // 16 bytes
  EXPECT_EQ(code_of(engine, {0}, 1, {1, 2}), ErrorCode::not_supported);  // carried along and gathered
  EXPECT_EQ(code_of(engine, {11}, 1, {2}), ErrorCode::not_supported);    // the same with a key that is made
  EXPECT_EQ(code_of(engine, {2, 3}, {}, {1}), ErrorCode::not_supported);
  EXPECT_EQ(code_of(engine, {8, 11}, {}, {1}), ErrorCode::not_supported);
}

TEST(TableSortKeys, TakeAsFewBitsAsTheirValuesNeed) {
  std::mt19937_64 random(3);
  struct Case {
    std::vector<int64_t> values;
    bool null;
    unsigned bits;
  };
  constexpr int64_t kLeast = INT64_MIN, kGreatest = INT64_MAX;
  for (const auto& [values, null, bits] :
       {Case{{5, 5}, false, 0}, Case{{5, 6}, false, 1}, Case{{5, 6}, true, 2}, Case{{-1, 2}, false, 2}, Case{{}, true, 0},
        Case{{7}, true, 1}, Case{{kLeast, kGreatest - 1}, true, 64}, Case{{kLeast, kGreatest}, true, 65}}) {
    test::Values column(1);
    column[0] = std::nullopt;
    if (!null) column.clear();
    for (const int64_t value : values) column.push_back(test::value_of(value));
    const test::TestColumn made("c", test::signed_type(8), column, random);
    const test::TestColumn same("c", test::boolean_type(), test::Values(column.size(), std::string(1, '\1')), random);
    for (const int devices : {1, 2}) {
      Engine engine(config(devices));
      Job job;
      const ResidentTable table = load_table(engine, all_devices(engine), {&made.column, &same.column}, column.size(), job);
      EXPECT_EQ(TableSortKeys(table, {{1}, {0}}, {}, job).bits(), bits);
    }
  }
}

TEST(TableSortKeys, GiveColumnsButForZeroesAndNansOfOtherBits) {
  std::mt19937_64 random(4);
  const auto gives = [&](const std::vector<double>& numbers) {
    test::Values values(1);
    for (const double number : numbers) values.push_back(test::value_of(number));
    const test::TestColumn column("c", test::floating_type(8), values, random);
    Engine engine(config(2));
    Job job;
    const ResidentTable table = load_table(engine, all_devices(engine), {&column.column}, values.size(), job);
    return TableSortKeys(table, {{0}}, {}, job).give_columns();
  };
  const double nan = std::bit_cast<double>(uint64_t{0x7FF8} << 48), other_nan = std::bit_cast<double>(uint64_t{0xFFF8} << 48);
  EXPECT_TRUE(gives({0.0, 1.5, -2.5, INFINITY, nan}));
  EXPECT_FALSE(gives({1.5, -0.0}));
  EXPECT_FALSE(gives({other_nan, 1.5}));
}

TEST_F(TableSortErrors, GatherFromEvenStretchesAlone) {
  Engine engine(config(2));
  Job job;
  const ResidentTable table = load_table(engine, all_devices(engine), of.columns, of.rows(), job);
  ResidentTable sorted = sort_table(engine, {table, {{0}}, {}, job}, {0, 1, 2}, job);
  ASSERT_FALSE(spread_evenly(sorted));
  EXPECT_EQ(sort_table(engine, {sorted, {{1, true}}, 0, job}, {0, 1}, job).size(), of.rows());
  const TableSortKeys keys(sorted, {{1, true}}, {}, job);
  EXPECT_THROW(sort_table(engine, keys, {0, 1}, job), Error);
}

// A sort of all rows answers where the sampled ones are not like the others.
TEST(TopRowsOfATable, AreRightWhereTheSampleMisleads) {
  constexpr uint64_t kRows = 20'000, kSampled = kRows / 8;
  for (const bool least : {true, false}) {
    test::Values keys(kRows);
    for (uint64_t row = 0; row < kRows; ++row) keys[row] = test::value_of(row * 7919 % kRows + 10);
    for (uint64_t i = 0; i < kSampled; ++i)
      keys[sampled_row(kRows, kSampled, i)] = test::value_of(least ? i % 4 : 10 * kRows + i);
    std::mt19937_64 random(9);
    const test::TestColumn column("k", test::unsigned_type(8), keys, random);
    const std::vector<uint64_t> order = test::sorted_rows({{column.column.type, keys, false, true}});
    const auto engine = make_far_engine(config(1));
    Job job;
    const ResidentTable table = load_table(*engine, all_devices(*engine), {&column.column}, kRows, job);
    const TableSortKeys by(table, {{0}}, {}, job);
    const ResidentTable sorted = sort_table(*engine, by, {0}, job, {5, 1000});
    const test::Values got = test::values_of(bring_home(*engine, sorted, {0}, job)[0], column.column.type);
    ASSERT_EQ(got.size(), 1000u);
    for (uint64_t row = 0; row < 1000; ++row) ASSERT_EQ(got[row], keys[order[5 + row]]) << row;
    EXPECT_LT(sort_table_device_bytes(by, {0}, {5, 1000}), sort_table_device_bytes(by, {0}));
  }
}

TEST_F(TableSortErrors, TakeTheMemoryThatIsPlannedForFewRows) {
  for (const int devices : {1, 2, 3}) {
    for (const std::vector<TableSortColumn>& by : std::vector<std::vector<TableSortColumn>>{{{0}}, {{10}}, {{0}, {11}}}) {
      for (const RowWindow& window : {RowWindow{0, 100}, RowWindow{300, 10}, RowWindow{0, 15'000}}) {
        for (const auto& [payload, columns] :
             {std::pair<std::optional<size_t>, std::vector<size_t>>{{}, {0, 1, 2, 7}}, {2, {2}}}) {
          const auto engine = make_far_engine(config(devices));
          Job job;
          const ResidentTable table = load_table(*engine, all_devices(*engine), of.columns, of.rows(), job);
          std::vector<size_t> before;
          for (Device* device : table.devices) before.push_back(device->memory().resident_bytes());
          const TableSortKeys keys(table, by, payload, job);
          const ResidentTable sorted = sort_table(*engine, keys, columns, job, window);
          for (size_t d = 0; d < before.size(); ++d) {
            EXPECT_LE(table.devices[d]->memory().peak_bytes(), before[d] + sort_table_device_bytes(keys, columns, window));
          }
        }
      }
    }
  }
}

TEST_F(TableSortErrors, TakeTheMemoryThatIsPlanned) {
  for (const int devices : {1, 2, 3}) {
    for (const std::vector<TableSortColumn>& by :
         std::vector<std::vector<TableSortColumn>>{{{0}}, {{10}}, {{8}}, {{0}, {11}}, {{12}}}) {
      for (const std::vector<size_t>& columns : {std::vector<size_t>{0}, {0, 1, 2, 3, 4, 5, 6, 7}}) {
        const auto engine = make_far_engine(config(devices));
        Job job;
        const ResidentTable table = load_table(*engine, all_devices(*engine), of.columns, of.rows(), job);
        std::vector<size_t> before;
        for (Device* device : table.devices) before.push_back(device->memory().resident_bytes());
        const TableSortKeys keys(table, by, {}, job);
        const ResidentTable sorted = sort_table(*engine, keys, columns, job);
        for (size_t d = 0; d < before.size(); ++d) {
          EXPECT_LE(table.devices[d]->memory().peak_bytes(), before[d] + sort_table_device_bytes(keys, columns));
        }
      }
    }
  }
}

TEST_F(TableSortErrors, LeaveNothingBehind) {
  const auto engine = make_far_engine(config(2));
  const RepeatedCall call(*engine, [&](Job& job) {
    const ResidentTable table = load_table(*engine, all_devices(*engine), of.columns, of.rows(), job);
    sort_table(*engine, {table, {{1, true}}, {}, job}, {0, 5, 6}, job);
    sort_table(*engine, {table, {{0}}, 4, job}, {4, 0}, job);
    sort_table(*engine, {table, {{12}, {11}}, {}, job}, {4, 11}, job);
    sort_table(*engine, {table, {{12}, {11}}, 2, job}, {12, 2}, job);
    sort_table(*engine, {table, {{1, true}}, {}, job}, {0, 5, 6}, job, {3, 50});
    sort_table(*engine, {table, {{12}, {11}}, 2, job}, {12, 2}, job, {0, 15'000});
  });
  check_failed_allocations(*engine, 2, call);
  check_cancelled_calls(call);
}

}  // namespace
}  // namespace warpjoin
