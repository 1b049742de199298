// Hash joins on a GPU against a naive join.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "gpu_engine.h"
#include "hash_join_cases.h"
#include "primitives/gpu/hash_tuning.h"

namespace warpjoin {
namespace {

using namespace hash_join_cases;
using testing::make_gpu_engine;

std::unique_ptr<Engine> make_engine() { return make_gpu_engine(1, size_t{4} << 30); }

/// A join by one table, by partitions grouped in one pass, or in two, the first of which goes by counts or by a sample.
enum class Path { small, one_pass, two_passes, sampled };
constexpr Path kPaths[] = {Path::small, Path::one_pass, Path::two_passes, Path::sampled};

class Tuned {
 public:
  explicit Tuned(Path path) {
    if (path != Path::small) gpu::hash_tuning.small_table_bytes = 0;
    gpu::hash_tuning.sparse_table_slots = 0;  // as full as large ones
    if (path == Path::two_passes || path == Path::sampled) gpu::hash_tuning.fewest_bits = 10;
    if (path == Path::sampled) gpu::hash_tuning.fewest_sampled = 1;
  }
  ~Tuned() { gpu::hash_tuning = {}; }
  Tuned(const Tuned&) = delete;
  Tuned& operator=(const Tuned&) = delete;
};

void check_paths(Engine& engine, const Side& build, const Side& probe) {
  for (const Path path : kPaths) {
    SCOPED_TRACE(::testing::Message() << "path " << static_cast<int>(path));
    const Tuned tuned(path);
    check(engine, build, probe, 0);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

/// Of all layouts every n-th.
void check_layouts(Engine& engine, std::mt19937_64& random, uint64_t most_rows, size_t n) {
  size_t turn = 0;
  for (const uint8_t key_bytes : {4, 8}) {
    for (const uint8_t build_value : {0, 4, 8}) {
      for (const uint8_t probe_value : {0, 4, 8}) {
        for (const size_t fragments : {1, 3}) {
          if (turn++ % n) continue;
          const bool implied = random() % 2 != 0;
          const Path path = kPaths[random() % std::size(kPaths)];
          const Tuned tuned(path);
          const size_t r = random() % most_rows, s = random() % most_rows;
          const uint64_t domain = 1 + random() % (random() % 2 ? 2 * most_rows : most_rows / 10);
          const Side build({key_bytes, build_value}, keys(random, r, domain, key_bytes), fragments, 0, implied);
          const Side probe({key_bytes, probe_value}, keys(random, s, domain, key_bytes), fragments, 0, !implied);
          SCOPED_TRACE(::testing::Message() << int(key_bytes) << " " << int(build_value) << " " << int(probe_value) << " "
                                            << fragments << " " << r << " " << s << " " << domain << " "
                                            << static_cast<int>(path));
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
  check_layouts(*engine, random, 1000, 7);
}

TEST(GpuHashJoin, MatchesTheNaiveJoinForAllLayoutsAndFragments) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(2);
  check_layouts(*engine, random, 60000, 1);
}

std::vector<std::pair<Side, Side>> tiny_sides() {
  std::vector<std::pair<Side, Side>> all;
  for (const size_t r : {0, 1, 2}) {
    for (const size_t s : {0, 1, 2}) {
      all.emplace_back(Side({8, 4}, std::vector<uint64_t>(r, 5), 2, 0, false),
                       Side({8, 8}, std::vector<uint64_t>(s, 5), 2, 0, false));
    }
  }
  // The key whose hash is that of an empty slot, beside one in any slot.
  for (const uint64_t key : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{0x7FF0000000000000}}) {
    all.emplace_back(Side({8, 4}, {key}, 1, 0, false), Side({8, 8}, {0, 0, key}, 1, 0, false));
  }
  return all;
}

TEST(GpuHashJoin, EmptyAndTinySides) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  for (const auto& [build, probe] : tiny_sides()) check_paths(*engine, build, probe);
}

TEST(GpuHashJoin, EmptyAndTinySidesForTheSanitizers) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  const auto sides = tiny_sides();
  for (size_t i = 0; i < sides.size(); i += 2) {
    const Tuned tuned(kPaths[i / 2 % std::size(kPaths)]);
    check(*engine, sides[i].first, sides[i].second, 0);
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
    std::vector<uint64_t> r = numbers(300000), s(400000);
    std::shuffle(r.begin(), r.end(), random);
    for (uint64_t& key : s) key = random() % 350000;
    check_paths(*engine, Side({key_bytes, key_bytes}, r, 1, 0, false), Side({key_bytes, key_bytes}, s, 2, 0, false));
  }
}

TEST(GpuHashJoin, HotProbeKeys) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(4);
  std::vector<uint64_t> s(500000);
  for (uint64_t& key : s) key = random() % 4 ? random() % 100000 : 17;
  check_paths(*engine, Side({8, 4}, numbers(50000), 1, 0, false), Side({8, 4}, s, 2, 0, true));
}

TEST(GpuHashJoin, HotBuildKeys) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(5);
  std::vector<uint64_t> r(120000), s(100000);
  for (uint64_t& key : r) key = random() % 3 ? 42 : random() % 40000;
  for (size_t i = 0; i < s.size(); ++i) s[i] = i % 10000 == 0 ? 42 : 43 + random() % 60000;
  check_paths(*engine, Side({4, 4}, r, 2, 0, false), Side({4, 8}, s, 1, 0, false));
}

TEST(GpuHashJoin, OneKeyEverywhereForTheSanitizers) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  check_paths(*engine, Side({8, 8}, std::vector<uint64_t>(300, 7), 2, 0, false),
              Side({8, 8}, std::vector<uint64_t>(200, 7), 1, 0, false));
}

TEST(GpuHashJoin, MoreOfAKeyThanATableHolds) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::vector<uint64_t> r(80000, 7), s = numbers(5000);
  r.resize(90000, 9);
  check_paths(*engine, Side({8, 8}, r, 2, 0, false), Side({8, 8}, s, 1, 0, false));
}

