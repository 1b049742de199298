#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "far_device.h"
#include "sort/sample_sort.h"
#include "sort_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

std::unique_ptr<Engine> make_engine(bool far, int devices, size_t device_limit = 0) {
  const EngineConfig config{.threads = 2,
                            .host_devices = devices,
                            .gpus = {},
                            .memory_limit_bytes = size_t{1} << 30,
                            .device_memory_limit_bytes = device_limit};
  return far ? make_far_engine(config) : std::make_unique<Engine>(config);
}

// Of host memory that was not pinned.
uint64_t slow_copies(Engine& engine, bool far) {
  return far ? static_cast<FarDevice&>(*engine.devices[0]).pinning().slow_copies.load() : 0;
}

struct Setup {
  SortAlgorithm algorithm;
  int devices;
  bool far;  // devices with memory of their own
};

class SortOperator : public ::testing::TestWithParam<Setup> {};

TEST_P(SortOperator, SortsStablyWhateverTheKeys) {
  const auto [algorithm, devices, far] = GetParam();
  const auto engine = make_engine(far, devices);
  const uint64_t before = slow_copies(*engine, far);
  check_sorts(*engine, algorithm, devices, 20000);
  EXPECT_EQ(engine->memory->used_bytes(), engine->pinned.held_bytes());
  for (const auto& device : engine->devices) EXPECT_EQ(device->memory().used_bytes(), 0u);
  EXPECT_EQ(slow_copies(*engine, far), before);
}

TEST_P(SortOperator, TakesTheDeviceMemoryThatItAnnounces) {
  const auto [algorithm, devices, far] = GetParam();
  constexpr TupleLayout layout{8, 4};
  constexpr uint64_t size = 30001;
  const auto keys = make_keys(Keys::uniform, size, 8, 1);
  const Tuples tuples(layout, keys, false);
  const SortPlan plan{algorithm, first_devices(devices), {size / 2, size}};
  const auto any = make_engine(far, devices);
  const size_t bytes = sort_device_bytes(layout, size - size / 2, static_cast<size_t>(devices), algorithm, true, *any);

  Job job;
  const auto enough = make_engine(far, devices, bytes);
  expect_sorted(merge_runs(*enough, sort_chunksets(*enough, layout, tuples.view(), ~uint64_t{0}, plan, job), job), tuples, keys,
                0, size);
  for (const auto& device : enough->devices) {
    // A sample sort keeps room for parts that turn out larger.
    EXPECT_LE(device->memory().peak_bytes(), bytes);
    if (algorithm != SortAlgorithm::sample) EXPECT_EQ(device->memory().peak_bytes(), bytes);
  }

  const auto short_of = make_engine(far, devices, bytes - 1);
  try {
    sort_chunksets(*short_of, layout, tuples.view(), ~uint64_t{0}, plan, job);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_memory);
    EXPECT_NE(std::string(error.what()).find(far ? "far 0" : "host 0"), std::string::npos) << error.what();
  }
}

TEST_P(SortOperator, ReleasesEverythingWhereAnAllocationFails) {
  const auto [algorithm, devices, far] = GetParam();
  const auto engine = make_engine(far, devices);
  check_failed_allocations(*engine, algorithm, devices, 3000);
}

TEST_P(SortOperator, StopsWhenItsJobIsCancelled) {
  const auto [algorithm, devices, far] = GetParam();
  const auto engine = make_engine(far, devices);
  check_cancelled_sorts(*engine, algorithm, devices, 20000);
}

TEST_P(SortOperator, SaysWhatOthersHaveLeftOfADevice) {
  const auto [algorithm, devices, far] = GetParam();
  const auto engine = make_engine(far, devices);
  check_shortage(*engine, algorithm, devices, 3000);
}

