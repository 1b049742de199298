// The one error type of the data plane. The binding turns it into a WarpjoinError with the same code.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace warpjoin {

/// Stable error codes; `code_name` gives the string that lib/ sees.
enum class ErrorCode {
  column_not_found,
  key_type,
  option,
  invalid_table,  ///< buffers detached, shorter than they claim, or inconsistent
  memory_limit,
  output_rows,    ///< the caller wants no more rows than these: more memory would not help
  device_memory,  ///< a device's limit does not hold the plan, or its memory has less free: another plan may do
  device,         ///< a device failed, or is not there: no other plan is tried
  not_supported,
  file,  ///< a file can't be read, or its bytes are not what its format says; who knows its name adds that
  aborted,
  internal,
};

const char* code_name(ErrorCode code) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// An input is not what it was a moment ago: its owner wrote to it during the call. Who knows the column adds its name.
class InputChanged : public Error {
 public:
  explicit InputChanged(const std::string& what = "An input")
      : Error(ErrorCode::invalid_table, what + " changed during the call. Inputs must not be written to before it has ended") {}
};

/// A device's physical memory, which others use too, has less free than the limits allow: a plan that needs less may do.
class DeviceMemoryShortage : public Error {
 public:
  DeviceMemoryShortage(const std::string& message, size_t free_bytes)
      : Error(ErrorCode::device_memory, message), free_bytes_(free_bytes) {}
  /// What the device has left.
  size_t free_bytes() const noexcept { return free_bytes_; }

 private:
  size_t free_bytes_;
};

}  // namespace warpjoin
