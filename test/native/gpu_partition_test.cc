// Partitions and concatenations on real GPUs, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "gpu_memory.h"
#include "primitives/primitives.h"
#include "tuple_data.h"

namespace warpjoin {
namespace {

using namespace test;
using testing::Guarded;
using testing::narrow;
using Bench = testing::GpuBench;

constexpr uint64_t kPoison = 0xBADBADBADBADBAD;

/// Tuples in device memory that start `shift` elements after a boundary.
struct GuardedTuples {
  GuardedTuples(Device& device, Stream& stream, TupleLayout layout, uint64_t size, uint64_t shift)
      : keys(device, stream, size * layout.key_bytes, shift * layout.key_bytes),
        values(device, stream, size * layout.value_bytes, (shift + 1) * layout.value_bytes),
        layout(layout),
        size(size) {}
  TupleSpan span() const { return {keys.data(), layout.value_bytes ? values.data() : nullptr, size}; }

  Guarded keys, values;
  TupleLayout layout;
  uint64_t size;
};

struct Input {
  TupleLayout layout;
  std::vector<uint64_t> keys;
  bool implied = false;
  uint64_t in_shift = 0, out_shift = 0;
  uint64_t flip = 0;  ///< of partitions by range
};

constexpr uint64_t kFirstValue = 0xFFFFFFF0;  // implied 4-byte values wrap

/// Splits on the GPU with `run(view, out, offsets)`, of which each bucket of `bucket_of(key)` < buckets must come out in
/// the order of its rows.
template <class BucketOf, class Run>
void check_split(Bench& bench, const Input& input, size_t buckets, size_t scratch_bytes, BucketOf&& bucket_of, Run&& run) {
  const TupleLayout layout = input.layout;
  const uint64_t size = input.keys.size();
  std::vector<uint64_t> values(size), bucket(size), expected_offsets(buckets + 1);
  for (uint64_t i = 0; i < size; ++i) {
    values[i] = input.implied ? kFirstValue + i : i * 0x9E3779B97F4A7C15 + 1;
    bucket[i] = bucket_of(cut(layout, input.keys[i] ^ input.flip));
    ++expected_offsets[bucket[i] + 1];
  }
  std::partial_sum(expected_offsets.begin(), expected_offsets.end(), expected_offsets.begin());
  std::vector<uint64_t> next = expected_offsets, expected_keys(size), expected_values(size);
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t at = next[bucket[i]]++;
    expected_keys[at] = input.keys[i] ^ input.flip;
    expected_values[at] = values[i];
  }