/// Each algorithm on each number of devices; the host's and far ones take turns.
std::vector<Setup> all_setups() {
  std::vector<Setup> setups;
  for (const auto algorithm : {SortAlgorithm::merge, SortAlgorithm::radix, SortAlgorithm::sample}) {
    for (const int devices : {1, 2, 3, 4, 5, 7, 8}) setups.push_back({algorithm, devices, setups.size() % 2 == 0});
  }
  return setups;
}

INSTANTIATE_TEST_SUITE_P(Devices, SortOperator, ::testing::ValuesIn(all_setups()), [](const auto& info) {
  return name_of(info.param.algorithm) + std::to_string(info.param.devices) + (info.param.far ? "Far" : "Host");
});

TEST(SpilledSampleSort, SortsIntoOneRun) {
  for (const int devices : {1, 2, 3}) {
    const auto engine = make_engine(true, devices);
    size_t turn = static_cast<size_t>(devices);
    for (const Keys kind : kAllKeys) {
      const size_t chunksets = turn / 2 % 2 ? 2 : 5;
      const TupleLayout layout = kAllLayouts[turn++ % 6];
      const uint64_t size = 30000 * static_cast<uint64_t>(devices) * chunksets + 7;
      SCOPED_TRACE(std::to_string(devices) + " devices, " + name_of(kind) + ", " + std::to_string(chunksets) + " chunksets");
      const auto keys = make_keys(kind, size, layout.key_bytes, size);
      const Tuples tuples(layout, keys, turn % 2 == 0, 5);
      SortPlan plan{SortAlgorithm::sample, first_devices(devices), {}, flips(layout)[turn * 7 / 5 % 4]};
      for (size_t c = 1; c <= chunksets; ++c) plan.chunkset_ends.push_back(size * c / chunksets);
      for (const auto& device : engine->devices) device->memory().reset_peak();
      Job job;
      const auto runs = sort_chunksets(*engine, layout, tuples.view(), ~uint64_t{0}, plan, job);
      ASSERT_EQ(runs.size(), 1u);
      EXPECT_EQ(job.planned(), job.done());
      expect_sorted(runs[0], tuples, keys, 0, size);
      if (HasFatalFailure()) return;
      const size_t bytes =
          sort_device_bytes(layout, size / chunksets + 1, static_cast<size_t>(devices), SortAlgorithm::sample, true, *engine);
      for (const auto& device : engine->devices) EXPECT_LE(device->memory().peak_bytes(), bytes);
    }
  }
}

// From memory of host devices, which have stretches of unequal sizes, to host memory.
void check_resident_sort(size_t devices, TupleLayout layout, const std::vector<uint64_t>& keys, uint64_t flip) {
  const auto engine = make_engine(false, static_cast<int>(devices));
  const uint64_t size = keys.size();
  const Tuples tuples(layout, keys, false);
  std::vector<TupleView> in;
  const std::vector<uint64_t> ends = chunkset_ends(size, devices);
  for (size_t i = 0; i < devices; ++i) {
    in.push_back(tuples.view().slice(layout, i ? ends[i - 1] : 0, ends[i]));
    Device& device = *engine->devices[i];
    device.memory().reserve(sorting::sort_resident_bytes(device, layout, in.back().size, size, devices));
  }
  Job job;
  SortedRun run{layout, size, engine->memory->allocate(size * layout.key_bytes, "keys"),
                engine->memory->allocate(size * layout.value_bytes, "values"), flip};
  uint64_t at = 0;
  std::vector<size_t> asked;
  sorting::sort_resident(
      *engine, layout, engine->select(first_devices(static_cast<int>(devices))), in, flip, ~uint64_t{0},
      [&](size_t device, uint64_t own) {
        asked.push_back(device);
        EXPECT_LE(own, sorting::most_in_stretch(size, devices));
        EXPECT_LE(at + own, size);
        at += own;
        return run.span().slice(layout, at - own, at);
      },
      job);
  ASSERT_EQ(at, size);
  EXPECT_EQ(asked.size(), devices);
  EXPECT_TRUE(std::is_sorted(asked.begin(), asked.end()));
  EXPECT_EQ(job.planned(), job.done());
  expect_sorted(run, tuples, keys, 0, size);
}

