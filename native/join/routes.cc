#include "join/routes.h"

#include <algorithm>
#include <numeric>

#include "core/sharding.h"
#include "join/hash_cut.h"
#include "transfer/arrival.h"

namespace warpjoin::streaming {
namespace {

/// Of a share of a fourth they tell 2 % more or less.
constexpr uint64_t kSampledKeys = uint64_t{1} << 14;

/// How often each of a sample's keys is there. They are mixed, so that their topmost bits are where to look for them.
class SampledKeys {
 public:
  /// How often the key has been there before.
  uint32_t add(uint64_t key) {
    for (uint64_t at = key >> (64 - kBits);; at = (at + 1) % slots_.size()) {
      Slot& slot = slots_[at];
      if (slot.count == 0) slot.key = key;
      if (slot.key == key) return slot.count++;
    }
  }

 private:
  struct Slot {
    uint64_t key;
    uint32_t count;
  };
  static constexpr uint32_t kBits = 15;
  static_assert(uint64_t{1} << kBits >= 2 * kSampledKeys);
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kBits);
};

}  // namespace

KeySample::KeySample(TupleLayout layout, const TupleView& tuples)
    : counts_(size_t{1} << kMostPartitionBits), repeats_(counts_.size()) {
  sampled_ = static_cast<uint32_t>(std::min(kSampledKeys, tuples.size));
  SampledKeys keys;
  for (uint64_t i = 0; i < sampled_; ++i) {
    const uint64_t row = sampled_row(tuples.size, sampled_, i);
    const uint64_t key = mix_key(layout.key_bytes == 4 ? static_cast<const uint32_t*>(tuples.keys)[row]
                                                       : static_cast<const uint64_t*>(tuples.keys)[row]);
    const uint64_t partition = key >> (64 - kMostPartitionBits);
    const uint32_t before = keys.add(key);
    ++counts_[partition];
    repeats_[partition] += before == 0 ? 0 : before == 1 ? 2 : 1;
  }
}

std::vector<uint64_t> KeySample::rows_of_partitions(uint32_t bits, uint64_t rows) const {
  std::vector<uint64_t> of_partitions(size_t{1} << bits, rows >> bits);
  for (uint32_t p = 0; sampled_ && p < of_partitions.size(); ++p) of_partitions[p] = expected(counts_, p, bits, rows);
  return of_partitions;
}

uint64_t KeySample::expected(const Counts& counts, uint32_t partition, uint32_t bits, uint64_t rows) const {
  const auto each = static_cast<std::ptrdiff_t>(counts.size() >> bits);
  const auto first = counts.begin() + partition * each;
  const uint64_t count = std::accumulate(first, first + each, uint64_t{0});
  return static_cast<uint64_t>(static_cast<double>(rows) * static_cast<double>(count) / sampled_);
}

Routes::Routes(size_t devices, PartitionRange partitions, const RoutedSide& build, const RoutedSide& probe, bool replicate)
    : devices_(devices),
      partitions_(partitions),
      routes_(partitions.size(), replicate ? Route::probe_stays : Route::to_owner),
      replicates_(replicate) {
  if (!replicate && devices > 1) split_heavy(build, probe);
  splits_ = std::any_of(routes_.begin(), routes_.end(), [](Route route) { return route != Route::to_owner; });
  for (const bool of_build : {true, false}) {
    for (const bool sent : {false, true}) {
      auto& lists = ranges_[of_build ? 0 : 1][sent ? 1 : 0];
      lists.resize(devices);
      for (size_t to = 0; to < devices; ++to) {
        for (uint32_t p = partitions_.begin; p < partitions_.end; ++p) {
          if (!goes(of_build, p, sent, to)) continue;
          if (lists[to].empty() || lists[to].back().end < p) lists[to].push_back({p, p});
          lists[to].back().end = p + 1;
        }
      }
    }
  }
  for (size_t d = 0; d < devices; ++d) {
    uint64_t kept = 0;
    for (uint32_t p = partitions_.begin; p < partitions_.end; ++p) {
      const uint64_t rows = build.rows[p - partitions_.begin];
      if (route_of(p) == Route::build_stays) {
        kept += rows / devices + 1;
      } else if (goes(true, p, true, d)) {
        kept += rows;
      }
    }
    most_kept_ = std::max(most_kept_, kept);
  }
}

/// Whether a side's tuples of a partition go to a device: from another one, or those that it has itself.
bool Routes::goes(bool build, uint32_t partition, bool from_other, size_t to) const {
  switch (route_of(partition)) {
    case Route::to_owner: return owns(to, partition);
    case Route::build_stays: return !build || !from_other;
    case Route::probe_stays: return build || !from_other;
  }
  return false;
}

/// Where a device would have an eighth more to join than the mean, its heaviest partition stays where it is.
void Routes::split_heavy(const RoutedSide& build_side, const RoutedSide& probe_side) {
  const auto build = [&](uint32_t p) { return build_side.rows[p - partitions_.begin]; };
  const auto probe = [&](uint32_t p) { return probe_side.rows[p - partitions_.begin]; };
  std::vector<uint64_t> joined(devices_);
  std::vector<bool> has_more(devices_, true);  // partitions that may be split
  for (size_t d = 0; d < devices_; ++d) {
    for (uint32_t p = owned(d).begin; p < owned(d).end; ++p) joined[d] += build(p) + probe(p);
  }
  const auto rows_of = [&](uint32_t p) { return std::max(build(p), probe(p)); };
  for (;;) {
    const uint64_t mean = std::accumulate(joined.begin(), joined.end(), uint64_t{0}) / devices_;
    size_t owner = devices_;
    for (size_t d = 0; d < devices_; ++d) {
      if (has_more[d] && (owner == devices_ || joined[d] > joined[owner])) owner = d;
    }
    if (owner == devices_ || joined[owner] <= mean + mean / 8 + kLeastTuples) return;
    uint32_t heaviest = partitions_.end;
    for (uint32_t p = owned(owner).begin; p < owned(owner).end; ++p) {
      const bool may = route_of(p) == Route::to_owner && (build(p) > probe(p) ? build_side : probe_side).may_stay;
      if (may && (heaviest == partitions_.end || rows_of(p) > rows_of(heaviest))) heaviest = p;
    }
    has_more[owner] = heaviest < partitions_.end && rows_of(heaviest) >= kLeastTuples;
    if (!has_more[owner]) continue;
    const uint64_t rows = rows_of(heaviest), copied = std::min(build(heaviest), probe(heaviest));
    routes_[heaviest - partitions_.begin] = build(heaviest) > probe(heaviest) ? Route::build_stays : Route::probe_stays;
    joined[owner] -= rows + copied;
    for (uint64_t& there : joined) there += rows / devices_ + copied;
  }
}

}  // namespace warpjoin::streaming
