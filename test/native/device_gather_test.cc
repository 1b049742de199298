// Gathers on host devices, and on such as behave like GPUs.
#include "device_gather_cases.h"
#include "far_device.h"

namespace warpjoin {
namespace {

using namespace testing;

TEST(Sharding, FindsTheShardOfEveryRow) {
  for (const size_t shards : {1, 2, 3, 4, 5, 7, 8, 32}) {
    for (const uint64_t rows :
         {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{128}, uint64_t{129}, uint64_t{100'000}, uint64_t{1} << 23,
          (uint64_t{1} << 23) - 1, uint64_t{1'234'567'891}, (uint64_t{1} << 32) + 12'345, uint64_t{1} << 45}) {
      const Sharding sharding = Sharding::of(rows, shards);
      ASSERT_GE(sharding.shard_rows * shards, rows);
      ASSERT_EQ(sharding.shard_rows % 128, 0u);
      const auto check = [&](uint64_t row) {
        if (row < rows) ASSERT_EQ(sharding.shard_of(row), row / sharding.shard_rows) << row << " of " << rows << ", " << shards;
      };
      for (uint64_t s = 0; s <= shards; ++s) check(s * sharding.shard_rows), check(s * sharding.shard_rows - 1);
      const uint64_t step = std::max<uint64_t>(1, rows / 5'000);
      for (uint64_t row = 0; row < rows; row += step) check(row);
      if (HasFailure()) return;
    }
  }
}

class DeviceGather : public ::testing::TestWithParam<int> {};

TEST_P(DeviceGather, PrimitivesReadAllShards) {
  Engine engine(config(GetParam()));
  check_gather_primitives(engine, {1, 300, 5000}, {0, 1, 63, 64, 65, 1000});
}

TEST_P(DeviceGather, EqualsTheGatherOfTheHost) {
  Engine engine(config(GetParam()));
  check_device_gather_sizes(engine, {1, 129, 4000}, {0, 1, 64, 1025, 9000});
}

TEST_P(DeviceGather, EqualsTheGatherOfTheHostWhereDevicesReadNoHostMemory) {
  for (const bool pinned : {false, true}) {
    const auto engine = make_far_engine(config(GetParam()), true, pinned);
    for (const bool may_be_missing : {false, true}) {
      check_device_gather(*engine, 4000, 9000, 4, may_be_missing, 7);
      check_device_gather(*engine, 1, 1, 8, may_be_missing, 8);
    }
    check_device_gather(*engine, 0, 100, 4, true, 9);
  }
}

// Several pieces a device: they share its outputs.
TEST_P(DeviceGather, SendsHomePieceAfterPiece) {
  const auto engine = make_far_engine(config(GetParam()));
  check_device_gather(*engine, 3000, static_cast<uint64_t>(GetParam()) * 200'000 + 77, 4, GetParam() % 2 == 0, 9);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceGather, ::testing::Values(1, 2, 3, 4, 8), ::testing::PrintToStringParamName());

class DeviceGatherErrors : public ::testing::Test {
 protected:
  DeviceGatherErrors()
      : random(3), column("c", test::signed_type(8), test::Values(5000, test::value_of(int64_t{7})), {5000}, random) {
    for (uint64_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint32_t>(i);
  }
  RowList list() const { return {rows.data(), 4, false, rows.size()}; }
  std::vector<OwnedColumn> run(Engine& engine, const Column& of) {
    std::vector<Device*> devices;
    for (const auto& device : engine.devices) devices.push_back(device.get());
    return gather_on_devices(engine, devices, {&of}, list(), job);
  }
  ErrorCode code_of(Engine& engine, const Column& of) {
    try {
      run(engine, of);
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::internal;
  }

  std::mt19937_64 random;
  test::TestColumn column;
  std::vector<uint32_t> rows = std::vector<uint32_t>(5000);
  Job job;
};

TEST_F(DeviceGatherErrors, RefusesWhatOnlyTheHostGathers) {
  Engine engine(config(2));
  const test::TestColumn text("t", test::utf8_type(), test::Values(5000, "x"), {5000}, random);
  const test::TestColumn odd("o", test::opaque_type(12), test::Values(5000, std::string(12, 'x')), {5000}, random);
  EXPECT_EQ(code_of(engine, text.column), ErrorCode::not_supported);
  EXPECT_EQ(code_of(engine, odd.column), ErrorCode::not_supported);
  EXPECT_EQ(code_of(*make_far_engine(config(2), false), column.column), ErrorCode::not_supported);
  EXPECT_EQ(run(*make_far_engine(config(1), false), column.column)[0].length, 5000u);
}

TEST_F(DeviceGatherErrors, KeepsWithinTheDeviceMemory) {
  const size_t bytes = device_gather_bytes({&column.column}, list(), 2);
  Engine small(config(2, bytes - 1)), enough(config(2, bytes));
  EXPECT_EQ(code_of(small, column.column), ErrorCode::device_memory);
  EXPECT_EQ(run(enough, column.column)[0].length, 5000u);
}

TEST_F(DeviceGatherErrors, LeaveTheDevicesUsable) {
  const auto engine = make_far_engine(config(2));
  auto& device = static_cast<FarDevice&>(*engine->devices[1]);
  for (const bool at_once : {false, true}) {
    for (int copy = 1; copy <= 3; ++copy) {
      device.fail_copy(copy, at_once);
      EXPECT_EQ(code_of(*engine, column.column), ErrorCode::device) << copy;
      device.fail_copy(0, false);
      for (const auto& each : engine->devices) EXPECT_EQ(each->memory().used_bytes(), 0u);
    }
  }
  engine->memory->fail_allocation(1);
  EXPECT_EQ(code_of(*engine, column.column), ErrorCode::memory_limit);
  engine->memory->fail_allocation(0);
  job.cancel();
  EXPECT_EQ(code_of(*engine, column.column), ErrorCode::aborted);
  check_device_gather(*engine, 4000, 9000, 4, false, 7);
}

}  // namespace
}  // namespace warpjoin