TEST(ResidentSort, SortsWhereTheTuplesAre) {
  for (const size_t devices : {1, 2, 3, 8}) {
    size_t turn = devices;
    for (const Keys kind : kAllKeys) {
      for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{9}, uint64_t{50001}}) {
        const TupleLayout layout = kAllLayouts[turn++ % 6];
        const uint64_t all = ~uint64_t{0} >> (64 - 8 * layout.key_bytes);
        const uint64_t flip = std::array{uint64_t{0}, all, all ^ (all >> 1)}[turn / 6 % 3];
        SCOPED_TRACE(std::to_string(devices) + " devices, " + name_of(kind) + ", " + std::to_string(size));
        check_resident_sort(devices, layout, make_keys(kind, size, layout.key_bytes, size), flip);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ResidentSort, SortsKeysThatAgreeInMoreBitsThanItsSampleSays) {
  for (const size_t devices : {2, 3, 8}) {
    for (const uint64_t flip : {uint64_t{0}, uint64_t{1} << 63})
      check_resident_sort(devices, {8, 8}, make_tied_keys(200000, 7), flip);
  }
}

TEST(LargeResidentSort, SortsKeysThatAgreeInMoreBitsThanItsSampleSays) {
  check_resident_sort(1, {8, 4}, make_tied_keys(uint64_t{1} << 23, 7), ~uint64_t{0});
}

TEST(SortPlan, IsCheckedBeforeAnythingRuns) {
  const auto engine = make_engine(false, 2);
  const Tuples tuples({8, 8}, make_keys(Keys::uniform, 10, 8, 1), true);
  const auto sort = [&](SortPlan plan) {
    Job job;
    return sort_chunksets(*engine, {8, 8}, tuples.view(), ~uint64_t{0}, plan, job);
  };
  EXPECT_THROW(sort({SortAlgorithm::merge, {}, {10}}), Error);
  EXPECT_THROW(sort({SortAlgorithm::merge, {0, 0}, {10}}), Error);
  EXPECT_THROW(sort({SortAlgorithm::merge, {0, 2}, {10}}), Error);
  EXPECT_THROW(sort({SortAlgorithm::merge, {0}, {9}}), Error);
  EXPECT_THROW(sort({SortAlgorithm::merge, {0}, {7, 5, 10}}), Error);
  EXPECT_THROW(sort({SortAlgorithm::merge, {0}, {}}), Error);
  EXPECT_EQ(sort({SortAlgorithm::merge, {1}, {10}}).size(), 1u);
}

TEST(SortPlan, RefusesRowNumbersThatDoNotFitTheirWidth) {
  const auto engine = make_engine(false, 1);
  const Tuples tuples({8, 4}, make_keys(Keys::uniform, 10, 8, 1), true, (uint64_t{1} << 32) - 9);
  Job job;
  EXPECT_THROW(sort_chunksets(*engine, {8, 4}, tuples.view(), ~uint64_t{0}, {SortAlgorithm::merge, {0}, {10}}, job), Error);
}

TEST(SortPlan, GivesOneEmptyRunForNoTuples) {
  const auto engine = make_engine(false, 1);
  Job job;
  const auto runs = sort_chunksets(*engine, {8, 8}, {}, 0, {SortAlgorithm::radix, {0}, {}}, job);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].size, 0u);
}

TEST(RadixSort, BalancesTheDevicesUnlessOneKeyForbidsIt) {
  const auto engine = make_engine(true, 4);
  for (const Keys kind : kAllKeys) {
    constexpr uint64_t size = 40000;
    check_sort(*engine, SortAlgorithm::radix, 4, {kind, {8, 8}, size, 1, false, false});
    // A device whose part exceeded its share by more than epsilon would not have fit.
    for (const auto& device : engine->devices) {
      EXPECT_LE(device->memory().peak_bytes(), sort_device_bytes({8, 8}, size, 4, SortAlgorithm::radix, false, *engine));
    }
  }
}

