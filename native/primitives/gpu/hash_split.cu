// What hash_split_tiles.h does, in its order, for a side.
#include "primitives/gpu/hash_split_tiles.h"
#include "primitives/gpu/hash_tuning.h"
#include "primitives/gpu/scan.h"
#include "primitives/host/blocks.h"

namespace warpjoin::gpu {
inline namespace WARPJOIN_BLOCKS {
namespace {

__global__ void one_group(uint32_t* offsets, uint32_t size) {
  offsets[0] = 0;
  offsets[1] = size;
}
template <class Key, class Value>
__global__ void hash_all(Columns<Key, Value> in, HashTuple<Key, Value>* out) {
  for (uint64_t i = loop_begin(); i < in.run.size; i += loop_step()) out[i] = in.tuple(i);
}

/// Where groups of 2^bits begin, which are empty yet.
__global__ void begin_groups(const uint32_t* offsets, unsigned bits, uint64_t groups, uint32_t* begins, uint32_t* ends,
                             Condition condition) {
  if (!condition.holds()) return;
  for (uint64_t g = loop_begin(); g < groups; g += loop_step()) {
    ends[g] = offsets[g << bits];
    if (begins) begins[g] = ends[g];
  }
}

/// What lies behind groups in their rooms is sent with them: zeros. A block for each group but the last.
template <class Tuple>
__global__ void clear_gaps(const uint32_t* begins, const uint32_t* ends, Tuple* out) {
  for (uint32_t at = ends[blockIdx.x] + threadIdx.x; at < begins[blockIdx.x + 1]; at += blockDim.x)
    store_tuple(out + at, Tuple{});
}

/// Shared memory that a block may take where as many as ever share a multiprocessor.
template <class Key, class Value>
size_t most_shared_bytes(const std::string& device_name) {
  constexpr size_t kReserved = 1280;  // of a block, by the system and for what kernels declare
  int device = 0, bytes = 0;
  GPU_CHECK(device_name, gpu_get_device(&device));
  GPU_CHECK(device_name, gpu_device_get_attribute(&bytes, gpu_shared_memory_per_multiprocessor, device));
  return static_cast<size_t>(bytes) / Tile<Key, Value>::kBlocks - kReserved;
}

/// Of a pass that counts the groups of `bits`, or of none.
template <class Key, class Value>
size_t split_shared_bytes(unsigned pass_bits, unsigned counted_bits) {
  return Tile<Key, Value>::shared_bytes(pass_bits) + (counted_bits ? BlockCounts::bytes(counted_bits) : 0);
}

/// Of the first of two passes.
template <class Key, class Value>
RoomPlan plan_of(uint64_t size, unsigned bits, const std::string& device_name) {
  if (split_shared_bytes<Key, Value>(bits / 2, bits) > most_shared_bytes<Key, Value>(device_name)) return RoomPlan(size);
  return RoomPlan(size, bits / 2, sizeof(Key), Tile<Key, Value>::kSize, hash_tuning.sampled_sectors);
}
/// Of a pass whose groups go to other devices, with the gaps between them.
template <class Key, class Value>
RoomPlan group_plan(uint64_t size, unsigned bits) {
  return RoomPlan(size, bits, sizeof(Key), Tile<Key, Value>::kSize, hash_tuning.grouped_sectors);
}

template <class Source, class Rooms, class Key, class Value>
void launch_split(const Source& in, const Pass& pass, uint64_t rows, const Rooms& rooms, unsigned most_blocks,
                  unsigned counted_bits, HashTuple<Key, Value>* out, gpu_stream_t on, const std::string& device_name) {
  using T = Tile<Key, Value>;
  const auto kernel = split_tiles<Source, Rooms, Key, Value>;
  // The limit is the kernel's, whoever launches it: always the same.
  const size_t most = Rooms::kCounts ? most_shared_bytes<Key, Value>(device_name) : T::shared_bytes(kPassBits);
  GPU_CHECK(device_name, gpu_allow_shared_memory(kernel, most));
  const size_t bytes = split_shared_bytes<Key, Value>(pass.bits, counted_bits);
  // As many whole tiles for each: the tail of a stretch takes a block nearly as long as a tile.
  const uint64_t tiles = std::max<uint64_t>((rows + T::kSize - 1) / T::kSize, 1), own = (tiles + most_blocks - 1) / most_blocks;
  kernel<<<static_cast<unsigned>((tiles + own - 1) / own), T::kThreads, bytes, on>>>(in, pass, rooms, out);
  gpu_check(gpu_get_last_error(), "split_tiles", device_name);
}

struct SplitScratch {
  uint32_t* ends;
  GroupRooms rooms;
  void* scan;
  size_t scan_bytes = 0, bytes;

  SplitScratch(void* scratch, unsigned bits, const std::string& device_name) {
    host::Carver carver(scratch);
    const uint64_t groups = uint64_t{1} << bits;
    ends = carver.take<uint32_t>(groups);
    rooms = GroupRooms(carver);
    GPU_CHECK(device_name, sums_before<uint32_t>(nullptr, scan_bytes, nullptr, groups + 1, gpu_stream_t{}));
    scan = carver.take<char>(scan_bytes);
    bytes = carver.bytes();
  }
};

/// Enqueues what groups one side.
template <class Key, class Value>
class Splitter {
  using T = Tile<Key, Value>;
  using Tuple = typename T::Tuple;
  using In = Columns<Key, Value>;

 public:
  Splitter(std::span<const TupleView> fragments, unsigned bits, const SplitScratch& scratch, uint32_t* offsets, gpu_stream_t on,
           const std::string& device_name)
      : fragments_(fragments), bits_(bits), scratch_(scratch), offsets_(offsets), on_(on), device_name_(device_name) {
    for (const TupleView& fragment : fragments) size_ += fragment.size;
  }

  void split(Tuple* between, Tuple* out) const {
    if (bits_ == 0) return hash(out);
    clear_counts();
    if (bits_ <= kPassBits) {
      count({});
      begin(bits_, nullptr, scratch_.ends, {});
      split_counted(bits_, scratch_.ends, {}, out);
    } else {
      split_first<true>(first_bits(), plan_of<Key, Value>(size_, bits_, device_name_), between);
      begin(bits_, nullptr, scratch_.ends, {});
      split_second(between, out);
    }
  }

  /// The first of two passes, of which this device does no other. Groups may have gaps behind them, of zeros.
  void group(Tuple* out) const {
    const RoomPlan plan = group_plan<Key, Value>(size_, bits_);
    clear_counts();
    split_first<false>(bits_, plan, out);
    if (plan.sectors == 0) return;
    clear_gaps<<<static_cast<unsigned>(groups() - 1), kCountThreads, 0, on_>>>(scratch_.rooms.begins, scratch_.rooms.ends, out);
    check_launch("clear_gaps");
  }

 private:
  uint64_t groups() const { return uint64_t{1} << bits_; }
  unsigned first_bits() const { return bits_ / 2; }
  void check_launch(const char* kernel) const { gpu_check(gpu_get_last_error(), kernel, device_name_); }
  void clear_counts() const { GPU_CHECK(device_name_, gpu_memset_async(offsets_, 0, (groups() + 1) * sizeof(uint32_t), on_)); }

  template <class F>
  void for_fragments(F&& f) const {
    for (const TupleView& fragment : fragments_) {
      if (fragment.size) f(In{Run<Key, Value>(fragment)});
    }
  }

  /// One group: nothing moves.
  void hash(Tuple* out) const {
    one_group<<<1, 1, 0, on_>>>(offsets_, static_cast<uint32_t>(size_));
    check_launch("one_group");
    for_fragments([&](const In& in) {
      hash_all<<<loop_blocks(in.size()), kThreads, 0, on_>>>(in, out);
      check_launch("hash_all");
      out += in.size();
    });
  }

  /// Counts groups, where the condition holds, and makes offsets of what has been counted.
  void count(Condition condition) const {
    const auto kernel = count_groups<Key>;
    const unsigned counted = std::min(bits_, kCountedBits);
    GPU_CHECK(device_name_, gpu_allow_shared_memory(kernel, sizeof(uint32_t) << kCountedBits));
    for_fragments([&](const In& in) {
      const dim3 blocks(static_cast<unsigned>(std::clamp<uint64_t>(in.size() / T::kSize, 1, kCountBlocks)),
                        1u << (bits_ - counted));
      kernel<<<blocks, kCountThreads, sizeof(uint32_t) << counted, on_>>>(in.run.keys, in.size(), bits_, offsets_, condition);
      check_launch("count_groups");
    });
    size_t scan_bytes = scratch_.scan_bytes;
    GPU_CHECK(device_name_, sums_before(scratch_.scan, scan_bytes, offsets_, groups() + 1, on_));
  }

  void begin(unsigned bits, uint32_t* begins, uint32_t* ends, Condition condition) const {
    const uint64_t groups = uint64_t{1} << bits;
    begin_groups<<<loop_blocks(groups), kThreads, 0, on_>>>(offsets_, bits_ - bits, groups, begins, ends, condition);
    check_launch("begin_groups");
  }

  template <class Source, class Rooms>
  void split_by(const Pass& pass, const Source& in, uint64_t rows, const Rooms& rooms, unsigned most_blocks, Tuple* out) const {
    launch_split(in, pass, rows, rooms, most_blocks, Rooms::kCounts ? bits_ : 0, out, on_, device_name_);
  }

  void split_counted(unsigned bits, uint32_t* ends, Condition condition, Tuple* out) const {
    const unsigned most_blocks = condition.state ? kRepeatBlocks : kSplitBlocks;
    for_fragments([&](const In& in) { split_by({0, bits, ends}, in, in.size(), CountedRooms{condition}, most_blocks, out); });
  }

  template <bool counts_groups>
  void split_sampled(unsigned first_bits, const RoomPlan& plan, Tuple* between) const {
    const GroupRooms& rooms = scratch_.rooms;
    plan_rooms(sizeof(Key), fragments_, plan, first_bits, rooms, on_, device_name_);
    uint32_t tiles = 0;
    for_fragments([&](const In& in) {
      split_by({0, first_bits, rooms.ends}, in, in.size(), SampledRooms<counts_groups>{rooms, bits_, offsets_, tiles},
               kSampledBlocks, between);
      tiles += static_cast<uint32_t>((in.size() + T::kSize - 1) / T::kSize);
    });
  }

  /// By a sample, where there is one. The kernels behind it go by counts, and return at once where the sample served.
  template <bool counts_groups>
  void split_first(unsigned first_bits, const RoomPlan& plan, Tuple* between) const {
    const GroupRooms& rooms = scratch_.rooms;
    const auto if_at_least = [&](uint32_t state) { return plan.sectors ? Condition{rooms.state, state} : Condition{}; };
    if (plan.sectors) split_sampled<counts_groups>(first_bits, plan, between);
    count(if_at_least(kCountFirst));
    begin(first_bits, rooms.begins, rooms.ends, if_at_least(kOverflowed));
    split_counted(first_bits, rooms.ends, if_at_least(kOverflowed), between);
  }

  void split_second(const Tuple* between, Tuple* out) const {
    if (size_ == 0) return;
    const uint32_t groups = 1u << first_bits();
    const Grouped<Key, Value> in{between, groups, groups, scratch_.rooms.begins, scratch_.rooms.ends};
    split_by({first_bits(), bits_ - first_bits(), scratch_.ends}, in, size_, CountedRooms{}, kSplitBlocks, out);
  }

  std::span<const TupleView> fragments_;
  unsigned bits_;
  const SplitScratch& scratch_;
  uint32_t* offsets_;
  gpu_stream_t on_;
  const std::string& device_name_;
  uint64_t size_ = 0;
};

/// Of one device's groups of all tuples.
struct GroupScratch {
  SplitScratch split;
  uint32_t* counts;
  size_t bytes;

  GroupScratch(void* scratch, unsigned bits, const std::string& device_name) : split(scratch, bits, device_name) {
    host::Carver carver(scratch ? static_cast<char*>(scratch) + split.bytes : nullptr);
    counts = carver.take<uint32_t>((uint64_t{1} << bits) + 1);
    bytes = split.bytes + carver.bytes();
  }
};

struct GroupsScratch {
  uint32_t* ends;
  void* scan;
  size_t scan_bytes = 0, bytes;

  GroupsScratch(void* scratch, uint64_t partitions, const std::string& device_name) {
    host::Carver carver(scratch);
    ends = carver.take<uint32_t>(partitions);
    GPU_CHECK(device_name, sums_before<uint32_t>(nullptr, scan_bytes, nullptr, partitions + 1, gpu_stream_t{}));
    scan = carver.take<char>(scan_bytes);
    bytes = carver.bytes();
  }
};

}  // namespace

HashTuples hash_tuples(TupleLayout layout, void* data) {
  return with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    using Tuple = HashTuple<Key, Value>;
    HashTuples tuples{static_cast<char*>(data), sizeof(Tuple), 0, layout.value_bytes};
    if constexpr (is_value<Value>) tuples.value_at = offsetof(Tuple, value);
    return tuples;
  });
}

