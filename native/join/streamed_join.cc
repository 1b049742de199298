#include "join/streamed_join.h"

#include <algorithm>
#include <array>
#include <bit>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/threads.h"
#include "flow/lanes.h"
#include "join/growing_rows.h"
#include "join/join_rows.h"
#include "join/row_writer.h"
#include "join/rows_home.h"
#include "join/spilled_tuples.h"
#include "join/streamed_shape.h"
#include "transfer/arrival.h"
#include "transfer/host_transfer.h"

namespace warpjoin {
namespace {

using streaming::kMatches;
using streaming::Room;
using streaming::Shape;

enum JoinStream : size_t { kMatch, kWrite, kArrive, kLeave, kJoinStreams };

/// Tuples of one side that come to the device together.
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
};

/// One use.
class StreamedJoin {
 public:
  StreamedJoin(Engine& engine, Device& device, const Relation& build, const Relation& probe, const JoinKeys& keys,
               const JoinRequest& request, const Shape& shape, Job& job)
      : engine_(engine),
        build_(build.views.at(0)),
        probe_(probe.views.at(0)),
        request_(request),
        shape_(shape),
        job_(job),
        rows_(engine, keys, request),
        device_(device) {
    for (Match& match : matches_) match.written = device.create_event();
    begin(shape);
    moved_before_ = moved();
  }

  JoinRows run() {
    for (plan_first_round(); !run_planned(); plan_first_round()) begin_again();
    for (uint32_t next = cached_; build_spilled_->size() || probe_spilled_->size();) {
      plan_spilled_rounds(next);
      if (run_planned()) break;
      next = arrivals_[next_].round.begin;
      shape_.crowded = true;
    }
    end_phase();
    JoinRows rows = rows_.finish(job_);
    rows.spilled_rows = build_spilled_->size() + probe_spilled_->size();
    return rows;
  }

 private:
  struct Match {
    std::vector<uint64_t> offsets;  ///< of the wave
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
  enum class Stop {
    done,
    rows_move,  ///< to where there is room for more
    crowded     ///< build tuples have no room in the device's memory
  };

  // --- What comes, and in what order

  /// The relations as they are.
  void plan_first_round() {
    const PartitionRange round{0, cached_};
    plan_waves(shape_.build, {build_}, true, round);
    plan_waves(shape_.probe, {probe_}, false, round);
    first_round_arrivals_ = arrivals_.size();
  }

  /// Takes memory for the shape, of the device and for what should be spilled. Nothing has been joined yet.
  void begin(const Shape& shape) {
    const auto work = [](const Shape& of) { return (of.spills() ? 2 : 1) * (of.build_rows + of.probe_rows); };
    job_.add_planned(work(shape) - (lanes_ ? work(shape_) : 0));
    shape_ = shape;
    cached_ = shape.cached;
    build_spilled_.reset(), probe_spilled_.reset();
    build_spilled_.emplace(*engine_.memory, shape.build, shape.spilled_rows(shape.build_rows));
    probe_spilled_.emplace(*engine_.memory, shape.probe, shape.spilled_rows(shape.probe_rows));
    take_room();
    drop_arrivals(0);
  }

  /// Keys crowd, so that build tuples had no room. Partitions that had too many are joined in rounds that go by what each has;
  /// for keys that repeat there is room from now on.
  void begin_again() {
    for (size_t a = 0; a <= next_; ++a) job_.add_planned(shape_.spills() ? arrivals_[a].rows() : 0);  // which are done once more
    const bool overflowed = arrivals_[next_].of_build;
    begin(overflowed ? shape_ : streaming::crowded_shape_for(device_, shape_));
    if (overflowed) cached_ = 0;
  }

