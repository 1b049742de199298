#include <algorithm>
#include <atomic>
#include <numeric>

#include "primitives/host/blocks.h"
#include "primitives/host/hash_match.h"
#include "primitives/host/hash_table.h"
#include "primitives/host/host_primitives.h"

namespace warpjoin {
namespace host {
namespace {

constexpr uint64_t kUnitRows = 1 << 16;         // probe rows of a unit
constexpr uint64_t kHeavyRows = 4 * kUnitRows;  // below this a probe partition is never split among threads
constexpr uint64_t kCacheBytes = 512 << 10;     // larger tables are prefetched
constexpr uint64_t kPrefetchRows = 16;

uint64_t aligned(uint64_t bytes) { return (bytes + 127) / 128 * 128; }

// Twice the mean and some: hashing makes larger numbers of distinct keys rare, and these are sorted instead. Duplicates
// may make partitions of any size.
uint64_t keys_for_table(uint64_t build_size, uint32_t partitions) {
  return std::min(build_size, partitions == 1 ? build_size : 2 * (build_size / partitions) + 4096);
}

uint64_t table_bytes(uint64_t keys, uint8_t key_bytes) {
  return aligned(key_bytes == 4 ? KeyTable<uint32_t>::bytes_for(keys) : KeyTable<uint64_t>::bytes_for(keys));
}

uint64_t total(const PartitionedTuples& side) {
  uint64_t size = 0;
  for (const TupleView& fragment : side.fragments) size += fragment.size;
  return size;
}

}  // namespace

HostHashBuild::HostHashBuild(ThreadPool& pool, const HashBuildPlan& plan, void* scratch) : pool_(pool), plan_(plan) {
  Carver carver(scratch);
  char* const keys = carver.take<char>(plan.build_rows * plan.build.key_bytes);
  char* const values = carver.take<char>(plan.build_rows * plan.build.value_bytes);
  room_ = {keys, values, plan.build_rows};
  found_ = carver.take<uint8_t>(plan.build_rows);
  tuples_.layout = plan.build;
}

size_t HostHashBuild::scratch_bytes(const HashBuildPlan& plan) {
  Carver carver(nullptr);
  for (const uint8_t bytes : {plan.build.key_bytes, plan.build.value_bytes, uint8_t{1}}) {
    carver.take<char>(plan.build_rows * bytes);
  }
  return carver.bytes();
}

void HostHashBuild::add(const PartitionedTuples& tuples, const Job& job, Stream& stream) {
  for (size_t f = 0; f < tuples.fragments.size(); ++f) {
    const TupleView& from = tuples.fragments[f];
    const TupleSpan to = room_.slice(plan_.build, size_, size_ + from.size);
    TupleView own = to.view();
    if (!plan_.build.value_bytes) own.values = nullptr;
    size_ += from.size;
    std::vector<uint64_t>& offsets = offsets_.emplace_back(plan_.partitions + 1);
    tuples_.fragments.push_back(own);
    tuples_.host_offsets.push_back(offsets.data());
    static_cast<HostStream&>(stream).enqueue([this, from, to, &offsets, &job, read = tuples.host_offsets[f]] {
      std::copy_n(read, offsets.size(), offsets.begin());
      with_layout(plan_.build,
                  [&]<class Key, class Value>(Key, Value) { copy_tuples(pool_, from, Tuples<Key, Value>(to), job); });
    });
  }
}

void HostHashBuild::finish(const Job&, Stream& stream) {
  static_cast<HostStream&>(stream).enqueue([this] { std::fill_n(found_, size_, uint8_t{0}); });
}

HostHashMatch::HostHashMatch(const PartitionedTuples& build, const PartitionedTuples& probe, uint32_t partitions,
                             uint32_t common_bits, bool count_only, void* scratch, unsigned threads, const HostHashBuild* built)
    : build_(build),
      probe_(probe),
      partitions_(partitions),
      common_bits_(common_bits),
      count_only_(count_only),
      built_side_(built),
      build_total_(total(build)),
      probe_total_(total(probe)),
      table_keys_(keys_for_table(build_total_, partitions)) {
  auto* at = static_cast<char*>(scratch);
  const auto take = [&](uint64_t bytes) { return std::exchange(at, at + aligned(bytes)); };
  for (uint64_t i = std::min<uint64_t>(threads, partitions); i > 0; --i) {
    free_tables_.push_back(take(table_bytes(table_keys_, build.layout.key_bytes)));
  }
  group_of_ = reinterpret_cast<uint32_t*>(take((build_total_ + 2 * uint64_t{partitions}) * sizeof(uint32_t)));
  group_begin_ = reinterpret_cast<uint32_t*>(take((build_total_ + 2 * uint64_t{partitions}) * sizeof(uint32_t)));
  rows_by_group_ = reinterpret_cast<uint32_t*>(take(build_total_ * sizeof(uint32_t)));
  matches_ = count_only ? nullptr : reinterpret_cast<uint32_t*>(take(probe_total_ * sizeof(uint32_t)));
}

size_t HostHashMatch::scratch_bytes(uint64_t build_size, uint64_t probe_size, uint32_t partitions, bool count_only,
                                    uint8_t key_bytes, unsigned threads) {
  const uint64_t tables = std::min<uint64_t>(threads, partitions);
  return tables * table_bytes(keys_for_table(build_size, partitions), key_bytes) +
         2 * aligned((build_size + 2 * uint64_t{partitions}) * sizeof(uint32_t)) + aligned(build_size * sizeof(uint32_t)) +
         (count_only ? 0 : aligned(probe_size * sizeof(uint32_t)));
}

std::vector<Piece> HostHashMatch::pieces(const PartitionedTuples& side, uint32_t partition) {
  std::vector<Piece> pieces;
  uint64_t begin = 0;
  for (size_t f = 0; f < side.fragments.size(); ++f) {
    const uint64_t* offsets = side.host_offsets[f] + partition;
    if (offsets[0] == offsets[1]) continue;
    pieces.push_back({side.fragments[f].slice(side.layout, offsets[0], offsets[1]), begin});
    begin += offsets[1] - offsets[0];
  }
  return pieces;
}

void HostHashMatch::plan(unsigned threads) {
  const auto bases = [&](const PartitionedTuples& side) {
    std::vector<uint64_t> base(partitions_ + 1);
    for (uint32_t p = 0; p < partitions_; ++p) {
      base[p + 1] = base[p];
      for (const uint64_t* offsets : side.host_offsets) base[p + 1] += offsets[p + 1] - offsets[p];
    }
    return base;
  };
  build_base_ = bases(build_);
  probe_base_ = bases(probe_);
  built_.resize(partitions_);
  first_unit_.push_back(0);
  for (uint32_t p = 0; p < partitions_; ++p) {
    if (build_size(p) >= UINT32_MAX - 1) {
      throw Error(ErrorCode::not_supported, "A hash join partition has " + std::to_string(build_size(p)) +
                                                " build rows; 2^32 - 3 are supported: most rows have the same key");
    }
    const uint64_t rows = probe_base_[p + 1] - probe_base_[p];
    for (uint64_t begin = 0; begin < rows; begin += kUnitRows) units_.push_back({p, begin, std::min(rows, begin + kUnitRows)});
    first_unit_.push_back(units_.size());
    // A partition is split among the threads where it would keep one of them busy after the others have ended.
    const bool heavy = rows > kHeavyRows && rows > probe_base_.back() / (4 * uint64_t{threads});
    (heavy ? heavy_ : light_).push_back(p);
  }
}

/// Builds one partition's table and probes it.
template <class Key>
class PartitionJoin {
 public:
  PartitionJoin(HostHashMatch& match, uint32_t partition, void* table_memory, const Job& job)
      : match_(match),
        partition_(partition),
        job_(job),
        build_(HostHashMatch::pieces(match.build_, partition)),
        probe_(HostHashMatch::pieces(match.probe_, partition)),
        rows_(static_cast<uint32_t>(match.build_size(partition))),
        capacity_(std::min<uint64_t>(rows_, match.table_keys_)),
        table_(table_memory, capacity_, match.common_bits_),
        prefetch_(KeyTable<Key>::bytes_for(capacity_) > kCacheBytes) {}

