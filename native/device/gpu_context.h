// The GPUs as this process uses them, and what a failure does to that.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "device/gpu_runtime.h"

namespace warpjoin {

/// A GPU as this process uses it. The runtime has one context a GPU and process: devices of all engines share it, and so does
/// other code of the process. A kernel that faults, or hardware that fails, ends the context: every later call of the runtime on
/// this GPU fails, and what its memory holds is lost. Kernels do not start on the other GPUs either, until there is a new
/// process.
class GpuId {
 public:
  /// The GPU, for as long as the process lives; by then it and the GPUs in use read each other's memory, where they can. Throws
  /// Error(device) if a context has been lost.
  static const GpuId& use(int gpu, const std::string& name);
  /// Why this process can't use GPUs any more; empty: it can.
  static std::string failure();

  GpuId(int gpu, std::string name) : gpu(gpu), name(std::move(name)) {}
  GpuId(const GpuId&) = delete;
  GpuId& operator=(const GpuId&) = delete;

  /// Throws Error(device), saying what failed, if a context has been lost.
  void check() const {
    if (is_lost_.load(std::memory_order_acquire)) throw Error(ErrorCode::device, failure());
  }
  /// Makes it the calling thread's GPU: every runtime call depends on that. Throws Error(device) if a context has been lost.
  void select() const {
    check();
    GPU_CHECK(name, gpu_set_device(gpu));
  }
  /// Whether kernels on this GPU read the memory of the other one.
  bool addresses(const GpuId& other) const;

  const int gpu;           ///< to the runtime
  const std::string name;  ///< "NVIDIA H200 0": names the GPU in errors

 private:
  friend class Contexts;
  static inline std::atomic<bool> is_lost_{false};
};

}  // namespace warpjoin
