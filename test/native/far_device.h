// A host device that behaves like a GPU for the operators: it has memory of its own, and its primitives take no pointer
// to any other memory. Operators that pass host pointers fail on it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "device/host_device.h"
#include "engine/engine.h"
#include "primitives/hash_groups.h"
#include "primitives/primitives.h"
#include "words.h"

namespace warpjoin::testing {

/// Stretches of memory that belong together.
class FarMemory {
 public:
  bool holds(const void* data, size_t bytes) const {
    const auto* at = static_cast<const char*>(data);
    const std::lock_guard lock(mutex_);
    const auto next = ranges_.upper_bound(at);
    return next != ranges_.begin() && at + bytes <= std::prev(next)->first + std::prev(next)->second;
  }
  void add(const void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!ranges_.emplace(static_cast<const char*>(data), bytes).second)
      throw Error(ErrorCode::internal, "Memory was added twice");
  }
  void remove(const void* data) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(static_cast<const char*>(data));
  }
  size_t ranges() const {
    const std::lock_guard lock(mutex_);
    return ranges_.size();
  }
  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    size_t all = 0;
    for (const auto& range : ranges_) all += range.second;
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const char*, size_t> ranges_;
};

/// That of all far devices of an engine, or of a process.
class FarMemories {
 public:
  void add(const FarMemory& memory) {
    const std::lock_guard lock(mutex_);
    memories_.push_back(&memory);
  }
  void remove(const FarMemory& memory) {
    const std::lock_guard lock(mutex_);
    std::erase(memories_, &memory);
  }
  bool holds(const void* data, size_t bytes) const {
    const std::lock_guard lock(mutex_);
    return std::any_of(memories_.begin(), memories_.end(), [&](const FarMemory* memory) { return memory->holds(data, bytes); });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<const FarMemory*> memories_;
};

/// How a far device fails.
class FarFailure {
 public:
  explicit FarFailure(const std::string& device_name) : device_name_(device_name) {}

  void check() const {
    if (lost_) throw error("failed earlier");
  }
  void lose() { lost_ = true; }
  /// Lets the n-th launch from now (1 = the next) fail; a primitive counts once or more.
  void fail_launch(int64_t n) { launches_until_failure_ = n; }
  void launch() const {
    check();
    if (launches_until_failure_.fetch_sub(1) == 1) throw error("a launch failed");
  }
  Error error(const char* what) const { return {ErrorCode::device, "Device '" + device_name_ + "': " + what}; }

 private:
  const std::string& device_name_;
  std::atomic<bool> lost_{false};
  mutable std::atomic<int64_t> launches_until_failure_{0};
};

/// Waits for nothing that a lost device does.
class FarEvent final : public Event {
 public:
  FarEvent(std::unique_ptr<Event> host, const FarFailure& failure) : host_(std::move(host)), failure_(failure) {}
  void synchronize() override {
    host_->synchronize();
    failure_.check();
  }
  bool done() override { return host_->done(); }
  Event& host() { return *host_; }

 private:
  std::unique_ptr<Event> host_;
  const FarFailure& failure_;
};

class FarStream final : public HostStream {
 public:
  FarStream(std::unique_ptr<Stream> host, const FarFailure& failure) : host_(std::move(host)), failure_(failure) {}
  void enqueue(std::function<void()> work) override { static_cast<HostStream&>(*host_).enqueue(std::move(work)); }
  void synchronize() override {
    host_->synchronize();
    failure_.check();
  }
  void record(Event& event) override {
    failure_.check();
    host_->record(static_cast<FarEvent&>(event).host());
  }
  void wait(Event& event) override {
    failure_.check();
    host_->wait(static_cast<FarEvent&>(event).host());
  }

 private:
  std::unique_ptr<Stream> host_;
  const FarFailure& failure_;
};

/// Passes calls on to the host's primitives once their pointers are found to be device memory. `groups`: they group tuples for
/// others, too.
class FarPrimitives final : public Primitives, public HashGroups {
 public:
  FarPrimitives(Primitives& host, const FarMemory& own, const FarMemories& all, const FarFailure& failure, bool groups)
      : host_(host), own_(own), all_(all), failure_(failure), groups_(groups) {}

