#pragma once

#include <memory>

#include "core/thread_pool.h"
#include "primitives/primitives.h"

namespace warpjoin {

/// The primitives on host threads: parallel over `pool`, ordered by host streams.
std::unique_ptr<Primitives> create_host_primitives(ThreadPool& pool);

}  // namespace warpjoin
