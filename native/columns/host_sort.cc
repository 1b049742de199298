#include "columns/host_sort.h"

#include "device/host_device.h"
#include "primitives/primitives.h"

namespace warpjoin::columns {

TupleSpan sort_on_host(TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t varying, Engine& engine,
                       const Job& job) {
  const auto device = create_host_device(0, engine.memory->limit_bytes(), engine.memory, engine.pool);
  constexpr size_t kAlignment = StackAllocator::kAlignment;
  const HostBuffer scratch =
      engine.memory->allocate(device->primitives().sort_scratch_bytes(layout, in.size) + kAlignment, "sorting on the host");
  void* const aligned = reinterpret_cast<void*>(StackAllocator::aligned(reinterpret_cast<uintptr_t>(scratch.data())));
  const auto stream = device->create_stream();
  const TupleSpan sorted = device->primitives().sort(layout, in, a, b, varying, aligned, job, *stream);
  stream->synchronize();
  return sorted;
}

}  // namespace warpjoin::columns