  void value_range(const ColumnStretch& column, ValueRange* range, const Job& job, Stream& stream) override {
    own(column);
    host_.value_range(column, range, job, stream);
  }
  void encode_keys(std::span<const KeyPart> parts, uint64_t size, uint8_t key_bytes, void* keys, const Job& job,
                   Stream& stream) override {
    for (const KeyPart& part : parts) own(part.column);
    require(size == 0 || own_.holds(keys, size * key_bytes));
    host_.encode_keys(parts, size, key_bytes, keys, job, stream);
  }
  void decode_fields(const void* keys, uint8_t key_bytes, uint64_t size, std::span<const DecodedPart> parts, const Job& job,
                     Stream& stream) override {
    for (const DecodedPart& part : parts) own({part.type, part.values, part.validity, size});
    require(size == 0 || own_.holds(keys, size * key_bytes));
    host_.decode_fields(keys, key_bytes, size, parts, job, stream);
  }
  TupleSpan sort(TupleLayout layout, TupleView in, TupleSpan a, TupleSpan b, uint64_t bits, void* scratch, const Job& job,
                 Stream& stream) override {
    own(layout, in), own(layout, a.view()), own(layout, b.view());
    return host_.sort(layout, in, a, b, bits, scratch, job, stream);
  }
  size_t sort_scratch_bytes(TupleLayout layout, uint64_t size) override { return host_.sort_scratch_bytes(layout, size); }
  void varying_bits(TupleLayout layout, TupleView in, const uint64_t* first, uint64_t* bits, const Job& job,
                    Stream& stream) override {
    own(layout, in);
    host_.varying_bits(layout, in, first, bits, job, stream);
  }
  void sample_keys(TupleLayout layout, TupleView in, uint64_t count, void* keys, const Job& job, Stream& stream) override {
    own(layout, in), require(count == 0 || any_holds(keys, count * layout.key_bytes));
    host_.sample_keys(layout, in, count, keys, job, stream);
  }
  void select_up_to(TupleLayout layout, TupleView in, uint64_t flip, const SampleBound& bound, TupleSpan out, uint64_t* count,
                    void* scratch, const Job& job, Stream& stream) override {
    own(layout, in), own(layout, out.view());
    require(!bound.key || (own_.holds(bound.key, layout.key_bytes) && own_.holds(bound.index, 4)));
    require(own_.holds(scratch, kSelectScratchBytes));
    host_.select_up_to(layout, in, flip, bound, out, count, scratch, job, stream);
  }
  void merge(TupleLayout layout, std::span<const TupleView> runs, TupleSpan out, void* scratch, const Job& job,
             Stream& stream) override {
    for (const TupleView& run : runs) any(layout, run);
    own(layout, out.view());
    host_.merge(layout, runs, out, scratch, job, stream);
  }
  size_t merge_scratch_bytes(TupleLayout layout, size_t runs, uint64_t size) override {
    return host_.merge_scratch_bytes(layout, runs, size);
  }
  void split_runs(TupleLayout layout, std::span<const TupleView> runs, std::span<const uint64_t> ranks, uint64_t* cuts,
                  Stream& stream) override {
    for (const TupleView& run : runs) any(layout, run);
    host_.split_runs(layout, runs, ranks, cuts, stream);
  }
  void partition(TupleLayout layout, TupleView in, Digit digit, TupleSpan out, uint64_t* offsets, void* scratch, const Job& job,
                 Stream& stream) override {
    own(layout, in), own(layout, out.view());
    host_.partition(layout, in, digit, out, offsets, scratch, job, stream);
  }
  size_t partition_scratch_bytes(TupleLayout layout, uint64_t size, Digit digit) override {
    return host_.partition_scratch_bytes(layout, size, digit);
  }
  void partition_ranges(TupleLayout layout, TupleView in, uint64_t flip, std::span<const uint64_t> bounds, TupleSpan out,
                        uint64_t* offsets, void* scratch, const Job& job, Stream& stream) override {
    own(layout, in), own(layout, out.view());
    host_.partition_ranges(layout, in, flip, bounds, out, offsets, scratch, job, stream);
  }
  size_t partition_ranges_scratch_bytes(TupleLayout layout, uint64_t size, size_t ranges) override {
    return host_.partition_ranges_scratch_bytes(layout, size, ranges);
  }
  void sort_ties(TupleLayout layout, TupleSpan tuples, unsigned low_bits, bool* unsorted, const Job& job,
                 Stream& stream) override {
    own(layout, tuples.view());
    host_.sort_ties(layout, tuples, low_bits, unsorted, job, stream);
  }
  void flip_keys(TupleLayout layout, const void* keys, void* flipped, uint64_t size, uint64_t flip, const Job& job,
                 Stream& stream) override {
    own({layout.key_bytes, 0}, {keys, nullptr, 0, size}), own({layout.key_bytes, 0}, {flipped, nullptr, 0, size});
    host_.flip_keys(layout, keys, flipped, size, flip, job, stream);
  }
  void concatenate(TupleLayout layout, std::span<const TupleView> parts, TupleSpan out, void* scratch, const Job& job,
                   Stream& stream) override {
    for (const TupleView& part : parts) {
      any(layout, part);
      require(part.values || part.size == 0 || layout.value_bytes == 0);
    }
    own(layout, out.view());
    host_.concatenate(layout, parts, out, scratch, job, stream);
  }
  size_t concatenate_scratch_bytes(size_t parts) override { return host_.concatenate_scratch_bytes(parts); }
  void gather(const ShardedColumn& column, uint8_t width, RowNumbers rows, const void* valid, void* result, const Job& job,
              Stream& stream) override {
    require(any_holds_all(column) && own_.holds(result, rows.size * width));
    own(rows, valid);
    host_.gather(column, width, rows, valid, result, job, stream);
  }
  void gather_bits(const ShardedColumn& bitmap, RowNumbers rows, const void* valid, void* result, const Job& job,
                   Stream& stream) override {
    require(any_holds_all(bitmap) && own_.holds(result, (rows.size + 63) / 64 * 8));
    own(rows, valid);
    host_.gather_bits(bitmap, rows, valid, result, job, stream);
  }
  void match_ranges(TupleLayout build_layout, TupleView build, TupleLayout probe_layout, TupleView probe, void* ranges,
                    uint8_t row_bytes, uint64_t* count, void* scratch, const Job& job, Stream& stream) override {
    own(build_layout, build), own(probe_layout, probe);
    require(!ranges || own_.holds(ranges, std::min(build.size, probe.size) * 4 * row_bytes));
    host_.match_ranges(build_layout, build, probe_layout, probe, ranges, row_bytes, count, scratch, job, stream);
  }
  void sum_ranges(const NarrowMatchRange* ranges, uint64_t count, MatchSums* sums, const Job& job, Stream& stream) override {
    require(own_.holds(ranges, count * sizeof(NarrowMatchRange)));
    summed_ranges += count;
    host_.sum_ranges(ranges, count, sums, job, stream);
  }
  size_t match_ranges_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size) override {
    return host_.match_ranges_scratch_bytes(build, build_size, probe, probe_size);
  }
  std::unique_ptr<HashMatch> hash_match(const PartitionedTuples& build, const PartitionedTuples& probe, uint32_t partitions,
                                        uint32_t common_bits, bool count_only, void* scratch, const Job& job,
                                        Stream& stream) override {
    for (const TupleView& part : build.fragments) own(build.layout, part);
    for (const TupleView& part : probe.fragments) own(probe.layout, part);
    require(!scratch || own_.holds(scratch, host_.hash_match_scratch_bytes(build.layout, size_of(build), probe.layout,
                                                                           size_of(probe), partitions, count_only)));
    return host_.hash_match(build, probe, partitions, common_bits, count_only, scratch, job, stream);
  }
  std::unique_ptr<HashBuild> hash_build(const HashBuildPlan& plan, void* scratch) override {
    require(scratch ? own_.holds(scratch, hash_build_scratch_bytes(plan)) : hash_build_scratch_bytes(plan) == 0);
    return std::make_unique<Build>(*this, plan, scratch);
  }
  std::unique_ptr<HashMatch> hash_probe(HashBuild& built, const PartitionedTuples& probe, uint32_t common_bits, void* scratch,
                                        const Job& job, Stream& stream) override {
    auto& build = static_cast<Build&>(built);
    for (const TupleView& part : probe.fragments) own(probe.layout, part);
    require(size_of(probe) <= build.plan.probe_at_once);
    require(!scratch || own_.holds(scratch, hash_probe_scratch_bytes(build.plan)));
    require(build.more_bytes() == 0 || build.more);
    return host_.hash_probe(*build.host, probe, common_bits, scratch, job, stream);
  }
  size_t hash_build_scratch_bytes(const HashBuildPlan& plan) override { return host_.hash_build_scratch_bytes(plan); }
  size_t hash_probe_scratch_bytes(const HashBuildPlan& plan) override { return host_.hash_probe_scratch_bytes(plan); }
  uint64_t hash_build_crowded_room(TupleLayout, uint64_t rows, bool) override { return 3 * rows; }
  bool hash_match_writes(TupleLayout build, TupleLayout probe) const override { return build.value_bytes && probe.value_bytes; }
  /// Writes them where there is room for all.
  std::unique_ptr<HashMatch> hash_match_into(JoinOutput out, uint64_t most, const PartitionedTuples& build,
                                             const PartitionedTuples& probe, uint32_t partitions, uint32_t common_bits,
                                             void* scratch, const Job& job, Stream& stream) override {
    own_rows(out, most);
    auto match = std::make_unique<MatchInto>();
    match->found = hash_match(build, probe, partitions, common_bits, false, scratch, job, stream);
    match->out = out;
    match->most = most;
    return match;
  }
  bool hash_match_goes_on(HashMatch& match, const Job& job, Stream& stream) override {
    auto* const into = dynamic_cast<MatchInto*>(&match);
    if (!into) return host_.hash_match_goes_on(match, job, stream);
    if (into->written_ || match.tally().pairs == 0 || match.tally().pairs > into->most) return false;
    into->written_ = true;
    written_pairs += match.tally().pairs;
    host_.hash_emit(*into->found, JoinEmit::pairs, 0, match.tally().pairs, into->out, job, stream);
    return true;
  }
  uint64_t hash_partition_tuples() const override { return UINT64_MAX; }  // as GPUs do
  size_t hash_match_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size,
                                  uint32_t partitions, bool count_only) override {
    return host_.hash_match_scratch_bytes(build, build_size, probe, probe_size, partitions, count_only);
  }
  void hash_emit(const HashMatch& match, JoinEmit what, uint64_t first, uint64_t rows, JoinOutput out, const Job& job,
                 Stream& stream) override {
    own_rows(out, rows);
    emitted_rows += rows;
    const auto* const into = dynamic_cast<const MatchInto*>(&match);
    require(!match.written());
    host_.hash_emit(into ? *into->found : match, what, first, rows, out, job, stream);
  }

  // Grouped tuples are keys and values of 8 bytes each; rooms have a gap of a few behind each group.
  HashGroups* hash_groups() override { return groups_ ? this : nullptr; }
  HashGrouping hash_grouping(TupleLayout, uint64_t, size_t, uint32_t) const override { return {7, 8}; }
  uint32_t grouped_tuple_bytes(TupleLayout) const override { return sizeof(GroupedTuple); }
  uint64_t grouped_rows(TupleLayout, uint64_t size, HashGrouping grouping) const override {
    return size + kGap * grouping.groups();
  }
  void hash_group(TupleLayout layout, TupleView in, HashGrouping grouping, void* out, uint32_t* begins, uint32_t* ends,
                  void* scratch, const Job&, Stream& stream) override {
    own(layout, in);
    require(own_.holds(out, grouped_rows(layout, in.size, grouping) * sizeof(GroupedTuple)));
    require(own_.holds(scratch, hash_group_scratch_bytes(grouping)));
    static_cast<HostStream&>(stream).enqueue([=] {
      const auto group_of = [&](uint64_t i) {
        return mix_key(words::read(in.keys, layout.key_bytes, i)) >> (64 - grouping.group_bits);
      };
      std::fill_n(ends, grouping.groups(), 0);
      for (uint64_t i = 0; i < in.size; ++i) ++ends[group_of(i)];
      uint32_t begin = 0;
      for (uint32_t g = 0; g < grouping.groups(); ++g) begin += kGap + std::exchange(ends[g], begins[g] = begin);
      for (uint64_t i = 0; i < in.size; ++i) {
        static_cast<GroupedTuple*>(out)[ends[group_of(i)]++] = {
            words::read(in.keys, layout.key_bytes, i),
            in.values ? words::read(in.values, layout.value_bytes, i) : in.first_value + i};
      }
    });
  }
  size_t hash_group_scratch_bytes(HashGrouping grouping) const override { return grouping.groups(); }
  std::unique_ptr<HashMatch> match_groups(const GroupedTuples& build, const GroupedTuples& probe, HashGrouping grouping,
                                          bool count_only, const std::optional<JoinOutput>& out, void* scratch, const Job& job,
                                          Stream& stream) override {
    const size_t bytes =
        match_groups_scratch_bytes(build.layout, build.size, probe.layout, probe.size, grouping, build.groups, 0, count_only);
    require(own_.holds(scratch, bytes) && build.first_group == probe.first_group && build.groups == probe.groups);
    auto match = std::make_unique<MatchInto>();
    match->found = host_.hash_match(ungrouped(build, match->columns[0], match->columns[1], match->offsets[0], stream),
                                    ungrouped(probe, match->columns[2], match->columns[3], match->offsets[1], stream), 1, 0,
                                    count_only, scratch, job, stream);
    grouped_tuples += build.size + probe.size;
    if (!out || !hash_match_writes(build.layout, probe.layout)) return match;
    own_rows(*out, probe.size);
    match->out = *out;
    match->most = probe.size;
    return match;
  }
  size_t match_groups_scratch_bytes(TupleLayout build, uint64_t build_size, TupleLayout probe, uint64_t probe_size, HashGrouping,
                                    uint32_t, size_t, bool count_only) const override {
    return host_.hash_match_scratch_bytes(build, build_size, probe, probe_size, 1, count_only);
  }

  std::atomic<uint64_t> emitted_rows{0}, written_pairs{0}, summed_ranges{0}, grouped_tuples{0};

 private:
  /// Takes more memory where keys repeat, as GPUs do.
  struct Build final : HashBuild {
    Build(FarPrimitives& far, const HashBuildPlan& planned, void* scratch)
        : on(far), plan(planned), host(far.host_.hash_build(planned, scratch)) {}

    void add(const PartitionedTuples& tuples, const Job& job, Stream& stream) override {
      rows += size_of(tuples);
      on.require(++pieces <= plan.pieces && size_of(tuples) <= plan.build_at_once && rows <= plan.build_rows);
      for (const TupleView& part : tuples.fragments) {
        on.own(plan.build, part);
        static_cast<HostStream&>(stream).enqueue([this, part] {
          for (uint64_t i = 0; i < part.size; ++i)
            repeats |= !keys.insert(words::read(part.keys, plan.build.key_bytes, i)).second;
        });
      }
      host->add(tuples, job, stream);
    }
    void finish(const Job& job, Stream& stream) override { host->finish(job, stream); }
    size_t more_bytes() const override { return repeats && 3 * rows > plan.build_rows ? 8 * rows : 0; }
    void go_on(void* memory, const Job&, Stream&) override {
      on.require(more_bytes() == 0 || on.own_.holds(memory, more_bytes()));
      more = memory;
    }

    FarPrimitives& on;
    const HashBuildPlan plan;
    const std::unique_ptr<HashBuild> host;
    uint64_t rows = 0;
    uint32_t pieces = 0;
    std::set<uint64_t> keys;
    bool repeats = false;
    void* more = nullptr;
  };

  static constexpr uint32_t kGap = 3;
  struct GroupedTuple {
    uint64_t key, value;
  };
  struct MatchInto final : HashMatch {
    const JoinTally& tally() const override { return found->tally(); }
    bool written() const override { return written_; }

    std::vector<char> columns[4];  ///< of what was grouped
    uint64_t offsets[2][2];

    std::unique_ptr<HashMatch> found;
    JoinOutput out;
    uint64_t most = 0;
    bool written_ = false;
  };

  /// Grouped tuples in columns once the stream gets there.
  PartitionedTuples ungrouped(const GroupedTuples& grouped, std::vector<char>& keys, std::vector<char>& values, uint64_t* offsets,
                              Stream& stream) {
    const TupleLayout layout = grouped.layout;
    keys.resize(grouped.size * layout.key_bytes + 1);
    values.resize(grouped.size * layout.value_bytes + 1);
    for (const GroupedTuples::Fragment& fragment : grouped.fragments) {
      require(fragment.begins.empty() || fragment.begins[0] == 0);
      require(fragment.ends.empty() || fragment.ends.back() == 0 ||
              own_.holds(fragment.tuples, fragment.ends.back() * sizeof(GroupedTuple)));
    }
    static_cast<HostStream&>(stream).enqueue([=, fragments = grouped.fragments, keys = keys.data(), values = values.data()] {
      uint64_t row = 0;
      for (const GroupedTuples::Fragment& fragment : fragments) {
        for (size_t i = 0; i < fragment.begins.size(); ++i) {
          for (uint64_t at = fragment.begins[i]; at < fragment.ends[i]; ++at, ++row) {
            const GroupedTuple& tuple = static_cast<const GroupedTuple*>(fragment.tuples)[at];
            words::write(keys, layout.key_bytes, row, tuple.key);
            words::write(values, layout.value_bytes, row, tuple.value);
          }
        }
      }
    });
    PartitionedTuples tuples{layout, {{keys.data(), values.data(), 0, grouped.size}}, {}};
    offsets[0] = 0, offsets[1] = grouped.size;
    tuples.host_offsets.push_back(offsets);
    return tuples;
  }

  void own_rows(const JoinOutput& out, uint64_t rows) const {
    for (const void* column : {out.keys, out.build_values, out.probe_values}) require(!column || own_.holds(column, rows * 4));
  }
  void require(bool held) const {
    failure_.launch();
    if (!held) throw Error(ErrorCode::internal, "A primitive of a far device was given memory that it does not address");
  }
  static uint64_t size_of(const PartitionedTuples& tuples) {
    uint64_t size = 0;
    for (const TupleView& part : tuples.fragments) size += part.size;
    return size;
  }
  void own(TupleLayout layout, TupleView tuples) const {
    if (tuples.size == 0) return;
    require(own_.holds(tuples.keys, tuples.size * layout.key_bytes));
    if (tuples.values) require(own_.holds(tuples.values, tuples.size * layout.value_bytes));
  }
  void own(const ColumnStretch& column) const {
    const auto holds_bits = [&](const void* bitmap) { return own_.holds(bitmap, (column.size + 63) / 64 * 8); };
    if (column.size == 0) return;
    const bool boolean = column.type.kind == ColumnKind::boolean;
    require(boolean ? holds_bits(column.values) : own_.holds(column.values, column.size * column.type.width));
    if (column.validity) require(holds_bits(column.validity));
  }
  void any(TupleLayout layout, TupleView tuples) const {
    if (tuples.size == 0) return;
    require(any_holds(tuples.keys, tuples.size * layout.key_bytes));
    if (tuples.values) require(any_holds(tuples.values, tuples.size * layout.value_bytes));
  }
  void own(const RowNumbers& rows, const void* valid) const {
    require(own_.holds(rows.rows, rows.size * rows.row_bytes));
    if (valid) require(own_.holds(valid, (rows.size + 63) / 64 * 8));
  }
  bool any_holds_all(const ShardedColumn& column) const {
    return std::all_of(column.shards.begin(), column.shards.end(),
                       [&](const void* shard) { return !shard || any_holds(shard, 1); });
  }
  bool any_holds(const void* data, size_t bytes) const { return all_.holds(data, bytes); }

  Primitives& host_;
  const FarMemory& own_;
  const FarMemories& all_;
  const FarFailure& failure_;
  const bool groups_;
};

