// What the programs share that measure several GPUs: times, pinned memory, and the ceilings of the links.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/job.h"
#include "engine/engine.h"
#include "transfer/host_transfer.h"

namespace warpjoin {

struct Times {
  double median, least, most;
};

inline Times times_of(std::vector<double> milliseconds) {
  std::sort(milliseconds.begin(), milliseconds.end());
  return {milliseconds[milliseconds.size() / 2], milliseconds.front(), milliseconds.back()};
}

inline double milliseconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
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
    unpin();
    munmap(data_, bytes_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  /// Once its pages are there: pinning touches them one by one.
  void pin() {
    if (!pinned_) device_.pin(data_, bytes_);
    pinned_ = true;
  }
  void unpin() {
    if (pinned_) device_.unpin(data_);
    pinned_ = false;
  }
  uint64_t* at(uint64_t word) const { return static_cast<uint64_t*>(data_) + word; }
  uint64_t words() const { return bytes_ / sizeof(uint64_t); }

 private:
  Device& device_;
  size_t bytes_;
  void* data_;
  bool pinned_ = false;
};

inline void fill(ThreadPool& pool, const Pinned& memory, const std::function<uint64_t(uint64_t)>& word) {
  pool.parallel_for(16 * uint64_t{pool.threads()}, [&](uint64_t b) {
    const uint64_t blocks = 16 * uint64_t{pool.threads()};
    const uint64_t begin = memory.words() / blocks * b,
                   end = b + 1 == blocks ? memory.words() : memory.words() / blocks * (b + 1);
    for (uint64_t i = begin; i < end; ++i) *memory.at(i) = word(i);
  });
}

constexpr uint64_t random_word(uint64_t i) {  // splitmix64
  i = (i + 1) * 0x9E3779B97F4A7C15ull;
  i = (i ^ (i >> 30)) * 0xBF58476D1CE4E5B9ull;
  i = (i ^ (i >> 27)) * 0x94D049BB133111EBull;
  return i ^ (i >> 31);
}

inline std::string json_of(const Times& times) {
  char text[128];
  std::snprintf(text, sizeof text, "{\"median\": %.3f, \"min\": %.3f, \"max\": %.3f}", times.median, times.least, times.most);
  return text;
}

inline std::string phases_of(const Job& job) {
  std::string phases;
  for (const PhaseStats& phase : job.phases()) {
    phases += (phases.empty() ? "" : ", ") + ("\"" + phase.name + "\": ") + std::to_string(phase.milliseconds);
  }
  return phases;
}

struct Report {
  std::vector<std::string> rows;
  bool wrong = false;

  /// Writes the rows to `path`, unless that is empty, behind `more` of the head's members. Gives the exit code.
  int write(const std::string& path, const Engine& engine, const std::string& more = "") const {
    if (path.empty()) return wrong;
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (!file) throw Error(ErrorCode::internal, "Can't write " + path);
    std::fprintf(file, "{\"gpu\": \"%s\", \"hostThreads\": %u%s,\n \"results\": [\n", engine.devices[0]->info().name.c_str(),
                 engine.pool.threads(), more.c_str());
    for (size_t i = 0; i < rows.size(); ++i) std::fprintf(file, "  %s%s\n", rows[i].c_str(), i + 1 < rows.size() ? "," : "");
    std::fprintf(file, " ]}\n");
    std::fclose(file);
    return wrong;
  }
};

// Copies of 2 GiB of pinned memory for each GPU, all at once, in bytes a second: the best of three. Small buffers that are
// copied again and again, as measure_links() does for the planner, stay in the last-level cache and look faster.
inline double ceiling(Engine& engine, const std::vector<Device*>& devices, const Pinned& from, const Pinned& to, bool there,
                      bool back) {
  const size_t bytes = std::min(size_t{2} << 30, from.words() * 8 / devices.size());
  std::vector<Buffer> memory;
  std::vector<HostQueue> queues;
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i]->memory().release();
    devices[i]->memory().reserve(2 * bytes + 4096);
    const auto queue = [&](HostQueue::Direction direction, const Pinned& host) {
      void* const own = memory.emplace_back(devices[i]->memory().allocate(bytes)).data();
      void* const at = host.at(bytes / 8 * i);
      const bool to_device = direction == HostQueue::Direction::to_device;
      queues.push_back({devices[i], direction, {{{{to_device ? own : at, to_device ? at : own, bytes}}, nullptr}}, 1, {}});
    };
    if (there) queue(HostQueue::Direction::to_device, from);
    if (back) queue(HostQueue::Direction::to_host, to);
  }
  double least = 0;
  for (int run = 0; run < 4; ++run) {
    const double took = milliseconds_of([&] { transfer(engine, queues, Job()); });
    if (run > 0) least = run == 1 ? took : std::min(least, took);
  }
  return static_cast<double>(bytes * queues.size()) / least * 1e3;
}

// The best ceilings of a set of GPUs: measured before and after each sort, for others use the host's memory too.
struct Ceilings {
  const std::vector<Device*> devices;
  double h2d = 0, d2h = 0, both = 0;  // bytes a second

  void measure(Engine& engine, const Pinned& in, const Pinned& out) {
    h2d = std::max(h2d, ceiling(engine, devices, in, out, true, false));
    d2h = std::max(d2h, ceiling(engine, devices, in, out, false, true));
    both = std::max(both, ceiling(engine, devices, in, out, true, true));
    for (Device* device : devices) device->memory().release();
  }
};

/// Blocks that an engine keeps for what it allocates next; pinned, unless they are ordinary memory.
class KeptMemory {
 public:
  KeptMemory(Engine& engine, const std::vector<size_t>& blocks, bool pinned) : device_(*engine.devices[0]) {
    std::vector<HostBuffer> held;
    // The first to go when something else needs it, as the devices' transfer buffers do.
    for (size_t d = 0; d < engine.devices.size(); ++d) {
      held.push_back(engine.memory->allocate(size_t{1} << 30, "room beside them"));
    }
    for (const size_t bytes : blocks) {
      const HostBuffer& block = held.emplace_back(engine.memory->allocate(bytes, "kept memory"));
      engine.pool.for_blocks(bytes, size_t{2} << 20, Job(),
                             [&](uint64_t begin, uint64_t end) { std::memset(block.as<char>() + begin, 0, end - begin); });
      if (!pinned) continue;
      device_.pin(block.data(), bytes);
      pinned_.push_back(block.data());
    }
  }
  ~KeptMemory() {
    for (void* block : pinned_) device_.unpin(block);
  }
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

 private:
  Device& device_;
  std::vector<void*> pinned_;
};

}  // namespace warpjoin
