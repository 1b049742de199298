// What the hash join's kernels know of a match: where the tuples are, and what was found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "primitives/gpu/hash_tuples.h"
#include "primitives/gpu/scan.h"
#include "primitives/hash_groups.h"
#include "primitives/host/blocks.h"
#include "primitives/primitives.h"

namespace warpjoin {
inline namespace WARPJOIN_BLOCKS {
class GpuPrimitives;
}
}  // namespace warpjoin

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

constexpr uint32_t kNoRow = ~uint32_t{0};
constexpr unsigned kEmitTile = 1024;  // rows whose output is summed up

constexpr uint64_t emit_tiles(uint64_t rows) { return (rows + kEmitTile - 1) / kEmitTile; }

/// Bits of the hash that make partitions of a build side whose tables have entries of up to so many bytes.
unsigned partition_bits(uint64_t build_rows, uint32_t entry_bytes);
/// Of the tables of a build side, which store its values or, where matches are kept, its row numbers.
uint32_t table_entry_bytes(TupleLayout build);
/// Whether partitions of 2^bits have more tuples than such a table holds.
bool has_large_partitions(uint64_t build_rows, unsigned bits, uint32_t entry_bytes);
/// Of the slots of all partitions.
size_t slot_begins_bytes(uint64_t partitions);
/// Slots of the one table of a build side that is small enough for that, else 0.
uint64_t small_table_slots(uint64_t build_rows, uint32_t entry_bytes);
/// The most rows of a build side that has one table.
uint64_t most_small_rows(uint32_t entry_bytes);

template <class F>
void with_key(TupleLayout layout, F&& f) {
  layout.key_bytes == 4 ? f(uint32_t{}) : f(uint64_t{});
}

/// One side's tuples, grouped by partition.
struct HashSide {
  TupleLayout layout;
  HashTuples tuples;
  uint32_t size = 0;
  uint32_t* offsets = nullptr;  ///< of the partitions, and the end
};

/// Where the partitions of a build side are that came in pieces: partition p of piece i is rows [offsets[i * (partitions + 1) +
/// p], offsets[i * (partitions + 1) + p + 1]).
struct HashPieces {
  const uint32_t* offsets;
  uint32_t count;
  uint64_t partitions;

  __device__ const uint32_t* at(uint32_t piece, uint64_t partition) const {
    return offsets + piece * (partitions + 1) + partition;
  }
  __device__ uint32_t rows(uint64_t partition) const {
    uint32_t rows = 0;
    for (uint32_t i = 0; i < count; ++i) rows += at(i, partition)[1] - at(i, partition)[0];
    return rows;
  }
};

/// In device memory: pairs found in tables, where each key is there once; what was found in crowded partitions; and build tuples.
struct MatchCounts {
  unsigned long long by_table, crowded_pairs, crowded_probe, build;
};

/// Rows of a build side that its crowd has, sorted.
struct CrowdRows {
  uint32_t first;  ///< those before are the build side's own
  const uint32_t* key_rows;

  /// Of the key that `row` is the first with.
  __device__ uint32_t rows_with_key(uint32_t row) const { return row < first ? 1 : key_rows[row - first]; }
};

/// For the build tuples of crowded partitions, in order.
struct CrowdRoom {
  TupleSpan sorted;    ///< key and value apart
  HashTuples tuples;   ///< the same, side by side; while they are sorted the other room for it
  uint32_t* key_rows;  ///< of each that is the first with its key: how many have it
  uint8_t* matched;    ///< of each that is the first with its key
  void* sort_scratch;
  size_t sort_scratch_bytes = 0;

  CrowdRoom() = default;
  CrowdRoom(host::Carver& carver, TupleLayout layout, uint64_t size, const std::string& device_name);
};

/// What only a split takes, which ends before the next one begins: matches of one build side share it.
struct SplitRoom {
  char* between = nullptr;  ///< tuples between two passes
  void *split_scratch = nullptr, *scan_scratch = nullptr;
  size_t scan_scratch_bytes = 0;
};

/// A build side: the same in all matches that share it.
struct BuildSide : HashSide {
  unsigned bits = 0;             ///< of the hash: the partition; 0: there is one small table
  uint32_t first_partition = 0;  ///< those before it are on other devices
  uint64_t partitions = 1;
  uint32_t pieces = 1;  ///< `offsets` are those of the first
  uint64_t crowded_rows = 0;
  bool sorted_crowd = false;
  CrowdRoom crowd;
  uint64_t most = 0;                   ///< rows that `tuples` has room for: from there on rows are numbered that `crowd` has
  uint8_t* matched = nullptr;          ///< of each tuple; null: nobody asks
  uint32_t* crowded = nullptr;         ///< of each partition: whether it is
  uint32_t* crowded_before = nullptr;  ///< tuples in crowded partitions before each, and all
  uint16_t* slot_begins = nullptr;     ///< of partitions whose tuples are in the order of their slots; null: they are not
  bool large_partitions = false;       ///< they have the order, as tables that two blocks a multiprocessor hold are too small
  uint64_t small_slots = 0;
  char* small_table = nullptr;
  uint32_t* small_rows = nullptr;  ///< of each slot, while the table is built

