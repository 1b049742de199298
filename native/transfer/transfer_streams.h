// The streams of an engine's transfers, kept from call to call: making one takes longer than copying a block.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"

namespace warpjoin {

/// One worker's stream for one direction of a device's link.
struct TransferStream {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> moved[2];  ///< one for each of the worker's buffers
};

class TransferStreams {
 public:
  /// Makes room for so many workers; while none of them runs.
  void reserve(size_t workers) {
    if (workers_.size() < workers) workers_.resize(workers);
  }

  /// Made when first asked for. Workers may ask at the same time, each for its own.
  TransferStream& of(size_t worker, Device& device, bool to_device) {
    std::vector<TransferStream>& own = workers_[worker];
    const size_t slot = 2 * static_cast<size_t>(device.info().ordinal) + (to_device ? 1 : 0);
    if (own.size() <= slot) own.resize(slot + 1);
    TransferStream& found = own[slot];
    if (!found.stream) {
      for (auto& event : found.moved) event = device.create_event();
      found.stream = device.create_stream();
    }
    return found;
  }

 private:
  std::vector<std::vector<TransferStream>> workers_;
};

}  // namespace warpjoin
