// Operators on a device that fails: by a copy or a launch, or for good.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "failure_cases.h"
#include "far_device.h"
#include "join_cases.h"
#include "places.h"
#include "resident_join_cases.h"
#include "sort_cases.h"

namespace warpjoin::testing {
namespace {

struct Operator {
  const char* name;
  std::function<RepeatedCall(Engine& engine)> call;
};

constexpr int kDevices = 2;

RepeatedCall sort_by(Engine& engine, SortAlgorithm algorithm) { return repeated_sort(engine, algorithm, kDevices, 3000); }

const Operator kOperators[] = {
    {"MergeSort", [](Engine& engine) { return sort_by(engine, SortAlgorithm::merge); }},
    {"RadixSort", [](Engine& engine) { return sort_by(engine, SortAlgorithm::radix); }},
    {"SampleSort", [](Engine& engine) { return sort_by(engine, SortAlgorithm::sample); }},
    {"HashJoin", [](Engine& engine) { return repeated_join(engine, {}, 1500, 2000); }},
    {"PartitionedHashJoin", [](Engine& engine) { return repeated_join(engine, {.partitions = 64}, 1500, 2000); }},
    {"HashJoinInRounds", [](Engine& engine) { return repeated_join(engine, {.rounds = 4}, 1500, 2000); }},
    {"MergeJoin", [](Engine& engine) { return repeated_join(engine, {.merge = true}, 1500, 2000); }},
    {"SortMergeJoin", [](Engine& engine) { return repeated_join(engine, {.joint = true}, 1500, 2000); }},
    {"ResidentJoin", [](Engine& engine) { return repeated_resident_join(engine, 16, false, 800, 900); }},
};

class DeviceFailure : public ::testing::TestWithParam<Operator> {};

FarDevice& last_of(Engine& engine) { return static_cast<FarDevice&>(*engine.devices.back()); }

TEST_P(DeviceFailure, IsNoShortageOfMemory) {
  const auto engine = make_engine(kDevices, Place::far);
  const RepeatedCall call = GetParam().call(*engine);
  check_failed_copies(last_of(*engine), call, 3);
  check_failed_launches(last_of(*engine), call, 3);
  Job job;
  call.run(job);
}

TEST_P(DeviceFailure, OfAnAllocationIsNoShortageEither) {
  const auto engine = make_engine(kDevices, Place::far);
  const RepeatedCall call = GetParam().call(*engine);
  const uint64_t failures = fail_each(1, [&](uint64_t n) {
    last_of(*engine).fail_physical_allocation(static_cast<int64_t>(n));
    Job job;
    const bool survived = call.survives(ErrorCode::device, job);
    EXPECT_EQ(survived, !last_of(*engine).has_failed_allocation());
    return !survived;
  });
  EXPECT_GE(failures, 1u);
}

TEST_P(DeviceFailure, ForGoodEndsEveryCallAndGoesWithTheEngine) {
  for (const bool at_once : {false, true}) {
    const uint64_t failures = fail_each(at_once, [&](uint64_t n) {
      auto engine = make_engine(kDevices, Place::far);
      const std::shared_ptr<HostMemory> memory = engine->memory;
      bool failed = false;
      {
        const RepeatedCall call = GetParam().call(*engine);
        last_of(*engine).lose_at_copy(static_cast<int64_t>(n), at_once);
        Job first, second;
        failed = !call.survives(ErrorCode::device, first);
        if (failed) EXPECT_FALSE(call.survives(ErrorCode::device, second));
      }
      if (failed) EXPECT_THROW(engine->check(), Error);
      engine.reset();
      EXPECT_EQ(memory->used_bytes(), 0u);
      return failed;
    });
    EXPECT_GE(failures, 3u);
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, DeviceFailure, ::testing::ValuesIn(kOperators),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace warpjoin::testing
