#include <algorithm>
#include <memory>
#include <optional>

#include "join/match_lists.h"
#include "join/resolve.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

constexpr size_t kStreams = 3;  // of a device: keys in, match, ranges out

struct Part {
  uint64_t build_begin = 0, build_end = 0, probe_begin = 0, probe_end = 0;
  uint64_t build_rows() const { return build_end - build_begin; }
  uint64_t probe_rows() const { return probe_end - probe_begin; }
};

/// Where the sorted relations are cut: parts to join on devices, and after part i the match range of the key at the
/// cut, found beforehand.
struct MergePath {
  std::vector<Part> parts;
  std::vector<MatchRange> at_cut;  // parts - 1; empty ranges where the key is on one side alone
};

/// Cuts at equidistant points of the merge path (3.3.1). The key at each cut is taken out of both relations, all its
/// rows, and its match range stored at once: no key straddles two parts, no part is larger than its share, and one key
/// everywhere leaves nothing but its range.
template <class Key>
MergePath cut_path(TupleView build, TupleView probe, uint64_t parts) {
  const Key* const r = static_cast<const Key*>(build.keys);
  const Key* const s = static_cast<const Key*>(probe.keys);
  const uint64_t all = build.size + probe.size;
  MergePath path;
  Part part;
  std::optional<Key> last;
  for (uint64_t i = 1; i < parts; ++i) {
    const uint64_t rank = all / parts * i + std::min(i, all % parts);
    uint64_t low = rank > probe.size ? rank - probe.size : 0, high = std::min(rank, build.size);
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (r[middle] <= s[rank - 1 - middle]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const uint64_t b = low, p = rank - low;
    if (b == build.size && p == probe.size) break;
    const Key key = b == build.size ? s[p] : p == probe.size ? r[b] : std::min(r[b], s[p]);
    if (last == key) {  // all of it is out already
      path.parts.push_back({part.build_begin, part.build_begin, part.probe_begin, part.probe_begin});
      path.at_cut.push_back({});
      continue;
    }
    last = key;
    const auto [build_first, build_last] = std::equal_range(r + part.build_begin, r + build.size, key);
    const auto [probe_first, probe_last] = std::equal_range(s + part.probe_begin, s + probe.size, key);
    const MatchRange at{static_cast<uint64_t>(build_first - r), static_cast<uint64_t>(build_last - r),
                        static_cast<uint64_t>(probe_first - s), static_cast<uint64_t>(probe_last - s)};
    path.parts.push_back({part.build_begin, at.build_begin, part.probe_begin, at.probe_begin});
    path.at_cut.push_back(at);
    part = {at.build_end, 0, at.probe_end, 0};
  }
  path.parts.push_back({part.build_begin, build.size, part.probe_begin, probe.size});
  return path;
}

/// The largest part that cut_path gives.
uint64_t part_rows(uint64_t build_rows, uint64_t probe_rows, uint64_t parts) {
  const uint64_t all = build_rows + probe_rows;
  return all / parts + (all % parts != 0);
}

size_t key_bytes_on_device(TupleLayout layout, uint64_t rows) {
  return StackAllocator::aligned(rows * layout.key_bytes) + 2 * StackAllocator::kAlignment;
}

/// One stream of a device's pipeline: subpartitions one after the other.
struct Lane {
  HostBuffer ranges;
  uint64_t count = 0;
  std::optional<size_t> part;  ///< which is under way
  std::unique_ptr<Stream> stream;
};

struct Pipeline {
  Device* device = nullptr;
  std::vector<Buffer> keys;  ///< of each lane
  std::vector<Lane> lanes;
  uint64_t rows = 0;
};

/// Finds the match ranges of all parts on the devices.
class MergeMatcher {
 public:
  MergeMatcher(Engine& engine, const std::vector<Device*>& devices, TupleLayout build_layout, TupleView build,
               TupleLayout probe_layout, TupleView probe, const MergePath& path, Job& job)
      : engine_(engine),
        build_layout_(build_layout),
        probe_layout_(probe_layout),
        build_(build),
        probe_(probe),
        path_(path),
        job_(job),
        lists_(path.parts.size()) {
    for (Device* device : devices) {
      Pipeline& pipeline = pipelines_.emplace_back();
      pipeline.device = device;
    }
  }

  ~MergeMatcher() {
    for (Pipeline& pipeline : pipelines_) {
      for (Lane& lane : pipeline.lanes) lane.stream.reset();  // before any memory that its work uses
    }
  }

  /// Device g joins parts [g * per_device, (g + 1) * per_device).
  void run(size_t per_device, size_t device_bytes) {
    for (Pipeline& pipeline : pipelines_) start(pipeline, device_bytes);
    for (size_t step = 0; step < per_device; ++step) {
      for (size_t g = 0; g < pipelines_.size(); ++g) {
        const size_t part = g * per_device + step;
        if (part >= path_.parts.size()) continue;
        Lane& lane = pipelines_[g].lanes[step % kStreams];
        finish(lane);
        issue(pipelines_[g], step % kStreams, part);
      }
    }
    for (Pipeline& pipeline : pipelines_) {
      for (Lane& lane : pipeline.lanes) finish(lane);
    }
  }

  std::vector<MatchList> take_lists() { return std::move(lists_); }

  double skew() const {
    uint64_t most = 0, all = 0;
    for (const Pipeline& pipeline : pipelines_) {
      most = std::max(most, pipeline.rows);
      all += pipeline.rows;
    }
    return all ? static_cast<double>(most) * static_cast<double>(pipelines_.size()) / static_cast<double>(all) : 1;
  }

 private:
  void start(Pipeline& pipeline, size_t device_bytes) {
    StackAllocator& memory = pipeline.device->memory();
    if (!pipeline.device->addresses_host_memory()) {
      memory.reserve(device_bytes);
      for (size_t i = 0; i < kStreams; ++i) pipeline.keys.push_back(memory.allocate(device_bytes / kStreams));
    }
    pipeline.lanes.resize(kStreams);
    for (Lane& lane : pipeline.lanes) lane.stream = pipeline.device->create_stream();
  }

  void issue(Pipeline& pipeline, size_t lane_index, size_t index) {
    const Part& part = path_.parts[index];
    const uint64_t most = std::min(part.build_rows(), part.probe_rows());
    if (most == 0) return job_.add_done(part.build_rows() + part.probe_rows());
    Lane& lane = pipeline.lanes[lane_index];
    // As many as there can be; what was too much goes back when the lane is done, before it takes the next part.
    lane.ranges = engine_.memory->allocate(most * sizeof(MatchRange), "the match ranges of a merge join");
    TupleLayout build_layout = build_layout_, probe_layout = probe_layout_;
    build_layout.value_bytes = probe_layout.value_bytes = 0;
    TupleView build = build_.slice(build_layout_, part.build_begin, part.build_end);
    TupleView probe = probe_.slice(probe_layout_, part.probe_begin, part.probe_end);
    build.values = probe.values = nullptr;
    Device& device = *pipeline.device;
    if (!device.addresses_host_memory()) {
      char* const keys = pipeline.keys[lane_index].as<char>();
      const size_t build_bytes = build.size * build_layout.key_bytes;
      device.copy(keys, build.keys, build_bytes, *lane.stream);
      build.keys = keys;
      char* const probe_keys = keys + StackAllocator::aligned(build_bytes);
      device.copy(probe_keys, probe.keys, probe.size * probe_layout.key_bytes, *lane.stream);
      probe.keys = probe_keys;
    }
    device.primitives().match_ranges(build_layout, build, probe_layout, probe, lane.ranges.as<MatchRange>(), &lane.count, nullptr,
                                     job_, *lane.stream);
    lane.part = index;
    pipeline.rows += build.size + probe.size;
  }

  void finish(Lane& lane) {
    if (!lane.part) return;
    lane.stream->synchronize();
    const Part& part = path_.parts[*lane.part];
    if (lane.count) {
      lane.ranges.shrink(lane.count * sizeof(MatchRange));
      lists_[*lane.part] = {std::move(lane.ranges), lane.count, part.build_begin, part.probe_begin};
    }
    lane.ranges = HostBuffer();
    lane.part.reset();
    job_.add_done(part.build_rows() + part.probe_rows());
  }

  Engine& engine_;
  const TupleLayout build_layout_, probe_layout_;
  const TupleView build_, probe_;
  const MergePath& path_;
  Job& job_;
  std::vector<MatchList> lists_;
  std::vector<Pipeline> pipelines_;
};

JoinRows join_exact(Engine& engine, const SortedRun& left, const SortedRun& right, const JoinKeys& keys,
                    const JoinRequest& request, const MergeJoinPlan& plan, Job& job) {
  const std::vector<Device*> devices = engine.select(plan.devices);
  if (devices.empty()) throw Error(ErrorCode::option, "A merge join needs at least one device");
  if (plan.subpartitions < kStreams) {
    throw Error(ErrorCode::option,
                "Subpartitions of a merge join: expected at least 3 but received " + std::to_string(plan.subpartitions));
  }
  const SortedRun &build = request.build_left ? left : right, &probe = request.build_left ? right : left;
  job.add_planned(2 * (build.size + probe.size));
  const size_t parts = devices.size() * plan.subpartitions;
  MergePath path;
  std::vector<MatchList> lists;
  double skew = 1;
  {
    const PhaseTimer timer(job, "match", build.size * build.layout.key_bytes + probe.size * probe.layout.key_bytes);
    path = build.layout.key_bytes == 4 ? cut_path<uint32_t>(build.view(), probe.view(), parts)
                                       : cut_path<uint64_t>(build.view(), probe.view(), parts);
    MergeMatcher matcher(engine, devices, build.layout, build.view(), probe.layout, probe.view(), path, job);
    matcher.run(plan.subpartitions,
                merge_join_device_bytes(build.layout, build.size, probe.layout, probe.size, devices.size(), plan.subpartitions));
    skew = matcher.skew();
    std::vector<MatchList> found = matcher.take_lists();
    for (size_t i = 0; i < found.size(); ++i) {
      lists.push_back(std::move(found[i]));
      if (i == path.at_cut.size()) continue;
      const MatchRange& at = path.at_cut[i];
      job.add_done(at.build_end - at.build_begin + at.probe_end - at.probe_begin);
      if (at.build_begin == at.build_end || at.probe_begin == at.probe_end) continue;
      MatchList& list = lists.emplace_back();
      list.ranges = engine.memory->allocate(sizeof(MatchRange), "the match ranges of a merge join");
      *list.ranges.as<MatchRange>() = at;
      list.count = 1;
    }
  }
  const MatchLists matches(engine, std::move(lists), request.build_left, job);
  const JoinSections sections = join_sections(keys, request.kind, matches.counts());
  JoinRows rows = make_rows(engine, keys, request, sections, job);
  rows.skew = skew;
  if (!request.count_only) {
    const auto at = [](const HostBuffer& column, TupleLayout layout, uint64_t row) -> void* {
      return column ? column.as<char>() + row * layout.value_bytes : nullptr;
    };
    const PhaseTimer timer(job, "write", rows.keys.size() + rows.left.size() + rows.right.size());
    if (sections.pairs) {
      matches.write_pairs(left.layout, left.view(), right.layout, right.view(), rows.keys ? rows.keys.data() : nullptr,
                          rows.left ? rows.left.data() : nullptr, rows.right ? rows.right.data() : nullptr, job);
    }
    if (sections.left) {
      matches.write_alone(true, request.kind == JoinKind::semi, left.layout, left.view(),
                          at(rows.left, left.layout, sections.left_begin()), job);
    }
    if (sections.right) {
      matches.write_alone(false, false, right.layout, right.view(), at(rows.right, right.layout, sections.right_begin()), job);
    }
  }
  job.add_done(build.size + probe.size);
  return rows;
}

}  // namespace

JoinRows merge_join(Engine& engine, const SortedRun& left, const SortedRun& right, const JoinKeys& keys, JoinColumns columns,
                    const JoinRequest& request, const MergeJoinPlan& plan, Job& job) {
  check_request(keys, request);
  if (keys.exact) return join_exact(engine, left, right, keys, request, plan, job);
  return resolve_pairs(engine, keys, request, join_exact(engine, left, right, keys, candidate_request(request), plan, job),
                       column_verifier(columns, engine, job), job);
}

size_t merge_join_device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout, uint64_t probe_rows, size_t devices,
                               uint32_t subpartitions) {
  const uint64_t rows = part_rows(build_rows, probe_rows, devices * subpartitions);
  return kStreams * StackAllocator::aligned(key_bytes_on_device(build, rows));
}

}  // namespace warpjoin
