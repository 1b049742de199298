// The primitives of a GPU against the ceiling of its memory: a copy, measured in the same run. A plain program, so that it
// runs on hosts without Google Benchmark: gpu_bench [--json FILE] [--tuples N] [--samples N].
//
// A sample is some calls in a row, from the enqueueing of the first until the results of the last are on the host, so that the
// wait for these is a small part of it; of sorts, which overwrite what they sort, it is one. GB/s count what must be read and
// written once: for a split or sort each tuple twice, for a copy of peer memory each byte once. What the passes of a split move
// is a second figure: they read the keys once more, and by range they also write and read a byte for each tuple. Where hash joins
// group a side, each pass reads and writes all tuples, and groups that were made before are read once more.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/gpu_device.h"
#include "engine/engine.h"
#include "gpu_bench.h"
#include "primitives/hash_groups.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

struct Options {
  uint64_t tuples = uint64_t{1} << 27;
  size_t samples = 9;
  std::string json;
};

struct Bytes {
  double once;       // what must be read and written
  double moved = 0;  // what is, where that is known
};

struct Result {
  std::string name;
  Bytes bytes;
  double median_ms, least_ms, most_ms, copy_gb_per_s;
  double gb_per_s() const { return bytes.once / median_ms * 1e-6; }
  double moved_gb_per_s() const { return bytes.moved / median_ms * 1e-6; }
  double of_copy(double gb_per_s) const { return gb_per_s / copy_gb_per_s; }
};

constexpr unsigned kWarmUps = 2, kCalls = 8;
constexpr uint64_t kParts = 256;
constexpr uint64_t kPartBytes = uint64_t{1} << 20;
constexpr TupleLayout kLayouts[] = {{4, 0}, {4, 4}, {8, 0}, {8, 8}};

