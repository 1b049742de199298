// How a native call runs: on the engine's own thread, settling a promise on the JavaScript thread.
#pragma once

#include <napi.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/job.h"

namespace warpjoin::binding {

/// Turns a C++ exception into a JavaScript Error with a `code`. Call on the JavaScript thread.
Napi::Error to_js_error(Napi::Env env, const std::exception_ptr& error);

/// Makes the value that a promise resolves to, on the JavaScript thread.
using MakeResult = std::function<Napi::Value(Napi::Env)>;

/// One queued native call. Created and destroyed on the JavaScript thread, for `inputs` may own references to
/// JavaScript objects; run on the engine's thread in between.
struct Step {
  explicit Step(Napi::Env env) : deferred(Napi::Promise::Deferred::New(env)) {}

  Napi::Promise::Deferred deferred;
  Napi::ThreadSafeFunction settle;
  std::shared_ptr<Job> job;                   ///< cancelled if the environment goes away; may be null
  std::vector<std::shared_ptr<void>> inputs;  ///< what `run` refers to
  std::function<MakeResult()> run;
  MakeResult result;
  std::exception_ptr error;
};

/// A thread that runs an engine's steps one after the other.
class StepQueue {
 public:
  StepQueue() : thread_([this] { work(); }) {}
  /// Cancels what runs, rejects nothing that is still queued (the environment is going away), and joins.
  ~StepQueue();

  /// Queues a step and returns its promise. JavaScript thread only.
  Napi::Promise submit(Napi::Env env, std::unique_ptr<Step> step);

 private:
  void work();
  static void settle(Napi::Env env, Step* step);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Step>> queue_;
  std::vector<std::unique_ptr<Step>> orphans_;  // ended after the environment closed; destroyed with the queue
  std::shared_ptr<Job> running_;
  bool stopping_ = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace warpjoin::binding
