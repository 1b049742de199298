#include <algorithm>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "device/gpu_device.h"
#include "device/gpu_profiler.h"
#include "device/gpu_runtime.h"
#include "device/gpu_stream.h"
#include "primitives/gpu/blocks.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

constexpr size_t kSlotBytes = size_t{4} << 10;

size_t default_limit(size_t memory_bytes) { return memory_bytes / 5 * 4; }

class GpuEvent final : public Event {
 public:
  GpuEvent(const GpuId& id, ResultSlots& results) : id_(id), results_(results) {
    id_.select();
    GPU_CHECK(id_.name, gpu_event_create_with_flags(&event_, gpu_event_disable_timing));
  }
  ~GpuEvent() override { static_cast<void>(gpu_event_destroy(event_)); }
  void synchronize() override {
    GPU_CHECK(id_.name, gpu_event_synchronize(event_));
    results_.deliver();
  }
  bool done() override {
    const gpu_error_t state = gpu_event_query(event_);
    if (state != gpu_success) static_cast<void>(gpu_get_last_error());  // it would be the next launch's
    return state != gpu_error_not_ready;                                // what failed is over: the stream throws
  }
  gpu_event_t raw() const noexcept { return event_; }

 private:
  const GpuId& id_;
  ResultSlots& results_;
  gpu_event_t event_{};
};

/// "9.0", or "gfx90a" without the features that follow it.
std::string architecture_of(const gpu_device_properties_t& properties) {
#if defined(WARPJOIN_HIP)
  const std::string name = properties.gcnArchName;
  return name.substr(0, name.find(':'));
#else
  return std::to_string(properties.major) + "." + std::to_string(properties.minor);
#endif
}

/// A version as the runtime counts: "13.0"; empty for 0.
std::string version_text(int version) {
  if (version <= 0) return {};
#if defined(WARPJOIN_HIP)
  constexpr int kMajor = 10'000'000, kMinor = 100'000;
#else
  constexpr int kMajor = 1000, kMinor = 10;
#endif
  return std::to_string(version / kMajor) + "." + std::to_string(version % kMajor / kMinor);
}

/// The GPUs as the runtime describes them, and the error of the call that ended the list; gpu_success: none.
std::pair<std::vector<GpuInfo>, gpu_error_t> described_gpus() {
  int count = 0;
  std::vector<GpuInfo> gpus;
  gpu_error_t error = gpu_get_device_count(&count);
  for (int gpu = 0; error == gpu_success && gpu < count; ++gpu) {
    gpu_device_properties_t properties;
    error = gpu_get_device_properties(&properties, gpu);
    if (error != gpu_success) break;
    GpuInfo info;
    info.kind = DeviceKind::gpu;
    info.ordinal = gpu;
    info.name = std::string(properties.name) + " " + std::to_string(gpu);
    info.memory_bytes = properties.totalGlobalMem;
    info.limit_bytes = default_limit(properties.totalGlobalMem);
    info.architecture = architecture_of(properties);
    for (int peer = 0; peer < count; ++peer) {
      int can = 0;
      if (peer != gpu && gpu_can_access_peer(&can, gpu, peer) == gpu_success && can) info.peers.push_back(peer);
    }
    gpus.push_back(std::move(info));
  }
  static_cast<void>(gpu_get_last_error());
  return {std::move(gpus), error};
}

/// A GPU that the process may use; throws Error(device) where there is none of this number.
DeviceInfo info_of(int gpu) {
  const std::vector<GpuInfo> gpus = visible_gpus();
  if (gpu >= 0 && static_cast<size_t>(gpu) < gpus.size()) return gpus[static_cast<size_t>(gpu)];
  throw Error(ErrorCode::device,
              "There is no GPU " + std::to_string(gpu) + ": the process may use " + std::to_string(gpus.size()));
}

/// The primitives for the memory that the current GPU gives a block, of those that this build has.
std::unique_ptr<Primitives> primitives_for(const Device& device, const GpuId& id, ResultSlots& results) {
#if defined(WARPJOIN_HAS_LARGE_BLOCKS) && defined(WARPJOIN_HAS_SMALL_BLOCKS)
  int bytes = 0;
  GPU_CHECK(id.name, gpu_device_get_attribute(&bytes, gpu_shared_memory_per_block, id.gpu));
  constexpr int kLarge = 163 << 10;
  return bytes >= kLarge ? large_blocks::gpu_primitives(device, id, results) : small_blocks::gpu_primitives(device, id, results);
#elif defined(WARPJOIN_HAS_SMALL_BLOCKS)
  return small_blocks::gpu_primitives(device, id, results);
#else
  return large_blocks::gpu_primitives(device, id, results);
#endif
}

