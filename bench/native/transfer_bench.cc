// Transfers between ordinary host memory and GPUs against the ceilings of the same run: plain copies of pinned memory.
// A program without Google Benchmark, so that it runs on any GPU host.
//
//   warpjoin_transfer_bench [--gib N] [--threads N] [--runs N] [--json FILE]
//
// --gib: what is moved in all, half of it each way where both directions run at once (8).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "device/gpu_device.h"
#include "gpu_bench.h"
#include "transfer/host_transfer.h"

namespace warpjoin {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kCopyBytes = 128 * kMiB;
constexpr size_t kWindowBytes = 512 * kMiB;  // device and pinned memory of one direction of a link; used again and again

struct Options {
  size_t gib = 8;
  unsigned threads = 0;
  size_t runs = 5;
  std::string json;
};

enum class Mode { to_device, to_host, both };
constexpr const char* kModeNames[] = {"to_device", "to_host", "both"};

bool includes(Mode mode, HostQueue::Direction direction) {
  return mode == Mode::both || (mode == Mode::to_device) == (direction == HostQueue::Direction::to_device);
}

constexpr HostQueue::Direction kDirections[] = {HostQueue::Direction::to_device, HostQueue::Direction::to_host};

struct Rate {
  double median, least, most;  // GB/s
};

Rate measure(size_t runs, size_t bytes, const std::function<void()>& run) {
  std::vector<double> rates;
  run();  // warms up: pins the ring, makes the streams
  for (size_t i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(bytes) / seconds.count() / 1e9);
  }
  std::sort(rates.begin(), rates.end());
  return {rates[rates.size() / 2], rates.front(), rates.back()};
}

// An engine on the first GPUs, with a window of device memory for each direction of each link.
struct Gpus {
  Gpus(size_t count, unsigned threads, size_t block_bytes) : engine(config(count, threads, block_bytes)) {
    for (const auto& device : engine.devices) {
      device->memory().reserve(2 * kWindowBytes);
      for (auto& own : windows) own.push_back(device->memory().allocate(kWindowBytes));
    }
  }
  static EngineConfig config(size_t count, unsigned threads, size_t block_bytes) {
    std::vector<int> ordinals(count);
    std::iota(ordinals.begin(), ordinals.end(), 0);
    return {.threads = threads,
            .host_devices = 0,
            .gpus = ordinals,
            .memory_limit_bytes = size_t{4} << 30,
            .device_memory_limit_bytes = 2 * kWindowBytes,
            .transfer_block_bytes = block_bytes};
  }

  // Calls copy(device, direction, target, source, bytes) so that `bytes` in all are moved; host_at gives the host memory
  // at a position of one direction's part.
  void for_each_copy(Mode mode, size_t bytes,
                     const std::function<char*(size_t device, HostQueue::Direction direction, size_t at)>& host_at,
                     const std::function<void(size_t device, HostQueue::Direction direction, char*, char*, size_t)>& copy) {
    const size_t share = bytes / engine.devices.size() / (mode == Mode::both ? 2 : 1);
    for (size_t d = 0; d < engine.devices.size(); ++d) {
      for (const HostQueue::Direction direction : kDirections) {
        if (!includes(mode, direction)) continue;
        const bool to_device = direction == HostQueue::Direction::to_device;
        for (size_t at = 0; at < share; at += kCopyBytes) {
          char* const host = host_at(d, direction, at);
          char* const on_device = windows[to_device ? 0 : 1][d].as<char>() + at % kWindowBytes;
          copy(d, direction, to_device ? on_device : host, to_device ? host : on_device, std::min(kCopyBytes, share - at));
        }
      }
    }
  }

  void run_transfer(Mode mode, size_t bytes,
                    const std::function<char*(size_t device, HostQueue::Direction direction, size_t at)>& host_at) {
    std::vector<HostQueue> queues;
    for_each_copy(mode, bytes, host_at, [&](size_t d, HostQueue::Direction direction, char* target, char* source, size_t size) {
      Device* const device = engine.devices[d].get();
      if (queues.empty() || queues.back().device != device || queues.back().direction != direction) {
        HostQueue& queue = queues.emplace_back();
        queue.device = device;
        queue.direction = direction;
      }
      queues.back().copies.push_back({{{target, source, size}}});
    });
    transfer(engine, queues, Job());
  }

  // The ceiling: everything enqueued at once, on one stream for each direction of each link.
  void run_plain_copies(Mode mode, size_t bytes,
                        const std::function<char*(size_t device, HostQueue::Direction direction, size_t at)>& pinned_at) {
    if (streams.empty()) {
      for (const auto& device : engine.devices) {
        for (size_t i = 0; i < 2; ++i) streams.push_back(device->create_stream());
      }
    }
    for_each_copy(mode, bytes, pinned_at, [&](size_t d, HostQueue::Direction direction, char* target, char* source, size_t size) {
      engine.devices[d]->copy(target, source, size, *streams[2 * d + (direction == HostQueue::Direction::to_host ? 1 : 0)]);
    });
    for (const auto& stream : streams) stream->synchronize();
  }

  Engine engine;
  std::vector<Buffer> windows[2];
  std::vector<std::unique_ptr<Stream>> streams;
};