  CrowdRows crowd_rows() const { return {sorted_crowd ? static_cast<uint32_t>(most) : kNoRow, crowd.key_rows}; }
  HashPieces all_pieces() const { return {offsets, pieces, partitions}; }
  /// Takes what is known of up to `rows` tuples, beside the tuples themselves.
  void take_rooms(host::Carver& carver, uint64_t rows, uint32_t entry_bytes, bool tracks);
};

/// Tuples that devices have grouped: how, and which groups these are.
struct GroupCut {
  HashGrouping grouping;
  uint32_t first_group, groups;
  uint64_t stretches;  ///< of a side, in all its runs

  uint32_t partitions() const { return groups << (grouping.bits - grouping.group_bits); }
};

class GpuHashBuild final : public HashBuild {
 public:
  /// Takes its parts of the scratch; null: only adds up `bytes`. Rows are numbered in 32 bits: for more tuples of a side there
  /// is no scratch large enough.
  GpuHashBuild(GpuPrimitives& on, const HashBuildPlan& plan, void* scratch, const std::string& device_name);

  void add(const PartitionedTuples& tuples, const Job& job, Stream& stream) override;
  void finish(const Job& job, Stream& stream) override;
  size_t more_bytes() const override;
  void go_on(void* memory, const Job& job, Stream& stream) override;
  /// Of so many tuples that all crowd, what they take beside.
  static size_t crowd_bytes(TupleLayout layout, uint64_t rows, const std::string& device_name);

  BuildSide side;
  SplitRoom split;
  MatchCounts* counts = nullptr;
  size_t bytes = 0;

 private:
  friend class warpjoin::GpuPrimitives;
  /// Of the room for tuples, what none have.
  size_t free_bytes() const { return (side.most - side.size) * side.tuples.stride; }

  GpuPrimitives& on_;
  const HashBuildPlan plan_;
  const std::string& device_name_;
};

class GpuHashMatch final : public HashMatch {
 public:
  /// Of a build side of its own. Takes its parts of the scratch; null: only adds up `bytes`. Rows are numbered in 32 bits: for
  /// more tuples of a side there is no scratch large enough.
  GpuHashMatch(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size, bool count_only,
               const GroupCut* grouped, void* scratch, const std::string& device_name);
  /// Of one that it shares with others.
  GpuHashMatch(GpuHashBuild& built, TupleLayout probe, uint64_t probe_size, bool count_only, void* scratch,
               const std::string& device_name);

  const JoinTally& tally() const override { return found; }
  bool written() const override { return most_written > 0; }
  uint64_t partitions() const { return build.partitions; }

  /// Replaces numbers by the sums of those before them.
  template <class T>
  void sum(T* numbers, uint64_t size, gpu_stream_t on, const std::string& device_name) const {
    size_t scratch_bytes = split.scan_scratch_bytes;
    GPU_CHECK(device_name, sums_before(split.scan_scratch, scratch_bytes, numbers, size, on));
  }

 private:
  BuildSide own_;

 public:
  BuildSide& build;
  bool count_only;
  HashSide probe;
  std::vector<TupleView> probe_fragments;  ///< as they came; in memory until the match is complete
  bool probe_hashed = false;               ///< whether `probe` has them
  JoinTally found;
  JoinOutput out;             ///< where pairs are written at once
  uint64_t most_written = 0;  ///< at most so many; 0: they are kept instead
  size_t bytes = 0;

  bool shares_build() const { return &build != &own_; }

  // In device memory. Of tiles of kEmitTile rows each, ..._before are the sums of the tiles before, and at the end of all.
  uint32_t* first_match = nullptr;  ///< of each probe tuple: the first of the build tuples with its key, or kNoRow
  uint64_t *pairs_before = nullptr, *probe_matched_before = nullptr, *build_matched_before = nullptr;
  uint32_t* tasks_before = nullptr;   ///< of each partition, and all
  uint32_t* table_matches = nullptr;  ///< of each partition: probe tuples that found their match in a table
  MatchCounts* counts = nullptr;
  SplitRoom split;
  uint32_t* bounds = nullptr;  ///< of a side's groups as devices made them

 private:
  void take_probe(host::Carver& carver, TupleLayout layout, uint64_t size);
  void take_matches(host::Carver& carver);
};

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