class GpuDevice final : public Device {
 public:
  GpuDevice(int ordinal, DeviceInfo gpu, size_t limit_bytes) : id_(GpuId::use(gpu.ordinal, gpu.name)) {
    id_.select();
    info_ = std::move(gpu);
    info_.ordinal = ordinal;
    if (limit_bytes) info_.limit_bytes = std::min(limit_bytes, info_.memory_bytes);
    memory_ = std::make_unique<StackAllocator>(
        info_.name, info_.limit_bytes,
        StackAllocator::Physical{[this](size_t bytes) { return allocate(bytes); }, [this](void* data, size_t) { free(data); },
                                 [this] { return free_bytes(); }});
    primitives_ = primitives_for(*this, id_, results_);
  }
  ~GpuDevice() override { memory_.reset(); }

  void check() const override { id_.check(); }

  bool addresses_host_memory() const noexcept override { return false; }
  bool addresses_peer(const Device& peer) const noexcept override {
    const auto* gpu = dynamic_cast<const GpuDevice*>(&peer);
    return gpu && id_.addresses(gpu->id_);
  }
  std::unique_ptr<Stream> create_stream(bool urgent) override { return std::make_unique<GpuStream>(id_, results_, urgent); }
  std::unique_ptr<Event> create_event() override { return std::make_unique<GpuEvent>(id_, results_); }

  bool copies_directly(const void* data) const override {
    id_.select();
    gpu_pointer_attributes_t attributes;
    const bool known = gpu_pointer_get_attributes(&attributes, data) == gpu_success;
    static_cast<void>(gpu_get_last_error());  // HIP has one for ordinary memory
    return known && gpu_memory_type(attributes) == gpu_memory_type_host;
  }
  void pin(void* data, size_t bytes) override {
    id_.select();
    gpu_check_pinned(gpu_pin(data, bytes), GPU_TEXT(gpu_pin(data, bytes)), bytes, id_.name);
  }
  void unpin(void* data) noexcept override {
    static_cast<void>(gpu_set_device(id_.gpu));
    static_cast<void>(gpu_unpin(data));
  }

  void copy(void* target, const void* source, size_t bytes, Stream& stream) override {
    if (bytes == 0) return;
    id_.select();
    GPU_CHECK(id_.name, gpu_memcpy_async(target, source, bytes, gpu_memcpy_default, raw(stream)));
  }

  void copy_to_peer(void* target, Device& peer, const void* source, size_t bytes, Stream& stream) override {
    const auto* gpu = dynamic_cast<const GpuDevice*>(&peer);
    if (!gpu) return copy(target, source, bytes, stream);
    if (bytes == 0) return;
    gpu->check();
    id_.select();
    GPU_CHECK(id_.name, gpu_memcpy_peer_async(target, gpu->id_.gpu, source, id_.gpu, bytes, raw(stream)));
  }

  void fill(void* target, unsigned char value, size_t bytes, Stream& stream) override {
    if (bytes == 0) return;
    id_.select();
    GPU_CHECK(id_.name, gpu_memset_async(target, value, bytes, raw(stream)));
  }

  Primitives& primitives() noexcept override { return *primitives_; }

 private:
  static gpu_stream_t raw(Stream& stream) { return static_cast<GpuStream&>(stream).raw(); }

  void* allocate(size_t bytes) const {
    id_.select();
    void* data = nullptr;
    const gpu_error_t error = gpu_malloc(&data, bytes);
    if (error != gpu_error_out_of_memory) {
      gpu_check(error, GPU_TEXT(gpu_malloc), id_.name);
      return data;
    }
    static_cast<void>(gpu_get_last_error());
    return nullptr;
  }
  size_t free_bytes() const {
    id_.select();
    size_t free = 0, total = 0;
    GPU_CHECK(id_.name, gpu_mem_get_info(&free, &total));
    return free;
  }
  void free(void* data) const noexcept {
    static_cast<void>(gpu_set_device(id_.gpu));
    static_cast<void>(gpu_free(data));
  }

