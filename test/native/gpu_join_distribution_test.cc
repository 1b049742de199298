// Joins of keys that are distributed in many ways, on real GPUs.
#include <gtest/gtest.h>

#include "gpu_engine.h"
#include "join_distributions.h"

namespace warpjoin {
namespace {

using namespace testing;

class GpuJoinDistribution : public ::testing::TestWithParam<Distributed> {};
INSTANTIATE_TEST_SUITE_P(Gpus, GpuJoinDistribution, ::testing::Combine(::testing::Values(1, 2), kAllDistributions),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(GpuJoinDistribution, GivesTheRowsThatSumsTell) {
  const auto [gpus, distribution] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  check_distribution(*make_gpu_engine(gpus), join_distributions()[distribution], 2'000'000, 50'000'000);
}

}  // namespace
}  // namespace warpjoin
