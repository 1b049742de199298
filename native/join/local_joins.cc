#include "join/local_joins.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "device/streams.h"
#include "join/join_rows.h"
#include "join/kept_rows.h"
#include "join/local_joins_parts.h"

namespace warpjoin {
namespace {

Digit partition_digit(HashCut cut) {
  return {static_cast<uint8_t>(64 - cut.partition_bits), static_cast<uint8_t>(cut.partition_bits), true};
}

/// Into how many partitions device i's tuples are cut for its match.
uint32_t partitions_of(HashCut cut, size_t devices, size_t i, Device& device) {
  if (cut.replicate || cuts_by_itself(device)) return 1;
  return partition_begin(cut, devices, i + 1) - partition_begin(cut, devices, i);
}

/// Bytes of device memory: tuples on their way to one of `devices`, and what it joins, in one or more waves.
size_t local_bytes(Device& device, const SideRows& build, const SideRows& probe, uint32_t partitions, size_t devices, HashCut cut,
                   bool count_only, bool resident, uint32_t waves) {
  Primitives& primitives = device.primitives();
  const bool in_place = device.addresses_host_memory();
  const auto both = [&](uint64_t SideRows::*rows) {
    return OwnedTuples::bytes(build.layout, build.*rows) + OwnedTuples::bytes(probe.layout, probe.*rows);
  };
  const size_t share = both(&SideRows::share), joined = both(&SideRows::joined);
  size_t leave = in_place || count_only ? 0 : std::clamp(joined, kLeastStagedBytes, kPlannedStagedBytes);
  if (waves > 1) {
    const HashBuildPlan plan{build.layout, probe.layout, build.joined, build.joined, most_in_a_wave(probe.joined, waves), 1,
                             partitions,   count_only};
    leave += StackAllocator::aligned(primitives.hash_build_scratch_bytes(plan)) +
             waves * StackAllocator::aligned(primitives.hash_probe_scratch_bytes(plan));
  } else {
    leave += StackAllocator::aligned(
        primitives.hash_match_scratch_bytes(build.layout, build.joined, probe.layout, probe.joined, partitions, count_only));
  }
  if (cut.replicate) {
    const size_t collected = resident && devices > 1 ? OwnedTuples::bytes(build.layout, build.share) : 0;
    return (in_place ? 0 : resident ? collected : share) + leave;
  }
  const Digit digit = partition_digit(cut);
  const size_t scratch = StackAllocator::aligned(std::max(primitives.partition_scratch_bytes(build.layout, build.piece, digit),
                                                          primitives.partition_scratch_bytes(probe.layout, probe.piece, digit)));
  if (resident) return share + scratch + (devices == 1 ? 0 : joined) + leave;
  const size_t arrive = (in_place ? 0 : kPieceSlots * both(&SideRows::piece)) + scratch;
  if (devices == 1) return share + std::max(arrive, leave);
  return joined + (waves > 1 ? share + arrive + leave : std::max(share + arrive, leave));
}

/// Rows [begin, end) of a relation in pieces of at most `most`.
std::vector<Piece> cut_pieces(const Relation& relation, uint64_t begin, uint64_t end, uint64_t most) {
  std::vector<Piece> pieces;
  uint64_t first = 0;
  for (const TupleView& view : relation.views) {
    const uint64_t last = std::min(end, first + view.size);
    for (uint64_t at = std::max(begin, first); at < last; at += most) {
      pieces.push_back({view.slice(relation.layout, at - first, std::min(last, at + most) - first), {}, {}});
    }
    first += view.size;
  }
  return pieces;
}

}  // namespace

uint64_t Relation::size() const {
  uint64_t size = 0;
  for (const TupleView& view : views) size += view.size;
  return size;
}

LocalJoins::LocalJoins(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe,
                       HashCut cut, bool count_only, Job& job, KeptRows* kept)
    : engine_(engine),
      build_(build),
      probe_(probe),
      cut_(cut),
      count_only_(count_only),
      job_(job),
      kept_(kept),
      parts_(resident() ? cut.parts : 1) {
  for (Device* device : devices) locals_.emplace_back(std::make_unique<Local>())->device = device;
  const bool waves = comes_in_waves();
  for (const auto& each : locals_) {
    Local& local = *each;
    Device* const device = local.device;
    local.one_partition = cuts_by_itself(*device);
    for (auto& event : local.emitted) event = device->create_event();
    for (Side* side : local.sides()) {
      for (auto& event : side->slot_free) event = device->create_event();
    }
    for (size_t p = 0; p < (waves ? cut.waves : parts_); ++p) local.sent.push_back(device->create_event());
    local.stream = device->create_stream();
    local.sends = device->create_stream();
    if (waves) local.arrivals = device->create_stream(true);  // what holds the links up comes first
  }
  const size_t g = devices.size();
  for (size_t d = 0; d < g; ++d) {
    Local& local = *locals_[d];
    local.partitions = partitions_of(cut, g, d, *local.device);
    const auto plan = [&](Side& side, const Relation& relation, bool whole, uint32_t waves) {
      const uint64_t rows = relation.size();
      uint64_t begin = share_begin(rows, g, d), end = share_begin(rows, g, d + 1);
      if (relation.resident) {
        begin = 0;
        for (size_t i = 0; i < d; ++i) begin += relation.views[i].size;
        end = begin + relation.views[d].size;
      }
      if (whole) begin = 0, end = rows;
      side.rows = SideRows::planned(*local.device, relation.layout, rows, end - begin, g, cut, relation.resident, waves);
      side.pieces = cut_pieces(relation, begin, end, std::max<uint64_t>(side.rows.piece, 1));
      side.size = end - begin;
    };
    plan(local.build, build_, cut.replicate, 1);
    plan(local.probe, probe_, false, cut.waves);
  }
}

LocalJoins::~LocalJoins() {
  for (const auto& local : locals_) {  // all work ends before any memory that it uses goes
    local->arrivals.reset();
    local->sends.reset();
    local->stream.reset();
  }
}

size_t LocalJoins::device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                                HashCut cut, bool count_only, bool resident, Device& device) {
  const auto planned = [&](TupleLayout layout, uint64_t rows, bool whole) {
    return SideRows::planned(device, layout, rows, whole ? rows : share_begin(rows, devices, 1), devices, cut, resident, 1);
  };
  const SideRows b = planned(build, build_rows, cut.replicate), p = planned(probe, probe_rows, false);
  size_t most = 0;
  for (const size_t owner : {size_t{0}, devices - 1}) {  // with the most partitions, and with the fewest
    most = std::max(most,
                    local_bytes(device, b, p, partitions_of(cut, devices, owner, device), devices, cut, count_only, resident, 1));
  }
  return resident ? std::max(most, grouped_bytes(device, b, p, build_rows, devices, cut, count_only)) : most;
}

