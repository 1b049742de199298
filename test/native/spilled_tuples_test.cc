// What left the devices for host memory.
#include "flow/spilled_tuples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"

namespace warpjoin {
namespace {

constexpr uint32_t kPartitions = 6;
constexpr TupleLayout kLayout{8, 4};

/// A piece whose partitions have any sizes. Keys say where a tuple belongs: piece, partition, row.
struct Drawn {
  PartitionRange range;
  std::vector<uint64_t> offsets{0};

  explicit Drawn(std::mt19937_64& random) {
    range.begin = static_cast<uint32_t>(random() % kPartitions);
    range.end = static_cast<uint32_t>(range.begin + 1 + random() % (kPartitions - range.begin));
    for (uint32_t p = range.begin; p < range.end; ++p) offsets.push_back(offsets.back() + random() % 40);
  }
  uint64_t rows(uint32_t partition) const {
    if (partition < range.begin || partition >= range.end) return 0;
    return offsets[partition - range.begin + 1] - offsets[partition - range.begin];
  }
  static uint64_t key(uint64_t number, uint32_t partition, uint64_t row) { return number << 32 | partition << 16 | row; }
  void spill(SpilledTuples& to, uint64_t number) const {
    SpilledTuples::Piece& piece = to.add(number, range, offsets.back());
    auto* const keys = static_cast<uint64_t*>(piece.tuples.keys);
    auto* const values = static_cast<uint32_t*>(piece.tuples.values);
    uint64_t at = 0;
    for (uint32_t p = range.begin; p < range.end; ++p) {
      for (uint64_t row = 0; row < rows(p); ++row, ++at)
        keys[at] = key(number, p, row), values[at] = static_cast<uint32_t>(number);
    }
    piece.offsets = offsets;
  }
};

TEST(SpilledTuples, GivesPartitionsInTheOrderOfPieces) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const auto memory = HostMemory::create(size_t{1} << 30);
    std::vector<Drawn> pieces;
    for (uint64_t n = random() % 50; n > 0; --n) pieces.emplace_back(random);
    uint64_t all = 0;
    for (const Drawn& piece : pieces) all += piece.offsets.back();
    SpilledTuples spilled(*memory, kLayout, random() % 2 ? all : random() % (all + 1), "a test");
    std::vector<uint64_t> order(pieces.size());
    for (uint64_t n = 0; n < order.size(); ++n) order[n] = n;
    std::shuffle(order.begin(), order.end(), random);
    {
      std::vector<std::jthread> threads;
      for (size_t t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
          for (size_t i = t; i < order.size(); i += 3) pieces[order[i]].spill(spilled, order[i]);
        });
      }
    }
    EXPECT_EQ(spilled.size(), all);
    for (uint32_t begin = 0; begin <= kPartitions; ++begin) {
      for (uint32_t end = begin; end <= kPartitions; ++end) {
        std::vector<uint64_t> expected, found;
        for (uint64_t n = 0; n < pieces.size(); ++n) {
          for (uint32_t p = begin; p < end; ++p) {
            for (uint64_t row = 0; row < pieces[n].rows(p); ++row) expected.push_back(Drawn::key(n, p, row));
          }
        }
        for (const TupleView& view : spilled.views_of({begin, end})) {
          EXPECT_GT(view.size, 0u);
          for (uint64_t i = 0; i < view.size; ++i) {
            found.push_back(static_cast<const uint64_t*>(view.keys)[i]);
            EXPECT_EQ(static_cast<const uint32_t*>(view.values)[i], found.back() >> 32);
          }
        }
        ASSERT_EQ(found, expected);
        EXPECT_EQ(spilled.size_of({begin, end}), expected.size());
      }
    }
  }
}

TEST(SpilledTuples, TakesWhatWasExpectedAtOnce) {
  const auto memory = HostMemory::create(size_t{1} << 20);
  {
    SpilledTuples spilled(*memory, kLayout, 5000, "a test");
    EXPECT_EQ(memory->used_bytes(), SpilledTuples::host_bytes(kLayout, 5000));
    EXPECT_EQ(spilled.expected_room().size, 5000u);
    for (uint64_t n = 0; n < 50; ++n) spilled.add(n, {0, 1}, 100);
    EXPECT_EQ(memory->used_bytes(), SpilledTuples::host_bytes(kLayout, 5000));
    spilled.add(50, {0, 1}, 100);
    EXPECT_GT(memory->used_bytes(), SpilledTuples::host_bytes(kLayout, 5000));
    try {
      spilled.add(51, {0, 1}, 100'000);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::memory_limit);
      EXPECT_NE(std::string(error.what()).find("a test"), std::string::npos) << error.what();
    }
    EXPECT_EQ(spilled.size(), 5100u) << "what had no room is not there";
  }
  EXPECT_EQ(memory->used_bytes(), 0u);
  const SpilledTuples none(*memory, {4, 0}, 0, "a test");
  EXPECT_EQ(none.expected_room().size, 0u);
  EXPECT_TRUE(none.views_of({0, kPartitions}).empty());
}

TEST(SpilledTuples, HaveNoValuesWhereTheLayoutHasNone) {
  const auto memory = HostMemory::create(size_t{1} << 20);
  SpilledTuples spilled(*memory, {4, 0}, 10, "a test");
  spilled.add(0, {0, 1}, 10).offsets = {0, 10};
  ASSERT_EQ(spilled.views_of({0, 1}).size(), 1u);
  EXPECT_EQ(spilled.views_of({0, 1})[0].values, nullptr);
}

}  // namespace
}  // namespace warpjoin
