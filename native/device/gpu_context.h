// The contexts of the GPUs in this process, and what a failure does to one.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "device/gpu_runtime.h"

namespace warpjoin {

/// A GPU as this process uses it. The runtime has one context a GPU and process: devices of all engines share it, and so does
/// other code of the process. A kernel that faults, or hardware that fails, ends the context: every later call of the runtime on
/// this GPU fails, what its memory holds is lost, and only a new process can use it again.
class GpuId {
 public:
  /// The GPU, for as long as the process lives; by then it and the GPUs in use read each other's memory, where they can. Throws
  /// Error(device) if its context is lost.
  static const GpuId& use(int gpu, const std::string& name);
  /// Why this process can't use the GPU any more; empty: it can.
  static std::string failure(int gpu);

  GpuId(int gpu, std::string name) : gpu(gpu), name(std::move(name)) {}
  GpuId(const GpuId&) = delete;
  GpuId& operator=(const GpuId&) = delete;

  /// Throws Error(device), saying what it failed by, if the context is lost.
  void check() const {
    if (is_lost()) throw Error(ErrorCode::device, failure_);
  }
  /// Makes it the calling thread's GPU: every runtime call depends on that. Throws Error(device) if the context is lost.
  void select() const {
    check();
    GPU_CHECK(name, gpu_set_device(gpu));
  }
  /// Whether kernels on this GPU read the memory of the other one.
  bool addresses(const GpuId& other) const;

  /// The context is lost by this.
  void lose(const std::string& reason) {
    failure_ = "Device '" + name + "' failed earlier: " + reason +
               ". This process can't use it any more: restart it, or make an engine of other devices";
    is_lost_.store(true, std::memory_order_release);
  }

  const int gpu;           ///< to the runtime
  const std::string name;  ///< "NVIDIA H200 0": names the GPU in errors

 private:
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }

  std::string failure_;  // written once, before is_lost_
  std::atomic<bool> is_lost_{false};
};

}  // namespace warpjoin