void hash_split(TupleLayout layout, std::span<const TupleView> fragments, unsigned bits, const HashTuples& out, char* between,
                uint32_t* offsets, void* scratch, gpu_stream_t on, const std::string& device_name) {
  const SplitScratch own(scratch, bits, device_name);
  with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    using Tuple = HashTuple<Key, Value>;
    Splitter<Key, Value>(fragments, bits, own, offsets, on, device_name)
        .split(reinterpret_cast<Tuple*>(between), reinterpret_cast<Tuple*>(out.data));
  });
}

GroupBounds hash_group(TupleLayout layout, const TupleView& in, unsigned bits, void* out, void* scratch, gpu_stream_t on,
                       const std::string& device_name) {
  const GroupScratch own(scratch, bits, device_name);
  with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    Splitter<Key, Value>({&in, 1}, bits, own.split, own.counts, on, device_name).group(static_cast<HashTuple<Key, Value>*>(out));
  });
  return {own.split.rooms.begins, own.split.rooms.ends};
}

uint64_t hash_group_rows(TupleLayout layout, uint64_t size, unsigned bits) {
  return with_layout(layout, [&]<class Key, class Value>(Key, Value) { return group_plan<Key, Value>(size, bits).rows; });
}

size_t hash_group_scratch_bytes(unsigned bits, const std::string& device_name) {
  return GroupScratch(nullptr, bits, device_name).bytes;
}

