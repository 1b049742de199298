#include "primitives/host/group_keys.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <mutex>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "primitives/host/hash_table.h"
#include "primitives/host/radix_scatter.h"

namespace warpjoin::host {
namespace {

constexpr uint64_t kGrain = uint64_t{1} << 16;
/// Keys that tell whether a range may be small.
constexpr uint64_t kSample = 1024;
/// Entries of a table of all keys: as many as a last-level cache holds, or so few that they cost nothing.
constexpr uint64_t kMostEntries = uint64_t{1} << 22, kFewEntries = uint64_t{1} << 12;
/// Tuples that are looked up ahead.
constexpr uint64_t kAhead = 16;

template <class Row>
constexpr Row kNoRow = static_cast<Row>(~Row{0});
/// Of a key that several rows have. No row has this number: those of 4 bytes are below 2^32 - 2.
template <class Row>
constexpr Row kSeveral = static_cast<Row>(~Row{0} - 1);

void mark(uint64_t* bits, uint64_t row) {
  std::atomic_ref<uint64_t>(bits[row / 64]).fetch_or(uint64_t{1} << (row % 64), std::memory_order_relaxed);
}

/// Keys from `least` on: `least + i` has entry i, below `entries`. Unsigned and wrapping, so that signed keys have one, too.
template <class Key>
struct KeyRange {
  Key least = 0;
  uint64_t entries = 0;
};

/// The smaller one of the ranges of keys as unsigned and as signed integers. No entries: there are more than 64 bits count.
template <class Key>
KeyRange<Key> range_of(const Key* keys, uint64_t size) {
  constexpr Key kSign = Key{1} << (8 * sizeof(Key) - 1);
  Key least = kNoRow<Key>, greatest = 0, signed_least = kNoRow<Key>, signed_greatest = 0;
  for (uint64_t i = 0; i < size; ++i) {
    const Key key = keys[i], flipped = key ^ kSign;
    least = std::min(least, key);
    greatest = std::max(greatest, key);
    signed_least = std::min(signed_least, flipped);
    signed_greatest = std::max(signed_greatest, flipped);
  }
  if (static_cast<Key>(greatest - least) <= static_cast<Key>(signed_greatest - signed_least)) {
    return {least, uint64_t{static_cast<Key>(greatest - least)} + 1};
  }
  return {static_cast<Key>(signed_least ^ kSign), uint64_t{static_cast<Key>(signed_greatest - signed_least)} + 1};
}

/// The range that holds two.
template <class Key>
KeyRange<Key> joined(const KeyRange<Key>& a, const KeyRange<Key>& b) {
  const Key ends[] = {a.least, static_cast<Key>(a.least + (a.entries - 1)), b.least, static_cast<Key>(b.least + (b.entries - 1))};
  return range_of(ends, 4);
}

template <class Key, class Row>
class Grouping {
 public:
  Grouping(ThreadPool& pool, HostMemory& memory, const TupleView& in, const Job& job)
      : pool_(pool), memory_(memory), in_(in), keys_(static_cast<const Key*>(in.keys)), job_(job) {}

  void mark_rows(KeepRow keep, uint64_t* bits) {
    if (in_.size == 0) return;
    const KeyRange<Key> range = small_range();
    switch (keep) {
      case KeepRow::first: return mark_rows<KeepRow::first>(range, bits);
      case KeepRow::last: return mark_rows<KeepRow::last>(range, bits);
      case KeepRow::none: return mark_rows<KeepRow::none>(range, bits);
    }
  }

  std::optional<RepeatedKey> find_repeated() {
    std::optional<RepeatedKey> found;
    std::mutex mutex;
    each_partition([&](const Tuples<Key, Row>& tuples, uint64_t size, Runner& runner) {
      return runner.group(tuples, size, bits_, job_, [&](uint32_t id, Row row) {
        const std::lock_guard lock(mutex);
        if (!found || row < found->row) found = {runner.rows()[id], row};
        return false;  // rows ascend
      });
    });
    return found;
  }

 private:
  template <KeepRow keep>
  void mark_rows(const KeyRange<Key>& range, uint64_t* bits) {
    if (range.entries > 0) return mark_in_range<keep>(range, bits);
    each_partition([&](const Tuples<Key, Row>& tuples, uint64_t size, Runner& runner) {
      const bool fits = runner.group(tuples, size, bits_, job_, [&](uint32_t id, Row row) {
        if constexpr (keep == KeepRow::last) runner.rows()[id] = row;
        if constexpr (keep == KeepRow::none) runner.rows()[id] = kSeveral<Row>;
        return true;
      });
      if (!fits) return false;
      for (uint32_t id = 0; id < runner.size(); ++id) {
        if (const Row row = runner.rows()[id]; row != kSeveral<Row>) mark(bits, row);
      }
      return true;
    });
  }

