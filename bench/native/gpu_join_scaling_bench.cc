// Joins on several GPUs, each beside what bounds it in the same run:
//
//   warpjoin_gpu_join_scaling_bench [--resident N] [--b N] [--a N] [--merge N] [--home N] [--ooc N] [--ooc-a N] [--skew N]
//   [--spill N] [--limit BYTES] [--runs N] [--json FILE]
//
// Resident: 2^27 tuples a side a GPU (N; 0: not at all), 8-byte keys and payloads, unique build keys, each probe tuple with a
// match, from device memory to device memory, key and both payloads written. On 1, 2, 4 and 8 GPUs, compared with as many times
// the rate of one; the floor of the exchange is the bytes that cross over what the links among the GPUs carry together.
//
// From pinned host memory, on all GPUs: workloads B (N = 2x10^9 tuples a side, 8-byte keys and payloads) and A (N = 10^10 probe
// tuples, a tenth as many build tuples, 4-byte keys and payloads) of "Efficiently Joining Large Relations on Multi-GPU Systems",
// section 4.1. Unique build keys, each with as many matches. A hash join whose result, both payloads of each pair, stays in
// device memory; one that counts; and, with --merge 1 (0: not), a sort-merge join that counts. The floor is the bytes of the
// tuples, or of the keys where pairs are counted, over the host-to-device ceiling, the best of those before and after each.
// Where the devices do not hold the join and its result, joins run as the engine runs them: in rounds, if need be, and with the
// result in pinned host memory. Their names say so, and their floor is that of these passes, as below.
//
// Home: workload B of N = 2.5x10^8 tuples a side (0: not at all), from host memory to host memory, on all GPUs. The result, both
// payloads of each pair, goes to host memory, or pairs are counted; all of it is pinned, or in ordinary memory. The floor is the
// build side to the devices, and then the probe side while the result goes home.
//
// Out of core: the same, each GPU with its share of the memory that the build side alone takes, or with --limit bytes, in as few
// rounds as that holds. The floor is the build side, the probe side and what was spilled, each with what goes home meanwhile
// (passes_of). All of it is pinned, or in ordinary memory. With --ooc-a N (0: not) workload A of N probe tuples, too.
//
// Skewed: the same of N tuples a side (0: not at all), beside which keys of one side are drawn: by Zipf's law with exponent 1; or
// one of two tuples has a key whose partition is the first of all, or the last. The other side has each key once, and is the
// build side, or the probe side. All of it is in ordinary memory. The floor is that of even keys.
//
// Spilling: the same of N tuples a side (0: not at all), pinned, in 2, 4, 8, 16 and 32 rounds. A round has 32 partitions, so that
// joins that spill make 64 and more. The first round joins a part of them, and the rest is spilled. The floors are those of what
// is spilled: the first pass partitions the build side and spills it, and has nothing else to do.
//
// After the last run every row is checked on the host: that its payloads are partners, and the sums of both.
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>

#include "device/gpu_device.h"
#include "device/streams.h"
#include "gpu_bench.h"
#include "join/join.h"
#include "join/resident_join.h"
#include "join/streamed_shape.h"
#include "plans.h"
#include "several_gpus.h"
#include "sort/sort.h"
#include "transfer/arrival.h"

namespace warpjoin {
namespace {

struct Options {
  uint64_t resident = uint64_t{1} << 27, b = 2'000'000'000, a = 10'000'000'000, home = 250'000'000, ooc = 250'000'000, ooc_a = 0,
           skew = 0, spill = 0, limit = 0;
  unsigned merge = 1, runs = 3;
  std::string json;
};

/// Unique for unique numbers, and scattered over all keys.
uint64_t key_of(uint64_t number, uint8_t bytes) {
  return bytes == 4 ? static_cast<uint32_t>(number * 0x9E3779B1 + 12345) : mix_key(number * 0xBF58476D1CE4E5B9 + 12345);
}

/// How often the probe side has a key.
enum class Keys : uint8_t { even, zipf, hot_first, hot_last };

/// Build tuple i has key_of(i) and payload i; probe tuple j the key of its partner and payload j, cut to its width.
struct Workload {
  uint8_t bytes;  ///< of keys and of payloads
  uint64_t build, probe;
  uint64_t factor;
  Keys keys = Keys::even;
  uint64_t hot = 0;  ///< the build tuple whose key every other probe tuple has, where one is hot

  /// `probe` is a multiple of `build`, and both are even.
  Workload(uint8_t bytes, uint64_t build, uint64_t probe) : bytes(bytes), build(build), probe(probe) {
    factor = static_cast<uint64_t>(static_cast<double>(probe) * 0.6180339887498949) | 1;
    while (std::gcd(factor, probe) != 1) factor += 2;
  }
  Workload(uint8_t bytes, uint64_t build, uint64_t probe, Keys drawn) : Workload(bytes, build, probe) {
    keys = drawn;
    const uint64_t part = drawn == Keys::hot_last ? 0xFFF : 0;
    while (mix_key(key_of(hot, bytes)) >> 52 != part) ++hot;
  }

  TupleLayout layout() const { return {bytes, bytes}; }
  uint64_t words() const { return (build + probe) * 2 * bytes / 8; }
  uint64_t partner(uint64_t j) const {
    if (keys == Keys::zipf) {  // the inverse of its distribution, as if ranks were dense
      const double share = static_cast<double>(mix_key(j) >> 11) * 0x1p-53;
      return std::min(build, static_cast<uint64_t>(std::exp(share * std::log(static_cast<double>(build) + 1)))) - 1;
    }
    if (keys != Keys::even && j % 2) return hot;
    // A permutation of the probe tuples, folded: each build tuple has as many.
    return static_cast<uint64_t>(static_cast<unsigned __int128>(j) * factor % probe) % build;
  }
  /// Element e of the columns, one behind the other: build keys, build payloads, probe keys, probe payloads.
  uint64_t element(uint64_t e) const {
    if (e < build) return key_of(e, bytes);
    if ((e -= build) < build) return e;
    if ((e -= build) < probe) return key_of(partner(e), bytes);
    return e - probe;
  }
  void fill(ThreadPool& pool, const Pinned& memory) const {
    warpjoin::fill(pool, memory, [this](uint64_t i) {
      return bytes == 8 ? element(i) : (element(2 * i) & 0xFFFFFFFF) | element(2 * i + 1) << 32;
    });
  }

  /// Rows [begin, end) of a side in filled memory.
  TupleView view(const Pinned& memory, bool of_build, uint64_t begin, uint64_t end) const {
    const auto* keys = reinterpret_cast<const char*>(memory.at(0)) + (of_build ? 0 : 2 * build * bytes);
    const uint64_t size = of_build ? build : probe;
    return TupleView{keys, keys + size * bytes, 0, size}.slice(layout(), begin, end);
  }

  /// Sums of the payloads of all pairs, modulo 2^64.
  uint64_t build_sum() const {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(build) * (build - 1) / 2) * (probe / build);
  }
  uint64_t probe_sum() const {
    const auto below = [](uint64_t n) { return static_cast<uint64_t>(static_cast<unsigned __int128>(n) * (n - 1) / 2); };
    if (bytes == 8 || probe == 0) return below(probe);
    const uint64_t cycle = uint64_t{1} << 32;
    return below(cycle) * (probe / cycle) + (probe % cycle ? below(probe % cycle) : 0);
  }
};

/// Looks at rows, some at a time, in any order.
class RowCheck {
 public:
  explicit RowCheck(const Workload& load) : load_(load) {}

  /// `size` rows in host memory; `keys` may be null.
  void look(ThreadPool& pool, const void* build_values, const void* probe_values, const void* keys, uint64_t size) {
    const auto at = [&](const void* column, uint64_t i) {
      uint64_t value = 0;
      std::memcpy(&value, static_cast<const char*>(column) + i * load_.bytes, load_.bytes);
      return value;
    };
    pool.for_blocks(size, uint64_t{1} << 16, Job(), [&](uint64_t first, uint64_t last) {
      uint64_t builds = 0, probes = 0, bad = 0;
      for (uint64_t i = first; i < last; ++i) {
        const uint64_t build = at(build_values, i), probe = at(probe_values, i);
        builds += build, probes += probe;
        bool found = false;  // a payload of 4 bytes stands for several rows
        for (uint64_t j = probe; j < load_.probe && !found; j += uint64_t{1} << 32) found = load_.partner(j) == build;
        bad += !found || (keys && at(keys, i) != key_of(build, load_.bytes));
      }
      build_sum_ += builds, probe_sum_ += probes, wrong_ += bad;
    });
    rows_ += size;
  }
  bool right() const {
    // Where keys are drawn, the sum of build payloads follows from those of the probe side.
    const bool builds = load_.keys != Keys::even || build_sum_ == load_.build_sum();
    return rows_ == load_.probe && wrong_ == 0 && builds && probe_sum_ == load_.probe_sum();
  }

 private:
  const Workload& load_;
  uint64_t rows_ = 0;
  std::atomic<uint64_t> build_sum_{0}, probe_sum_{0}, wrong_{0};
};

/// Brings all rows home, bit by bit, and looks at each.
bool right(Engine& engine, const std::vector<Device*>& devices, const Workload& load, const ResidentRows& rows) {
  constexpr uint64_t kRows = uint64_t{1} << 24;  // of each device at a time
  const uint8_t width = load.bytes;
  const HostBuffer host = engine.memory->allocate(devices.size() * 3 * kRows * width, "rows to check");
  RowCheck check(load);
  uint64_t most = 0;
  for (const auto& chunk : rows.chunks) most = std::max(most, chunk.size);
  for (uint64_t begin = 0; begin < most; begin += kRows) {
    std::vector<HostQueue> queues;
    const auto home = [&](size_t d, size_t column) { return host.as<char>() + (3 * d + column) * kRows * width; };
    const auto size_at = [&](size_t d) { return std::min(kRows, std::max(rows.chunks[d].size, begin) - begin); };
    for (size_t d = 0; d < devices.size(); ++d) {
      const Buffer* const columns[] = {&rows.chunks[d].left, &rows.chunks[d].right, &rows.chunks[d].keys};
      HostCopy copy;
      for (size_t c = 0; c < 3; ++c) {
        if (*columns[c]) copy.stretches.push_back({home(d, c), columns[c]->as<char>() + begin * width, size_at(d) * width});
      }
      queues.push_back({devices[d], HostQueue::Direction::to_host, {std::move(copy)}, 1, {}});
    }
    transfer(engine, queues, Job());
    for (size_t d = 0; d < devices.size(); ++d) {
      check.look(engine.pool, home(d, 0), home(d, 1), rows.chunks[d].keys ? home(d, 2) : nullptr, size_at(d));
    }
  }
  return check.right();
}

std::vector<Device*> first_devices(Engine& engine, size_t count) {
  std::vector<Device*> devices;
  for (size_t d = 0; d < count; ++d) devices.push_back(engine.devices[d].get());
  return devices;
}

/// What the links among the devices carry while each sends to all others, in bytes a second: the best of three.
double all_to_all(const std::vector<Device*>& devices) {
  constexpr size_t kBytes = size_t{256} << 20;  // from each to each
  const size_t g = devices.size();
  std::vector<Buffer> from, to;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<Stream*> all;
  for (Device* device : devices) {
    device->memory().release();
    device->memory().reserve(2 * g * kBytes);
    from.push_back(device->memory().allocate(g * kBytes));
    to.push_back(device->memory().allocate(g * kBytes));
    all.push_back(streams.emplace_back(device->create_stream()).get());
  }
  double least = 0;
  for (int run = 0; run < 4; ++run) {
    const double took = milliseconds_of([&] {
      for (size_t step = 1; step < g; ++step) {
        for (size_t d = 0; d < g; ++d) {
          const size_t owner = (d + step) % g;
          devices[d]->copy_to_peer(to[owner].as<char>() + d * kBytes, *devices[owner], from[d].as<char>() + owner * kBytes,
                                   kBytes, *streams[d]);
        }
      }
      synchronize_all(all);
    });
    if (run > 0) least = run == 1 ? took : std::min(least, took);
  }
  return static_cast<double>(kBytes * g * (g - 1)) / least * 1e3;
}

void measure_resident(Engine& engine, const Options& options, Report& report) {
  double alone = 0;
  for (size_t g = 1; g <= engine.devices.size(); g *= 2) {
    const std::vector<Device*> devices = first_devices(engine, g);
    const Workload load(8, options.resident * g, options.resident * g);
    const TupleLayout layout = load.layout();
    const double links = g > 1 ? all_to_all(devices) : 0;
    const double floor = g > 1 ? 1e3 * static_cast<double>(2 * load.build * layout.tuple_bytes()) * static_cast<double>(g - 1) /
                                     static_cast<double>(g) / links
                               : 0;
    const JoinRequest request{.want_keys = true};
    const size_t beside = resident_hash_join_device_bytes(layout, load.build, layout, load.probe, g, request, engine);
    std::vector<OwnedTuples> tuples;
    ResidentRelation sides[2];
    std::vector<HostQueue> queues;
    const Pinned host(*devices[0], load.words() * 8);
    load.fill(engine.pool, host);
    for (size_t d = 0; d < g; ++d) {
      Device& device = *devices[d];
      device.memory().release();
      // The relations, a result with some more rows than the mean, and the join with room for its parts.
      device.memory().reserve(
          std::min(device.memory().limit_bytes(), options.resident * (2 * 16 + 24 + 6) + beside + beside / 4));
      HostCopy copy;
      for (const bool build : {true, false}) {
        const TupleView view = load.view(host, build, options.resident * d, options.resident * (d + 1));
        const OwnedTuples& chunk = tuples.emplace_back(device.memory(), layout, view.size);
        for (HostCopy::Stretch& stretch : host_copy(layout, chunk.span, view, nullptr).stretches)
          copy.stretches.push_back(stretch);
        sides[build ? 0 : 1].layout = layout;
        sides[build ? 0 : 1].chunks.push_back(chunk.span.view());
      }
      queues.push_back({&device, HostQueue::Direction::to_device, {std::move(copy)}, 1, {}});
    }
    transfer(engine, queues, Job());
    std::vector<double> milliseconds;
    std::string phases;
    bool good = true;
    for (unsigned run = 0; run <= options.runs; ++run) {
      Job job;
      ResidentRows rows;
      const double took = milliseconds_of([&] { rows = resident_hash_join(engine, devices, sides[0], sides[1], request, job); });
      if (run > 0) milliseconds.push_back(took);
      if (run == options.runs) good = right(engine, devices, load, rows);
      phases = phases_of(job);
    }
    report.wrong = report.wrong || !good;
    const Times times = times_of(milliseconds);
    if (g == 1) alone = times.median;
    std::printf(
        "resident %zu GPUs  %7.2f ms (%.2f to %.2f)  %.2f G tuples/s, %.0f %% of as many single ones; exchange at least %.2f ms "
        "(%.0f GB/s)  %s  [%s]\n",
        g, times.median, times.least, times.most, static_cast<double>(load.build + load.probe) / times.median / 1e6,
        100 * alone / times.median, floor, links / 1e9, good ? "right" : "WRONG", phases.c_str());
    std::fflush(stdout);
    report.rows.push_back("{\"join\": \"resident\", \"tuples\": " + std::to_string(load.build + load.probe) +
                          ", \"keyBytes\": 8, \"valueBytes\": 8, \"gpus\": " + std::to_string(g) + ", \"milliseconds\": " +
                          json_of(times) + ", \"shareOfSingleRate\": " + std::to_string(alone / times.median) +
                          ", \"exchangeFloorMilliseconds\": " + std::to_string(floor) +
                          ", \"right\": " + (good ? "true" : "false") + ", \"phases\": {" + phases + "}}");
  }
  for (const auto& device : engine.devices) device->memory().release();
}

/// Bytes that go over the links at the same time.
struct Pass {
  const char* name;
  uint64_t there, home;

  double floor_milliseconds(const Ceilings& best) const {
    const auto in = static_cast<double>(there), out = static_cast<double>(home);
    return 1e3 * std::max({in / best.h2d, out / best.d2h, out ? (in + out) / best.both : 0});
  }
  std::string json(const Ceilings& best) const {
    return std::string("{\"name\": \"") + name + "\", \"bytesThere\": " + std::to_string(there) +
           ", \"bytesHome\": " + std::to_string(home) + ", \"floorMilliseconds\": " + std::to_string(floor_milliseconds(best)) +
           "}";
  }
};

/// Of a hash join into host memory that spills this share of both sides. Rows go home while the probe side comes.
std::vector<Pass> passes_of(const Workload& load, bool count_only, double spilled) {
  const uint64_t tuple_bytes = load.bytes * (count_only ? 1 : 2);
  const uint64_t build = load.build * tuple_bytes, probe = load.probe * tuple_bytes;
  const uint64_t home = count_only ? 0 : 2 * load.probe * load.bytes;
  const auto spilled_of = [&](uint64_t bytes) { return static_cast<uint64_t>(spilled * static_cast<double>(bytes)); };
  std::vector<Pass> passes{{"build side", build, spilled_of(build)},
                           {"probe side and rows", probe, spilled_of(probe) + home - spilled_of(home)}};
  if (spilled > 0) passes.push_back({"spilled partitions", spilled_of(build + probe), spilled_of(home)});
  return passes;
}

/// With `budget` bytes of memory on each device, which spill what they can't keep: three quarters of their memory hold build
/// tuples, at 1.15 times their size, as they are joined.
std::vector<Pass> passes_of(const Workload& load, size_t devices, bool count_only, size_t budget) {
  const double kept = 0.75 / 1.15 * static_cast<double>(devices) * static_cast<double>(budget);
  const auto build = static_cast<double>(load.build * load.bytes * (count_only ? 1 : 2));
  return passes_of(load, count_only, std::max(0.0, 1 - kept / build));
}

double floor_of(const std::vector<Pass>& passes, const Ceilings& best) {
  double floor = 0;
  for (const Pass& pass : passes) floor += pass.floor_milliseconds(best);
  return floor;
}

std::string json_of(const std::vector<Pass>& passes, const Ceilings& best) {
  std::string json;
  for (const Pass& pass : passes) json += (json.empty() ? "" : ", ") + pass.json(best);
  return "[" + json + "]";
}

/// One of the joins of a workload, and what it took.
struct Case {
  std::string algorithm;
  const char* memory;  ///< where the result is
  uint32_t rounds;
  std::vector<Pass> passes;
  /// `check`: every row.
  std::function<bool(Job& job, bool check, double& milliseconds)> run;
  std::vector<double> milliseconds = {};
  std::string phases = {};
  bool good = true;

  /// After a warm-up. Every row of the last run is checked.
  void measure(unsigned runs) {
    for (unsigned turn = 0; turn <= runs; ++turn) {
      Job job;
      double took = 0;
      good = run(job, turn == runs, took) && good;
      if (turn > 0) milliseconds.push_back(took);
      phases = phases_of(job);
    }
  }
};

/// Prints and notes a case of workload `name`. `more`: members of its JSON object.
void report_case(const std::string& join, const std::string& name, const Case& of, const Workload& load, const Ceilings& best,
                 const std::string& more, Report& report) {
  report.wrong = report.wrong || !of.good;
  const size_t gpus = best.devices.size();
  const Times times = times_of(of.milliseconds);
  const double floor = floor_of(of.passes, best);
  std::printf(
      "%s, %-14s %-13s %zu GPUs  %llu join %llu  %u rounds  %7.1f ms (%.1f to %.1f)  floor %7.1f ms  ratio %.3f  "
      "%6.2f G tuples/s  %s  [%s]\n",
      name.c_str(), of.algorithm.c_str(), of.memory, gpus, static_cast<unsigned long long>(load.build),
      static_cast<unsigned long long>(load.probe), of.rounds, times.median, times.least, times.most, floor, times.median / floor,
      static_cast<double>(load.build + load.probe) / times.median / 1e6, of.good ? "right" : "WRONG", of.phases.c_str());
  std::fflush(stdout);
  report.rows.push_back("{\"join\": \"" + join + "\", \"algorithm\": \"" + of.algorithm + "\", \"memory\": \"" + of.memory +
                        "\", \"build\": " + std::to_string(load.build) + ", \"probe\": " + std::to_string(load.probe) +
                        ", \"keyBytes\": " + std::to_string(load.bytes) + ", \"valueBytes\": " + std::to_string(load.bytes) +
                        ", \"gpus\": " + std::to_string(gpus) + ", \"rounds\": " + std::to_string(of.rounds) + more +
                        ", \"milliseconds\": " + json_of(times) + ", \"passes\": " + json_of(of.passes, best) +
                        ", \"floorMilliseconds\": " + std::to_string(floor) +
                        ", \"ratioToFloor\": " + std::to_string(times.median / floor) +
                        ", \"right\": " + (of.good ? "true" : "false") + ", \"phases\": {" + of.phases + "}}");
}

/// Of a hash join by `plan`.
streaming::Shape shape_of(Engine& engine, const Workload& load, const JoinKeys& keys, const HashJoinPlan& plan,
                          const JoinRequest& request) {
  const std::vector<Device*> devices = engine.select(plan.devices);
  const TupleLayout layout = load.layout();
  const streaming::Shape whole(layout, load.build, layout, load.probe, request, devices.size());
  const TupleView *build = &keys.left.tuples.view, *probe = &keys.right.tuples.view;
  if (!request.build_left) std::swap(build, probe);
  return streaming::shape_for(devices, plan.rounds > 1 ? whole.with_samples_of(*build, *probe) : whole, plan.rounds);
}

/// What a hash join takes at once of host memory: the columns of its result, and of what lies there between its rounds.
std::vector<size_t> host_blocks(const Workload& load, const streaming::Shape& shape) {
  std::vector<size_t> blocks(shape.count_only ? 0 : 2, load.probe * load.bytes);
  if (!shape.spills()) return blocks;
  for (const bool of_build : {true, false}) {
    for (size_t column = 0; column < (shape.count_only ? 1 : 2); ++column) {
      blocks.push_back(shape.spilled_rows(of_build) * load.bytes);
    }
  }
  return blocks;
}

SortedRun sort_side(Engine& engine, const std::vector<Device*>& devices, TupleLayout layout, const TupleView& tuples, Job& job) {
  const SortPlan plan = bench::sort_plan(engine, devices, layout, tuples.size);
  return merge_runs(engine, sort_chunksets(engine, layout, tuples, ~uint64_t{0}, plan, job), job);
}

/// The pairs of a sort-merge join: in the devices' joint memory where that is possible, else by way of sorted runs.
uint64_t count_by_sorting(Engine& engine, const std::vector<Device*>& devices, const JoinKeys& keys, Job& job) {
  const JoinRequest request{.count_only = true};
  const EncodedTuples &left = keys.left.tuples, &right = keys.right.tuples;
  const bool direct = std::all_of(devices.begin(), devices.end(), [&](const Device* device) {
    return std::all_of(devices.begin(), devices.end(), [&](const Device* peer) { return device->addresses_peer(*peer); });
  });
  const size_t joint =
      sort_merge_join_device_bytes(left.layout, left.view.size, right.layout, right.view.size, devices.size(), request, engine);
  if (direct && joint <= bench::device_budget(devices)) {
    return sort_merge_join(engine, keys, request, bench::ordinals_of(devices), job).size;
  }
  const SortedRun sorted_left = sort_side(engine, devices, left.layout, left.view, job);
  const SortedRun sorted_right = sort_side(engine, devices, right.layout, right.view, job);
  const MergeJoinPlan plan = bench::merge_join_plan(engine, devices, keys);
  return merge_join(engine, sorted_left.view(), sorted_right.view(), keys, request, plan, job).size;
}

/// The sides of a workload in filled memory, build side left.
JoinKeys keys_of(const Workload& load, const Pinned& in) {
  JoinKeys keys;
  keys.left.tuples.layout = keys.right.tuples.layout = load.layout();
  keys.left.tuples.view = load.view(in, true, 0, load.build);
  keys.right.tuples.view = load.view(in, false, 0, load.probe);
  keys.left.rows = load.build;
  keys.right.rows = load.probe;
  keys.left.carries_payload = keys.right.carries_payload = true;
  return keys;
}

/// A hash join into host memory, by `plan` for devices of `budget` bytes.
Case home_case(Engine& engine, std::string algorithm, const char* memory, const Workload& load, const JoinKeys& keys,
               const JoinRequest& request, const HashJoinPlan& plan, size_t budget) {
  const auto run = [&engine, &load, &keys, request, plan](Job& job, bool check, double& milliseconds) {
    JoinRows rows;
    milliseconds = milliseconds_of([&] { rows = hash_join(engine, keys, request, plan, job); });
    if (rows.size != load.probe) return false;
    if (request.count_only || !check) return true;
    RowCheck rows_seen(load);
    rows_seen.look(engine.pool, rows.left.data(), rows.right.data(), nullptr, rows.size);
    return rows_seen.right();
  };
  return {std::move(algorithm), memory, plan.rounds, passes_of(load, plan.devices.size(), request.count_only, budget), run};
}

void measure_pinned(Engine& engine, const char* name, const Workload& load, const Options& options, Report& report) {
  const std::vector<Device*> devices = first_devices(engine, engine.devices.size());
  Pinned in(*devices[0], load.words() * 8), out(*devices[0], std::min(load.words() * 8, devices.size() << 31));
  load.fill(engine.pool, in);
  fill(engine.pool, out, [](uint64_t) { return 0; });
  in.pin();
  out.pin();
  std::printf("pinned %.1f GB\n", static_cast<double>(load.words()) * 8 / 1e9);
  const JoinKeys keys = keys_of(load, in);
  const uint64_t key_bytes = (load.build + load.probe) * load.bytes;
  const auto in_rounds = [](std::string algorithm, const HashJoinPlan& plan) {
    return plan.rounds > 1 ? algorithm + " in " + std::to_string(plan.rounds) + " rounds" : algorithm;
  };
  std::vector<Case> cases;
  const size_t budget = bench::device_budget(devices);
  const HashJoinPlan plan = bench::hash_join_plan(engine, devices, keys, {}, budget);
  const KeptMemory kept(engine, host_blocks(load, shape_of(engine, load, keys, plan, {})), true);
  cases.push_back(home_case(engine, in_rounds("hash, payloads", plan), "pinned", load, keys, {}, plan, budget));
  const JoinRequest count{.count_only = true};
  const HashJoinPlan count_plan = bench::hash_join_plan(engine, devices, keys, count, budget);
  cases.push_back(home_case(engine, in_rounds("hash, count", count_plan), "device", load, keys, count, count_plan, budget));
  if (options.merge) {
    const auto run = [&](Job& job, bool, double& milliseconds) {
      uint64_t pairs = 0;
      milliseconds = milliseconds_of([&] { pairs = count_by_sorting(engine, devices, keys, job); });
      return pairs == load.probe;
    };
    cases.push_back({"sort-merge, count", "device", 1, {{"arrive", key_bytes, 0}}, run});
  }
  Ceilings best{devices};
  best.measure(engine, in, out);
  for (Case& each : cases) {
    each.measure(options.runs);
    best.measure(engine, in, out);
  }
  std::printf("%zu GPUs: H2D %.1f, D2H %.1f, both %.1f GB/s\n", devices.size(), best.h2d / 1e9, best.d2h / 1e9, best.both / 1e9);
  const std::string workload = std::string(", \"workload\": \"") + name + "\"";
  for (const Case& each : cases) report_case("pinned", std::string("pinned ") + name, each, load, best, workload, report);
}

/// A join into host memory, and where its input and result are.
struct HomeCase {
  bool pinned;
  JoinRequest request;
  uint32_t rounds = 0;  ///< 0: as few as fit
};

/// `config`: of the engines that join. `more`: members of the cases' JSON objects.
void measure_home(Engine& whole, const EngineConfig& config, const std::string& name, const Workload& load,
                  const std::vector<HomeCase>& joins, const std::string& more, const Options& options, Report& report) {
  const std::vector<Device*> devices = first_devices(whole, whole.devices.size());
  Pinned in(*devices[0], load.words() * 8), out(*devices[0], std::min(load.words() * 8, devices.size() << 31));
  load.fill(whole.pool, in);
  fill(whole.pool, out, [](uint64_t) { return 0; });
  in.pin();
  out.pin();
  const JoinKeys keys = keys_of(load, in);
  Ceilings best{devices};
  std::vector<Case> cases;
  for (const HomeCase& join : joins) {
    Engine engine(config);
    const std::vector<Device*> own = first_devices(engine, engine.devices.size());
    const size_t budget = bench::device_budget(own);
    HashJoinPlan plan = bench::hash_join_plan(engine, own, keys, join.request, budget);
    if (join.rounds) plan.rounds = join.rounds;
    const streaming::Shape shape = shape_of(engine, load, keys, plan, join.request);
    const KeptMemory kept(engine, host_blocks(load, shape), join.pinned);
    Case each = home_case(engine, join.request.count_only ? "hash, count" : "hash, payloads", join.pinned ? "pinned" : "ordinary",
                          load, keys, join.request, plan, budget);
    if (join.rounds) {
      const double spilled = static_cast<double>(shape.spilled().size()) / shape.partitions();
      each.passes = passes_of(load, join.request.count_only, spilled);
    }
    best.measure(whole, in, out);
    if (!join.pinned) in.unpin();
    each.measure(options.runs);
    each.run = nullptr;  // it refers to this engine
    cases.push_back(std::move(each));
    in.pin();
  }
  best.measure(whole, in, out);
  std::printf("%zu GPUs: H2D %.1f, D2H %.1f, both %.1f GB/s\n", devices.size(), best.h2d / 1e9, best.d2h / 1e9, best.both / 1e9);
  const std::string limit = ", \"deviceLimitBytes\": " + std::to_string(config.device_memory_limit_bytes);
  for (const Case& each : cases) report_case(name, name, each, load, best, limit + more, report);
}

/// Payloads and a count, from pinned and from ordinary memory.
const std::vector<HomeCase> kHomeCases{{true, {}}, {true, {.count_only = true}}, {false, {}}, {false, {.count_only = true}}};

/// With as much memory on each device as the build side alone takes of all, or the one given.
EngineConfig out_of_core(EngineConfig config, const Workload& load, const Options& options) {
  config.device_memory_limit_bytes =
      options.limit ? options.limit : load.build * load.layout().tuple_bytes() / config.gpus.size();
  return config;
}

void measure_skewed(Engine& whole, const EngineConfig& config, const Options& options, Report& report) {
  const uint64_t side = options.skew / 2 * 2;
  const auto measure = [&](Keys drawn, const char* keys, bool build_left) {
    const Workload load(8, side, side, drawn);
    const std::string name = std::string(keys) + ", " + (build_left ? "probe" : "build") + " side";
    measure_home(whole, out_of_core(config, load, options), "skewed", load, {{false, {.build_left = build_left}}},
                 ", \"keys\": \"" + name + "\"", options, report);
  };
  measure(Keys::even, "even", true);
  for (const bool build_left : {true, false}) {
    measure(Keys::zipf, "Zipf 1", build_left);
    measure(Keys::hot_first, "hot, in the first partition", build_left);
    measure(Keys::hot_last, "hot, in the last partition", build_left);
  }
}

void measure_spilling(Engine& whole, const EngineConfig& config, const Options& options, Report& report) {
  const uint64_t side = options.spill / 2 * 2;
  std::vector<HomeCase> joins;
  for (const uint32_t rounds : {2, 4, 8, 16, 32}) joins.push_back({true, {}, rounds});
  measure_home(whole, config, "spilling", Workload(8, side, side), joins, "", options, report);
}

int run(const Options& options) {
  EngineConfig config;
  config.host_devices = 0;
  for (const DeviceInfo& gpu : visible_gpus()) config.gpus.push_back(gpu.ordinal);
  config.memory_limit_bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE)) / 2;
  Engine engine(config);
  Report report;
  const auto workload_b = [](uint64_t tuples) { return Workload(8, tuples / 2 * 2, tuples / 2 * 2); };
  const auto workload_a = [](uint64_t tuples) { return Workload(4, tuples / 20 * 2, tuples / 20 * 20); };
  if (options.resident) measure_resident(engine, options, report);
  if (options.b) measure_pinned(engine, "B", workload_b(options.b), options, report);
  const auto measure_out_of_core = [&](const Workload& load) {
    measure_home(engine, out_of_core(config, load, options), "out of core", load, kHomeCases, "", options, report);
  };
  if (options.home) measure_home(engine, config, "home", workload_b(options.home), kHomeCases, "", options, report);
  if (options.ooc) measure_out_of_core(workload_b(options.ooc));
  if (options.ooc_a) measure_out_of_core(workload_a(options.ooc_a));
  if (options.skew) measure_skewed(engine, config, options, report);
  if (options.spill) measure_spilling(engine, config, options, report);
  if (options.a) measure_pinned(engine, "A", workload_a(options.a), options, report);
  return report.write(options.json, engine);
}

}  // namespace
}  // namespace warpjoin

int main(int argc, char** argv) {
  using namespace warpjoin;
  Options options;
  return bench::main_of(argc, argv,
                        {{"--resident", &options.resident, 0},
                         {"--b", &options.b, 0},
                         {"--a", &options.a, 0},
                         {"--merge", &options.merge, 0},
                         {"--home", &options.home, 0},
                         {"--ooc", &options.ooc, 0},
                         {"--ooc-a", &options.ooc_a, 0},
                         {"--skew", &options.skew, 0},
                         {"--spill", &options.spill, 0},
                         {"--limit", &options.limit, 0},
                         {"--runs", &options.runs},
                         {"--json", &options.json}},
                        [&] { return run(options); });
}
