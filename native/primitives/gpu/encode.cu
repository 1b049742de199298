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

constexpr unsigned kMostParts = 8;                      // of a launch
constexpr unsigned kEncodedRows = 4, kDecodedRows = 8;  // of a thread: enough on their way to keep memory busy

/// What a value's bits are. The order of integers is in the flip of their field.
enum class Bits : unsigned { one, integer, floating };

/// A part of a key as kernels know it.
struct KernelPart {
  const void* values;
  const void* validity;
  KeyField field;
  Bits bits;
  unsigned width;  // bytes
};
struct Parts {
  unsigned count = 0;
  KernelPart of[kMostParts];
};

struct Shape {
  Bits bits;
  unsigned width;
  uint64_t flip;  // that orders integers
};

Shape shape_of(const ColumnType& type) {
  if (is_boolean_key(type)) return {Bits::one, 0, 0};
  const bool is_signed = type.order == KeyOrder::signed_integer;
  return {is_integer_key(type) ? Bits::integer : Bits::floating, type.width, is_signed ? uint64_t{1} << (8 * type.width - 1) : 0};
}

KernelPart part_of(const KeyPart& key) {
  const auto [bits, width, flip] = shape_of(key.column.type);
  KernelPart part{key.column.values, key.column.validity, key.field, bits, width};
  part.field.flip ^= flip;
  return part;
}

/// Values of `rows` rows, a block's threads apart, as they are.
template <unsigned rows>
__device__ void load_rows(const KernelPart& part, uint64_t row, uint64_t (&raw)[rows]) {
  const auto load = [&](const auto* values) {
#pragma unroll
    for (unsigned i = 0; i < rows; ++i) raw[i] = values[row + i * gpu::kThreads];
  };
  switch (part.width) {
    case 1: return load(static_cast<const uint8_t*>(part.values));
    case 2: return load(static_cast<const uint16_t*>(part.values));
    case 4: return load(static_cast<const uint32_t*>(part.values));
    case 8: return load(static_cast<const uint64_t*>(part.values));
    default:
#pragma unroll
      for (unsigned i = 0; i < rows; ++i)
        raw[i] = BitValues::ordered(static_cast<const uint64_t*>(part.values), row + i * gpu::kThreads);
  }
}

/// The ordered bits of floats.
template <unsigned rows>
__device__ void order_floats(unsigned width, uint64_t (&raw)[rows]) {
  const auto order = [&]<class Raw>() {
#pragma unroll
    for (unsigned i = 0; i < rows; ++i) raw[i] = KeyType<Raw, KeyOrder::floating>::ordered(static_cast<Raw>(raw[i]));
  };
  switch (width) {
    case 2: return order.template operator()<uint16_t>();
    case 4: return order.template operator()<uint32_t>();
    default: return order.template operator()<uint64_t>();
  }
}