  /// The range of all keys where it is small; otherwise one without entries.
  KeyRange<Key> small_range() {
    const uint64_t most = std::clamp(in_.size / 2, kFewEntries, kMostEntries);
    Key sample[kSample];
    const uint64_t sampled = std::min(kSample, in_.size);
    for (uint64_t i = 0; i < sampled; ++i) sample[i] = keys_[sampled_row(in_.size, sampled, i)];
    const auto small = [&](const KeyRange<Key>& range) { return range.entries - 1 < most; };
    if (!small(range_of(sample, sampled))) return {};
    std::mutex mutex;
    KeyRange<Key> range = range_of(sample, 1);
    pool_.parallel_for((in_.size + kGrain - 1) / kGrain, [&](uint64_t task) {
      job_.check();
      const uint64_t begin = task * kGrain;
      const KeyRange<Key> own = range_of(keys_ + begin, std::min(kGrain, in_.size - begin));
      const std::lock_guard lock(mutex);
      if (!small(range)) return;
      range = small(own) ? joined(range, own) : own;
    });
    return small(range) ? range : KeyRange<Key>{};
  }

  Row row_of(uint64_t i) const {
    return in_.values ? static_cast<const Row*>(in_.values)[i] : static_cast<Row>(in_.first_value + i);
  }

  /// Looks each key up in a table of all that there may be.
  template <KeepRow keep>
  void mark_in_range(const KeyRange<Key>& range, uint64_t* bits) {
    const HostBuffer memory = memory_.allocate(range.entries * sizeof(Row), "the distinct keys of rows");
    Row* const table = memory.as<Row>();
    // The last row is kept as its number plus one, so that none is the least.
    constexpr Row kEmpty = keep == KeepRow::last ? Row{0} : kNoRow<Row>;
    pool_.for_blocks(range.entries, kGrain, job_,
                     [&](uint64_t begin, uint64_t end) { std::fill(table + begin, table + end, kEmpty); });
    const auto entry_of = [&](uint64_t i) {
      const Key key = *static_cast<const volatile Key*>(keys_ + i);  // once: it may change
      const uint64_t entry = static_cast<Key>(key - range.least);
      if (entry >= range.entries) [[unlikely]]
        throw InputChanged();
      return entry;
    };
    pool_.parallel_for((in_.size + kGrain - 1) / kGrain, [&](uint64_t task) {
      job_.check();
      const uint64_t first = task * kGrain, last = std::min(in_.size, first + kGrain);
      uint64_t entries[kAhead];
      for (uint64_t begin = first; begin < last; begin += kAhead) {
        const uint64_t count = std::min(kAhead, last - begin);
        for (uint64_t i = 0; i < count; ++i) {
          entries[i] = entry_of(begin + i);
          __builtin_prefetch(table + entries[i], 1);
        }
        for (uint64_t i = 0; i < count; ++i) put<keep>(table[entries[i]], row_of(begin + i));
      }
    });
    pool_.for_blocks(range.entries, kGrain, job_, [&](uint64_t begin, uint64_t end) {
      for (uint64_t entry = begin; entry < end; ++entry) {
        const Row row = table[entry];
        if (row == kEmpty || (keep == KeepRow::none && row == kSeveral<Row>)) continue;
        mark(bits, keep == KeepRow::last ? row - 1 : row);
      }
    });
  }

  template <KeepRow keep>
  static void put(Row& place, Row row) {
    const std::atomic_ref<Row> entry(place);
    Row now = entry.load(std::memory_order_relaxed);
    if constexpr (keep == KeepRow::first) {
      while (row < now && !entry.compare_exchange_weak(now, row, std::memory_order_relaxed)) {
      }
    } else if constexpr (keep == KeepRow::last) {
      ++row;
      while (row > now && !entry.compare_exchange_weak(now, row, std::memory_order_relaxed)) {
      }
    } else {
      while (now != kSeveral<Row> &&
             !entry.compare_exchange_weak(now, now == kNoRow<Row> ? row : kSeveral<Row>, std::memory_order_relaxed)) {
      }
    }
  }

  /// What a thread groups the tuples of a partition with.
  class Runner {
   public:
    /// Has room for `keys` distinct ones from now on.
    void reserve(HostMemory& memory, uint64_t keys) {
      if (keys <= most_) return;
      table_ = {}, rows_ = {};
      most_ = 0;
      table_ = memory.allocate(KeyTable<Key>::bytes_for(keys + 1), "the distinct keys of rows");
      rows_ = memory.allocate(keys * sizeof(Row), "the distinct keys of rows");
      most_ = keys;
    }
    uint64_t most() const { return most_; }

