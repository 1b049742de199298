// Several streams at a time.
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"

namespace warpjoin {

/// Waits for all of the streams, then throws the first error: what they write to may go once this has thrown.
inline void synchronize_all(std::span<Stream* const> streams) {
  std::exception_ptr error;
  for (Stream* stream : streams) {
    try {
      stream->synchronize();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

using Events = std::vector<std::unique_ptr<Event>>;

inline Events create_events(Device& device, size_t count) {
  Events events;
  for (size_t e = 0; e < count; ++e) events.push_back(device.create_event());
  return events;
}

/// One for each device.
using Streams = std::vector<std::unique_ptr<Stream>>;

inline Streams create_streams(std::span<Device* const> devices) {
  Streams streams;
  for (Device* device : devices) streams.push_back(device->create_stream());
  return streams;
}

inline void synchronize_all(const Streams& streams) {
  std::vector<Stream*> all;
  for (const auto& stream : streams) all.push_back(stream.get());
  synchronize_all(all);
}

}  // namespace warpjoin
