// Hash joins of relations in one GPU's memory, result included: what the papers on GPU joins measure. A program without Google
// Benchmark, so that it runs on any GPU host.
//
//   warpjoin_gpu_join_bench [--tuples N] [--rows N] [--samples N] [--only NAME] [--json FILE]
//
// --tuples: of either side of the square joins (2^27). A sample goes from the inputs in device memory to the result in device
// memory, keys and both payloads: at once, as there is room for a pair of each probe tuple, or by count, reservation and
// writing, in two calls.
//
// --rows (5 * 10^7): of either of two tables on the GPU that are joined by one int64 key, by two int32 keys of which few values
// are there, and by two of all values, into a table of the keys and a payload of each side. All of their rows match, one each.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device/gpu_device.h"
#include "engine/engine.h"
#include "gpu_bench.h"
#include "join/join_rows.h"
#include "join/table_join.h"
#include "primitives/primitives.h"

namespace warpjoin {
namespace {

struct Options {
  uint64_t tuples = uint64_t{1} << 27, rows = 50'000'000;
  uint64_t samples = 7;
  std::string only;  ///< cases of this name
  std::string json;
};

constexpr unsigned kWarmUps = 2;

/// Unique for unique numbers, and scattered over all keys.
uint64_t key_of(uint64_t number, uint8_t bytes) {
  return bytes == 4 ? static_cast<uint32_t>(number * 0x9E3779B1 + 12345) : mix_key(number * 0xBF58476D1CE4E5B9 + 12345);
}
uint64_t random_of(uint64_t i) { return mix_key(mix_key(i * 0x94D049BB133111EB + 99) * 0xD6E8FEB86659FD93); }

struct Case {
  std::string name;
  uint8_t bytes;  // of keys and of payloads
  uint64_t build, probe;
  double selectivity = 1;  // of probe tuples that have a match
  double zipf = 0;
};

struct Times {
  double median = 0, least = 0, most = 0;
};

struct Result {
  Case of;
  uint64_t pairs;
  Times count, match, in_two, all;
  double g_tuples_per_s() const { return static_cast<double>(of.build + of.probe) / all.median * 1e-6; }
};

Times times_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        engine_({.host_devices = 0, .gpus = {0}, .memory_limit_bytes = size_t{32} << 30}),
        device_(*engine_.devices[0]),
        stream_(device_.create_stream()) {
    device_.memory().reserve(device_.info().limit_bytes - (size_t{1} << 30));
  }

  void run() {
    const uint64_t n = options_.tuples;
    measure_copy();
    for (const uint8_t bytes : {uint8_t{4}, uint8_t{8}}) {
      measure({"square", bytes, n, n});
      for (const double selectivity : {0.0, 0.25, 0.5, 0.75}) measure({"selectivity", bytes, n, n, selectivity});
      for (const double zipf : {0.5, 1.0}) measure({"zipf", bytes, n, n, 1, zipf});
    }
    measure({"small build side", 8, n >> 7, n * 2});
    measure({"small build side", 8, n >> 12, n * 2});
    device_.memory().release();
    measure_tables();
    if (!options_.json.empty()) write_json();
  }

 private:
  struct Column {
    Buffer keys, values;
    TupleView view(uint64_t size) const { return {keys.data(), values.data(), 0, size}; }
  };

  void measure_copy() {
    const size_t bytes = size_t{1} << 30;
    const Buffer from = device_.memory().allocate(bytes), to = device_.memory().allocate(bytes);
    std::vector<double> times;
    for (unsigned i = 0; i < 9; ++i) {
      times.push_back(time([&] { device_.copy(to.data(), from.data(), bytes, *stream_); }));
    }
    copy_gb_per_s_ = 2 * static_cast<double>(bytes) / times_of(times).median * 1e-6;
    std::printf("copy: %.0f GB/s\n", copy_gb_per_s_);
  }

