#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "columns/encode.h"

namespace warpjoin {
namespace {

class KeyOrder : public ::testing::Test {
 protected:
  template <class Key>
  static EncodedTuples tuples(const std::vector<Key>& keys, uint64_t flip = 0) {
    EncodedTuples tuples;
    tuples.layout = {sizeof(Key), 4};
    tuples.view = {keys.data(), nullptr, 0, keys.size()};
    tuples.flip = flip;
    return tuples;
  }
  bool sorted(const EncodedTuples& tuples) { return is_sorted(tuples, engine_, job_); }

  Engine engine_{{.threads = 3, .host_devices = 1, .memory_limit_bytes = size_t{1} << 30}};
  Job job_;
};

TEST_F(KeyOrder, KnowsOrderedKeysOfAllSizes) {
  std::mt19937_64 random(1);
  for (const size_t size : {0, 1, 2, 3, 255, 256, 257, 258, 4097, 65536, 65537, 300000}) {
    std::vector<uint64_t> wide(size);
    std::vector<uint32_t> narrow(size);
    for (auto& key : wide) key = random() % (size + 1) << 30;
    for (auto& key : narrow) key = static_cast<uint32_t>(random());
    std::sort(wide.begin(), wide.end());
    std::sort(narrow.begin(), narrow.end());
    EXPECT_TRUE(sorted(tuples(wide)));
    EXPECT_TRUE(sorted(tuples(narrow)));
    EXPECT_TRUE(sorted(tuples(std::vector<uint32_t>(size, 7))));
  }
}

TEST_F(KeyOrder, FindsOneInversionAnywhere) {
  constexpr size_t kSize = 200000;
  std::vector<uint64_t> keys(kSize);
  for (size_t i = 0; i < kSize; ++i) keys[i] = 2 * i;
  for (const size_t at : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{65535}, size_t{65536}, kSize - 2}) {
    std::swap(keys[at], keys[at + 1]);
    EXPECT_FALSE(sorted(tuples(keys))) << at;
    std::swap(keys[at], keys[at + 1]);
  }
  EXPECT_TRUE(sorted(tuples(keys)));
}

TEST_F(KeyOrder, ComparesFlippedKeys) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  const std::vector<uint64_t> ascending{static_cast<uint64_t>(-5), static_cast<uint64_t>(-1), 0, 3, 3, 9};
  const std::vector<uint64_t> descending(ascending.rbegin(), ascending.rend());
  EXPECT_FALSE(sorted(tuples(ascending)));
  EXPECT_TRUE(sorted(tuples(ascending, kSign)));
  EXPECT_TRUE(sorted(tuples(descending, ~kSign)));
  const std::vector<uint32_t> narrow{static_cast<uint32_t>(-5), 0, 7};
  EXPECT_TRUE(sorted(tuples(narrow, uint64_t{1} << 31)));
}

TEST_F(KeyOrder, ASampleKnowsMostKeysOutOfOrder) {
  std::mt19937_64 random(2);
  std::vector<uint32_t> keys(100000);
  for (auto& key : keys) key = static_cast<uint32_t>(random());
  EXPECT_FALSE(seems_sorted(tuples(keys)));
  std::sort(keys.begin(), keys.end(), std::greater());
  EXPECT_FALSE(seems_sorted(tuples(keys)));
  // In order by halves: no neighbours of the sample may be where they meet, but keys of different stretches tell.
  std::sort(keys.begin(), keys.begin() + 50000);
  std::sort(keys.begin() + 50000, keys.end());
  EXPECT_FALSE(seems_sorted(tuples(keys)));
}

TEST_F(KeyOrder, StopsWhenItsJobIsCancelled) {
  const std::vector<uint32_t> keys(100000, 1);
  job_.cancel();
  EXPECT_THROW(sorted(tuples(keys)), Error);
}

}  // namespace
}  // namespace warpjoin