void LocalJoins::run() {
  if (cut_.replicate) {
    bring_whole();
  } else if (!bring_grouped()) {
    bring_partitioned();
  }
  job_.add_done(build_.size() + probe_.size());
  match();
  uint64_t most = 0, all = 0;
  for (size_t d = 0; d < locals_.size(); ++d) {
    const Found own = found(d);
    tally_.pairs = add_rows(tally_.pairs, own.tally.pairs);
    tally_.build_matched += own.tally.build_matched;
    tally_.probe_matched += own.tally.probe_matched;
    most = std::max(most, own.build_rows + own.probe_rows);
    all += own.build_rows + own.probe_rows;
  }
  if (all) skew_ = static_cast<double>(most) * static_cast<double>(locals_.size()) / static_cast<double>(all);
  job_.add_done(build_.size() + probe_.size());
}

LocalJoins::Found LocalJoins::found(size_t device) const {
  const Local& local = *locals_[device];
  Found sum;
  for (size_t p = 0; p < parts_; ++p) {
    const Found part = local.found(p);
    sum.build_rows += part.build_rows;
    sum.probe_rows += part.probe_rows;
    sum.tally.pairs = add_rows(sum.tally.pairs, part.tally.pairs);
    sum.tally.build_matched += part.tally.build_matched;
    sum.tally.probe_matched += part.tally.probe_matched;
  }
  return sum;
}

/// Whether tuples cross a link to be matched, and the probe side may do so in several waves.
bool LocalJoins::comes_in_waves() const {
  return cut_.waves > 1 && !resident() && !locals_[0]->in_place() && (cut_.replicate || locals_.size() > 1);
}