std::string name_of(TupleLayout layout) { return std::to_string(layout.key_bytes) + "+" + std::to_string(layout.value_bytes); }

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        engine_({.threads = 2,
                 .host_devices = 0,
                 .gpus = visible_gpus().size() > 1 ? std::vector<int>{0, 1} : std::vector<int>{0},
                 .memory_limit_bytes = size_t{8} << 30}),
        device_(*engine_.devices[0]),
        stream_(device_.create_stream()) {}

  void run() {
    const size_t column = options_.tuples * 8;
    device_.memory().reserve(20 * column + (size_t{2} << 30));
    random_ = device_.memory().allocate(column);
    from_ = {device_.memory().allocate(column), device_.memory().allocate(column)};
    to_ = {device_.memory().allocate(column), device_.memory().allocate(column)};
    fill_randomly();
    measure_copy();
    for (const TupleLayout layout : kLayouts) {
      for (const unsigned buckets : {64, 128, 256}) measure_partition_ranges(layout, buckets);
    }
    for (const TupleLayout layout : kLayouts) {
      measure_partition(layout, {static_cast<uint8_t>(layout.key_bytes * 8 - 8), 8, false});
      measure_partition(layout, {56, 8, true});
      measure_partition(layout, {52, 12, true});
    }
    for (const TupleLayout layout : kLayouts) {
      measure_hash_groups(layout);
      measure_hash_match(layout);
    }
    for (const TupleLayout layout : kLayouts) measure_sort(layout);
    for (const uint8_t key_bytes : {4, 8}) measure_match_ranges(key_bytes);
    measure_gathers({&device_}, "own memory");
    if (engine_.devices.size() > 1 && engine_.topology.link(0, 1).direct) {
      measure_gathers({&device_, engine_.devices[1].get()}, "own memory and a peer's");
    }
    measure_concatenate(device_, "local");
    if (engine_.devices.size() > 1 && engine_.topology.link(0, 1).direct) measure_concatenate(*engine_.devices[1], "peer");
    if (!options_.json.empty()) write_json();
  }

 private:
  struct Columns {
    Buffer keys, values;
    TupleSpan span(TupleLayout layout, uint64_t size) const {
      return {keys.data(), layout.value_bytes ? values.data() : nullptr, size};
    }
  };

  void fill_randomly() {
    std::mt19937_64 random(1);
    std::vector<uint64_t> numbers(options_.tuples);
    for (uint64_t& number : numbers) number = random();
    device_.copy(random_.data(), numbers.data(), numbers.size() * 8, *stream_);
    restore();
    device_.copy(from_.values.data(), random_.data(), random_.size(), *stream_);
    stream_->synchronize();
  }
  void restore() { device_.copy(from_.keys.data(), random_.data(), random_.size(), *stream_); }

  void measure(
      const std::string& name, Bytes bytes, const std::function<void()>& call, const std::function<void()>& prepare = [] {},
      unsigned calls = kCalls) {
    std::vector<double> times;
    for (size_t sample = 0; sample < kWarmUps + options_.samples; ++sample) {
      prepare();
      stream_->synchronize();
      const auto begin = std::chrono::steady_clock::now();
      for (unsigned i = 0; i < calls; ++i) call();
      stream_->synchronize();
      const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
      if (sample >= kWarmUps) times.push_back(time.count() / calls);
    }
    std::sort(times.begin(), times.end());
    Result result{name, bytes, times[times.size() / 2], times.front(), times.back(), 0};
    result.copy_gb_per_s = results_.empty() ? result.gb_per_s() : results_[0].gb_per_s();
    std::printf("%-36s %9.3f ms  (%.3f .. %.3f)  %7.0f GB/s  %5.2f of a copy", name.c_str(), result.median_ms, result.least_ms,
                result.most_ms, result.gb_per_s(), result.of_copy(result.gb_per_s()));
    const double moved = result.moved_gb_per_s();
    if (moved > 0) std::printf("  moved: %5.0f GB/s  %5.2f of a copy", moved, result.of_copy(moved));
    std::printf("\n");
    std::fflush(stdout);
    results_.push_back(result);
  }

  Bytes tuple_bytes(TupleLayout layout) const {
    return {2.0 * static_cast<double>(layout.tuple_bytes()) * static_cast<double>(options_.tuples)};
  }
  /// Of `splits` that group all tuples, with `kept` bytes written and read for each.
  Bytes split_bytes(TupleLayout layout, size_t splits, size_t kept) const {
    const Bytes bytes = tuple_bytes(layout);
    const auto more = static_cast<double>((layout.key_bytes + 2 * kept) * options_.tuples);
    return {bytes.once, static_cast<double>(splits) * (bytes.once + more)};
  }

  void measure_copy() {
    measure("copy", {2.0 * static_cast<double>(random_.size())},
            [&] { device_.copy(to_.keys.data(), random_.data(), random_.size(), *stream_); });
  }

  void measure_partition_ranges(TupleLayout layout, unsigned ranges) {
    std::vector<uint64_t> bounds, offsets(ranges + 1);
    for (uint64_t r = 1; r < ranges; ++r) bounds.push_back((r << 32) / ranges << (layout.key_bytes == 8 ? 32 : 0));
    Primitives& primitives = device_.primitives();
    const Buffer scratch = device_.memory().allocate(primitives.partition_ranges_scratch_bytes(layout, options_.tuples, ranges));
    measure("partition_ranges " + name_of(layout) + " into " + std::to_string(ranges), split_bytes(layout, 1, 1), [&] {
      primitives.partition_ranges(layout, from_.span(layout, options_.tuples).view(), 0, bounds,
                                  to_.span(layout, options_.tuples), offsets.data(), scratch.data(), job_, *stream_);
    });
  }

  void measure_partition(TupleLayout layout, Digit digit) {
    std::vector<uint64_t> offsets(digit.count() + 1);
    Primitives& primitives = device_.primitives();
    const Buffer scratch = device_.memory().allocate(primitives.partition_scratch_bytes(layout, options_.tuples, digit));
    measure("partition " + name_of(layout) + " by " + std::to_string(digit.bits) + (digit.mixed ? " mixed bits" : " bits"),
            split_bytes(layout, digit.bits > 8 ? 2 : 1, 0), [&] {
              primitives.partition(layout, from_.span(layout, options_.tuples).view(), digit, to_.span(layout, options_.tuples),
                                   offsets.data(), scratch.data(), job_, *stream_);
            });
  }

  /// The passes in which hash joins group a side: the first, the second, and both as one device makes them. The latter two are
  /// matches with nothing to probe, which do little beside.
  void measure_hash_groups(TupleLayout layout) {
    constexpr HashGrouping grouping{.group_bits = 7, .bits = 14};
    Primitives& primitives = device_.primitives();
    HashGroups& groups = *primitives.hash_groups();
    const TupleView in = from_.span(layout, options_.tuples).view();
    const auto allocate = [&](size_t bytes) { return device_.memory().allocate(bytes); };
    const Buffer tuples = allocate(groups.grouped_rows(layout, in.size, grouping) * groups.grouped_tuple_bytes(layout));
    const Buffer group_scratch = allocate(groups.hash_group_scratch_bytes(grouping));
    const Buffer groups_scratch = allocate(
        groups.match_groups_scratch_bytes(layout, in.size, {layout.key_bytes, 0}, 0, grouping, grouping.groups(), 1, false));
    std::vector<uint32_t> begins(grouping.groups()), ends(grouping.groups());
    const double once = tuple_bytes(layout).once;
    measure("hash_group " + name_of(layout) + " by 7 bits", {once}, [&] {
      groups.hash_group(layout, in, grouping, tuples.data(), begins.data(), ends.data(), group_scratch.data(), job_, *stream_);
    });
    const GroupedTuples build{layout, 0, grouping.groups(), {{tuples.data(), begins, ends}}, in.size};
    const GroupedTuples probe{{layout.key_bytes, 0}, 0, grouping.groups(), {}, 0};
    std::vector<std::unique_ptr<HashMatch>> matches;
    measure(
        "match_groups " + name_of(layout) + ", nothing to probe", {once, once * 3 / 2},
        [&] { matches.push_back(groups.match_groups(build, probe, grouping, false, {}, groups_scratch.data(), job_, *stream_)); },
        [&] { matches.clear(); });
  }
  void measure_hash_match(TupleLayout layout) {
    Primitives& primitives = device_.primitives();
    const PartitionedTuples build{layout, {from_.span(layout, options_.tuples).view()}, {}}, probe{{layout.key_bytes, 0}, {}, {}};
    const Buffer scratch =
        device_.memory().allocate(primitives.hash_match_scratch_bytes(layout, options_.tuples, probe.layout, 0, 1, false));
    const double once = tuple_bytes(layout).once;
    std::vector<std::unique_ptr<HashMatch>> matches;
    measure(
        "hash_match " + name_of(layout) + ", nothing to probe", {once, 2 * once},
        [&] { matches.push_back(primitives.hash_match(build, probe, 1, 0, false, scratch.data(), job_, *stream_)); },
        [&] { matches.clear(); });
  }

  void measure_sort(TupleLayout layout) {
    const uint64_t all_bits = ~uint64_t{0} >> (64 - layout.key_bytes * 8);
    Primitives& primitives = device_.primitives();
    const Buffer scratch = device_.memory().allocate(primitives.sort_scratch_bytes(layout, options_.tuples));
    const TupleSpan a = from_.span(layout, options_.tuples), b = to_.span(layout, options_.tuples);
    measure(
        "sort " + name_of(layout), tuple_bytes(layout),
        [&] { primitives.sort(layout, a.view(), a, b, all_bits, scratch.data(), job_, *stream_); }, [&] { restore(); }, 1);
    restore();
  }

  /// Of as many tuples a side, each with one partner. The keys are read twice, for the ranges are counted first.
  void measure_match_ranges(uint8_t key_bytes) {
    const TupleLayout layout{key_bytes, 0};
    std::vector<uint64_t> keys(options_.tuples * key_bytes / 8);
    for (uint64_t i = 0; i < keys.size(); ++i) keys[i] = key_bytes == 8 ? i * 37 : 2 * i | (2 * i + 1) << 32;
    for (const Columns* side : {&from_, &to_}) device_.copy(side->keys.data(), keys.data(), keys.size() * 8, *stream_);
    Primitives& primitives = device_.primitives();
    const TupleView build = from_.span(layout, options_.tuples).view(), probe = to_.span(layout, options_.tuples).view();
    const Buffer ranges = device_.memory().allocate(options_.tuples * sizeof(NarrowMatchRange));
    const Buffer scratch =
        device_.memory().allocate(primitives.match_ranges_scratch_bytes(layout, build.size, layout, probe.size));
    const auto key_total = static_cast<double>(2 * key_bytes * options_.tuples);
    const auto range_total = static_cast<double>(options_.tuples * sizeof(NarrowMatchRange));
    const auto match = [&](void* to) {
      uint64_t count = 0;
      primitives.match_ranges(layout, build, layout, probe, to, 4, &count, scratch.data(), job_, *stream_);
      stream_->synchronize();
      if (count != options_.tuples) throw Error(ErrorCode::internal, "match_ranges found another number of ranges");
    };
    measure("match_ranges " + name_of(layout) + " counted", {key_total}, [&] { match(nullptr); });
    measure("match_ranges " + name_of(layout), {key_total + range_total, 2 * key_total + range_total},
            [&] { match(ranges.data()); });
    restore();
  }

  /// Of a column that lies on `devices`, by as many random rows as it has. Bytes: rows and values read, values written.
  void measure_gathers(const std::vector<Device*>& devices, const std::string& where) {
    const Sharding sharding = Sharding::of(options_.tuples, devices.size());
    ShardedColumn column{sharding, {random_.data()}};
    Buffer on_peer;
    if (devices.size() > 1) {
      devices[1]->memory().reserve(sharding.shard_rows * 8);
      on_peer = devices[1]->memory().allocate(sharding.shard_rows * 8);
      const auto stream = devices[1]->create_stream();
      devices[1]->fill(on_peer.data(), 0x5A, on_peer.size(), *stream);
      stream->synchronize();
      column.shards.push_back(on_peer.data());
    }
    std::vector<uint32_t> rows(options_.tuples);
    std::mt19937_64 random(2);
    for (uint32_t& row : rows) row = static_cast<uint32_t>(random() % options_.tuples);
    device_.copy(from_.keys.data(), rows.data(), rows.size() * 4, *stream_);
    stream_->synchronize();
    const RowNumbers by{from_.keys.data(), 4, options_.tuples};
    const auto of_width = [&](double width) { return Bytes{static_cast<double>(options_.tuples) * (4 + 2 * width)}; };
    for (const uint8_t width : {1, 2, 4, 8}) {
      measure("gather " + std::to_string(width) + " bytes from " + where, of_width(width),
              [&] { device_.primitives().gather(column, width, by, nullptr, to_.keys.data(), job_, *stream_); });
    }
    measure("gather bits from " + where, of_width(1.0 / 8),
            [&] { device_.primitives().gather_bits(column, by, nullptr, to_.keys.data(), job_, *stream_); });
  }

  void measure_concatenate(Device& source, const std::string& where) {
    constexpr TupleLayout layout{8, 8};
    constexpr uint64_t rows = kPartBytes / layout.tuple_bytes(), total = kParts * rows;
    Buffer own;
    const char* data = random_.as<char>();
    if (&source != &device_) {
      source.memory().reserve(kParts * kPartBytes);
      own = source.memory().allocate(kParts * kPartBytes);
      const auto stream = source.create_stream();
      source.fill(own.data(), 0x5A, own.size(), *stream);
      stream->synchronize();
      data = own.as<char>();
    }
    std::vector<TupleView> parts;
    for (uint64_t p = 0; p < kParts; ++p) {
      const char* part = data + p * kPartBytes;
      parts.push_back({part, part + kPartBytes / 2, 0, rows});
    }
    const Buffer scratch = device_.memory().allocate(device_.primitives().concatenate_scratch_bytes(kParts));
    const Bytes bytes{static_cast<double>(kParts * kPartBytes) * (&source == &device_ ? 2 : 1)};
    const auto call = [&] {
      device_.primitives().concatenate(layout, parts, to_.span(layout, total), scratch.data(), job_, *stream_);
    };
    measure("concatenate 256 " + where + " parts of 1 MB", bytes, call);
    if (&source == &device_) return;
    measure("copy of as much from the peer", bytes, [&] { device_.copy(to_.keys.data(), own.data(), own.size(), *stream_); });
  }

  void write_json() const {
    std::FILE* file = std::fopen(options_.json.c_str(), "w");
    if (!file) throw Error(ErrorCode::internal, "Can't write " + options_.json);
    std::fprintf(file, "{\n  \"device\": \"%s\",\n  \"tuples\": %llu,\n  \"samples\": %zu,\n  \"results\": [\n",
                 device_.info().name.c_str(), static_cast<unsigned long long>(options_.tuples), options_.samples);
    for (size_t i = 0; i < results_.size(); ++i) {
      const Result& r = results_[i];
      std::fprintf(file,
                   "    {\"name\": \"%s\", \"bytes\": %.0f, \"medianMs\": %.4f, \"leastMs\": %.4f, \"mostMs\": %.4f, "
                   "\"gbPerS\": %.1f, \"ofCopy\": %.3f",
                   r.name.c_str(), r.bytes.once, r.median_ms, r.least_ms, r.most_ms, r.gb_per_s(), r.of_copy(r.gb_per_s()));
      if (r.bytes.moved > 0) {
        std::fprintf(file, ", \"movedBytes\": %.0f, \"movedGbPerS\": %.1f, \"movedOfCopy\": %.3f", r.bytes.moved,
                     r.moved_gb_per_s(), r.of_copy(r.moved_gb_per_s()));
      }
      std::fprintf(file, "}%s\n", i + 1 < results_.size() ? "," : "");
    }
    std::fprintf(file, "  ]\n}\n");
    std::fclose(file);
  }

  Options options_;
  Engine engine_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Job job_;
  Buffer random_;
  Columns from_, to_;
  std::vector<Result> results_;
};

}  // namespace
}  // namespace warpjoin

int main(int argc, char** argv) {
  using namespace warpjoin;
  Options options;
  return bench::main_of(
      argc, argv, {{"--tuples", &options.tuples, 1 << 24}, {"--samples", &options.samples}, {"--json", &options.json}}, [&] {
        Bench(options).run();
        return 0;
      });
}
