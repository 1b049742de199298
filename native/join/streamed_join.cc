#include "join/streamed_join.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/threads.h"
#include "flow/budget.h"
#include "flow/lanes.h"
#include "join/growing_rows.h"
#include "join/join_rows.h"
#include "join/row_writer.h"
#include "transfer/arrival.h"
#include "transfer/host_transfer.h"

namespace warpjoin {
namespace {

/// Waves that arrive, are matched or leave at a time.
constexpr size_t kSlots = 3;
/// While a wave is matched, rows of the one before are written and go home.
constexpr size_t kMatches = 2;
/// A match reads the whole build side, so that much smaller waves cost more than they hide.
constexpr size_t kWavesOfBuild = 12;
constexpr size_t kLeastWaveBytes = size_t{256} << 20, kMostWaveBytes = size_t{1} << 30;
/// The waves of a join that is to have some, however small it is.
constexpr uint64_t kForcedWaves = 8;
/// Of rows on their way home. Plans don't count on the most.
constexpr size_t kLeastStagedBytes = size_t{1} << 20, kPlannedStagedBytes = size_t{64} << 20;
constexpr size_t kMostStagedBytes = kHomeParts * kHomePartBytes;

enum JoinStream : size_t { kMatch, kWrite, kArrive, kLeave, kJoinStreams };

/// How a join is cut.
struct Shape {
  TupleLayout build, probe;
  uint64_t build_rows, probe_rows, wave_rows;
  bool count_only;
  bool shares_build;  ///< the device prepares the build side once
  bool may_have_waves;

  /// With the whole probe side as one wave.
  Shape(Device& device, TupleLayout build_layout, uint64_t build_size, TupleLayout probe_layout, uint64_t probe_size,
        const JoinRequest& request)
      : build(build_layout),
        probe(probe_layout),
        build_rows(build_size),
        probe_rows(probe_size),
        wave_rows(probe_size),
        count_only(request.count_only),
        shares_build(device.primitives().shares_builds()),
        // Only a match that knows what those before it found can tell which build tuples match.
        may_have_waves(shares_build || !asks(request, request.build_left)) {}

  /// In waves, if it may come in some.
  Shape in_waves(bool forced) const {
    Shape shape = *this;
    const size_t bytes = std::clamp(build_rows * build.tuple_bytes() / kWavesOfBuild, kLeastWaveBytes, kMostWaveBytes);
    const uint64_t rows = forced ? probe_rows / kForcedWaves + 1 : bytes / probe.tuple_bytes();
    if (may_have_waves) shape.wave_rows = std::min(probe_rows, rows);
    return shape;
  }

  /// At least one: what the build side has alone is known after a match.
  uint64_t waves() const { return wave_rows ? (probe_rows + wave_rows - 1) / wave_rows : 1; }
  uint64_t wave_begin(uint64_t wave) const { return std::min(probe_rows, wave * wave_rows); }
  size_t at_a_time(size_t most) const { return static_cast<size_t>(std::min<uint64_t>(most, waves())); }
  size_t planned_staged_bytes() const {
    if (count_only) return 0;
    return std::clamp(OwnedTuples::bytes(build, build_rows) + OwnedTuples::bytes(probe, probe_rows), kLeastStagedBytes,
                      kPlannedStagedBytes);
  }
};

/// What a device keeps of a join.
struct Room {
  struct Slot {
    OwnedTuples tuples;  ///< of a wave, until its last rows are written
    std::unique_ptr<Event> here{}, free{};
  };
  struct Part {
    Buffer rows;
    std::unique_ptr<Event> written{}, left{};
  };
  OwnedTuples build;
  Buffer built;                 // scratch of the build side
  std::vector<Buffer> scratch;  // of matches
  std::vector<Slot> slots;
  std::array<Part, kHomeParts> parts;  // of rows on their way home

  Room(StackAllocator& memory, Primitives& primitives, const Shape& shape, size_t staged_bytes)
      : build(memory, shape.build, shape.build_rows) {
    if (shape.shares_build)
      built = allocate(memory, primitives.hash_build_scratch_bytes(shape.build, shape.build_rows, shape.count_only));
    const size_t match_bytes = primitives.hash_match_scratch_bytes(shape.build, shape.build_rows, shape.probe, shape.wave_rows, 1,
                                                                   shape.count_only, shape.shares_build);
    for (size_t m = 0; m < shape.at_a_time(kMatches); ++m) scratch.push_back(allocate(memory, match_bytes));
    for (size_t s = 0; s < shape.at_a_time(kSlots); ++s) slots.push_back({OwnedTuples(memory, shape.probe, shape.wave_rows)});
    for (Part& part : parts) part.rows = allocate(memory, staged_bytes / kHomeParts);
  }

