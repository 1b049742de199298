#include "join/streamed_part.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "transfer/arrival.h"
#include "transfer/host_transfer.h"

namespace warpjoin::streaming {

// --- What comes, and in what order

TupleView Arrival::in_slot(TupleLayout layout) const {
  const TupleSpan& tuples = slot->tuples.span;
  if (from.empty()) return {tuples.keys, tuples.values, 0, 0};
  const TupleView& first = from.front();  // values are implied in all of them, or in none
  return {tuples.keys, layout.value_bytes && first.values ? tuples.values : nullptr, first.first_value, rows()};
}

Part::Part(Coordinator& shared, Device& device, size_t index) : shared_(shared), device_(device), index_(index) {
  for (Match& match : matches_) match.written = device.create_event();
}

void Part::drop_arrivals(size_t from) {
  arrivals_.resize(from);
  next_ = brought_ = here_ = from;
  if (from == 0) cut_ = sent_ = done_ = joined_rows_ = split_rows_ = 0;
}

void Part::plan(bool of_build, const TupleView& from) {
  Arrival& arrival = arrivals_.emplace_back(Arrival{of_build, shape().routes.all_of(index_), {}});
  if (from.size) arrival.from.push_back(from);
  first_round_arrivals_ = arrivals_.size();
}

void Part::close_first_round() { arrivals_.back().closes_round = true; }

void Part::take_spilled() { spilled_ = shape().spilled().share(shape().devices, index_); }

uint64_t Part::room_of(uint32_t partition) const {
  const uint64_t rows = shared_.spilled[kBuild]->size_of({partition, partition + 1});
  return shape().room_of_partition(device_.primitives(), partition, rows);
}

uint64_t Part::most_in_partition() const {
  uint64_t most = 0;
  for (uint32_t p = spilled_.begin; p < spilled_.end; ++p) most = std::max(most, room_of(p));
  return most;
}

bool Part::plan_spilled_rounds(uint64_t kept, bool sets_aside) {
  drop_arrivals(next_);
  std::erase_if(set_aside_, [&](uint32_t partition) { return partition >= spilled_.begin; });
  for (PartitionRange round{spilled_.begin, spilled_.begin}; round.begin < spilled_.end; round.begin = round.end) {
    uint64_t rows = room_of(round.end++);
    if (sets_aside && rows > kept) {
      set_aside_.push_back(round.begin);
      continue;
    }
    for (uint64_t more; round.end < spilled_.end; rows += more, ++round.end) {
      more = room_of(round.end);
      if (rows + more > kept) break;
    }
    plan_waves(shape().build().layout, shared_.spilled[kBuild]->views_of(round), true, round);
    plan_waves(shape().probe().layout, shared_.spilled[kProbe]->views_of(round), false, round);
  }
  return next_ < arrivals_.size();
}

uint64_t Part::most_set_aside() const {
  uint64_t most = 0;
  for (const uint32_t p : set_aside_) most = std::max(most, shared_.spilled[kBuild]->size_of({p, p + 1}));
  return most;
}

void Part::plan_blocks(uint64_t kept) {
  drop_arrivals(next_);
  for (const uint32_t p : set_aside_) {
    const PartitionRange round{p, p + 1};
    const std::vector<TupleView> build = shared_.spilled[kBuild]->views_of(round),
                                 probe = shared_.spilled[kProbe]->views_of(round);
    const uint64_t build_rows = shared_.spilled[kBuild]->size_of(round);
    // A side that has none here meets the other one once, too.
    for (uint64_t at = 0; at == 0 || at < build_rows; at += std::max<uint64_t>(kept, 1)) {
      if (at > 0) shared_.job.add_planned(shared_.spilled[kProbe]->size_of(round));
      plan_waves(shape().build().layout, cut(shape().build().layout, build, at, kept), true, round);
      plan_waves(shape().probe().layout, probe, false, round);
    }
  }
}

/// One side of a round, a wave at a time: of the probe side once at least, for what the build side has alone is known after a
/// match.
void Part::plan_waves(TupleLayout layout, const std::vector<TupleView>& views, bool of_build, PartitionRange round) {
  std::vector<TupleView> from;
  uint64_t room = shape().wave_rows;
  const auto plan = [&] { arrivals_.push_back({of_build, round, std::exchange(from, {})}), room = shape().wave_rows; };
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

void Part::drop_lane() {
  for (Match& match : matches_) match.found.reset();
  built_ = {}, finished_ = {};
  slots_taken_ = slots_given_back_ = inboxes_read_ = 0;
  delivered_ = {};
}

// --- On its way to the device

void Part::open(const TupleView& build, const TupleView& probe) {
  const bool spills = shape().spills();
  const bool direct = !spills && copies_directly(device_, shape().build().layout, build) &&
                      copies_directly(device_, shape().probe().layout, probe);
  to_device_ = shared_.transfer->open(device_, HostQueue::Direction::to_device, kSlots + 1, direct);
  home_ = shared_.transfer->open(device_, HostQueue::Direction::to_host, kHomeParts, shape().count_only && !spills);
  stop_ = Stop::done;
  const bool places = !first_round() || shape().caches();
  uint64_t waves = 0;
  for (size_t a = next_; a < arrivals_.size(); ++a) waves += places && !arrivals_[a].of_build;
  shared_.begin_turns(index_, waves);
}

/// Tells arrivals to come for which there are slots.
void Part::bring() {
  for (; brought_ < arrivals_.size(); ++brought_) {
    Arrival& arrival = arrivals_[brought_];
    if (slots_taken_ == slots_given_back_ + lane().slots.size()) return;
    const TupleLayout layout = layout_of(arrival);
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
    shared_.transfer->push(to_device_, std::move(copy), [this, &here](std::span<Event* const> done) {
      for (Event* event : done) lane().stream(kArrive).wait(*event);
      lane().stream(kArrive).record(here);
      shared_.count_up(here_);
    });
  }
}

/// The slot is the next arrival's once what is on the stream by now is done.
void Part::give_back(Room::Slot& slot, JoinStream stream) {
  lane().stream(stream).record(*slot.free);
  ++slots_given_back_;
  bring();
}

// --- On the part's thread

void Part::run() noexcept {
  try {
    bring();
    stop_ = take_arrivals();
    if (!first_round()) {
      spilled_.begin = stop_ == Stop::done ? spilled_.end : arrivals_[next_].round.begin;
    } else if (stop_ == Stop::crowded) {
      shared_.stop();
    }
  } catch (...) {
    shared_.stop(std::current_exception());
  }
  shared_.end_turns(index_);
  shared_.transfer->close(to_device_);
  shared_.transfer->close(home_);
}

Part::Stop Part::take_arrivals() {
  for (; next_ < arrivals_.size(); ++next_) {
    Arrival& arrival = arrivals_[next_];
    if (index_ == 0) shared_.begin_phase(phase());  // which stands for all of them
    shared_.await(here_, next_ + 1);
    const Wave wave = take();
    if (first_round() && !shape().caches()) continue;
    if (arrival.of_build) {
      if (!keep(wave)) return Stop::crowded;
      release(wave, kMatch);
      continue;
    }
    if (!built_.ready) {
      if (!prepare_build()) return Stop::crowded;
      if (first_round()) {  // where one can't, no rows have been written
        shared_.count_up(shared_.ready);
        shared_.await(shared_.ready, shared_.parts.size());
      }
    }
    match_wave(wave);
    const JoinSections found = found_in_wave(wave.rows);
    shared_.place_rows(index_, found, wave.rows, [&](const RowPlaces& places) { write_wave(found, places); });
    if (arrival.closes_round) finished_ = std::exchange(built_, {});
    release(wave, kWrite);
  }
  return Stop::done;
}

/// What of the next arrival is joined now. The rest leaves.
Part::Wave Part::take() {
  const Arrival& arrival = arrivals_[next_];
  const TupleLayout layout = layout_of(arrival);
  Wave wave;
  if (first_round() && shape().cuts()) {
    cut_and_send();
    wave.cut = &cut_of(next_);
    wave.arrived = wave.cut->size_of(shape().cached);
    if (shape().caches()) add_cut(wave);
  } else {
    wave.slot = arrival.slot;
    lane().stream(kMatch).wait(*arrival.slot->here);
    wave.add(arrival.in_slot(layout));
    wave.arrived = wave.rows;
  }
  return wave;
}

/// The next arrival, and those behind it that are here: while one is matched, the one behind it goes to the other devices, and
/// the one behind that is cut.
void Part::cut_and_send() {
  const size_t ahead = lane().cuts.size() - 2;  // beside the waves that are matched and written
  while (cut_ <= next_) begin_cut();
  while (cut_ < std::min(next_ + 1 + ahead, first_round_arrivals_) && can_cut()) begin_cut();
  while (sent_ <= next_) send_cut();
  while (sent_ < std::min(next_ + 2, cut_) && can_send()) send_cut();
}

/// Whether the next cut waits for no other thread.
bool Part::can_cut() { return shared_.reached(here_, cut_ + 1) && shared_.reached(spills_leaving_, cut_of(cut_).spills); }

/// Has the next arrival grouped by partition.
void Part::begin_cut() {
  Arrival& arrival = arrivals_[cut_];
  Room::Cut& cut = cut_of(cut_++);
  shared_.await(here_, cut_);
  shared_.await(spills_leaving_, cut.spills);
  cut.begun = TraceClock::now();
  Stream& stream = lane().stream(kCut);
  stream.wait(*cut.left);
  stream.wait(*cut.read);
  for (const auto& sent : cut.sent) stream.wait(*sent);
  stream.wait(*arrival.slot->here);
  cut.offsets.assign(shape().partitions() + 1, 0);
  const TupleLayout layout = layout_of(arrival);
  lane().primitives().partition(layout, arrival.in_slot(layout), shape().digit(), cut.tuples.span, cut.offsets.data(),
                                lane().cut_scratch.data(), shared_.job, stream);
  stream.record(*cut.ready);
  give_back(*arrival.slot, kCut);
}

/// Whether the next cut is done, and there is room for it on the other devices.
bool Part::can_send() {
  const auto has_room = [&](const auto& part) {
    return part.get() == this || sent_ < kInboxes || shared_.reached(part->inboxes_read_, sent_ - kInboxes + 1);
  };
  return cut_of(sent_).ready->done() && std::all_of(shared_.parts.begin(), shared_.parts.end(), has_room);
}

/// Has the next cut spilled, and sent to the devices that join it.
void Part::send_cut() {
  const size_t number = sent_++, devices = shared_.parts.size();
  const Arrival& arrival = arrivals_[number];
  Room::Cut& cut = cut_of(number);
  cut.ready->synchronize();
  trace("cut", kCut, cut.begun, arrival.rows() * layout_of(arrival).tuple_bytes());
  add_done(arrival.rows());
  spill(number);
  if (!shape().caches()) return;
  for (size_t k = 1; k < devices; ++k) send(number, *shared_.parts[(index_ + k) % devices]);
  split_rows_ += count_split(cut, arrival.of_build);
}

/// Sends home what is not joined now.
void Part::spill(size_t number) {
  Room::Cut& cut = cut_of(number);
  if (cut.size_of(shape().spilled()) == 0) return;
  HostCopy copy = shared_.spill(arrivals_[number].of_build, number * shared_.parts.size() + index_, cut);
  copy.after = cut.ready.get();
  cut.spills = ++spills_;
  shared_.transfer->push(home_, std::move(copy), [this, &cut](std::span<Event* const> done) {
    for (Event* event : done) lane().stream(kLeave).wait(*event);
    lane().stream(kLeave).record(*cut.left);
    shared_.count_up(spills_leaving_);
  });
}

/// Adds what this device joins of the next arrival, as all have cut it.
void Part::add_cut(Wave& wave) {
  const Arrival& arrival = arrivals_[next_];
  const TupleLayout layout = layout_of(arrival);
  lane().stream(kMatch).wait(*wave.cut->ready);
  for (const PartitionRange range : shape().routes.of(arrival.of_build, index_, index_)) wave.add(wave.cut->of(layout, range));
  const size_t others = shared_.parts.size() - 1;
  if (others == 0) return;
  wave.inbox = &lane().inboxes[next_ % kInboxes];
  shared_.await(delivered_[next_ % kInboxes], (next_ / kInboxes + 1) * others);
  for (const Room::Inbox::Parcel& parcel : wave.inbox->parcels) {
    if (!parcel.here) continue;
    lane().stream(kMatch).wait(*parcel.here);
    wave.add(parcel.tuples.span.slice(layout, 0, parcel.size).view());
  }
}

uint64_t Part::count_split(const Room::Cut& cut, bool of_build) const {
  uint64_t rows = 0;
  for (uint32_t p = shape().cached.begin; shape().routes.splits() && p < shape().cached.end; ++p) {
    if (shape().routes.split(of_build, p, index_)) rows += cut.size_of({p, p + 1});
  }
  return rows;
}

/// Sends another device what it joins of an arrival.
void Part::send(size_t number, Part& owner) {
  const Arrival& arrival = arrivals_[number];
  const TupleLayout layout = layout_of(arrival);
  Room::Cut& cut = cut_of(number);
  if (number >= kInboxes) shared_.await(owner.inboxes_read_, number - kInboxes + 1);
  Room::Inbox& inbox = owner.lane().inboxes[number % kInboxes];
  Room::Inbox::Parcel& parcel = inbox.parcels[index_];
  Event& sent = *cut.sent[owner.index_];
  Stream& stream = lane().stream(kSend);
  stream.wait(*cut.ready);
  stream.wait(*inbox.read);
  parcel.size = 0;
  for (const PartitionRange range : shape().routes.of(arrival.of_build, index_, owner.index_)) {
    const TupleView from = cut.of(layout, range);
    if (from.size == 0) continue;
    const TupleSpan to = parcel.tuples.span.slice(layout, parcel.size, parcel.size + from.size);
    device_.copy_to_peer(to.keys, owner.device_, from.keys, from.size * layout.key_bytes, stream);
    if (layout.value_bytes) {
      device_.copy_to_peer(to.values, owner.device_, from.values, from.size * layout.value_bytes, stream);
    }
    parcel.size += from.size;
  }
  stream.record(sent);
  parcel.here = &sent;
  shared_.count_up(owner.delivered_[number % kInboxes]);
}

/// What comes next may take the place of a wave that is read on a stream.
void Part::release(const Wave& wave, JoinStream read_on) {
  if (wave.slot) give_back(*wave.slot, read_on);
  if (wave.cut) lane().stream(read_on).record(*wave.cut->read);
  if (!wave.inbox) return;
  lane().stream(read_on).record(*wave.inbox->read);
  shared_.count_up(inboxes_read_);
}

/// Adds a wave to the round's build side. False where more tuples stay than there is room for.
bool Part::keep(const Wave& wave) {
  if (first_round() && built_.rows + wave.rows > shape().kept_rows) return false;
  begin_build();
  PartitionedTuples tuples{layout_of(arrivals_[next_]), wave.tuples, {}};
  for (const TupleView& stretch : wave.tuples) {
    tuples.host_offsets.push_back(built_.offsets.emplace_back(std::array<uint64_t, 2>{0, stretch.size}).data());
  }
  built_.table->add(tuples, shared_.job, lane().stream(kMatch));
  built_.rows += wave.rows;
  built_.arrived += wave.arrived;
  joined_rows_ += wave.rows;
  return true;
}

void Part::begin_build() {
  if (built_.table) return;
  for (const Match& match : matches_) lane().stream(kMatch).wait(*match.written);  // what that of the round before is read for
  built_.table = lane().primitives().hash_build(shape().build_plan(), lane().built.data());
}

/// False where keys crowd, and the device has no more memory for that.
bool Part::prepare_build() {
  for (Match& match : matches_) {  // of the round before
    match.written->synchronize();
    match.found.reset();
  }
  finished_ = {};
  begin_build();
  Stream& stream = lane().stream(kMatch);
  const TraceClock::time_point begin = TraceClock::now();
  built_.table->finish(shared_.job, stream);
  stream.synchronize();
  trace("build", kMatch, begin, built_.rows * shape().build().layout.tuple_bytes());
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
  built_.table->go_on(built_.crowd.data(), shared_.job, stream);
  built_.ready = true;
  add_done(built_.arrived);
  return true;
}

/// Topmost bits that the mixed keys of all tuples of the round have.
uint32_t Part::common_bits() const {
  const PartitionRange round = arrivals_[next_].round;
  const uint32_t others = round.begin < round.end ? round.begin ^ (round.end - 1) : 0;
  return shape().bits - static_cast<uint32_t>(std::bit_width(others));
}

/// The host knows what was found when this returns.
void Part::match_wave(const Wave& wave) {
  Match& own = matches_[matched_++ % kMatches];
  own.written->synchronize();  // the rows that refer to this match
  own.found.reset();
  own.offsets.clear();
  for (const TupleView& stretch : wave.tuples) own.offsets.push_back({0, stretch.size});
  PartitionedTuples tuples{shape().probe().layout, wave.tuples, {}};
  for (const auto& offsets : own.offsets) tuples.host_offsets.push_back(offsets.data());
  const TraceClock::time_point begin = TraceClock::now();
  own.found = lane().primitives().hash_probe(*built_.table, tuples, common_bits(),
                                             lane().scratch[(matched_ - 1) % lane().scratch.size()].data(), shared_.job,
                                             lane().stream(kMatch));
  lane().stream(kMatch).synchronize();
  trace("match", kMatch, begin, wave.rows * shape().probe().layout.tuple_bytes());
  add_done(wave.arrived);
  joined_rows_ += wave.rows;
}

void Part::add_done(uint64_t rows) {
  done_ += rows;
  shared_.job.add_done(rows);
}

/// Of kernels that have ended.
void Part::trace(const char* name, JoinStream on, TraceClock::time_point begin, uint64_t bytes) {
  if (!shared_.job.trace()) return;
  shared_.job.trace()->add({name, TraceEvent::Track::kernels, device_.info().ordinal, on, begin, TraceClock::now(), bytes});
}

/// What a wave adds to the result: build tuples alone with the last one of a round, which knows what all have found.
JoinSections Part::found_in_wave(uint64_t probe) {
  const JoinRequest& request = shared_.request;
  const bool last = arrivals_[next_].closes_round;
  JoinTally tally = match().found->tally();
  if (!last) tally.build_matched = 0;
  const uint64_t build = last ? built_.rows : 0;
  return tuple_sections(request.kind, request.build_left ? build : probe, request.build_left ? probe : build,
                        counts_of(tally, request));
}

/// Has a wave's rows written and sent home.
void Part::write_wave(const JoinSections& found, const RowPlaces& places) {
  const bool build_left = shared_.request.build_left;
  write_rows(shared_.request, found, places, [&](JoinEmit what, const JoinOutput& home) {
    const bool of_build = what == JoinEmit::build_matched || what == JoinEmit::build_unmatched;
    const uint64_t alone = of_build == build_left ? found.left : found.right;
    write(what, what == JoinEmit::pairs ? found.pairs : alone, home);
  });
  lane().stream(kWrite).record(*match().written);
}

void Part::write(JoinEmit what, uint64_t rows, const JoinOutput& home) {
  const std::vector<RowColumn> columns = columns_in(home, shape().build().layout, shape().probe().layout);
  const uint64_t row_bytes = row_bytes_of(columns);
  const uint64_t most = (lane().staged[0].rows.size() - columns.size() * StackAllocator::kAlignment) / row_bytes;
  for (uint64_t first = 0; first < rows; first += most) {
    write_part(what, first, std::min(most, rows - first), columns, home);
  }
}

void Part::write_part(JoinEmit what, uint64_t first, uint64_t rows, const std::vector<RowColumn>& columns,
                      const JoinOutput& home) {
  Room::Staged& staged = lane().staged[written_ % kHomeParts];
  if (written_ >= kHomeParts) shared_.await(parts_leaving_, written_ - kHomeParts + 1);
  ++written_;
  Stream& stream = lane().stream(kWrite);
  stream.wait(*staged.left);
  JoinOutput out;
  HostCopy copy{{}, staged.written.get()};
  char* at = staged.rows.as<char>();
  for (const RowColumn& column : columns) {
    out.*column.data = at;
    copy.stretches.push_back({static_cast<char*>(home.*column.data) + first * column.width, at, rows * column.width});
    at += StackAllocator::aligned(rows * column.width);
  }
  lane().primitives().hash_emit(*match().found, what, first, rows, out, shared_.job, stream);
  stream.record(*staged.written);
  shared_.transfer->push(home_, std::move(copy), [this, &staged](std::span<Event* const> done) {
    for (Event* event : done) lane().stream(kLeave).wait(*event);
    lane().stream(kLeave).record(*staged.left);
    shared_.count_up(parts_leaving_);
  });
}

}  // namespace warpjoin::streaming
