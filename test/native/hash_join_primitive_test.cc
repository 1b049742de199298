#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "hash_join_cases.h"

namespace warpjoin {
namespace {

using namespace hash_join_cases;

Engine make_engine() { return Engine({.threads = 3, .host_devices = 1, .memory_limit_bytes = size_t{2} << 30}); }

TEST(HashJoinPrimitive, MatchesTheNaiveJoinForAllLayoutsFragmentsAndPartitions) {
  Engine engine = make_engine();
  std::mt19937_64 random(1);
  for (const uint8_t key_bytes : {4, 8}) {
    for (const uint8_t build_value : {0, 4, 8}) {
      for (const uint8_t probe_value : {0, 4, 8}) {
        for (const unsigned bits : {0u, 1u, 4u, 9u}) {
          const size_t fragments = random() % 2 ? 1 : 3;
          const bool implied = random() % 2 != 0;
          const size_t r = random() % 3000, s = random() % 3000;
          const uint64_t domain = 1 + random() % (random() % 2 ? 5000 : 300);
          const Side build({key_bytes, build_value}, keys(random, r, domain, key_bytes), fragments, bits, implied);
          const Side probe({key_bytes, probe_value}, keys(random, s, domain, key_bytes), fragments, bits, !implied);
          SCOPED_TRACE(testing::Message() << int(key_bytes) << " " << int(build_value) << " " << int(probe_value) << " " << bits
                                          << " " << fragments << " " << domain);
          check(engine, build, probe, bits);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(HashJoinPrimitive, TakesEmptyAndTinySides) {
  Engine engine = make_engine();
  for (const size_t r : {0, 1, 2}) {
    for (const size_t s : {0, 1, 2}) {
      for (const unsigned bits : {0u, 3u}) {
        check(engine, Side({8, 4}, std::vector<uint64_t>(r, 5), 2, bits, false),
              Side({8, 8}, std::vector<uint64_t>(s, 5), 2, bits, false), bits);
      }
    }
  }
}

TEST(HashJoinPrimitive, SplitsHeavyProbePartitionsAmongThreads) {
  Engine engine = make_engine();
  std::mt19937_64 random(2);
  std::vector<uint64_t> r(20000), s(300000);
  std::iota(r.begin(), r.end(), uint64_t{0});
  for (uint64_t& key : s) key = random() % 20 < 2 ? random() % 40000 : 17;  // more than four units are in one partition
  check(engine, Side({8, 4}, r, 1, 3, false), Side({8, 4}, s, 2, 3, true), 3);
}

TEST(HashJoinPrimitive, CutsTheOutputOfHotKeysIntoWindows) {
  Engine engine = make_engine();
  std::mt19937_64 random(3);
  std::vector<uint64_t> r(1000), s(600);
  for (uint64_t& key : r) key = random() % 3 ? 42 : random() % 100;
  for (uint64_t& key : s) key = random() % 2 ? 42 : random() % 200;
  check(engine, Side({4, 4}, r, 2, 2, false), Side({4, 8}, s, 1, 2, false), 2);
}

TEST(HashJoinPrimitive, PrefetchesInTablesBeyondTheCache) {
  Engine engine = make_engine();
  std::mt19937_64 random(4);
  check(engine, Side({8, 4}, keys(random, 150000, 200000, 8), 1, 0, true),
        Side({8, 4}, keys(random, 100000, 200000, 8), 1, 0, true), 0);
}

// More distinct keys in one partition than its table holds: keys chosen to collide in all partition bits.
TEST(HashJoinPrimitive, SortsPartitionsWithTooManyDistinctKeys) {
  Engine engine = make_engine();
  std::mt19937_64 random(5);
  std::vector<uint64_t> r, s;
  while (r.size() < 20000) {
    const uint64_t key = random() % (1 << 24);
    if (mix_key(key) >> 58 == 9) r.push_back(key);
    if (mix_key(key) >> 58 == 9 && random() % 2) s.push_back(key);
    if (random() % 1000 == 0) s.push_back(key);
  }
  r.insert(r.end(), r.begin(), r.begin() + 1000);
  for (const size_t fragments : {1, 3}) check(engine, Side({8, 8}, r, fragments, 6, false), Side({8, 4}, s, 2, 6, false), 6);
}

TEST(HashJoinPrimitive, StopsWhenTheJobIsCancelled) {
  Engine engine = make_engine();
  const Side side({8, 4}, {1, 2, 3}, 1, 0, false);
  const auto stream = engine.devices[0]->create_stream();
  Job job;
  job.cancel();
  const HostBuffer scratch = engine.memory->allocate(
      engine.devices[0]->primitives().hash_match_scratch_bytes(side.layout, 3, side.layout, 3, 1, false), "a test");
  const auto match =
      engine.devices[0]->primitives().hash_match(side.tuples, side.tuples, 1, 0, false, scratch.data(), job, *stream);
  try {
    stream->synchronize();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::aborted);
  }
}

}  // namespace
}  // namespace warpjoin