void hash_split_groups(TupleLayout layout, std::span<const GroupRun> in, uint32_t groups, unsigned group_bits, unsigned bits,
                       const HashTuples& out, uint32_t* offsets, void* scratch, gpu_stream_t on, const std::string& device_name) {
  const uint64_t partitions = uint64_t{groups} << (bits - group_bits);
  const GroupsScratch own(scratch, partitions, device_name);
  const auto check_launch = [&](const char* kernel) { gpu_check(gpu_get_last_error(), kernel, device_name); };
  GPU_CHECK(device_name, gpu_memset_async(offsets, 0, (partitions + 1) * sizeof(uint32_t), on));
  with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    using Tuple = HashTuple<Key, Value>;
    const auto for_runs = [&](auto&& f) {
      for (const GroupRun& run : in) {
        f(Grouped<Key, Value>{static_cast<const Tuple*>(run.tuples), groups, run.stretches, run.bounds.begins, run.bounds.ends},
          run.rows);
      }
    };
    const Pass pass{group_bits, bits - group_bits, own.ends};
    for_runs([&](const Grouped<Key, Value>& run, uint64_t) {
      count_grouped<<<kCountBlocks, kCountThreads, 0, on>>>(run, pass, offsets);
      check_launch("count_grouped");
    });
    size_t scan_bytes = own.scan_bytes;
    GPU_CHECK(device_name, sums_before(own.scan, scan_bytes, offsets, partitions + 1, on));
    begin_groups<<<loop_blocks(partitions), kThreads, 0, on>>>(offsets, 0, partitions, nullptr, own.ends, Condition{});
    check_launch("begin_groups");
    for_runs([&](const Grouped<Key, Value>& run, uint64_t rows) {
      launch_split(run, pass, rows, CountedRooms{}, kSplitBlocks, 0, reinterpret_cast<Tuple*>(out.data), on, device_name);
    });
  });
}

size_t hash_split_groups_scratch_bytes(uint64_t partitions, const std::string& device_name) {
  return GroupsScratch(nullptr, partitions, device_name).bytes;
}

size_t hash_split_between_bytes(TupleLayout layout, uint64_t size, unsigned bits, const std::string& device_name) {
  if (bits <= kPassBits) return 0;
  return with_layout(layout, [&]<class Key, class Value>(Key, Value) {
    return plan_of<Key, Value>(size, bits, device_name).rows * sizeof(HashTuple<Key, Value>);
  });
}

size_t hash_split_scratch_bytes(unsigned bits, const std::string& device_name) {
  return SplitScratch(nullptr, bits, device_name).bytes;
}

}  // namespace WARPJOIN_BLOCKS
}  // namespace warpjoin::gpu
