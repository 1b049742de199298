#include <gtest/gtest.h>

#include "tuple_data.h"

namespace warpjoin {
namespace {

using namespace test;

/// Sorted runs of random sizes, some empty, and their stable merge with the cuts at every rank asked for.
struct Runs {
  Runs(TupleLayout layout, const Distribution& distribution, size_t count, uint64_t size, bool some_implied,
       std::mt19937_64& random)
      : expected(layout, size) {
    std::vector<uint64_t> ends(count, size);
    for (size_t r = 0; r + 1 < count; ++r) ends[r] = random() % (size + 1);
    if (count > 2 && random() % 2) ends[0] = ends[1];
    std::sort(ends.begin(), ends.end());
    const auto keys = distribution.keys(size, random);
    struct Tuple {
      uint64_t key, value;
      size_t run;
    };
    std::vector<Tuple> all;
    uint64_t begin = 0;
    for (size_t r = 0; r < count; ++r) {
      std::vector<uint64_t> run;
      for (uint64_t i = begin; i < ends[r]; ++i) run.push_back(cut(layout, keys[i]));
      std::sort(run.begin(), run.end());
      const bool implied = some_implied && layout.value_bytes && random() % 2;
      arrays.emplace_back(layout, run.size(), random() % 4);
      for (uint64_t i = 0; i < run.size(); ++i) {
        const uint64_t value = implied ? r * 1000 + i : random() & 0xFFFFFFFF;
        arrays[r].set(i, run[i], implied ? 0xBAD : value);
        all.push_back({run[i], value, r});
      }
      views.push_back(arrays[r].view(implied, r * 1000));
      begin = ends[r];
    }
    std::stable_sort(all.begin(), all.end(), [](const Tuple& x, const Tuple& y) { return x.key < y.key; });
    for (uint64_t i = 0; i < size; ++i) {
      expected.set(i, all[i].key, all[i].value);
      run_of.push_back(all[i].run);
    }
  }

  std::vector<TupleArray> arrays;
  std::vector<TupleView> views;
  TupleArray expected;
  std::vector<size_t> run_of;  // of each merged tuple
};

void check_merge(HostBench& bench, TupleLayout layout, Runs& runs, uint64_t shift) {
  TupleArray out(layout, runs.expected.size(), shift);
  const Scratch scratch(bench.primitives().merge_scratch_bytes(layout, runs.views.size(), out.size()));
  bench.primitives().merge(layout, runs.views, out.span(), scratch.data(), bench.job, *bench.stream);
  bench.stream->synchronize();
  EXPECT_TRUE(out == runs.expected);
  EXPECT_TRUE(out.guarded());
}

TEST(MergePrimitive, MergesEveryLayoutAndDistribution) {
  std::mt19937_64 random(1);
  HostBenches benches;
  for (const TupleLayout layout : kLayouts) {
    for (const Distribution& distribution : kDistributions) {
      for (const size_t count : {1, 2, 3, 4, 5, 9}) {
        for (const uint64_t size : {0, 1, 2, 33, 300, 3000}) {
          HostBench& bench = benches.draw(random);
          SCOPED_TRACE(describe(layout, distribution.name, size, bench.threads) + " runs " + std::to_string(count));
          Runs runs(layout, distribution, count, size, random() % 2, random);
          check_merge(bench, layout, runs, random() % 3);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(MergePrimitive, MergesLargeAndManyRuns) {
  std::mt19937_64 random(2);
  HostBench bench(3);
  const TupleLayout layout{8, 4};
  for (size_t turn = 0; turn < kDistributions.size(); ++turn) {
    const Distribution& distribution = kDistributions[turn];
    for (const size_t count : {turn % 2 ? 2 : 3, turn % 3 == 0 ? 7 : turn % 3 == 1 ? 20 : 300}) {
      SCOPED_TRACE(std::string(distribution.name) + " runs " + std::to_string(count));
      Runs runs(layout, distribution, count, count == 300 ? 30000 : 150000 / count * 2, true, random);
      check_merge(bench, layout, runs, 1);
      if (HasFailure()) return;
    }
  }
}

TEST(MergePrimitive, StopsWhenCancelled) {
  std::mt19937_64 random(3);
  HostBench bench(2);
  Runs runs({8, 8}, kDistributions[0], 3, 1000, false, random);
  TupleArray out({8, 8}, 1000);
  const Scratch scratch(bench.primitives().merge_scratch_bytes({8, 8}, 3, 1000));
  bench.job.cancel();
  bench.primitives().merge({8, 8}, runs.views, out.span(), scratch.data(), bench.job, *bench.stream);
  EXPECT_THROW(bench.stream->synchronize(), Error);
}

TEST(SplitRuns, CutsWhereTheStableMergeDoes) {
  std::mt19937_64 random(4);
  HostBench bench(1);
  for (const TupleLayout layout : {TupleLayout{4, 4}, TupleLayout{8, 0}}) {
    for (const Distribution& distribution : kDistributions) {
      for (const size_t count : {1, 2, 3, 4, 17}) {
        for (const uint64_t size : {0, 1, 5, 200}) {
          SCOPED_TRACE(describe(layout, distribution.name, size, 1) + " runs " + std::to_string(count));
          Runs runs(layout, distribution, count, size, false, random);
          std::vector<uint64_t> ranks(size + 1), cuts((size + 1) * count, 0xBAD);
          std::vector<uint64_t> expected, at(count);
          for (uint64_t r = 0; r <= size; ++r) {
            ranks[r] = r;
            expected.insert(expected.end(), at.begin(), at.end());
            if (r < size) ++at[runs.run_of[r]];
          }
          bench.primitives().split_runs(layout, runs.views, ranks, cuts.data(), *bench.stream);
          bench.stream->synchronize();
          ASSERT_EQ(cuts, expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace warpjoin