  const GpuId& id_;
  ResultSlots results_{id_};
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace

GpuStream::GpuStream(const GpuId& id, ResultSlots& results, bool urgent) : id_(id), results_(results) {
  id_.select();
  int least = 0, greatest = 0;
  GPU_CHECK(id_.name, gpu_device_get_stream_priority_range(&least, &greatest));
  GPU_CHECK(id_.name, gpu_stream_create_with_priority(&stream_, gpu_stream_non_blocking, urgent ? greatest : least));
}

GpuStream::~GpuStream() {
  static_cast<void>(gpu_stream_synchronize(stream_));
  results_.forget(stream_);
  static_cast<void>(gpu_stream_destroy(stream_));
}

void GpuStream::synchronize() {
  const gpu_error_t error = gpu_stream_synchronize(stream_);
  error == gpu_success ? results_.deliver(stream_) : results_.forget(stream_);
  gpu_check(error, GPU_TEXT(gpu_stream_synchronize), id_.name);
}

void GpuStream::record(Event& event) {
  id_.select();
  GPU_CHECK(id_.name, gpu_event_record(static_cast<GpuEvent&>(event).raw(), stream_));
}

void GpuStream::wait(Event& event) {
  id_.select();
  GPU_CHECK(id_.name, gpu_stream_wait_event(stream_, static_cast<GpuEvent&>(event).raw(), 0));
}

ResultSlots::~ResultSlots() {
  for (const auto& slot : slots_) {
    static_cast<void>(gpu_event_destroy(slot->written_));
    static_cast<void>(gpu_free_pinned(slot->data_));
  }
}

ResultSlots::Slot& ResultSlots::acquire(size_t bytes, gpu_stream_t stream) {
  deliver();
  const std::lock_guard lock(mutex_);
  for (const auto& slot : slots_) {
    if (slot->busy_ || slot->capacity_ < bytes) continue;
    slot->busy_ = true;
    slot->stream_ = stream;
    return *slot;
  }
  id_.select();
  slots_.reserve(slots_.size() + 1);
  auto slot = std::make_unique<Slot>();
  slot->busy_ = true;
  slot->stream_ = stream;
  slot->capacity_ = (bytes + kSlotBytes - 1) / kSlotBytes * kSlotBytes;
  GPU_CHECK(id_.name, gpu_event_create_with_flags(&slot->written_, gpu_event_disable_timing));
  const gpu_error_t error = gpu_malloc_pinned(&slot->data_, slot->capacity_);
  if (error != gpu_success) static_cast<void>(gpu_event_destroy(slot->written_));
  gpu_check_pinned(error, GPU_TEXT(gpu_malloc_pinned(&slot->data_, bytes)), slot->capacity_, id_.name);
  slots_.push_back(std::move(slot));
  return *slots_.back();
}

void ResultSlots::finish(Slot& slot, std::function<void()> deliver) {
  GPU_CHECK(id_.name, gpu_event_record(slot.written_, slot.stream_));
  const std::lock_guard lock(mutex_);
  slot.deliver_ = std::move(deliver);
}

void ResultSlots::deliver(gpu_stream_t stream) {
  const std::lock_guard lock(mutex_);
  for (const auto& slot : slots_) {
    if (!slot->deliver_ || (slot->stream_ != stream && gpu_event_query(slot->written_) != gpu_success)) continue;
    slot->deliver_();
    slot->deliver_ = nullptr;
    slot->busy_ = false;
  }
  static_cast<void>(gpu_get_last_error());  // what isn't done yet would be the next launch's
}

void ResultSlots::forget(gpu_stream_t stream) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& slot : slots_) {
    if (!slot->busy_ || slot->stream_ != stream) continue;
    slot->deliver_ = nullptr;
    slot->busy_ = false;
  }
}

const char* gpu_backend() noexcept {
#if defined(WARPJOIN_HIP)
  return "hip";
#else
  return "cuda";
#endif
}

std::vector<GpuInfo> visible_gpus() noexcept {
  static std::mutex mutex;
  static std::vector<GpuInfo> known;  // the runtime may tell nothing any more where it has lost a context
  try {
    const std::lock_guard lock(mutex);
    if (known.empty()) known = described_gpus().first;
    std::vector<GpuInfo> gpus = known;
    for (GpuInfo& gpu : gpus) gpu.failure = GpuId::failure();
    return gpus;
  } catch (...) {
    return {};
  }
}

GpuSupport gpu_support() {
  GpuSupport support;
  support.architectures = WARPJOIN_GPU_ARCHITECTURES;
  int runtime = 0, driver = 0;
  if (gpu_runtime_get_version(&runtime) == gpu_success) support.runtime_version = version_text(runtime);
  if (gpu_driver_get_version(&driver) == gpu_success) support.driver_version = version_text(driver);
  static_cast<void>(gpu_get_last_error());
  if (!visible_gpus().empty()) return support;
  const gpu_error_t error = described_gpus().second;
  if (error == gpu_success) return support;
  support.error_name = gpu_get_error_name(error);
  support.error = gpu_get_error_string(error);
  return support;
}

std::unique_ptr<Device> create_gpu_device(int ordinal, int gpu, size_t limit_bytes) {
  attach_gpu_profiler();
  return std::make_unique<GpuDevice>(ordinal, info_of(gpu), limit_bytes);
}

}  // namespace warpjoin
