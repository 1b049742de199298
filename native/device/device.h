// The device seam: what an operator may ask of a device. GPUs and host devices implement it; operators know no vendor.
//
// Everything that takes a Stream enqueues; work on one stream runs in order. A GPU does it later, a host device before the
// function returns. Nothing here waits except functions whose names say so (synchronize).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/stack_allocator.h"

namespace warpjoin {

class Primitives;

/// A point in a stream's work. Reusable: the latest record counts. May go while streams wait for it.
class Event {
 public:
  virtual ~Event() = default;
  /// Waits until the work recorded before this event is done. Returns at once if nothing was recorded.
  virtual void synchronize() = 0;
  /// Whether that work is done; true if nothing was recorded. Waits for nothing and throws nothing: an error is the stream's to
  /// throw, and results that synchronize() would deliver may still be on their way.
  virtual bool done() = 0;
};

/// An in-order queue of work on one device. An error in enqueued work skips the work behind it and is thrown, as an
/// Error, by the next synchronize() of the stream; the stream is usable again after that.
class Stream {
 public:
  virtual ~Stream() = default;  // waits for the work enqueued so far
  /// Waits for all work enqueued so far.
  virtual void synchronize() = 0;
  virtual void record(Event& event) = 0;
  /// Work enqueued from now on starts after `event` as last recorded, on any stream of any device.
  virtual void wait(Event& event) = 0;
};

enum class DeviceKind { host, gpu };

struct DeviceInfo {
  DeviceKind kind = DeviceKind::host;
  int ordinal = 0;          ///< position among the engine's devices
  std::string name;         ///< "host 0", "NVIDIA H200 0": names the device in errors
  size_t memory_bytes = 0;  ///< physical memory
  size_t limit_bytes = 0;   ///< the most that the engine may take of it
  std::string failure;      ///< why this process can't use it any more; empty: it can
};

/// Bytes that transfers (transfer/host_transfer.h) moved over a device's link to host memory, since it was reset. Copies between
/// devices, and of a few bytes for the host to see, are not in it.
struct LinkTraffic {
  std::atomic<uint64_t> to_device{0}, to_host{0};

  void reset() noexcept { to_device = to_host = 0; }
};

class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceInfo& info() const noexcept { return info_; }

  /// Throws Error(device), saying what it failed by, where the device has failed for good: every later call would fail. Its
  /// streams, events and memory can still be destroyed.
  virtual void check() const {}

  /// True where kernels of this device read and write ordinary host memory at full speed, so that an operator
  /// passes host pointers to primitives instead of copying to and from device memory.
  virtual bool addresses_host_memory() const noexcept = 0;
  /// True where kernels of this device read and write the memory of `peer`.
  virtual bool addresses_peer(const Device& peer) const noexcept {
    return addresses_host_memory() && peer.addresses_host_memory();
  }

  /// `urgent`: its work begins before that of other streams which waits at the same time.
  virtual std::unique_ptr<Stream> create_stream(bool urgent = false) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;

  /// True where copy() moves the host memory at `data` by itself: pinned memory on a GPU, all memory on a host device. A
  /// copy of other memory blocks the thread that enqueues it, and runs at a fraction of the link's speed.
  virtual bool copies_directly(const void* /*data*/) const { return true; }
  /// Whether it copies all of such memory directly. Memory that is pinned in part, as what has grown is, begins or ends with
  /// memory that is not.
  bool copies_all_directly(const void* data, size_t bytes) const {
    return copies_directly(data) && (bytes == 0 || copies_directly(static_cast<const char*>(data) + bytes - 1));
  }
  /// Makes host memory such that this device and its peers copy it directly, until unpin(). Slow (2 to 5 GB/s). Throws
  /// Error(memory_limit), naming device and bytes, where the system has too little memory that can be pinned.
  virtual void pin(void* /*data*/, size_t /*bytes*/) {}
  /// `data` is what was pinned; nothing enqueued may refer to it.
  virtual void unpin(void* /*data*/) noexcept {}

  /// Enqueues a copy between any two of: host memory, this device's memory, a peer's memory. `stream` belongs to this
  /// device. Ranges must not overlap.
  virtual void copy(void* target, const void* source, size_t bytes, Stream& stream) = 0;
  /// Enqueues a copy of this device's memory into `peer`'s memory.
  virtual void copy_to_peer(void* target, Device& peer, const void* source, size_t bytes, Stream& stream) = 0;
  /// Enqueues a fill with one byte value.
  virtual void fill(void* target, unsigned char value, size_t bytes, Stream& stream) = 0;

  /// This device's memory: one physical allocation, handed out as a stack.
  StackAllocator& memory() noexcept { return *memory_; }
  LinkTraffic& traffic() noexcept { return traffic_; }
  /// What this device computes.
  virtual Primitives& primitives() noexcept = 0;

 protected:
  DeviceInfo info_;
  std::unique_ptr<StackAllocator> memory_;

 private:
  LinkTraffic traffic_;
};

inline bool all_address_host_memory(const std::vector<Device*>& devices) {
  return std::all_of(devices.begin(), devices.end(), [](const Device* device) { return device->addresses_host_memory(); });
}

/// How a pair of devices is linked.
struct PeerLink {
  bool direct = false;  ///< peer memory is addressed, verified by a real copy; otherwise copies go through host memory
};

/// The devices of an engine and their links.
class Topology {
 public:
  /// Copies a pattern between each pair of devices and reads it back.
  static Topology probe(const std::vector<Device*>& devices);
  const PeerLink& link(int from, int to) const { return links_[static_cast<size_t>(from) * devices_ + static_cast<size_t>(to)]; }

 private:
  size_t devices_ = 0;
  std::vector<PeerLink> links_;
};

}  // namespace warpjoin
