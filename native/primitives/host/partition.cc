#include <vector>

#include "primitives/host/host_primitives.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin {

using host::TupleReader;

void HostPrimitives::partition(TupleLayout layout, TupleView in, Digit digit, TupleSpan out, uint64_t* host_offsets, void*,
                               const Job& job, Stream& stream) {
  host(stream).enqueue([=, &job] {
    job.check();
    host::with_layout(layout, [&]<class K, class V>(K, V) {
      const TupleReader<K, V> from(in);
      std::vector<uint64_t> next(digit.count() + 1);
      for (uint64_t i = 0; i < in.size; ++i) ++next[digit(from.key(i)) + 1];
      for (uint32_t p = 0; p < digit.count(); ++p) next[p + 1] += next[p];
      std::copy(next.begin(), next.end(), host_offsets);
      for (uint64_t i = 0; i < in.size; ++i) host::write_tuple(out, next[digit(from.key(i))]++, from.key(i), from.value(i));
    });
  });
}

size_t HostPrimitives::partition_scratch_bytes(TupleLayout, uint64_t, Digit) { return 0; }

}  // namespace warpjoin
