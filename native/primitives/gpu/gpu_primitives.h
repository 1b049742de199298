// The primitives on a GPU. Each family is defined in a file of its own beside this one.
#pragma once

#include <memory>

#include "device/gpu_stream.h"
#include "primitives/primitives.h"

namespace warpjoin {

class GpuPrimitives final : public Primitives {
 public:
  GpuPrimitives(const Device& device, const GpuId& id) : device_(device), id_(id), results_(id) {}

  // sort.cu
  TupleSpan sort(TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t varying_bits, void* scratch, const Job& job,
                 Stream& stream) override;
  size_t sort_scratch_bytes(TupleLayout layout, uint64_t size) override;
  void varying_bits(TupleLayout layout, TupleView in, const uint64_t* host_first_key, uint64_t* host_varying_bits, const Job& job,
                    Stream& stream) override;
  void sample_keys(TupleLayout layout, TupleView in, uint64_t count, void* keys, const Job& job, Stream& stream) override;

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
  void flip_keys(TupleLayout layout, TupleSpan tuples, uint64_t flip, const Job& job, Stream& stream) override;

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

  std::unique_ptr<HashMatch> hash_match(const PartitionedTuples&, const PartitionedTuples&, uint32_t, uint32_t, bool, void*,
                                        const Job&, Stream&) override {
    not_supported_on(device_, "The hash join");
  }
  uint64_t hash_partition_tuples() const override { return UINT64_MAX; }
  size_t hash_match_scratch_bytes(TupleLayout, uint64_t, TupleLayout, uint64_t, uint32_t, bool) override {
    not_supported_on(device_, "The hash join");
  }
  void hash_emit(const HashMatch&, JoinEmit, uint64_t, uint64_t, JoinOutput, const Job&, Stream&) override {
    not_supported_on(device_, "The hash join");
  }

 private:
  static gpu_stream_t raw(Stream& stream) { return static_cast<GpuStream&>(stream).raw(); }
  /// Throws if the kernel just launched could not start.
  void check_launch(const char* kernel) const { gpu_check(gpu_get_last_error(), kernel, id_.name); }

  const Device& device_;
  const GpuId& id_;
  ResultSlots results_;
};

}  // namespace warpjoin