/// Host memory as an engine's far devices see it: which of it they copy directly.
class FarPinning {
 public:
  explicit FarPinning(bool everything) : everything_(everything) {}
  bool covers(const void* data, size_t bytes = 1) const { return everything_ || memory_.holds(data, bytes); }
  void add(const void* data, size_t bytes) { memory_.add(data, bytes); }
  void remove(const void* data) { memory_.remove(data); }
  size_t ranges() const { return memory_.ranges(); }

  std::atomic<uint64_t> slow_copies{0};  ///< copies of host memory that was not pinned

 private:
  const bool everything_;
  FarMemory memory_;
};

class FarDevice : public Device {
 public:
  FarDevice(std::unique_ptr<Device> host, std::shared_ptr<FarMemories> all, std::shared_ptr<FarPinning> pinning, bool linked,
            bool groups)
      : host_(std::move(host)),
        all_(std::move(all)),
        pinning_(std::move(pinning)),
        linked_(linked),
        primitives_(host_->primitives(), far_, *all_, failure_, groups) {
    info_ = host_->info();
    info_.kind = DeviceKind::gpu;
    info_.name = "far " + std::to_string(info_.ordinal);
    all_->add(far_);
    memory_ = std::make_unique<StackAllocator>(info_.name, info_.limit_bytes,
                                               StackAllocator::Physical{[this](size_t bytes) {
                                                                          check();
                                                                          if (allocations_until_failure_.fetch_sub(1) == 1)
                                                                            throw failure_.error("an allocation failed");
                                                                          void* const data = std::aligned_alloc(128, bytes);
                                                                          far_.add(data, bytes);
                                                                          return data;
                                                                        },
                                                                        [this](void* data, size_t) {
                                                                          far_.remove(data);
                                                                          std::free(data);
                                                                        },
                                                                        [this] { return info_.memory_bytes - far_.bytes(); }});
  }
  ~FarDevice() override {
    memory_.reset();
    all_->remove(far_);
  }

