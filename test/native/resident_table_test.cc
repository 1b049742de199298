// Tables that stay on host devices, and on such as behave like GPUs.
#include "failure_cases.h"
#include "far_device.h"
#include "resident_table_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

class ResidentTables : public ::testing::TestWithParam<int> {};

TEST_P(ResidentTables, ComeHomeAsTheyWere) {
  Engine engine(config(GetParam()));
  for (const uint64_t rows : {0, 1, 127, 128, 129, 5000}) check_resident_table(engine, rows, rows + 1);
}

TEST_P(ResidentTables, ComeHomeFromDevicesThatReadNoHostMemory) {
  for (const bool pinned : {false, true}) {
    const auto engine = make_far_engine(config(GetParam()), true, pinned);
    for (const uint64_t rows : {0, 1, 5000}) check_resident_table(*engine, rows, rows + 2);
    // More than a block of the ring a device, of the widest columns.
    if (!pinned) check_resident_table(*engine, 9000 * static_cast<uint64_t>(GetParam()), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ResidentTables, ::testing::Values(1, 2, 3, 4, 8), ::testing::PrintToStringParamName());

TEST(ResidentTableErrors, RefuseWhatDevicesCantUse) {
  Engine engine(config(2));
  std::mt19937_64 random(1);
  const test::TestColumn text("t", test::utf8_type(), test::Values(10, "x"), {10}, random);
  Job job;
  EXPECT_THROW(load_table(engine, all_devices(engine), {&text.column}, 10, job), Error);
}

TEST(ResidentTableErrors, KeepWithinTheDeviceMemoryLimit) {
  const TableOf of(5000, 1);
  Engine measured(config(2));
  const size_t bytes = resident_table_bytes(of.columns, 5000, all_devices(measured));
  Engine small(config(2, bytes / 2)), enough(config(2, bytes));
  Job job;
  EXPECT_THROW(load_table(small, all_devices(small), of.columns, 5000, job), Error);
  EXPECT_NO_THROW(load_table(enough, all_devices(enough), of.columns, 5000, job));
}

TEST(ResidentTableErrors, LeaveNothingBehind) {
  const auto engine = make_far_engine(config(2));
  const TableOf of(5000, 2);
  const RepeatedCall call(*engine, [&](Job& job) {
    const ResidentTable table = load_table(*engine, all_devices(*engine), of.columns, 5000, job);
    bring_home(*engine, table, {0, 1, 7}, job);
  });
  check_failed_allocations(*engine, 2, call, 1);
  check_cancelled_calls(call);
}

}  // namespace
}  // namespace warpjoin
