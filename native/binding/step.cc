#include "binding/step.h"

#include <new>

#include "core/error.h"
#include "core/threads.h"

namespace warpjoin::binding {

Napi::Error to_js_error(Napi::Env env, const std::exception_ptr& error) {
  const auto with_code = [&](const char* message, const char* code) {
    Napi::Error js = Napi::Error::New(env, message);
    js.Set("code", Napi::String::New(env, code));
    return js;
  };
  try {
    std::rethrow_exception(error);
  } catch (const DeviceMemoryShortage& e) {
    Napi::Error js = with_code(e.what(), code_name(e.code()));
    js.Set("freeBytes", Napi::Number::New(env, static_cast<double>(e.free_bytes())));
    return js;
  } catch (const Error& e) {
    return with_code(e.what(), code_name(e.code()));
  } catch (const std::bad_alloc&) {
    return with_code("The system has no memory left", code_name(ErrorCode::memory_limit));
  } catch (const std::exception& e) {
    return with_code(e.what(), code_name(ErrorCode::internal));
  }
}

StepQueue::~StepQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (running_) running_->cancel();
  }
  wake_.notify_all();
  thread_.join();
}

Napi::Promise StepQueue::submit(Napi::Env env, std::unique_ptr<Step> step) {
  const Napi::Promise promise = step->deferred.Promise();
  const auto unused = Napi::Function::New(env, [](const Napi::CallbackInfo&) {});
  step->settle = Napi::ThreadSafeFunction::New(env, unused, "warpjoin step", 0, 1);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(step));
  }
  wake_.notify_all();
  return promise;
}

void StepQueue::settle(Napi::Env env, Step* step) {
  const std::unique_ptr<Step> owner(step);
  try {
    if (!step->error) {
      try {
        step->deferred.Resolve(step->result ? step->result(env) : env.Undefined());
        return;
      } catch (const Napi::Error& error) {
        step->deferred.Reject(error.Value());
        return;
      } catch (...) {
        step->error = std::current_exception();
      }
    }
    step->deferred.Reject(to_js_error(env, step->error).Value());
  } catch (const Napi::Error&) {
    // The environment is being torn down, a worker terminated: no JavaScript runs any more, so nobody waits.
  }
}

void StepQueue::work() {
  lower_thread_priority();
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    std::unique_ptr<Step> step = std::move(queue_.front());
    queue_.pop_front();
    running_ = step->job;
    lock.unlock();
    try {
      if (step->job) step->job->check();
      step->result = step->run();
    } catch (...) {
      step->error = std::current_exception();
    }
    step->run = nullptr;
    Napi::ThreadSafeFunction settler = step->settle;
    Step* raw = step.release();
    const napi_status status = settler.BlockingCall(raw, [](Napi::Env env, Napi::Function, Step* done) {
      if (env != nullptr) settle(env, done);
    });
    if (status == napi_ok) settler.Release();
    lock.lock();
    running_ = nullptr;
    if (status != napi_ok) orphans_.emplace_back(raw);
  }
}

}  // namespace warpjoin::binding
