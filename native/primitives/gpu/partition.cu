// Partitions by digit: one split, or two of half the digit each where it has more than 8 bits.
#include <algorithm>

#include "primitives/gpu/gpu_primitives.h"
#include "primitives/gpu/multisplit.h"

namespace warpjoin {

namespace gpu {
inline namespace WARPJOIN_BLOCKS {

template <class Key, class Value>
void split_by_digit(const Run<Key, Value>& in, Digit digit, const SplitCounts& counts, Key* out_keys, Value* out_values,
                    uint64_t* offsets, gpu_stream_t on, const std::string& device_name) {
  const auto by = [&]<class Buckets>(const Buckets& buckets) {
    split<ShapeOf<Key, Value>>(in, buckets, counts, out_keys, out_values, offsets, on, device_name);
  };
  digit.mixed ? by(DigitBuckets<Key, true>(digit)) : by(DigitBuckets<Key, false>(digit));
}

template void split_by_digit(const Run<uint32_t, NoValue>&, Digit, const SplitCounts&, uint32_t*, NoValue*, uint64_t*,
                             gpu_stream_t, const std::string&);
template void split_by_digit(const Run<uint32_t, uint32_t>&, Digit, const SplitCounts&, uint32_t*, uint32_t*, uint64_t*,
                             gpu_stream_t, const std::string&);
template void split_by_digit(const Run<uint32_t, uint64_t>&, Digit, const SplitCounts&, uint32_t*, uint64_t*, uint64_t*,
                             gpu_stream_t, const std::string&);
template void split_by_digit(const Run<uint64_t, NoValue>&, Digit, const SplitCounts&, uint64_t*, NoValue*, uint64_t*,
                             gpu_stream_t, const std::string&);
template void split_by_digit(const Run<uint64_t, uint32_t>&, Digit, const SplitCounts&, uint64_t*, uint32_t*, uint64_t*,
                             gpu_stream_t, const std::string&);
template void split_by_digit(const Run<uint64_t, uint64_t>&, Digit, const SplitCounts&, uint64_t*, uint64_t*, uint64_t*,
                             gpu_stream_t, const std::string&);

}  // namespace WARPJOIN_BLOCKS
}  // namespace gpu

namespace {

constexpr unsigned kMostBits = 12;

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

/// The stable splits that group by a digit, least significant first, and their scratch.
template <class Key, class Value>
struct DigitSplits {
  using Shape = gpu::ShapeOf<Key, Value>;

  bool two;
  Digit first, second;  // with one split, it is the second
  Key* between_keys = nullptr;
  Value* between_values = nullptr;
  gpu::SplitCounts counts;  // used by either
  size_t bytes;

  DigitSplits(void* scratch, uint64_t size, Digit digit) : DigitSplits(host::Carver(scratch), size, digit) {}

 private:
  DigitSplits(host::Carver carver, uint64_t size, Digit digit)
      : two(digit.bits > gpu::kSplitBits),
        first{digit.shift, static_cast<uint8_t>(two ? digit.bits / 2 : 0), digit.mixed},
        second{static_cast<uint8_t>(digit.shift + first.bits), static_cast<uint8_t>(digit.bits - first.bits), digit.mixed},
        counts(carver, Shape::kTile, size, second.count(), false) {
    if (two) {
      between_keys = carver.take<Key>(size);
      if constexpr (gpu::is_value<Value>) between_values = carver.take<Value>(size);
    }
    bytes = carver.bytes();
  }
};

template <class Key, class Value>
void split(const gpu::Run<Key, Value>& in, const DigitSplits<Key, Value>& splits, Key* out_keys, Value* out_values,
           uint64_t* offsets, gpu_stream_t on, const std::string& device_name) {
  gpu::Run<Key, Value> rest = in;
  if (splits.two) {
    gpu::SplitCounts counts = splits.counts;
    counts.buckets = splits.first.count();
    gpu::split_by_digit(in, splits.first, counts, splits.between_keys, splits.between_values, offsets, on, device_name);
    rest.keys = splits.between_keys;
    rest.values = splits.between_values;
  }
  gpu::split_by_digit(rest, splits.second, splits.counts, out_keys, out_values, offsets, on, device_name);
}

}  // namespace

void GpuPrimitives::partition(TupleLayout layout, TupleView in, Digit digit, TupleSpan out, uint64_t* host_offsets, void* scratch,
                              const Job& job, Stream& stream) {
  job.check();
  if (digit.bits > kMostBits) throw Error(ErrorCode::internal, "A partition digit has at most 12 bits");
  const size_t offsets_count = size_t{digit.count()} + 1;
  if (in.size == 0) {
    std::fill(host_offsets, host_offsets + offsets_count, 0);
    return;
  }
  id_.select();
  const gpu_stream_t on = raw(stream);
  ResultSlots::Slot& slot = results_.acquire(offsets_count * sizeof(uint64_t), on);
  auto* offsets = slot.as<uint64_t>();
  gpu::with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    const gpu::Run<Key, Value> tuples(in);
    const DigitSplits<Key, Value> splits(scratch, in.size, digit);
    auto* const keys = static_cast<Key*>(out.keys);
    split(tuples, splits, keys, static_cast<Value*>(out.values), offsets, on, id_.name);
    if (!splits.two) return;
    find_offsets<<<gpu::loop_blocks(offsets_count), gpu::kThreads, 0, on>>>(keys, in.size, digit, offsets);
    check_launch("find_offsets");
  });
  results_.finish(slot, [=] { std::copy(offsets, offsets + offsets_count, host_offsets); });
}

size_t GpuPrimitives::partition_scratch_bytes(TupleLayout layout, uint64_t size, Digit digit) {
  if (size == 0) return 0;
  return gpu::with_layout(
      layout, [&]<class Key, class Value>(Key, Value) { return DigitSplits<Key, Value>(nullptr, size, digit).bytes; });
}

}  // namespace warpjoin