  static size_t planned_bytes(Primitives& primitives, const Shape& shape) {
    return flow::counted_bytes(
        [&](StackAllocator& memory) { flow::count<Room>(memory, primitives, shape, shape.planned_staged_bytes()); });
  }
};

/// What is written of each row.
struct Column {
  void* JoinOutput::*data;
  uint8_t width;
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
        build_here_(device.create_event()),
        lanes_(std::array{&device}, kJoinStreams, [&](Device& on, size_t) { return make_room(on); }),
        lane_(lanes_[0]) {}

  JoinRows run() {
    const PhaseTimer timer(job_, "stream",
                           2 * (shape_.build_rows * shape_.build.tuple_bytes() + shape_.probe_rows * shape_.probe.tuple_bytes()));
    while (!stream()) places_ = rows_.add(found_, share());
    return rows_.finish(job_);
  }

 private:
  struct Match {
    std::vector<uint64_t> offsets;
    PartitionedTuples tuples;  ///< of the wave
    std::unique_ptr<HashMatch> found;
  };

  Room make_room(Device& device) const {
    StackAllocator& memory = device.memory();
    const size_t planned = shape_.planned_staged_bytes(), needed = Room::planned_bytes(device.primitives(), shape_);
    memory.reserve(needed);
    constexpr size_t kStep = kHomeParts * StackAllocator::kAlignment;
    const size_t more = (memory.room_bytes() - needed) / kStep * kStep;
    Room room(memory, device.primitives(), shape_, planned ? std::clamp(planned + more, planned, kMostStagedBytes) : 0);
    for (Room::Slot& slot : room.slots) slot.here = device.create_event(), slot.free = device.create_event();
    for (Room::Part& part : room.parts) part.written = device.create_event(), part.left = device.create_event();
    return room;
  }

  /// Brings what is still to come, beside a thread that matches it and sends its rows home. False where it ends before, as rows
  /// have to move for those of the wave: nothing is on its way to them then.
  bool stream() {
    FedTransfer transfer(engine_, job_);
    Device& device = *lane_.device;
    transfer_ = &transfer;
    there_ = transfer.open(device, HostQueue::Direction::to_device, kSlots + 1,
                           copies_directly(device, shape_.build, build_) && copies_directly(device, shape_.probe, probe_));
    home_ = transfer.open(device, HostQueue::Direction::to_host, kHomeParts, shape_.count_only);
    if (brought_ == 0) bring_all();
    bool done = false;
    std::exception_ptr error;
    // It only launches and waits, so it goes before the threads that copy.
    std::thread matching = start_thread("the waves of a join", [&] {
      try {
        done = match_waves();
      } catch (...) {
        error = std::current_exception();
      }
      transfer.close(there_);
      transfer.close(home_);
    });
    try {
      transfer.run();
    } catch (...) {
      stop();
      matching.join();
      throw;
    }
    matching.join();
    if (error) std::rethrow_exception(error);
    return done;
  }

  // --- On its way to the device

  Room::Slot& slot(uint64_t wave) const { return lane_.slots[wave % lane_.slots.size()]; }
  TupleView wave(uint64_t w) const { return probe_.slice(shape_.probe, shape_.wave_begin(w), shape_.wave_begin(w + 1)); }

  void bring_all() {
    transfer_->push(there_, host_copy(shape_.build, lane_.build.span, build_, nullptr), [this](std::span<Event* const> done) {
      arrived(done, *build_here_);
      count_up(&StreamedJoin::builds_here_);
    });
    for (size_t s = 0; s < lane_.slots.size(); ++s) bring_wave();
  }

  void bring_wave() {
    const uint64_t w = brought_++;
    Room::Slot& to = slot(w);
    transfer_->push(there_, host_copy(shape_.probe, to.tuples.span, wave(w), w < lane_.slots.size() ? nullptr : to.free.get()),
                    [this, &to](std::span<Event* const> done) {
                      arrived(done, *to.here);
                      count_up(&StreamedJoin::waves_here_);
                    });
  }

