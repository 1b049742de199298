#include <algorithm>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "core/format.h"
#include "device/gpu_context.h"

namespace warpjoin {
namespace {

/// "out of memory (cudaErrorMemoryAllocation)"
std::string error_text(gpu_error_t error) {
  return std::string(gpu_get_error_string(error)) + " (" + gpu_get_error_name(error) + ")";
}

/// The same and "in cudaMalloc"; `call` may go on with its arguments.
std::string failed_by(gpu_error_t error, std::string_view call) {
  return error_text(error) + " in " + std::string(call.substr(0, call.find('(')));
}

Error lost_error(const std::string& name, const std::string& failure) {
  return {ErrorCode::device, "Device '" + name + "' failed earlier: " + failure +
                                 ". Dispose of the engines that use it and make a new one, or restart the process"};
}

/// Whether the runtime still does anything on the GPU: calls that need no memory report what ended a context, too.
bool responds(int gpu) {
  size_t free = 0, total = 0;
  const bool good =
      gpu_set_device(gpu) == gpu_success && gpu_free(nullptr) == gpu_success && gpu_mem_get_info(&free, &total) == gpu_success;
  static_cast<void>(gpu_get_last_error());
  return good;
}

/// What the first calls in a new context fail by; empty if they do not fail.
std::string tried(int gpu) {
  constexpr size_t kBytes = 4096;
  void* data = nullptr;
  gpu_error_t error = gpu_set_device(gpu);
  if (error == gpu_success) error = gpu_malloc(&data, kBytes);
  if (error == gpu_success) error = gpu_memset_async(data, 0, kBytes, gpu_stream_t{});
  if (error == gpu_success) error = gpu_device_synchronize();
  static_cast<void>(gpu_free(data));
  static_cast<void>(gpu_get_last_error());
  return error == gpu_success ? std::string() : error_text(error);
}

/// All GPUs that this process has used. Thread-safe. Never destroyed, as devices may outlive what is static.
class Contexts {
 public:
  static Contexts& of_process() {
    static auto* const contexts = new Contexts();
    return *contexts;
  }

  std::shared_ptr<const GpuId> use(int gpu, const std::string& name) {
    std::shared_ptr<GpuId> id;  // goes after the lock: its destructor locks
    const std::lock_guard lock(mutex_);
    if (contexts_.size() <= static_cast<size_t>(gpu)) contexts_.resize(static_cast<size_t>(gpu) + 1);
    Context& context = context_of(gpu);
    context.name = name;
    id = context.users.lock();
    if (!context.failure.empty()) {
      if (id) throw lost_error(name, context.failure);
      reset(gpu, context);
      const std::string again = tried(gpu);
      if (!again.empty()) {
        throw Error(ErrorCode::device, "Device '" + name + "' failed earlier: " + context.failure +
                                           ". It fails in a new context, too: " + again + ". Restart the process");
      }
      context.failure.clear();
      context.was_reset = false;
    }
    if (id) return id;
    id = std::make_shared<GpuId>(gpu, name);
    context.users = id;
    link(gpu);
    return id;
  }

  /// A call failed on the GPU of this name: throws Error(device) if the GPU was lost before, and remembers what it is lost by.
  void failed(const std::string& name, const std::string& failure) {
    std::shared_ptr<GpuId> id;  // goes after the lock: its destructor locks
    const std::lock_guard lock(mutex_);
    for (size_t gpu = 0; gpu < contexts_.size(); ++gpu) {
      Context& context = contexts_[gpu];
      if (context.name != name) continue;
      if (!context.failure.empty()) throw lost_error(name, context.failure);
      if (responds(static_cast<int>(gpu))) return;
      context.failure = failure;
      id = context.users.lock();
      if (id) id->is_lost.store(true, std::memory_order_release);
    }
  }

