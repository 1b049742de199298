#include "transfer/link_speeds.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

namespace warpjoin {
namespace {

// What all links carry together in one direction: several times a last-level cache, which could hide the host memory that
// they share.
constexpr size_t kBytesOfAll = size_t{1} << 30;
constexpr size_t kCopyBytes = size_t{128} << 20;  // of one link, at least
// A copy over the fastest links still takes several times what starting it takes.
constexpr size_t kLeastCopyBytes = size_t{4} << 20;
constexpr size_t kGrain = size_t{2} << 20;  // a huge page: what host memory is handed out in

class PinnedMemory {
 public:
  PinnedMemory(Engine& engine, Device& device, size_t bytes, const Job& job)
      : device_(&device), memory_(engine.memory->allocate(bytes, "measuring links")) {
    // Pinning untouched pages takes longer than touching them on all threads.
    engine.pool.for_blocks(bytes, kGrain, job,
                           [this](uint64_t begin, uint64_t end) { std::memset(memory_.as<char>() + begin, 0, end - begin); });
    device.pin(memory_.data(), bytes);
  }
  PinnedMemory(PinnedMemory&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), memory_(std::move(other.memory_)) {}
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  ~PinnedMemory() {
    if (device_) device_->unpin(memory_.data());
  }
  void* data() const noexcept { return memory_.data(); }

 private:
  Device* device_;
  HostBuffer memory_;
};

// One device's buffers. The streams come last: they wait for their copies before the memory goes.
struct Lane {
  Device* device;
  Buffer in, out;
  PinnedMemory source, target;
  std::unique_ptr<Stream> arrive, leave;
};

class Measurement {
 public:
  Measurement(Engine& engine, const std::vector<Device*>& devices, const Job& job, const std::function<double()>& seconds)
      : job_(job), seconds_(seconds), bytes_(copy_bytes(engine, devices)) {
    lanes_.reserve(devices.size());
    for (Device* device : devices) {
      device->memory().reserve(2 * StackAllocator::aligned(bytes_));
      lanes_.push_back({device, device->memory().allocate(bytes_), device->memory().allocate(bytes_),
                        PinnedMemory(engine, *device, bytes_, job), PinnedMemory(engine, *device, bytes_, job),
                        device->create_stream(), device->create_stream()});
      device->fill(lanes_.back().out.data(), 0, bytes_, *lanes_.back().leave);
    }
    copy_host(lanes_, true, true);  // idle links save power: the first copies wake them
  }

  LinkSpeeds::Set set(size_t first, size_t count) {
    const auto lanes = std::span(lanes_).subspan(first, count);
    LinkSpeeds::Set set;
    for (const Lane& lane : lanes) set.devices.push_back(lane.device->info().ordinal);
    const double bytes = static_cast<double>(bytes_) * static_cast<double>(count);
    set.h2d = bytes / median_seconds([&] { copy_host(lanes, true, false); });
    set.d2h = bytes / median_seconds([&] { copy_host(lanes, false, true); });
    set.both = 2 * bytes / median_seconds([&] { copy_host(lanes, true, true); });
    return set;
  }

  LinkSpeeds::Peers peers(size_t from, size_t to) {
    Lane& source = lanes_[from];
    Lane& target = lanes_[to];
    const double seconds = median_seconds([&] {
      source.device->copy_to_peer(target.in.data(), *target.device, source.out.data(), bytes_, *source.leave);
      source.leave->synchronize();
    });
    return {source.device->info().ordinal, target.device->info().ordinal, static_cast<double>(bytes_) / seconds};
  }

 private:
  static size_t copy_bytes(const Engine& engine, const std::vector<Device*>& devices) {
    const size_t wanted = std::max(kCopyBytes, kBytesOfAll / devices.size());
    size_t bytes = std::min(wanted, engine.memory->free_bytes() / (2 * devices.size()));
    for (Device* device : devices) bytes = std::min(bytes, device->memory().limit_bytes() / 2);
    return std::max(kLeastCopyBytes, bytes / kGrain * kGrain);
  }

  void copy_host(std::span<Lane> lanes, bool to_device, bool to_host) const {
    for (Lane& lane : lanes) {
      if (to_device) lane.device->copy(lane.in.data(), lane.source.data(), bytes_, *lane.arrive);
      if (to_host) lane.device->copy(lane.target.data(), lane.out.data(), bytes_, *lane.leave);
    }
    for (Lane& lane : lanes) {
      lane.arrive->synchronize();
      lane.leave->synchronize();
    }
  }

  double median_seconds(const std::function<void()>& copy) const {
    std::array<double, 3> seconds{};
    for (double& taken : seconds) {
      job_.check();
      const double start = seconds_();
      copy();
      taken = seconds_() - start;
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[1];
  }

  const Job& job_;
  const std::function<double()>& seconds_;
  const size_t bytes_;
  std::vector<Lane> lanes_;
};

}  // namespace

double steady_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

LinkSpeeds measure_links(Engine& engine, const Job& job, const std::function<double()>& seconds) {
  std::vector<Device*> devices;
  for (const auto& device : engine.devices) {
    if (!device->addresses_host_memory()) devices.push_back(device.get());
  }
  LinkSpeeds speeds;
  if (devices.empty()) return speeds;
  {
    Measurement measurement(engine, devices, job, seconds);
    const size_t count = devices.size();
    for (size_t i = 0; i < count; ++i) speeds.sets.push_back(measurement.set(i, 1));
    for (size_t size = 2; size < count; size *= 2) speeds.sets.push_back(measurement.set(0, size));
    if (count > 1) speeds.sets.push_back(measurement.set(0, count));
    for (size_t from = 0; from < count; ++from) {
      for (size_t to = 0; to < count; ++to) {
        if (from != to) speeds.peers.push_back(measurement.peers(from, to));
      }
    }
  }
  engine.memory->trim();  // operators use blocks of other sizes: these would only be kept in their way
  return speeds;
}

}  // namespace warpjoin
