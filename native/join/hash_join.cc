#include <algorithm>
#include <bit>
#include <vector>

#include "join/join_rows.h"
#include "join/local_joins.h"
#include "join/resolve.h"
#include "join/rounds.h"

namespace warpjoin {
namespace {

constexpr uint32_t kMostBits = 12;

uint32_t bits_of(uint32_t count, const char* what) {
  if (!std::has_single_bit(count) || count > 1u << kMostBits) {
    throw Error(ErrorCode::option, std::string(what) + " of a hash join: expected a power of two up to " +
                                       std::to_string(1u << kMostBits) + " but received " + std::to_string(count));
  }
  return static_cast<uint32_t>(std::countr_zero(count));
}

/// Whether the join asks which build rows match, which no device knows alone if each has them all.
bool asks_build(const JoinRequest& request) {
  switch (request.kind) {
    case JoinKind::inner: return false;
    case JoinKind::full: return true;
    case JoinKind::right: return !request.build_left;
    default: return request.build_left;
  }
}

constexpr uint64_t kWholeRows = 128 << 10;  // build rows that are not partitioned: the third-level cache holds their table

/// How many partition bits leave a partition no more build rows than a device wants of one.
uint32_t partition_bits_for(uint64_t build_rows, uint64_t partition_rows) {
  if (build_rows <= kWholeRows) return 0;
  return std::min<uint32_t>(kMostBits, static_cast<uint32_t>(std::bit_width((build_rows - 1) / partition_rows)));
}

/// Whether a build side is better sent to each device from the host than exchanged, by hash, together with the probe side.
/// The first takes the build side over each link to the host, the second a device's share of both sides over its links to
/// the others, which are several times faster. Tuples of both sides are about as wide.
bool worth_replicating(uint64_t build_rows, uint64_t probe_rows, size_t devices) {
  constexpr uint64_t kFaster = 8;
  return build_rows <= kWholeRows || build_rows <= (build_rows + probe_rows) / devices / kFaster;
}

/// For rounds of so many rows.
HashCut cut_for(const JoinRequest& request, uint32_t round_bits, uint32_t partitions, uint64_t build_rows, uint64_t probe_rows,
                size_t devices, Device& device) {
  HashCut cut{.round_bits = round_bits};
  cut.partition_bits = partitions ? bits_of(partitions, "Partitions")
                                  : partition_bits_for(build_rows, device.primitives().hash_partition_tuples());
  if (cut.partition_bits == 0 && (devices == 1 || (!asks_build(request) && worth_replicating(build_rows, probe_rows, devices)))) {
    cut.replicate = true;
  } else if (devices > 1) {
    // Enough partitions that the devices' shares are even.
    const auto even = static_cast<uint32_t>(std::bit_width(16 * devices - 1));
    const auto fewest = static_cast<uint32_t>(std::bit_width(devices - 1));
    cut.partition_bits = std::max(cut.partition_bits, partitions ? fewest : even);
  }
  return cut;
}

/// The tuples of a side without values that the result does not want.
Relation relation(const JoinSide& side, bool with_values) {
  TupleLayout layout = side.tuples.layout;
  TupleView view = side.tuples.view;
  if (!with_values) {
    layout.value_bytes = 0;
    view.values = nullptr;
  }
  return {layout, {view}};
}

/// Where the next rows of each section go.
class RowWriter {
 public:
  RowWriter(const JoinRequest& request, const JoinRows& rows, const JoinSections& sections)
      : request_(request), rows_(rows), left_(sections.left_begin()), right_(sections.right_begin()) {}

  /// Writes one join's sections behind those of the joins before.
  void write(LocalJoins& joins, const JoinSections& sections) {
    void* const left = column(rows_.left, rows_.left_layout.value_bytes, pairs_);
    void* const right = column(rows_.right, rows_.right_layout.value_bytes, pairs_);
    void* const keys = column(rows_.keys, rows_.left_layout.key_bytes, pairs_);
    if (sections.pairs) {
      joins.emit(JoinEmit::pairs, {keys, request_.build_left ? left : right, request_.build_left ? right : left});
    }
    const bool semi = request_.kind == JoinKind::semi;
    if (sections.left) alone(joins, request_.build_left, semi, column(rows_.left, rows_.left_layout.value_bytes, left_));
    if (sections.right) alone(joins, !request_.build_left, false, column(rows_.right, rows_.right_layout.value_bytes, right_));
    pairs_ += sections.pairs;
    left_ += sections.left;
    right_ += sections.right;
  }

 private:
  static void* column(const HostBuffer& buffer, uint8_t width, uint64_t row) {
    return buffer ? buffer.as<char>() + row * width : nullptr;
  }
  static void alone(LocalJoins& joins, bool build, bool matched, void* values) {
    if (!values) return;
    if (build) {
      joins.emit(matched ? JoinEmit::build_matched : JoinEmit::build_unmatched, {nullptr, values, nullptr});
    } else {
      joins.emit(matched ? JoinEmit::probe_matched : JoinEmit::probe_unmatched, {nullptr, nullptr, values});
    }
  }

