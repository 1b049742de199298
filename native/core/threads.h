// The one way to start a thread.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <thread>

namespace warpjoin {

/// Lets the calling thread yield to the one that runs JavaScript: as a niced thread it is preempted when that one wakes.
void lower_thread_priority() noexcept;

/// Runs `body` on a new thread. Throws Error(device), naming `purpose`, where the system refuses one.
std::thread start_thread(const char* purpose, std::function<void()> body);

/// Runs `body` on a new thread or, where the system refuses one, on the first thread that waits for it. The future's end
/// waits for it, too.
std::shared_future<void> run_beside(std::function<void()> body);

/// For tests: from now on the system refuses threads `n` to n + count - 1 (1 = the next) of this process; n = 0 ends that.
void fail_threads(uint64_t n, uint64_t count) noexcept;

}  // namespace warpjoin
