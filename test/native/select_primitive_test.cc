#include <gtest/gtest.h>

#include "select_cases.h"
#include "tuple_data.h"

namespace warpjoin {
namespace {

using namespace test;

/// `room`: tuples that there is room for.
void check_select(HostBench& bench, const SelectCase& of, bool implied, uint64_t shift, uint64_t room) {
  const uint64_t size = of.keys.size();
  TupleArray in(of.layout, size, shift), bound({of.layout.key_bytes, 4}, 1), out(of.layout, room, 2 * shift);
  for (uint64_t i = 0; i < size; ++i) in.set(i, of.keys[i], of.values[i]);
  if (of.sampled) bound.set(0, of.bound_key(), of.index);
  SampleBound last;
  if (of.sampled) last = {bound.view().keys, bound.view().values, of.sampled};
  const Scratch scratch(Primitives::kSelectScratchBytes);
  uint64_t count = 77;
  bench.primitives().select_up_to(of.layout, in.view(implied, size ? of.values[0] : 0), of.flip, last, out.span(), &count,
                                  scratch.data(), bench.job, *bench.stream);
  bench.stream->synchronize();
  const std::vector<SelectCase::Tuple> expected = of.selected();
  EXPECT_EQ(count, expected.size());
  EXPECT_TRUE(out.guarded());
  std::vector<SelectCase::Tuple> got;
  for (uint64_t i = 0; i < std::min(room, count); ++i) got.emplace_back(out.key(i), of.layout.value_bytes ? out.value(i) : 0);
  std::sort(got.begin(), got.end());
  EXPECT_TRUE(std::includes(expected.begin(), expected.end(), got.begin(), got.end()));
  for (uint64_t i = count; i < room; ++i) {
    if (out.key(i) != cut(of.layout, 0xEEEEEEEEEEEEEEEE)) FAIL() << "written behind the last one";
  }
}

TEST(SelectUpTo, TakesWhatComesNoLaterThanTheBound) {
  std::mt19937_64 random(11);
  HostBenches benches;
  for (const TupleLayout layout : kLayouts) {
    for (const Distribution& distribution : kDistributions) {
      for (const uint64_t size : {0, 1, 2, 33, 1000, 70'000}) {
        if (size == 70'000 && random() % 4) continue;
        HostBench& bench = benches.draw(random);
        SCOPED_TRACE(describe(layout, distribution.name, size, bench.threads));
        SelectCase of{layout, distribution.keys(size, random), std::vector<uint64_t>(size)};
        std::iota(of.values.begin(), of.values.end(), 17);
        if (random() % 2) of.flip = cut(layout, random() % 2 ? ~uint64_t{0} : uint64_t{1} << (8 * layout.key_bytes - 1));
        if (random() % 5 && size) of.sampled = random() % 2 ? size : (size + 2) / 3;
        if (of.sampled) of.index = random() % of.sampled;
        const uint64_t expected = of.selected().size();
        const uint64_t rooms[] = {expected, expected + 5, expected / 2, 0};
        check_select(bench, of, random() % 2, random() % 4, rooms[random() % 4]);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(SelectUpTo, EndsWhereItsJobIsCancelled) {
  HostBench bench(2);
  const TupleLayout layout{8, 8};
  TupleArray in(layout, 100'000), out(layout, 100'000);
  bench.job.cancel();
  uint64_t count = 0;
  bench.primitives().select_up_to(layout, in.view(), 0, {}, out.span(), &count, nullptr, bench.job, *bench.stream);
  EXPECT_THROW(bench.stream->synchronize(), Error);
}

}  // namespace
}  // namespace warpjoin