TEST(MergeSort, GivesWayToBucketsWhereDevicesCannotReadEachOther) {
  const EngineConfig config{
      .threads = 2, .host_devices = 3, .gpus = {}, .memory_limit_bytes = size_t{1} << 30, .device_memory_limit_bytes = 0};
  for (const bool linked : {true, false}) {
    const auto engine = make_far_engine(config, linked);
    const auto keys = make_keys(Keys::zipf, 5000, 8, 1);
    const Tuples tuples({8, 8}, keys, true);
    Job job;
    const auto runs =
        sort_chunksets(*engine, {8, 8}, tuples.view(), ~uint64_t{0}, {SortAlgorithm::merge, {0, 1, 2}, {5000}}, job);
    expect_sorted(runs[0], tuples, keys, 0, 5000);
    bool merged = false;
    for (const PhaseStats& phase : job.phases()) merged = merged || phase.name == "merge";
    EXPECT_EQ(merged, linked);
    const size_t bytes = sort_device_bytes({8, 8}, 5000, 3, SortAlgorithm::merge, false, *engine);
    for (const auto& device : engine->devices) EXPECT_EQ(device->memory().peak_bytes(), bytes);
  }
}

TEST(CopyRun, KeepsTheOrderAndWritesRowNumbers) {
  const auto engine = make_engine(false, 1);
  std::vector<uint64_t> keys(100000), values(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i / 3, values[i] = 7 * i;
  Job job;
  for (const bool implied : {false, true}) {
    for (const uint8_t value_bytes : {uint8_t{0}, uint8_t{4}, uint8_t{8}}) {
      if (!implied && value_bytes == 4) continue;
      const TupleLayout layout{8, value_bytes};
      const SortedRun run = copy_run(*engine, layout, {keys.data(), implied ? nullptr : values.data(), 5, keys.size()}, 1, job);
      ASSERT_EQ(run.size, keys.size());
      EXPECT_EQ(run.flip, 1u);
      for (size_t i = 0; i < keys.size(); ++i) {
        ASSERT_EQ(run.keys.as<uint64_t>()[i], keys[i]);
        const uint64_t value = implied ? 5 + i : values[i];
        if (value_bytes == 4) ASSERT_EQ(run.values.as<uint32_t>()[i], value);
        if (value_bytes == 8) ASSERT_EQ(run.values.as<uint64_t>()[i], value);
      }
    }
  }
  EXPECT_EQ(job.done(), job.planned());
}

TEST(MergeRuns, IsStableInTheOrderOfTheRunsAndFreesThem) {
  const auto engine = make_engine(false, 1);
  std::vector<SortedRun> runs;
  for (uint32_t r = 0; r < 3; ++r) {
    SortedRun run{{4, 4}, 1000 * r, engine->memory->allocate(4000 * r, "keys"), engine->memory->allocate(4000 * r, "values")};
    for (uint32_t i = 0; i < run.size; ++i) run.keys.as<uint32_t>()[i] = i / 7, run.values.as<uint32_t>()[i] = r * 10000 + i;
    runs.push_back(std::move(run));
  }
  Job job;
  const SortedRun merged = merge_runs(*engine, std::move(runs), job);
  ASSERT_EQ(merged.size, 3000u);
  for (uint64_t i = 1; i < merged.size; ++i) {
    const auto* keys = merged.keys.as<uint32_t>();
    const auto* values = merged.values.as<uint32_t>();
    ASSERT_TRUE(keys[i - 1] < keys[i] || (keys[i - 1] == keys[i] && values[i - 1] < values[i]));
  }
  EXPECT_LE(engine->memory->used_bytes(), 2 * 3000 * 4 + 128u);
  EXPECT_EQ(merge_runs(*engine, {}, job).size, 0u);
}

}  // namespace
}  // namespace warpjoin