    /// Numbers the keys, in the order of their first rows: rows()[id] is the first row of key `id`. Calls repeated(id, row) for
    /// the others; where that says false it ends. False: there are more keys than there is room for.
    template <class Repeated>
    bool group(const Tuples<Key, Row>& tuples, uint64_t size, unsigned used_bits, const Job& job, Repeated&& repeated) {
      size_ = 0;
      KeyTable<Key> table(table_.data(), std::min(most_, size) + 1, used_bits);
      Row* const rows = this->rows();
      for (uint64_t begin = 0; begin < size; begin += kCheckRows) {
        job.check();
        for (uint64_t i = begin, end = std::min(size, begin + kCheckRows); i < end; ++i) {
          const uint32_t id = table.insert(tuples.keys[i], size_);
          if (id != size_) {
            if (!repeated(id, tuples.values[i])) return true;
            continue;
          }
          if (size_ == most_) return false;
          rows[size_++] = tuples.values[i];
        }
      }
      return true;
    }
    uint32_t size() const { return size_; }
    Row* rows() const { return rows_.template as<Row>(); }

   private:
    uint64_t most_ = 0;
    HostBuffer table_, rows_;
    uint32_t size_ = 0;
  };

  /// Calls body(tuples, size, runner) for each partition, again with a larger runner where it says false.
  template <class Body>
  void each_partition(Body&& body) {
    const uint64_t size = in_.size;
    bits_ = std::min<unsigned>(static_cast<unsigned>(std::bit_width(size / kPartitionKeys)), kMaxDigitBits);
    const uint32_t partitions = uint32_t{1} << bits_;
    const HostBuffer keys = memory_.allocate(size * sizeof(Key), "partitioned keys"),
                     rows = memory_.allocate(size * sizeof(Row), "partitioned rows");
    const Tuples<Key, Row> out(keys.as<Key>(), rows.as<Row>());
    std::vector<uint64_t> offsets(size_t{partitions} + 1);
    partition(out, partitions, offsets.data());
    std::vector<Runner> runners(pool_.threads());
    for_each_task(pool_, partitions, job_, [&](uint64_t p, uint64_t r) {
      const uint64_t tuples = offsets[p + 1] - offsets[p];
      if (tuples == 0) return;
      // A frequent key makes many tuples of few keys: a table with room for all would be much too large.
      uint64_t most = std::min<uint64_t>(tuples, std::max<uint64_t>(2 * kPartitionKeys, 2 * (size >> bits_)));
      for (;; most = std::min<uint64_t>(tuples, 8 * most)) {
        if (most >= UINT32_MAX) throw Error(ErrorCode::not_supported, "More than 2^32 - 2 distinct keys in one partition");
        runners[r].reserve(memory_, most);
        if (body(out.at(offsets[p]), tuples, runners[r])) return;
        most = runners[r].most();
      }
    });
  }

  void partition(const Tuples<Key, Row>& out, uint32_t partitions, uint64_t* offsets) {
    const uint64_t blocks = block_count(pool_, in_.size, std::max<uint64_t>(uint64_t{16} * partitions, 1 << 14));
    const HostBuffer histograms = memory_.allocate(blocks * partitions * sizeof(uint64_t), "partitioning keys");
    std::vector<ScatterScratch<Key, Row>> runners;
    const auto carve = [&](void* scratch) {
      runners.clear();
      Carver carver(scratch);
      for (uint64_t r = 0; r < std::min<uint64_t>(blocks, pool_.threads()); ++r) runners.emplace_back(carver, partitions);
      return carver.bytes();
    };
    const HostBuffer scratch = memory_.allocate(carve(nullptr), "partitioning keys");
    carve(scratch.data());
    radix_pass<Key, Row>(
        pool_, in_, MixedDigit{partitions - 1, static_cast<uint8_t>(bits_ ? 64 - bits_ : 0)}, partitions, out, offsets,
        histograms.template as<uint64_t>(), blocks, [&](uint64_t runner) -> const auto& { return runners[runner]; }, job_);
  }

  ThreadPool& pool_;
  HostMemory& memory_;
  const TupleView in_;
  const Key* const keys_;
  const Job& job_;
  unsigned bits_ = 0;  // there are 2^bits_ partitions
};

/// Calls body(Key{}, Row{}).
template <class Body>
decltype(auto) with_tuples(TupleLayout layout, Body&& body) {
  const auto with_row = [&]<class Key>(Key) -> decltype(auto) {
    return layout.value_bytes == 4 ? body(Key{}, uint32_t{}) : body(Key{}, uint64_t{});
  };
  return layout.key_bytes == 4 ? with_row(uint32_t{}) : with_row(uint64_t{});
}

}  // namespace

void mark_rows(ThreadPool& pool, HostMemory& memory, TupleLayout layout, TupleView in, KeepRow keep, uint64_t* bits,
               const Job& job) {
  with_tuples(layout, [&]<class Key, class Row>(Key, Row) { Grouping<Key, Row>(pool, memory, in, job).mark_rows(keep, bits); });
}

std::optional<RepeatedKey> find_repeated(ThreadPool& pool, HostMemory& memory, TupleLayout layout, TupleView in, const Job& job) {
  return with_tuples(layout,
                     [&]<class Key, class Row>(Key, Row) { return Grouping<Key, Row>(pool, memory, in, job).find_repeated(); });
}

}  // namespace warpjoin::host
