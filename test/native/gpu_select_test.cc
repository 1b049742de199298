// Selections on real GPUs.
#include <gtest/gtest.h>

#include "gpu_memory.h"
#include "primitives/primitives.h"
#include "select_cases.h"
#include "sort_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

/// The keys begin `shift` of them behind a 128-byte boundary.
void check_select(GpuBench& bench, const test::SelectCase& of, bool implied, uint64_t shift, uint64_t room) {
  const TupleLayout layout = of.layout;
  const uint64_t size = of.keys.size();
  Device& device = bench.device;
  Stream& stream = *bench.stream;
  const Guarded keys(device, stream, size * layout.key_bytes, shift * layout.key_bytes);
  const Guarded values(device, stream, size * layout.value_bytes, shift * layout.value_bytes);
  const Guarded bound_key(device, stream, layout.key_bytes, 0), bound_index(device, stream, 4, 0);
  const Guarded out_keys(device, stream, room * layout.key_bytes, 0), out_values(device, stream, room * layout.value_bytes, 0);
  const Guarded scratch(device, stream, Primitives::kSelectScratchBytes, 0);
  bench.upload(keys.data(), narrow(of.keys, layout.key_bytes));
  bench.upload(values.data(), narrow(of.values, layout.value_bytes));
  SampleBound bound;
  if (of.sampled) {
    bench.upload(bound_key.data(), narrow({of.bound_key()}, layout.key_bytes));
    bench.upload(bound_index.data(), narrow({of.index}, 4));
    bound = {bound_key.data(), bound_index.data(), of.sampled};
  }
  const TupleView in{keys.data(), implied ? nullptr : values.data(), size ? of.values[0] : 0, size};
  uint64_t count = 77;
  device.primitives().select_up_to(layout, in, of.flip, bound, {out_keys.data(), out_values.data(), room}, &count, scratch.data(),
                                   bench.job, stream);
  stream.synchronize();
  const std::vector<test::SelectCase::Tuple> expected = of.selected();
  EXPECT_EQ(count, expected.size());
  const std::vector<unsigned char> got_keys = out_keys.read(stream), got_values = out_values.read(stream);
  for (const Guarded* each : {&keys, &values, &scratch}) each->read(stream);
  std::vector<test::SelectCase::Tuple> got;
  for (uint64_t i = 0; i < std::min(room, count); ++i) {
    const uint64_t value = layout.value_bytes ? words::read(got_values.data(), layout.value_bytes, i) : 0;
    got.emplace_back(words::read(got_keys.data(), layout.key_bytes, i), value);
  }
  std::sort(got.begin(), got.end());
  EXPECT_TRUE(std::includes(expected.begin(), expected.end(), got.begin(), got.end()));
  for (uint64_t i = std::min(room, count) * layout.key_bytes; i < got_keys.size(); ++i) {
    if (got_keys[i] != 0xEE) FAIL() << "written behind the last one";
  }
}

void check_selects(std::initializer_list<uint64_t> sizes) {
  GpuBench bench(size_t{256} << 20);
  std::mt19937_64 random(12);
  for (const TupleLayout layout : kAllLayouts) {
    for (const Keys kind : kAllKeys) {
      for (const uint64_t size : sizes) {
        SCOPED_TRACE(name_of(kind) + " " + std::to_string(size));
        test::SelectCase of{layout, make_keys(kind, size, layout.key_bytes, size), std::vector<uint64_t>(size)};
        std::iota(of.values.begin(), of.values.end(), 17);
        if (random() % 2) of.flip = of.cut(random() % 2 ? ~uint64_t{0} : uint64_t{1} << (8 * layout.key_bytes - 1));
        if (random() % 5 && size) of.sampled = random() % 2 ? size : (size + 2) / 3;
        if (of.sampled) of.index = random() % of.sampled;
        const uint64_t expected = of.selected().size();
        const uint64_t rooms[] = {expected, expected + 5, expected / 2, 0};
        check_select(bench, of, random() % 2, random() % 4, rooms[random() % 4]);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(GpuSelect, TakesWhatComesNoLaterThanTheBound) {
  SKIP_WITHOUT_GPUS(1);
  check_selects({0, 1, 2, 31, 33, 2047, 2048, 2049, 4097, 300'001});
}

TEST(GpuSelect, TakesAFewForTheSanitizers) {
  SKIP_WITHOUT_GPUS(1);
  check_selects({5, 3000, 9000});
}

}  // namespace
}  // namespace warpjoin