// What is resident stays where it is, but for the other devices' parts of the build side.
void LocalJoins::bring_whole() {
  reserve();
  for (const auto& local : locals_) {
    local->build.parts.resize(1);
    local->probe.parts.resize(waves_);
    for (Side* side : local->sides()) {
      const bool collected = resident() && side == &local->build && locals_.size() > 1;
      const bool moved = !local->in_place() && (!resident() || collected);
      if (moved) side->place_chunk(*local->device);
      for (size_t p = 0; p < side->parts.size(); ++p) {
        for (const Piece& piece : side->wave(p, side->parts.size())) {
          TupleView tuples = piece.in;
          if (moved) {
            tuples.keys = piece.out.keys;
            if (tuples.values) tuples.values = piece.out.values;
          }
          side->parts[p].add(tuples, {0, tuples.size});
        }
      }
    }
  }
  if (locals_[0]->in_place() || (resident() && locals_.size() == 1)) return;
  const PhaseTimer timer(job_, "copy", 2 * (build_.bytes() * locals_.size() + (resident() ? 0 : probe_.bytes())));
  if (resident()) {
    for (const auto& local : locals_) {
      for (const Piece& piece : local->build.pieces) {
        for (const HostCopy::Stretch& stretch : host_copy(build_.layout, piece.out, piece.in, nullptr).stretches) {
          local->device->copy(stretch.target, stretch.source, stretch.bytes, *local->stream);
        }
      }
    }
    return wait();
  }
  std::optional<Waves> waves;
  if (waves_ > 1) waves.emplace(*this);
  std::vector<HostQueue> queues;
  for (size_t d = 0; d < locals_.size(); ++d) queues.push_back(whole_arrival(d, waves ? &*waves : nullptr));
  transfer(engine_, queues, job_);
  if (waves) waves->finish();
  wait();
}

HostQueue LocalJoins::whole_arrival(size_t device, Waves* waves) {
  Local& local = *locals_[device];
  HostQueue queue{local.device, HostQueue::Direction::to_device, {}, 1, {}};
  std::vector<const Piece*> pieces;
  for (Side* side : local.sides()) {
    for (const Piece& piece : side->pieces) {
      queue.copies.push_back(host_copy(side->rows.layout, piece.out, piece.in, nullptr));
      pieces.push_back(&piece);
    }
  }
  queue.depth = std::max<size_t>(queue.copies.size(), 1);
  if (!waves) return queue;
  const size_t build_pieces = local.build.pieces.size();
  queue.enqueued = [&local, device, waves, build_pieces, pieces = std::move(pieces)](size_t copy, std::span<Event* const> done) {
    for (Event* event : done) local.arriving().wait(*event);
    if (copy + 1 == build_pieces) waves->build_enqueued(device);
    if (copy >= build_pieces) waves->piece_enqueued(device, *pieces[copy]);
  };
  return queue;
}

void LocalJoins::bring_partitioned() {
  const PhaseTimer timer(job_, "partition", 2 * (build_.bytes() + probe_.bytes()));
  // What is sent first: of resident relations the first part of both sides, which can be matched then; from host memory the
  // whole build side, as there is time until the probe side has arrived.
  const size_t early = resident() ? 1 : parts_;
  // Keys that crowd on one device need more there than was planned; its memory can only grow while it is empty.
  for (bool room = false; !room;) {
    reserve();
    take_room();
    partition(&Local::build);
    room = count(&Local::build);
    if (!room) continue;
    place(&Local::build);
    send(&Local::build, 0, early);
    std::optional<Waves> waves;
    if (waves_ > 1 && std::find(build_split_.begin(), build_split_.end(), true) == build_split_.end()) waves.emplace(*this);
    partition(&Local::probe, waves ? &*waves : nullptr);
    if (waves && waves->finish()) return;
    waves_ = 1;
    room = count(&Local::probe);
    if (!room) wait();
  }
  place(&Local::probe);
  place_split(&Local::build, build_split_, true);
  place_split(&Local::build, probe_split_, false);
  place_split(&Local::probe, probe_split_, true);
  place_split(&Local::probe, build_split_, false);
  send(&Local::build, parts_, parts_ + 1);
  send(&Local::probe, parts_, parts_ + 1);
  for (size_t p = 0; p < parts_; ++p) {
    if (p >= early) send(&Local::build, p, p + 1);
    send(&Local::probe, p, p + 1);
    for (const auto& local : locals_) local->sends->record(*local->sent[p]);
  }
}

void LocalJoins::reserve() {
  if (resident()) return;
  for (const auto& local : locals_) {
    local->free_chunk();
    for (Side* side : local->sides()) {
      side->received = OwnedTuples();
      side->placed = 0;
      side->parts.clear();
      side->parcels.clear();
    }
  }
  const auto bytes = [&](const Local& local, size_t waves) {
    return local_bytes(*local.device, local.build.rows, local.probe.rows, local.partitions, locals_.size(), cut_, count_only_,
                       false, static_cast<uint32_t>(waves));
  };
  const auto fits = [&](const auto& local) {
    const StackAllocator& memory = local->device->memory();
    const size_t wanted = bytes(*local, cut_.waves) + (kept_ ? kept_->expected_bytes() : 0);
    return wanted + memory.resident_bytes() <= memory.limit_bytes() && wanted <= memory.reserved_bytes() + memory.free_bytes();
  };
  const bool again = std::exchange(reserved_, true);  // keys crowd: the first wave would tell so once more
  waves_ = !again && comes_in_waves() && std::all_of(locals_.begin(), locals_.end(), fits) ? cut_.waves : 1;
  for (size_t d = 0; d < locals_.size(); ++d) {
    locals_[d]->device->memory().reserve(bytes(*locals_[d], waves_), kept_ ? kept_->expected_bytes() : 0);
  }
}