  /// Nothing of this process' engines uses the GPU any more. What a lost context holds of its memory is only given back with it.
  void unused(int gpu) noexcept {
    const std::lock_guard lock(mutex_);
    Context& context = context_of(gpu);
    if (!context.failure.empty() && context.users.expired()) reset(gpu, context);
  }

  std::string failure(int gpu) {
    const std::lock_guard lock(mutex_);
    return context_of(gpu).failure;
  }

  bool linked(int from, int to) {
    const std::lock_guard lock(mutex_);
    return std::find(links_.begin(), links_.end(), std::pair(from, to)) != links_.end();
  }

 private:
  struct Context {
    std::string name;
    std::weak_ptr<GpuId> users;
    std::string failure;  // not empty: it is lost
    bool was_reset = false;
  };

  /// Of a GPU that has been used.
  Context& context_of(int gpu) { return contexts_[static_cast<size_t>(gpu)]; }

  /// Ends a lost context. Other code of the process that uses the GPU has failed since the context was lost.
  void reset(int gpu, Context& context) noexcept {
    if (std::exchange(context.was_reset, true)) return;
    for (const int other : std::exchange(linked_, {})) {
      if (other == gpu) continue;
      linked_.push_back(other);
      if (gpu_set_device(other) == gpu_success) static_cast<void>(gpu_disable_peer_access(gpu));
    }
    std::erase_if(links_, [&](const auto& link) { return link.first == gpu || link.second == gpu; });
    static_cast<void>(gpu_set_device(gpu));
    static_cast<void>(gpu_device_reset());
    static_cast<void>(gpu_get_last_error());
  }

  /// Has it and the GPUs that have been used read each other's memory.
  void link(int gpu) {
    if (std::find(linked_.begin(), linked_.end(), gpu) != linked_.end()) return;
    for (const int other : linked_) {
      enable(gpu, other);
      enable(other, gpu);
    }
    linked_.push_back(gpu);
  }

  void enable(int from, int to) {
    int can = 0;
    if (gpu_can_access_peer(&can, from, to) != gpu_success || !can || gpu_set_device(from) != gpu_success) {
      static_cast<void>(gpu_get_last_error());
      return;
    }
    const gpu_error_t error = gpu_enable_peer_access(to, 0);
    static_cast<void>(gpu_get_last_error());
    if (error == gpu_success || error == gpu_error_peer_access_already_enabled) links_.emplace_back(from, to);
  }

  std::mutex mutex_;
  std::vector<Context> contexts_;  // one a GPU
  std::vector<int> linked_;
  std::vector<std::pair<int, int>> links_;  // which GPU reads which one's memory
};

}  // namespace

GpuId::~GpuId() { Contexts::of_process().unused(gpu); }

std::shared_ptr<const GpuId> GpuId::use(int gpu, const std::string& name) { return Contexts::of_process().use(gpu, name); }

bool GpuId::addresses(const GpuId& other) const { return gpu == other.gpu || Contexts::of_process().linked(gpu, other.gpu); }

void GpuId::throw_lost() const { throw lost_error(name, Contexts::of_process().failure(gpu)); }

void gpu_fail(gpu_error_t error, const char* call, const std::string& device_name) {
  static_cast<void>(gpu_get_last_error());  // or the next launch would report it again
  const std::string failure = failed_by(error, call);
  if (error == gpu_error_out_of_memory) throw Error(ErrorCode::device_memory, "Device '" + device_name + "': " + failure);
  Contexts::of_process().failed(device_name, failure);
  throw Error(ErrorCode::device, "Device '" + device_name + "': " + failure);
}

void gpu_check_pinned(gpu_error_t error, const char* call, size_t bytes, const std::string& device_name) {
  if (error == gpu_error_out_of_memory) {
    static_cast<void>(gpu_get_last_error());
    throw Error(ErrorCode::memory_limit,
                "Device '" + device_name + "' can't pin " + format_bytes(bytes) + " of host memory: " + failed_by(error, call));
  }
  gpu_check(error, call, device_name);
}

}  // namespace warpjoin