  void build() {
    BuiltPartition& built = match_.built_[partition_];
    built.groups = insert_all(built.unique);
    if (built.groups > capacity_) {
      built.groups = sort_all();
      built.unique = false;
      sorted_ = true;
    } else if (!built.unique) {
      group_rows(built.groups);
    }
    uint8_t* const matched = match_.group_matched(partition_);
    if (const uint8_t* const before = match_.found_before(partition_)) {
      std::copy_n(before, built.groups, matched);
      matched[built.groups] = 0;
    } else {
      std::fill_n(matched, built.groups + 1, uint8_t{0});
    }
  }

  /// `shared`: other threads probe the same partition.
  void probe(ProbeUnit& unit, bool shared) const {
    const BuiltPartition& built = match_.built_[partition_];
    if (sorted_) {
      probe_with(unit, shared, built, [this, groups = built.groups](Key key) { return find_sorted(key, groups); });
    } else {
      probe_with(unit, shared, built, [table = table_, groups = built.groups](Key key) { return table.find(key, groups); });
    }
  }

  void finish() {
    BuiltPartition& built = match_.built_[partition_];
    const uint8_t* matched = match_.group_matched(partition_);
    const uint32_t* begin = match_.group_begin(partition_);
    // Without a branch on the flags, which nobody can predict.
    uint64_t rows = 0;
    if (built.unique) {
      for (uint32_t g = 0; g < built.groups; ++g) rows += matched[g];
    } else {
      for (uint32_t g = 0; g < built.groups; ++g) rows += matched[g] * uint64_t{begin[g + 1] - begin[g]};
    }
    built.matched = rows;
    if (uint8_t* const before = match_.found_before(partition_)) std::copy_n(matched, built.groups, before);
  }