  void check() const override { failure_.check(); }
  bool addresses_host_memory() const noexcept override { return false; }
  bool addresses_peer(const Device&) const noexcept override { return linked_; }
  std::unique_ptr<Stream> create_stream(bool urgent) override {
    check();
    return std::make_unique<FarStream>(host_->create_stream(urgent), failure_);
  }
  std::unique_ptr<Event> create_event() override {
    check();
    return std::make_unique<FarEvent>(host_->create_event(), failure_);
  }
  bool copies_directly(const void* data) const override { return pinning_->covers(data); }
  void pin(void* data, size_t bytes) override {
    check();
    if (refuses_to_pin_) throw Error(ErrorCode::memory_limit, "Device '" + info_.name + "' can't pin memory");
    pinning_->add(data, bytes);
  }
  void unpin(void* data) noexcept override { pinning_->remove(data); }
  void copy(void* target, const void* source, size_t bytes, Stream& stream) override {
    check();
    for (const void* end : {static_cast<const void*>(target), source}) {
      if (all_->holds(end, bytes) || pinning_->covers(end, bytes)) continue;
      if (pinning_->covers(end)) throw Error(ErrorCode::internal, "A far device was told to copy memory that is pinned in part");
      ++pinning_->slow_copies;
    }
    if (copies_until_failure_.fetch_sub(1) == 1) fail(stream);
    if (copy_delay_.count()) {
      static_cast<HostStream&>(stream).enqueue([delay = copy_delay_] { std::this_thread::sleep_for(delay); });
    }
    host_->copy(target, source, bytes, stream);
  }
  void copy_to_peer(void* target, Device&, const void* source, size_t bytes, Stream& stream) override {
    copy(target, source, bytes, stream);
  }
  void fill(void* target, unsigned char value, size_t bytes, Stream& stream) override {
    check();
    host_->fill(target, value, bytes, stream);
  }
  FarPrimitives& primitives() noexcept override { return primitives_; }

