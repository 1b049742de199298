// The contexts of the GPUs in this process, and what becomes of one that fails.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "device/gpu_runtime.h"

namespace warpjoin {

/// A GPU as this process uses it. The runtime has one context a GPU and process: devices of all engines share it, and so does
/// other code of the process. A kernel that faults, or hardware that fails, ends the context: every later call of the runtime on
/// this GPU fails, and what its memory holds is lost.
struct GpuId {
  const int gpu;           ///< to the runtime
  const std::string name;  ///< "NVIDIA H200 0": names the GPU in errors
  std::atomic<bool> is_lost{false};

  GpuId(int gpu, std::string name) : gpu(gpu), name(std::move(name)) {}
  ~GpuId();
  GpuId(const GpuId&) = delete;
  GpuId& operator=(const GpuId&) = delete;

  /// The GPU, for as long as the caller holds what this gives; by then it and the GPUs in use read each other's memory, where
  /// they can. A lost context is made anew here, if no engine of the process uses it any more. Throws Error(device) where one
  /// does, and where the GPU does not work in a new context either.
  static std::shared_ptr<const GpuId> use(int gpu, const std::string& name);

  /// Throws Error(device), saying what it failed by, if the context is lost.
  void check() const {
    if (is_lost.load(std::memory_order_acquire)) throw_lost();
  }
  /// Makes it the calling thread's GPU: every runtime call depends on that. Throws Error(device) if the context is lost.
  void select() const {
    check();
    GPU_CHECK(name, gpu_set_device(gpu));
  }
  /// Whether kernels on this GPU read the memory of the other one.
  bool addresses(const GpuId& other) const;

 private:
  [[noreturn]] void throw_lost() const;
};

}  // namespace warpjoin