// More rows than the most partitions have room for in tables that share a multiprocessor. A key that is there twice crowds one.
TEST(GpuHashJoin, PartitionsThatHaveAMultiprocessorForThemselves) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(9);
  const Tuned tuned(Path::one_pass);
  gpu::hash_tuning.most_bits = 6;
  for (const uint8_t key_bytes : {4, 8}) {
    for (const size_t more : {0, 3}) {
      std::vector<uint64_t> r = numbers(64 * (key_bytes == 4 ? 14000 : 7000)), s(50000);
      for (size_t i = 0; i < more; ++i) r.push_back(i * 1000);
      for (uint64_t& key : s) key = random() % (2 * r.size());
      check(*engine, Side({key_bytes, 8}, r, 2, 0, false), Side({key_bytes, 8}, s, 1, 0, false), 0);
    }
  }
}

// As many partitions as sizes ask for.
TEST(GpuHashJoin, SizesDecideOnPartitions) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(6);
  std::vector<uint64_t> s(100000);
  for (uint64_t& key : s) key = random() % 10000000;
  check(*engine, Side({8, 8}, numbers(5000000), 2, 0, true), Side({8, 8}, s, 1, 0, false), 0);
}

// The hash of 8-byte keys, and the key whose hash it is: for keys that are chosen against it.
constexpr uint64_t kHashFactor = 0xD1342543DE82EF95;
uint64_t hash_of(uint64_t key) {
  key = (key ^ key >> 32) * kHashFactor;
  return key ^ key >> 32;
}
uint64_t key_of_hash(uint64_t hash) {
  uint64_t inverse = kHashFactor;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kHashFactor * inverse;
  hash = (hash ^ hash >> 32) * inverse;
  return hash ^ hash >> 32;
}

// A small table's tuples that have the same two buckets, and keys whose hashes mark empty slots.
TEST(GpuHashJoin, KeysOfFewBuckets) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(8);
  const std::vector<uint64_t> marks = {key_of_hash(0), key_of_hash(~uint64_t{0})};
  ASSERT_EQ(hash_of(marks[1]), ~uint64_t{0});
  for (const size_t colliding : {0, 2, 3, 4, 40}) {
    for (const bool with_marks : {false, true}) {
      std::vector<uint64_t> r = numbers(3000);
      r.erase(r.begin());  // one of the marks
      for (size_t i = 0; i < colliding; ++i) r.push_back(key_of_hash((i % 8) << 32 | (i / 8 + 1)));
      if (with_marks) r.insert(r.end(), marks.begin(), marks.end());
      std::shuffle(r.begin(), r.end(), random);
      std::vector<uint64_t> s = r;
      for (size_t i = 0; i < 5000; ++i) s.push_back(random());
      s.insert(s.end(), marks.begin(), marks.end());
      SCOPED_TRACE(::testing::Message() << colliding << " " << with_marks);
      check_paths(*engine, Side({8, 8}, r, 1, 0, false), Side({8, 8}, s, 2, 0, false));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Memory is planned before it is known how many tuples each device gets.
TEST(GpuHashJoin, ScratchIsEnoughForSmallerSides) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  Primitives& primitives = engine->devices[0]->primitives();
  for (const TupleLayout build : {TupleLayout{4, 0}, TupleLayout{4, 4}, TupleLayout{8, 8}}) {
    for (const TupleLayout probe : {TupleLayout{build.key_bytes, 0}, TupleLayout{build.key_bytes, 8}}) {
      for (const bool count_only : {false, true}) {
        size_t build_bytes = 0, probe_bytes = 0;
        for (uint64_t rows = 0; rows < uint64_t{3} << 30; rows += 1 + rows / 50) {
          const auto bytes = [&](uint64_t build_rows, uint64_t probe_rows) {
            return primitives.hash_match_scratch_bytes(build, build_rows, probe, probe_rows, 1, count_only);
          };
          const size_t of_build = bytes(rows, 1000), of_probe = bytes(100'000, rows);
          ASSERT_GE(of_build, build_bytes) << rows;
          ASSERT_GE(of_probe, probe_bytes) << rows;
          build_bytes = of_build;
          probe_bytes = of_probe;
        }
      }
    }
  }
}

// A build side that matches share needs little beside its tuples, unless keys crowd.
TEST(GpuHashJoin, BuildSidesTakeLittleMoreThanTheirTuples) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  Primitives& primitives = engine->devices[0]->primitives();
  constexpr uint64_t kRows = 250'000'000, kWave = 6'000'000;
  const HashBuildPlan plan{{8, 8}, {8, 8}, kRows, kWave, kWave, 50, 1, false};
  const size_t tuples = 16 * kRows;
  EXPECT_LT(primitives.hash_build_scratch_bytes(plan), tuples * 1.12);
  EXPECT_GT(primitives.hash_build_crowded_room({8, 8}, kRows, false), 3 * kRows);
  EXPECT_LT(primitives.hash_build_crowded_room({8, 8}, kRows, false), 4 * kRows);
}

// Which rows are sampled.
std::vector<bool> sampled_rows(uint64_t size, uint64_t sectors) {
  constexpr uint64_t kSectorKeys = 4;
  std::vector<bool> rows(size);
  for (uint64_t i = 0; i < sectors; ++i) {
    const uint64_t row = sampled_row(size / kSectorKeys, sectors, i) * kSectorKeys;
    std::fill_n(rows.begin() + row, kSectorKeys, true);
  }
  return rows;
}

// The rooms that a sample makes for groups are too small.
TEST(GpuHashJoin, KeysThatTheirSampleDoesNotShow) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  std::mt19937_64 random(7);
  const auto key_below = [&](uint64_t hash_end) {
    for (;;) {
      const uint64_t key = random();
      if (hash_of(key) < hash_end) return key;
    }
  };
  const Tuned tuned(Path::sampled);
  gpu::hash_tuning.sampled_sectors = 32;
  constexpr uint64_t kRows = 300000, kGroups = 32;
  const std::vector<bool> sampled = sampled_rows(kRows, kGroups * gpu::hash_tuning.sampled_sectors);
  // Nearly all are in two groups that the sample takes for two of 32. Their partitions are not too large for tables.
  std::vector<uint64_t> r(kRows);
  for (uint64_t i = 0; i < kRows; ++i) r[i] = sampled[i] ? random() : key_below(uint64_t{1} << 60);
  std::vector<uint64_t> s = r;
  for (uint64_t i = 0; i < kRows; i += 3) s[i] = random();
  std::shuffle(s.begin(), s.end(), random);
  check(*engine, Side({8, 8}, r, 1, 0, false), Side({8, 4}, s, 3, 0, false), 0);
  check(*engine, Side({8, 4}, s, 2, 0, true), Side({8, 8}, r, 1, 0, false), 0);
}

// A block counts more of a group than 16 bits hold.
TEST(GpuHashJoin, ManyOfAKeyInASampledSplit) {
  SKIP_WITHOUT_GPUS(1);
  const auto engine = make_engine();
  Device& device = *engine->devices[0];
  const auto stream = device.create_stream();
  constexpr uint64_t kBuild = 100000, kProbe = 64000000;
  constexpr TupleLayout kLayout{4, 0};
  std::vector<uint32_t> r(kBuild), s(kProbe);
  std::iota(r.begin(), r.end(), 0u);
  uint64_t expected = 0;
  for (uint64_t i = 0; i < kProbe; ++i) {
    s[i] = i % 5 == 0 ? 11 : static_cast<uint32_t>(i % 400009);
    expected += s[i] < kBuild;
  }
  const Tuned tuned(Path::sampled);
  const size_t scratch_bytes = device.primitives().hash_match_scratch_bytes(kLayout, kBuild, kLayout, kProbe, 1, true);
  device.memory().reserve(scratch_bytes + (kBuild + kProbe) * sizeof(uint32_t) + (size_t{1} << 20));
  const auto upload = [&](const std::vector<uint32_t>& keys) {
    Buffer buffer = device.memory().allocate(keys.size() * sizeof(uint32_t));
    device.copy(buffer.data(), keys.data(), buffer.size(), *stream);
    stream->synchronize();
    return buffer;
  };
  const Buffer build = upload(r), probe = upload(s), scratch = device.memory().allocate(scratch_bytes);
  const uint64_t build_offsets[] = {0, kBuild}, probe_offsets[] = {0, kProbe};
  const auto match = device.primitives().hash_match({kLayout, {{build.data(), nullptr, 0, kBuild}}, {build_offsets}},
                                                    {kLayout, {{probe.data(), nullptr, 0, kProbe}}, {probe_offsets}}, 1, 0, true,
                                                    scratch.data(), Job(), *stream);
  do stream->synchronize();
  while (device.primitives().hash_match_goes_on(*match, Job(), *stream));
  EXPECT_EQ(match->tally().pairs, expected);
}

}  // namespace
}  // namespace warpjoin
