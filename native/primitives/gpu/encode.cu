// Columns as keys.
#include <algorithm>
#include <bit>
#include <type_traits>

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

constexpr unsigned kMostParts = 8, kEncodedRows = 4;  // of a launch, and on their way at a time for each thread

/// A part of a key as kernels know it.
struct Part {
  const void* values;
  const void* validity;
  KeyField field;
  unsigned type;  // as type_of() has it
};
struct Parts {
  unsigned count = 0;
  Part of[kMostParts];
};

/// 4 types of integers without a sign, then 4 with one, then 4 of floats, of which there are 3; booleans.
unsigned type_of(const ColumnType& type) {
  unsigned found = 12;
  with_values(type, [&]<class Values>() {
    if constexpr (!std::is_same_v<Values, BitValues>) {
      const unsigned order = is_integer_key(type) ? type.order == KeyOrder::signed_integer : 2;
      found = 4 * order + static_cast<unsigned>(std::countr_zero(sizeof(typename Values::Raw)));
    }
  });
  return found;
}

/// Calls body.operator()<FixedValues or BitValues>().
template <class Body>
__device__ void with_values_of(unsigned type, const Body& body) {
  switch (type) {
    case 0: return body.template operator()<FixedValues<KeyType<uint8_t, KeyOrder::unsigned_integer>>>();
    case 1: return body.template operator()<FixedValues<KeyType<uint16_t, KeyOrder::unsigned_integer>>>();
    case 2: return body.template operator()<FixedValues<KeyType<uint32_t, KeyOrder::unsigned_integer>>>();
    case 3: return body.template operator()<FixedValues<KeyType<uint64_t, KeyOrder::unsigned_integer>>>();
    case 4: return body.template operator()<FixedValues<KeyType<uint8_t, KeyOrder::signed_integer>>>();
    case 5: return body.template operator()<FixedValues<KeyType<uint16_t, KeyOrder::signed_integer>>>();
    case 6: return body.template operator()<FixedValues<KeyType<uint32_t, KeyOrder::signed_integer>>>();
    case 7: return body.template operator()<FixedValues<KeyType<uint64_t, KeyOrder::signed_integer>>>();
    case 9: return body.template operator()<FixedValues<KeyType<uint16_t, KeyOrder::floating>>>();
    case 10: return body.template operator()<FixedValues<KeyType<uint32_t, KeyOrder::floating>>>();
    case 11: return body.template operator()<FixedValues<KeyType<uint64_t, KeyOrder::floating>>>();
    default: return body.template operator()<BitValues>();
  }
}

/// Keys of `rows` rows, a block's threads apart.
template <unsigned rows, class Key>
__device__ void encode_rows(const Parts& parts, uint64_t row, bool first, Key* keys) {
  uint64_t key[rows];
#pragma unroll
  for (unsigned i = 0; i < rows; ++i) key[i] = first ? 0 : keys[row + i * gpu::kThreads];
  for (unsigned p = 0; p < parts.count; ++p) {
    const Part& part = parts.of[p];
    with_values_of(part.type, [&]<class Values>() {
      const ColumnRows<Values> column(part.values, part.validity);
#pragma unroll
      for (unsigned i = 0; i < rows; ++i) key[i] = column.add_to_key(key[i], part.field, row + i * gpu::kThreads);
    });
  }
#pragma unroll
  for (unsigned i = 0; i < rows; ++i) keys[row + i * gpu::kThreads] = static_cast<Key>(key[i]);
}

template <class Key>
__global__ void __launch_bounds__(gpu::kThreads) encode_all(const Parts parts, uint64_t size, bool first, Key* keys) {
  constexpr uint64_t kTile = kEncodedRows * gpu::kThreads;
  for (uint64_t begin = blockIdx.x * kTile; begin < size; begin += gridDim.x * kTile) {
    if (begin + kTile <= size) {
      encode_rows<kEncodedRows>(parts, begin + threadIdx.x, first, keys);
    } else {
      for (uint64_t row = begin + threadIdx.x; row < size; row += gpu::kThreads) encode_rows<1>(parts, row, first, keys);
    }
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

void GpuPrimitives::encode_keys(std::span<const KeyPart> parts, uint64_t size, uint8_t key_bytes, void* keys, const Job& job,
                                Stream& stream) {
  job.check();
  if (size == 0) return;
  id_.select();
  size_t begin = 0;
  do {
    Parts some;
    const bool first = begin == 0;
    for (; begin < parts.size() && some.count < kMostParts; ++begin) {
      const auto& [column, field] = parts[begin];
      some.of[some.count++] = {column.values, column.validity, field, type_of(column.type)};
    }
    const auto launch = [&](auto* to) {
      encode_all<<<gpu::loop_blocks((size + kEncodedRows - 1) / kEncodedRows), gpu::kThreads, 0, raw(stream)>>>(some, size, first,
                                                                                                                to);
    };
    key_bytes == 4 ? launch(static_cast<uint32_t*>(keys)) : launch(static_cast<uint64_t*>(keys));
    check_launch("encode_all");
  } while (begin < parts.size());
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
