// How a streamed join is cut, and what it takes of the device's memory. Internal to streamed_join.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/streams.h"
#include "flow/spilled_tuples.h"
#include "join/join.h"
#include "join/relation.h"
#include "join/routes.h"
#include "primitives/primitives.h"
#include "transfer/arrival.h"
#include "transfer/host_transfer.h"

namespace warpjoin::streaming {

/// Waves that arrive, are matched or leave at a time.
inline constexpr size_t kSlots = 3;
/// While a wave is matched, rows of the one before are written and go home.
inline constexpr size_t kMatches = 2;
/// While what other devices sent is matched, they send what comes next.
inline constexpr size_t kInboxes = 2;

/// What a shape knows of a relation.
struct ShapedSide {
  TupleLayout layout;
  uint64_t rows;
  bool may_stay;                              ///< whether tuples of a heavy partition may stay on the devices where they are
  std::shared_ptr<const KeySample> sample{};  ///< null: keys are taken to spread evenly

  /// Expected in each of 2^bits partitions.
  std::vector<uint64_t> rows_of_partitions(uint32_t bits) const {
    return sample ? sample->rows_of_partitions(bits, rows) : KeySample().rows_of_partitions(bits, rows);
  }
  /// Of those in one, how many may be in groups that no table holds.
  uint64_t crowd_of_partition(uint32_t partition, uint32_t bits) const;
};

/// What comes at a time, what stays, and what leaves.
struct Shape {
  OfSides<ShapedSide> sides;
  uint64_t kept_rows;           ///< build tuples that the device keeps at a time
  uint64_t room_rows;           ///< that it has room for: more, where keys crowd
  uint64_t wave_rows;           ///< tuples that come at a time
  uint32_t bits = 0;            ///< of the partitions; 0: there are none, as one device joins all of it at once
  PartitionRange cached{0, 1};  ///< partitions that are joined as they come: the first ones, or the last. Others are spilled
  bool count_only;
  uint32_t devices;      ///< that share the join. Kept tuples, room, and what comes at a time, are those of one of them
  bool crowded = false;  ///< all keys may crowd, within that room, however large it is
  bool forced = false;   ///< in several waves, with no copies for all devices nor room for keys that crowd

  Routes routes;  ///< of the partitions that are joined as they come

  /// With each side as one wave, on one device. Several have partitions: in_rounds().
  Shape(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, const JoinRequest& request,
        size_t devices);
  /// Goes by what samples of both sides say of their keys, or as if nothing were known.
  Shape with_samples_of(const TupleView& build, const TupleView& probe) const;
  Shape with_even_keys() const;
  Shape in_waves(Primitives& primitives) const;
  /// In `rounds`, or one, of which the first joins the first `stay` partitions, or as many as the others.
  Shape in_rounds(Primitives& primitives, uint32_t rounds, uint32_t stay) const;
  /// Has room for `rows` build tuples that stay.
  void keep(Primitives& primitives, uint64_t rows);
  /// The room for build tuples of which so many crowd.
  uint64_t with_crowd(Primitives& primitives, uint64_t rows, uint64_t crowd) const;
  /// The room for those of a partition, which has `rows`: of these as many crowd as samples say, and all that hashing would have
  /// spread over other partitions.
  uint64_t room_of_partition(Primitives& primitives, uint32_t partition, uint64_t rows) const;
  /// How many may stay whose keys all crowd.
  uint64_t crowded_rows(Primitives& primitives) const;
  /// Tuples of all devices that come at a time, which one device may have to join.
  uint64_t most_at_once() const { return wave_rows * devices; }
  /// Partitions that a round joins, of those that in_rounds() makes.
  static uint32_t partitions_of_round(uint32_t rounds);

  /// Joins as many partitions at once as samples say that there is room for: maybe none. The first ones or the last, whichever
  /// have more tuples.
  void cache_by_samples(Primitives& primitives);
  void cache_none();
  /// Each side takes the other one's part.
  void swap_sides();
  void set_routes();
  /// A side's tuples in each of some partitions: by samples, or evenly.
  std::vector<uint64_t> expected_rows(bool of_build, PartitionRange of) const;
  /// For so many build tuples that stay. `several`: at least some waves, however few tuples there are.
  void set_waves(uint64_t kept, size_t least_bytes, bool several);

