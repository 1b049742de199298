// What the parts of a streamed join share, and how they wait for each other. Internal to streamed_join.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "flow/lanes.h"
#include "flow/spilled_tuples.h"
#include "join/growing_rows.h"
#include "join/row_writer.h"
#include "join/streamed_shape.h"

namespace warpjoin::streaming {

class Part;

/// Whose turn it is to place rows: wave by wave, in each part by part, so that rows are in the same order in every run. Under a
/// lock.
class Turns {
 public:
  void begin(size_t part, uint64_t waves);
  bool has(size_t part) const;
  void next(size_t part) { ++parts_[part].placed; }
  void end(size_t part) { parts_[part].waves = parts_[part].placed; }

 private:
  struct Count {
    uint64_t placed = 0, waves = 0;
  };
  std::vector<Count> parts_;
};

/// What the parts of a join share, and how they wait for each other.
class Coordinator {
 public:
  Coordinator(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const Shape& shape, Job& job)
      : request(request), job(job), shape(shape), rows_(engine, keys, request) {}
  ~Coordinator();

  JoinRequest request;
  Job& job;
  Shape shape;
  OfSides<std::unique_ptr<SpilledTuples>> spilled;
  std::vector<std::unique_ptr<Part>> parts;
  std::optional<flow::Lanes<Room>> lanes;  // behind the parts, whose tuples and tables the streams refer to
  FedTransfer* transfer = nullptr;
  uint64_t ready = 0;  ///< parts whose build side may be matched in the first round

  /// Each side takes the other one's part from now on.
  void swap_sides();
  /// Gives the copy home of what is spilled of a cut, the `number`-th of all of its relation.
  HostCopy spill(bool of_build, uint64_t number, const Room::Cut& cut);

  /// A part is to place the rows of so many waves. Before the parts run.
  void begin_turns(size_t part, uint64_t waves) { turns_.begin(part, waves); }
  /// Gives the rows that a part has found in a wave their places, when it is its turn. write(places) pushes their copies. Where
  /// there is no room, all that is on its way home comes first, as rows move then.
  template <class Write>
  void place_rows(size_t part, const JoinSections& found, uint64_t probe_rows, Write&& write);
  /// A part places no more rows.
  void end_turns(size_t part) noexcept;
  JoinRows finish() { return rows_.finish(job); }

  /// The phase that runs from now on, until another one does or it ends.
  void begin_phase(const char* name);
  void end_phase();
  /// From now on bytes that move are those of the next phase.
  void begin_bytes() { moved_before_ = moved(); }

  void count_up(uint64_t& count);
  bool reached(const uint64_t& count, uint64_t wanted);
  /// Waits until so many have been counted; throws where the join has stopped before.
  void await(const uint64_t& count, uint64_t wanted);
  /// Ends what the parts wait for: with an error, of which the first counts, or as build tuples have no room.
  void stop(std::exception_ptr error = nullptr) noexcept;
  void start_again();
  const std::exception_ptr& error() const { return error_; }

 private:
  void end_turn(size_t part);
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

  Turns turns_;
  GrowingRows rows_;
  std::shared_mutex places_mutex_;  // shared: what is in rows_ stays where it is
  uint64_t joined_rows_ = 0;        // of the probe side; it and rows_ are those of the part whose turn it is

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::exception_ptr error_;
};

template <class Write>
void Coordinator::place_rows(size_t part, const JoinSections& found, uint64_t probe_rows, Write&& write) {
  wait_until([&] { return turns_.has(part); });
  joined_rows_ += probe_rows;
  {
    const std::shared_lock staying(places_mutex_);
    if (const std::optional<RowPlaces> places = rows_.add_here(found, share())) {
      end_turn(part);
      return write(*places);
    }
  }
  const std::unique_lock moving(places_mutex_);
  wait_for_rows();
  const RowPlaces places = rows_.add(found, share());
  end_turn(part);
  write(places);
}

template <class Done>
void Coordinator::wait_until(Done&& done) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || done(); });
  if (stopped_) throw Error(ErrorCode::aborted, "The join has ended");
  job.check();
}

}  // namespace warpjoin::streaming