  Stream& stream = *bench.stream;
  const GuardedTuples in(bench.device, stream, layout, size, input.in_shift);
  const GuardedTuples out(bench.device, stream, layout, size, input.out_shift);
  const Guarded scratch(bench.device, stream, scratch_bytes, 0);
  const auto in_keys = narrow(input.keys, layout.key_bytes), in_values = narrow(values, layout.value_bytes);
  bench.upload(in.keys.data(), in_keys);
  bench.upload(in.values.data(), in_values);
  TupleView view = in.span().view();
  if (input.implied) view.values = nullptr, view.first_value = kFirstValue;
  std::vector<uint64_t> offsets(buckets + 2, kPoison);
  run(view, out.span(), offsets.data(), scratch_bytes ? scratch.data() : nullptr);
  stream.synchronize();
  expected_offsets.push_back(kPoison);  // nothing is written behind the last one
  ASSERT_EQ(offsets, expected_offsets);
  ASSERT_TRUE(out.keys.read(stream) == narrow(expected_keys, layout.key_bytes));
  ASSERT_TRUE(out.values.read(stream) == narrow(expected_values, layout.value_bytes));
  ASSERT_TRUE(in.keys.read(stream) == in_keys) << "the input was changed";
  scratch.read(stream);
}

void check_digit(Bench& bench, const Input& input, Digit digit) {
  SCOPED_TRACE(std::string(digit.mixed ? "mixed" : "plain") + " digit " + std::to_string(digit.shift) + "+" +
               std::to_string(digit.bits));
  Primitives& primitives = bench.device.primitives();
  check_split(bench, input, digit.count(), primitives.partition_scratch_bytes(input.layout, input.keys.size(), digit), digit,
              [&](TupleView in, TupleSpan out, uint64_t* offsets, void* scratch) {
                primitives.partition(input.layout, in, digit, out, offsets, scratch, bench.job, *bench.stream);
              });
}

void check_ranges(Bench& bench, const Input& input, const std::vector<uint64_t>& bounds) {
  SCOPED_TRACE(std::to_string(bounds.size() + 1) + " ranges");
  Primitives& primitives = bench.device.primitives();
  check_split(
      bench, input, bounds.size() + 1,
      primitives.partition_ranges_scratch_bytes(input.layout, input.keys.size(), bounds.size() + 1),
      [&](uint64_t key) { return static_cast<size_t>(std::upper_bound(bounds.begin(), bounds.end(), key) - bounds.begin()); },
      [&](TupleView in, TupleSpan out, uint64_t* offsets, void* scratch) {
        const std::vector<uint64_t> until_the_call = bounds;
        primitives.partition_ranges(input.layout, in, input.flip, until_the_call, out, offsets, scratch, bench.job,
                                    *bench.stream);
      });
}

void check_flip(Bench& bench, TupleLayout layout, uint64_t size, std::mt19937_64& random) {
  const uint64_t flip = random();
  const std::vector<uint64_t> keys = kDistributions[0].keys(size, random);
  std::vector<uint64_t> expected = keys;
  for (uint64_t& key : expected) key ^= flip;
  const GuardedTuples tuples(bench.device, *bench.stream, layout, size, random() % 5);
  const auto values = narrow(keys, layout.value_bytes);
  bench.upload(tuples.keys.data(), narrow(keys, layout.key_bytes));
  bench.upload(tuples.values.data(), values);
  bench.device.primitives().flip_keys(layout, tuples.span().keys, tuples.span().keys, size, flip, bench.job, *bench.stream);
  EXPECT_TRUE(tuples.keys.read(*bench.stream) == narrow(expected, layout.key_bytes));
  EXPECT_TRUE(tuples.values.read(*bench.stream) == values);
}

Input draw_input(TupleLayout layout, const Distribution& distribution, uint64_t size, std::mt19937_64& random) {
  return {layout, distribution.keys(size, random), random() % 2 == 0, random() % 5, random() % 17};
}

/// Keys that a flip makes those of the input.
Input unflipped(Input input, uint64_t flip) {
  for (uint64_t& key : input.keys) key ^= flip;
  input.flip = flip;
  return input;
}

Digit draw_digit(TupleLayout layout, std::mt19937_64& random) {
  const auto bits = static_cast<uint8_t>(random() % 13);
  const bool mixed = random() % 2;
  const auto top = static_cast<uint8_t>((mixed ? 64 : layout.key_bytes * 8) - bits);
  return {random() % 3 && top < 64 ? top : static_cast<uint8_t>(random() % 20), bits, mixed};
}

// Around a row of lanes, and around the tiles of 4096, 8192, 10240 and 12288 tuples.
constexpr uint64_t kSizes[] = {0,    1,    2,    31,   32,   33,    63,    64,    65,    1000,  4095,
                               4096, 4097, 8191, 8192, 8193, 10239, 10241, 12287, 12289, 24577, 300001};
constexpr size_t kRanges[] = {1, 2, 3, 17, 255, 256};

TEST(GpuPartition, GroupsByDigit) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  std::mt19937_64 random(1);
  for (const TupleLayout layout : kLayouts) {
    for (const Distribution& distribution : kDistributions) {
      for (const uint64_t size : kSizes) {
        SCOPED_TRACE(describe(layout, distribution.name, size, 0));
        check_digit(bench, draw_input(layout, distribution, size, random), draw_digit(layout, random));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(GpuPartition, GroupsByEveryDigitWidth) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  std::mt19937_64 random(2);
  for (const TupleLayout layout : kLayouts) {
    for (uint8_t bits = 0; bits <= 12; ++bits) {
      SCOPED_TRACE(describe(layout, "uniform", 50000, 0));
      const Input input = draw_input(layout, kDistributions[0], 50000, random);
      check_digit(bench, input, {static_cast<uint8_t>(layout.key_bytes * 8 - bits - (bits == 0)), bits, false});
      check_digit(bench, input, {static_cast<uint8_t>(64 - bits - (bits == 0)), bits, true});
      check_digit(bench, input, {static_cast<uint8_t>(layout.key_bytes * 8 - (bits + 2) / 2), bits, false});  // half of it is 0
      if (HasFailure()) return;
    }
  }
}

TEST(GpuPartition, GroupsByRange) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  std::mt19937_64 random(3);
  size_t turn = 0;
  for (const TupleLayout layout : kLayouts) {
    for (const Distribution& distribution : kDistributions) {
      for (const uint64_t size : kSizes) {
        SCOPED_TRACE(describe(layout, distribution.name, size, 0));
        Input input = draw_input(layout, distribution, size, random);
        if (size && random() % 2) input.keys[random() % size] = random() % 2 ? ~uint64_t{0} : 0;
        const auto bounds = draw_bounds(layout, input.keys, kRanges[turn++ % std::size(kRanges)] - 1, random);
        check_ranges(bench, random() % 2 ? unflipped(input, random()) : input, bounds);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(GpuPartition, GroupsByEveryNumberOfRanges) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  std::mt19937_64 random(4);
  for (const TupleLayout layout : {TupleLayout{4, 4}, TupleLayout{8, 8}}) {
    for (size_t ranges = 1; ranges <= Primitives::kMostRanges; ++ranges) {
      const auto bounds = draw_bounds(layout, {}, ranges - 1, random);
      std::vector<uint64_t> keys = {0, ~uint64_t{0}};
      for (const uint64_t bound : bounds) keys.insert(keys.end(), {bound - 1, bound, bound + 1});
      std::shuffle(keys.begin(), keys.end(), random);
      check_ranges(bench, {layout, keys}, bounds);
      if (HasFailure()) return;
    }
  }
}

TEST(GpuFlipKeys, FlipsKeysAlone) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  std::mt19937_64 random(9);
  for (const TupleLayout layout : kLayouts) {
    for (const uint64_t size : {0, 1, 255, 257, 1'000'001}) check_flip(bench, layout, size, random);
  }
}

TEST(GpuPartition, LeavesRangesEmptyThatNoKeyReaches) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  std::mt19937_64 random(5);
  Input input{{4, 4}, kDistributions[0].keys(20000, random)};
  input.keys[7] = UINT32_MAX;
  constexpr uint64_t kPast = uint64_t{1} << 32;
  check_ranges(bench, input, {1000, UINT32_MAX - 1, kPast, kPast + 1});
  check_ranges(bench, input, {UINT32_MAX, kPast});
  check_ranges(bench, input, {kPast + 5});
}

TEST(GpuPartition, GroupsMillions) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench;
  std::mt19937_64 random(6);
  constexpr uint64_t kMillions = 20'000'003;  // several tiles in a chunk
  for (const TupleLayout layout : {TupleLayout{8, 8}, TupleLayout{4, 4}, TupleLayout{4, 0}}) {
    for (const size_t distribution : {size_t{0}, size_t{4}, size_t{12}}) {  // uniform, all equal, zipf
      SCOPED_TRACE(describe(layout, kDistributions[distribution].name, kMillions, 0));
      const Input input = draw_input(layout, kDistributions[distribution], kMillions, random);
      const auto top = static_cast<uint8_t>(layout.key_bytes * 8 - 8);
      check_digit(bench, input, {top, 8, false});
      check_digit(bench, input, {52, 12, true});
      check_ranges(bench, input, draw_bounds(layout, input.keys, 255, random));
      check_ranges(bench, unflipped(input, ~uint64_t{0}), draw_bounds(layout, input.keys, 255, random));
      if (HasFailure()) return;
    }
  }
}

// 2^32 and some keys of two kinds, written with fills: the later ones belong in front.
TEST(GpuPartition, CountsPast32Bits) {
  SKIP_WITHOUT_GPUS(1);
  constexpr uint64_t kHigh = (uint64_t{1} << 32) + 12345, kLow = 1'000'003, kSize = kHigh + kLow;
  constexpr TupleLayout layout{4, 0};
  const size_t bytes = size_t{40} << 30;
  if (visible_gpus()[0].memory_bytes < bytes + (size_t{4} << 30)) GTEST_SKIP() << "needs a GPU with 44 GiB of memory";
  Bench bench(bytes);
  Device& device = bench.device;
  const Buffer in = device.memory().allocate(kSize * 4), out = device.memory().allocate(kSize * 4);
  device.fill(in.data(), 0x80, kHigh * 4, *bench.stream);
  device.fill(in.as<char>() + kHigh * 4, 0x01, kLow * 4, *bench.stream);
  device.fill(out.data(), 0xEE, kSize * 4, *bench.stream);
  const std::vector<uint64_t> bounds = {0x01010101, 0x01010102, 0x80808080, 0x80808081};
  const Buffer scratch =
      device.memory().allocate(device.primitives().partition_ranges_scratch_bytes(layout, kSize, bounds.size() + 1));
  std::vector<uint64_t> offsets(bounds.size() + 2, kPoison);
  device.primitives().partition_ranges(layout, {in.data(), nullptr, 0, kSize}, 0, bounds, {out.data(), nullptr, kSize},
                                       offsets.data(), scratch.data(), bench.job, *bench.stream);
  bench.stream->synchronize();
  EXPECT_EQ(offsets, (std::vector<uint64_t>{0, 0, kLow, kLow, kSize, kSize}));
  constexpr uint64_t kPiece = 1 << 20;
  std::vector<uint32_t> piece(kPiece);
  for (const uint64_t begin :
       {uint64_t{0}, kLow - kPiece / 2, uint64_t{1} << 31, (uint64_t{1} << 32) - kPiece / 2, kSize - kPiece}) {
    device.copy(piece.data(), out.as<uint32_t>() + begin, kPiece * 4, *bench.stream);
    bench.stream->synchronize();
    for (uint64_t i = 0; i < kPiece; ++i) ASSERT_EQ(piece[i], begin + i < kLow ? 0x01010101u : 0x80808080u) << begin + i;
  }
}

TEST(GpuPartition, StopsWhenCancelled) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{1} << 20);
  bench.job.cancel();
  uint64_t offsets[17];
  EXPECT_THROW(bench.device.primitives().partition({8, 8}, {}, {0, 4}, {}, offsets, nullptr, bench.job, *bench.stream), Error);
  EXPECT_THROW(bench.device.primitives().partition_ranges({8, 8}, {}, 0, {}, {}, offsets, nullptr, bench.job, *bench.stream),
               Error);
  EXPECT_THROW(bench.device.primitives().concatenate({8, 8}, {}, {}, nullptr, bench.job, *bench.stream), Error);
}