  void arrived(std::span<Event* const> done, Event& here) {
    for (Event* event : done) lane_.stream(kArrive).wait(*event);
    lane_.stream(kArrive).record(here);
  }

  /// Tuples of the host where they are on the device.
  static TupleView there(TupleLayout layout, const OwnedTuples& tuples, const TupleView& from) {
    return {tuples.keys.data(), layout.value_bytes && from.values ? tuples.values.data() : nullptr, from.first_value, from.size};
  }

  // --- Between the thread and the callbacks of copies

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
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
  }

  // --- On the thread

  /// Matches and writes all waves from the current one on. False where the rows of one have no room.
  bool match_waves() {
    if (places_) {
      write_wave();
      ++wave_;
    } else {
      prepare_build();
    }
    for (; wave_ < shape_.waves(); ++wave_) {
      match_wave();
      found_ = found_in_wave();
      places_ = rows_.add_here(found_, share());
      if (!places_) return false;
      write_wave();
    }
    return true;
  }

  void prepare_build() {
    await(&StreamedJoin::builds_here_, 1);
    Stream& stream = lane_.stream(kMatch);
    stream.wait(*build_here_);
    build_offsets_ = {0, shape_.build_rows};
    build_tuples_ = {shape_.build, {there(shape_.build, lane_.build, build_)}, {build_offsets_.data()}};
    if (shape_.shares_build) {
      built_ = lane_.primitives().hash_build(build_tuples_, shape_.count_only, lane_.built.data(), job_, stream);
      complete(*built_);
    }
    job_.add_done(shape_.build_rows);
  }

  Match& match() { return matches_[wave_ % kMatches]; }

  /// The host knows what was found when this returns.
  void match_wave() {
    await(&StreamedJoin::waves_here_, wave_ + 1);
    if (wave_ >= kMatches) slot(wave_ - kMatches).free->synchronize();  // rows are written that refer to this match
    Match& own = match();
    own.found.reset();
    const TupleView from = wave(wave_);
    own.offsets = {0, from.size};
    own.tuples = {shape_.probe, {there(shape_.probe, slot(wave_).tuples, from)}, {own.offsets.data()}};
    Stream& stream = lane_.stream(kMatch);
    stream.wait(*slot(wave_).here);
    own.found = lane_.primitives().hash_match(build_tuples_, own.tuples, 1, 0, shape_.count_only,
                                              lane_.scratch[wave_ % kMatches].data(), job_, stream, built_.get());
    complete(*own.found);
    job_.add_done(from.size);
  }

  void complete(HashMatch& match) {
    Stream& stream = lane_.stream(kMatch);
    do {
      stream.synchronize();
    } while (lane_.primitives().hash_match_goes_on(match, job_, stream));
  }

  /// How much of the probe side is matched.
  double share() const {
    if (shape_.probe_rows == 0) return 1;
    return static_cast<double>(shape_.wave_begin(wave_ + 1)) / static_cast<double>(shape_.probe_rows);
  }

  /// What the wave adds to the result: build tuples alone with the last one, which knows what all have found.
  JoinSections found_in_wave() {
    const bool last = wave_ + 1 == shape_.waves();
    JoinTally tally = match().found->tally();
    if (!last) tally.build_matched = 0;
    const uint64_t build = last ? shape_.build_rows : 0, probe = wave(wave_).size;
    return tuple_sections(request_.kind, request_.build_left ? build : probe, request_.build_left ? probe : build,
                          counts_of(tally, request_));
  }

  /// Has the wave's rows written and sent home; then its slot is the next one's.
  void write_wave() {
    write_rows(request_, found_, *places_, [this](JoinEmit what, const JoinOutput& home) {
      const bool of_build = what == JoinEmit::build_matched || what == JoinEmit::build_unmatched;
      const uint64_t alone = of_build == request_.build_left ? found_.left : found_.right;
      write(what, what == JoinEmit::pairs ? found_.pairs : alone, home);
    });
    lane_.stream(kWrite).record(*slot(wave_).free);
    if (brought_ < shape_.waves()) bring_wave();
  }

