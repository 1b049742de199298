#include "primitives/host/first_rows.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/error.h"
#include "engine/engine.h"

namespace warpjoin::host {
namespace {

struct Keyed {
  std::vector<uint64_t> keys;
  std::vector<uint64_t> rows;  // ascending; empty: implied
};

Keyed draw(std::mt19937_64& random, uint64_t size, uint64_t distinct, bool implied) {
  Keyed out;
  uint64_t row = 0;
  for (uint64_t i = 0; i < size; ++i) {
    out.keys.push_back(distinct ? random() % distinct * 0x9E3779B97F4A7C15ull : random());
    if (!implied) out.rows.push_back(row += 1 + random() % 3);
  }
  return out;
}

uint64_t row_of(const Keyed& keyed, uint64_t i) { return keyed.rows.empty() ? i : keyed.rows[i]; }

template <class Row>
PartitionedKeys partitioned(Engine& engine, const Keyed& keyed, unsigned bits, const Job& job) {
  std::vector<Row> rows(keyed.rows.begin(), keyed.rows.end());
  return partition_keys(engine.pool, *engine.memory, {8, sizeof(Row)},
                        {keyed.keys.data(), rows.empty() ? nullptr : rows.data(), 0, keyed.keys.size()}, bits, job);
}

template <class OwnRow, class OtherRow, class First>
void check(Engine& engine, const Keyed& own, const Keyed& other) {
  const Job job;
  const unsigned bits = first_rows_bits(own.keys.size());
  const PartitionedKeys own_keys = partitioned<OwnRow>(engine, own, bits, job);
  const PartitionedKeys other_keys = partitioned<OtherRow>(engine, other, bits, job);
  const uint64_t own_rows = own.keys.empty() ? 0 : row_of(own, own.keys.size() - 1) + 1;
  const uint64_t other_rows = other.keys.empty() ? 0 : row_of(other, other.keys.size() - 1) + 1;
  constexpr auto kUntouched = static_cast<First>(0xABABABABABABABABull);
  std::vector<First> own_first(own_rows, kUntouched), other_first(other_rows, kUntouched);
  const uint64_t repeated = find_first_rows(engine.pool, *engine.memory, own_keys, other_keys, sizeof(First), own_first.data(),
                                            other_first.data(), job);
  std::map<uint64_t, uint64_t> first;
  uint64_t expected = 0;
  for (uint64_t i = 0; i < own.keys.size(); ++i) {
    const uint64_t row = row_of(own, i);
    const auto [at, fresh] = first.try_emplace(own.keys[i], row);
    expected += !fresh;
    ASSERT_EQ(own_first[row], fresh ? kUntouched : static_cast<First>(at->second));
  }
  EXPECT_EQ(repeated, expected);
  for (uint64_t i = 0; i < other.keys.size(); ++i) {
    const auto at = first.find(other.keys[i]);
    ASSERT_EQ(other_first[row_of(other, i)], at == first.end() ? static_cast<First>(~First{0}) : static_cast<First>(at->second));
  }
}

TEST(FirstRows, AreThoseOfEqualKeys) {
  std::mt19937_64 random(1);
  for (const unsigned threads : {1, 3}) {
    Engine engine({.threads = threads, .memory_limit_bytes = size_t{1} << 30});
    for (const uint64_t size : {0, 1, 5000, 60000}) {
      for (const uint64_t distinct : {0, 1, 700}) {
        SCOPED_TRACE(::testing::Message() << size << " rows, " << distinct << " keys, " << threads << " threads");
        check<uint32_t, uint32_t, uint32_t>(engine, draw(random, size, distinct, true), draw(random, 2 * size, distinct, true));
        check<uint32_t, uint64_t, uint32_t>(engine, draw(random, size, distinct, false), draw(random, size + 9, distinct, false));
        check<uint64_t, uint32_t, uint64_t>(engine, draw(random, size, distinct, true), draw(random, size / 2, distinct, false));
      }
    }
  }
}

/// A partition may turn out to have more keys than its table has room for.
TEST(FirstRows, AreFoundWhereKeysCrowdInOnePartition) {
  std::mt19937_64 random(2);
  Engine engine({.threads = 3, .memory_limit_bytes = size_t{1} << 30});
  Keyed own = draw(random, 200000, 0, true);
  for (uint64_t& key : own.keys) {
    while (mix_key(key) >> 60 != 5) key = random();
  }
  Keyed other = own;
  check<uint32_t, uint32_t, uint32_t>(engine, own, other);
}

TEST(FirstRows, StopWhenTheJobIsCancelled) {
  std::mt19937_64 random(3);
  Engine engine({.threads = 2, .memory_limit_bytes = size_t{1} << 30});
  const Keyed own = draw(random, 20000, 100, true);
  Job job;
  const PartitionedKeys keys = partitioned<uint32_t>(engine, own, 2, job);
  std::vector<uint32_t> first(20000);
  job.cancel();
  EXPECT_THROW(find_first_rows(engine.pool, *engine.memory, keys, keys, 4, first.data(), first.data(), job), Error);
  EXPECT_THROW(partitioned<uint32_t>(engine, own, 2, job), Error);
}

}  // namespace
}  // namespace warpjoin::host
