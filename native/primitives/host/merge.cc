#include <algorithm>
#include <memory>
#include <vector>

#include "primitives/host/blocks.h"
#include "primitives/host/host_primitives.h"
#include "primitives/host/merge_pair.h"
#include "primitives/host/multisequence.h"

namespace warpjoin {
namespace {

using namespace host;

// Tuples merged at a time by one thread. With more than two runs, neighbours are merged in pairs, the pairs again, and
// so on: a block and its working copies stay in the L2 cache meanwhile.
constexpr uint64_t kPairBlock = 1 << 16;
constexpr uint64_t kTreeBlock = 1 << 14;
constexpr uint64_t kTuplesOfEachRun = 256;

uint64_t block_size(size_t runs) { return runs <= 2 ? kPairBlock : std::max<uint64_t>(kTreeBlock, runs * kTuplesOfEachRun); }

template <class Key, class Value>
class Merger {
 public:
  Merger(ThreadPool& pool, size_t runs, uint64_t size, void* scratch) : pool_(pool), block_(std::min(block_size(runs), size)) {
    Carver carver(scratch);
    const uint64_t count = runs < 2 ? 0 : std::min<uint64_t>(pool.threads(), tasks(size));
    for (uint64_t i = 0; i < count; ++i) runners_.emplace_back(carver, block_, runs > 2);
    scratch_bytes_ = carver.bytes();
  }

  size_t scratch_bytes() const { return scratch_bytes_; }

  void run(std::span<const TupleView> all, const Tuples<Key, Value>& out, const Job& job) {
    job.check();
    uint64_t size = 0;
    for (const TupleView& run : all) {
      if (run.size) runs_.push_back(run);
      size += run.size;
    }
    if (runs_.empty()) return;
    if (runs_.size() == 1) return copy_tuples(pool_, runs_[0], out, job);
    const uint64_t count = tasks(size);
    for_each_task(pool_, count, job, [&](uint64_t task, uint64_t runner) {
      merge_range(block_begin(size, count, task), block_begin(size, count, task + 1), out, runners_[runner], job);
    });
  }

 private:
  using Run = SortedRun<Key, Value>;

  struct Runner {
    Tuples<Key, Value> levels[2];
    Value* values = nullptr;  // of runs whose values are implied

    Runner(Carver& carver, uint64_t block, bool tree) {
      for (auto& level : levels) {
        if (tree) level = {carver.take<Key>(block), has_values<Value> ? carver.take<Value>(block) : nullptr};
      }
      if constexpr (has_values<Value>) values = carver.take<Value>(block);
    }
  };

  uint64_t tasks(uint64_t size) const { return block_count(pool_, size, kTreeBlock); }

  /// Merges the tuples of ranks [begin, end).
  void merge_range(uint64_t begin, uint64_t end, const Tuples<Key, Value>& out, const Runner& runner, const Job& job) {
    const size_t count = runs_.size();
    RunCutter<Key> cutter(count);
    std::vector<uint64_t> from(count), to(count), most(count);
    std::vector<Run> parts;
    parts.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      cutter.set_run(i, static_cast<const Key*>(runs_[i].keys));
      most[i] = runs_[i].size;
    }
    cutter.cut(from.data(), most.data(), begin);
    for (uint64_t rank = begin; rank < end;) {
      job.check();
      const uint64_t next = std::min(end, rank + block_);
      for (size_t i = 0; i < count; ++i) {
        to[i] = from[i];
        most[i] = std::min(runs_[i].size, from[i] + (next - rank));
      }
      cutter.cut(to.data(), most.data(), next);
      parts.clear();
      uint64_t implied = 0;
      for (size_t i = 0; i < count; ++i) {
        if (from[i] != to[i]) parts.push_back(part(runs_[i], from[i], to[i], runner, implied));
      }
      merge_block(parts, out.at(rank), runner);
      from.swap(to);
      rank = next;
    }
  }

