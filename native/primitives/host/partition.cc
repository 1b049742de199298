#include <algorithm>
#include <vector>

#include "primitives/host/host_primitives.h"
#include "primitives/host/radix_scatter.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin {
namespace {

using namespace host;

/// How a partition call uses its scratch; the same for its size and for its use.
template <class Key, class Value>
struct PartitionScratch {
  uint64_t blocks;
  uint64_t* histograms;
  std::vector<ScatterScratch<Key, Value>> runners;
  size_t bytes;

  PartitionScratch(ThreadPool& pool, uint64_t size, uint32_t partitions, void* scratch) {
    Carver carver(scratch);
    blocks = block_count(pool, size, std::max<uint64_t>(uint64_t{16} * partitions, 1 << 14));
    histograms = carver.take<uint64_t>(blocks * partitions);
    const uint64_t count = std::min<uint64_t>(blocks, pool.threads());
    for (uint64_t runner = 0; runner < count; ++runner) runners.emplace_back(carver, partitions);
    bytes = carver.bytes();
  }
};

}  // namespace

void HostPrimitives::partition(TupleLayout layout, TupleView in, Digit digit, TupleSpan out, uint64_t* host_offsets,
                               void* scratch, const Job& job, Stream& stream) {
  if (digit.bits > kMaxDigitBits) throw Error(ErrorCode::internal, "A partition digit has at most 12 bits");
  host(stream).enqueue([=, this, &job] {
    job.check();
    with_layout(layout, [&]<class K, class V>(K, V) {
      if (digit.bits == 0) {
        host_offsets[0] = 0;
        host_offsets[1] = in.size;
        return copy_tuples(pool_, in, Tuples<K, V>(out), job);
      }
      const PartitionScratch<K, V> own(pool_, in.size, digit.count(), scratch);
      const auto pass = [&](auto digit_of) {
        radix_pass<K, V>(
            pool_, in, digit_of, digit.count(), Tuples<K, V>(out), host_offsets, own.histograms,
            own.blocks, [&](uint64_t runner) -> const auto& { return own.runners[runner]; }, job);
      };
      if (digit.mixed) {
        pass(MixedDigit{digit.count() - 1, digit.shift});
      } else {
        pass(KeyDigit{digit.count() - 1, 0, digit.shift, 0, digit.bits, 0});
      }
    });
  });
}

size_t HostPrimitives::partition_scratch_bytes(TupleLayout layout, uint64_t size, Digit digit) {
  return with_layout(layout,
                     [&]<class K, class V>(K, V) { return PartitionScratch<K, V>(pool_, size, digit.count(), nullptr).bytes; });
}

}  // namespace warpjoin
