#include "primitives/gpu/gpu_primitives.h"

namespace warpjoin {
inline namespace WARPJOIN_BLOCKS {

std::unique_ptr<Primitives> gpu_primitives(const Device& device, const GpuId& id, ResultSlots& results) {
  return std::make_unique<GpuPrimitives>(device, id, results);
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin
