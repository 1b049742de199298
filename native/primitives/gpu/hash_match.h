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

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {

constexpr uint32_t kNoRow = ~uint32_t{0};
constexpr unsigned kEmitTile = 1024;  // rows whose output is summed up

constexpr uint64_t emit_tiles(uint64_t rows) { return (rows + kEmitTile - 1) / kEmitTile; }

/// Bits of the hash that make partitions of a build side whose tables have entries of up to so many bytes.
unsigned partition_bits(uint64_t build_rows, uint32_t entry_bytes);
/// Of the tables of a build side, which store its values or, where matches are kept, its row numbers.
uint32_t table_entry_bytes(TupleLayout build);
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

/// In device memory: pairs found in tables, where each key is there once; what was found in crowded partitions; and build tuples.
struct MatchCounts {
  unsigned long long by_table, crowded_pairs, crowded_probe, build;
};

/// What is known of a build side: the same memory in all matches that share it.
struct HashBuild {
  HashSide build;
  uint64_t crowded_rows = 0;  ///< build tuples
  bool sorted_crowd = false;
  const void* crowd_hashes = nullptr;  ///< of the sorted crowd
  uint32_t* key_rows = nullptr;        ///< of each build tuple that is the first with its key: how many have it
  uint8_t* matched = nullptr;          ///< of each build tuple
  uint32_t* crowded = nullptr;         ///< of each partition: whether it is
  uint32_t* crowded_before = nullptr;  ///< build tuples in crowded partitions before each, and all
  uint64_t small_slots = 0;
  char* small_table = nullptr;
  uint32_t* small_rows = nullptr;  ///< of each slot, while the table is built
};

/// Tuples that devices have grouped: how, and which groups these are.
struct GroupCut {
  HashGrouping grouping;
  uint32_t first_group, groups;
  uint64_t stretches;  ///< of a side, in all its runs

  uint32_t partitions() const { return groups << (grouping.bits - grouping.group_bits); }
};

class GpuHashMatch final : public HashMatch, public HashBuild {
 public:
  /// Takes its parts of the scratch; null: only adds up `bytes`. Rows are numbered in 32 bits: for more tuples of a side there
  /// is no scratch large enough. `shares`: the parts of the build side are those of `built`, which may be null without scratch.
  GpuHashMatch(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size, bool count_only, bool shares,
               const GpuHashMatch* built, const GroupCut* grouped, void* scratch, const std::string& device_name);

  const JoinTally& tally() const override { return found; }
  bool written() const override { return most_written > 0; }
  uint64_t partitions() const { return partitions_; }

  /// Replaces numbers by the sums of those before them.
  template <class T>
  void sum(T* numbers, uint64_t size, gpu_stream_t on, const std::string& device_name) const {
    size_t scratch_bytes = scan_scratch_bytes;
    GPU_CHECK(device_name, sums_before(scan_scratch, scratch_bytes, numbers, size, on));
  }

  unsigned bits = 0;             ///< of the hash: the partition; 0: the build side has one small table
  uint32_t first_partition = 0;  ///< those before it are on other devices
  bool count_only;
  bool shares_build;  ///< with the match that prepared it, and others
  HashSide probe;
  std::vector<TupleView> probe_fragments;  ///< as they came; in memory until the match is complete
  bool probe_hashed = false;               ///< whether `probe` has them
  JoinTally found;
  JoinOutput out;             ///< where pairs are written at once
  uint64_t most_written = 0;  ///< at most so many; 0: they are kept instead
  size_t bytes = 0;

  void take_build_rooms(host::Carver& carver, uint32_t entry_bytes, const std::string& device_name);

  // In device memory. Of tiles of kEmitTile rows each, ..._before are the sums of the tiles before, and at the end of all.
  uint32_t* first_match = nullptr;  ///< of each probe tuple: the first of the build tuples with its key, or kNoRow
  uint64_t *pairs_before = nullptr, *probe_matched_before = nullptr, *build_matched_before = nullptr;
  uint32_t* tasks_before = nullptr;   ///< of each partition, and all
  uint32_t* table_matches = nullptr;  ///< of each partition: probe tuples that found their match in a table
  MatchCounts* counts = nullptr;
  char* between = nullptr;  ///< tuples between two passes of a split: where what only comes after it is
  void *split_scratch = nullptr, *scan_scratch = nullptr, *sort_scratch = nullptr;
  size_t scan_scratch_bytes = 0, sort_scratch_bytes = 0;
  TupleSpan sorting[2];        ///< key and value apart
  uint32_t* bounds = nullptr;  ///< of a side's groups as devices made them

 private:
  uint64_t partitions_ = 1;
};

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