  FarPinning& pinning() { return *pinning_; }
  void refuse_to_pin(bool refuses) { refuses_to_pin_ = refuses; }
  /// Each copy takes so much longer.
  void delay_copies(std::chrono::microseconds delay) { copy_delay_ = delay; }
  /// Lets the n-th copy from now (1 = the next) fail, at once or when the stream gets there.
  void fail_copy(int64_t n, bool at_once) {
    fails_at_once_ = at_once;
    is_lost_then_ = false;
    copies_until_failure_ = n;
  }
  /// The same, and from then on the device fails for good.
  void lose_at_copy(int64_t n, bool at_once) {
    fail_copy(n, at_once);
    is_lost_then_ = true;
  }
  void fail_launch(int64_t n) { failure_.fail_launch(n); }
  /// Lets the n-th physical allocation from now fail, though there is memory.
  void fail_physical_allocation(int64_t n) { allocations_until_failure_ = n; }
  bool has_failed_allocation() const { return allocations_until_failure_ < 1; }

 private:
  void fail(Stream& stream) {
    const auto failing = [this] {
      if (is_lost_then_) failure_.lose();
      throw failure_.error("a copy failed");
    };
    if (fails_at_once_) failing();
    static_cast<HostStream&>(stream).enqueue(failing);
  }

