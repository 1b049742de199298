// Streams of a GPU, and the way of small results from kernels to host memory.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/gpu_runtime.h"

namespace warpjoin {

/// Which GPU it is to the runtime, and its name in errors.
struct GpuId {
  int gpu = 0;
  std::string name;

  /// Makes it the calling thread's GPU: every runtime call depends on that.
  void select() const { GPU_CHECK(name, gpu_set_device(gpu)); }
};

class GpuStream final : public Stream {
 public:
  GpuStream(const GpuId& id, bool urgent);
  ~GpuStream() override;
  void synchronize() override;
  void record(Event& event) override;
  void wait(Event& event) override;

  gpu_stream_t raw() const noexcept { return stream_; }

 private:
  const GpuId& id_;
  gpu_stream_t stream_{};
};

/// Pinned host memory for results of kernels that are too small for a buffer of the caller's. A copy to ordinary host
/// memory would block the thread that enqueues it, and with it the other devices.
class ResultSlots {
 public:
  explicit ResultSlots(const GpuId& id) : id_(id) {}
  ~ResultSlots();

  class Slot {
   public:
    template <class T>
    T* as() const noexcept {
      return static_cast<T*>(data_);
    }

   private:
    friend class ResultSlots;
    void* data_ = nullptr;
    size_t capacity_ = 0;
    bool busy_ = false;
    ResultSlots* owner_ = nullptr;
    std::function<void()> deliver_;
  };

  /// A slot of at least `bytes` that kernels and the host address.
  Slot& acquire(size_t bytes);
  /// Enqueues `deliver`, which takes the results to their place, and frees the slot behind it.
  void finish(Slot& slot, std::function<void()> deliver, gpu_stream_t stream);

 private:
  static void run(void* slot);

  const GpuId& id_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace warpjoin