/// Concatenates parts of these sizes, which lie at any alignment on the engine's devices in turn.
void check_concatenation(Bench& bench, TupleLayout layout, const std::vector<uint64_t>& sizes, std::mt19937_64& random) {
  Stream& stream = *bench.stream;
  const uint64_t total = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  SCOPED_TRACE(describe(layout, "parts", total, 0) + " in " + std::to_string(sizes.size()));
  // One array a device, of which parts are slices with gaps between them: parts begin at odd elements, too.
  uint64_t room = 0;
  for (const uint64_t size : sizes) room += size + 5;
  std::vector<GuardedTuples> arrays;
  std::vector<std::vector<uint64_t>> keys, values;
  for (const auto& device : bench.engine->devices) {
    const auto on = device->create_stream();
    arrays.emplace_back(*device, *on, layout, room, random() % 4);
    keys.push_back(generate(room, [&](uint64_t) { return random(); }));
    values.push_back(generate(room, [&](uint64_t) { return random(); }));
    const auto key_bytes = narrow(keys.back(), layout.key_bytes), value_bytes = narrow(values.back(), layout.value_bytes);
    device->copy(arrays.back().keys.data(), key_bytes.data(), key_bytes.size(), *on);
    device->copy(arrays.back().values.data(), value_bytes.data(), value_bytes.size(), *on);
    on->synchronize();
  }
  std::vector<TupleView> parts;
  std::vector<uint64_t> expected_keys, expected_values;
  uint64_t at = 0;
  for (size_t p = 0; p < sizes.size(); ++p) {
    const size_t from = p % arrays.size();
    at += random() % 5;
    parts.push_back(arrays[from].span().view().slice(layout, at, at + sizes[p]));
    for (uint64_t i = at; i < at + sizes[p]; ++i) {
      expected_keys.push_back(keys[from][i]);
      expected_values.push_back(values[from][i]);
    }
    at += sizes[p];
  }
  const GuardedTuples out(bench.device, stream, layout, total, random() % 4);
  const size_t scratch_bytes = bench.device.primitives().concatenate_scratch_bytes(parts.size());
  const Guarded scratch(bench.device, stream, scratch_bytes, 0);
  bench.device.primitives().concatenate(layout, parts, out.span(), scratch.data(), bench.job, stream);
  parts.clear();
  stream.synchronize();
  ASSERT_TRUE(out.keys.read(stream) == narrow(expected_keys, layout.key_bytes));
  ASSERT_TRUE(out.values.read(stream) == narrow(expected_values, layout.value_bytes));
  scratch.read(stream);
}

