// Partitions by sorting on the digit alone.
#include <algorithm>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/kernels.h"
#include "primitives/gpu/radix_sort.h"

namespace warpjoin {
namespace {

// Where each partition begins in tuples that are grouped by digit.
template <class Key>
__global__ void find_offsets(const Key* keys, uint64_t size, Digit digit, uint64_t* offsets) {
  for (uint64_t p = gpu::loop_begin(); p <= digit.count(); p += gpu::loop_step()) {
    uint64_t first = 0, last = size;
    while (first < last) {
      const uint64_t at = first + (last - first) / 2;
      if (digit(keys[at]) < p) {
        first = at + 1;
      } else {
        last = at;
      }
    }
    offsets[p] = first;
  }
}

template <class Key, class Value>
size_t sort_bytes(uint64_t size, Digit digit, const std::string& device_name) {
  size_t bytes = 0;
  GPU_CHECK(device_name, (gpu::radix_sort_copy<Key, Value>(nullptr, bytes, nullptr, nullptr, nullptr, nullptr, size, digit.shift,
                                                           unsigned{digit.shift} + digit.bits, gpu_stream_t{})));
  return StackAllocator::aligned(bytes);
}

}  // namespace

void GpuPrimitives::partition(TupleLayout layout, TupleView in, Digit digit, TupleSpan out, uint64_t* host_offsets, void* scratch,
                              const Job& job, Stream& stream) {
  job.check();
  if (digit.mixed) not_supported_on(device_, "Partitioning by a mixed key");
  if (digit.bits > 12) throw Error(ErrorCode::internal, "A digit has at most 12 bits");
  const size_t offsets_count = size_t{digit.count()} + 1;
  if (in.size == 0) {
    std::fill(host_offsets, host_offsets + offsets_count, 0);
    return;
  }
  id_.select();
  const gpu_stream_t on = raw(stream);
  ResultSlots::Slot& slot = results_.acquire(offsets_count * sizeof(uint64_t));
  auto* offsets = slot.as<uint64_t>();
  gpu::with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    const size_t bytes = sort_bytes<Key, Value>(in.size, digit, id_.name);
    auto* values = static_cast<const Value*>(in.values);
    if constexpr (gpu::is_value<Value>) {
      if (!values) {
        auto* numbers = reinterpret_cast<Value*>(static_cast<char*>(scratch) + bytes);
        gpu::write_row_numbers<<<gpu::loop_blocks(in.size), gpu::kThreads, 0, on>>>(numbers, in.first_value, in.size);
        check_launch("write_row_numbers");
        values = numbers;
      }
    }
    size_t sort_scratch = bytes;
    GPU_CHECK(id_.name, gpu::radix_sort_copy(scratch, sort_scratch, static_cast<const Key*>(in.keys), static_cast<Key*>(out.keys),
                                             values, static_cast<Value*>(out.values), in.size, digit.shift,
                                             unsigned{digit.shift} + digit.bits, on));
    find_offsets<<<gpu::loop_blocks(offsets_count), gpu::kThreads, 0, on>>>(static_cast<const Key*>(out.keys), in.size, digit,
                                                                            offsets);
    check_launch("find_offsets");
  });
  results_.finish(
      slot, [=] { std::copy(offsets, offsets + offsets_count, host_offsets); }, on);
}

size_t GpuPrimitives::partition_scratch_bytes(TupleLayout layout, uint64_t size, Digit digit) {
  if (size == 0) return 0;
  id_.select();
  return gpu::with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    return sort_bytes<Key, Value>(size, digit, id_.name) + StackAllocator::aligned(size * layout.value_bytes);
  });
}

}  // namespace warpjoin
