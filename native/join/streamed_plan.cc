// What plans know of a streamed join before it runs.
#include <algorithm>

#include "join/streamed_join.h"
#include "join/streamed_shape.h"

namespace warpjoin {

using streaming::Room;
using streaming::Shape;

HashJoinSpill streamed_join_spill(Device& device, size_t devices, TupleLayout build, uint64_t build_rows, TupleLayout probe,
                                  uint64_t probe_rows, const JoinRequest& request, uint32_t rounds) {
  Device* const one = &device;
  const Shape shape = streaming::shape_for({&one, 1}, {build, build_rows, probe, probe_rows, request, devices}, rounds);
  HashJoinSpill spill;
  spill.host_bytes = shape.spilled_bytes();
  const auto add = [&](bool of_build) {
    const TupleLayout layout = of_build ? build : probe;
    const uint64_t rows = of_build ? build_rows : probe_rows;
    const uint64_t spilled = rows / shape.partitions() * shape.spilled().size();
    spill.rows += spilled;
    spill.bytes += spilled * layout.tuple_bytes();
  };
  add(true);
  add(false);
  return spill;
}

size_t streamed_join_bytes(Device& device, size_t devices, TupleLayout build, uint64_t build_rows, TupleLayout probe,
                           uint64_t probe_rows, const JoinRequest& request, uint32_t rounds) {
  Shape whole(build, build_rows, probe, probe_rows, request, devices);
  Primitives& primitives = device.primitives();
  const auto bytes = [&](const Shape& shape) { return Room::planned_bytes(primitives, shape); };
  if (rounds > 1 || devices > 1) return bytes(whole.in_rounds(primitives, rounds, Shape::partitions_of_round(rounds)));
  const Shape waves = whole.in_waves(primitives);
  whole.keep(primitives, build_rows);
  return std::min(bytes(whole), bytes(waves));
}

}  // namespace warpjoin
