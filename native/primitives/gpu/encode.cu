// Columns as keys.
#include "primitives/column_rows.h"
#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"

namespace warpjoin {
namespace {

constexpr unsigned kRangeBlocks = 1024, kRangeRows = 4;  // enough rows on their way to keep memory busy

// Each block leaves its part in `blocks`: atomics on host memory are not to be had on every link.
template <class Rows>
__global__ void find_range(const Rows rows, uint64_t size, ValueRange* blocks) {
  __shared__ unsigned long long nulls, least, greatest;
  __shared__ bool canonicalized;
  if (threadIdx.x == 0) {
    nulls = greatest = 0;
    least = ~0ull;
    canonicalized = false;
  }
  __syncthreads();
  ValueRange range;
  uint64_t row = gpu::loop_begin();
  for (const uint64_t step = gpu::loop_step(); row + (kRangeRows - 1) * step < size; row += kRangeRows * step) {
#pragma unroll
    for (unsigned i = 0; i < kRangeRows; ++i) rows.add_to(range, row + i * step);
  }
  for (; row < size; row += gpu::loop_step()) rows.add_to(range, row);
  if (range.nulls) atomicAdd(&nulls, static_cast<unsigned long long>(range.nulls));
  if (!range.empty()) {
    atomicMin(&least, static_cast<unsigned long long>(range.least));
    atomicMax(&greatest, static_cast<unsigned long long>(range.greatest));
  }
  if (range.canonicalized) canonicalized = true;
  __syncthreads();
  if (threadIdx.x == 0) blocks[blockIdx.x] = {nulls, least, greatest, canonicalized};
}

template <class Rows, class Key>
__global__ void add_field(const Rows rows, uint64_t size, const KeyField field, bool first, Key* keys) {
  for (uint64_t row = gpu::loop_begin(); row < size; row += gpu::loop_step()) {
    const auto part = static_cast<Key>(rows.part_of_key(field, row));
    keys[row] = first ? part : keys[row] | part;
  }
}

// A group of lanes makes a word of bits at a time: all of them go through the loop as often.
template <class Values, class Key>
__global__ void decode_rows(const Key* keys, uint64_t size, const KeyField field, typename Values::Raw* values,
                            gpu::LaneMask* validity) {
  for (uint64_t row = gpu::loop_begin(); row < (size + 63) / 64 * 64; row += gpu::loop_step()) {
    const uint64_t code = row < size ? field.code_in(keys[row]) : 0;
    const bool is_valid = row < size && (!field.nulls || code != field.null_code);
    const uint64_t ordered = is_valid ? field.ordered(code) : 0;
    if constexpr (std::is_same_v<Values, BitValues>) {
      const gpu::LaneMask bits = gpu::ballot(ordered != 0);
      if (gpu::lane() == 0) reinterpret_cast<gpu::LaneMask*>(values)[row / gpu::kLanes] = bits;
    } else {
      if (row < size) values[row] = is_valid ? Values::raw(ordered) : typename Values::Raw{0};
    }
    if (validity) {
      const gpu::LaneMask valid = gpu::ballot(is_valid);
      if (gpu::lane() == 0) validity[row / gpu::kLanes] = valid;
    }
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

void GpuPrimitives::decode_field(const void* keys, uint8_t key_bytes, const KeyField& field, const ColumnRoom& out,
                                 const Job& job, Stream& stream) {
  job.check();
  if (out.size == 0) return;
  id_.select();
  with_values(out.type, [&]<class Values>() {
    const auto launch = [&](const auto* from) {
      decode_rows<Values><<<gpu::loop_blocks(out.size), gpu::kThreads, 0, raw(stream)>>>(
          from, out.size, field, static_cast<typename Values::Raw*>(out.values), static_cast<gpu::LaneMask*>(out.validity));
    };
    key_bytes == 4 ? launch(static_cast<const uint32_t*>(keys)) : launch(static_cast<const uint64_t*>(keys));
  });
  check_launch("decode_rows");
}

}  // namespace warpjoin
