#include "primitives/host/host_primitives.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin {

void HostPrimitives::match_ranges(TupleLayout build_layout, TupleView build, TupleLayout, TupleView probe,
                                  MatchRange* host_ranges, uint64_t* host_count, const Job& job, Stream& stream) {
  host(stream).enqueue([=, &job] {
    job.check();
    host::with_layout(build_layout, [&]<class K, class V>(K, V) {
      const auto* r = static_cast<const K*>(build.keys);
      const auto* s = static_cast<const K*>(probe.keys);
      uint64_t count = 0;
      for (uint64_t i = 0, j = 0; i < build.size && j < probe.size;) {
        if (r[i] < s[j]) {
          ++i;
        } else if (s[j] < r[i]) {
          ++j;
        } else {
          MatchRange range{i, i, j, j};
          while (range.build_end < build.size && r[range.build_end] == r[i]) ++range.build_end;
          while (range.probe_end < probe.size && s[range.probe_end] == s[j]) ++range.probe_end;
          i = range.build_end;
          j = range.probe_end;
          if (host_ranges) host_ranges[count] = range;
          ++count;
        }
      }
      *host_count = count;
    });
  });
}

}  // namespace warpjoin