/// Takes the memory for what is partitioned. Where it comes from the host, what is to stay comes first: the rest makes room for
/// the match.
void LocalJoins::take_room() {
  for (const auto& local : locals_) {
    Device& device = *local->device;
    if (!resident() && locals_.size() > 1) {
      for (Side* side : local->sides()) side->received = OwnedTuples(device.memory(), side->rows.layout, side->rows.joined);
    }
    size_t scratch = 0;
    for (Side* side : local->sides()) {
      side->place_chunk(device);
      const SideRows& rows = side->rows;
      scratch = std::max(scratch, device.primitives().partition_scratch_bytes(rows.layout, rows.piece, partition_digit(cut_)));
    }
    local->partition_scratch = allocate(device.memory(), scratch);
  }
}

// Takes each device's chunk to it and partitions every piece as soon as it is there.
void LocalJoins::partition(Side Local::*side, Waves* waves) {
  std::vector<HostQueue> queues;
  for (size_t d = 0; d < locals_.size(); ++d) {
    Local& local = *locals_[d];
    Side& own = local.*side;
    if (resident() || local.in_place()) {
      for (Piece& piece : own.pieces) partition_piece(local, own, piece, piece.in);
    } else {
      queues.push_back(arrival(d, own, waves));
    }
  }
  transfer(engine_, queues, job_);
  std::vector<Stream*> streams;
  for (const auto& local : locals_) streams.push_back(&local->arriving());
  synchronize_all(streams);
  job_.check();
}

HostQueue LocalJoins::arrival(size_t device, Side& side, Waves* waves) {
  Local& local = *locals_[device];
  for (size_t s = 0; s < kPieceSlots; ++s) side.slots.emplace_back(local.device->memory(), side.rows.layout, side.rows.piece);
  return arrival_of(*local.device, side.rows.layout, side.pieces, side.slots, side.slot_free, local.arriving(),
                    [this, device, waves, &local, &side](Piece& piece, const TupleView& arrived) {
                      partition_piece(local, side, piece, arrived);
                      if (waves) waves->piece_enqueued(device, piece);
                    });
}

void LocalJoins::partition_piece(Local& local, const Side& side, Piece& piece, const TupleView& arrived) {
  const Digit digit = partition_digit(cut_);
  piece.offsets.assign(digit.count() + 1, 0);
  local.device->primitives().partition(side.rows.layout, arrived, digit, piece.out, piece.offsets.data(),
                                       local.partition_scratch.data(), job_, local.arriving());
}

void LocalJoins::match() {
  if (waves_ > 1) {  // they are on their way
    const PhaseTimer timer(job_, "match", match_bytes_read());
    return complete_matches();
  }
  if (!cut_.replicate && locals_.size() > 1) {
    const PhaseTimer timer(job_, "exchange", 2 * (build_.bytes() + probe_.bytes()));
    if (!resident()) {
      for (const auto& local : locals_) local->free_arrival();
    }
    if (!grouped() && (parts_ == 1 || !has_room_for_parts())) {
      wait();
      for (const auto& local : locals_) local->free_chunk();
      merge_parts();
    }
  } else {
    for (const auto& local : locals_) local->free_arrival();
    merge_parts();
  }
  const PhaseTimer timer(job_, "match", match_bytes_read());
  // All devices at once, as a match is many launches.
  engine_.pool.parallel_for(locals_.size(), [&](uint64_t d) { match_device(d); });
  complete_matches();
  for (size_t d = 0; d < locals_.size(); ++d) {
    if (!locals_[d]->at_once) continue;
    for (size_t p = 0; p < parts_; ++p) {
      const HashMatch& match = *locals_[d]->matches[p].found;
      kept_->found(d, p, match.written() ? match.tally().pairs : 0);
    }
  }
}

