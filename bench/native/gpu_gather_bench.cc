// Columns gathered by random row numbers from ordinary host memory into ordinary host memory: on GPUs, whose joint memory
// they go through, beside the threads of the host. What lib/plan/costs.ts chooses by. A program without Google Benchmark, so
// that it runs on any GPU host.
//
//   warpjoin_gpu_gather_bench [--rows N] [--runs N] [--json FILE]
//
// --rows: the most that are gathered (200,000,000); smaller numbers come first, each ten times the one before.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iomanip>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "columns/device_gather.h"
#include "core/error.h"
#include "device/gpu_device.h"
#include "gpu_bench.h"

namespace warpjoin {
namespace {

constexpr size_t kColumns = 3;

struct Options {
  uint64_t rows = 200'000'000;
  size_t runs = 3;
  std::string json;
};

struct Result {
  uint64_t rows;
  std::string how;
  size_t columns;
  double median_ms, least_ms, most_ms;
};

// Columns of 8 bytes a value, and random row numbers of 4.
struct Data {
  std::vector<HostBuffer> values;
  HostBuffer rows;
  std::vector<Column> columns;

  Data(Engine& engine, uint64_t size) : rows(engine.memory->allocate(size * 4, "row numbers")) {
    for (size_t c = 0; c < kColumns; ++c) {
      values.push_back(engine.memory->allocate(size * 8, "a column"));
      ColumnChunk chunk;
      chunk.values = values.back().data();
      chunk.length = size;
      chunk.values_bytes = size * 8;
      columns.push_back({"c", {ColumnKind::fixed, KeyOrder::signed_integer, 8}, size, {chunk}});
    }
    engine.pool.for_blocks(size, uint64_t{1} << 16, Job(), [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) {
        uint64_t random = (i + 1) * 0x9E3779B97F4A7C15ull;
        random = (random ^ (random >> 29)) * 0xBF58476D1CE4E5B9ull;
        rows.as<uint32_t>()[i] = static_cast<uint32_t>((random >> 32) * size >> 32);
        for (const HostBuffer& column : values) column.as<uint64_t>()[i] = random;
      }
    });
  }
  RowList list(uint64_t size) const { return {rows.data(), 4, false, size}; }
  std::vector<const Column*> first(size_t count) const {
    std::vector<const Column*> some;
    for (size_t c = 0; c < count; ++c) some.push_back(&columns[c]);
    return some;
  }
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    std::vector<int> gpus(visible_gpus().size());
    std::iota(gpus.begin(), gpus.end(), 0);
    engine_ = std::make_unique<Engine>(EngineConfig{.host_devices = 0, .gpus = gpus, .memory_limit_bytes = size_t{64} << 30});
  }

  void run() {
    std::printf("%u threads, %zu x %s\n", engine_->pool.threads(), engine_->devices.size(),
                engine_->devices[0]->info().name.c_str());
    uint64_t size = options_.rows;
    while (size >= 1'000'000) size /= 10;
    for (; size <= options_.rows; size *= 10) measure_size(size);
    if (!options_.json.empty()) write_json();
  }

 private:
  void measure_size(uint64_t size) {
    const Data data(*engine_, size);
    measure(size, "host threads", 1, [&] { gather(data.columns[0], data.list(size), *engine_, job_); });
    const size_t all = engine_->devices.size();
    for (const size_t count : std::set<size_t>{1, std::min<size_t>(2, all), all}) {
      std::vector<Device*> devices;
      for (size_t i = 0; i < count; ++i) devices.push_back(engine_->devices[i].get());
      for (const size_t columns : {size_t{1}, kColumns}) {
        measure(size, std::to_string(count) + (count == 1 ? " GPU" : " GPUs"), columns,
                [&] { gather_on_devices(*engine_, devices, data.first(columns), data.list(size), job_); });
      }
    }
  }

  void measure(uint64_t size, const std::string& how, size_t columns, const std::function<void()>& call) {
    std::vector<double> times;
    for (size_t run = 0; run <= options_.runs; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      call();
      const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
      if (run > 0) times.push_back(time.count());
    }
    std::sort(times.begin(), times.end());
    const Result& result =
        results_.emplace_back(Result{size, how, columns, times[times.size() / 2], times.front(), times.back()});
    std::printf("%11llu rows, %zu columns, %-12s %9.2f ms  (%.2f .. %.2f)  %6.3f ns a value\n",
                static_cast<unsigned long long>(size), columns, how.c_str(), result.median_ms, result.least_ms, result.most_ms,
                result.median_ms * 1e6 / static_cast<double>(size * columns));
    std::fflush(stdout);
  }

  void write_json() const {
    std::ofstream file(options_.json);
    file << "{\n  \"device\": \"" << engine_->devices[0]->info().name << "\",\n  \"threads\": " << engine_->pool.threads()
         << ",\n  \"runs\": " << options_.runs << ",\n  \"results\": [\n"
         << std::fixed << std::setprecision(3);
    for (size_t i = 0; i < results_.size(); ++i) {
      const Result& r = results_[i];
      file << "    {\"rows\": " << r.rows << ", \"how\": \"" << r.how << "\", \"columns\": " << r.columns
           << ", \"medianMs\": " << r.median_ms << ", \"leastMs\": " << r.least_ms << ", \"mostMs\": " << r.most_ms << "}"
           << (i + 1 < results_.size() ? ",\n" : "\n");
    }
    file << "  ]\n}\n";
    if (!file) throw Error(ErrorCode::internal, "Can't write " + options_.json);
  }

  const Options options_;
  std::unique_ptr<Engine> engine_;
  Job job_;
  std::vector<Result> results_;
};

}  // namespace
}  // namespace warpjoin

int main(int argc, char** argv) {
  using namespace warpjoin;
  Options options;
  return bench::main_of(argc, argv,
                        {{"--rows", &options.rows, 1, UINT32_MAX}, {"--runs", &options.runs}, {"--json", &options.json}}, [&] {
                          Bench(options).run();
                          return 0;
                        });
}