  /// What was spilled, from partition `next` on, in rounds of as many as the device keeps the build side of: at least one,
  /// however large it is.
  void plan_spilled_rounds(uint32_t next) {
    drop_arrivals(next_);
    const uint64_t kept = shape_.crowded ? shape_.crowded_rows(lane().primitives()) : shape_.kept_rows;
    uint64_t most = 0;
    for (PartitionRange round{next, next}; round.begin < shape_.partitions(); round.begin = round.end) {
      uint64_t rows = build_spilled_->size_of({round.begin, ++round.end});
      for (uint64_t more; round.end < shape_.partitions(); rows += more, ++round.end) {
        more = build_spilled_->size_of({round.end, round.end + 1});
        if (rows + more > kept) break;
      }
      most = std::max(most, rows);
      plan_waves(shape_.build, build_spilled_->views_of(round), true, round);
      plan_waves(shape_.probe, probe_spilled_->views_of(round), false, round);
    }
    if (most > kept) shape_.keep(lane().primitives(), most);
    take_room();
  }

  void drop_arrivals(size_t from) {
    arrivals_.resize(from);
    next_ = brought_ = here_ = from;
  }

  /// One side of a round, a wave at a time: of the probe side once at least, for what the build side has alone is
  /// known after a match.
  void plan_waves(TupleLayout layout, const std::vector<TupleView>& views, bool of_build, PartitionRange round) {
    std::vector<TupleView> from;
    uint64_t room = shape_.wave_rows;
    const auto plan = [&] { arrivals_.push_back({of_build, round, std::exchange(from, {})}), room = shape_.wave_rows; };
    for (const TupleView& view : views) {
      for (uint64_t at = 0, end; at < view.size; at = end) {
        if (room == 0) plan();
        end = std::min(view.size, at + room);
        from.push_back(view.slice(layout, at, end));
        room -= end - at;
      }
    }
    if (!of_build || !from.empty()) plan();
    if (!of_build) arrivals_.back().closes_round = true;
  }

  bool first_round() const { return next_ < first_round_arrivals_; }

  /// Takes the device's memory for the shape, in place of what it had.
  void take_room() {
    lanes_.reset();  // which ends what refers to the others
    for (Match& match : matches_) match.found.reset();
    built_ = {}, finished_ = {};
    lanes_.emplace(std::array{&device_}, kJoinStreams, [&](Device& device, size_t) { return Room::take(device, shape_); });
    slots_taken_ = slots_given_back_ = cuts_ = 0;
  }
  flow::Lane<Room>& lane() { return (*lanes_)[0]; }

  // --- Transfers, and the thread beside them

  /// Lets all arrivals come that are planned. False where build tuples have no room.
  bool run_planned() {
    for (;;) {
      const Stop stop = stream();
      if (stop == Stop::rows_move) {
        places_ = rows_.add(found_, share());
      } else {
        return stop == Stop::done;
      }
    }
  }

  /// Brings what is still to come, beside a thread that matches it and sends its rows home. Where it stops before, nothing is on
  /// its way any more.
  Stop stream() {
    FedTransfer transfer(engine_, job_);
    transfer_ = &transfer;
    to_device_ = transfer.open(
        device_, HostQueue::Direction::to_device, kMostArriving,
        !shape_.spills() && copies_directly(device_, shape_.build, build_) && copies_directly(device_, shape_.probe, probe_));
    home_ = transfer.open(device_, HostQueue::Direction::to_host, kHomeParts, shape_.count_only && !shape_.spills());
    bring();
    Stop stop = Stop::done;
    std::exception_ptr error;
    // It only launches and waits, so it goes before the threads that copy.
    std::thread matching = start_thread("the waves of a join", [&] {
      try {
        stop = take_arrivals();
      } catch (...) {
        error = std::current_exception();
      }
      transfer.close(to_device_);
      transfer.close(home_);
    });
    try {
      transfer.run();
    } catch (...) {
      end_waits();
      matching.join();
      throw;
    }
    matching.join();
    if (error) std::rethrow_exception(error);
    return stop;
  }

