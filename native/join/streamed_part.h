// One device's part of a streamed join, and what the parts share. Internal to streamed_join.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "flow/lanes.h"
#include "join/growing_rows.h"
#include "join/row_writer.h"
#include "join/spilled_tuples.h"
#include "join/streamed_shape.h"

namespace warpjoin::streaming {

enum JoinStream : size_t { kMatch, kWrite, kSend, kArrive, kLeave, kJoinStreams };

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

class Part;

/// What all parts of a join work with.
class Shared {
 public:
  Shared(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const Shape& shape, Job& job)
      : request(request), job(job), shape(shape), rows_(engine, keys, request) {}

  const JoinRequest& request;
  Job& job;
  Shape shape;
  uint32_t cached = 0;  ///< partitions that are joined in the first round
  std::optional<SpilledTuples> build_spilled, probe_spilled;
  std::vector<std::unique_ptr<Part>> parts;
  std::optional<flow::Lanes<Room>> lanes;  // behind the parts, whose tuples and tables the streams refer to
  FedTransfer* transfer = nullptr;
  uint64_t ready = 0;  ///< parts whose build side may be matched in the first round

  /// Gives the copy home of what is spilled of a cut, the `number`-th of all of its relation.
  HostCopy spill(bool of_build, uint64_t number, const Room::Cut& cut);

  /// Gives the rows that a part has found in a wave their places, wave by wave, in each part by part: in the same order in every
  /// run. write(places) pushes their copies. Where there is no room, all that is on its way home comes first, as rows move then.
  template <class Write>
  void place_rows(Part& part, const JoinSections& found, uint64_t probe_rows, Write&& write);
  JoinRows finish() { return rows_.finish(job); }

  /// The phase that runs from now on, until another one does or it ends.
  void begin_phase(const char* name);
  void end_phase();
  /// From now on bytes that move are those of the next phase.
  void begin_bytes() { moved_before_ = moved(); }

  void count_up(uint64_t& count);
  /// A part places no more rows.
  void end_turns(Part& part) noexcept;
  /// Waits until so many have been counted; throws where the join has stopped before.
  void await(const uint64_t& count, uint64_t wanted);
  /// Ends what the parts wait for: with an error, of which the first counts, or as build tuples have no room.
  void stop(std::exception_ptr error = nullptr) noexcept;
  void start_again();
  const std::exception_ptr& error() const { return error_; }

 private:
  void await_turn(const Part& part);
  /// Throws where the join has stopped.
  template <class Done>
  void wait_until(Done&& done);
  void wait_for_rows();
  /// How much of the probe side is joined.
  double share() const;
  /// Bytes over the links.
  uint64_t moved() const;

  const char* phase_name_ = nullptr;
  std::optional<PhaseTimer> phase_;
  uint64_t moved_before_ = 0;

  GrowingRows rows_;
  std::shared_mutex places_mutex_;  // shared: what is in rows_ stays where it is
  uint64_t joined_rows_ = 0;        // of the probe side; it and rows_ are those of the part whose turn it is
  std::mutex spill_mutex_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::exception_ptr error_;
};

/// What comes to one device and is joined there. In the first round each device cuts a part of what arrives, and sends the
/// others their partitions; after it each device has rounds of its own.
class Part {
 public:
  Part(Shared& shared, Device& device, size_t index);

  Device& device() const { return device_; }
  size_t home() const { return home_; }

  // --- Before what is planned runs

  void drop_arrivals(size_t from);
  /// The next arrival of the first round.
  void plan(bool of_build, const TupleView& from);
  void close_first_round();
  /// Takes its part of the partitions that were spilled.
  void take_spilled();
  /// Rounds of those that are still to be joined, with at most `kept` build tuples each, but at least one partition. Tells the
  /// most build tuples of one.
  uint64_t plan_spilled_rounds(uint64_t kept);
  bool has_spilled() const { return spilled_.begin < spilled_.end; }
  /// Tuples of what has arrived so far, which come once more.
  uint64_t rows_taken() const;
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
  /// Whether what it stopped at was too many build tuples, and not keys that crowd.
  bool overflowed() const { return arrivals_[next_].of_build; }

