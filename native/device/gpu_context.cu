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

}  // namespace

/// All GPUs that this process has used. Thread-safe. Never destroyed, as devices may outlive what is static.
class Contexts {
 public:
  static Contexts& of_process() {
    static auto* const contexts = new Contexts();
    return *contexts;
  }

  const GpuId& use(int gpu, const std::string& name) {
    const std::lock_guard lock(mutex_);
    require_none_lost();
    for (const auto& known : gpus_) {
      if (known->gpu == gpu) return *known;
    }
    for (const auto& other : gpus_) {
      enable(gpu, other->gpu);
      enable(other->gpu, gpu);
    }
    return *gpus_.emplace_back(std::make_unique<GpuId>(gpu, name));
  }

  /// A call has failed on the GPU of this name. If that, or something before it, has ended a context, remembers it; throws
  /// Error(device) if it was known before. GPUs that read the memory of a lost one report its error as their own, so the GPU of
  /// the call is asked first.
  void failed(const char* call, const std::string& device_name) {
    const std::lock_guard lock(mutex_);
    require_none_lost();
    std::vector<const GpuId*> ids;
    for (const auto& id : gpus_) ids.push_back(id.get());
    std::stable_partition(ids.begin(), ids.end(), [&](const GpuId* id) { return id->name == device_name; });
    for (const GpuId* id : ids) {
      const gpu_error_t end = what_ended(id->gpu);
      if (end == gpu_success) continue;
      failure_ = "Device '" + id->name + "' failed earlier: " + failed_by(end, call) +
                 ". This process can't use GPUs any more: restart it, or make an engine with device 'cpu'";
      GpuId::is_lost_.store(true, std::memory_order_release);
      return;
    }
  }

  std::string failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  bool linked(int from, int to) {
    const std::lock_guard lock(mutex_);
    return std::find(links_.begin(), links_.end(), std::pair(from, to)) != links_.end();
  }

 private:
  void require_none_lost() const {
    if (!failure_.empty()) throw Error(ErrorCode::device, failure_);
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
  std::string failure_;                     // not empty: a context is lost
};

const GpuId& GpuId::use(int gpu, const std::string& name) { return Contexts::of_process().use(gpu, name); }

bool GpuId::addresses(const GpuId& other) const { return gpu == other.gpu || Contexts::of_process().linked(gpu, other.gpu); }

std::string GpuId::failure() { return Contexts::of_process().failure(); }

void gpu_fail(gpu_error_t error, const char* call, const std::string& device_name) {
  static_cast<void>(gpu_get_last_error());  // or the next launch would report it again
  const std::string failure = "Device '" + device_name + "': " + failed_by(error, call);
  if (error == gpu_error_out_of_memory) throw Error(ErrorCode::device_memory, failure);
  Contexts::of_process().failed(call, device_name);
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
