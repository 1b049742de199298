#include <gtest/gtest.h>

#include "join_distributions.h"
#include "places.h"

namespace warpjoin {
namespace {

using namespace testing;

TEST(JoinDistributions, HaveKeysOnBothSidesOfBoundaries) {
  for (uint64_t number = 0; number < 1 << 18; ++number) {
    const uint64_t mixed = mix_key(boundary_key(number));
    ASSERT_EQ(mixed << 16, (number % 4 - 2) << 16);
    ASSERT_EQ((mixed + 2 - number % 4) >> 48, number / 4 * 40503 % (1 << 16));
  }
}

class JoinDistributionTest : public ::testing::TestWithParam<Distributed> {};
INSTANTIATE_TEST_SUITE_P(Devices, JoinDistributionTest, ::testing::Combine(::testing::Values(1, 3), kAllDistributions),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(JoinDistributionTest, GivesTheRowsThatSumsTell) {
  const auto [devices, distribution] = GetParam();
  check_distribution(*make_engine(devices, devices == 1 ? Place::host : Place::far), join_distributions()[distribution], 20'000,
                     200'000);
}

}  // namespace
}  // namespace warpjoin
