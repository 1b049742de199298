// Sorts on real GPUs.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "gpu_engine.h"
#include "primitives/primitives.h"
#include "sort/sample_sort.h"
#include "sort_cases.h"
#include "tie_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

// Tuples in a device's memory, written and read in one go.
class OnDevice {
 public:
  OnDevice(Device& device, TupleLayout layout, uint64_t size)
      : device_(device),
        layout_(layout),
        keys_(device.memory().allocate(size * layout.key_bytes)),
        values_(device.memory().allocate(size * layout.value_bytes)),
        size_(size) {}

  TupleSpan span() const { return {keys_.data(), layout_.value_bytes ? values_.data() : nullptr, size_}; }

  void write(const TupleView& in, Stream& stream) {
    device_.copy(keys_.data(), in.keys, size_ * layout_.key_bytes, stream);
    if (in.values) device_.copy(values_.data(), in.values, size_ * layout_.value_bytes, stream);
    stream.synchronize();
  }
  static SortedRun read(Engine& engine, Device& device, TupleLayout layout, const TupleSpan& span, Stream& stream) {
    SortedRun run{layout, span.size, engine.memory->allocate(span.size * layout.key_bytes, "keys"),
                  engine.memory->allocate(span.size * layout.value_bytes, "values")};
    device.copy(run.keys.data(), span.keys, span.size * layout.key_bytes, stream);
    if (layout.value_bytes) device.copy(run.values.data(), span.values, span.size * layout.value_bytes, stream);
    stream.synchronize();
    return run;
  }

 private:
  Device& device_;
  TupleLayout layout_;
  Buffer keys_, values_;
  uint64_t size_;
};

constexpr uint64_t kSizes[] = {0, 1, 31, 32, 33, 63, 64, 65, 1791, 1792, 1793, 10000, 300001};

