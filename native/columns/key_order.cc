#include <algorithm>
#include <atomic>
#include <string>

#include "columns/encode.h"

namespace warpjoin {
namespace {

constexpr uint64_t kSample = 256;
constexpr uint64_t kGrain = 1 << 16;   // rows a task looks at, at least
constexpr uint64_t kAtOnce = 1 << 12;  // rows between looks at what other tasks found

template <class F>
bool with_keys(const EncodedTuples& tuples, F&& f) {
  return tuples.layout.key_bytes == 4 ? f(static_cast<const uint32_t*>(tuples.view.keys), static_cast<uint32_t>(tuples.flip))
                                      : f(static_cast<const uint64_t*>(tuples.view.keys), tuples.flip);
}

}  // namespace

void throw_changed(std::initializer_list<const EncodedTuples*> keys) {
  std::string names;
  for (const EncodedTuples* tuples : keys) {
    if (tuples->borrowed_from) names += (names.empty() ? "Column '" : " or column '") + tuples->borrowed_from->name + "'";
  }
  throw InputChanged(names.empty() ? "An input" : names);
}

bool seems_sorted(const EncodedTuples& tuples) {
  const uint64_t size = tuples.view.size;
  if (size < 2) return true;
  return with_keys(tuples, [&]<class Key>(const Key* keys, Key flip) {
    const uint64_t count = std::min(size - 1, kSample);
    Key last = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t row = sampled_row(size - 1, count, i);
      const Key here = keys[row] ^ flip, next = keys[row + 1] ^ flip;
      if (last > here || here > next) return false;
      last = next;
    }
    return true;
  });
}

bool is_sorted(const EncodedTuples& tuples, Engine& engine, const Job& job) {
  if (!seems_sorted(tuples)) return false;
  if (tuples.view.size < 2) return true;
  return with_keys(tuples, [&]<class Key>(const Key* keys, Key flip) {
    std::atomic<bool> inverted{false};
    engine.pool.for_blocks(tuples.view.size - 1, kGrain, job, [&](uint64_t begin, uint64_t end) {
      for (; begin < end && !inverted.load(std::memory_order_relaxed); begin += kAtOnce) {
        job.check();
        bool here = false;
        for (uint64_t i = begin; i < std::min(end, begin + kAtOnce); ++i) here |= (keys[i] ^ flip) > (keys[i + 1] ^ flip);
        if (here) inverted.store(true, std::memory_order_relaxed);
      }
    });
    return !inverted.load();
  });
}

}  // namespace warpjoin
