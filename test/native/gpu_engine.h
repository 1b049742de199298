// Engines on real GPUs. Where there are too few, a test says so and is skipped.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "device/gpu_device.h"
#include "engine/engine.h"

#define SKIP_WITHOUT_GPUS(count)                                                                           \
  if (::warpjoin::visible_gpus().size() < static_cast<size_t>(count)) {                                    \
    GTEST_SKIP() << "needs " << (count) << " GPUs; this build (" << ::warpjoin::gpu_backend() << ") sees " \
                 << ::warpjoin::visible_gpus().size();                                                     \
  }

namespace warpjoin::testing {

inline std::unique_ptr<Engine> make_gpu_engine(int gpus, size_t device_limit = size_t{2} << 30) {
  std::vector<int> ordinals(static_cast<size_t>(gpus));
  std::iota(ordinals.begin(), ordinals.end(), 0);
  return std::make_unique<Engine>(EngineConfig{.threads = 4,
                                               .host_devices = 0,
                                               .gpus = std::move(ordinals),
                                               .memory_limit_bytes = size_t{8} << 30,
                                               .device_memory_limit_bytes = device_limit});
}

}  // namespace warpjoin::testing
