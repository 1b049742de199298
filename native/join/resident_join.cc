#include "join/resident_join.h"

#include <algorithm>
#include <utility>

#include "join/device_matches.h"
#include "join/join_rows.h"
#include "join/kept_rows.h"

namespace warpjoin {
namespace {

/// What the shape of a result depends on.
JoinKeys described(const ResidentRelation& left, const ResidentRelation& right) {
  JoinKeys keys;
  const auto describe = [](JoinSide& side, const ResidentRelation& relation) {
    side.tuples.layout = relation.layout;
    side.tuples.view.size = side.rows = relation.size();
  };
  describe(keys.left, left);
  describe(keys.right, right);
  return keys;
}

Relation relation(const ResidentRelation& side, bool wants_values) {
  return Relation{side.layout, side.chunks, true}.with_values_if(wants_values);
}

/// Gives `use` the joins that have run.
template <class Use>
void run_joins(Engine& engine, std::span<Device* const> devices, const ResidentRelation& left_side,
               const ResidentRelation& right_side, const JoinRequest& request, uint32_t partitions, KeptRows* kept, Job& job,
               Use&& use) {
  if (devices.empty()) throw Error(ErrorCode::option, "A hash join needs at least one device");
  const Relation left = relation(left_side, wants_left(request)), right = relation(right_side, wants_right(request));
  for (const Relation* side : {&left, &right}) {
    if (side->views.size() != devices.size()) {
      throw Error(ErrorCode::internal, "A resident relation has a chunk on each device of a join");
    }
  }
  const Relation &build = request.build_left ? left : right, &probe = request.build_left ? right : left;
  const HashCut cut = cut_for(request, partitions, build.size(), probe.size(), devices.size(), true, *devices[0]);
  job.add_planned(2 * (build.size() + probe.size()));
  DeviceMatches joins(engine, devices, build, probe, cut, request.count_only, job, kept);
  joins.run();
  use(joins);
}

/// Enqueues the writing of a device's rows to its memory.
void write_chunk(DeviceMatches& joins, KeptRows& kept, size_t d, const JoinRequest& request, const JoinSections& sections,
                 TupleLayout left, TupleLayout right, const ResidentRows::Chunk& chunk) {
  const uint64_t written = kept.settle(
      d, sections.size(), [&](void* target, const void* source, size_t bytes) { joins.copy_there(d, target, source, bytes); });
  if (sections.pairs) joins.emit_there(d, JoinEmit::pairs, kept.pairs_from(d, written), written);
  const auto alone = [&](const Buffer& own, uint8_t own_width, const Buffer& other, uint8_t other_width, bool build, bool matched,
                         uint64_t begin, uint64_t rows) {
    if (rows == 0) return;
    if (own) {
      void* const values = own.as<char>() + begin * own_width;
      if (build) {
        joins.emit_there(d, matched ? JoinEmit::build_matched : JoinEmit::build_unmatched, {nullptr, values, nullptr});
      } else {
        joins.emit_there(d, matched ? JoinEmit::probe_matched : JoinEmit::probe_unmatched, {nullptr, nullptr, values});
      }
    }
    if (other) joins.fill_missing(d, other.as<char>() + begin * other_width, rows * other_width);
  };
  alone(chunk.left, left.value_bytes, chunk.right, right.value_bytes, request.build_left, request.kind == JoinKind::semi,
        sections.left_begin(), sections.left);
  alone(chunk.right, right.value_bytes, chunk.left, left.value_bytes, !request.build_left, false, sections.right_begin(),
        sections.right);
}

/// Leaves what was found on the devices.
void keep(Engine& engine, DeviceMatches& joins, const JoinRequest& request, KeptRows& kept, ResidentRows& rows, Job& job) {
  std::vector<JoinSections> sections;
  uint64_t size = 0;
  for (size_t d = 0; d < rows.chunks.size(); ++d) {
    const DeviceMatches::Found found = joins.found(d);
    const uint64_t left_rows = request.build_left ? found.build_rows : found.probe_rows;
    const uint64_t right_rows = request.build_left ? found.probe_rows : found.build_rows;
    sections.push_back(tuple_sections(request.kind, left_rows, right_rows, counts_of(found.tally, request)));
    rows.chunks[d].size = sections[d].size();
    size = add_rows(size, sections[d].size());
    rows.left_may_be_missing |= sections[d].right > 0;
    rows.right_may_be_missing |= !left_rows_only(request.kind) && sections[d].left > 0;
  }
  rows.skew = joins.skew();
  rows.split_rows = joins.split_rows();
  check_max_rows(size, request.max_rows);
  if (request.count_only) return;
  const PhaseTimer timer(job, "write");
  engine.pool.parallel_for(rows.chunks.size(), [&](uint64_t d) {
    write_chunk(joins, kept, d, request, sections[d], rows.left_layout, rows.right_layout, rows.chunks[d]);
  });
  joins.wait();
}

}  // namespace

uint64_t ResidentRelation::size() const {
  uint64_t size = 0;
  for (const TupleView& chunk : chunks) size += chunk.size;
  return size;
}

uint64_t ResidentRows::size() const {
  uint64_t size = 0;
  for (const Chunk& chunk : chunks) size += chunk.size;
  return size;
}

ResidentRows resident_hash_join(Engine& engine, std::span<Device* const> devices, const ResidentRelation& left,
                                const ResidentRelation& right, const JoinRequest& request, Job& job, uint32_t partitions) {
  check_request(described(left, right), request);
  ResidentRows rows{left.layout, right.layout, {}, false, false, 1};
  KeptRows kept(devices, request, rows);
  run_joins(engine, devices, left, right, request, partitions, &kept, job,
            [&](DeviceMatches& joins) { keep(engine, joins, request, kept, rows, job); });
  return rows;
}

JoinRows resident_hash_join_home(Engine& engine, std::span<Device* const> devices, const ResidentRelation& left,
                                 const ResidentRelation& right, const JoinRequest& request, Job& job, uint32_t partitions) {
  const JoinKeys keys = described(left, right);
  check_request(keys, request);
  JoinRows rows;
  run_joins(engine, devices, left, right, request, partitions, nullptr, job, [&](DeviceMatches& joins) {
    const JoinSections sections = join_sections(keys, request.kind, counts_of(joins.tally(), request));
    rows = make_rows(engine, keys, request, sections, job);
    rows.skew = joins.skew();
    rows.split_rows = joins.split_rows();
    if (!request.count_only) joins.write(request, sections, places_in(rows, sections));
  });
  return rows;
}

size_t resident_hash_join_device_bytes(TupleLayout left, uint64_t left_rows, TupleLayout right, uint64_t right_rows,
                                       size_t devices, const JoinRequest& request, Engine& engine) {
  Device& device = *engine.devices.at(0);
  left = wanted_layout(left, wants_left(request)), right = wanted_layout(right, wants_right(request));
  if (!request.build_left) {
    std::swap(left, right);
    std::swap(left_rows, right_rows);
  }
  const HashCut cut = cut_for(request, 0, left_rows, right_rows, devices, true, device);
  return Exchange::device_bytes(left, left_rows, right, right_rows, devices, cut, request.count_only, true, device);
}

}  // namespace warpjoin
