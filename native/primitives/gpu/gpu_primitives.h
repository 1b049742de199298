// The primitives on a GPU. Each family is defined in a file of its own beside this one.
#pragma once

#include <memory>

#include "device/gpu_stream.h"
#include "primitives/gpu/blocks.h"
#include "primitives/hash_groups.h"
#include "primitives/primitives.h"

namespace warpjoin {

namespace gpu {
inline namespace WARPJOIN_BLOCKS {
class GpuHashBuild;
class GpuHashMatch;
struct BuildSide;
struct HashSide;
struct SplitRoom;
}  // namespace WARPJOIN_BLOCKS
}  // namespace gpu

inline namespace WARPJOIN_BLOCKS {

class GpuPrimitives final : public Primitives, public HashGroups {
 public:
  GpuPrimitives(const Device& device, const GpuId& id, ResultSlots& results) : device_(device), id_(id), results_(results) {}

  // encode.cu
  void value_range(const ColumnStretch& column, ValueRange* host_range, const Job& job, Stream& stream) override;
  void encode_keys(std::span<const KeyPart> parts, uint64_t size, uint8_t key_bytes, void* keys, const Job& job,
                   Stream& stream) override;
  void decode_fields(const void* keys, uint8_t key_bytes, uint64_t size, std::span<const DecodedPart> parts, const Job& job,
                     Stream& stream) override;

  // sort.cu
  TupleSpan sort(TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t bits, void* scratch, const Job& job,
                 Stream& stream) override;
  size_t sort_scratch_bytes(TupleLayout layout, uint64_t size) override;
  void sort_ties(TupleLayout layout, TupleSpan tuples, unsigned low_bits, bool* host_unsorted, const Job& job,
                 Stream& stream) override;
  void varying_bits(TupleLayout layout, TupleView in, const uint64_t* host_first_key, uint64_t* host_varying_bits, const Job& job,
                    Stream& stream) override;
  void sample_keys(TupleLayout layout, TupleView in, uint64_t count, void* keys, const Job& job, Stream& stream) override;

  // select.cu
  void select_up_to(TupleLayout layout, TupleView in, uint64_t flip, const SampleBound& bound, TupleSpan out,
                    uint64_t* host_count, void* scratch, const Job& job, Stream& stream) override;

  // merge.cu
  void merge(TupleLayout layout, std::span<const TupleView> runs, TupleSpan out, void* scratch, const Job& job,
             Stream& stream) override;
  size_t merge_scratch_bytes(TupleLayout layout, size_t runs, uint64_t size) override;

  // split_runs.cu
  void split_runs(TupleLayout layout, std::span<const TupleView> runs, std::span<const uint64_t> ranks, uint64_t* host_cuts,
                  Stream& stream) override;

  // partition.cu
  void partition(TupleLayout layout, TupleView in, Digit digit, TupleSpan out, uint64_t* host_offsets, void* scratch,
                 const Job& job, Stream& stream) override;
  size_t partition_scratch_bytes(TupleLayout layout, uint64_t size, Digit digit) override;

  // partition_ranges.cu
  void partition_ranges(TupleLayout layout, TupleView in, uint64_t flip, std::span<const uint64_t> bounds, TupleSpan out,
                        uint64_t* host_offsets, void* scratch, const Job& job, Stream& stream) override;
  size_t partition_ranges_scratch_bytes(TupleLayout layout, uint64_t size, size_t ranges) override;
  void flip_keys(TupleLayout layout, const void* keys, void* flipped, uint64_t size, uint64_t flip, const Job& job,
                 Stream& stream) override;

  // concatenate.cu
  void concatenate(TupleLayout layout, std::span<const TupleView> parts, TupleSpan out, void* scratch, const Job& job,
                   Stream& stream) override;
  size_t concatenate_scratch_bytes(size_t parts) override;

  // gather.cu
  void gather(const ShardedColumn& column, uint8_t width, RowNumbers rows, const void* valid, void* out, const Job& job,
              Stream& stream) override;
  void gather_bits(const ShardedColumn& bitmap, RowNumbers rows, const void* valid, void* out, const Job& job,
                   Stream& stream) override;

  // match_ranges.cu
  void match_ranges(TupleLayout build_layout, TupleView build, TupleLayout probe_layout, TupleView probe, void* ranges,
                    uint8_t row_bytes, uint64_t* host_count, void* scratch, const Job& job, Stream& stream) override;
  size_t match_ranges_scratch_bytes(TupleLayout build_layout, uint64_t build_size, TupleLayout probe_layout,
                                    uint64_t probe_size) override;
  void sum_ranges(const NarrowMatchRange* ranges, uint64_t count, MatchSums* host_sums, const Job& job, Stream& stream) override;

  // hash_match.cu
  std::unique_ptr<HashMatch> hash_match(const PartitionedTuples& build, const PartitionedTuples& probe, uint32_t partitions,
                                        uint32_t common_bits, bool count_only, void* scratch, const Job& job,
                                        Stream& stream) override;
  std::unique_ptr<HashBuild> hash_build(const HashBuildPlan& plan, void* scratch) override;
  std::unique_ptr<HashMatch> hash_probe(HashBuild& built, const PartitionedTuples& probe, uint32_t common_bits, void* scratch,
                                        const Job& job, Stream& stream) override;
  size_t hash_build_scratch_bytes(const HashBuildPlan& plan) override;
  size_t hash_probe_scratch_bytes(const HashBuildPlan& plan) override;
  uint64_t hash_build_crowded_room(TupleLayout build, uint64_t rows, bool count_only) override;
  bool hash_match_writes(TupleLayout build, TupleLayout probe) const override { return build.value_bytes && probe.value_bytes; }
  std::unique_ptr<HashMatch> hash_match_into(JoinOutput out, uint64_t most, const PartitionedTuples& build,
                                             const PartitionedTuples& probe, uint32_t partitions, uint32_t common_bits,
                                             void* scratch, const Job& job, Stream& stream) override;
  bool hash_match_goes_on(HashMatch& match, const Job& job, Stream& stream) override;
  uint64_t hash_partition_tuples() const override { return UINT64_MAX; }
  size_t hash_match_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size,
                                  uint32_t partitions, bool count_only) override;
  // hash_groups.cu
  HashGroups* hash_groups() override { return this; }
  HashGrouping hash_grouping(TupleLayout build, uint64_t build_size, size_t devices, uint32_t parts) const override;
  uint32_t grouped_tuple_bytes(TupleLayout layout) const override;
  uint64_t grouped_rows(TupleLayout layout, uint64_t size, HashGrouping grouping) const override;
  void hash_group(TupleLayout layout, TupleView in, HashGrouping grouping, void* out, uint32_t* host_begins, uint32_t* host_ends,
                  void* scratch, const Job& job, Stream& stream) override;
  size_t hash_group_scratch_bytes(HashGrouping grouping) const override;
  std::unique_ptr<HashMatch> match_groups(const GroupedTuples& build, const GroupedTuples& probe, HashGrouping grouping,
                                          bool count_only, const std::optional<JoinOutput>& out, void* scratch, const Job& job,
                                          Stream& stream) override;
  size_t match_groups_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size,
                                    HashGrouping grouping, uint32_t groups, size_t devices, bool count_only) const override;
  // hash_emit.cu
  void hash_emit(const HashMatch& match, JoinEmit what, uint64_t first, uint64_t rows, JoinOutput out, const Job& job,
                 Stream& stream) override;

