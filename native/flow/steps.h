// The software pipeline: while one item arrives at the devices, the one before it is worked on, and the one before that goes
// home.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/job.h"
#include "engine/engine.h"
#include "transfer/host_transfer.h"

namespace warpjoin::flow {

/// What is done with an item in one step: enqueues work, and adds the copies that are made in this step.
using Stage = std::function<void(size_t item, std::vector<HostQueue>& queues)>;

/// Takes items 0 to `items` - 1 through the stages: step s takes item s to the first one, item s - 1 to the second, and so on,
/// the last stage first. A step ends with its copies, and with `wait` where there is one.
void run_steps(Engine& engine, size_t items, const std::vector<Stage>& stages, Job& job, const std::function<void()>& wait = {});

}  // namespace warpjoin::flow