  double time(const std::function<void()>& work) {
    stream_->synchronize();
    const auto begin = std::chrono::steady_clock::now();
    work();
    stream_->synchronize();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  /// Fills a column on the host, and takes it to the device.
  template <class Value>
  Buffer upload(uint64_t size, const std::function<uint64_t(uint64_t)>& value) {
    const HostBuffer host = engine_.memory->allocate(size * sizeof(Value), "a column");
    engine_.pool.for_blocks(size, uint64_t{1} << 16, job_, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) host.as<Value>()[i] = static_cast<Value>(value(i));
    });
    Buffer buffer = device_.memory().allocate(size * sizeof(Value));
    device_.copy(buffer.data(), host.data(), host.size(), *stream_);
    stream_->synchronize();
    return buffer;
  }
  Buffer upload(uint8_t bytes, uint64_t size, const std::function<uint64_t(uint64_t)>& value) {
    return bytes == 4 ? upload<uint32_t>(size, value) : upload<uint64_t>(size, value);
  }

  /// The number of the build tuple that probe tuple i matches, or one past them.
  static uint64_t partner(const Case& c, uint64_t i, const std::vector<double>& zipf) {
    const uint64_t random = random_of(i);
    if (static_cast<double>(random >> 11) * 0x1p-53 >= c.selectivity) return c.build + random % c.build;
    if (c.zipf == 0) return random_of(i + (uint64_t{1} << 40)) % c.build;
    // Among the ranks whose share is known one by one, then uniformly: exact where it matters.
    const double u = static_cast<double>(random_of(i + (uint64_t{1} << 41)) >> 11) * 0x1p-53;
    const auto at = static_cast<uint64_t>(std::upper_bound(zipf.begin(), zipf.end(), u) - zipf.begin());
    return at < zipf.size() ? random_of(at) % c.build : random_of(i + (uint64_t{1} << 42)) % c.build;
  }
  static std::vector<double> shares(const Case& c) {
    std::vector<double> sums;
    if (c.zipf == 0) return sums;
    double all = 0;
    for (uint64_t rank = 1; rank <= c.build; ++rank) {
      all += std::pow(static_cast<double>(rank), -c.zipf);
      if (rank <= 1 << 20) sums.push_back(all);
    }
    for (double& sum : sums) sum /= all;
    return sums;
  }

