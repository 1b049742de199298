// Columns as keys.
#include "primitives/column_rows.h"
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"

namespace warpjoin {
namespace {

constexpr unsigned kRangeBlocks = 512;

// Each block leaves its part in `blocks`: atomics on host memory are not to be had on every link.
template <class Rows>
__global__ void find_range(const Rows rows, uint64_t size, ValueRange* blocks) {
  __shared__ unsigned long long nulls, least, greatest;
  if (threadIdx.x == 0) {
    nulls = greatest = 0;
    least = ~0ull;
  }
  __syncthreads();
  ValueRange range;
  for (uint64_t row = gpu::loop_begin(); row < size; row += gpu::loop_step()) rows.add_to(range, row);
  if (range.nulls) atomicAdd(&nulls, static_cast<unsigned long long>(range.nulls));
  if (!range.empty()) {
    atomicMin(&least, static_cast<unsigned long long>(range.least));
    atomicMax(&greatest, static_cast<unsigned long long>(range.greatest));
  }
  __syncthreads();
  if (threadIdx.x == 0) blocks[blockIdx.x] = {nulls, least, greatest};
}

template <class Rows, class Key>
__global__ void add_field(const Rows rows, uint64_t size, const KeyField field, bool first, Key* keys) {
  for (uint64_t row = gpu::loop_begin(); row < size; row += gpu::loop_step()) {
    const auto part = static_cast<Key>(rows.part_of_key(field, row));
    keys[row] = first ? part : keys[row] | part;
  }
}

}  // namespace

void GpuPrimitives::value_range(const ColumnStretch& column, ValueRange* host_range, const Job& job, Stream& stream) {
  job.check();
  if (column.size == 0) return;
  id_.select();
  const unsigned blocks = std::min(gpu::loop_blocks(column.size), kRangeBlocks);
  ResultSlots::Slot& slot = results_.acquire(blocks * sizeof(ValueRange), raw(stream));
  auto* const found = slot.as<ValueRange>();
  with_rows(column, [&](const auto& rows) { find_range<<<blocks, gpu::kThreads, 0, raw(stream)>>>(rows, column.size, found); });
  check_launch("find_range");
  results_.finish(slot, [=] {
    for (unsigned block = 0; block < blocks; ++block) host_range->add(found[block]);
  });
}

void GpuPrimitives::encode_field(const ColumnStretch& column, const KeyField& field, bool first, uint8_t key_bytes, void* keys,
                                 const Job& job, Stream& stream) {
  job.check();
  if (column.size == 0) return;
  id_.select();
  with_rows(column, [&](const auto& rows) {
    const auto launch = [&](auto* to) {
      add_field<<<gpu::loop_blocks(column.size), gpu::kThreads, 0, raw(stream)>>>(rows, column.size, field, first, to);
    };
    key_bytes == 4 ? launch(static_cast<uint32_t*>(keys)) : launch(static_cast<uint64_t*>(keys));
  });
  check_launch("add_field");
}

}  // namespace warpjoin
