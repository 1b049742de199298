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

/// Bytes of device memory: tuples on their way to one of `devices`, and what it joins.
size_t local_bytes(Device& device, const SideRows& build, const SideRows& probe, uint32_t partitions, size_t devices, HashCut cut,
                   bool count_only, bool resident) {
  Primitives& primitives = device.primitives();
  const auto both = [&](uint64_t SideRows::*rows) {
    return OwnedTuples::bytes(build.layout, build.*rows) + OwnedTuples::bytes(probe.layout, probe.*rows);
  };
  const size_t share = both(&SideRows::share), joined = both(&SideRows::joined);
  const bool stages = !device.addresses_host_memory() && !count_only;
  const size_t leave = (stages ? std::clamp(joined, kLeastStagedBytes, kPlannedStagedBytes) : 0) +
                       StackAllocator::aligned(primitives.hash_match_scratch_bytes(build.layout, build.joined, probe.layout,
                                                                                   probe.joined, partitions, count_only));
  if (cut.replicate) return (resident && devices > 1 ? OwnedTuples::bytes(build.layout, build.share) : 0) + leave;
  const Digit digit = partition_digit(cut);
  const size_t scratch = StackAllocator::aligned(std::max(primitives.partition_scratch_bytes(build.layout, build.share, digit),
                                                          primitives.partition_scratch_bytes(probe.layout, probe.share, digit)));
  if (resident) return share + scratch + (devices == 1 ? 0 : joined) + leave;
  return devices == 1 ? share + std::max(scratch, leave) : joined + std::max(share + scratch, leave);
}

/// Rows [begin, end) of a relation, a piece of each view.
std::vector<Piece> cut_pieces(const Relation& relation, uint64_t begin, uint64_t end) {
  std::vector<Piece> pieces;
  uint64_t first = 0;
  for (const TupleView& view : relation.views) {
    const uint64_t from = std::max(begin, first), to = std::min(end, first + view.size);
    if (from < to) pieces.push_back({view.slice(relation.layout, from - first, to - first), {}, {}});
    first += view.size;
  }
  return pieces;
}

}  // namespace

Relation Relation::with_values_if(bool wanted) const {
  Relation relation = *this;
  relation.layout = wanted_layout(layout, wanted);
  for (TupleView& view : relation.views) view.values = wanted ? view.values : nullptr;
  return relation;
}

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
  for (const auto& each : locals_) {
    Local& local = *each;
    Device* const device = local.device;
    local.one_partition = cuts_by_itself(*device);
    for (auto& event : local.emitted) event = device->create_event();
    for (size_t p = 0; p < parts_; ++p) local.sent.push_back(device->create_event());
    local.stream = device->create_stream();
    local.sends = device->create_stream();
  }
  const size_t g = devices.size();
  for (size_t d = 0; d < g; ++d) {
    Local& local = *locals_[d];
    local.partitions = partitions_of(cut, g, d, *local.device);
    const auto plan = [&](Side& side, const Relation& relation, bool whole) {
      const uint64_t rows = relation.size();
      uint64_t begin = share_begin(rows, g, d), end = share_begin(rows, g, d + 1);
      if (relation.resident) {
        begin = 0;
        for (size_t i = 0; i < d; ++i) begin += relation.views[i].size;
        end = begin + relation.views[d].size;
      }
      if (whole) begin = 0, end = rows;
      side.rows = SideRows::planned(relation.layout, rows, end - begin, g, cut);
      side.pieces = cut_pieces(relation, begin, end);
      side.size = end - begin;
    };
    plan(local.build, build_, cut.replicate);
    plan(local.probe, probe_, false);
  }
}

LocalJoins::~LocalJoins() {
  for (const auto& local : locals_) {  // all work ends before any memory that it uses goes
    local->sends.reset();
    local->stream.reset();
  }
}

