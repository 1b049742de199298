// The streams of an engine's transfers, kept from call to call: making one takes longer than copying a block.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace warpjoin {

/// One worker's stream for one direction of a device's link, for blocks that it stages.
struct TransferStream {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> moved[2];  ///< one for each of the worker's slots
};

class TransferStreams {
 public:
  /// Makes room for so many workers; while none of them runs.
  void reserve(size_t workers) {
    if (workers_.size() < workers) workers_.resize(workers);
  }

  /// Made when first asked for. Workers may ask at the same time, each for its own.
  TransferStream& of(size_t worker, Device& device, bool to_device) {
    TransferStream& found = of_link(workers_[worker], device, to_device);
    if (!found.stream) {
      for (auto& event : found.moved) event = device.create_event();
      found.stream = device.create_stream();
    }
    return found;
  }

  /// The one stream of all workers for direct copies: as they come in order, what waits for the first of them waits no longer.
  Stream& direct(Device& device, bool to_device) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Stream>& found = of_link(direct_, device, to_device);
    if (!found) found = device.create_stream();
    return *found;
  }

 private:
  template <class T>
  static T& of_link(std::vector<T>& links, const Device& device, bool to_device) {
    const size_t link = 2 * static_cast<size_t>(device.info().ordinal) + (to_device ? 1 : 0);
    if (links.size() <= link) links.resize(link + 1);
    return links[link];
  }

  std::vector<std::vector<TransferStream>> workers_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> direct_;
};

}  // namespace warpjoin