 private:
  /// Gives every build row its group; returns the number of groups, or more than `capacity_` if the table can't hold
  /// them. Groups of rows are written only once a key has occurred twice.
  uint32_t insert_all(bool& unique) {
    uint32_t groups = 0;
    unique = true;
    for_rows(build_, 0, rows_, job_, [&](const Piece& piece, uint64_t begin, uint64_t end) {
      if (groups <= capacity_) groups = insert_rows(piece, begin, end, groups, unique);
    });
    return groups;
  }

  uint32_t insert_rows(const Piece& piece, uint64_t begin, uint64_t end, uint32_t groups, bool& unique) {
    // A copy of the table's few words: they could be changed by any store, as far as a compiler knows.
    KeyTable<Key> table = table_;
    const Key* const keys = static_cast<const Key*>(piece.tuples.keys);
    uint32_t* const group_of = match_.group_of(partition_);
    const bool prefetch = prefetch_;
    const uint64_t capacity = capacity_;
    uint64_t i = begin;
    if (unique) {
      const uint64_t room = std::min(end, i + (capacity - groups));
      for (; i < room; ++i, ++groups) {
        if (prefetch) table.prefetch(keys[std::min(i + kPrefetchRows, end - 1)]);
        if (table.insert(keys[i], groups) != groups) break;
      }
      if (i < end) {  // row `i` repeats a key, or the table is full: to the loop that expects both
        unique = false;
        std::iota(group_of, group_of + groups, 0u);
      }
    }
    for (; i < end && groups <= capacity; ++i) {
      if (prefetch) table.prefetch(keys[std::min(i + kPrefetchRows, end - 1)]);
      const uint32_t group = table.insert(keys[i], groups);
      group_of[piece.begin + i] = group;
      groups += group == groups;
    }
    table_ = table;
    return groups;
  }

  /// Makes group_begin, and for retrieval the rows in the order of groups.
  void group_rows(uint32_t groups) {
    const uint32_t* group_of = match_.group_of(partition_);
    uint32_t* const begin = match_.group_begin(partition_);
    std::fill_n(begin, groups + 2, 0u);
    for (uint32_t row = 0; row < rows_; ++row) ++begin[group_of[row] + 1];
    for (uint32_t g = 0; g <= groups; ++g) begin[g + 1] += begin[g];
    if (match_.count_only_) return;
    uint32_t* const rows = match_.rows_by_group(partition_);
    for (uint32_t row = 0; row < rows_; ++row) rows[begin[group_of[row]]++] = row;
    std::copy_backward(begin, begin + groups, begin + groups + 1);  // ends become the next groups' begins
    begin[0] = 0;
  }