 private:
  friend class gpu::GpuHashBuild;
  void add_piece(gpu::GpuHashBuild& build, const PartitionedTuples& tuples, const Job& job, Stream& stream);
  void finish_build(gpu::GpuHashBuild& build, const Job& job, Stream& stream);
  void go_on_with_build(gpu::GpuHashBuild& build, void* memory, const Job& job, Stream& stream);
  void clear(gpu::BuildSide& build, gpu_stream_t on);
  void sort_partitions(gpu::BuildSide& build, gpu_stream_t on);
  void build_small(gpu::BuildSide& build, gpu_stream_t on, const gpu::GpuHashMatch* match = nullptr);
  void count_crowded(gpu::BuildSide& build, const gpu::SplitRoom& split, gpu_stream_t on);
  void sort_crowd(gpu::BuildSide& build, gpu_stream_t on);

  void start_match(gpu::GpuHashMatch& match, const PartitionedTuples* own, const PartitionedTuples& probe, gpu_stream_t on);
  void split_groups(gpu::GpuHashMatch& match, gpu::HashSide& side, const GroupedTuples& tuples, HashGrouping grouping,
                    gpu_stream_t on);
  void hash_probe(gpu::GpuHashMatch& match, gpu_stream_t on);
  void match_tables(gpu::GpuHashMatch& match, gpu_stream_t on);
  void match_in_tables(gpu::GpuHashMatch& match, gpu_stream_t on);
  void match_small(gpu::GpuHashMatch& match, gpu_stream_t on);
  void match_crowd(gpu::GpuHashMatch& match, gpu_stream_t on);
  void count_matches(gpu::GpuHashMatch& match, gpu_stream_t on);
  void fetch_counts(gpu::GpuHashMatch& match, gpu_stream_t on);
  static gpu_stream_t raw(Stream& stream) { return static_cast<GpuStream&>(stream).raw(); }
  /// Throws if the kernel just launched could not start.
  void check_launch(const char* kernel) const { gpu_check(gpu_get_last_error(), kernel, id_.name); }

  const Device& device_;
  const GpuId& id_;
  ResultSlots& results_;
};

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin
