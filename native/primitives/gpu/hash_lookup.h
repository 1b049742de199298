// What tables in shared memory and in device memory have in common.
#pragma once

#include "primitives/gpu/hash_match.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

/// Calls f with the types of the key, the build side's value and the probe side's, where both sides have values.
template <class F>
void with_values(const GpuHashMatch& match, F&& f) {
  with_key(match.build.layout, [&]<class Key>(Key key) {
    const auto with_probe = [&](auto build_value) {
      match.probe.layout.value_bytes == 4 ? f(key, build_value, uint32_t{}) : f(key, build_value, uint64_t{});
    };
    match.build.layout.value_bytes == 4 ? with_probe(uint32_t{}) : with_probe(uint64_t{});
  });
}

/// The columns of pairs that are written as they are found; those that are null are not written.
template <class Key, class BuildValue, class ProbeValue>
struct PairColumns {
  Key* keys;
  BuildValue* build_values;
  ProbeValue* probe_values;

  explicit PairColumns(const JoinOutput& out)
      : keys(static_cast<Key*>(out.keys)),
        build_values(static_cast<BuildValue*>(out.build_values)),
        probe_values(static_cast<ProbeValue*>(out.probe_values)) {}

  __device__ void write(uint64_t at, const HashTuple<Key, ProbeValue>& probe, BuildValue build_value) const {
    if (keys) store_once(keys + at, key_of_hash(probe.hash));
    if (probe_values) store_once(probe_values + at, probe.value);
    if (build_values) store_once(build_values + at, build_value);
  }
};

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
