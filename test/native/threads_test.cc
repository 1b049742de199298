// Threads that the system refuses.
#include "core/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "core/error.h"
#include "core/thread_pool.h"

namespace warpjoin {
namespace {

class RefusedThreads : public ::testing::Test {
 protected:
  ~RefusedThreads() override { fail_threads(0, 0); }
};

TEST_F(RefusedThreads, LeaveAPoolHalfOfThoseThatItGot) {
  for (const auto& [refused, left] : {std::pair(1u, 1u), {2u, 1u}, {3u, 2u}, {5u, 3u}, {8u, 8u}}) {
    fail_threads(refused, UINT64_MAX);
    ThreadPool pool(8);
    fail_threads(0, 0);
    EXPECT_EQ(pool.threads(), left);
    std::atomic<uint64_t> sum = 0;
    pool.parallel_for(1000, [&](uint64_t i) { sum += i; });
    EXPECT_EQ(sum, 499'500u);
  }
}

TEST_F(RefusedThreads, AreNamedByTheirPurpose) {
  fail_threads(2, 1);
  start_thread("a test", [] {}).join();
  try {
    start_thread("a test", [] {}).join();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device);
    EXPECT_NE(std::string(error.what()).find("no thread for a test"), std::string::npos) << error.what();
  }
  start_thread("a test", [] {}).join();
}

TEST_F(RefusedThreads, LeaveWorkToWhoWaitsForIt) {
  for (const uint64_t refused : {0, 1}) {
    fail_threads(refused, 1);
    std::atomic<int> ran = 0;
    const std::shared_future<void> beside = run_beside([&] { ++ran; });
    ThreadPool pool(3);
    pool.parallel_for(20, [&, beside](uint64_t) {
      beside.get();
      EXPECT_EQ(ran, 1);
    });
    EXPECT_THROW(run_beside([] { throw Error(ErrorCode::aborted, "ended"); }).get(), Error);
  }
}

}  // namespace
}  // namespace warpjoin