  void count_up(uint64_t StreamedJoin::*what) {
    {
      const std::lock_guard lock(mutex_);
      ++(this->*what);
    }
    changed_.notify_one();
  }
  /// Waits until so many have been counted; throws where the transfer has ended before.
  void await(uint64_t StreamedJoin::*what, uint64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || this->*what >= count; });
    if (stopping_) throw Error(ErrorCode::aborted, "The join has ended");
    job_.check();
  }
  /// Ends what the thread waits for.
  void end_waits() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
  }

  // --- On its way to the device

  /// Tells arrivals to come for which there are slots.
  void bring() {
    for (; brought_ < arrivals_.size(); ++brought_) {
      Arrival& arrival = arrivals_[brought_];
      if (slots_taken_ == slots_given_back_ + lane().slots.size()) return;
      const TupleLayout layout = arrival.of_build ? shape_.build : shape_.probe;
      HostCopy copy;
      arrival.slot = &lane().slots[slots_taken_ % lane().slots.size()];
      if (slots_taken_++ >= lane().slots.size()) copy.after = arrival.slot->free.get();
      uint64_t at = 0;
      for (const TupleView& view : arrival.from) {
        const HostCopy one = host_copy(layout, arrival.slot->tuples.span.slice(layout, at, at + view.size), view, nullptr);
        copy.stretches.insert(copy.stretches.end(), one.stretches.begin(), one.stretches.end());
        at += view.size;
      }
      Event& here = *arrival.slot->here;
      transfer_->push(to_device_, std::move(copy), [this, &here](std::span<Event* const> done) {
        for (Event* event : done) lane().stream(kArrive).wait(*event);
        lane().stream(kArrive).record(here);
        count_up(&StreamedJoin::here_);
      });
    }
  }

  /// The slot is the next arrival's once what is on the stream by now is done.
  void give_back(Room::Slot& slot, JoinStream stream) {
    lane().stream(stream).record(*slot.free);
    ++slots_given_back_;
    bring();
  }

  /// Tuples of the host, in memory of the device.
  static TupleView in(const TupleSpan& tuples, TupleLayout layout, const Arrival& arrival) {
    if (arrival.from.empty()) return {tuples.keys, tuples.values, 0, 0};
    const TupleView& first = arrival.from.front();  // values are implied in all of them, or in none
    return {tuples.keys, layout.value_bytes && first.values ? tuples.values : nullptr, first.first_value, arrival.rows()};
  }

  // --- On the thread

  /// Takes all arrivals from the next one on, until it has to stop.
  Stop take_arrivals() {
    if (places_) {
      write_wave();
      ++next_;
    }
    for (; next_ < arrivals_.size(); ++next_) {
      begin_phase(!first_round() ? "spilled" : arrivals_[next_].of_build ? "build side" : "probe side");
      await(&StreamedJoin::here_, next_ + 1);
      if (arrivals_[next_].of_build) {
        if (!take_build(arrivals_[next_])) return Stop::crowded;
        continue;
      }
      const std::optional<TupleView> wave = take_wave(arrivals_[next_]);
      if (!wave) continue;
      if (!built_.ready && !prepare_build()) return Stop::crowded;
      match_wave(*wave);
      found_ = found_in_wave(wave->size);
      places_ = rows_.add_here(found_, share());
      if (!places_) return Stop::rows_move;
      write_wave();
    }
    places_.reset();
    return Stop::done;
  }

  void begin_phase(const char* name) {
    if (phase_name_ == name) return;
    end_phase();
    phase_.emplace(job_, phase_name_ = name);
  }
  void end_phase() {
    if (!phase_) return;
    const uint64_t before = std::exchange(moved_before_, moved());
    phase_->add(2 * (moved_before_ - before));
    phase_.reset();
  }
  /// Bytes over the link.
  uint64_t moved() const { return device_.traffic().to_device + device_.traffic().to_host; }

  /// What of it is joined now stays, and the rest leaves. False where more stay than there is room for.
  bool take_build(Arrival& arrival) {
    Stream& stream = lane().stream(kMatch);
    if (!shape_.spills() || !first_round()) {
      stream.wait(*arrival.slot->here);
      keep(in(arrival.slot->tuples.span, shape_.build, arrival));
      give_back(*arrival.slot, kMatch);
      return true;
    }
    Room::Cut& cut = cut_arrival(arrival, shape_.build);
    if (built_.rows + cut.offsets[cached_] > shape_.kept_rows) return false;
    if (cached_) keep(cut.tuples.span.slice(shape_.build, 0, cut.offsets[cached_]).view());
    spill(*build_spilled_, cut, shape_.build);
    return true;
  }

  /// Adds tuples to the round's build side.
  void keep(const TupleView& tuples) {
    begin_build();
    const std::array<uint64_t, 2>& offsets = built_.offsets.emplace_back(std::array<uint64_t, 2>{0, tuples.size});
    built_.table->add({shape_.build, {tuples}, {offsets.data()}}, job_, lane().stream(kMatch));
    built_.rows += tuples.size;
  }

  void begin_build() {
    if (built_.table) return;
    for (const Match& match : matches_) lane().stream(kMatch).wait(*match.written);  // what that of the round before is read for
    built_.table = lane().primitives().hash_build(shape_.build_plan(), lane().built.data());
  }

  /// Groups an arrival by partition.
  Room::Cut& cut_arrival(Arrival& arrival, TupleLayout layout) {
    Room::Cut& cut = lane().cuts[cuts_++ % lane().cuts.size()];
    await(&StreamedJoin::spills_leaving_, cut.spills);
    Stream& stream = lane().stream(kMatch);
    const TraceClock::time_point begin = TraceClock::now();
    stream.wait(*cut.left);
    stream.wait(*cut.written);
    stream.wait(*arrival.slot->here);
    cut.offsets.assign(shape_.partitions() + 1, 0);
    lane().primitives().partition(layout, in(arrival.slot->tuples.span, layout, arrival), shape_.digit(), cut.tuples.span,
                                  cut.offsets.data(), lane().cut_scratch.data(), job_, stream);
    stream.record(*cut.ready);
    give_back(*arrival.slot, kMatch);
    stream.synchronize();
    trace("cut", begin, arrival.rows() * layout.tuple_bytes());
    job_.add_done(arrival.rows());
    return cut;
  }

  /// Sends home what is not joined now.
  void spill(SpilledTuples& spilled, Room::Cut& cut, TupleLayout layout) {
    const TupleView tuples = cut.tuples.span.slice(layout, cut.offsets[cached_], cut.offsets.back()).view();
    if (tuples.size == 0) return;
    HostCopy copy = spilled.add({cached_, shape_.partitions()}, cut.offsets, tuples);
    copy.after = cut.ready.get();
    cut.spills = ++spills_;
    transfer_->push(home_, std::move(copy), [this, &cut](std::span<Event* const> done) {
      for (Event* event : done) lane().stream(kLeave).wait(*event);
      lane().stream(kLeave).record(*cut.left);
      count_up(&StreamedJoin::spills_leaving_);
    });
  }

  /// What of it is joined now, if anything may be.
  std::optional<TupleView> take_wave(Arrival& arrival) {
    cut_ = nullptr;
    if (!shape_.spills() || !first_round()) {
      lane().stream(kMatch).wait(*arrival.slot->here);
      return in(arrival.slot->tuples.span, shape_.probe, arrival);
    }
    cut_ = &cut_arrival(arrival, shape_.probe);
    spill(*probe_spilled_, *cut_, shape_.probe);
    if (cached_ == 0) return {};
    return cut_->tuples.span.slice(shape_.probe, 0, cut_->offsets[cached_]).view();
  }

  /// Of the mixed keys of a round's tuples: topmost bits that all have.
  uint32_t common_bits() const {
    const PartitionRange round = arrivals_[next_].round;
    const uint32_t others = round.begin < round.end ? round.begin ^ (round.end - 1) : 0;
    return shape_.bits - static_cast<uint32_t>(std::bit_width(others));
  }

  Match& match() { return matches_[(matched_ - 1) % kMatches]; }

  /// The host knows what was found when this returns.
  void match_wave(const TupleView& wave) {
    Match& own = matches_[matched_++ % kMatches];
    own.written->synchronize();  // the rows that refer to this match
    own.found.reset();
    own.offsets = {0, wave.size};
    const TraceClock::time_point begin = TraceClock::now();
    own.found = lane().primitives().hash_probe(*built_.table, {shape_.probe, {wave}, {own.offsets.data()}}, common_bits(),
                                               lane().scratch[(matched_ - 1) % lane().scratch.size()].data(), job_,
                                               lane().stream(kMatch));
    lane().stream(kMatch).synchronize();
    trace("match", begin, wave.size * shape_.probe.tuple_bytes());
    joined_rows_ += wave.size;
    job_.add_done(wave.size);
  }

  /// Of kernels that have ended.
  void trace(const char* name, TraceClock::time_point begin, uint64_t bytes) {
    if (!job_.trace()) return;
    job_.trace()->add({name, TraceEvent::Track::kernels, device_.info().ordinal, kMatch, begin, TraceClock::now(), bytes});
  }

  /// False where keys crowd, and the device has no more memory for that.
  bool prepare_build() {
    for (Match& match : matches_) {  // of the round before
      match.written->synchronize();
      match.found.reset();
    }
    finished_ = {};
    begin_build();
    Stream& stream = lane().stream(kMatch);
    const TraceClock::time_point begin = TraceClock::now();
    built_.table->finish(job_, stream);
    stream.synchronize();
    trace("build", begin, built_.rows * shape_.build.tuple_bytes());
    if (const size_t more = built_.table->more_bytes()) {
      StackAllocator& memory = lane().memory();
      const size_t beside = memory.resident_bytes() + memory.reserved_bytes() + memory.resident_size(more);
      if (more <= memory.room_bytes()) {
        built_.crowd = memory.allocate(more);
      } else if (beside <= memory.limit_bytes() && memory.resident_size(more) <= memory.free_bytes()) {
        built_.crowd = memory.allocate_resident(more);
      } else {
        return false;
      }
    }
    built_.table->go_on(built_.crowd.data(), job_, stream);
    built_.ready = true;
    job_.add_done(built_.rows);
    return true;
  }

  /// How much of the probe side is joined.
  double share() const {
    if (joined_rows_ == 0) return 1;  // and has found nothing
    return static_cast<double>(joined_rows_) / static_cast<double>(shape_.probe_rows);
  }

  /// What the wave adds to the result: build tuples alone with the last one of a round, which knows what all have found.
  JoinSections found_in_wave(uint64_t probe) {
    const bool last = arrivals_[next_].closes_round;
    JoinTally tally = match().found->tally();
    if (!last) tally.build_matched = 0;
    const uint64_t build = last ? built_.rows : 0;
    return tuple_sections(request_.kind, request_.build_left ? build : probe, request_.build_left ? probe : build,
                          counts_of(tally, request_));
  }

  /// Has the wave's rows written and sent home.
  void write_wave() {
    write_rows(request_, found_, *places_, [this](JoinEmit what, const JoinOutput& home) {
      const bool of_build = what == JoinEmit::build_matched || what == JoinEmit::build_unmatched;
      const uint64_t alone = of_build == request_.build_left ? found_.left : found_.right;
      write(what, what == JoinEmit::pairs ? found_.pairs : alone, home);
    });
    lane().stream(kWrite).record(*match().written);
    if (arrivals_[next_].closes_round) finished_ = std::exchange(built_, {});
    if (cut_) {
      lane().stream(kWrite).record(*cut_->written);
    } else {
      give_back(*arrivals_[next_].slot, kWrite);
    }
  }

  void write(JoinEmit what, uint64_t rows, const JoinOutput& home) {
    const std::vector<RowColumn> columns = columns_in(home, shape_.build, shape_.probe);
    const uint64_t row_bytes = row_bytes_of(columns);
    const uint64_t most = (lane().parts[0].rows.size() - columns.size() * StackAllocator::kAlignment) / row_bytes;
    for (uint64_t first = 0; first < rows; first += most) {
      write_part(what, first, std::min(most, rows - first), columns, home);
    }
  }

  void write_part(JoinEmit what, uint64_t first, uint64_t rows, const std::vector<RowColumn>& columns, const JoinOutput& home) {
    Room::Part& part = lane().parts[written_ % kHomeParts];
    if (written_ >= kHomeParts) await(&StreamedJoin::parts_leaving_, written_ - kHomeParts + 1);
    ++written_;
    Stream& stream = lane().stream(kWrite);
    stream.wait(*part.left);
    JoinOutput out;
    HostCopy copy{{}, part.written.get()};
    char* at = part.rows.as<char>();
    for (const RowColumn& column : columns) {
      out.*column.data = at;
      copy.stretches.push_back({static_cast<char*>(home.*column.data) + first * column.width, at, rows * column.width});
      at += StackAllocator::aligned(rows * column.width);
    }
    lane().primitives().hash_emit(*match().found, what, first, rows, out, job_, stream);
    stream.record(*part.written);
    transfer_->push(home_, std::move(copy), [this, &part](std::span<Event* const> done) {
      for (Event* event : done) lane().stream(kLeave).wait(*event);
      lane().stream(kLeave).record(*part.left);
      count_up(&StreamedJoin::parts_leaving_);
    });
  }

  static constexpr size_t kMostArriving = streaming::kSlots + 1;

  Engine& engine_;
  const TupleView build_, probe_;
  const JoinRequest& request_;
  Shape shape_;
  Job& job_;
  GrowingRows rows_;
  std::optional<SpilledTuples> build_spilled_, probe_spilled_;
  uint32_t cached_ = 0;  // partitions that are joined in the first round
  Device& device_;
  // What the lane's streams refer to: they end before it goes.
  Build built_, finished_;               // of the round, and of the one before, whose rows may still be written
  std::array<Match, kMatches> matches_;  // the n-th match of all is matches_[n % kMatches]
  std::optional<flow::Lanes<Room>> lanes_;

  std::vector<Arrival> arrivals_;
  size_t first_round_arrivals_ = 0;
  size_t next_ = 0;     // arrival that is taken
  size_t brought_ = 0;  // that were told to come
  uint64_t slots_taken_ = 0, slots_given_back_ = 0, cuts_ = 0, matched_ = 0, written_ = 0, spills_ = 0;
  Room::Cut* cut_ = nullptr;         // that has the wave's tuples; null: its slot has
  uint64_t joined_rows_ = 0;         // of the probe side
  JoinSections found_;               // in the wave
  std::optional<RowPlaces> places_;  // of its rows
  const char* phase_name_ = nullptr;
  std::optional<PhaseTimer> phase_;
  uint64_t moved_before_ = 0;  // when the phase began, or before what came as the first one was about to
  FedTransfer* transfer_ = nullptr;
  size_t to_device_ = 0, home_ = 0;  // its queues

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t here_ = 0, parts_leaving_ = 0, spills_leaving_ = 0;  // copies that have been enqueued
  bool stopping_ = false;
};

}  // namespace

bool can_stream(const Device& device, size_t devices) { return devices == 1 && !device.addresses_host_memory(); }

JoinRows streamed_join(Engine& engine, Device& device, const Relation& build, const Relation& probe, const JoinKeys& keys,
                       const JoinRequest& request, uint32_t rounds, bool force_waves, Job& job) {
  Shape whole(build.layout, build.size(), probe.layout, probe.size(), request);
  whole.forced = force_waves;
  const Shape shape = streaming::shape_for(device, whole, rounds);
  return StreamedJoin(engine, device, build, probe, keys, request, shape, job).run();
}

}  // namespace warpjoin
