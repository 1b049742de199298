#include "core/threads.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace warpjoin {
namespace {

/// Which threads to refuse, in a test.
class Refusals {
 public:
  void set(uint64_t n, uint64_t count) noexcept {
    const std::lock_guard lock(mutex_);
    before_ = n ? n - 1 : 0;
    left_ = n ? count : 0;
  }
  bool refuses_next() noexcept {
    const std::lock_guard lock(mutex_);
    if (left_ == 0) return false;
    if (before_ > 0) {
      --before_;
      return false;
    }
    --left_;
    return true;
  }

 private:
  std::mutex mutex_;
  uint64_t before_ = 0, left_ = 0;
};

Refusals& refusals() {
  static Refusals all;
  return all;
}

}  // namespace

void lower_thread_priority() noexcept { setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 5); }

std::thread start_thread(const char* purpose, std::function<void()> body) {
  try {
    if (refusals().refuses_next()) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::device, std::string("The system gives no thread for ") + purpose + " (" + error.code().message() +
                                       "): it needs a higher limit of threads (ulimit -u, pids.max of the container), or an " +
                                       "engine with fewer threads or devices");
  }
}

std::shared_future<void> run_beside(std::function<void()> body) {
  // With both policies the standard library defers what it gets no thread for.
  const auto policy = refusals().refuses_next() ? std::launch::deferred : std::launch::async | std::launch::deferred;
  return std::async(policy, std::move(body)).share();
}

void fail_threads(uint64_t n, uint64_t count) noexcept { refusals().set(n, count); }

}  // namespace warpjoin