TEST(GpuPrimitives, SortsLikeAStableSort) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_gpu_engine(1);
  Device& device = *engine->devices[0];
  device.memory().reserve(size_t{64} << 20);
  const auto stream = device.create_stream();
  Job job;
  for (const TupleLayout layout : kAllLayouts) {
    for (const Keys kind : kAllKeys) {
      for (const uint64_t size : kSizes) {
        for (const bool implied : {false, true}) {
          SCOPED_TRACE(name_of(kind) + " " + std::to_string(size));
          const auto keys = make_keys(kind, size, layout.key_bytes, size);
          const Tuples tuples(layout, keys, implied, 5);
          OnDevice a(device, layout, size), b(device, layout, size);
          a.write(tuples.view(), *stream);
          TupleView in = a.span().view();
          if (implied) in.values = nullptr, in.first_value = 5;
          Buffer scratch = device.memory().allocate(device.primitives().sort_scratch_bytes(layout, size));
          const TupleSpan sorted = device.primitives().sort(layout, in, a.span(), b.span(), size ? varying_bits_of(keys) : 0,
                                                            scratch.data(), job, *stream);
          expect_sorted(OnDevice::read(*engine, device, layout, sorted, *stream), tuples, keys, 0, size);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

void check_ties(std::initializer_list<uint64_t> sizes) {
  const auto engine = make_gpu_engine(1);
  Device& device = *engine->devices[0];
  device.memory().reserve(size_t{64} << 20);
  const auto stream = device.create_stream();
  std::mt19937_64 random(7);
  Job job;
  for (const TupleLayout layout : kAllLayouts) {
    for (const uint64_t size : sizes) {
      for (const bool disorder : {false, true}) {
        SCOPED_TRACE(std::to_string(layout.key_bytes) + " + " + std::to_string(layout.value_bytes) + ", " + std::to_string(size));
        const test::Ties ties = test::draw_ties(8 * layout.key_bytes, size, disorder, random);
        const Tuples tuples(layout, ties.keys, false);
        OnDevice on(device, layout, size);
        on.write(tuples.view(), *stream);
        bool unsorted = false;
        device.primitives().sort_ties(layout, on.span(), ties.low_bits, &unsorted, job, *stream);
        const SortedRun got = OnDevice::read(*engine, device, layout, on.span(), *stream);
        EXPECT_EQ(unsorted, ties.unsorted);
        for (uint64_t i = 0; i < size; ++i) {
          const uint64_t row = ties.order[i];
          if (words::read(got.keys.data(), layout.key_bytes, i) != ties.keys[row]) FAIL() << "key " << i;
          if (layout.value_bytes && words::read(got.values.data(), layout.value_bytes, i) != tuples.value_at(row)) {
            FAIL() << "value " << i;
          }
        }
      }
    }
  }
}

TEST(GpuPrimitives, SortShortTiesAndTellOfLongOnes) {
  SKIP_WITHOUT_GPUS(1);
  check_ties({0, 1, 2, 17, 1000, 1000000});
}

TEST(GpuPrimitives, SortAFewTiesForTheSanitizers) {
  SKIP_WITHOUT_GPUS(1);
  check_ties({3000});
}

TEST(GpuPrimitives, FindsTheVaryingBits) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_gpu_engine(1);
  Device& device = *engine->devices[0];
  const auto stream = device.create_stream();
  Job job;
  for (const TupleLayout layout : {TupleLayout{8, 0}, TupleLayout{4, 0}}) {
    for (const Keys kind : kAllKeys) {
      for (const uint64_t size : kSizes) {
        if (size == 0) continue;
        const auto keys = make_keys(kind, size, layout.key_bytes, size);
        const Tuples tuples(layout, keys, false);
        device.memory().reserve(size_t{8} << 20);
        OnDevice a(device, layout, size);
        a.write(tuples.view(), *stream);
        uint64_t bits = uint64_t{1} << 40;  // is kept: the call only adds to it
        device.primitives().varying_bits(layout, a.span().view(), &keys[0], &bits, job, *stream);
        stream->synchronize();
        EXPECT_EQ(bits, varying_bits_of(keys) | uint64_t{1} << 40) << name_of(kind) << " " << size;
      }
    }
  }
}

TEST(GpuPrimitives, SamplesKeys) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_gpu_engine(1);
  Device& device = *engine->devices[0];
  const auto stream = device.create_stream();
  Job job;
  for (const TupleLayout layout : {TupleLayout{8, 0}, TupleLayout{4, 8}}) {
    for (const uint64_t size : kSizes) {
      for (const uint64_t count : {uint64_t{0}, (size + 1) / 2, size / 3, size}) {
        SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(size));
        const auto keys = make_keys(Keys::uniform, size, layout.key_bytes, size);
        const Tuples tuples(layout, keys, false);
        device.memory().reserve(size_t{8} << 20);
        OnDevice in(device, layout, size), sample(device, {layout.key_bytes, 0}, count + 1);
        in.write(tuples.view(), *stream);
        device.fill(sample.span().keys, 0xEE, (count + 1) * layout.key_bytes, *stream);
        device.primitives().sample_keys(layout, in.span().view(), count, sample.span().keys, job, *stream);
        const SortedRun got = OnDevice::read(*engine, device, {layout.key_bytes, 0}, sample.span(), *stream);
        for (uint64_t i = 0; i < count; ++i) {
          ASSERT_EQ(words::read(got.keys.data(), layout.key_bytes, i), keys[sampled_row(size, count, i)]) << i;
        }
        EXPECT_EQ(words::read(got.keys.data(), layout.key_bytes, count), 0xEEEEEEEEEEEEEEEE >> (64 - 8 * layout.key_bytes));
      }
    }
  }
}

// Runs of unequal sizes, the first empty, on all devices in turn; their merge is the stable sort of all of them.
void check_split_and_merge(Engine& engine, size_t run_count, TupleLayout layout, Keys kind, uint64_t size) {
  SCOPED_TRACE(std::to_string(run_count) + " runs, " + name_of(kind) + " " + std::to_string(size));
  std::vector<uint64_t> keys = make_keys(kind, size, layout.key_bytes, size + run_count);
  const auto ends = chunkset_ends(size, run_count);
  uint64_t begin = 0;
  for (const uint64_t end : ends) {
    std::sort(keys.begin() + static_cast<std::ptrdiff_t>(begin), keys.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  const Tuples tuples(layout, keys, false);
  Device& device = *engine.devices[0];
  const auto stream = device.create_stream();
  std::vector<std::unique_ptr<OnDevice>> owned;
  std::vector<TupleView> runs;
  begin = 0;
  for (size_t r = 0; r < run_count; ++r) {
    Device& holder = *engine.devices[r % engine.devices.size()];
    owned.push_back(std::make_unique<OnDevice>(holder, layout, ends[r] - begin));
    const auto on = holder.create_stream();
    owned.back()->write(tuples.view().slice(layout, begin, ends[r]), *on);
    runs.push_back(owned.back()->span().view());
    begin = ends[r];
  }
  const std::vector<uint64_t> ranks = {0, size / 3, size / 2, size};
  std::vector<uint64_t> cuts(ranks.size() * run_count, ~uint64_t{0});
  device.primitives().split_runs(layout, runs, ranks, cuts.data(), *stream);
  stream->synchronize();
  for (size_t q = 0; q < ranks.size(); ++q) {
    // The stable merge's first tuples, counted by run.
    std::vector<uint64_t> order(size);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint64_t x, uint64_t y) { return keys[x] < keys[y]; });
    std::vector<uint64_t> expected(run_count);
    for (uint64_t i = 0; i < ranks[q]; ++i) {
      ++expected[static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), order[i]) - ends.begin())];
    }
    const auto row = cuts.begin() + static_cast<std::ptrdiff_t>(q * run_count);
    ASSERT_EQ(std::vector<uint64_t>(row, row + static_cast<std::ptrdiff_t>(run_count)), expected) << "rank " << ranks[q];
  }
  Job job;
  OnDevice out(device, layout, size);
  Buffer scratch = device.memory().allocate(device.primitives().merge_scratch_bytes(layout, run_count, size));
  device.primitives().merge(layout, runs, out.span(), scratch.data(), job, *stream);
  expect_sorted(OnDevice::read(engine, device, layout, out.span(), *stream), tuples, keys, 0, size);
}