  const JoinRequest& request_;
  const JoinRows& rows_;
  uint64_t pairs_ = 0, left_, right_;
};

JoinRows join_exact(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const HashJoinPlan& plan, Job& job) {
  const std::vector<Device*> devices = engine.select(plan.devices);
  if (devices.empty()) throw Error(ErrorCode::option, "A hash join needs at least one device");
  const Relation left = relation(keys.left, wants_left(request)), right = relation(keys.right, wants_right(request));
  const Relation &build = request.build_left ? left : right, &probe = request.build_left ? right : left;
  const uint32_t round_bits = bits_of(plan.rounds, "Rounds");
  const uint64_t tuples = build.size() + probe.size();
  const HashCut cut = cut_for(request, round_bits, plan.partitions, build.size() >> round_bits, probe.size() >> round_bits,
                              devices.size(), *devices[0]);
  JoinRows rows;
  double skew = 1;
  JoinCounts counts;

  const auto join = [&](const Relation& b, const Relation& p, bool count_only, auto&& use) {
    LocalJoins joins(engine, devices, b, p, cut, count_only, job);
    joins.run();
    skew = std::max(skew, joins.skew());
    const JoinTally& tally = joins.tally();
    const JoinCounts found{tally.pairs, request.build_left ? tally.build_matched : tally.probe_matched,
                           request.build_left ? tally.probe_matched : tally.build_matched};
    use(joins, found,
        tuple_sections(request.kind, (request.build_left ? b : p).size(), (request.build_left ? p : b).size(), found));
  };
  const auto count = [&](LocalJoins&, const JoinCounts& found, const JoinSections&) {
    counts.pairs = add_rows(counts.pairs, found.pairs);
    counts.left_matched += found.left_matched;
    counts.right_matched += found.right_matched;
  };
  const auto reserve = [&] {
    const JoinSections sections = join_sections(keys, request.kind, counts);
    rows = make_rows(engine, keys, request, sections, job);
    return RowWriter(request, rows, sections);
  };

  if (plan.rounds == 1) {
    job.add_planned(2 * tuples);
    join(build, probe, request.count_only, [&](LocalJoins& joins, const JoinCounts& found, const JoinSections& sections) {
      count(joins, found, sections);
      RowWriter writer = reserve();
      if (!request.count_only) writer.write(joins, sections);
    });
  } else {
    job.add_planned(tuples * (request.count_only ? 3 : 5));
    std::vector<Rounds> sides;
    {
      const PhaseTimer timer(job, "cut rounds", 2 * (build.bytes() + probe.bytes()));
      const uint64_t rows = round_chunk_rows(*devices[0], tuples, plan.rounds, devices.size());
      for (const Relation* side : {&build, &probe}) sides.push_back(cut_rounds(engine, devices, *side, round_bits, rows, job));
    }
    // Count first: the result is reserved once, exactly, and no round's matches have to be kept for it.
    for (uint32_t r = 0; r < plan.rounds; ++r) join(sides[0].part(r), sides[1].part(r), true, count);
    RowWriter writer = reserve();
    for (uint32_t r = 0; r < plan.rounds && !request.count_only; ++r) {
      join(sides[0].part(r), sides[1].part(r), false,
           [&](LocalJoins& joins, const JoinCounts&, const JoinSections& sections) { writer.write(joins, sections); });
    }
  }
  rows.skew = skew;
  return rows;
}

}  // namespace

JoinRows hash_join(Engine& engine, const JoinKeys& keys, JoinColumns columns, const JoinRequest& request,
                   const HashJoinPlan& plan, Job& job) {
  check_request(keys, request);
  if (keys.exact) return join_exact(engine, keys, request, plan, job);
  return resolve_pairs(engine, keys, request, join_exact(engine, keys, candidate_request(request), plan, job),
                       column_verifier(columns, engine, job), job);
}

size_t hash_join_device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                              const JoinRequest& request, uint32_t rounds, Engine& engine) {
  Device& device = *engine.devices.at(0);
  const uint32_t round_bits = bits_of(rounds, "Rounds");
  const auto largest_round = [&](uint64_t rows) { return rounds == 1 ? rows : rows / rounds + rows / rounds / 8 + 1024; };
  const HashCut cut = cut_for(request, round_bits, 0, build_rows >> round_bits, probe_rows >> round_bits, devices, device);
  const size_t join = LocalJoins::device_bytes(build, largest_round(build_rows), probe, largest_round(probe_rows), devices, cut,
                                               request.count_only, device);
  if (rounds == 1) return join;
  const uint64_t rows = round_chunk_rows(device, build_rows + probe_rows, rounds, devices);
  return std::max({join, cut_rounds_device_bytes(device, build, std::min(rows, build_rows), round_bits),
                   cut_rounds_device_bytes(device, probe, std::min(rows, probe_rows), round_bits)});
}

}  // namespace warpjoin
