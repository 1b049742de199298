#include <algorithm>
#include <span>
#include <vector>

#include "primitives/host/host_primitives.h"
#include "primitives/host/radix_scatter.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin {
namespace {

using namespace host;

/// How a partition call uses its scratch; the same for its size and for its use.
template <class Key, class Value>
struct PartitionScratch {
  uint64_t blocks;
  uint64_t* histograms;
  std::vector<ScatterScratch<Key, Value>> runners;
  size_t bytes;

  PartitionScratch(ThreadPool& pool, uint64_t size, uint32_t partitions, void* scratch) {
    Carver carver(scratch);
    blocks = block_count(pool, size, std::max<uint64_t>(uint64_t{16} * partitions, 1 << 14));
    histograms = carver.take<uint64_t>(blocks * partitions);
    const uint64_t count = std::min<uint64_t>(blocks, pool.threads());
    for (uint64_t runner = 0; runner < count; ++runner) runners.emplace_back(carver, partitions);
    bytes = carver.bytes();
  }
};

template <class Key, class Value, class DigitOf>
void group(ThreadPool& pool, const TupleView& in, const DigitOf& digit, uint32_t partitions, const TupleSpan& out,
           uint64_t* offsets, void* scratch, const Job& job) {
  const PartitionScratch<Key, Value> own(pool, in.size, partitions, scratch);
  radix_pass<Key, Value>(
      pool, in, digit, partitions, Tuples<Key, Value>(out), offsets, own.histograms,
      own.blocks, [&](uint64_t runner) -> const auto& { return own.runners[runner]; }, job);
}

/// All tuples are in one partition.
template <class Key, class Value>
void group_as_one(ThreadPool& pool, const TupleView& in, const TupleSpan& out, uint64_t* offsets, const Job& job) {
  offsets[0] = 0;
  offsets[1] = in.size;
  copy_tuples(pool, in, Tuples<Key, Value>(out), job);
}

/// Parts one behind the other, copied with all threads: each has a stretch of the output.
template <class Key, class Value>
void concatenate_parts(ThreadPool& pool, std::span<const TupleView> parts, const Tuples<Key, Value>& out, const Job& job) {
  constexpr TupleLayout kLayout{sizeof(Key), has_values<Value> ? sizeof(Value) : 0};
  std::vector<uint64_t> ends(parts.size());
  uint64_t size = 0;
  for (size_t p = 0; p < parts.size(); ++p) ends[p] = size += parts[p].size;
  pool.for_blocks(size, uint64_t{1} << 14, job, [&](uint64_t begin, uint64_t end) {
    auto p = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    for (uint64_t at = begin; at < end;) {
      job.check();
      const uint64_t part_begin = ends[p] - parts[p].size;
      const uint64_t to = std::min({end, ends[p], at + kCheckRows});
      copy_tuples(parts[p].slice(kLayout, at - part_begin, to - part_begin), out.at(at));
      at = to;
      if (at == ends[p]) ++p;
    }
  });
}

}  // namespace

void HostPrimitives::partition(TupleLayout layout, TupleView in, Digit digit, TupleSpan out, uint64_t* host_offsets,
                               void* scratch, const Job& job, Stream& stream) {
  if (digit.bits > kMaxDigitBits) throw Error(ErrorCode::internal, "A partition digit has at most 12 bits");
  host(stream).enqueue([=, this, &job] {
    job.check();
    with_layout(layout, [&]<class K, class V>(K, V) {
      if (digit.bits == 0) return group_as_one<K, V>(pool_, in, out, host_offsets, job);
      const auto by = [&](auto digit_of) { group<K, V>(pool_, in, digit_of, digit.count(), out, host_offsets, scratch, job); };
      if (digit.mixed) {
        by(MixedDigit{digit.count() - 1, digit.shift});
      } else {
        by(KeyDigit{digit.count() - 1, 0, digit.shift, 0, digit.bits, 0});
      }
    });
  });
}

size_t HostPrimitives::partition_scratch_bytes(TupleLayout layout, uint64_t size, Digit digit) {
  return with_layout(layout,
                     [&]<class K, class V>(K, V) { return PartitionScratch<K, V>(pool_, size, digit.count(), nullptr).bytes; });
}

void HostPrimitives::partition_ranges(TupleLayout layout, TupleView in, uint64_t flip, std::span<const uint64_t> bounds,
                                      TupleSpan out, uint64_t* host_offsets, void* scratch, const Job& job, Stream& stream) {
  if (bounds.size() >= kMostRanges) throw Error(ErrorCode::internal, "Tuples are partitioned into at most 256 key ranges");
  host(stream).enqueue([=, this, &job, bounds = std::vector<uint64_t>(bounds.begin(), bounds.end())] {
    job.check();
    with_layout(layout, [&]<class K, class V>(K, V) {
      if (bounds.empty() && flip == 0) return group_as_one<K, V>(pool_, in, out, host_offsets, job);
      const auto ranges = static_cast<uint32_t>(bounds.size() + 1);
      group<K, V>(pool_, in, RangeDigit<K>(bounds, static_cast<K>(flip)), ranges, out, host_offsets, scratch, job);
    });
  });
}

size_t HostPrimitives::partition_ranges_scratch_bytes(TupleLayout layout, uint64_t size, size_t ranges) {
  return with_layout(layout, [&]<class K, class V>(K, V) {
    return PartitionScratch<K, V>(pool_, size, static_cast<uint32_t>(ranges), nullptr).bytes;
  });
}

void HostPrimitives::flip_keys(TupleLayout layout, const void* keys, void* flipped, uint64_t size, uint64_t flip, const Job& job,
                               Stream& stream) {
  host(stream).enqueue([=, this, &job] {
    const auto flip_all = [&]<class Key>(Key) {
      const auto* const from = static_cast<const Key*>(keys);
      auto* const to = static_cast<Key*>(flipped);
      pool_.for_blocks(size, kCheckRows, job, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; ++i) to[i] = from[i] ^ static_cast<Key>(flip);
      });
    };
    layout.key_bytes == 4 ? flip_all(uint32_t{}) : flip_all(uint64_t{});
  });
}

void HostPrimitives::concatenate(TupleLayout layout, std::span<const TupleView> parts, TupleSpan out, void*, const Job& job,
                                 Stream& stream) {
  host(stream).enqueue([=, this, &job, parts = std::vector<TupleView>(parts.begin(), parts.end())] {
    job.check();
    with_layout(layout, [&]<class K, class V>(K, V) { concatenate_parts<K, V>(pool_, parts, Tuples<K, V>(out), job); });
  });
}

size_t HostPrimitives::concatenate_scratch_bytes(size_t) { return 0; }

}  // namespace warpjoin
