// How a native call runs: on the engine's own thread, or at once where it is brief, settling a promise on the JavaScript thread.
#pragma once

#include <napi.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/job.h"

namespace warpjoin::binding {

/// Makes the value that a promise resolves to, on the JavaScript thread.
using MakeResult = std::function<Napi::Value(Napi::Env)>;

/// One native call. Created and destroyed on the JavaScript thread, for `inputs` may own references to JavaScript objects;
/// run in between.
struct Step {
  std::shared_ptr<Job> job;                   ///< cancelled if the environment ends; may be null
  std::vector<std::shared_ptr<void>> inputs;  ///< what `run` refers to
  std::function<MakeResult()> run;
  bool brief = false;  ///< takes less time than the hand-over to another thread and back
  MakeResult result = {};
  std::exception_ptr error = {};
  napi_deferred deferred = nullptr;  ///< from submit() on
};

/// Runs an engine's steps one after the other: on a thread of its own, or, where a brief one would not have to wait, on the
/// JavaScript thread. An environment (the main thread's, or a worker's) may end at any time: then the step that runs is
/// cancelled, the thread is joined, and all steps go, with what they hold, before anything that they refer to. Their promises
/// stay pending, for no JavaScript runs any more.
///
/// Everything here is called on the JavaScript thread. While a step is pending the queue keeps the process alive.
class StepQueue {
 public:
  /// Throws Error(device) where the system gives no thread.
  explicit StepQueue(Napi::Env env);
  ~StepQueue();
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;

  /// Queues a step, or runs it, and returns its promise. A step may hold the queue itself.
  Napi::Promise submit(Step step);

 private:
  using Steps = std::list<Step>;  // steps move from one to another without an allocation

  void work();
  void stop() noexcept;
  void disconnect() noexcept;
  static void environment_ends(void* queue) noexcept;
  static void settle_done(napi_env env, napi_value, void* queue, void*) noexcept;
  static void settle(napi_env env, Step& step) noexcept;

  const Napi::Env env_;
  napi_threadsafe_function settler_ = nullptr;  // calls settle_done on the JavaScript thread; null: the environment has ended
  size_t pending_ = 0;                          // steps submitted and not settled
  std::mutex mutex_;
  std::condition_variable wake_;
  Steps queued_, running_, done_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace warpjoin::binding
