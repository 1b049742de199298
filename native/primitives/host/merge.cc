#include <algorithm>
#include <vector>

#include "primitives/host/host_primitives.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin {

using host::TupleReader;

void HostPrimitives::merge(TupleLayout layout, std::span<const TupleView> runs, TupleSpan out, void*, const Job& job,
                           Stream& stream) {
  host(stream).enqueue([=, &job, runs = std::vector<TupleView>(runs.begin(), runs.end())] {
    job.check();
    host::with_layout(layout, [&]<class K, class V>(K, V) {
      std::vector<uint64_t> at(runs.size());
      for (uint64_t i = 0; i < out.size; ++i) {
        size_t best = runs.size();
        for (size_t r = 0; r < runs.size(); ++r) {
          if (at[r] == runs[r].size) continue;
          if (best == runs.size() || TupleReader<K, V>(runs[r]).key(at[r]) < TupleReader<K, V>(runs[best]).key(at[best]))
            best = r;
        }
        const TupleReader<K, V> from(runs[best]);
        host::write_tuple(out, i, from.key(at[best]), from.value(at[best]));
        ++at[best];
      }
    });
  });
}

size_t HostPrimitives::merge_scratch_bytes(TupleLayout, size_t, uint64_t) { return 0; }

void HostPrimitives::split_runs(TupleLayout layout, std::span<const TupleView> runs, std::span<const uint64_t> ranks,
                                uint64_t* host_cuts, Stream& stream) {
  host(stream).enqueue(
      [=, runs = std::vector<TupleView>(runs.begin(), runs.end()), ranks = std::vector<uint64_t>(ranks.begin(), ranks.end())] {
        host::with_layout(layout, [&]<class K, class V>(K, V) {
          for (size_t q = 0; q < ranks.size(); ++q) {
            std::vector<uint64_t> at(runs.size());
            for (uint64_t i = 0; i < ranks[q]; ++i) {
              size_t best = runs.size();
              for (size_t r = 0; r < runs.size(); ++r) {
                if (at[r] == runs[r].size) continue;
                if (best == runs.size() || TupleReader<K, V>(runs[r]).key(at[r]) < TupleReader<K, V>(runs[best]).key(at[best]))
                  best = r;
              }
              ++at[best];
            }
            std::copy(at.begin(), at.end(), host_cuts + q * runs.size());
          }
        });
      });
}

}  // namespace warpjoin