void LocalJoins::match_device(size_t device) {
  Local& local = *locals_[device];
  uint64_t probe_rows = 0;
  for (const Side::Part& part : local.probe.parts) probe_rows += part.size;
  local.at_once = kept_ && kept_->takes_pairs() && local.device->primitives().hash_match_writes(build_.layout, probe_.layout) &&
                  kept_->expect_at_most(device, probe_rows);
  local.matches.resize(parts_);
  for (size_t p = 0; p < parts_; ++p) {
    if (parts_ > 1 || grouped()) {
      for (const auto& sender : locals_) local.stream->wait(*sender->sent[p]);
    }
    start_match(local, p, local.at_once ? kept_->next_pairs(device, local.probe.parts[p].size) : std::nullopt);
  }
}

uint64_t LocalJoins::match_bytes_read() const {
  return build_.size() * build_.layout.key_bytes + probe_.size() * probe_.layout.key_bytes;
}

void LocalJoins::complete_matches() {
  wait();
  for (bool going = true; going;) {
    going = false;
    for (const auto& local : locals_) {
      for (Local::Match& match : local->matches) {
        if (local->device->primitives().hash_match_goes_on(*match.found, job_, *local->stream)) going = true;
      }
    }
    if (going) wait();
  }
}

/// What was to be matched part by part is matched together.
void LocalJoins::merge_parts() {
  for (const auto& local : locals_) {
    for (Side* side : local->sides()) {
      if (side->parts.size() == 1) continue;
      const std::vector<Side::Part> parts = std::exchange(side->parts, std::vector<Side::Part>(1));
      for (const Side::Part& part : parts) {
        for (const TupleView& tuples : part.joined.fragments) side->parts[0].add(tuples, {0, tuples.size});
      }
    }
  }
  parts_ = 1;
}

size_t LocalJoins::match_bytes(const Local& local, size_t part) const {
  if (grouped()) {
    const Side::Part &build = local.build.parts[part], &probe = local.probe.parts[part];
    return local.device->primitives().hash_groups()->match_groups_scratch_bytes(
        build_.layout, build.size, probe_.layout, probe.size, grouping_, build.grouped.groups, locals_.size(), count_only_);
  }
  if (local.built.table) return local.device->primitives().hash_probe_scratch_bytes(build_plan(local));
  return local.device->primitives().hash_match_scratch_bytes(build_.layout, local.build_part(part).size, probe_.layout,
                                                             local.probe.parts[part].size, local.partitions, count_only_);
}

/// Of what waves share.
HashBuildPlan LocalJoins::build_plan(const Local& local) const {
  const uint64_t build = local.build.parts[0].size, wave = most_in_a_wave(local.probe.rows.joined, waves_);
  return {build_.layout, probe_.layout, build, build, wave, 1, local.partitions, count_only_};
}

/// Whether all parts can be matched beside what is on its way.
bool LocalJoins::has_room_for_parts() const {
  return std::all_of(locals_.begin(), locals_.end(), [&](const auto& local) {
    size_t bytes = count_only_ ? 0 : kLeastStagedBytes;
    for (size_t p = 0; p < parts_; ++p) bytes += StackAllocator::aligned(match_bytes(*local, p));
    return bytes <= local->device->memory().room_bytes();
  });
}

/// `out`: for pairs of each probe tuple, at most one.
void LocalJoins::start_match(Local& local, size_t part, const std::optional<JoinOutput>& out) {
  Local::Match& match = local.matches[part];
  match.scratch = allocate(local.device->memory(), match_bytes(local, part));
  Primitives& primitives = local.device->primitives();
  if (grouped()) {
    match.found = primitives.hash_groups()->match_groups(local.build.parts[part].grouped, local.probe.parts[part].grouped,
                                                         grouping_, count_only_, out, match.scratch.data(), job_, *local.stream);
    return;
  }
  const PartitionedTuples& build = local.build_part(part).ready(build_.layout, local.partitions);
  const PartitionedTuples& probe = local.probe.parts[part].ready(probe_.layout, local.partitions);
  const uint32_t common_bits = local.partitions == 1 ? 0 : cut_.partition_bits;
  void* const scratch = match.scratch.data();
  if (local.built.table) {
    match.found = primitives.hash_probe(*local.built.table, probe, common_bits, scratch, job_, *local.stream);
  } else if (out) {
    match.found = primitives.hash_match_into(*out, local.probe.parts[part].size, build, probe, local.partitions, common_bits,
                                             scratch, job_, *local.stream);
  } else {
    match.found = primitives.hash_match(build, probe, local.partitions, common_bits, count_only_, scratch, job_, *local.stream);
  }
}

void LocalJoins::wait() {
  std::vector<Stream*> streams;
  for (const auto& local : locals_) {
    if (local->arrivals) streams.push_back(local->arrivals.get());
    streams.push_back(local->sends.get());
    streams.push_back(local->stream.get());
  }
  synchronize_all(streams);
  job_.check();
}

}  // namespace warpjoin
