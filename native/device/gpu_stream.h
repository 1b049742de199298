// Streams of a GPU, and the way of small results from kernels to host memory.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/gpu_context.h"

namespace warpjoin {

/// Pinned host memory for results of kernels that are too small for a buffer of the caller's: a copy to ordinary host
/// memory would block the thread that enqueues it, and with it the other devices. They come from there to their place
/// when a thread has waited for them, as a function that the stream calls would hold it up for 0.1 to 0.3 ms.
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
    gpu_event_t written_{};
    gpu_stream_t stream_{};
    bool busy_ = false;              // from acquire() until its results have been delivered, or its stream goes
    std::function<void()> deliver_;  // once all that writes it is enqueued
  };

  /// A slot of at least `bytes` that the host and kernels of `stream` address.
  Slot& acquire(size_t bytes, gpu_stream_t stream);
  /// Has `deliver` take the results to their place once what the slot's stream has to do by now is done and waited for.
  void finish(Slot& slot, std::function<void()> deliver);

  /// Delivers what `stream`, which has been synchronized, and others have written.
  void deliver(gpu_stream_t stream = {});
  /// Frees the slots of `stream`, which has failed or goes.
  void forget(gpu_stream_t stream) noexcept;

 private:
  const GpuId& id_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

class GpuStream final : public Stream {
 public:
  GpuStream(const GpuId& id, ResultSlots& results, bool urgent);
  ~GpuStream() override;
  void synchronize() override;
  void record(Event& event) override;
  void wait(Event& event) override;

  gpu_stream_t raw() const noexcept { return stream_; }

 private:
  const GpuId& id_;
  ResultSlots& results_;
  gpu_stream_t stream_{};
};

}  // namespace warpjoin
