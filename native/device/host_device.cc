#include "device/host_device.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "primitives/host/host_primitives.h"

namespace warpjoin {
namespace {

/// What an event has recorded. Streams that have yet to come to it hold it: the event may be gone by then, as that of a GPU may.
class Recordings {
 public:
  /// From now on a wait means a new recording. `push` puts its end in a stream's queue, before any wait for it can be in one:
  /// what is behind that wait may come to stand in the same queue.
  template <class Push>
  void record(Push&& push) {
    const std::lock_guard lock(mutex_);
    push(recorded_ + 1);
    ++recorded_;
  }
  void finish(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    if (ticket > done_) done_ = ticket;
    changed_.notify_all();
  }
  uint64_t latest() {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }
  void wait_for(uint64_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= ticket; });
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return done_ >= recorded_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t recorded_ = 0, done_ = 0;
};

class HostEvent final : public Event {
 public:
  void synchronize() override { recordings_->wait_for(recordings_->latest()); }
  bool done() override { return recordings_->done(); }
  static const std::shared_ptr<Recordings>& recordings_of(Event& event) { return static_cast<HostEvent&>(event).recordings_; }

 private:
  const std::shared_ptr<Recordings> recordings_ = std::make_shared<Recordings>();
};

/// A stream whose work runs as soon as it is enqueued: there is nothing to wait for but errors.
class StreamAtOnce final : public HostStream {
 public:
  void enqueue(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  void synchronize() override {
    const std::lock_guard lock(mutex_);
    if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  }

  void record(Event& event) override {
    Recordings& recordings = *HostEvent::recordings_of(event);
    uint64_t recorded = 0;
    recordings.record([&](uint64_t ticket) { recorded = ticket; });
    recordings.finish(recorded);
  }

  void wait(Event& event) override { event.synchronize(); }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// A stream with a thread that runs its work.
class StreamWithThread final : public HostStream {
 public:
  /// Throws Error(device) where the system refuses the thread.
  StreamWithThread() : thread_(start_thread("a stream of a host device", [this] { run(); })) {}
  ~StreamWithThread() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void enqueue(std::function<void()> work) override { push(std::move(work), false); }

  void synchronize() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ == 0; });
    if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  }

  void record(Event& event) override {
    const std::shared_ptr<Recordings>& recordings = HostEvent::recordings_of(event);
    recordings->record([&](uint64_t ticket) {
      push([recordings, ticket] { recordings->finish(ticket); }, true);  // others wait for it
    });
  }

  void wait(Event& event) override {
    const std::shared_ptr<Recordings>& recordings = HostEvent::recordings_of(event);
    push([recordings, ticket = recordings->latest()] { recordings->wait_for(ticket); }, true);
  }

 private:
  struct Work {
    std::function<void()> function;
    bool always;  ///< even after an error
  };

  void push(std::function<void()> function, bool always) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({std::move(function), always});
      ++left_;
    }
    changed_.notify_all();
  }

  /// Ends once all work is done.
  void run() {
    lower_thread_priority();
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Work work = std::move(queue_.front());
      queue_.pop_front();
      const bool runs = work.always || !error_;
      lock.unlock();
      std::exception_ptr error;
      try {
        if (runs) work.function();
      } catch (...) {
        error = std::current_exception();
      }
      work.function = nullptr;
      lock.lock();
      if (error && !error_) error_ = error;
      if (--left_ == 0) changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  size_t left_ = 0;  // that have not ended
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

class HostDevice final : public Device {
 public:
  HostDevice(int ordinal, size_t limit_bytes, std::shared_ptr<HostMemory> memory, ThreadPool& pool, HostStreams streams)
      : pool_(pool), streams_(streams), host_memory_(std::move(memory)), primitives_(std::make_unique<HostPrimitives>(pool)) {
    info_ = {DeviceKind::host, ordinal, "host " + std::to_string(ordinal), limit_bytes, limit_bytes, {}};
    memory_ = std::make_unique<StackAllocator>(info_.name, limit_bytes,
                                               StackAllocator::Physical{[this](size_t bytes) {
                                                                          HostBuffer block =
                                                                              host_memory_->allocate(bytes, info_.name.c_str());
                                                                          void* const data = block.data();
                                                                          blocks_.emplace(data, std::move(block));
                                                                          return data;
                                                                        },
                                                                        [this](void* data, size_t) { blocks_.erase(data); },
                                                                        [this] { return host_memory_->free_bytes(); }, false});
  }

  ~HostDevice() override { memory_.reset(); }  // it frees into blocks_

  bool addresses_host_memory() const noexcept override { return true; }
  std::unique_ptr<Stream> create_stream(bool /*urgent*/) override {
    if (streams_ == HostStreams::with_threads) return std::make_unique<StreamWithThread>();
    return std::make_unique<StreamAtOnce>();
  }
  std::unique_ptr<Event> create_event() override { return std::make_unique<HostEvent>(); }

  void copy(void* target, const void* source, size_t bytes, Stream& stream) override {
    if (bytes == 0) return;
    static_cast<HostStream&>(stream).enqueue([=, this] {
      static const Job never_cancelled;
      pool_.for_blocks(bytes, size_t{1} << 20, never_cancelled, [&](uint64_t begin, uint64_t end) {
        std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(source) + begin, end - begin);
      });
    });
  }

  void copy_to_peer(void* target, Device&, const void* source, size_t bytes, Stream& stream) override {
    copy(target, source, bytes, stream);
  }

  void fill(void* target, unsigned char value, size_t bytes, Stream& stream) override {
    static_cast<HostStream&>(stream).enqueue([=] { std::memset(target, value, bytes); });
  }

  Primitives& primitives() noexcept override { return *primitives_; }

 private:
  ThreadPool& pool_;
  const HostStreams streams_;
  std::shared_ptr<HostMemory> host_memory_;
  std::map<void*, HostBuffer> blocks_;
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace

std::unique_ptr<Device> create_host_device(int ordinal, size_t limit_bytes, std::shared_ptr<HostMemory> memory, ThreadPool& pool,
                                           HostStreams streams) {
  return std::make_unique<HostDevice>(ordinal, limit_bytes, std::move(memory), pool, streams);
}

}  // namespace warpjoin