  const ShapedSide& side(bool of_build) const { return sides[of_build ? kBuild : kProbe]; }
  const ShapedSide& build() const { return sides[kBuild]; }
  const ShapedSide& probe() const { return sides[kProbe]; }
  /// Whether rows of build tuples alone may be asked for.
  bool tracks_build() const { return !probe().may_stay; }
  bool cuts() const { return bits > 0; }
  /// Waves that are cut, or have been: one is written, one is matched, one goes to other devices.
  size_t cut_waves() const { return cuts() ? kMatches + (devices > 1 ? 2 : 1) : 0; }
  bool caches() const { return cached.size() > 0; }
  bool spills() const { return spilled().size() > 0; }
  PartitionRange spilled() const {
    return cached.begin > 0 ? PartitionRange{0, cached.begin} : PartitionRange{cached.end, partitions()};
  }
  /// Of so many tuples of a relation, room for those that are expected somewhere; and for those of a side that are spilled.
  static uint64_t with_reserve(uint64_t expected, uint64_t rows);
  uint64_t spilled_rows(bool of_build) const;
  /// Host memory for what is spilled of both sides.
  size_t spilled_bytes() const;
  uint32_t partitions() const { return uint32_t{1} << bits; }
  Digit digit() const { return {static_cast<uint8_t>(64 - bits), static_cast<uint8_t>(bits), true}; }
  /// Of both relations, for what holds tuples of either.
  TupleLayout widest() const;
  HashBuildPlan build_plan() const;
  /// Of rows on their way home, as far as plans count on it.
  size_t planned_staged_bytes() const;
};

/// What a device keeps of a join.
struct Room {
  /// Tuples as they came.
  struct Slot {
    OwnedTuples tuples;
    std::unique_ptr<Event> here{}, free{};
  };
  /// Tuples that came, by partition: those that stay are matched here, the others leave.
  struct Cut {
    OwnedTuples tuples;
    std::vector<uint64_t> offsets{};
    std::unique_ptr<Event> ready{}, left{}, read{};
    Events sent{};        ///< to each device
    uint64_t spills = 0;  ///< copies home that must have been enqueued before it is used again
    TraceClock::time_point begun{};

    uint64_t size_of(PartitionRange range) const { return offsets[range.end] - offsets[range.begin]; }
    TupleView of(TupleLayout layout, PartitionRange range) const {
      return tuples.span.slice(layout, offsets[range.begin], offsets[range.end]).view();
    }
  };
  /// Tuples of a wave that other devices have cut.
  struct Inbox {
    struct Parcel {
      OwnedTuples tuples;
      uint64_t size = 0;
      Event* here = nullptr;  ///< one of the sender's
    };
    std::vector<Parcel> parcels{};  ///< of each device; its own has no room
    std::unique_ptr<Event> read{};
  };
  /// Rows on their way home.
  struct Staged {
    Buffer rows;
    std::unique_ptr<Event> written{}, left{};
  };
  Buffer built;                 // the build side
  std::vector<Buffer> scratch;  // of matches
  std::vector<Slot> slots;
  std::vector<Cut> cuts;
  Buffer cut_scratch;
  std::vector<Inbox> inboxes;  // where there are several devices
  std::array<Staged, kHomeParts> staged;

  /// For the i-th device.
  Room(StackAllocator& memory, Primitives& primitives, const Shape& shape, size_t i, size_t staged_bytes);
  void create_events(Device& device, const Shape& shape);

  /// What it takes as far as plans count on it.
  static size_t planned_bytes(Primitives& primitives, const Shape& shape);
  /// Takes at least that from the device's memory, and more for rows on their way home where there is more.
  static Room take(Device& device, const Shape& shape, size_t i);
};

/// The shape for these devices' memory, or for that of several like the one that is given: rounds as planned, in the first of
/// which as many partitions stay as there is room for.
Shape shape_for(std::span<Device* const> devices, Shape whole, uint32_t rounds);
/// Whether it fits their memory.
bool fits(std::span<Device* const> devices, const Shape& shape);
/// Where all keys may crowd: in as few rounds as fit, but in several.
Shape crowded_shape_for(std::span<Device* const> devices, Shape whole);
/// For build sides of `build_rows` that come in blocks, all of whose keys may crowd: blocks as large as there is room for.
Shape blocked_shape_for(std::span<Device* const> devices, Shape whole, uint64_t build_rows);

}  // namespace warpjoin::streaming
