// How fast the links of an engine's devices are. Measured, for data sheets know nothing of links that share a switch or the
// host's memory: copies over all links at once can be slower than over half of them.
#pragma once

#include <functional>
#include <vector>

#include "core/job.h"
#include "engine/engine.h"

namespace warpjoin {

/// Speeds in bytes a second.
struct LinkSpeeds {
  /// Devices that copy at the same time, and what their links carry together, to and from pinned memory.
  struct Set {
    std::vector<int> devices;  ///< ordinals
    double h2d = 0, d2h = 0;   ///< one direction at a time
    double both = 0;           ///< both at once: the sum
  };
  struct Peers {
    int from = 0, to = 0;  ///< ordinals
    double speed = 0;      ///< while no other link is busy
  };

  std::vector<Set> sets;     ///< each device alone, then the first 2, 4, 8 and so on, then all
  std::vector<Peers> peers;  ///< each ordered pair
};

/// A clock that is never set back: seconds since some moment.
double steady_seconds();

/// Times copies of 128 MiB and more, 1 GiB and more on all devices together, the median of three: takes a second or two.
/// Devices that address host memory have no links; where there are no others both lists are empty. Takes 2 such buffers on
/// each device and 2 of pinned host memory for each, smaller ones where the limits leave less; nothing may be allocated on
/// the devices. Throws Error(memory_limit) or Error(device_memory) where 4 MiB each do not fit, and Error(aborted) for a
/// cancelled job. `seconds` is the clock that is read before and after the copies, once the streams are waited for.
LinkSpeeds measure_links(Engine& engine, const Job& job, const std::function<double()>& seconds = steady_seconds);

}  // namespace warpjoin
