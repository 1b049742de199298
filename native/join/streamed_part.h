// One device's part of a streamed join. Internal to streamed_join.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "join/rows_home.h"
#include "join/streamed_coordinator.h"

namespace warpjoin::streaming {

enum JoinStream : uint32_t { kMatch, kWrite, kCut, kSend, kArrive, kLeave, kJoinStreams };

/// Tuples of one side that come to a device together.
struct Arrival {
  bool of_build;
  PartitionRange round;  ///< what is joined with it
  std::vector<TupleView> from;
  bool closes_round = false;   ///< the last ones of the probe side
  Room::Slot* slot = nullptr;  ///< where they come

  uint64_t rows() const {
    uint64_t rows = 0;
    for (const TupleView& view : from) rows += view.size;
    return rows;
  }
  /// Where they are then.
  TupleView in_slot(TupleLayout layout) const;
};

/// What comes to one device and is joined there. In the first round each device cuts a part of what arrives, and sends the
/// others their partitions; after it each device has rounds of its own.
class Part {
 public:
  Part(Coordinator& shared, Device& device, size_t index);

  Device& device() const { return device_; }
  size_t home() const { return home_; }

  // --- Before what is planned runs

  void drop_arrivals(size_t from);
  /// The next arrival of the first round.
  void plan(bool of_build, const TupleView& from);
  void close_first_round();
  /// Takes its part of the partitions that were spilled.
  void take_spilled();
  /// The room for the build tuples of a spilled partition; and the most of one that is still to be joined.
  uint64_t room_of(uint32_t partition) const;
  uint64_t most_in_partition() const;
  /// Rounds of these partitions, in room for at most `kept` build tuples each. One that takes more is a round of its own, or,
  /// with `sets_aside`, stays behind for plan_blocks(). Whether there are some.
  bool plan_spilled_rounds(uint64_t kept, bool sets_aside);
  /// The most build tuples of a partition that has stayed behind; none: none has.
  uint64_t most_set_aside() const;
  /// Rounds of these partitions: for each block of at most `kept` build tuples one, with all of the probe side.
  void plan_blocks(uint64_t kept);
  /// What it has told the job to be done of the first round.
  uint64_t done() const { return done_; }
  /// Forgets what a lane had that goes.
  void drop_lane();
  /// Opens its queues, and tells the first arrivals to come.
  void open(const TupleView& build, const TupleView& probe);

  // --- What runs

  enum class Stop {
    done,
    crowded  ///< build tuples have no room in the device's memory
  };
  /// Takes all arrivals that are planned, and closes its queues.
  void run() noexcept;
  Stop stop() const { return stop_; }
  /// Tuples that it has joined, and those of other devices' partitions that have stayed here.
  uint64_t joined_rows() const { return joined_rows_; }
  uint64_t split_rows() const { return split_rows_; }
  /// Whether what it stopped at was too many build tuples, and not keys that crowd.
  bool overflowed() const { return arrivals_[next_].of_build; }

 private:
  struct Match {
    std::vector<std::array<uint64_t, 2>> offsets;  ///< of the wave's stretches
    std::unique_ptr<HashMatch> found;
    std::unique_ptr<Event> written;  ///< all of its rows are, or will be
  };
  /// Of a round.
  struct Build {
    std::unique_ptr<HashBuild> table;
    Buffer crowd;  ///< memory that it takes beside, as keys crowd
    std::deque<std::array<uint64_t, 2>> offsets;
    uint64_t rows = 0, arrived = 0;
    bool ready = false;
  };
  /// What is joined of an arrival, or of those of all devices, and where it lies.
  struct Wave {
    std::vector<TupleView> tuples;
    uint64_t rows = 0;
    uint64_t arrived = 0;  ///< of those that this device joins or sends others: each counts once
    Room::Slot* slot = nullptr;
    Room::Cut* cut = nullptr;
    Room::Inbox* inbox = nullptr;

    void add(const TupleView& stretch) {
      if (stretch.size) tuples.push_back(stretch);
      rows += stretch.size;
    }
  };

  void plan_waves(TupleLayout layout, const std::vector<TupleView>& views, bool of_build, PartitionRange round);
  bool first_round() const { return next_ < first_round_arrivals_; }
  flow::Lane<Room>& lane() { return (*shared_.lanes)[index_]; }
  const Shape& shape() const { return shared_.shape; }
  TupleLayout layout_of(const Arrival& arrival) const { return shape().side(arrival.of_build).layout; }

  void bring();
  void give_back(Room::Slot& slot, JoinStream stream);

  Stop take_arrivals();
  const char* phase() const { return !first_round() ? "spilled" : arrivals_[next_].of_build ? "build side" : "probe side"; }
  Wave take();
  Room::Cut& cut_of(size_t arrival) { return lane().cuts[arrival % lane().cuts.size()]; }
  void cut_and_send();
  bool can_cut();
  void begin_cut();
  bool can_send();
  void send_cut();
  void spill(size_t arrival);
  void send(size_t arrival, Part& owner);
  void add_cut(Wave& wave);
  uint64_t count_split(const Room::Cut& cut, bool of_build) const;
  void release(const Wave& wave, JoinStream read_on);
  bool keep(const Wave& wave);
  void begin_build();
  bool prepare_build();
  uint32_t common_bits() const;
  Match& match() { return matches_[(matched_ - 1) % kMatches]; }
  void match_wave(const Wave& wave);
  void add_done(uint64_t rows);
  void trace(const char* name, JoinStream on, TraceClock::time_point begin, uint64_t bytes);
  JoinSections found_in_wave(uint64_t probe);
  void write_wave(const JoinSections& found, const RowPlaces& places);
  void write(JoinEmit what, uint64_t rows, const JoinOutput& home);
  void write_part(JoinEmit what, uint64_t first, uint64_t rows, const std::vector<RowColumn>& columns, const JoinOutput& home);

  Coordinator& shared_;
  Device& device_;
  const size_t index_;
  // What the lane's streams refer to: they end before it goes.
  Build built_, finished_;               // of the round, and of the one before, whose rows may still be written
  std::array<Match, kMatches> matches_;  // the n-th match of all is matches_[n % kMatches]

  std::vector<Arrival> arrivals_;
  size_t first_round_arrivals_ = 0;
  PartitionRange spilled_;           // that it still has to join
  std::vector<uint32_t> set_aside_;  // of these and before them: partitions that come in blocks
  size_t next_ = 0;                  // arrival that is taken
  size_t brought_ = 0;               // that were told to come
  size_t cut_ = 0;                   // that are cut, of the first round
  size_t sent_ = 0;                  // and of these, that were spilled and sent
  uint64_t slots_taken_ = 0, slots_given_back_ = 0, matched_ = 0, written_ = 0, spills_ = 0;
  size_t to_device_ = 0, home_ = 0;  // its queues
  Stop stop_ = Stop::done;
  uint64_t done_ = 0, joined_rows_ = 0, split_rows_ = 0;

  // Counted under the coordinator's lock. Copies that have been enqueued:
  uint64_t here_ = 0, parts_leaving_ = 0, spills_leaving_ = 0;
  uint64_t inboxes_read_ = 0;                      // waves that may come where another was, after its event
  std::array<uint64_t, kInboxes> delivered_ = {};  // by others, to each inbox
};

}  // namespace warpjoin::streaming