  static Run part(const TupleView& run, uint64_t begin, uint64_t end, const Runner& runner, uint64_t& implied) {
    const auto* const keys = static_cast<const Key*>(run.keys) + begin;
    if constexpr (!has_values<Value>) {
      return {keys, nullptr, end - begin};
    } else {
      if (run.values) return {keys, static_cast<const Value*>(run.values) + begin, end - begin};
      Value* const values = runner.values + implied;
      for (uint64_t i = begin; i < end; ++i) values[i - begin] = static_cast<Value>(run.first_value + i);
      implied += end - begin;
      return {keys, values, end - begin};
    }
  }

  static void merge_block(std::vector<Run>& parts, const Tuples<Key, Value>& out, const Runner& runner) {
    bool first_level = true;
    for (int level = 0; parts.size() > 2; level ^= 1, first_level = false) {
      const Tuples<Key, Value>& target = runner.levels[level];
      size_t kept = 0;
      uint64_t at = 0;
      for (size_t i = 0; i < parts.size(); i += 2) {
        const Tuples<Key, Value> merged = target.at(at);
        uint64_t size = parts[i].size;
        if (i + 1 < parts.size()) {
          size += parts[i + 1].size;
          merge_pair(parts[i], parts[i + 1], merged);
        } else if (first_level) {
          parts[kept++] = parts[i];  // still where it came from
          break;
        } else {
          copy_tuples(parts[i].view(), merged);  // the level after next overwrites its place
        }
        parts[kept++] = {merged.keys, merged.values, size};
        at += size;
      }
      parts.resize(kept);
    }
    if (parts.size() == 2) return merge_pair(parts[0], parts[1], out);
    copy_tuples(parts[0].view(), out);
  }

  ThreadPool& pool_;
  const uint64_t block_;
  std::vector<TupleView> runs_;
  std::vector<Runner> runners_;
  size_t scratch_bytes_ = 0;
};

}  // namespace

void HostPrimitives::merge(TupleLayout layout, std::span<const TupleView> runs, TupleSpan out, void* scratch, const Job& job,
                           Stream& stream) {
  host(stream).enqueue([=, this, &job, runs = std::vector<TupleView>(runs.begin(), runs.end())] {
    with_layout(layout, [&]<class K, class V>(K, V) {
      Merger<K, V>(pool_, runs.size(), out.size, scratch).run(runs, Tuples<K, V>(out), job);
    });
  });
}

size_t HostPrimitives::merge_scratch_bytes(TupleLayout layout, size_t runs, uint64_t size) {
  return with_layout(layout, [&]<class K, class V>(K, V) { return Merger<K, V>(pool_, runs, size, nullptr).scratch_bytes(); });
}

void HostPrimitives::split_runs(TupleLayout layout, std::span<const TupleView> runs, std::span<const uint64_t> ranks,
                                uint64_t* host_cuts, Stream& stream) {
  host(stream).enqueue(
      [=, runs = std::vector<TupleView>(runs.begin(), runs.end()), ranks = std::vector<uint64_t>(ranks.begin(), ranks.end())] {
        const auto split = [&]<class Key>(Key) {
          RunCutter<Key> cutter(runs.size());
          std::vector<uint64_t> sizes(runs.size());
          for (size_t i = 0; i < runs.size(); ++i) {
            cutter.set_run(i, static_cast<const Key*>(runs[i].keys));
            sizes[i] = runs[i].size;
          }
          std::vector<uint64_t> cuts(runs.size());
          for (size_t r = 0; r < ranks.size(); ++r) {
            cutter.cut(cuts.data(), sizes.data(), ranks[r]);
            std::copy(cuts.begin(), cuts.end(), host_cuts + r * runs.size());
          }
        };
        if (layout.key_bytes == 4) {
          split(uint32_t{});
        } else {
          split(uint64_t{});
        }
      });
}

}  // namespace warpjoin
