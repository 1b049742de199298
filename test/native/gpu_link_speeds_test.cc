// Links of real GPUs. Where there are too few, each test says so and is skipped.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <numeric>

#include "device/gpu_device.h"
#include "transfer/link_speeds.h"

namespace warpjoin {
namespace {

class GpuLinkSpeeds : public ::testing::TestWithParam<int> {};

TEST_P(GpuLinkSpeeds, AreMeasuredInASecondAndGiveEverythingBack) {
  const int gpus = GetParam();
  const size_t there = visible_gpus().size();
  if (there < static_cast<size_t>(gpus)) {
    GTEST_SKIP() << "needs " << gpus << " GPUs; this build (" << gpu_backend() << ") sees " << there;
  }
  std::vector<int> all(static_cast<size_t>(gpus));
  std::iota(all.begin(), all.end(), 0);
  Engine engine({.threads = 8, .host_devices = 0, .gpus = all, .memory_limit_bytes = size_t{8} << 30});
  for (const int round : {1, 2}) {
    const auto start = std::chrono::steady_clock::now();
    const LinkSpeeds speeds = measure_links(engine, Job());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%d GPUs, round %d: %.2f s\n", gpus, round, took.count());
    ASSERT_FALSE(speeds.sets.empty());
    EXPECT_EQ(speeds.sets.back().devices, all);
    for (const LinkSpeeds::Set& set : speeds.sets) {
      const auto count = static_cast<double>(set.devices.size());
      std::printf("  %zu from %d: h2d %.1f, d2h %.1f, both %.1f GB/s\n", set.devices.size(), set.devices[0], set.h2d / 1e9,
                  set.d2h / 1e9, set.both / 1e9);
      // Slower than a PCIe 3 x4 slot would be, or faster than any host link, is a wrong measurement.
      for (const double speed : {set.h2d, set.d2h, set.both}) {
        EXPECT_GT(speed, 2e9);
        EXPECT_LT(speed, count * 1e12);
      }
    }
    EXPECT_EQ(speeds.peers.size(), static_cast<size_t>(gpus * (gpus - 1)));
    for (const LinkSpeeds::Peers& pair : speeds.peers) {
      EXPECT_GT(pair.speed, 1e9);
      EXPECT_LT(pair.speed, 2e12);
    }
    if (!speeds.peers.empty()) std::printf("  0 to 1: %.1f GB/s\n", speeds.peers[0].speed / 1e9);
    EXPECT_EQ(engine.memory->used_bytes(), 0u);
    for (const auto& device : engine.devices) EXPECT_EQ(device->memory().used_bytes(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuLinkSpeeds, ::testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace warpjoin
