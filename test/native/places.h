// Engines for the tests of joins, where each runs on devices of several kinds.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "engine/engine.h"
#include "far_device.h"

namespace warpjoin::testing {

/// Which devices stand in for others: those of the host, or far ones, with direct links or without, or that group tuples for
/// each other.
enum class Place { host, far, apart, grouping };
/// How many devices, and which.
using Setup = std::tuple<int, Place>;

inline std::unique_ptr<Engine> make_engine(int devices, Place place = Place::host, size_t device_limit = 0) {
  const EngineConfig config{.threads = 3,
                            .host_devices = devices,
                            .memory_limit_bytes = size_t{3} << 30,
                            .device_memory_limit_bytes = device_limit,
                            .transfer_block_bytes = size_t{64} << 10};
  return place == Place::host ? std::make_unique<Engine>(config)
                              : make_far_engine(config, place != Place::apart, false, place == Place::grouping);
}
inline std::unique_ptr<Engine> make_engine(Setup setup) { return make_engine(std::get<0>(setup), std::get<1>(setup)); }

inline std::string name_of_setup(const ::testing::TestParamInfo<Setup>& info) {
  constexpr const char* names[] = {"Host", "Far", "Apart", "Grouping"};
  return names[static_cast<size_t>(std::get<1>(info.param))] + std::to_string(std::get<0>(info.param));
}

}  // namespace warpjoin::testing
