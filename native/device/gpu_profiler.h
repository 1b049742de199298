// The GPUs' profiler.
#pragma once

namespace warpjoin {

/// Tells NVIDIA's tools the ranges of jobs, in NVTX's domain "warpjoin", where one of them is attached to this process. It looks
/// for one once.
void attach_gpu_profiler() noexcept;

}  // namespace warpjoin
