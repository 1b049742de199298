// Engines that share host memory and threads, and work at the same time.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "core/error.h"
#include "engine/engine.h"
#include "join_cases.h"

namespace warpjoin {
namespace {

using namespace testing;

constexpr size_t kLimit = size_t{256} << 20;

std::unique_ptr<Engine> beside(const Engine* engine) {
  return std::make_unique<Engine>(EngineConfig{.threads = 3, .memory_limit_bytes = kLimit, .beside = engine});
}

TEST(EnginesBeside, ShareMemoryAndThreads) {
  const auto first = beside(nullptr);
  auto second = beside(first.get());
  EXPECT_EQ(&first->pool, &second->pool);
  const HostBuffer held = second->memory->allocate(kLimit - (size_t{2} << 20), "a test");
  EXPECT_THROW(first->memory->allocate(size_t{4} << 20, "a test"), Error);
  second.reset();  // the threads stay
  std::vector<uint64_t> ran(100);
  first->pool.parallel_for(ran.size(), [&](uint64_t task) { ran[task] = task; });
  EXPECT_EQ(ran.back(), 99u);
}

TEST(EnginesBeside, TheFirstMayEndBeforeTheOthers) {
  auto first = beside(nullptr);
  const auto second = beside(first.get());
  first.reset();
  std::mt19937_64 random(1);
  const Rows left = draw(random, 5000, 3000, 0.1, 8), right = draw(random, 4000, 3000, 0.1, 8);
  check(*second, left, right, {}, {.kind = JoinKind::full}, {});
}

TEST(EnginesBeside, JoinAtTheSameTime) {
  const auto first = beside(nullptr);
  std::vector<std::thread> calls;
  for (uint64_t call = 0; call < 4; ++call) {
    calls.emplace_back([&first, call] {
      const auto engine = beside(first.get());
      std::mt19937_64 random(call);
      for (const JoinKind kind : kKinds) {
        const Rows left = draw(random, 40000, 20000, 0.1, 8), right = draw(random, 30000, 20000, 0.1, 8);
        check(*engine, left, right, {}, {.kind = kind, .build_left = call % 2 == 0}, {.merge = call == 3});
      }
    });
  }
  for (std::thread& call : calls) call.join();
  first->memory->trim();
  EXPECT_EQ(first->memory->used_bytes(), 0u);
}

}  // namespace
}  // namespace warpjoin