  /// What is left where more distinct keys than hashing can explain came together: groups by sorting.
  uint32_t sort_all() {
    uint32_t* const rows = match_.rows_by_group(partition_);
    uint32_t* const begin = match_.group_begin(partition_);
    std::iota(rows, rows + rows_, 0u);
    uint32_t compared = 0;
    std::sort(rows, rows + rows_, [&](uint32_t a, uint32_t b) {
      if ((++compared & 0xFFFF) == 0) job_.check();
      const Key x = build_key(a), y = build_key(b);
      return x != y ? x < y : a < b;
    });
    uint32_t groups = 0;
    for (uint32_t i = 0; i < rows_; ++i) {
      if (i == 0 || build_key(rows[i]) != build_key(rows[i - 1])) begin[groups++] = i;
    }
    begin[groups] = begin[groups + 1] = rows_;
    return groups;
  }

  uint32_t find_sorted(Key key, uint32_t groups) const {
    const uint32_t* const rows = match_.rows_by_group(partition_);
    const uint32_t* const begin = match_.group_begin(partition_);
    const uint32_t* const found =
        std::lower_bound(begin, begin + groups, key, [&](uint32_t at, Key wanted) { return build_key(rows[at]) < wanted; });
    return found != begin + groups && build_key(rows[*found]) == key ? static_cast<uint32_t>(found - begin) : groups;
  }

  Key build_key(uint32_t row) const {
    const Piece* piece = build_.data();
    while (row >= piece->end()) ++piece;
    return static_cast<const Key*>(piece->tuples.keys)[row - piece->begin];
  }

  template <class Find>
  void probe_with(ProbeUnit& unit, bool shared, const BuiltPartition& built, const Find& find) const {
    ProbeUnit found = unit;
    for_rows(probe_, unit.begin, unit.end, job_, [&](const Piece& piece, uint64_t begin, uint64_t end) {
      if (shared) {
        probe_rows<true>(piece, begin, end, built, find, found);
      } else {
        probe_rows<false>(piece, begin, end, built, find, found);
      }
    });
    unit = found;
  }

  template <bool shared, class Find>
  void probe_rows(const Piece& piece, uint64_t begin, uint64_t end, const BuiltPartition& built, const Find& by_reference,
                  ProbeUnit& found) const {
    // Copies: a store to a byte flag might change anything that is reached through memory, and so cost its reload.
    const Find find = by_reference;
    const KeyTable<Key> table = table_;
    const Key* const keys = static_cast<const Key*>(piece.tuples.keys);
    uint32_t* const matches = match_.count_only_ ? nullptr : match_.matches(partition_) + piece.begin;
    uint8_t* const matched = match_.group_matched(partition_);
    const uint32_t* const group_begin = match_.group_begin(partition_);
    const uint32_t none = built.groups;
    const bool unique = built.unique, prefetch = prefetch_ && !sorted_;
    uint64_t hits = 0, pairs = 0;
    for (uint64_t i = begin; i < end; ++i) {
      if (prefetch) table.prefetch(keys[std::min(i + kPrefetchRows, end - 1)]);
      const uint32_t group = find(keys[i]);
      if (matches) matches[i] = group;
      if constexpr (shared) {
        // Look first: a store to a hot key's flag would take its cache line from the other threads.
        const std::atomic_ref<uint8_t> flag(matched[group]);
        if (!flag.load(std::memory_order_relaxed)) flag.store(1, std::memory_order_relaxed);
      } else {
        matched[group] = 1;
      }
      hits += group != none;
      if (!unique) pairs += group_begin[group + 1] - group_begin[group];
    }
    found.matched += hits;
    found.pairs += unique ? hits : pairs;
  }