/// Keys of `rows` rows, a block's threads apart. The values of a part are on their way while the one before it is added.
template <unsigned rows, class Key>
__device__ void encode_rows(const Parts& parts, uint64_t row, bool first, Key* keys) {
  uint64_t key[rows], raw[rows], next[rows];
  if (parts.count) load_rows(parts.of[0], row, next);
#pragma unroll
  for (unsigned i = 0; i < rows; ++i) key[i] = first ? 0 : keys[row + i * gpu::kThreads];
  for (unsigned p = 0; p < parts.count; ++p) {
    const KernelPart& part = parts.of[p];
#pragma unroll
    for (unsigned i = 0; i < rows; ++i) raw[i] = next[i];
    if (p + 1 < parts.count) load_rows(parts.of[p + 1], row, next);
    if (part.bits == Bits::floating) order_floats(part.width, raw);
    if (!part.validity && !part.field.distinct_from) {
#pragma unroll
      for (unsigned i = 0; i < rows; ++i) key[i] |= part.field.code(raw[i]) << part.field.shift;
    } else {
#pragma unroll
      for (unsigned i = 0; i < rows; ++i) {
        const uint64_t at = row + i * gpu::kThreads;
        key[i] = add_to_key(key[i], part.field, raw[i], is_null(static_cast<const uint64_t*>(part.validity), at), at);
      }
    }
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

/// A column that is made of a field, as kernels know it.
struct MadeColumn {
  void* values;
  gpu::LaneMask* validity;  // or null
  KeyField field;
  Bits bits;
  unsigned width;  // bytes
};
struct MadeColumns {
  unsigned count = 0;
  MadeColumn of[kMostParts];
};

MadeColumn made_column(const DecodedPart& part) {
  const auto [bits, width, flip] = shape_of(part.type);
  MadeColumn made{part.values, static_cast<gpu::LaneMask*>(part.validity), part.field, bits, width};
  made.field.flip ^= flip;
  return made;
}

/// Calls body(at, i) for rows that are there; all are where there are several.
template <unsigned rows, class Body>
__device__ void for_rows_there(uint64_t row, uint64_t size, const Body& body) {
#pragma unroll
  for (unsigned i = 0; i < rows; ++i) {
    if (rows > 1 || row < size) body(row + i * gpu::kThreads, i);
  }
}

/// Writes values with these ordered bits.
template <unsigned rows>
__device__ void write_rows(const MadeColumn& column, uint64_t row, uint64_t size, const uint64_t (&ordered)[rows],
                           unsigned valid) {
  const auto write = [&]<class Raw>() {
    for_rows_there<rows>(row, size, [&](uint64_t at, unsigned i) {
      auto raw = static_cast<Raw>(ordered[i]);
      if constexpr (sizeof(Raw) > 1) {
        if (column.bits == Bits::floating) raw = KeyType<Raw, KeyOrder::floating>::raw(raw);
      }
      static_cast<Raw*>(column.values)[at] = valid >> i & 1 ? raw : Raw{0};
    });
  };
  switch (column.width) {
    case 1: return write.template operator()<uint8_t>();
    case 2: return write.template operator()<uint16_t>();
    case 4: return write.template operator()<uint32_t>();
    case 8: return write.template operator()<uint64_t>();
    default:
#pragma unroll
      for (unsigned i = 0; i < rows; ++i) {
        const gpu::LaneMask ones = gpu::ballot(valid >> i & 1 && ordered[i] != 0);
        if (gpu::lane() == 0) static_cast<gpu::LaneMask*>(column.values)[(row + i * gpu::kThreads) / gpu::kLanes] = ones;
      }
  }
}

/// Writes `rows` rows of each column, a block's threads apart. A group of lanes makes a word of bits at a time: all of them get
/// here, with rows of up to a multiple of 64.
template <unsigned rows, class Key>
__device__ void decode_rows(const Key* keys, const MadeColumns& columns, uint64_t row, uint64_t size) {
  uint64_t key[rows] = {}, ordered[rows];
  for_rows_there<rows>(row, size, [&](uint64_t at, unsigned i) { key[i] = keys[at]; });
  for (unsigned c = 0; c < columns.count; ++c) {
    const MadeColumn& column = columns.of[c];
    unsigned valid = 0;
#pragma unroll
    for (unsigned i = 0; i < rows; ++i) {
      const uint64_t code = column.field.code_in(key[i]);
      const bool there = rows > 1 || row < size;
      valid |= unsigned{there && (!column.field.nulls || code != column.field.null_code)} << i;
      ordered[i] = column.field.ordered(code);
    }
    write_rows<rows>(column, row, size, ordered, valid);
    if (!column.validity) continue;
#pragma unroll
    for (unsigned i = 0; i < rows; ++i) {
      const gpu::LaneMask bits = gpu::ballot(valid >> i & 1);
      if (gpu::lane() == 0) column.validity[(row + i * gpu::kThreads) / gpu::kLanes] = bits;
    }
  }
}

template <class Key>
__global__ void __launch_bounds__(gpu::kThreads) decode_all(const Key* keys, uint64_t size, const MadeColumns columns) {
  constexpr uint64_t kTile = kDecodedRows * gpu::kThreads;
  for (uint64_t begin = blockIdx.x * kTile; begin < size; begin += gridDim.x * kTile) {
    if (begin + kTile <= size) {
      decode_rows<kDecodedRows>(keys, columns, begin + threadIdx.x, size);
    } else {
      for (uint64_t row = begin + threadIdx.x; row < (size + 63) / 64 * 64; row += gpu::kThreads)
        decode_rows<1>(keys, columns, row, size);
    }
  }
}

/// Blocks for tiles of so many rows of each thread. Loops go on where there are more: a tile a block keeps all busy to the end.
unsigned tiles(uint64_t size, unsigned rows) {
  const uint64_t tile = uint64_t{rows} * gpu::kThreads;
  return static_cast<unsigned>(std::min<uint64_t>((size + tile - 1) / tile, uint64_t{1} << 30));
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
      some.of[some.count++] = part_of(parts[begin]);
    }
    const auto launch = [&](auto* to) {
      encode_all<<<tiles(size, kEncodedRows), gpu::kThreads, 0, raw(stream)>>>(some, size, first, to);
    };
    key_bytes == 4 ? launch(static_cast<uint32_t*>(keys)) : launch(static_cast<uint64_t*>(keys));
    check_launch("encode_all");
  } while (begin < parts.size());
}

void GpuPrimitives::decode_fields(const void* keys, uint8_t key_bytes, uint64_t size, std::span<const DecodedPart> parts,
                                  const Job& job, Stream& stream) {
  job.check();
  if (size == 0) return;
  id_.select();
  for (size_t begin = 0; begin < parts.size();) {
    MadeColumns some;
    for (; begin < parts.size() && some.count < kMostParts; ++begin) some.of[some.count++] = made_column(parts[begin]);
    const auto launch = [&](const auto* from) {
      decode_all<<<tiles(size, kDecodedRows), gpu::kThreads, 0, raw(stream)>>>(from, size, some);
    };
    key_bytes == 4 ? launch(static_cast<const uint32_t*>(keys)) : launch(static_cast<const uint64_t*>(keys));
    check_launch("decode_all");
  }
}

}  // namespace warpjoin