  void measure(const Case& c) {
    if (!options_.only.empty() && options_.only != c.name) return;
    const std::vector<double> zipf = shares(c);
    const TupleLayout layout{c.bytes, c.bytes};
    Column build{upload(c.bytes, c.build, [&](uint64_t i) { return key_of(i, c.bytes); }),
                 upload(c.bytes, c.build, [&](uint64_t i) { return i * 3; })};
    Column probe{upload(c.bytes, c.probe, [&](uint64_t i) { return key_of(partner(c, i, zipf), c.bytes); }),
                 upload(c.bytes, c.probe, [&](uint64_t i) { return partner(c, i, zipf) + i; })};
    const uint64_t offsets_build[] = {0, c.build}, offsets_probe[] = {0, c.probe};
    const PartitionedTuples r{layout, {build.view(c.build)}, {offsets_build}}, s{layout, {probe.view(c.probe)}, {offsets_probe}};
    Primitives& primitives = device_.primitives();
    const size_t scratch_bytes = primitives.hash_match_scratch_bytes(layout, c.build, layout, c.probe, 1, false);
    const Buffer scratch = device_.memory().allocate(scratch_bytes);
    const Buffer keys = device_.memory().allocate(c.probe * c.bytes), left = device_.memory().allocate(c.probe * c.bytes),
                 right = device_.memory().allocate(c.probe * c.bytes);
    Result result{c, 0, {}, {}, {}, {}};
    std::vector<double> count_times, match_times, two_times, all_times;
    for (size_t sample = 0; sample < kWarmUps + options_.samples; ++sample) {
      const auto match = [&](bool count_only) {
        auto found = primitives.hash_match(r, s, 1, 0, count_only, scratch.data(), job_, *stream_);
        do stream_->synchronize();
        while (primitives.hash_match_goes_on(*found, job_, *stream_));
        return found;
      };
      const double counted = time([&] { result.pairs = match(true)->tally().pairs; });
      double matched = 0;
      const JoinOutput out{keys.data(), left.data(), right.data()};
      const auto finish = [&](std::unique_ptr<HashMatch> found) {
        do stream_->synchronize();
        while (primitives.hash_match_goes_on(*found, job_, *stream_));
        if (found->tally().pairs != result.pairs) throw Error(ErrorCode::internal, "the matches differ");
        if (!found->written()) primitives.hash_emit(*found, JoinEmit::pairs, 0, result.pairs, out, job_, *stream_);
        stream_->synchronize();
      };
      const double in_two = time([&] {
        std::unique_ptr<HashMatch> found;
        matched = time([&] { found = match(false); });
        finish(std::move(found));
      });
      if (sample == kWarmUps) check(c, result.pairs, keys, left, right);
      const double all =
          time([&] { finish(primitives.hash_match_into(out, c.probe, r, s, 1, 0, scratch.data(), job_, *stream_)); });
      if (sample < kWarmUps) continue;
      count_times.push_back(counted);
      match_times.push_back(matched);
      two_times.push_back(in_two);
      all_times.push_back(all);
    }
    check(c, result.pairs, keys, left, right);
    result.count = times_of(count_times);
    result.match = times_of(match_times);
    result.in_two = times_of(two_times);
    result.all = times_of(all_times);
    std::printf(
        "%-18s %u+%u  %11llu x %11llu  sel %.2f zipf %.1f: count %.2f  match %.2f  in two %.2f  all %.2f ms, %.1f G tuples/s\n",
        c.name.c_str(), c.bytes, c.bytes, static_cast<unsigned long long>(c.build), static_cast<unsigned long long>(c.probe),
        c.selectivity, c.zipf, result.count.median, result.match.median, result.in_two.median, result.all.median,
        result.g_tuples_per_s());
    std::fflush(stdout);
    results_.push_back(result);
  }