void check_concatenations(Bench& bench) {
  std::mt19937_64 random(7);
  for (const TupleLayout layout : kLayouts) {
    check_concatenation(bench, layout, {}, random);
    check_concatenation(bench, layout, {0, 0, 0}, random);
    check_concatenation(bench, layout, {1}, random);
    check_concatenation(bench, layout, {0, 1, 0, 0, 2, 3, 0}, random);
    check_concatenation(bench, layout, {100000, 0, 1, 4096, 31, 500001, 7, 0}, random);
    check_concatenation(bench, layout, generate(3000, [&](uint64_t i) { return random() % (i % 10 ? 300 : 5); }), random);
    check_concatenation(bench, layout, generate(20, [&](uint64_t) { return random() % 20000; }), random);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(GpuConcatenate, JoinsParts) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{256} << 20);
  check_concatenations(bench);
}

TEST(GpuConcatenate, JoinsPartsOfPeers) {
  SKIP_WITHOUT_GPUS(2);
  Bench bench(size_t{256} << 20, 2);
  if (!bench.engine->topology.link(0, 1).direct) GTEST_SKIP() << "needs a GPU that addresses its peer's memory";
  check_concatenations(bench);
}

// Small enough for compute-sanitizer.
TEST(GpuPartition, GroupsAFewForTheSanitizers) {
  SKIP_WITHOUT_GPUS(1);
  Bench bench(size_t{64} << 20);
  std::mt19937_64 random(8);
  for (const TupleLayout layout : kLayouts) {
    for (const size_t distribution : {size_t{0}, size_t{4}}) {
      const Input input = draw_input(layout, kDistributions[distribution], 13001, random);
      check_digit(bench, input, {3, 8, false});
      check_digit(bench, input, {54, 10, true});
      check_ranges(bench, unflipped(input, random()), draw_bounds(layout, input.keys, 100, random));
      check_flip(bench, layout, 13001, random);
    }
    check_concatenation(bench, layout, {3000, 0, 7, 1, 5000}, random);
  }
}

}  // namespace
}  // namespace warpjoin
