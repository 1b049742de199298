// The primitives on host threads. Each family is defined in a file of its own beside this one.
#pragma once

#include <memory>

#include "core/thread_pool.h"
#include "device/host_device.h"
#include "primitives/primitives.h"

namespace warpjoin {

class HostPrimitives final : public Primitives {
 public:
  explicit HostPrimitives(ThreadPool& pool) : pool_(pool) {}

  // encode.cc
  void value_range(const ColumnStretch& column, ValueRange* host_range, const Job& job, Stream& stream) override;
  void encode_keys(std::span<const KeyPart> parts, uint64_t size, uint8_t key_bytes, void* keys, const Job& job,
                   Stream& stream) override;
  void decode_fields(const void* keys, uint8_t key_bytes, uint64_t size, std::span<const DecodedPart> parts, const Job& job,
                     Stream& stream) override;

  // sort.cc
  TupleSpan sort(TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t bits, void* scratch, const Job& job,
                 Stream& stream) override;
  size_t sort_scratch_bytes(TupleLayout layout, uint64_t size) override;
  void sort_ties(TupleLayout layout, TupleSpan tuples, unsigned low_bits, bool* host_unsorted, const Job& job,
                 Stream& stream) override;
  void varying_bits(TupleLayout layout, TupleView in, const uint64_t* host_first_key, uint64_t* host_varying_bits, const Job& job,
                    Stream& stream) override;
  void sample_keys(TupleLayout layout, TupleView in, uint64_t count, void* keys, const Job& job, Stream& stream) override;

  // select.cc
  void select_up_to(TupleLayout layout, TupleView in, uint64_t flip, const SampleBound& bound, TupleSpan out,
                    uint64_t* host_count, void* scratch, const Job& job, Stream& stream) override;

  // merge.cc
  void merge(TupleLayout layout, std::span<const TupleView> runs, TupleSpan out, void* scratch, const Job& job,
             Stream& stream) override;
  size_t merge_scratch_bytes(TupleLayout layout, size_t runs, uint64_t size) override;
  void split_runs(TupleLayout layout, std::span<const TupleView> runs, std::span<const uint64_t> ranks, uint64_t* host_cuts,
                  Stream& stream) override;

  // partition.cc
  void partition(TupleLayout layout, TupleView in, Digit digit, TupleSpan out, uint64_t* host_offsets, void* scratch,
                 const Job& job, Stream& stream) override;
  size_t partition_scratch_bytes(TupleLayout layout, uint64_t size, Digit digit) override;
  void partition_ranges(TupleLayout layout, TupleView in, uint64_t flip, std::span<const uint64_t> bounds, TupleSpan out,
                        uint64_t* host_offsets, void* scratch, const Job& job, Stream& stream) override;
  size_t partition_ranges_scratch_bytes(TupleLayout layout, uint64_t size, size_t ranges) override;
  void flip_keys(TupleLayout layout, const void* keys, void* flipped, uint64_t size, uint64_t flip, const Job& job,
                 Stream& stream) override;
  void concatenate(TupleLayout layout, std::span<const TupleView> parts, TupleSpan out, void* scratch, const Job& job,
                   Stream& stream) override;
  size_t concatenate_scratch_bytes(size_t parts) override;

  // gather.cc
  void gather(const ShardedColumn& column, uint8_t width, RowNumbers rows, const void* valid, void* out, const Job& job,
              Stream& stream) override;
  void gather_bits(const ShardedColumn& bitmap, RowNumbers rows, const void* valid, void* out, const Job& job,
                   Stream& stream) override;

  // match_ranges.cc
  void match_ranges(TupleLayout build_layout, TupleView build, TupleLayout probe_layout, TupleView probe, void* ranges,
                    uint8_t row_bytes, uint64_t* host_count, void* scratch, const Job& job, Stream& stream) override;
  size_t match_ranges_scratch_bytes(TupleLayout, uint64_t, TupleLayout, uint64_t) override { return 0; }
  void sum_ranges(const NarrowMatchRange* ranges, uint64_t count, MatchSums* host_sums, const Job& job, Stream& stream) override;

  // hash_join.cc
  std::unique_ptr<HashMatch> hash_match(const PartitionedTuples& build, const PartitionedTuples& probe, uint32_t partitions,
                                        uint32_t common_bits, bool count_only, void* scratch, const Job& job,
                                        Stream& stream) override;
  std::unique_ptr<HashBuild> hash_build(const HashBuildPlan& plan, void* scratch) override;
  std::unique_ptr<HashMatch> hash_probe(HashBuild& built, const PartitionedTuples& probe, uint32_t common_bits, void* scratch,
                                        const Job& job, Stream& stream) override;
  size_t hash_build_scratch_bytes(const HashBuildPlan& plan) override;
  size_t hash_probe_scratch_bytes(const HashBuildPlan& plan) override;
  uint64_t hash_partition_tuples() const override { return 12 << 10; }  // a table of less than half a megabyte
  size_t hash_match_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size,
                                  uint32_t partitions, bool count_only) override;
  // hash_emit.cc
  void hash_emit(const HashMatch& match, JoinEmit what, uint64_t first, uint64_t rows, JoinOutput out, const Job& job,
                 Stream& stream) override;

 private:
  static HostStream& host(Stream& stream) { return static_cast<HostStream&>(stream); }

  ThreadPool& pool_;
};

}  // namespace warpjoin
