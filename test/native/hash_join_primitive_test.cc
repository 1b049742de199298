#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "core/engine.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

using Row = std::tuple<uint64_t, uint64_t, uint64_t>;  // key, build value, probe value

/// Tuples in fragments, each grouped by the topmost bits of the mixed keys.
struct Side {
  TupleLayout layout;
  bool implied = false;
  std::vector<std::vector<char>> keys, values;
  std::vector<std::vector<uint64_t>> offsets;
  PartitionedTuples tuples;
  std::vector<std::pair<uint64_t, uint64_t>> rows;  // key, value

  Side(TupleLayout layout, const std::vector<uint64_t>& all, size_t fragments, unsigned bits, bool implied)
      : layout(layout), implied(implied) {
    tuples.layout = layout;
    for (size_t f = 0; f < fragments; ++f) {
      std::vector<std::pair<uint64_t, uint64_t>> part;
      for (uint64_t i = all.size() * f / fragments; i < all.size() * (f + 1) / fragments; ++i) part.emplace_back(all[i], i + 7);
      const auto digit = [&](uint64_t key) { return bits ? mix_key(key) >> (64 - bits) : 0; };
      std::stable_sort(part.begin(), part.end(), [&](auto& a, auto& b) { return digit(a.first) < digit(b.first); });
      std::vector<char> k(part.size() * layout.key_bytes + 1), v(part.size() * layout.value_bytes + 1);
      std::vector<uint64_t> o((size_t{1} << bits) + 1);
      for (size_t i = 0; i < part.size(); ++i) {
        if (implied) part[i].second = 1000 * f + i;
        std::memcpy(k.data() + i * layout.key_bytes, &part[i].first, layout.key_bytes);
        std::memcpy(v.data() + i * layout.value_bytes, &part[i].second, layout.value_bytes);
        ++o[digit(part[i].first) + 1];
      }
      std::partial_sum(o.begin(), o.end(), o.begin());
      rows.insert(rows.end(), part.begin(), part.end());
      keys.push_back(std::move(k));
      values.push_back(std::move(v));
      offsets.push_back(std::move(o));
      tuples.fragments.push_back({keys.back().data(), implied ? nullptr : values.back().data(), 1000 * f, part.size()});
    }
    for (const auto& o : offsets) tuples.host_offsets.push_back(o.data());
  }
};

struct Expected {
  std::vector<Row> pairs, build_matched, build_unmatched, probe_matched, probe_unmatched;
};

Expected naive(const Side& build, const Side& probe) {
  Expected expected;
  std::multimap<uint64_t, uint64_t> table(build.rows.begin(), build.rows.end());
  std::map<uint64_t, bool> seen;
  const uint64_t with_build = build.layout.value_bytes ? ~0ull : 0, with_probe = probe.layout.value_bytes ? ~0ull : 0;
  for (const auto& [key, value] : probe.rows) {
    seen[key] = true;
    const auto [first, last] = table.equal_range(key);
    for (auto it = first; it != last; ++it) expected.pairs.emplace_back(key, it->second & with_build, value & with_probe);
    (first != last ? expected.probe_matched : expected.probe_unmatched).emplace_back(key, 0, value & with_probe);
  }
  for (const auto& [key, value] : build.rows) {
    (seen.count(key) ? expected.build_matched : expected.build_unmatched).emplace_back(key, value & with_build, 0);
  }
  return expected;
}

uint64_t read(const std::vector<char>& from, size_t i, uint8_t width) {
  uint64_t value = 0;
  if (width) std::memcpy(&value, from.data() + i * width, width);
  return value;
}