 private:
  friend class Shared;
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
    uint64_t rows = 0;
    bool ready = false;
  };
  /// What is joined of an arrival, or of those of all devices, and where it lies.
  struct Wave {
    std::vector<TupleView> tuples;
    uint64_t rows = 0;
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
  PartitionRange owned() const { return shape().partitions_of({0, shared_.cached}, index_); }
  const Shape& shape() const { return shared_.shape; }
  TupleLayout layout_of(const Arrival& arrival) const { return arrival.of_build ? shape().build : shape().probe; }

  void bring();
  void give_back(Room::Slot& slot, JoinStream stream);

  Stop take_arrivals();
  const char* phase() const { return !first_round() ? "spilled" : arrivals_[next_].of_build ? "build side" : "probe side"; }
  Wave take(Arrival& arrival);
  Room::Cut& cut_arrival(Arrival& arrival, TupleLayout layout);
  void spill(bool of_build, Room::Cut& cut);
  void exchange(Room::Cut& cut, TupleLayout layout, Wave& wave);
  void send(Room::Cut& cut, TupleLayout layout, Part& owner, uint64_t wave);
  void release(const Wave& wave, JoinStream read_on);
  bool keep(const Wave& wave);
  void begin_build();
  bool prepare_build();
  uint32_t common_bits() const;
  Match& match() { return matches_[(matched_ - 1) % kMatches]; }
  void match_wave(const Wave& wave);
  void trace(const char* name, TraceClock::time_point begin, uint64_t bytes);
  JoinSections found_in_wave(uint64_t probe);
  void write_wave(const JoinSections& found, const RowPlaces& places);
  void write(JoinEmit what, uint64_t rows, const JoinOutput& home);
  void write_part(JoinEmit what, uint64_t first, uint64_t rows, const std::vector<RowColumn>& columns, const JoinOutput& home);

  Shared& shared_;
  Device& device_;
  const size_t index_;
  // What the lane's streams refer to: they end before it goes.
  Build built_, finished_;               // of the round, and of the one before, whose rows may still be written
  std::array<Match, kMatches> matches_;  // the n-th match of all is matches_[n % kMatches]

  std::vector<Arrival> arrivals_;
  size_t first_round_arrivals_ = 0;
  PartitionRange spilled_;  // that it still has to join
  size_t next_ = 0;         // arrival that is taken
  size_t brought_ = 0;      // that were told to come
  uint64_t slots_taken_ = 0, slots_given_back_ = 0, cuts_ = 0, matched_ = 0, written_ = 0, spills_ = 0, exchanged_ = 0;
  size_t to_device_ = 0, home_ = 0;  // its queues
  Stop stop_ = Stop::done;

  // Counted under Shared's lock. Copies that have been enqueued:
  uint64_t here_ = 0, parts_leaving_ = 0, spills_leaving_ = 0;
  uint64_t inboxes_read_ = 0;                       // waves that may come where another was, after its event
  std::array<uint64_t, kInboxes> delivered_ = {};   // by others, to each inbox
  uint64_t waves_placed_ = 0, waves_to_place_ = 0;  // of the probe side, since it was opened
};

template <class Write>
void Shared::place_rows(Part& part, const JoinSections& found, uint64_t probe_rows, Write&& write) {
  await_turn(part);
  joined_rows_ += probe_rows;
  {
    const std::shared_lock staying(places_mutex_);
    if (const std::optional<RowPlaces> places = rows_.add_here(found, share())) {
      count_up(part.waves_placed_);
      return write(*places);
    }
  }
  const std::unique_lock moving(places_mutex_);
  wait_for_rows();
  const RowPlaces places = rows_.add(found, share());
  count_up(part.waves_placed_);
  write(places);
}

}  // namespace warpjoin::streaming
