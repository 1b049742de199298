// Gathers on real GPUs.
#include "device_gather_cases.h"
#include "gpu_engine.h"

namespace warpjoin {
namespace {

using namespace testing;

class GpuGather : public ::testing::TestWithParam<int> {};

TEST_P(GpuGather, PrimitivesReadAllShards) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_gather_primitives(*engine, {1, 300, 5000, 1'000'003}, {0, 1, 31, 32, 63, 64, 65, 127, 1000, 300'001});
}

TEST_P(GpuGather, EqualsTheGatherOfTheHost) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_device_gather_sizes(*engine, {1, 129, 40'000}, {0, 1, 64, 1025, 90'000});
  for (const bool may_be_missing : {false, true}) {
    check_device_gather(*engine, 300'000, static_cast<uint64_t>(GetParam()) * 400'000 + 77, 4, may_be_missing, 9);
  }
}

// Small enough for compute-sanitizer.
TEST_P(GpuGather, GathersALittleForTheSanitizers) {
  SKIP_WITHOUT_GPUS(GetParam());
  const auto engine = make_gpu_engine(GetParam());
  check_gather_primitives(*engine, {1000}, {1, 200});
  check_device_gather(*engine, 1000, 3000, 4, false, 5);
  check_device_gather(*engine, 1000, 3000, 4, true, 6);
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuGather, ::testing::Values(1, 2, 3, 4, 8),
                         [](const auto& info) { return std::to_string(info.param) + "Gpus"; });

}  // namespace
}  // namespace warpjoin
