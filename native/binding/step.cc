#include "binding/step.h"

#include <utility>

#include "binding/entry.h"
#include "core/error.h"
#include "core/threads.h"

namespace warpjoin::binding {
namespace {

void check(Napi::Env env, napi_status status) {
  if (status != napi_ok) throw Napi::Error::New(env);
}

void run(Step& step) noexcept {
  try {
    if (step.job) step.job->check();
    step.result = step.run();
  } catch (...) {
    step.error = std::current_exception();
  }
  step.run = nullptr;
}

}  // namespace

StepQueue::StepQueue(Napi::Env env) : env_(env) {
  check(env, napi_create_threadsafe_function(env, nullptr, nullptr, Napi::String::New(env, "warpjoin steps"), 0, 1, nullptr,
                                             nullptr, this, settle_done, &settler_));
  // An idle engine lets the process end.
  napi_unref_threadsafe_function(env, settler_);
  // Behind the function, whose own hook frees it: hooks run in the reverse order of their registration.
  napi_status status = napi_add_env_cleanup_hook(env, environment_ends, this);
  if (status != napi_ok) napi_release_threadsafe_function(settler_, napi_tsfn_abort);
  check(env, status);
  try {
    thread_ = start_thread("the calls of an engine", [this] { work(); });
  } catch (...) {
    disconnect();
    throw;
  }
}

StepQueue::~StepQueue() {
  if (!settler_) return;  // environment_ends has done it
  stop();
  disconnect();
}

void StepQueue::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const Step& step : running_) {
      if (step.job) step.job->cancel();
    }
  }
  wake_.notify_all();
  thread_.join();
}

void StepQueue::disconnect() noexcept {
  napi_remove_env_cleanup_hook(env_, environment_ends, this);
  // At once: what it would call for is gone.
  napi_release_threadsafe_function(std::exchange(settler_, nullptr), napi_tsfn_abort);
}

void StepQueue::environment_ends(void* ended) noexcept {
  auto& queue = *static_cast<StepQueue*>(ended);
  queue.stop();
  napi_release_threadsafe_function(std::exchange(queue.settler_, nullptr), napi_tsfn_abort);
  const Steps queued = std::move(queue.queued_), done = std::move(queue.done_);
  // The steps go now, and one of them may hold the queue.
}

Napi::Promise StepQueue::submit(Step step) {
  if (!settler_) throw Error(ErrorCode::aborted, "The environment of the engine has ended");
  napi_value promise = nullptr;
  check(env_, napi_create_promise(env_, &step.deferred, &promise));
  if (step.brief && pending_ == 0) {
    run(step);
    settle(env_, step);
    return {env_, promise};
  }
  Steps added;
  added.push_back(std::move(step));
  if (pending_++ == 0) napi_ref_threadsafe_function(env_, settler_);
  {
    const std::lock_guard lock(mutex_);
    queued_.splice(queued_.end(), added);
  }
  wake_.notify_one();
  return {env_, promise};
}

void StepQueue::work() {
  lower_thread_priority();
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || !queued_.empty(); });
    if (stopping_) return;
    running_.splice(running_.end(), queued_, queued_.begin());
    Step& step = running_.front();
    lock.unlock();
    run(step);
    lock.lock();
    // One call for all that are done when it comes. With the lock: then there is none without a step that holds the queue.
    if (done_.empty() && !stopping_) napi_call_threadsafe_function(settler_, nullptr, napi_tsfn_nonblocking);
    done_.splice(done_.end(), running_);
  }
}

void StepQueue::settle_done(napi_env env, napi_value, void* settled, void*) noexcept {
  if (!env) return;  // the environment is ending: environment_ends
  auto& queue = *static_cast<StepQueue*>(settled);
  Steps done;
  {
    const std::lock_guard lock(queue.mutex_);
    done.swap(queue.done_);
  }
  queue.pending_ -= done.size();
  if (queue.pending_ == 0) napi_unref_threadsafe_function(env, queue.settler_);
  for (Step& step : done) settle(env, step);
  // The steps go now, and one of them may hold the queue.
}

void StepQueue::settle(napi_env env, Step& step) noexcept {
  const auto made = [&]() -> napi_value {
    try {
      return step.result ? step.result(env) : Napi::Env(env).Undefined();
    } catch (...) {
      step.error = std::current_exception();
      return nullptr;
    }
  };
  const napi_value result = step.error ? nullptr : made();
  // The calls fail where a worker was terminated: nobody waits any more.
  if (result) {
    napi_resolve_deferred(env, step.deferred, result);
  } else if (const napi_value error = to_js_error(env, step.error)) {
    napi_reject_deferred(env, step.deferred, error);
  }
}

}  // namespace warpjoin::binding
