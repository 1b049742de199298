// Sorts on GPUs beside the ceilings of their links, all in one run:
//
//   warpjoin_gpu_sort_bench [--keys N] [--pairs N] [--runs N] [--json FILE]
//
// Host to host from pinned memory: uint64 keys, and (uint64, uint64) pairs whose values are row numbers. The floor is the
// bytes over the host-to-device ceiling plus the bytes over the device-to-host ceiling of the same GPUs. Every result is
// checked: in order, stable, and made of the input's tuples.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/engine.h"
#include "device/gpu_device.h"
#include "sort/sample_sort.h"
#include "transfer/link_speeds.h"

namespace warpjoin {
namespace {

struct Options {
  uint64_t keys = 4'000'000'000, pairs = 2'000'000'000;
  unsigned runs = 3;
  std::string json;
};

struct Times {
  double median, least, most;
};

Times times_of(std::vector<double> milliseconds) {
  std::sort(milliseconds.begin(), milliseconds.end());
  return {milliseconds[milliseconds.size() / 2], milliseconds.front(), milliseconds.back()};
}

double milliseconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// The order of keys says nothing about which tuples they are: sums of mixed tuples do.
struct Fingerprint {
  uint64_t sum = 0, mixed = 0;
  bool ordered = true;
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

Fingerprint fingerprint(ThreadPool& pool, const TupleView& tuples, bool with_values) {
  const auto* keys = static_cast<const uint64_t*>(tuples.keys);
  const auto* values = static_cast<const uint64_t*>(tuples.values);
  const uint64_t blocks = 4 * uint64_t{pool.threads()};
  std::vector<Fingerprint> parts(blocks);
  pool.parallel_for(blocks, [&](uint64_t b) {
    Fingerprint found;
    for (uint64_t i = tuples.size / blocks * b; i < (b + 1 == blocks ? tuples.size : tuples.size / blocks * (b + 1)); ++i) {
      const uint64_t value = !with_values ? 0 : values ? values[i] : i;
      found.sum += keys[i];
      found.mixed += mix_key(keys[i] ^ mix_key(value));
      if (i && (keys[i] < keys[i - 1] || (with_values && values && keys[i] == keys[i - 1] && value <= values[i - 1]))) {
        found.ordered = false;
      }
    }
    parts[b] = found;
  });
  Fingerprint all;
  for (const Fingerprint& part : parts) {
    all.sum += part.sum, all.mixed += part.mixed;
    all.ordered = all.ordered && part.ordered;
  }
  return all;
}

// Host memory that all GPUs copy directly.
class Pinned {
 public:
  Pinned(Device& device, size_t bytes) : device_(device), bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~Pinned() {
    if (pinned_) device_.unpin(data_);
    munmap(data_, bytes_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  /// Once its pages are there: pinning touches them one by one.
  void pin() {
    device_.pin(data_, bytes_);
    pinned_ = true;
  }
  uint64_t* at(uint64_t word) const { return static_cast<uint64_t*>(data_) + word; }
  uint64_t words() const { return bytes_ / sizeof(uint64_t); }

 private:
  Device& device_;
  size_t bytes_;
  void* data_;
  bool pinned_ = false;
};

void fill(ThreadPool& pool, const Pinned& memory, const std::function<uint64_t(uint64_t)>& word) {
  pool.parallel_for(16 * uint64_t{pool.threads()}, [&](uint64_t b) {
    const uint64_t blocks = 16 * uint64_t{pool.threads()};
    const uint64_t begin = memory.words() / blocks * b, end = b + 1 == blocks ? memory.words() : memory.words() / blocks * (b + 1);
    for (uint64_t i = begin; i < end; ++i) *memory.at(i) = word(i);
  });
}

constexpr uint64_t random_word(uint64_t i) {  // splitmix64
  i = (i + 1) * 0x9E3779B97F4A7C15ull;
  i = (i ^ (i >> 30)) * 0xBF58476D1CE4E5B9ull;
  i = (i ^ (i >> 27)) * 0x94D049BB133111EBull;
  return i ^ (i >> 31);
}

std::string json_of(const Times& times) {
  char text[128];
  std::snprintf(text, sizeof text, "{\"median\": %.3f, \"min\": %.3f, \"max\": %.3f}", times.median, times.least, times.most);
  return text;
}

struct Report {
  std::vector<std::string> rows;
  bool wrong = false;
};

void sort_host_to_host(Engine& engine, const LinkSpeeds::Set& set, TupleLayout layout, const TupleView& in, const TupleSpan& out,
                       unsigned runs, Report& report) {
  const std::vector<Device*> devices = engine.select(set.devices);
  const bool pairs = layout.value_bytes != 0;
  const Fingerprint expected = fingerprint(engine.pool, in, pairs);
  std::vector<double> milliseconds;
  std::string phases;
  bool right = true;
  for (unsigned run = 0; run <= runs; ++run) {  // the first is the warm-up, whose result is checked
    Job job;
    const double took = milliseconds_of([&] { sorting::sample_sort(engine, layout, devices, in, out, ~uint64_t{0}, job); });
    if (run > 0) milliseconds.push_back(took);
    if (run == 0) {
      const Fingerprint got = fingerprint(engine.pool, out.view(), pairs);
      right = got.ordered && got.sum == expected.sum && got.mixed == expected.mixed;
      std::memset(out.keys, 0xEE, size_t{1} << 20);
    }
    phases.clear();
    for (const PhaseStats& phase : job.phases()) {
      phases += (phases.empty() ? "" : ", ") + ("\"" + phase.name + "\": ") + std::to_string(phase.milliseconds);
    }
  }
  report.wrong = report.wrong || !right;
  const double bytes = static_cast<double>(in.size * layout.tuple_bytes());
  const double floor = 1e3 * (bytes / set.h2d + bytes / set.d2h);
  const Times times = times_of(milliseconds);
  std::printf("%-6s %d GPUs  %7.1f ms (%.1f to %.1f)  floor %7.1f ms  ratio %.3f  %6.2f G tuples/s  %s  [%s]\n",
              pairs ? "pairs" : "keys", static_cast<int>(set.devices.size()), times.median, times.least, times.most, floor,
              times.median / floor, static_cast<double>(in.size) / times.median / 1e6, right ? "right" : "WRONG", phases.c_str());
  std::fflush(stdout);
  report.rows.push_back("{\"sort\": \"host to host\", \"tuples\": " + std::to_string(in.size) + ", \"keyBytes\": 8, \"valueBytes\": " +
                        std::to_string(layout.value_bytes) + ", \"gpus\": " + std::to_string(set.devices.size()) +
                        ", \"milliseconds\": " + json_of(times) + ", \"floorMilliseconds\": " + std::to_string(floor) +
                        ", \"ratioToFloor\": " + std::to_string(times.median / floor) + ", \"right\": " + (right ? "true" : "false") +
                        ", \"phases\": {" + phases + "}}");
}

void measure_host_to_host(Engine& engine, const LinkSpeeds& links, const Options& options, Report& report) {
  const uint64_t words = std::max(options.keys, 2 * options.pairs);
  Device& device = *engine.devices[0];
  Pinned in(device, words * sizeof(uint64_t)), out(device, words * sizeof(uint64_t));
  const auto keys_or_rows = [&](uint64_t i) { return i < options.pairs ? random_word(i) : i - options.pairs; };
  fill(engine.pool, in, keys_or_rows);
  fill(engine.pool, out, [](uint64_t) { return 0; });
  std::thread pin_in([&] { in.pin(); });
  out.pin();
  pin_in.join();
  std::printf("pinned 2 x %.1f GB\n", static_cast<double>(words) * 8 / 1e9);

  const auto each_set = [&](TupleLayout layout, const TupleView& from, const TupleSpan& to) {
    for (const LinkSpeeds::Set& set : links.sets) {
      if (set.devices.size() > 1 || set.devices[0] == 0) sort_host_to_host(engine, set, layout, from, to, options.runs, report);
    }
  };
  if (options.pairs) {
    each_set({8, 8}, {in.at(0), in.at(options.pairs), 0, options.pairs}, {out.at(0), out.at(options.pairs), options.pairs});
  }
  if (options.keys) {
    fill(engine.pool, in, random_word);
    each_set({8, 0}, {in.at(0), nullptr, 0, options.keys}, {out.at(0), nullptr, options.keys});
  }
}

int run(const Options& options) {
  EngineConfig config;
  config.host_devices = 0;
  for (const DeviceInfo& gpu : visible_gpus()) config.gpus.push_back(gpu.ordinal);
  if (config.gpus.empty()) {
    std::fprintf(stderr, "no GPU: nothing was measured\n");
    return 1;
  }
  config.memory_limit_bytes = size_t{64} << 30;
  Engine engine(config);
  Report report;
  const LinkSpeeds links = measure_links(engine, Job());
  std::string sets;
  for (const LinkSpeeds::Set& set : links.sets) {
    if (set.devices.size() == 1 && set.devices[0] != 0) continue;
    std::printf("%d GPUs: H2D %.1f, D2H %.1f, both %.1f GB/s\n", static_cast<int>(set.devices.size()), set.h2d / 1e9, set.d2h / 1e9,
                set.both / 1e9);
    sets += (sets.empty() ? "" : ", ") + ("{\"gpus\": " + std::to_string(set.devices.size())) + ", \"h2dGBps\": " +
            std::to_string(set.h2d / 1e9) + ", \"d2hGBps\": " + std::to_string(set.d2h / 1e9) + ", \"bothGBps\": " +
            std::to_string(set.both / 1e9) + "}";
  }
  measure_host_to_host(engine, links, options, report);
  if (!options.json.empty()) {
    std::FILE* file = std::fopen(options.json.c_str(), "w");
    if (!file) {
      std::perror(options.json.c_str());
      return 1;
    }
    std::fprintf(file, "{\"gpu\": \"%s\", \"hostThreads\": %u, \"links\": [%s],\n \"results\": [\n", engine.devices[0]->info().name.c_str(),
                 engine.pool.threads(), sets.c_str());
    for (size_t i = 0; i < report.rows.size(); ++i) std::fprintf(file, "  %s%s\n", report.rows[i].c_str(), i + 1 < report.rows.size() ? "," : "");
    std::fprintf(file, " ]}\n");
    std::fclose(file);
  }
  return report.wrong ? 1 : 0;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--keys") options.keys = std::stoull(value);
    else if (name == "--pairs") options.pairs = std::stoull(value);
    else if (name == "--runs") options.runs = static_cast<unsigned>(std::stoul(value));
    else if (name == "--json") options.json = value;
    else throw std::invalid_argument("unknown option " + name);
  }
  return options;
}

}  // namespace
}  // namespace warpjoin

int main(int argc, char** argv) {
  try {
    return warpjoin::run(warpjoin::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
