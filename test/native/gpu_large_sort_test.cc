// Sorts of more tuples than 32 bits count, on all GPUs that there are. They take some 80 GB of host memory.
#include <gtest/gtest.h>

#include "gpu_engine.h"
#include "large_data.h"
#include "sort/sort.h"
#include "sort_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

constexpr uint64_t kPast31 = kTo31 + 7, kPast32 = kTo32 + 12345;

struct Large {
  const char* name;
  SortAlgorithm algorithm;
  uint64_t size;
  size_t chunksets;
  uint32_t (*key)(uint64_t row);
};

uint64_t mixed(uint64_t row) { return mix_key(row + 1); }

constexpr Large kLarge[] = {
    {"UniformPast32", SortAlgorithm::sample, kPast32, 1, [](uint64_t row) { return static_cast<uint32_t>(mixed(row)); }},
    {"FewBitsPast32InFiveChunksets", SortAlgorithm::sample, kPast32, 5,
     [](uint64_t row) { return static_cast<uint32_t>(mixed(row) & 0x01010003); }},
    {"EqualPast32", SortAlgorithm::sample, kPast32, 1, [](uint64_t) { return 0xABCDEF01u; }},
    {"ZipfPast31", SortAlgorithm::sample, kPast31, 1,
     [](uint64_t row) { return static_cast<uint32_t>(zipf_rank(mixed(row), 1.5)); }},
    {"SortedPast31", SortAlgorithm::sample, kPast31, 1, [](uint64_t row) { return static_cast<uint32_t>(row / 2); }},
    {"ReversePast31", SortAlgorithm::merge, kPast31, 1, [](uint64_t row) { return static_cast<uint32_t>((kPast31 - row) / 2); }},
    {"UniformPast31", SortAlgorithm::radix, kPast31, 1, [](uint64_t row) { return static_cast<uint32_t>(mixed(row)); }},
};

class GpuLargeSort : public ::testing::TestWithParam<Large> {};

TEST_P(GpuLargeSort, SortsStably) {
  SKIP_WITHOUT_GPUS(1);
  const Large& large = GetParam();
  constexpr TupleLayout layout{4, 8};
  const size_t host_bytes = large.size * (4 + (large.chunksets > 1 ? 2 : 1) * layout.tuple_bytes()) + (size_t{4} << 30);
  SKIP_WITHOUT_HOST_MEMORY(host_bytes);
  const auto gpus = static_cast<int>(visible_gpus().size());
  EngineConfig config{.host_devices = 0, .memory_limit_bytes = host_bytes};
  for (int gpu = 0; gpu < gpus; ++gpu) config.gpus.push_back(gpu);
  Engine engine(config);
  SortPlan plan{large.algorithm, first_devices(gpus), {}};
  for (size_t c = 1; c <= large.chunksets; ++c) plan.chunkset_ends.push_back(large.size / large.chunksets * c);
  plan.chunkset_ends.back() = large.size;
  const uint64_t chunkset = large.size / large.chunksets + large.chunksets;
  for (const auto& device : engine.devices) {
    const size_t needed =
        sort_device_bytes(layout, chunkset, static_cast<size_t>(gpus), large.algorithm, large.chunksets > 1, engine);
    if (device->info().memory_bytes < needed) GTEST_SKIP() << "needs GPUs of " << needed / 1e9 << " GB";
  }

  const HostBuffer keys = engine.memory->allocate(large.size * 4, "keys");
  each_row(engine, large.size, [&](uint64_t row) { keys.as<uint32_t>()[row] = large.key(row); });
  Job job;
  const auto runs = sort_chunksets(engine, layout, {keys.data(), nullptr, 0, large.size}, ~uint64_t{0}, plan, job);
  ASSERT_EQ(runs.size(), 1u);
  ASSERT_EQ(runs[0].size, large.size);
  // In order, and rows of equal keys ascend: as many different rows as there are.
  const auto* sorted = runs[0].keys.as<uint32_t>();
  const auto* rows = runs[0].values.as<uint64_t>();
  const uint64_t wrong = sum_rows(engine, large.size, [&](uint64_t i) {
    const bool right = rows[i] < large.size && large.key(rows[i]) == sorted[i] &&
                       (i == 0 || sorted[i - 1] < sorted[i] || (sorted[i - 1] == sorted[i] && rows[i - 1] < rows[i]));
    return uint64_t{!right};
  });
  EXPECT_EQ(wrong, 0u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, GpuLargeSort, ::testing::ValuesIn(kLarge), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace warpjoin