  std::unique_ptr<Device> host_;
  FarMemory far_;
  FarFailure failure_{info_.name};
  std::shared_ptr<FarMemories> all_;
  std::shared_ptr<FarPinning> pinning_;
  const bool linked_;
  bool refuses_to_pin_ = false, fails_at_once_ = false, is_lost_then_ = false;
  std::chrono::microseconds copy_delay_{0};
  std::atomic<int64_t> copies_until_failure_{0}, allocations_until_failure_{0};
  FarPrimitives primitives_;
};

/// Of a small engine: small blocks, so that small inputs are moved in many.
inline EngineConfig config(int devices, size_t device_limit = 0) {
  return {.threads = 3,
          .host_devices = devices,
          .memory_limit_bytes = size_t{4} << 30,
          .device_memory_limit_bytes = device_limit,
          .transfer_block_bytes = size_t{64} << 10};
}

/// An engine whose host devices are far; `linked`: they address each other's memory; `pinned`: they copy all host memory
/// directly; `groups`: they group tuples for each other.
inline std::unique_ptr<Engine> make_far_engine(EngineConfig config, bool linked = true, bool pinned = false,
                                               bool groups = false) {
  config.host_streams = HostStreams::with_threads;
  auto engine = std::make_unique<Engine>(config);
  const auto all = std::make_shared<FarMemories>();
  const auto pinning = std::make_shared<FarPinning>(pinned);
  std::vector<Device*> devices;
  for (auto& device : engine->devices) {
    device = std::make_unique<FarDevice>(std::move(device), all, pinning, linked, groups);
    devices.push_back(device.get());
  }
  engine->topology = Topology::probe(devices);
  return engine;
}

}  // namespace warpjoin::testing