class Report {
 public:
  void add(size_t gpus, Mode mode, const char* what, size_t block_bytes, bool usual, Rate rate, double ceiling) {
    std::printf("%zu GPUs  %-9s  %-22s  %7.1f GB/s (%.1f to %.1f)", gpus, kModeNames[static_cast<size_t>(mode)],
                block_bytes ? (std::string(what) + ", " + std::to_string(block_bytes >> 10) + " KiB").c_str() : what, rate.median,
                rate.least, rate.most);
    std::printf("  %5.1f %%\n", 100 * rate.median / ceiling);
    std::fflush(stdout);
    rows_ << (rows_.tellp() ? ",\n    " : "") << "{\"gpus\": " << gpus << ", \"direction\": \""
          << kModeNames[static_cast<size_t>(mode)] << "\", \"what\": \"" << what << "\", \"blockBytes\": " << block_bytes
          << ", \"usual\": " << (usual ? "true" : "false") << ", \"gbPerSecond\": " << rate.median
          << ", \"least\": " << rate.least << ", \"most\": " << rate.most << ", \"ofCeiling\": " << rate.median / ceiling << "}";
  }
  void write(const Options& options, unsigned threads) const {
    std::ofstream out(options.json);
    out << "{\n  \"gpu\": \"" << visible_gpus()[0].name << "\",\n  \"threads\": " << threads << ",\n  \"gib\": " << options.gib
        << ",\n  \"runs\": " << options.runs << ",\n  \"results\": [\n    " << rows_.str() << "\n  ]\n}\n";
    if (!out) throw Error(ErrorCode::option, "Could not write '" + options.json + "'");
  }

 private:
  std::ostringstream rows_;
};

void touch(ThreadPool& pool, const HostBuffer& buffer) {
  pool.for_blocks(buffer.size(), kMiB, Job(),
                  [&](uint64_t begin, uint64_t end) { std::memset(buffer.as<char>() + begin, 1, end - begin); });
}

void bench(size_t count, const Options& options, const HostBuffer (&ordinary)[2], Report& report) {
  const size_t bytes = options.gib << 30;
  const auto part = [](HostQueue::Direction direction) { return direction == HostQueue::Direction::to_device ? 0 : 1; };
  const auto memory = HostMemory::create(2 * count * kWindowBytes);
  Gpus plain(count, options.threads, 0);
  const HostBuffer windows = memory->allocate(2 * count * kWindowBytes, "pinned windows");
  touch(plain.engine.pool, windows);
  Device& pins = *plain.engine.devices[0];
  pins.pin(windows.data(), windows.size());
  const auto pinned_at = [&](size_t d, HostQueue::Direction direction, size_t at) {
    return windows.as<char>() + (2 * d + part(direction)) * kWindowBytes + at % kWindowBytes;
  };
  constexpr Mode modes[] = {Mode::to_device, Mode::to_host, Mode::both};
  Rate ceilings[3];
  for (const Mode mode : modes) {
    Rate& ceiling = ceilings[static_cast<size_t>(mode)];
    ceiling = measure(options.runs, bytes, [&] { plain.run_plain_copies(mode, bytes, pinned_at); });
    report.add(count, mode, "ceiling", 0, false, ceiling, ceiling.median);
    report.add(count, mode, "pinned", 0, false, measure(options.runs, bytes, [&] { plain.run_transfer(mode, bytes, pinned_at); }),
               ceiling.median);
  }
  pins.unpin(windows.data());
  const size_t usual = plain.engine.pinned.most_buffer_bytes();
  for (const size_t block : {usual / 2, usual, 2 * usual}) {
    Gpus gpus(count, options.threads, block);
    for (const Mode mode : modes) {
      const size_t share = bytes / count / (mode == Mode::both ? 2 : 1);
      const auto ordinary_at = [&](size_t d, HostQueue::Direction direction, size_t at) {
        return ordinary[part(direction)].as<char>() + d * share + at;
      };
      report.add(count, mode, "ordinary", block, block == usual,
                 measure(options.runs, bytes, [&] { gpus.run_transfer(mode, bytes, ordinary_at); }),
                 ceilings[static_cast<size_t>(mode)].median);
    }
  }
}

void run(const Options& options) {
  const size_t gpus = visible_gpus().size();
  ThreadPool pool(options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency()));
  const size_t bytes = options.gib << 30;
  const auto memory = HostMemory::create(2 * bytes);
  const HostBuffer ordinary[2] = {memory->allocate(bytes, "a benchmark"), memory->allocate(bytes, "a benchmark")};
  for (const HostBuffer& buffer : ordinary) touch(pool, buffer);
  Report report;
  for (size_t count = 1; count <= gpus; count *= 2) bench(count, options, ordinary, report);
  if (!options.json.empty()) report.write(options, pool.threads());
}

}  // namespace
}  // namespace warpjoin

int main(int argc, char** argv) {
  using namespace warpjoin;
  Options options;
  return bench::main_of(
      argc, argv,
      {{"--gib", &options.gib}, {"--threads", &options.threads}, {"--runs", &options.runs}, {"--json", &options.json}}, [&] {
        run(options);
        return 0;
      });
}