size_t LocalJoins::device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                                HashCut cut, bool count_only, bool resident, Device& device) {
  const auto planned = [&](TupleLayout layout, uint64_t rows, bool whole) {
    return SideRows::planned(layout, rows, whole ? rows : share_begin(rows, devices, 1), devices, cut);
  };
  const SideRows b = planned(build, build_rows, cut.replicate), p = planned(probe, probe_rows, false);
  size_t most = 0;
  for (const size_t owner : {size_t{0}, devices - 1}) {  // with the most partitions, and with the fewest
    most =
        std::max(most, local_bytes(device, b, p, partitions_of(cut, devices, owner, device), devices, cut, count_only, resident));
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

// Tuples stay where they are, but for the other devices' parts of a resident build side.
void LocalJoins::bring_whole() {
  reserve();
  const bool collects = resident() && !locals_[0]->in_place() && locals_.size() > 1;
  for (const auto& local : locals_) {
    for (Side* side : local->sides()) {
      side->parts.resize(1);
      const bool moved = collects && side == &local->build;
      if (moved) side->place_chunk(*local->device);
      for (const Piece& piece : side->pieces) {
        TupleView tuples = piece.in;
        if (moved) {
          tuples.keys = piece.out.keys;
          if (tuples.values) tuples.values = piece.out.values;
        }
        side->parts[0].add(tuples, {0, tuples.size});
      }
    }
  }
  if (!collects) return;
  const PhaseTimer timer(job_, "copy", 2 * build_.bytes() * locals_.size());
  for (const auto& local : locals_) {
    for (const Piece& piece : local->build.pieces) {
      for (const HostCopy::Stretch& stretch : host_copy(build_.layout, piece.out, piece.in, nullptr).stretches) {
        local->device->copy(stretch.target, stretch.source, stretch.bytes, *local->stream);
      }
    }
  }
  wait();
}

void LocalJoins::bring_partitioned() {
  const PhaseTimer timer(job_, "partition", 2 * (build_.bytes() + probe_.bytes()));
  // Keys that crowd on one device need more there than was planned; its memory can only grow while it is empty.
  for (bool room = false; !room;) {
    reserve();
    take_room();
    partition(&Local::build);
    room = count(&Local::build);
    if (!room) continue;
    place(&Local::build);
    send(&Local::build, 0, 1);  // the first part of both sides can be matched before the others are there
    partition(&Local::probe);
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
    if (p > 0) send(&Local::build, p, p + 1);
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
  for (const auto& local : locals_) {
    local->device->memory().reserve(local_bytes(*local->device, local->build.rows, local->probe.rows, local->partitions,
                                                locals_.size(), cut_, count_only_, false));
  }
}

/// Takes the memory for what is partitioned. On host devices what is to stay comes first: the rest makes room for the match.
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
      scratch = std::max(scratch, device.primitives().partition_scratch_bytes(rows.layout, rows.share, partition_digit(cut_)));
    }
    local->partition_scratch = allocate(device.memory(), scratch);
  }
}

/// Partitions each device's chunk.
void LocalJoins::partition(Side Local::*side) {
  const Digit digit = partition_digit(cut_);
  std::vector<Stream*> streams;
  for (const auto& local : locals_) {
    Side& own = (*local).*side;
    streams.push_back(local->stream.get());
    for (Piece& piece : own.pieces) {
      piece.offsets.assign(digit.count() + 1, 0);
      local->device->primitives().partition(own.rows.layout, piece.in, digit, piece.out, piece.offsets.data(),
                                            local->partition_scratch.data(), job_, *local->stream);
    }
  }
  synchronize_all(streams);
  job_.check();
}

void LocalJoins::match() {
  if (!cut_.replicate && locals_.size() > 1) {
    const PhaseTimer timer(job_, "exchange", 2 * (build_.bytes() + probe_.bytes()));
    if (!resident()) {
      for (const auto& local : locals_) local->partition_scratch = Buffer();
    }
    if (!grouped() && (parts_ == 1 || !has_room_for_parts())) {
      wait();
      for (const auto& local : locals_) local->free_chunk();
      merge_parts();
    }
  } else {
    for (const auto& local : locals_) local->partition_scratch = Buffer();
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
  return local.device->primitives().hash_match_scratch_bytes(build_.layout, local.build.parts[part].size, probe_.layout,
                                                             local.probe.parts[part].size, local.partitions, count_only_);
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
  const PartitionedTuples& build = local.build.parts[part].ready(build_.layout, local.partitions);
  const PartitionedTuples& probe = local.probe.parts[part].ready(probe_.layout, local.partitions);
  const uint32_t common_bits = local.partitions == 1 ? 0 : cut_.partition_bits;
  void* const scratch = match.scratch.data();
  if (out) {
    match.found = primitives.hash_match_into(*out, local.probe.parts[part].size, build, probe, local.partitions, common_bits,
                                             scratch, job_, *local.stream);
  } else {
    match.found = primitives.hash_match(build, probe, local.partitions, common_bits, count_only_, scratch, job_, *local.stream);
  }
}

void LocalJoins::wait() {
  std::vector<Stream*> streams;
  for (const auto& local : locals_) {
    streams.push_back(local->sends.get());
    streams.push_back(local->stream.get());
  }
  synchronize_all(streams);
  job_.check();
}

}  // namespace warpjoin