  /// Tables of rows 0 .. n - 1 in some order: an int64 key, two int32 keys of few values, two of all, and the number as an int64.
  ResidentTable table_of(uint64_t seed) {
    const uint64_t n = options_.rows, step = 0x9E3779B97F4A7C15 % n | 1;
    const auto number = [&](uint64_t i) { return (i + seed) * step % n; };  // each once where the step has no factor of n
    const ColumnType i64{ColumnKind::fixed, KeyOrder::signed_integer, 8}, i32{ColumnKind::fixed, KeyOrder::signed_integer, 4};
    ResidentTable table{{&device_}, {n}, {}, {}};
    const auto add = [&](const ColumnType& type, const std::function<uint64_t(uint64_t)>& of) {
      const HostBuffer host = engine_.memory->allocate(n * type.width, "a column");
      engine_.pool.for_blocks(n, uint64_t{1} << 16, job_, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; ++i) {
          const uint64_t value = of(number(i));
          type.width == 4 ? void(host.as<uint32_t>()[i] = static_cast<uint32_t>(value)) : void(host.as<uint64_t>()[i] = value);
        }
      });
      table.memory.push_back(device_.memory().allocate_resident(host.size()));
      device_.copy(table.memory.back().data(), host.data(), host.size(), *stream_);
      stream_->synchronize();
      table.columns.push_back({"c", type, false, {{table.memory.back().data(), nullptr}}});
    };
    add(i64, [](uint64_t i) { return key_of(i, 8); });
    add(i32, [](uint64_t i) { return i / 8192; });
    add(i32, [](uint64_t i) { return i % 8192; });
    add(i32, [](uint64_t i) { return key_of(i, 8) >> 32; });
    add(i32, [](uint64_t i) { return key_of(i, 8); });
    add(i64, [](uint64_t i) { return i; });
    return table;
  }

  void measure_tables() {
    if (!options_.only.empty() && options_.only != "tables") return;
    while (std::gcd(options_.rows, 0x9E3779B97F4A7C15 % options_.rows | 1) != 1) --options_.rows;
    const ResidentTable left = table_of(0), right = table_of(options_.rows / 3);
    double one = 0;
    for (const auto& [name, columns] : {std::pair<const char*, std::vector<size_t>>{"one int64", {0}},
                                        {"two int32 of few values", {1, 2}},
                                        {"two int32 of all values", {3, 4}}}) {
      std::vector<TableKeyPair> pairs;
      std::vector<ResidentOrigin> origins;
      for (const size_t column : columns) {
        origins.push_back({ResidentOrigin::From::keys, {}, pairs.size()});
        pairs.push_back({column, column});
      }
      origins.push_back({ResidentOrigin::From::left, {}});
      origins.push_back({ResidentOrigin::From::right, {}});
      std::vector<double> counts, joins;
      unsigned bits = 0;
      for (size_t sample = 0; sample < kWarmUps + options_.samples; ++sample) {
        uint64_t counted = 0;
        const double count = time([&] {
          Job job;
          const TableJoinKeys keys(left, right, pairs, job);
          counted = join_tables_home(engine_, {&keys, {}, {}}, {.count_only = true}, job).size;
        });
        ResidentTable joined;
        const double join = time([&] {
          Job job;
          const TableJoinKeys keys(left, right, pairs, job);
          bits = keys.bits();
          joined = join_tables(engine_, {&keys, 5, 5}, {.want_keys = true}, origins, job);
        });
        if (counted != options_.rows || joined.size() != counted) throw Error(ErrorCode::internal, "wrong numbers of rows");
        if (sample < kWarmUps) {
          check_joined(joined, columns);
          continue;
        }
        counts.push_back(count);
        joins.push_back(join);
      }
      const Times count = times_of(counts), join = times_of(joins);
      if (one == 0) one = join.median;
      std::printf("tables of %llu rows by %s (%u bits): count %.2f ms, join %.2f ms (%.2f to %.2f), %.3f times one int64\n",
                  static_cast<unsigned long long>(options_.rows), name, bits, count.median, join.median, join.least, join.most,
                  join.median / one);
      std::fflush(stdout);
      char row[512];
      std::snprintf(row, sizeof row,
                    "    {\"keys\": \"%s\", \"rows\": %llu, \"keyBits\": %u, \"countMs\": %.4f, \"medianMs\": %.4f, "
                    "\"leastMs\": %.4f, \"mostMs\": %.4f, \"ofOneInt64\": %.3f}",
                    name, static_cast<unsigned long long>(options_.rows), bits, count.median, join.median, join.least, join.most,
                    join.median / one);
      tables_.push_back(row);
    }
  }

  /// Each number once, on both sides, and with its keys.
  void check_joined(const ResidentTable& joined, const std::vector<size_t>& columns) {
    Job job;
    std::vector<size_t> all(joined.columns.size());
    std::iota(all.begin(), all.end(), size_t{0});
    const std::vector<OwnedColumn> home = bring_home(engine_, joined, all, job);
    const auto* const l = home[columns.size()].values.as<uint64_t>();
    const auto* const r = home[columns.size() + 1].values.as<uint64_t>();
    std::vector<bool> seen(options_.rows);
    for (uint64_t i = 0; i < options_.rows; ++i) {
      bool right = l[i] == r[i] && l[i] < options_.rows && !seen[l[i]];
      for (size_t k = 0; right && k < columns.size(); ++k) {
        const uint64_t key = key_of(l[i], 8);
        const uint64_t expected[] = {key, l[i] / 8192, l[i] % 8192, key >> 32, key};
        right = columns[k] == 0 ? home[k].values.as<uint64_t>()[i] == key
                                : home[k].values.as<uint32_t>()[i] == static_cast<uint32_t>(expected[columns[k]]);
      }
      if (!right) throw Error(ErrorCode::internal, "a wrong row in a join of tables");
      seen[l[i]] = true;
    }
  }

  /// A million rows from anywhere: key and payloads belong together.
  void check(const Case& c, uint64_t pairs, const Buffer& keys, const Buffer& left, const Buffer& right) {
    const uint64_t size = std::min<uint64_t>(pairs, 1 << 20), first = (pairs - size) / 2;
    std::vector<char> columns[3];
    const Buffer* const from[3] = {&keys, &left, &right};
    for (size_t i = 0; i < 3; ++i) {
      columns[i].resize(size * c.bytes);
      device_.copy(columns[i].data(), from[i]->as<char>() + first * c.bytes, columns[i].size(), *stream_);
    }
    stream_->synchronize();
    const auto at = [&](size_t column, uint64_t i) {
      return c.bytes == 4 ? reinterpret_cast<const uint32_t*>(columns[column].data())[i]
                          : reinterpret_cast<const uint64_t*>(columns[column].data())[i];
    };
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t number = at(1, i) * (c.bytes == 4 ? 0xAAAAAAAB : 0xAAAAAAAAAAAAAAAB);  // a third
      const uint64_t build = c.bytes == 4 ? static_cast<uint32_t>(number) : number;
      const uint64_t row = c.bytes == 4 ? static_cast<uint32_t>(at(2, i) - build) : at(2, i) - build;
      if (at(0, i) != key_of(build, c.bytes) || build >= c.build || row >= c.probe) {
        throw Error(ErrorCode::internal, "a wrong row in the result of " + c.name);
      }
    }
  }

  void write_json() const {
    std::FILE* file = std::fopen(options_.json.c_str(), "w");
    if (!file) throw Error(ErrorCode::internal, "Can't write " + options_.json);
    std::fprintf(file, "{\n  \"device\": \"%s\",\n  \"samples\": %llu,\n  \"copyGbPerS\": %.1f,\n  \"results\": [\n",
                 device_.info().name.c_str(), static_cast<unsigned long long>(options_.samples), copy_gb_per_s_);
    for (size_t i = 0; i < results_.size(); ++i) {
      const Result& r = results_[i];
      std::fprintf(
          file,
          "    {\"name\": \"%s\", \"keyBytes\": %u, \"valueBytes\": %u, \"build\": %llu, \"probe\": %llu, "
          "\"selectivity\": %.2f, \"zipf\": %.2f, \"pairs\": %llu, \"countMs\": %.4f, \"matchMs\": %.4f, \"inTwoMs\": %.4f, "
          "\"medianMs\": %.4f, \"leastMs\": %.4f, \"mostMs\": %.4f, \"gTuplesPerS\": %.2f}%s\n",
          r.of.name.c_str(), r.of.bytes, r.of.bytes, static_cast<unsigned long long>(r.of.build),
          static_cast<unsigned long long>(r.of.probe), r.of.selectivity, r.of.zipf, static_cast<unsigned long long>(r.pairs),
          r.count.median, r.match.median, r.in_two.median, r.all.median, r.all.least, r.all.most, r.g_tuples_per_s(),
          i + 1 < results_.size() ? "," : "");
    }
    std::fprintf(file, "  ],\n  \"tables\": [\n");
    for (size_t i = 0; i < tables_.size(); ++i) {
      std::fprintf(file, "%s%s\n", tables_[i].c_str(), i + 1 < tables_.size() ? "," : "");
    }
    std::fprintf(file, "  ]\n}\n");
    std::fclose(file);
  }

  Options options_;
  Engine engine_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Job job_;
  double copy_gb_per_s_ = 0;
  std::vector<Result> results_;
  std::vector<std::string> tables_;  // rows of the JSON
};

}  // namespace
}  // namespace warpjoin

int main(int argc, char** argv) {
  using namespace warpjoin;
  Options options;
  return bench::main_of(argc, argv,
                        {{"--tuples", &options.tuples, 1 << 16},
                         {"--rows", &options.rows, 1000},
                         {"--samples", &options.samples},
                         {"--only", &options.only},
                         {"--json", &options.json}},
                        [&] {
                          Bench(options).run();
                          return 0;
                        });
}
