#include "primitives/host/host_primitives.h"

namespace warpjoin {

namespace {
[[noreturn]] void missing() { throw Error(ErrorCode::not_supported, "The hash join is not supported yet on host devices"); }
}  // namespace

std::unique_ptr<HashMatch> HostPrimitives::hash_match(const PartitionedTuples&, const PartitionedTuples&, uint32_t, bool, void*,
                                                      const Job&, Stream&) {
  missing();
}

size_t HostPrimitives::hash_match_scratch_bytes(TupleLayout, uint64_t, TupleLayout, uint64_t, uint32_t, bool) { missing(); }

void HostPrimitives::hash_emit(HashMatch&, JoinEmit, JoinOutput, const Job&, Stream&) { missing(); }

}  // namespace warpjoin
