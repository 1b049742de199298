// Hash joins on a GPU against a naive join.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "gpu_engine.h"
#include "hash_join_cases.h"

namespace warpjoin {
namespace {

using namespace hash_join_cases;
using testing::make_gpu_engine;

std::unique_ptr<Engine> make_engine() { return make_gpu_engine(1, size_t{4} << 30); }

void check_layouts(Engine& engine, std::mt19937_64& random, uint64_t most_rows) {
  for (const uint8_t key_bytes : {4, 8}) {
    for (const uint8_t build_value : {0, 4, 8}) {
      for (const uint8_t probe_value : {0, 4, 8}) {
        for (const size_t fragments : {1, 3}) {
          const bool implied = random() % 2 != 0;
          const size_t r = random() % most_rows, s = random() % most_rows;
          const uint64_t domain = 1 + random() % (random() % 2 ? 2 * most_rows : most_rows / 10);
          const Side build({key_bytes, build_value}, keys(random, r, domain, key_bytes), fragments, 0, implied);
          const Side probe({key_bytes, probe_value}, keys(random, s, domain, key_bytes), fragments, 0, !implied);
          SCOPED_TRACE(::testing::Message() << int(key_bytes) << " " << int(build_value) << " " << int(probe_value) << " "
                                            << fragments << " " << r << " " << s << " " << domain);
          check(engine, build, probe, 0);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(GpuHashJoin, LayoutsAndFragmentsForTheSanitizers) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(1);
  check_layouts(*engine, random, 3000);
}

// Build sides of several partitions.
TEST(GpuHashJoin, MatchesTheNaiveJoinForAllLayoutsAndFragments) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(2);
  check_layouts(*engine, random, 150000);
}

TEST(GpuHashJoin, EmptyAndTinySidesForTheSanitizers) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  for (const size_t r : {0, 1, 2}) {
    for (const size_t s : {0, 1, 2}) {
      check(*engine, Side({8, 4}, std::vector<uint64_t>(r, 5), 2, 0, false),
            Side({8, 8}, std::vector<uint64_t>(s, 5), 2, 0, false), 0);
    }
  }
}

std::vector<uint64_t> numbers(uint64_t size) {
  std::vector<uint64_t> all(size);
  std::iota(all.begin(), all.end(), uint64_t{0});
  return all;
}

TEST(GpuHashJoin, UniqueKeysThatAreDense) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(3);
  for (const uint8_t key_bytes : {4, 8}) {
    std::vector<uint64_t> r = numbers(700000), s(900000);
    std::shuffle(r.begin(), r.end(), random);
    for (uint64_t& key : s) key = random() % 800000;
    check(*engine, Side({key_bytes, key_bytes}, r, 1, 0, false), Side({key_bytes, key_bytes}, s, 2, 0, false), 0);
  }
}

TEST(GpuHashJoin, HotProbeKeys) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(4);
  std::vector<uint64_t> s(1500000);
  for (uint64_t& key : s) key = random() % 4 ? random() % 200000 : 17;
  check(*engine, Side({8, 4}, numbers(100000), 1, 0, false), Side({8, 4}, s, 2, 0, true), 0);
}

TEST(GpuHashJoin, HotBuildKeys) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(5);
  std::vector<uint64_t> r(120000), s(100000);
  for (uint64_t& key : r) key = random() % 3 ? 42 : random() % 40000;
  for (size_t i = 0; i < s.size(); ++i) s[i] = i % 10000 == 0 ? 42 : 43 + random() % 60000;
  check(*engine, Side({4, 4}, r, 2, 0, false), Side({4, 8}, s, 1, 0, false), 0);
}

TEST(GpuHashJoin, OneKeyEverywhereForTheSanitizers) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  check(*engine, Side({8, 8}, std::vector<uint64_t>(300, 7), 2, 0, false),
        Side({8, 8}, std::vector<uint64_t>(200, 7), 1, 0, false), 0);
}

TEST(GpuHashJoin, MoreOfAKeyThanATableHolds) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::vector<uint64_t> r(80000, 7), s = numbers(5000);
  r.resize(90000, 9);
  check(*engine, Side({8, 8}, r, 2, 0, false), Side({8, 8}, s, 1, 0, false), 0);
}

}  // namespace
}  // namespace warpjoin
