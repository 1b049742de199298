// Memory of a GPU with guard bytes around it, and how it gets there and back.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/job.h"
#include "gpu_engine.h"

namespace warpjoin::testing {

/// Device memory of exactly `bytes`, `offset` bytes behind a 128-byte boundary, with guard bytes around it.
class Guarded {
 public:
  Guarded(Device& device, Stream& stream, size_t bytes, size_t offset)
      : device_(device), buffer_(device.memory().allocate(bytes + offset + 2 * kGuard)), bytes_(bytes), offset_(offset) {
    device.fill(buffer_.data(), 0xEE, buffer_.size(), stream);
  }
  char* data() const { return buffer_.as<char>() + kGuard + offset_; }

  /// What it holds. Expects the guards to be as they were.
  std::vector<unsigned char> read(Stream& stream) const {
    std::vector<unsigned char> all(bytes_ + offset_ + 2 * kGuard);
    device_.copy(all.data(), buffer_.data(), all.size(), stream);
    stream.synchronize();
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(kGuard + offset_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    const auto intact = [](unsigned char byte) { return byte == 0xEE; };
    EXPECT_TRUE(std::all_of(all.begin(), begin, intact)) << "written before the array";
    EXPECT_TRUE(std::all_of(end, all.end(), intact)) << "written behind the array";
    return {begin, end};
  }

 private:
  static constexpr size_t kGuard = 256;

  Device& device_;
  Buffer buffer_;
  size_t bytes_, offset_;
};

inline std::vector<unsigned char> narrow(const std::vector<uint64_t>& wide, size_t width) {
  std::vector<unsigned char> bytes(wide.size() * width);
  if (width == 0) return bytes;
  for (size_t i = 0; i < wide.size(); ++i) std::memcpy(&bytes[i * width], &wide[i], width);
  return bytes;
}

/// The GPU, its stream, and what the tests do with them.
struct GpuBench {
  explicit GpuBench(size_t limit_bytes = size_t{2} << 30, int gpus = 1)
      : engine(make_gpu_engine(gpus, limit_bytes)), device(*engine->devices[0]), stream(device.create_stream()) {
    for (const auto& each : engine->devices) each->memory().reserve(limit_bytes);
  }

  void upload(char* to, const std::vector<unsigned char>& bytes) {
    device.copy(to, bytes.data(), bytes.size(), *stream);
    stream->synchronize();
  }

  std::unique_ptr<Engine> engine;
  Device& device;
  std::unique_ptr<Stream> stream;
  Job job;
};

}  // namespace warpjoin::testing
