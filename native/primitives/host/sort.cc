#include <algorithm>
#include <vector>

#include "primitives/host/host_primitives.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin {

using host::TupleReader;

TupleSpan HostPrimitives::sort(TupleLayout layout, TupleView in, TupleSpan, TupleSpan b, uint64_t, void*, const Job& job,
                               Stream& stream) {
  host(stream).enqueue([=, &job] {
    job.check();
    host::with_layout(layout, [&]<class K, class V>(K, V) {
      const TupleReader<K, V> from(in);
      std::vector<uint64_t> order(in.size);
      for (uint64_t i = 0; i < in.size; ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(), [&](uint64_t x, uint64_t y) { return from.key(x) < from.key(y); });
      for (uint64_t i = 0; i < in.size; ++i) host::write_tuple(b, i, from.key(order[i]), from.value(order[i]));
    });
  });
  return b;
}

size_t HostPrimitives::sort_scratch_bytes(TupleLayout, uint64_t) { return 0; }

void HostPrimitives::varying_bits(TupleLayout layout, TupleView in, const uint64_t* host_first_key, uint64_t* host_varying_bits,
                                  const Job& job, Stream& stream) {
  host(stream).enqueue([=, &job] {
    job.check();
    host::with_layout(layout, [&]<class K, class V>(K, V) {
      for (uint64_t i = 0; i < in.size; ++i) *host_varying_bits |= static_cast<const K*>(in.keys)[i] ^ *host_first_key;
    });
  });
}

}  // namespace warpjoin
