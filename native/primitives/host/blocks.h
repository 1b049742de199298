// How the host primitives share work among threads and scratch among the threads at work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/job.h"
#include "core/thread_pool.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin::host {

/// Rows of a block, at least, where a row takes little time.
inline constexpr uint64_t kBlockGrain = uint64_t{1} << 14;
/// Rows between two looks at the job within a long block.
inline constexpr uint64_t kCheckRows = uint64_t{1} << 18;

/// Block `i` of [0, size) cut into `count` blocks of nearly equal size begins here; block `count` begins at the end.
constexpr uint64_t block_begin(uint64_t size, uint64_t count, uint64_t i) { return size / count * i + std::min(i, size % count); }

/// Into how many blocks to cut `size` rows: enough to balance the load, none smaller than `grain` if there are several.
inline uint64_t block_count(const ThreadPool& pool, uint64_t size, uint64_t grain) {
  return std::clamp<uint64_t>(size / grain, 1, uint64_t{pool.threads()} * 4);
}

/// Runs body(task, runner) for tasks 0 .. count - 1 in order. Tasks with the same runner, a number below
/// pool.threads(), never run at once, so that each runner may own scratch.
template <class Body>
void for_each_task(ThreadPool& pool, uint64_t count, const Job& job, const Body& body) {
  std::atomic<uint64_t> next{0};
  pool.parallel_for(std::min<uint64_t>(count, pool.threads()), [&](uint64_t runner) {
    for (uint64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      job.check();
      body(task, runner);
    }
  });
}

/// Copies any number of tuples with all threads; implied values are written out.
template <class Key, class Value>
void copy_tuples(ThreadPool& pool, const TupleView& in, const Tuples<Key, Value>& out, const Job& job) {
  constexpr TupleLayout kLayout{sizeof(Key), has_values<Value> ? sizeof(Value) : 0};
  pool.for_blocks(in.size, kBlockGrain, job, [&](uint64_t begin, uint64_t end) {
    for (uint64_t from = begin; from < end; from += kCheckRows) {
      job.check();
      copy_tuples(in.slice(kLayout, from, std::min(end, from + kCheckRows)), out.at(from));
    }
  });
}

/// Hands out parts of a scratch block; started at null it only adds up their sizes.
class Carver {
 public:
  explicit Carver(void* scratch) : at_(static_cast<char*>(scratch)) {}

  template <class T>
  T* take(uint64_t count) {
    T* part = at_ ? reinterpret_cast<T*>(at_ + bytes_) : nullptr;
    bytes_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return part;
  }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlignment = 128;
  char* at_;
  size_t bytes_ = 0;
};

}  // namespace warpjoin::host
