#include "primitives/host/first_rows.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "core/error.h"
#include "primitives/host/hash_table.h"
#include "primitives/host/radix_scatter.h"

namespace warpjoin::host {
namespace {

/// Tuples of a partition that all threads share.
constexpr uint64_t kLargePartition = uint64_t{1} << 20;

template <class Row>
void partition(ThreadPool& pool, HostMemory& memory, TupleView in, PartitionedKeys& out, const Job& job) {
  const uint32_t partitions = uint32_t{1} << out.bits;
  out.offsets.resize(size_t{partitions} + 1);
  out.keys = memory.allocate(in.size * sizeof(uint64_t), "the partitioned keys of a join");
  out.rows = memory.allocate(in.size * sizeof(Row), "the partitioned rows of a join");
  const uint64_t blocks = block_count(pool, in.size, std::max<uint64_t>(uint64_t{16} * partitions, 1 << 14));
  std::vector<uint64_t> histograms(blocks * partitions);
  std::vector<ScatterScratch<uint64_t, Row>> runners;
  const auto carve = [&](void* scratch) {
    runners.clear();
    Carver carver(scratch);
    for (uint64_t r = 0; r < std::min<uint64_t>(blocks, pool.threads()); ++r) runners.emplace_back(carver, partitions);
    return carver.bytes();
  };
  const HostBuffer scratch = memory.allocate(carve(nullptr), "partitioning the keys of a join");
  carve(scratch.data());
  radix_pass<uint64_t, Row>(
      pool, in, MixedDigit{partitions - 1, static_cast<uint8_t>(out.bits ? 64 - out.bits : 0)}, partitions,
      Tuples<uint64_t, Row>(out.keys.as<uint64_t>(), out.rows.as<Row>()), out.offsets.data(), histograms.data(),
      blocks, [&](uint64_t runner) -> const auto& { return runners[runner]; }, job);
}

/// The distinct keys of a partition, each with its first row.
template <class First>
class FirstRows {
 public:
  FirstRows(HostMemory& memory, uint64_t most, unsigned used_bits)
      : most_(most),
        table_memory_(memory.allocate(KeyTable<uint64_t>::bytes_for(most + 1), "the distinct keys of a join")),
        firsts_(memory.allocate(most * sizeof(First), "the distinct keys of a join")),
        table_(table_memory_.data(), most + 1, used_bits) {}

  /// Tells the first row with the key, which may be `row`: rows come in ascending order. False if there is no room for the key.
  bool insert(uint64_t key, First row, First& first) {
    const uint32_t id = table_.insert(key, static_cast<uint32_t>(size_));
    if (id == size_) {
      if (size_ == most_) return false;
      firsts_.as<First>()[size_++] = row;
    }
    first = firsts_.as<First>()[id];
    return true;
  }
  /// All ones if the key is not there.
  First find(uint64_t key) const {
    const uint32_t id = table_.find(key, kNone);
    return id == kNone ? static_cast<First>(~First{0}) : firsts_.as<First>()[id];
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint64_t most_, size_ = 0;
  HostBuffer table_memory_, firsts_;
  KeyTable<uint64_t> table_;
};

template <class First, class OwnRow, class OtherRow>
class Finder {
 public:
  Finder(ThreadPool& pool, HostMemory& memory, const PartitionedKeys& own, const PartitionedKeys& other, First* own_first,
         First* other_first, const Job& job)
      : pool_(pool), memory_(memory), own_(own), other_(other), own_first_(own_first), other_first_(other_first), job_(job) {}

  uint64_t run() {
    for_each_task(pool_, uint64_t{1} << own_.bits, job_, [&](uint64_t p, uint64_t) {
      const uint64_t size = own_.offsets[p + 1] - own_.offsets[p];
      // A frequent key makes many tuples of few keys: a table with room for all would be much too large.
      uint64_t most = std::min<uint64_t>(size, std::max<uint64_t>(4 * kPartitionKeys, 2 * (own_.offsets.back() >> own_.bits)));
      while (!find_in(p, most)) most = std::min<uint64_t>(size, 8 * most);
    });
    return repeated_.load();
  }

 private:
  /// False if the partition has more than `most` distinct keys.
  bool find_in(uint64_t partition, uint64_t most) {
    if (most >= UINT32_MAX) throw Error(ErrorCode::not_supported, "More than 2^32 - 2 distinct keys of a join in one partition");
    FirstRows<First> table(memory_, most, own_.bits);
    const uint64_t* const keys = own_.keys.as<uint64_t>();
    const OwnRow* const rows = own_.rows.as<OwnRow>();
    uint64_t repeated = 0;
    for (uint64_t begin = own_.offsets[partition], last = own_.offsets[partition + 1]; begin < last; begin += kCheckRows) {
      job_.check();
      for (uint64_t i = begin; i < std::min(last, begin + kCheckRows); ++i) {
        First first;
        if (!table.insert(keys[i], static_cast<First>(rows[i]), first)) return false;
        if (first == rows[i]) continue;
        own_first_[rows[i]] = first;
        ++repeated;
      }
    }
    if (repeated) repeated_.fetch_add(repeated, std::memory_order_relaxed);
    const uint64_t first = other_.offsets[partition], size = other_.offsets[partition + 1] - first;
    const auto find = [&](uint64_t begin, uint64_t end) {
      const uint64_t* const other_keys = other_.keys.as<uint64_t>();
      const OtherRow* const other_rows = other_.rows.as<OtherRow>();
      for (uint64_t i = first + begin; i < first + end; ++i) other_first_[other_rows[i]] = table.find(other_keys[i]);
    };
    if (size >= kLargePartition) {
      pool_.for_blocks(size, kCheckRows, job_, find);
    } else {
      find(0, size);
    }
    return true;
  }

  ThreadPool& pool_;
  HostMemory& memory_;
  const PartitionedKeys &own_, &other_;
  First *const own_first_, *const other_first_;
  const Job& job_;
  std::atomic<uint64_t> repeated_{0};
};

/// Calls body(Row{}) with the unsigned type of a width.
template <class Body>
decltype(auto) with_row(uint8_t bytes, Body&& body) {
  return bytes == 4 ? body(uint32_t{}) : body(uint64_t{});
}

}  // namespace

unsigned first_rows_bits(uint64_t size) {
  return std::min<unsigned>(static_cast<unsigned>(std::bit_width(size / kPartitionKeys)), kMaxDigitBits);
}

PartitionedKeys partition_keys(ThreadPool& pool, HostMemory& memory, TupleLayout layout, TupleView in, unsigned bits,
                               const Job& job) {
  PartitionedKeys out;
  out.row_bytes = layout.value_bytes;
  out.bits = bits;
  with_row(out.row_bytes, [&]<class Row>(Row) { partition<Row>(pool, memory, in, out, job); });
  return out;
}

uint64_t find_first_rows(ThreadPool& pool, HostMemory& memory, const PartitionedKeys& own, const PartitionedKeys& other,
                         uint8_t first_bytes, void* own_first, void* other_first, const Job& job) {
  return with_row(own.row_bytes, [&]<class OwnRow>(OwnRow) {
    return with_row(other.row_bytes, [&]<class OtherRow>(OtherRow) {
      return with_row(first_bytes, [&]<class First>(First) {
        return Finder<First, OwnRow, OtherRow>(pool, memory, own, other, static_cast<First*>(own_first),
                                               static_cast<First*>(other_first), job)
            .run();
      });
    });
  });
}

}  // namespace warpjoin::host