/// Runs match and every emit, and compares; guard bytes behind each output must stay.
void check(Engine& engine, const Side& build, const Side& probe, unsigned bits) {
  Primitives& primitives = engine.devices[0]->primitives();
  const auto stream = engine.devices[0]->create_stream();
  const uint32_t partitions = 1u << bits;
  const Job job;
  const Expected expected = naive(build, probe);
  for (const bool count_only : {false, true}) {
    const size_t bytes = primitives.hash_match_scratch_bytes(build.layout, build.rows.size(), probe.layout, probe.rows.size(),
                                                             partitions, count_only);
    const HostBuffer scratch = engine.memory->allocate(bytes, "a test");
    std::memset(scratch.data(), 0xA5, bytes);
    const auto match =
        primitives.hash_match(build.tuples, probe.tuples, partitions, bits, count_only, scratch.data(), job, *stream);
    stream->synchronize();
    ASSERT_EQ(match->tally().pairs, expected.pairs.size());
    ASSERT_EQ(match->tally().build_matched, expected.build_matched.size());
    ASSERT_EQ(match->tally().probe_matched, expected.probe_matched.size());
    if (count_only) continue;
    const auto emit = [&](JoinEmit what, std::vector<Row> rows, bool with_build, bool with_probe) {
      const size_t size = rows.size();
      std::vector<char> keys(size * build.layout.key_bytes + 64, 0x5A), left(size * build.layout.value_bytes + 64, 0x5A),
          right(size * probe.layout.value_bytes + 64, 0x5A);
      // In two calls, to try windows that begin and end anywhere.
      const size_t cut = size * 2 / 3;
      primitives.hash_emit(*match, what, 0, cut,
                           {keys.data(), with_build ? left.data() : nullptr, with_probe ? right.data() : nullptr}, job, *stream);
      primitives.hash_emit(
          *match, what, cut, size - cut,
          {keys.data() + cut * build.layout.key_bytes, with_build ? left.data() + cut * build.layout.value_bytes : nullptr,
           with_probe ? right.data() + cut * probe.layout.value_bytes : nullptr},
          job, *stream);
      stream->synchronize();
      std::vector<Row> got;
      for (size_t i = 0; i < size; ++i) {
        got.emplace_back(read(keys, i, build.layout.key_bytes), with_build ? read(left, i, build.layout.value_bytes) : 0,
                         with_probe ? read(right, i, probe.layout.value_bytes) : 0);
      }
      std::sort(got.begin(), got.end());
      std::sort(rows.begin(), rows.end());
      ASSERT_EQ(got, rows);
      for (const auto* out : {&keys, &left, &right}) {
        ASSERT_TRUE(std::all_of(out->end() - 64, out->end(), [](char c) { return c == 0x5A; }));
      }
    };
    emit(JoinEmit::pairs, expected.pairs, true, true);
    emit(JoinEmit::build_matched, expected.build_matched, true, false);
    emit(JoinEmit::build_unmatched, expected.build_unmatched, true, false);
    emit(JoinEmit::probe_matched, expected.probe_matched, false, true);
    emit(JoinEmit::probe_unmatched, expected.probe_unmatched, false, true);
  }
}

Engine make_engine() { return Engine({.threads = 3, .host_devices = 1, .memory_limit_bytes = size_t{2} << 30}); }

// Keys of many shapes; `domain` small against the size makes duplicates.
std::vector<uint64_t> keys(std::mt19937_64& random, size_t size, uint64_t domain, uint8_t key_bytes) {
  std::vector<uint64_t> all(size);
  for (uint64_t& key : all) {
    key = random() % domain * 0x9E3779B97F4A7C15ull;
    if (random() % 64 == 0) key = 0x8F1BBCDC5A827999ull;  // the key that stands for an empty slot
    if (key_bytes == 4) key = static_cast<uint32_t>(key);
  }
  return all;
}

TEST(HashJoinPrimitive, MatchesTheNaiveJoinForAllLayoutsFragmentsAndPartitions) {
  Engine engine = make_engine();
  std::mt19937_64 random(1);
  for (const uint8_t key_bytes : {4, 8}) {
    for (const uint8_t build_value : {0, 4, 8}) {
      for (const uint8_t probe_value : {0, 4, 8}) {
        for (const unsigned bits : {0u, 1u, 4u, 9u}) {
          for (const size_t fragments : {1, 3}) {
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
  std::vector<uint64_t> r(20000), s(700000);
  std::iota(r.begin(), r.end(), uint64_t{0});
  for (uint64_t& key : s) key = random() % 4 ? random() % 40000 : 17;
  for (const unsigned bits : {0u, 3u}) check(engine, Side({8, 4}, r, 1, bits, false), Side({8, 4}, s, 2, bits, true), bits);
}

TEST(HashJoinPrimitive, CutsTheOutputOfHotKeysIntoWindows) {
  Engine engine = make_engine();
  std::mt19937_64 random(3);
  std::vector<uint64_t> r(3000), s(1500);
  for (uint64_t& key : r) key = random() % 3 ? 42 : random() % 100;
  for (uint64_t& key : s) key = random() % 2 ? 42 : random() % 200;
  for (const unsigned bits : {0u, 2u}) check(engine, Side({4, 4}, r, 2, bits, false), Side({4, 8}, s, 1, bits, false), bits);
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
