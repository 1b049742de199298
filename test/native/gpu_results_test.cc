// How small results of a GPU's kernels come to host memory.
#include <gtest/gtest.h>

#include "gpu_memory.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

using testing::GpuBench;
using testing::Guarded;

constexpr uint64_t kRank = 3, kPoison = 0xBADBADBADBADBAD;

/// One sorted run, whose cut at kRank is kRank.
struct SortedRun {
  explicit SortedRun(GpuBench& bench) : device(bench.device), keys(bench.device, *bench.stream, 8 * sizeof(uint64_t), 0) {
    bench.upload(keys.data(), testing::narrow({1, 2, 3, 5, 8, 13, 21, 34}, sizeof(uint64_t)));
  }
  void cut(uint64_t* host_cut, Stream& stream) const {
    const TupleView run{keys.data(), nullptr, 0, 8};
    device.primitives().split_runs({8, 0}, {&run, 1}, {&kRank, 1}, host_cut, stream);
  }

  Device& device;
  Guarded keys;
};

TEST(GpuResults, AreThereOnceTheirStreamOrAnEventBehindThemHasBeenWaitedFor) {
  SKIP_WITHOUT_GPUS(1);
  GpuBench bench;
  const SortedRun run(bench);
  const auto other = bench.device.create_stream();
  const auto event = bench.device.create_event();
  for (int turn = 0; turn < 100; ++turn) {
    uint64_t own = kPoison, behind = kPoison, elsewhere = kPoison;
    run.cut(&own, *bench.stream);
    bench.stream->synchronize();
    EXPECT_EQ(own, kRank);

    run.cut(&behind, *bench.stream);
    bench.stream->record(*event);
    event->synchronize();
    EXPECT_EQ(behind, kRank);

    run.cut(&elsewhere, *bench.stream);
    bench.stream->record(*event);
    other->wait(*event);
    other->synchronize();
    EXPECT_EQ(elsewhere, kRank);
  }
}

TEST(GpuResults, ManyAreOnTheirWayAtATime) {
  SKIP_WITHOUT_GPUS(1);
  GpuBench bench;
  const SortedRun run(bench);
  std::vector<uint64_t> cuts(1000, kPoison);
  for (uint64_t& cut : cuts) run.cut(&cut, *bench.stream);
  bench.stream->synchronize();
  EXPECT_EQ(cuts, std::vector<uint64_t>(cuts.size(), kRank));
}

TEST(GpuResults, OfAStreamThatIsGoneAreForgotten) {
  SKIP_WITHOUT_GPUS(1);
  GpuBench bench;
  const SortedRun run(bench);
  auto gone = bench.device.create_stream();
  uint64_t cut = kPoison;
  run.cut(&cut, *gone);
  gone.reset();
  cut = kPoison;
  bench.stream->synchronize();
  EXPECT_EQ(cut, kPoison);
}

}  // namespace
}  // namespace warpjoin