void check_splits_and_merges(Engine& engine) {
  for (const auto& device : engine.devices) device->memory().reserve(size_t{64} << 20);
  size_t turn = 0;
  for (const size_t runs : {1, 2, 3, 4, 5, 8, 9}) {
    for (const Keys kind : kAllKeys) {
      for (const uint64_t size : kSizes) {
        check_split_and_merge(engine, runs, kAllLayouts[turn++ % 6], kind, size > 100000 ? size / 4 : size);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(GpuPrimitives, SplitsAndMergesRuns) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_gpu_engine(1);
  check_splits_and_merges(*engine);
}

TEST(GpuPrimitives, SplitsAndMergesRunsOfPeers) {
  SKIP_WITHOUT_GPUS(2);
  const auto engine = make_gpu_engine(2);
  if (!engine->topology.link(0, 1).direct || !engine->topology.link(1, 0).direct) {
    GTEST_SKIP() << "needs two GPUs that address each other's memory";
  }
  check_splits_and_merges(*engine);
}

TEST(GpuDevice, NamesItsLimitAndTheCallThatFailed) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_gpu_engine(1, size_t{16} << 20);
  Device& device = *engine->devices[0];
  EXPECT_EQ(device.info().kind, DeviceKind::gpu);
  EXPECT_THROW(device.memory().reserve(size_t{32} << 20), Error);
  EXPECT_THROW(create_gpu_device(0, 4096, 0), Error);
  Buffer buffer = device.memory().allocate(1000);
  const auto stream = device.create_stream();
  std::vector<unsigned char> got(1000);
  device.fill(buffer.data(), 0x5A, 1000, *stream);
  device.copy(got.data(), buffer.data(), 1000, *stream);
  stream->synchronize();
  EXPECT_EQ(got, std::vector<unsigned char>(1000, 0x5A));
}

class GpuSort : public ::testing::TestWithParam<std::tuple<SortAlgorithm, int>> {};

TEST_P(GpuSort, SortsStablyWhateverTheKeys) {
  const auto [algorithm, gpus] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  const auto engine = make_gpu_engine(gpus);
  check_sorts(*engine, algorithm, gpus, 50000);
  EXPECT_EQ(engine->memory->used_bytes(), engine->pinned.held_bytes());
  for (const auto& device : engine->devices) EXPECT_EQ(device->memory().used_bytes(), 0u);
}

TEST_P(GpuSort, SortsMillions) {
  const auto [algorithm, gpus] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  const auto engine = make_gpu_engine(gpus);
  for (const Keys kind : {Keys::uniform, Keys::hot, Keys::zipf}) {
    check_sort(*engine, algorithm, gpus, {kind, {8, 8}, 5000000, 2, true, false});
    check_sort(*engine, algorithm, gpus, {kind, {8, 8}, 5000000, 1, false, false, 1});
    check_sort(*engine, algorithm, gpus, {kind, {4, 4}, 5000000, 1, false, true, 3});
  }
}

TEST_P(GpuSort, SortsKeysOfEveryNumberOfBits) {
  const auto [algorithm, gpus] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  const auto engine = make_gpu_engine(gpus);
  for (unsigned bits = 1; bits <= 64; ++bits) {
    SCOPED_TRACE(std::to_string(bits) + " bits");
    auto keys = make_keys(Keys::uniform, 20000, 8, bits);
    for (uint64_t& key : keys) key >>= 64 - bits;
    const Tuples tuples({8, 4}, keys, true);
    Job job;
    const SortPlan plan{algorithm, first_devices(gpus), {keys.size()}};
    const uint64_t varying = bits % 2 ? varying_bits_of(keys) : ~uint64_t{0};
    expect_sorted(sort_chunksets(*engine, {8, 4}, tuples.view(), varying, plan, job)[0], tuples, keys, 0, keys.size());
    if (HasFatalFailure()) return;
  }
}

TEST_P(GpuSort, FitsTheMemoryThatItAnnounces) {
  const auto [algorithm, gpus] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  constexpr TupleLayout layout{8, 8};
  constexpr uint64_t size = 1000000;
  const size_t bytes = sort_device_bytes(layout, size, static_cast<size_t>(gpus), algorithm, false, *make_gpu_engine(gpus));
  const auto keys = make_keys(Keys::zipf, size, 8, 1);
  const Tuples tuples(layout, keys, true);
  Job job;
  const SortPlan plan{algorithm, first_devices(gpus), {size}};
  const auto enough = make_gpu_engine(gpus, bytes);
  expect_sorted(sort_chunksets(*enough, layout, tuples.view(), ~uint64_t{0}, plan, job)[0], tuples, keys, 0, size);
  for (const auto& device : enough->devices) EXPECT_LE(device->memory().peak_bytes(), bytes);
  const auto short_of = make_gpu_engine(gpus, bytes - 1);
  EXPECT_THROW(sort_chunksets(*short_of, layout, tuples.view(), ~uint64_t{0}, plan, job), Error);
}

TEST(GpuSpilledSampleSort, SortsIntoOneRun) {
  const int gpus = static_cast<int>(visible_gpus().size());
  SKIP_WITHOUT_GPUS(1);
  for (int used = 1; used <= gpus; ++used) {
    const auto engine = make_gpu_engine(used);
    for (const Keys kind : kAllKeys) {
      for (const size_t chunksets : {2, 3, 5, 9}) {
        SCOPED_TRACE(std::to_string(used) + " GPUs");
        const uint64_t size = 150000 * static_cast<uint64_t>(used) * chunksets / 2 + 7;
        const auto keys = make_keys(kind, size, 8, size);
        const Tuples tuples({8, 8}, keys, true, 0);
        SortPlan plan{SortAlgorithm::sample, first_devices(used), {}, flips({8, 8})[chunksets % 4]};
        for (size_t c = 1; c <= chunksets; ++c) plan.chunkset_ends.push_back(size * c / chunksets);
        Job job;
        const auto runs = sort_chunksets(*engine, {8, 8}, tuples.view(), ~uint64_t{0}, plan, job);
        ASSERT_EQ(runs.size(), 1u);
        expect_sorted(runs[0], tuples, keys, 0, size);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

void check_resident_sort(size_t gpus, TupleLayout layout, const std::vector<uint64_t>& keys, uint64_t flip) {
  const uint64_t size = keys.size();
  const auto engine = make_gpu_engine(static_cast<int>(gpus));
  const std::vector<Device*> devices = engine->select(first_devices(static_cast<int>(gpus)));
  const Tuples tuples(layout, keys, false);
  const uint64_t room = sorting::most_in_stretch(size, gpus);
  std::vector<OnDevice> in, out;
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < gpus; ++i) {
    const uint64_t begin = size * i / gpus, own = size * (i + 1) / gpus - begin;
    devices[i]->memory().reserve((own + room) * layout.tuple_bytes() + 4096 +
                                 sorting::sort_resident_bytes(*devices[i], layout, own, size, gpus));
    streams.push_back(devices[i]->create_stream());
    in.emplace_back(*devices[i], layout, own);
    out.emplace_back(*devices[i], layout, room);
    in.back().write(tuples.view().slice(layout, begin, begin + own), *streams[i]);
    devices[i]->fill(out.back().span().keys, 0xEE, room * layout.key_bytes, *streams[i]);
    streams[i]->synchronize();
  }
  std::vector<TupleView> views;
  for (size_t i = 0; i < gpus; ++i) views.push_back(in[i].span().view());
  std::vector<uint64_t> sizes;
  Job job;
  sorting::sort_resident(
      *engine, layout, devices, views, flip, ~uint64_t{0},
      [&](size_t i, uint64_t own) {
        sizes.push_back(own);
        return out[i].span().slice(layout, 0, own);
      },
      job);
  SortedRun all{layout, size, engine->memory->allocate(size * layout.key_bytes, "keys"),
                engine->memory->allocate(size * layout.value_bytes, "values"), flip};
  uint64_t at = 0;
  for (size_t i = 0; i < gpus; at += sizes[i++]) {
    ASSERT_LE(at + sizes[i], size);
    const TupleSpan from = out[i].span();
    devices[i]->copy(all.keys.as<char>() + at * layout.key_bytes, from.keys, sizes[i] * layout.key_bytes, *streams[i]);
    if (layout.value_bytes) {
      devices[i]->copy(all.values.as<char>() + at * layout.value_bytes, from.values, sizes[i] * layout.value_bytes, *streams[i]);
    }
    streams[i]->synchronize();
  }
  ASSERT_EQ(at, size);
  expect_sorted(all, tuples, keys, 0, size);
}

TEST(GpuResidentSort, SortsWhereTheTuplesAre) {
  const size_t gpus = visible_gpus().size();
  SKIP_WITHOUT_GPUS(1);
  size_t turn = 0;
  for (size_t used = 1; used <= gpus; ++used) {
    for (const Keys kind : kAllKeys) {
      for (const uint64_t size : {uint64_t{3}, uint64_t{70001} * used, uint64_t{400000} * used}) {
        for (const TupleLayout layout : {TupleLayout{8, 8}, TupleLayout{4, 4}, TupleLayout{8, 0}}) {
          SCOPED_TRACE(std::to_string(used) + " GPUs, " + name_of(kind) + ", " + std::to_string(size));
          const uint64_t all_bits = ~uint64_t{0} >> (64 - 8 * layout.key_bytes);
          const uint64_t flip = std::array{uint64_t{0}, all_bits, all_bits ^ (all_bits >> 1)}[turn++ % 3];
          check_resident_sort(used, layout, make_keys(kind, size, layout.key_bytes, size), flip);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Of sizes that one GPU samples, and that are neither even nor a power of two.
TEST(GpuResidentSort, SortsKeysThatAgreeInMoreBitsThanItsSampleSays) {
  const size_t gpus = visible_gpus().size();
  SKIP_WITHOUT_GPUS(1);
  for (size_t used = 1; used <= gpus; ++used) {
    for (const TupleLayout layout : {TupleLayout{8, 8}, TupleLayout{8, 0}}) {
      for (const uint64_t flip : {uint64_t{0}, uint64_t{1} << 63}) {
        SCOPED_TRACE(std::to_string(used) + " GPUs");
        check_resident_sort(used, layout, make_tied_keys((uint64_t{1} << 23) + 12345, 7), flip);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

class GpuSortFailure : public GpuSort {};

// Tuples for two chunksets that spill where the algorithm does.
uint64_t spilling_size(int gpus) { return 150000 * static_cast<uint64_t>(gpus) + 7; }

TEST_P(GpuSortFailure, ReleasesEverythingWhereAnAllocationFails) {
  const auto [algorithm, gpus] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  const auto engine = make_gpu_engine(gpus);
  check_failed_allocations(*engine, algorithm, gpus, 10000);
  check_failed_allocations(*engine, algorithm, gpus, spilling_size(gpus));
}

TEST_P(GpuSortFailure, StopsWhenItsJobIsCancelled) {
  const auto [algorithm, gpus] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  const auto engine = make_gpu_engine(gpus);
  check_cancelled_sorts(*engine, algorithm, gpus, spilling_size(gpus));
  check_cancelled_sorts(*engine, algorithm, gpus, 3000000);
}

TEST_P(GpuSortFailure, SaysWhatOthersHaveLeftOfADevice) {
  const auto [algorithm, gpus] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  check_shortage(*make_gpu_engine(gpus), algorithm, gpus, 100000);
}

// Small enough for compute-sanitizer.
TEST_P(GpuSort, SortsAFewForTheSanitizers) {
  const auto [algorithm, gpus] = GetParam();
  SKIP_WITHOUT_GPUS(gpus);
  const auto engine = make_gpu_engine(gpus, size_t{64} << 20);
  size_t turn = 0;
  for (const TupleLayout layout : kAllLayouts) {
    const Keys kind = turn % 2 ? Keys::hot : Keys::uniform;
    check_sort(*engine, algorithm, gpus, {kind, layout, 5000, 2, true, false, turn++ / 2 % 2 ? size_t{3} : size_t{0}});
  }
}

std::string name_of_setup(const ::testing::TestParamInfo<std::tuple<SortAlgorithm, int>>& info) {
  return name_of(std::get<0>(info.param)) + std::to_string(std::get<1>(info.param));
}

constexpr SortAlgorithm kAllAlgorithms[] = {SortAlgorithm::merge, SortAlgorithm::radix, SortAlgorithm::sample};

INSTANTIATE_TEST_SUITE_P(Gpus, GpuSort, ::testing::Combine(::testing::ValuesIn(kAllAlgorithms), ::testing::Values(1, 2, 3, 4, 8)),
                         name_of_setup);
INSTANTIATE_TEST_SUITE_P(Gpus, GpuSortFailure, ::testing::Combine(::testing::ValuesIn(kAllAlgorithms), ::testing::Values(1, 2)),
                         name_of_setup);

}  // namespace
}  // namespace warpjoin