  void write(JoinEmit what, uint64_t rows, const JoinOutput& home) {
    std::vector<Column> columns{{&JoinOutput::keys, shape_.build.key_bytes},
                                {&JoinOutput::build_values, shape_.build.value_bytes},
                                {&JoinOutput::probe_values, shape_.probe.value_bytes}};
    std::erase_if(columns, [&](const Column& column) { return !(home.*column.data); });
    uint64_t row_bytes = 0;
    for (const Column& column : columns) row_bytes += column.width;
    const uint64_t most = (lane_.parts[0].rows.size() - columns.size() * StackAllocator::kAlignment) / row_bytes;
    for (uint64_t first = 0; first < rows; first += most) {
      write_part(what, first, std::min(most, rows - first), columns, home);
    }
  }

  void write_part(JoinEmit what, uint64_t first, uint64_t rows, const std::vector<Column>& columns, const JoinOutput& home) {
    Room::Part& part = lane_.parts[written_ % kHomeParts];
    if (written_ >= kHomeParts) await(&StreamedJoin::parts_leaving_, written_ - kHomeParts + 1);
    ++written_;
    Stream& stream = lane_.stream(kWrite);
    stream.wait(*part.left);
    JoinOutput out;
    HostCopy copy{{}, part.written.get()};
    char* at = part.rows.as<char>();
    for (const Column& column : columns) {
      out.*column.data = at;
      copy.stretches.push_back({static_cast<char*>(home.*column.data) + first * column.width, at, rows * column.width});
      at += StackAllocator::aligned(rows * column.width);
    }
    lane_.primitives().hash_emit(*match().found, what, first, rows, out, job_, stream);
    stream.record(*part.written);
    transfer_->push(home_, std::move(copy), [this, &part](std::span<Event* const> done) {
      for (Event* event : done) lane_.stream(kLeave).wait(*event);
      lane_.stream(kLeave).record(*part.left);
      count_up(&StreamedJoin::parts_leaving_);
    });
  }

  Engine& engine_;
  const TupleView build_, probe_;
  const JoinRequest& request_;
  const Shape shape_;
  Job& job_;
  GrowingRows rows_;
  // What the lane's streams refer to: they end before it goes.
  std::vector<uint64_t> build_offsets_;
  PartitionedTuples build_tuples_;
  std::unique_ptr<HashMatch> built_;
  std::array<Match, kMatches> matches_;  // wave w has matches_[w % kMatches]
  const std::unique_ptr<Event> build_here_;
  flow::Lanes<Room> lanes_;
  flow::Lane<Room>& lane_;

  FedTransfer* transfer_ = nullptr;
  size_t there_ = 0, home_ = 0;      // its queues
  uint64_t wave_ = 0;                // that is matched and written
  uint64_t brought_ = 0;             // waves that were told to come
  uint64_t written_ = 0;             // parts
  JoinSections found_;               // in the wave
  std::optional<RowPlaces> places_;  // of its rows

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t builds_here_ = 0, waves_here_ = 0, parts_leaving_ = 0;  // copies that have been enqueued
  bool stopping_ = false;
};

}  // namespace

bool can_stream(const Device& device, size_t devices, uint32_t rounds) {
  return devices == 1 && rounds == 1 && !device.addresses_host_memory();
}

JoinRows streamed_join(Engine& engine, Device& device, const Relation& build, const Relation& probe, const JoinKeys& keys,
                       const JoinRequest& request, bool force_waves, Job& job) {
  const Shape whole(device, build.layout, build.size(), probe.layout, probe.size(), request);
  const Shape waves = whole.in_waves(force_waves);
  const StackAllocator& memory = device.memory();
  const size_t wanted = Room::planned_bytes(device.primitives(), waves);
  const bool fits =
      wanted + memory.resident_bytes() <= memory.limit_bytes() && wanted <= memory.reserved_bytes() + memory.free_bytes();
  const bool in_waves = fits || wanted <= Room::planned_bytes(device.primitives(), whole);
  return StreamedJoin(engine, device, build, probe, keys, request, in_waves ? waves : whole, job).run();
}

size_t streamed_join_bytes(Device& device, TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows,
                           const JoinRequest& request) {
  const Shape whole(device, build, build_rows, probe, probe_rows, request);
  return std::min(Room::planned_bytes(device.primitives(), whole),
                  Room::planned_bytes(device.primitives(), whole.in_waves(false)));
}

}  // namespace warpjoin
