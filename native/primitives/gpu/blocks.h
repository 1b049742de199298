// The primitives are compiled once for GPUs that give a block 163 KiB of shared memory and more, as NVIDIA's data-centre GPUs do,
// and once for those that give it 64 KiB, each time in a namespace of its own: one addon has both.
#pragma once

#include <memory>

/// Whether this is compiled for small blocks: 0 or 1.
#if !defined(WARPJOIN_SMALL_BLOCKS)
#define WARPJOIN_SMALL_BLOCKS 0
#endif
#if WARPJOIN_SMALL_BLOCKS
#define WARPJOIN_BLOCKS small_blocks
#else
#define WARPJOIN_BLOCKS large_blocks
#endif

namespace warpjoin {

class Device;
class GpuId;
class Primitives;
class ResultSlots;

inline namespace WARPJOIN_BLOCKS {}
namespace large_blocks {
std::unique_ptr<Primitives> gpu_primitives(const Device& device, const GpuId& id, ResultSlots& results);
}
namespace small_blocks {
std::unique_ptr<Primitives> gpu_primitives(const Device& device, const GpuId& id, ResultSlots& results);
}

}  // namespace warpjoin