  HostHashMatch& match_;
  const uint32_t partition_;
  const Job& job_;
  const std::vector<Piece> build_, probe_;
  const uint32_t rows_;
  const uint64_t capacity_;
  KeyTable<Key> table_;
  const bool prefetch_;
  bool sorted_ = false;
};

template <class Key>
void HostHashMatch::run_keys(ThreadPool& pool, const Job& job) {
  const auto with_table = [&](uint32_t p, auto&& probe) {
    struct Table {
      HostHashMatch& match;
      void* memory = nullptr;
      explicit Table(HostHashMatch& m) : match(m) {
        const std::lock_guard lock(match.mutex_);
        memory = match.free_tables_.back();
        match.free_tables_.pop_back();
      }
      ~Table() {
        const std::lock_guard lock(match.mutex_);
        match.free_tables_.push_back(memory);
      }
    };
    const Table table(*this);
    PartitionJoin<Key> join(*this, p, table.memory, job);
    join.build();
    probe(join);
    join.finish();
  };
  for (const uint32_t p : heavy_) {
    with_table(p, [&](PartitionJoin<Key>& join) {
      pool.parallel_for(first_unit_[p + 1] - first_unit_[p], [&](uint64_t i) { join.probe(units_[first_unit_[p] + i], true); });
    });
  }
  pool.parallel_for(light_.size(), [&](uint64_t i) {
    const uint32_t p = light_[i];
    with_table(p, [&](PartitionJoin<Key>& join) {
      for (uint64_t u = first_unit_[p]; u < first_unit_[p + 1]; ++u) join.probe(units_[u], false);
    });
  });
}

void HostHashMatch::run(ThreadPool& pool, const Job& job) {
  job.check();
  plan(pool.threads());
  if (build_.layout.key_bytes == 4) {
    run_keys<uint32_t>(pool, job);
  } else {
    run_keys<uint64_t>(pool, job);
  }
  for (const ProbeUnit& unit : units_) {
    if (__builtin_add_overflow(tally_.pairs, unit.pairs, &tally_.pairs)) {
      throw Error(ErrorCode::not_supported, "The join gives more than 2^64 - 1 rows");
    }
    tally_.probe_matched += unit.matched;
  }
  for (const BuiltPartition& built : built_) tally_.build_matched += built.matched;
}

}  // namespace host

std::unique_ptr<HashMatch> HostPrimitives::hash_match(const PartitionedTuples& build, const PartitionedTuples& probe,
                                                      uint32_t partitions, uint32_t common_bits, bool count_only, void* scratch,
                                                      const Job& job, Stream& stream) {
  auto match =
      std::make_unique<host::HostHashMatch>(build, probe, partitions, common_bits, count_only, scratch, pool_.threads(), nullptr);
  host(stream).enqueue([this, match = match.get(), &job] { match->run(pool_, job); });
  return match;
}

std::unique_ptr<HashBuild> HostPrimitives::hash_build(const HashBuildPlan& plan, void* scratch) {
  return std::make_unique<host::HostHashBuild>(pool_, plan, scratch);
}

std::unique_ptr<HashMatch> HostPrimitives::hash_probe(HashBuild& built, const PartitionedTuples& probe, uint32_t common_bits,
                                                      void* scratch, const Job& job, Stream& stream) {
  const auto& build = static_cast<const host::HostHashBuild&>(built);
  const HashBuildPlan& plan = build.plan();
  auto match = std::make_unique<host::HostHashMatch>(build.tuples(), probe, plan.partitions, common_bits, plan.count_only,
                                                     scratch, pool_.threads(), &build);
  host(stream).enqueue([this, match = match.get(), &job] { match->run(pool_, job); });
  return match;
}

size_t HostPrimitives::hash_match_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout, uint64_t probe_size,
                                                uint32_t partitions, bool count_only) {
  return host::HostHashMatch::scratch_bytes(build_size, probe_size, partitions, count_only, build.key_bytes, pool_.threads());
}

size_t HostPrimitives::hash_build_scratch_bytes(const HashBuildPlan& plan) { return host::HostHashBuild::scratch_bytes(plan); }

size_t HostPrimitives::hash_probe_scratch_bytes(const HashBuildPlan& plan) {
  return hash_match_scratch_bytes(plan.build, plan.build_rows, plan.probe, plan.probe_at_once, plan.partitions, plan.count_only);
}

void HostPrimitives::hash_emit(const HashMatch& match, JoinEmit what, uint64_t first, uint64_t rows, JoinOutput out,
                               const Job& job, Stream& stream) {
  host(stream).enqueue([this, match = static_cast<const host::HostHashMatch*>(&match), what, first, rows, out, &job] {
    match->emit(what, first, rows, out, pool_, job);
  });
}

}  // namespace warpjoin
