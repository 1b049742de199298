#include <vector>

#include "join/device_matches.h"
#include "join/join_rows.h"
#include "join/streamed_join.h"

namespace warpjoin {
namespace {

Relation relation(const EncodedTuples& side, bool wants_values) {
  return Relation{side.layout, {side.view}}.with_values_if(wants_values);
}

/// Whether a join streams; throws Error(option) for rounds that there can't be.
bool streams(const Device& device, uint32_t rounds) {
  bits_of(rounds, "Rounds");
  const bool can = can_stream(device);
  if (rounds > 1 && !can) throw Error(ErrorCode::option, "Host devices join in one round, as they have nothing to spill");
  return can;
}

JoinRows join_tuples(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const HashJoinPlan& plan, Job& job) {
  const std::vector<Device*> devices = engine.select(plan.devices);
  if (devices.empty()) throw Error(ErrorCode::option, "A hash join needs at least one device");
  const Relation left = relation(keys.left.tuples, wants_left(request)),
                 right = relation(keys.right.tuples, wants_right(request));
  const Relation &build = request.build_left ? left : right, &probe = request.build_left ? right : left;
  if (plan.partitions) bits_of(plan.partitions, "Partitions");
  if (streams(*devices[0], plan.rounds)) {
    return streamed_join(engine, devices, build, probe, keys, request, {plan.rounds, plan.partitions != 0, plan.either_side},
                         job);
  }
  job.add_planned(2 * (build.size() + probe.size()));
  const HashCut cut = cut_for(request, plan.partitions, build.size(), probe.size(), devices.size(), false, *devices[0]);
  DeviceMatches joins(engine, devices, build, probe, cut, request.count_only, job);
  joins.run();
  const JoinSections found = tuple_sections(request.kind, left.size(), right.size(), counts_of(joins.tally(), request));
  const JoinSections sections = with_excluded(found, keys, request.kind);
  JoinRows rows = make_rows(engine, keys, request, sections, job);
  if (!request.count_only) joins.write(request, sections, places_in(rows, sections));
  rows.skew = joins.skew();
  rows.split_rows = joins.split_rows();
  return rows;
}

}  // namespace

JoinRows hash_join(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const HashJoinPlan& plan, Job& job) {
  check_request(keys, request);
  return naming_columns({&keys.left.tuples, &keys.right.tuples}, [&] { return join_tuples(engine, keys, request, plan, job); });
}

HashJoinSpill hash_join_spill(const EncodedTuples& left_tuples, const EncodedTuples& right_tuples, size_t devices,
                              const JoinRequest& request, uint32_t rounds, Engine& engine) {
  Device& device = *engine.devices.at(0);
  const Relation left = relation(left_tuples, wants_left(request)), right = relation(right_tuples, wants_right(request));
  const Relation &build = request.build_left ? left : right, &probe = request.build_left ? right : left;
  if (!streams(device, rounds) || rounds == 1) return {};
  return streamed_join_spill(device, devices, build.layout, build.size(), probe.layout, probe.size(), request, rounds);
}

size_t hash_join_device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                              const JoinRequest& request, uint32_t rounds, Engine& engine) {
  Device& device = *engine.devices.at(0);
  build = wanted_layout(build, request.build_left ? wants_left(request) : wants_right(request));
  probe = wanted_layout(probe, request.build_left ? wants_right(request) : wants_left(request));
  if (streams(device, rounds)) {
    return streamed_join_bytes(device, devices, build, build_rows, probe, probe_rows, request, rounds);
  }
  const HashCut cut = cut_for(request, 0, build_rows, probe_rows, devices, false, device);
  return Exchange::device_bytes(build, build_rows, probe, probe_rows, devices, cut, request.count_only, false, device);
}

}  // namespace warpjoin
