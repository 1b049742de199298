#include <algorithm>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "core/format.h"
#include "device/gpu_context.h"

namespace warpjoin {
namespace {

/// "out of memory (cudaErrorMemoryAllocation) in cudaMalloc"; `call` may go on with its arguments.
std::string failed_by(gpu_error_t error, std::string_view call) {
  return std::string(gpu_get_error_string(error)) + " (" + gpu_get_error_name(error) + ") in " +
         std::string(call.substr(0, call.find('(')));
}

/// What ended the GPU's context: calls that need no memory report it, too. gpu_success: it still works.
gpu_error_t what_ended(int gpu) {
  size_t free = 0, total = 0;
  gpu_error_t error = gpu_set_device(gpu);
  if (error == gpu_success) error = gpu_free(nullptr);
  if (error == gpu_success) error = gpu_mem_get_info(&free, &total);
  static_cast<void>(gpu_get_last_error());
  return error;
}

/// All GPUs that this process has used. Thread-safe. Never destroyed, as devices may outlive what is static.
class Contexts {
 public:
  static Contexts& of_process() {
    static auto* const contexts = new Contexts();
    return *contexts;
  }

  /// nullptr: it has not been used.
  const GpuId* find(int gpu) {
    const std::lock_guard lock(mutex_);
    return found(gpu);
  }

  const GpuId& use(int gpu, const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (const GpuId* const known = found(gpu)) {
      known->check();
      return *known;
    }
    for (const auto& other : gpus_) {
      enable(gpu, other->gpu);
      enable(other->gpu, gpu);
    }
    return *gpus_.emplace_back(std::make_unique<GpuId>(gpu, name));
  }

  /// A call has failed on the GPU of this name. If that has ended its context, remembers it; throws Error(device) if the context
  /// was lost before.
  void failed(const std::string& name, const char* call) {
    const std::lock_guard lock(mutex_);
    for (const auto& id : gpus_) {
      if (id->name != name) continue;
      id->check();
      const gpu_error_t end = what_ended(id->gpu);
      if (end != gpu_success) id->lose(failed_by(end, call));
    }
  }

  bool linked(int from, int to) {
    const std::lock_guard lock(mutex_);
    return std::find(links_.begin(), links_.end(), std::pair(from, to)) != links_.end();
  }

 private:
  const GpuId* found(int gpu) const {
    const auto id = std::find_if(gpus_.begin(), gpus_.end(), [&](const auto& one) { return one->gpu == gpu; });
    return id == gpus_.end() ? nullptr : id->get();
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
  std::vector<std::unique_ptr<GpuId>> gpus_;
  std::vector<std::pair<int, int>> links_;  // which GPU reads which one's memory
};

}  // namespace

const GpuId& GpuId::use(int gpu, const std::string& name) { return Contexts::of_process().use(gpu, name); }

bool GpuId::addresses(const GpuId& other) const { return gpu == other.gpu || Contexts::of_process().linked(gpu, other.gpu); }

std::string GpuId::failure(int gpu) {
  const GpuId* const id = Contexts::of_process().find(gpu);
  return id && id->is_lost() ? id->failure_ : std::string();
}

void gpu_fail(gpu_error_t error, const char* call, const std::string& device_name) {
  static_cast<void>(gpu_get_last_error());  // or the next launch would report it again
  const std::string failure = "Device '" + device_name + "': " + failed_by(error, call);
  if (error == gpu_error_out_of_memory) throw Error(ErrorCode::device_memory, failure);
  Contexts::of_process().failed(device_name, call);
  throw Error(ErrorCode::device, failure);
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
