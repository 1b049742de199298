#include "join/streamed_shape.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "flow/budget.h"
#include "join/hash_cut.h"
#include "join/rows_home.h"

namespace warpjoin::streaming {
namespace {

/// Of waves: a part of what the device keeps of the build side, at least the least. Small ones leave little to do before the
/// first one is here and after the last, but each costs launches, and a look at each piece of each partition.
constexpr size_t kPartOfBuild = 32, kLeastWaveBytes = size_t{128} << 20, kMostWaveBytes = size_t{1} << 30;
/// Where a part of the build side is kept, waves take no more memory than they need, and little beside what is kept: a part of
/// that, up to the least.
constexpr size_t kPartOfKept = 4, kLeastSpillingWaveBytes = size_t{64} << 20, kSmallestWaveBytes = size_t{1} << 20;
/// The waves that a relation has at least where it is spilled, or where it is to have some, however small it is.
constexpr uint64_t kLeastWaves = 8;
/// For keys that crowd there is room in any case where that takes no more.
constexpr size_t kSparedBytes = size_t{64} << 20;
/// For each tuple whose key is in a sample more than once. Keys that it has once may fill a group as well, and others are in
/// their groups: by Zipf's law it has 38 % more than once, and about half of all tuples crowd.
constexpr uint64_t kCrowdOfRepeat = 2;
/// Partitions of a round: what stays is a whole number of them.
constexpr uint32_t kRoundBits = 5, kMostRounds = 1u << (kMostPartitionBits - kRoundBits);

uint32_t bits_for(uint32_t rounds) { return std::min<uint32_t>(std::countr_zero(rounds) + kRoundBits, kMostPartitionBits); }

uint64_t sum(const std::vector<uint64_t>& rows) { return std::accumulate(rows.begin(), rows.end(), uint64_t{0}); }

uint64_t divided(uint64_t rows, uint64_t by) { return by ? (rows + by - 1) / by : 0; }

}  // namespace

uint64_t ShapedSide::crowd_of_partition(uint32_t partition, uint32_t bits) const {
  return sample ? kCrowdOfRepeat * sample->repeats_of_partition(partition, bits, rows) : 0;
}

Shape::Shape(TupleLayout build_layout, uint64_t build_rows, TupleLayout probe_layout, uint64_t probe_rows,
             const JoinRequest& request, size_t device_count)
    : sides{{{build_layout, build_rows, !asks(request, !request.build_left)},
             {probe_layout, probe_rows, !asks(request, request.build_left)}}},
      kept_rows(build_rows),
      room_rows(build_rows),
      wave_rows(std::max(build_rows, probe_rows)),
      count_only(request.count_only),
      devices(static_cast<uint32_t>(device_count)),
      routes(1, cached, {{build_rows}, false}, {{probe_rows}, false}) {}

Shape Shape::with_samples_of(const TupleView& build, const TupleView& probe) const {
  Shape shape = *this;
  shape.sides[kBuild].sample = std::make_shared<KeySample>(shape.build().layout, build);
  shape.sides[kProbe].sample = std::make_shared<KeySample>(shape.probe().layout, probe);
  return shape;
}

Shape Shape::with_even_keys() const {
  Shape shape = *this;
  for (ShapedSide& side : shape.sides) side.sample = nullptr;
  return shape;
}

Shape Shape::in_waves(Primitives& primitives) const {
  Shape shape = *this;
  shape.set_waves(build().rows, kLeastWaveBytes, forced);
  shape.keep(primitives, build().rows);
  return shape;
}

Shape Shape::in_rounds(Primitives& primitives, uint32_t rounds, uint32_t stay) const {
  Shape shape = *this;
  shape.bits = bits_for(rounds);
  shape.cached = {0, stay};
  shape.set_routes();
  // What is expected beside the mean counts once: as a reserve, or as samples tell it.
  const uint64_t even = with_reserve(build().rows / shape.partitions() * divided(stay, devices), build().rows);
  const uint64_t expected = shape.routes.most_kept();
  const uint64_t kept = std::min(build().rows, std::max(even, expected + expected / 32));
  // Of several devices each has to do with the waves of the others, too.
  const size_t most_of_spilling = devices > 1 ? kLeastSpillingWaveBytes / 2 : kLeastSpillingWaveBytes;
  const size_t of_spilling =
      std::clamp(kept * build().layout.tuple_bytes() / kPartOfKept / devices, kSmallestWaveBytes, most_of_spilling);
  shape.set_waves(kept, shape.spills() ? of_spilling : kLeastWaveBytes, true);
  shape.keep(primitives, kept);
  return shape;
}

void Shape::cache_by_samples(Primitives& primitives) {
  const uint32_t planned = cached.size();
  const auto fits = [&](PartitionRange partitions) {
    cached = partitions;
    set_routes();
    const uint64_t kept = routes.most_kept(), reserve = kept / 32;
    uint64_t crowd = 0;
    for (uint32_t p = cached.begin; p < cached.end; ++p) crowd += build().crowd_of_partition(p, bits);
    crowd = std::min(kept, divided(crowd, devices));
    return kept + reserve <= kept_rows && with_crowd(primitives, kept + reserve, crowd) <= room_rows;
  };
  const auto most_that_fit = [&](const auto& range_of) -> PartitionRange {
    // Of even keys as many as planned, though samples tell a few more or less.
    const bool light = sum(expected_rows(true, range_of(planned))) < build().rows / partitions() * planned / 4 * 3;
    uint32_t least = 0, most = light ? partitions() : planned;
    while (least < most) {
      const uint32_t middle = most - (most - least) / 2;
      fits(range_of(middle)) ? least = middle : most = middle - 1;
    }
    return range_of(least);
  };
  const PartitionRange first = most_that_fit([](uint32_t count) -> PartitionRange { return {0, count}; });
  const PartitionRange last = most_that_fit([&](uint32_t count) -> PartitionRange {
    return {partitions() - count, partitions()};
  });
  const auto rows = [&](PartitionRange of) { return sum(expected_rows(true, of)) + sum(expected_rows(false, of)); };
  fits(rows(last) > rows(first) + (build().rows + probe().rows) / 32 ? last : first);
}

std::vector<uint64_t> Shape::expected_rows(bool of_build, PartitionRange of) const {
  const std::vector<uint64_t> all = side(of_build).rows_of_partitions(bits);
  return {all.begin() + of.begin, all.begin() + of.end};
}

void Shape::cache_none() {
  cached = {0, 0};
  set_routes();
}

void Shape::swap_sides() { std::swap(sides[kBuild], sides[kProbe]); }

void Shape::set_routes() {
  const bool replicate =
      devices > 1 && !spills() && !forced && probe().may_stay && worth_replicating(build().rows, probe().rows, devices, false);
  routes = Routes(devices, cached, {expected_rows(true, cached), build().may_stay},
                  {expected_rows(false, cached), probe().may_stay}, replicate);
}

void Shape::set_waves(uint64_t kept, size_t least_bytes, bool several) {
  const uint64_t rows = std::max(build().rows, probe().rows);
  const size_t bytes =
      std::max(least_bytes, std::min(kept * build().layout.tuple_bytes() / kPartOfBuild, kMostWaveBytes) / devices);
  wave_rows = std::max(std::min<uint64_t>(several ? rows / devices / kLeastWaves + 1 : rows, bytes / widest().tuple_bytes()),
                       divided(build().rows, HashBuildPlan::kMostPieces - 1));
}

void Shape::keep(Primitives& primitives, uint64_t rows) {
  kept_rows = room_rows = rows;
  const uint64_t room = primitives.hash_build_crowded_room(build().layout, rows, count_only);
  const bool spared = !forced && (room - rows) * build().layout.tuple_bytes() <= kSparedBytes;
  if (crowded || spared) room_rows = room;
}

uint64_t Shape::with_crowd(Primitives& primitives, uint64_t rows, uint64_t crowd) const {
  return rows + primitives.hash_build_crowded_room(build().layout, crowd, count_only) - crowd;
}

uint64_t Shape::room_of_partition(Primitives& primitives, uint32_t partition, uint64_t rows) const {
  // For what crowds in any case there is room. A full join can't do with less than all of a partition.
  if (crowded || !(build().may_stay || probe().may_stay)) return rows;
  const uint64_t even = build().rows / partitions(), uneven = rows > 2 * even ? rows - even : 0;
  return with_crowd(primitives, rows, std::min(rows, std::max(uneven, build().crowd_of_partition(partition, bits))));
}

uint64_t Shape::crowded_rows(Primitives& primitives) const {
  uint64_t least = 0, most = room_rows;
  while (least < most) {
    const uint64_t middle = least + (most - least + 1) / 2;
    primitives.hash_build_crowded_room(build().layout, middle, count_only) <= room_rows ? least = middle : most = middle - 1;
  }
  return least;
}

uint64_t Shape::with_reserve(uint64_t expected, uint64_t rows) {
  // Hashing spreads keys evenly. What is beside the mean is for partitions that have more than others.
  return std::min(rows, expected + expected / 16 + kLeastTuples);
}

uint64_t Shape::spilled_rows(bool of_build) const {
  return spills() ? with_reserve(sum(expected_rows(of_build, spilled())), side(of_build).rows) : 0;
}

size_t Shape::spilled_bytes() const {
  return SpilledTuples::host_bytes(build().layout, spilled_rows(true)) +
         SpilledTuples::host_bytes(probe().layout, spilled_rows(false));
}

uint32_t Shape::partitions_of_round(uint32_t rounds) { return (uint32_t{1} << bits_for(rounds)) / rounds; }

HashBuildPlan Shape::build_plan() const {
  const auto pieces = static_cast<uint32_t>(std::max<uint64_t>(divided(build().rows, wave_rows) + cuts(), 1));
  return {build().layout,
          probe().layout,
          room_rows,
          std::min(most_at_once(), build().rows),
          std::min(most_at_once(), probe().rows),
          pieces,
          1,
          count_only,
          tracks_build()};
}

TupleLayout Shape::widest() const {
  return {build().layout.key_bytes, std::max(build().layout.value_bytes, probe().layout.value_bytes)};
}

size_t Shape::planned_staged_bytes() const {
  if (count_only) return 0;
  return std::clamp(OwnedTuples::bytes(build().layout, build().rows) + OwnedTuples::bytes(probe().layout, probe().rows),
                    kLeastStagedBytes, kPlannedStagedBytes);
}

Room::Room(StackAllocator& memory, Primitives& primitives, const Shape& shape, size_t i, size_t staged_bytes)
    : built(allocate(memory, primitives.hash_build_scratch_bytes(shape.build_plan()))) {
  const uint64_t probe_waves = std::max<uint64_t>(divided(shape.probe().rows, shape.wave_rows), 1);
  const uint64_t waves = divided(shape.build().rows, shape.wave_rows) + probe_waves;
  const size_t match_bytes = primitives.hash_probe_scratch_bytes(shape.build_plan());
  for (size_t m = 0; m < (shape.cuts() ? kMatches : std::min<uint64_t>(probe_waves, kMatches)); ++m) {
    scratch.push_back(allocate(memory, match_bytes));
  }
  const TupleLayout layout = shape.widest();
  for (size_t s = 0; s < (shape.cuts() ? kSlots : std::min<uint64_t>(waves, kSlots)); ++s) {
    slots.push_back({OwnedTuples(memory, layout, shape.wave_rows)});
  }
  if (shape.cuts()) {
    for (size_t s = 0; s < shape.cut_waves(); ++s) cuts.push_back({OwnedTuples(memory, layout, shape.wave_rows)});
    cut_scratch =
        allocate(memory, std::max(primitives.partition_scratch_bytes(shape.build().layout, shape.wave_rows, shape.digit()),
                                  primitives.partition_scratch_bytes(shape.probe().layout, shape.wave_rows, shape.digit())));
  }
  if (shape.devices > 1) {
    for (Inbox& inbox : inboxes = std::vector<Inbox>(kInboxes)) {
      for (size_t d = 0; d < shape.devices; ++d)
        inbox.parcels.push_back({OwnedTuples(memory, layout, d == i ? 0 : shape.wave_rows)});
    }
  }
  for (Staged& each : staged) each.rows = allocate(memory, staged_bytes / kHomeParts);
}

void Room::create_events(Device& device, const Shape& shape) {
  for (Slot& slot : slots) slot.here = device.create_event(), slot.free = device.create_event();
  for (Cut& cut : cuts) {
    cut.ready = device.create_event(), cut.left = device.create_event(), cut.read = device.create_event();
    if (shape.devices > 1) cut.sent = warpjoin::create_events(device, shape.devices);
  }
  for (Inbox& inbox : inboxes) inbox.read = device.create_event();
  for (Staged& each : staged) each.written = device.create_event(), each.left = device.create_event();
}

size_t Room::planned_bytes(Primitives& primitives, const Shape& shape) {
  return flow::counted_bytes(
      [&](StackAllocator& memory) { flow::count<Room>(memory, primitives, shape, size_t{0}, shape.planned_staged_bytes()); });
}

Room Room::take(Device& device, const Shape& shape, size_t i) {
  StackAllocator& memory = device.memory();
  const size_t planned = shape.planned_staged_bytes(), needed = planned_bytes(device.primitives(), shape);
  memory.reserve(needed);
  constexpr size_t kStep = kHomeParts * StackAllocator::kAlignment;
  const size_t more = (memory.room_bytes() - needed) / kStep * kStep;
  Room room(memory, device.primitives(), shape, i, planned ? std::clamp(planned + more, planned, kMostStagedBytes) : 0);
  room.create_events(device, shape);
  return room;
}

namespace {

bool fits(Device& device, const Shape& shape) {
  const StackAllocator& memory = device.memory();
  const size_t wanted = Room::planned_bytes(device.primitives(), shape);
  return wanted + memory.resident_bytes() <= memory.limit_bytes() && wanted <= memory.reserved_bytes() + memory.free_bytes();
}

/// In so many rounds, of which the first has as many partitions as fit.
Shape with_most_cached(std::span<Device* const> devices, const Shape& whole, uint32_t rounds) {
  Primitives& primitives = devices[0]->primitives();
  const Shape even = whole.with_even_keys();
  // Fewer rounds, which join twice as many partitions each, would not have fitted.
  uint32_t least = Shape::partitions_of_round(rounds), most = 2 * least - 1;
  while (least < most) {
    const uint32_t middle = (least + most + 1) / 2;
    if (fits(devices, even.in_rounds(primitives, rounds, middle))) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  Shape shape = even.in_rounds(primitives, rounds, least);
  if (!whole.build().sample) return shape;
  shape.sides = whole.sides;
  shape.cache_by_samples(primitives);
  return shape;
}

}  // namespace

bool fits(std::span<Device* const> devices, const Shape& shape) {
  return std::all_of(devices.begin(), devices.end(), [&](Device* device) { return fits(*device, shape); });
}

Shape shape_for(std::span<Device* const> devices, Shape whole, uint32_t rounds) {
  Primitives& primitives = devices[0]->primitives();
  if (whole.devices > 1 && rounds == 1) {
    const auto all = [&](const Shape& of) { return of.in_rounds(primitives, 1, Shape::partitions_of_round(1)); };
    // Where it is not for its keys that it does not fit, others have taken memory, which taking the room will say.
    if (fits(devices, all(whole)) || !fits(devices, all(whole.with_even_keys()))) return all(whole);
    rounds = 2;
  }
  if (rounds > 1) return with_most_cached(devices, whole, rounds);
  const Shape waves = whole.in_waves(primitives);
  whole.keep(primitives, whole.build().rows);
  const auto bytes = [&](const Shape& shape) { return Room::planned_bytes(primitives, shape); };
  return fits(devices, waves) || bytes(waves) <= bytes(whole) ? waves : whole;
}

Shape crowded_shape_for(std::span<Device* const> devices, Shape whole) {
  whole.crowded = true;
  uint32_t rounds = 2;
  const auto even = [&] {
    return whole.with_even_keys().in_rounds(devices[0]->primitives(), rounds, Shape::partitions_of_round(rounds));
  };
  while (rounds < kMostRounds && !fits(devices, even())) rounds *= 2;
  return with_most_cached(devices, whole, rounds);
}

Shape blocked_shape_for(std::span<Device* const> devices, Shape whole, uint64_t build_rows) {
  whole.crowded = true;
  build_rows = std::min(build_rows, whole.wave_rows * (HashBuildPlan::kMostPieces - 1));
  for (;; build_rows -= build_rows / 8) {
    whole.sides[kBuild].rows = build_rows;
    whole.keep(devices[0]->primitives(), build_rows);
    if (build_rows < 8 || fits(devices, whole)) return whole;
  }
}

}  // namespace warpjoin::streaming
