#include <algorithm>
#include <array>
#include <vector>

#include "join/growing_rows.h"
#include "join/join_rows.h"
#include "join/local_joins.h"
#include "join/rounds.h"
#include "join/row_writer.h"
#include "join/spilled_tuples.h"
#include "join/streamed_join.h"
#include "join/waiting_rows.h"

namespace warpjoin {
namespace {

/// The tuples of a side without values that the result does not want.
Relation relation(const EncodedTuples& side, bool with_values) {
  TupleLayout layout = side.layout;
  TupleView view = side.view;
  if (!with_values) {
    layout.value_bytes = 0;
    view.values = nullptr;
  }
  return {layout, {view}};
}

/// Of the rows to expect of a round on a device: as many as the larger side has, and an eighth more for rounds and devices that
/// get more than others.
size_t round_rows_bytes(const JoinKeys& keys, const JoinRequest& request, uint32_t rounds, size_t devices) {
  const TupleLayout left = keys.left.tuples.layout, right = keys.right.tuples.layout;
  const uint64_t mean = std::max(keys.left.tuples.view.size, keys.right.tuples.view.size) / rounds / devices;
  const uint64_t rows = mean + mean / 8 + kLeastTuples;
  return rows * ((request.want_keys ? left.key_bytes : 0) + (wants_left(request) ? left.value_bytes : 0) +
                 (wants_right(request) ? right.value_bytes : 0));
}

JoinRows join_tuples(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const HashJoinPlan& plan, Job& job) {
  const std::vector<Device*> devices = engine.select(plan.devices);
  if (devices.empty()) throw Error(ErrorCode::option, "A hash join needs at least one device");
  const Relation left = relation(keys.left.tuples, wants_left(request)),
                 right = relation(keys.right.tuples, wants_right(request));
  const Relation &build = request.build_left ? left : right, &probe = request.build_left ? right : left;
  const uint32_t round_bits = bits_of(plan.rounds, "Rounds");
  const uint64_t tuples = build.size() + probe.size();
  const HashCut cut = cut_for(request, round_bits, plan.partitions, build.size() >> round_bits, probe.size() >> round_bits,
                              devices.size(), false, *devices[0]);
  if (can_stream(*devices[0], devices.size(), plan.rounds))
    return streamed_join(engine, devices, build, probe, keys, request, plan.rounds, plan.partitions != 0, job);
  JoinRows rows;
  double skew = 1;
  uint64_t split_rows = 0;

  const auto join = [&](const Relation& b, const Relation& p, WaitingRows* waiting, auto&& use) {
    LocalJoins joins(engine, devices, b, p, cut, request.count_only, job, nullptr, waiting);
    joins.run();
    skew = std::max(skew, joins.skew());
    split_rows += joins.split_rows();
    use(joins, tuple_sections(request.kind, (request.build_left ? b : p).size(), (request.build_left ? p : b).size(),
                              counts_of(joins.tally(), request)));
  };

  if (plan.rounds == 1) {
    job.add_planned(2 * tuples);
    join(build, probe, nullptr, [&](LocalJoins& joins, const JoinSections& found) {
      const JoinSections sections = with_excluded(found, keys, request.kind);
      rows = make_rows(engine, keys, request, sections, job);
      if (!request.count_only) write_rows(joins, request, sections, places_in(rows, sections));
    });
  } else {
    job.add_planned(3 * tuples);
    std::array<Rounds, 2> sides;
    {
      const PhaseTimer timer(job, "cut rounds", 2 * (build.bytes() + probe.bytes()));
      const uint64_t most = round_chunk_rows(*devices[0], tuples, plan.rounds, devices.size());
      sides = cut_rounds(engine, devices, {&build, &probe}, round_bits, most, job);
    }
    GrowingRows growing(engine, keys, request);
    WaitingRows waiting(engine, devices, round_rows_bytes(keys, request, plan.rounds, devices.size()), job);
    const bool waits = !request.count_only && !devices[0]->addresses_host_memory();
    for (uint32_t r = 0; r < plan.rounds; ++r) {
      join(sides[0].part(r), sides[1].part(r), waits ? &waiting : nullptr, [&](LocalJoins& joins, const JoinSections& found) {
        write_rows(joins, request, found, growing.add(found, (r + 1.0) / plan.rounds));
      });
    }
    if (waits) {
      const PhaseTimer timer(job, "write");
      waiting.go_home();
    }
    sides = {};  // leaves the room that rows take a second time
    rows = growing.finish(job);
  }
  rows.skew = skew;
  rows.split_rows = split_rows;
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
  bits_of(rounds, "Rounds");
  const Relation left = relation(left_tuples, wants_left(request)), right = relation(right_tuples, wants_right(request));
  const Relation &build = request.build_left ? left : right, &probe = request.build_left ? right : left;
  if (rounds == 1) return {};
  if (can_stream(device, devices, rounds)) {
    return streamed_join_spill(device, devices, build.layout, build.size(), probe.layout, probe.size(), request, rounds);
  }
  HashJoinSpill spill;
  for (const Relation* side : {&build, &probe}) {
    spill.rows += side->size();
    spill.bytes += side->size() * side->layout.tuple_bytes();
    spill.host_bytes += SpilledTuples::host_bytes(side->layout, side->size());
  }
  return spill;
}

size_t hash_join_device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                              const JoinRequest& request, uint32_t rounds, Engine& engine) {
  Device& device = *engine.devices.at(0);
  const uint32_t round_bits = bits_of(rounds, "Rounds");
  if (can_stream(device, devices, rounds)) {
    return streamed_join_bytes(device, devices, build, build_rows, probe, probe_rows, request, rounds);
  }
  const auto largest_round = [&](uint64_t rows) { return rounds == 1 ? rows : rows / rounds + rows / rounds / 8 + 1024; };
  const HashCut cut = cut_for(request, round_bits, 0, build_rows >> round_bits, probe_rows >> round_bits, devices, false, device);
  const size_t join = LocalJoins::device_bytes(build, largest_round(build_rows), probe, largest_round(probe_rows), devices, cut,
                                               request.count_only, false, device);
  if (rounds == 1) return join;
  const uint64_t rows = round_chunk_rows(device, build_rows + probe_rows, rounds, devices);
  return std::max(join,
                  cut_rounds_device_bytes(device, {build, probe}, std::min(rows, std::max(build_rows, probe_rows)), round_bits));
}

}  // namespace warpjoin
