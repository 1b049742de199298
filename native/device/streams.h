// Waiting for several streams.
#pragma once

#include <exception>
#include <span>

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

}  // namespace warpjoin
