// Sorts on GPUs beside the ceilings of their links, all in one run:
//
//   warpjoin_gpu_sort_bench [--keys N] [--pairs N] [--runs N] [--gpus 1,2,4] [--json FILE]
//
// Host to host from pinned memory: uint64 keys, and (uint64, uint64) pairs whose values are row numbers. The floor is the
// bytes over the host-to-device ceiling plus the bytes over the device-to-host ceiling of the same GPUs. Every result is
// checked: in order, stable, and made of the input's tuples.
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
#include "sort/sort.h"
#include "transfer/link_speeds.h"

namespace warpjoin {
namespace {

struct Options {
  uint64_t keys = 4'000'000'000, pairs = 2'000'000'000;
  unsigned runs = 3;
  std::vector<int> gpus;
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
