#include "core/memory_copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "transfer_cases.h"

namespace warpjoin {
namespace {

TEST(MemoryCopy, CopiesAnySizeAtAnyAlignmentAndNothingElse) {
  const auto source = testing::random_bytes(400000, 3);
  for (const auto copy : {copy_through_caches, copy_past_caches}) {
    for (const size_t size : {0, 1, 31, 63, 64, 65, 127, 128, 129, 200, 4096, 131071, 131072, 131073, 300001}) {
      for (const size_t to : {0, 1, 7, 32, 63}) {
        for (const size_t from : {0, 3, 64}) {
          testing::Bytes target(size + 256, 0xA5), expected = target;
          std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), size,
                      expected.begin() + 64 + static_cast<std::ptrdiff_t>(to));
          copy(target.data() + 64 + to, source.data() + from, size);
          ASSERT_TRUE(target == expected) << size << " to " << to << " from " << from;
        }
      }
    }
    copy(nullptr, nullptr, 0);
  }
}

}  // namespace
}  // namespace warpjoin
