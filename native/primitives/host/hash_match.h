// What a hash match on the host keeps between counting and writing.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "core/thread_pool.h"
#include "primitives/primitives.h"

namespace warpjoin::host {

/// One fragment's rows of a partition; `begin` is the row of its first tuple in the partition.
struct Piece {
  TupleView tuples;
  uint64_t begin = 0;
  uint64_t end() const { return begin + tuples.size; }
};

/// Rows [begin, end) of a probe partition: what one thread probes, and what it found.
struct ProbeUnit {
  uint32_t partition;
  uint64_t begin, end;
  uint64_t pairs = 0, matched = 0;
};

/// Build tuples with equal keys form a group. Groups are numbered in the order of their first tuples, so where every key
/// occurs once a group is its tuple's row. A probe tuple's match is a group, or number `groups`: none.
struct BuiltPartition {
  uint32_t groups = 0;
  bool unique = true;
  uint64_t matched = 0;  ///< build tuples with at least one match
};

/// Keeps the tuples as they came, and which of its keys matches have found. Each match builds its tables anew.
class HostHashBuild final : public HashBuild {
 public:
  HostHashBuild(ThreadPool& pool, const HashBuildPlan& plan, void* scratch);
  static size_t scratch_bytes(const HashBuildPlan& plan);

  void add(const PartitionedTuples& tuples, const Job& job, Stream& stream) override;
  void finish(const Job& job, Stream& stream) override;

  const HashBuildPlan& plan() const { return plan_; }
  const PartitionedTuples& tuples() const { return tuples_; }
  /// A flag for each tuple.
  uint8_t* found() const { return found_; }

 private:
  ThreadPool& pool_;
  const HashBuildPlan plan_;
  TupleSpan room_;
  uint8_t* found_;
  uint64_t size_ = 0;
  PartitionedTuples tuples_;
  std::deque<std::vector<uint64_t>> offsets_;  // of the fragments
};

class HostHashMatch final : public HashMatch {
 public:
  /// `built`: of the same build side, with the same partitions as in earlier matches; or null.
  HostHashMatch(const PartitionedTuples& build, const PartitionedTuples& probe, uint32_t partitions, uint32_t common_bits,
                bool count_only, void* scratch, unsigned threads, const HostHashBuild* built);

  static size_t scratch_bytes(uint64_t build_size, uint64_t probe_size, uint32_t partitions, bool count_only, uint8_t key_bytes,
                              unsigned threads);

  const JoinTally& tally() const override { return tally_; }

  /// Counts and keeps. On the stream's thread.
  void run(ThreadPool& pool, const Job& job);
  /// Writes rows [first, first + rows). On the stream's thread.
  void emit(JoinEmit what, uint64_t first, uint64_t rows, JoinOutput out, ThreadPool& pool, const Job& job) const;

 private:
  template <class Key>
  friend class PartitionJoin;

  static std::vector<Piece> pieces(const PartitionedTuples& side, uint32_t partition);
  void plan(unsigned threads);
  template <class Key>
  void run_keys(ThreadPool& pool, const Job& job);
  void emit_pairs(const struct Window& window, JoinOutput out, const Job& job) const;
  void emit_probe(bool matched, const struct Window& window, JoinOutput out, const Job& job) const;
  void emit_build(bool matched, const struct Window& window, JoinOutput out, const Job& job) const;

  // Arrays of partition p; those of groups have room for `none` and an end.
  uint64_t build_size(uint32_t p) const { return build_base_[p + 1] - build_base_[p]; }
  uint32_t* matches(uint32_t p) const { return matches_ + probe_base_[p]; }                            ///< of each probe row
  uint32_t* group_of(uint32_t p) const { return group_of_ + build_base_[p] + 2 * uint64_t{p}; }        ///< while building
  uint8_t* group_matched(uint32_t p) const { return reinterpret_cast<uint8_t*>(group_of(p)); }         ///< afterwards
  uint32_t* group_begin(uint32_t p) const { return group_begin_ + build_base_[p] + 2 * uint64_t{p}; }  ///< unless unique
  uint32_t* rows_by_group(uint32_t p) const { return rows_by_group_ + build_base_[p]; }                ///< unless unique

  /// Of each group, as equal build sides have equal groups: whether an earlier match has found it.
  uint8_t* found_before(uint32_t p) const { return built_side_ ? built_side_->found() + build_base_[p] : nullptr; }

  const PartitionedTuples build_, probe_;
  const uint32_t partitions_, common_bits_;
  const bool count_only_;
  const HostHashBuild* const built_side_;
  JoinTally tally_;
  uint64_t build_total_ = 0, probe_total_ = 0;     // room in scratch
  std::vector<uint64_t> build_base_, probe_base_;  // partitions + 1: rows before each partition
  std::vector<BuiltPartition> built_;              // of each partition
  std::vector<ProbeUnit> units_;                   // in the order of partitions and rows
  std::vector<uint64_t> first_unit_;               // partitions + 1
  std::vector<uint32_t> heavy_, light_;            // partitions probed by all threads, and those by one
  uint64_t table_keys_;                            // room in a table
  uint32_t *group_of_, *group_begin_, *rows_by_group_, *matches_;
  std::mutex mutex_;
  std::vector<void*> free_tables_;
};

/// Calls f(piece, begin, end) for the rows [begin, end) of a partition, cut at fragments and every 64 Ki rows, where
/// `job` is checked; rows count within the piece.
template <class F>
void for_rows(std::span<const Piece> pieces, uint64_t begin, uint64_t end, const Job& job, F&& f) {
  constexpr uint64_t kRows = 1 << 16;
  for (const Piece& piece : pieces) {
    const uint64_t to = std::min(end, piece.end());
    for (uint64_t from = std::max(begin, piece.begin); from < to; from = std::min(to, from + kRows)) {
      job.check();
      f(piece, from - piece.begin, std::min(to, from + kRows) - piece.begin);
    }
  }
}

}  // namespace warpjoin::host
