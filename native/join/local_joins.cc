#include "join/local_joins.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "core/sharding.h"
#include "device/streams.h"
#include "join/join_rows.h"

namespace warpjoin {
namespace {

// Larger than in sorts: each piece is a fragment of what its receivers join.
constexpr size_t kPieceBytes = size_t{256} << 20;
constexpr size_t kStagedParts = 2;  // of a result that leaves a device: one is written while the other is on its way
constexpr size_t kStagedBytes = size_t{64} << 20, kLeastStagedBytes = size_t{1} << 20;  // of all parts

Digit partition_digit(HashCut cut) {
  return {static_cast<uint8_t>(64 - cut.round_bits - cut.partition_bits), static_cast<uint8_t>(cut.partition_bits), true};
}

/// The first partition that device i owns; i == devices gives the end.
uint32_t partition_begin(HashCut cut, size_t devices, size_t i) {
  return static_cast<uint32_t>(share_begin(uint64_t{1} << cut.partition_bits, devices, i));
}

uint32_t partitions_of(HashCut cut, size_t devices, size_t i) {
  return cut.replicate ? 1 : partition_begin(cut, devices, i + 1) - partition_begin(cut, devices, i);
}

/// How many tuples of a relation a device has to do with.
struct SideRows {
  TupleLayout layout;
  uint64_t share = 0;   ///< come to it from host memory,
  uint64_t piece = 0;   ///< at most so many at a time,
  uint64_t joined = 0;  ///< and at most so many are joined

  /// `whole`: each device joins all of them. Otherwise hashing spreads them evenly; an eighth and some more than the mean is
  /// for the devices that get more than others.
  static SideRows planned(const Device& device, TupleLayout layout, uint64_t rows, size_t devices, HashCut cut, bool whole) {
    const uint64_t share = whole ? rows : share_begin(rows, devices, 1);
    if (cut.replicate) return {layout, share, share, share};
    return {layout, share, device.addresses_host_memory() ? share : piece_tuples(layout, share, kPieceBytes),
            devices == 1 ? share : std::min(rows, share + share / 8 + 4096)};
  }
};

/// Bytes of device memory: tuples on their way to one of `devices`, and the partitions that it joins.
size_t local_bytes(Device& device, const SideRows& build, const SideRows& probe, uint32_t partitions, size_t devices, HashCut cut,
                   bool count_only) {
  Primitives& primitives = device.primitives();
  const bool in_place = device.addresses_host_memory();
  const auto both = [&](uint64_t SideRows::*rows) {
    return OwnedTuples::bytes(build.layout, build.*rows) + OwnedTuples::bytes(probe.layout, probe.*rows);
  };
  const size_t share = both(&SideRows::share), joined = both(&SideRows::joined);
  const size_t match = StackAllocator::aligned(
      primitives.hash_match_scratch_bytes(build.layout, build.joined, probe.layout, probe.joined, partitions, count_only));
  const size_t leave = match + (in_place || count_only ? 0 : std::clamp(joined, kLeastStagedBytes, kStagedBytes));
  if (cut.replicate) return (in_place ? 0 : share) + leave;
  const Digit digit = partition_digit(cut);
  const size_t arrive = (in_place ? 0 : kArrivalSlots * both(&SideRows::piece)) +
                        StackAllocator::aligned(std::max(primitives.partition_scratch_bytes(build.layout, build.piece, digit),
                                                         primitives.partition_scratch_bytes(probe.layout, probe.piece, digit)));
  return devices == 1 ? share + std::max(arrive, leave) : joined + std::max(share + arrive, leave);
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

/// One relation's part of a device's join.
struct LocalJoins::Side {
  SideRows rows;
  std::vector<Piece> pieces;  ///< the device's chunk
  uint64_t size = 0;          ///< tuples to join here
  OwnedTuples received;       ///< what the devices sent
  OwnedTuples chunk;          ///< the pieces, as they came or partitioned
  std::vector<OwnedTuples> slots;
  std::array<std::unique_ptr<Event>, kArrivalSlots> slot_free;
  PartitionedTuples joined;
  std::vector<std::vector<uint64_t>> joined_offsets;

  /// Takes memory for the chunk and gives every piece its place there.
  void place_chunk(Device& device) {
    uint64_t tuples = 0;
    for (const Piece& piece : pieces) tuples += piece.in.size;
    chunk = OwnedTuples(device, rows.layout, tuples);
    uint64_t at = 0;
    for (Piece& piece : pieces) {
      piece.out = chunk.span.slice(rows.layout, at, at + piece.in.size);
      at += piece.in.size;
    }
  }

  void add_fragment(const TupleView& tuples, std::vector<uint64_t> offsets) {
    joined.fragments.push_back(tuples);
    joined_offsets.push_back(std::move(offsets));
  }
};

/// One device's part of the join. The stream comes last: it waits for its work before what that refers to goes.
struct LocalJoins::Local {
  Device* device = nullptr;
  uint32_t partitions = 1;
  Side build, probe;
  Buffer partition_scratch, match_scratch;
  std::unique_ptr<HashMatch> match;
  std::array<Buffer, kStagedParts> staged;
  std::array<std::unique_ptr<Event>, kStagedParts> emitted;
  std::unique_ptr<Stream> stream;

  std::array<Side*, 2> sides() { return {&build, &probe}; }
  bool in_place() const { return device->addresses_host_memory(); }

  /// What the chunk came through.
  void free_arrival() {
    partition_scratch = Buffer();
    for (Side* side : sides()) side->slots.clear();
  }
};

/// What is written of each row.
struct LocalJoins::Column {
  void* JoinOutput::*data;
  uint8_t width;
};

LocalJoins::LocalJoins(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe,
                       HashCut cut, bool count_only, Job& job)
    : engine_(engine), build_(build), probe_(probe), cut_(cut), count_only_(count_only), job_(job) {
  for (Device* device : devices) {
    auto& local = *locals_.emplace_back(std::make_unique<Local>());
    local.device = device;
    for (auto& event : local.emitted) event = device->create_event();
    for (Side* side : local.sides()) {
      for (auto& event : side->slot_free) event = device->create_event();
    }
    local.stream = device->create_stream();
  }
  const size_t g = devices.size();
  for (size_t d = 0; d < g; ++d) {
    Local& local = *locals_[d];
    local.partitions = partitions_of(cut, g, d);
    const auto plan = [&](Side& side, const Relation& relation, bool whole) {
      const uint64_t rows = relation.size();
      side.rows = SideRows::planned(*local.device, relation.layout, rows, g, cut, whole);
      side.joined.layout = relation.layout;
      const uint64_t begin = whole ? 0 : share_begin(rows, g, d), end = whole ? rows : share_begin(rows, g, d + 1);
      side.pieces = cut_pieces(relation, begin, end, side.rows.piece);
      side.size = end - begin;
    };
    plan(local.build, build_, cut.replicate);
    plan(local.probe, probe_, false);
  }
}

LocalJoins::~LocalJoins() {
  for (const auto& local : locals_) local->stream.reset();  // all work ends before any memory that it uses goes
}

size_t LocalJoins::device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                                HashCut cut, bool count_only, Device& device) {
  const SideRows b = SideRows::planned(device, build, build_rows, devices, cut, cut.replicate);
  const SideRows p = SideRows::planned(device, probe, probe_rows, devices, cut, false);
  size_t most = 0;
  for (const size_t owner : {size_t{0}, devices - 1}) {  // with the most partitions, and with the fewest
    most = std::max(most, local_bytes(device, b, p, partitions_of(cut, devices, owner), devices, cut, count_only));
  }
  return most;
}

void LocalJoins::run() {
  if (cut_.replicate) {
    bring_whole();
  } else {
    bring_partitioned();
  }
  job_.add_done(build_.size() + probe_.size());
  match();
  uint64_t most = 0, all = 0;
  for (const auto& local : locals_) {
    const JoinTally& tally = local->match->tally();
    tally_.pairs = add_rows(tally_.pairs, tally.pairs);
    tally_.build_matched += tally.build_matched;
    tally_.probe_matched += tally.probe_matched;
    most = std::max(most, local->build.size + local->probe.size);
    all += local->build.size + local->probe.size;
  }
  if (all) skew_ = static_cast<double>(most) * static_cast<double>(locals_.size()) / static_cast<double>(all);
  job_.add_done(build_.size() + probe_.size());
}

void LocalJoins::bring_whole() {
  reserve();
  std::vector<HostQueue> queues;
  uint64_t bytes = 0;
  for (const auto& local : locals_) {
    HostQueue queue{local->device, HostQueue::Direction::to_device, {}, 1, {}};
    for (Side* side : local->sides()) {
      if (!local->in_place()) side->place_chunk(*local->device);
      for (const Piece& piece : side->pieces) {
        TupleView tuples = piece.in;
        if (!local->in_place()) {
          queue.copies.push_back(host_copy(side->rows.layout, piece.out, piece.in, nullptr));
          tuples.keys = piece.out.keys;
          if (tuples.values) tuples.values = piece.out.values;
          bytes += piece.in.size * side->rows.layout.tuple_bytes();
        }
        side->add_fragment(tuples, {0, tuples.size});
      }
    }
    if (queue.copies.empty()) continue;
    queue.depth = queue.copies.size();
    queues.push_back(std::move(queue));
  }
  if (queues.empty()) return;
  const PhaseTimer timer(job_, "copy", 2 * bytes);
  transfer(engine_, queues, job_);
}

void LocalJoins::bring_partitioned() {
  {
    const PhaseTimer timer(job_, "partition", 2 * (build_.bytes() + probe_.bytes()));
    // Keys that crowd on one device need more there than was planned; its memory can only grow while it is empty.
    do {
      reserve();
      partition();
    } while (!has_room());
  }
  if (locals_.size() > 1) return exchange();
  Local& local = *locals_[0];
  local.free_arrival();
  for (Side* side : local.sides()) {
    for (const Piece& piece : side->pieces) side->add_fragment(piece.out.view(), piece.offsets);
  }
}

void LocalJoins::reserve() {
  for (const auto& local : locals_) {
    local->free_arrival();
    for (Side* side : local->sides()) {
      side->chunk = OwnedTuples();
      side->received = OwnedTuples();
    }
  }
  for (const auto& local : locals_) {
    local->device->memory().reserve(
        local_bytes(*local->device, local->build.rows, local->probe.rows, local->partitions, locals_.size(), cut_, count_only_));
  }
}

// Takes each device's chunks to it and partitions every piece as soon as it is there.
void LocalJoins::partition() {
  std::vector<HostQueue> queues;
  for (const auto& local : locals_) {
    Device& device = *local->device;
    // What is to stay comes first: the rest makes room for the match.
    for (Side* side : local->sides()) {
      if (locals_.size() > 1) side->received = OwnedTuples(device, side->rows.layout, side->rows.joined);
    }
    size_t scratch = 0;
    for (Side* side : local->sides()) {
      side->place_chunk(device);
      const SideRows& rows = side->rows;
      scratch = std::max(scratch, device.primitives().partition_scratch_bytes(rows.layout, rows.piece, partition_digit(cut_)));
    }
    local->partition_scratch = allocate(device, scratch);
    if (local->in_place()) {
      for (Side* side : local->sides()) {
        for (Piece& piece : side->pieces) partition_piece(*local, *side, piece, piece.in);
      }
    } else {
      queues.push_back(one_after_the_other(arrival(*local, local->build), arrival(*local, local->probe)));
    }
  }
  transfer(engine_, queues, job_);
  wait();
}

HostQueue LocalJoins::arrival(Local& local, Side& side) {
  for (size_t s = 0; s < kArrivalSlots; ++s) side.slots.emplace_back(*local.device, side.rows.layout, side.rows.piece);
  return arrival_of(*local.device, side.rows.layout, side.pieces, side.slots, side.slot_free, *local.stream,
                    [&](Piece& piece, const TupleView& arrived) { partition_piece(local, side, piece, arrived); });
}

void LocalJoins::partition_piece(Local& local, const Side& side, Piece& piece, const TupleView& arrived) {
  const Digit digit = partition_digit(cut_);
  piece.offsets.assign(digit.count() + 1, 0);
  local.device->primitives().partition(side.rows.layout, arrived, digit, piece.out, piece.offsets.data(),
                                       local.partition_scratch.data(), job_, *local.stream);
}

/// Counts what each device will join; where that is more than was reserved for, plans for it and returns false.
bool LocalJoins::has_room() {
  bool room = true;
  const size_t g = locals_.size();
  for (size_t owner = 0; owner < g; ++owner) {
    const uint32_t first = partition_begin(cut_, g, owner), last = partition_begin(cut_, g, owner + 1);
    Local& local = *locals_[owner];
    for (Side Local::*side : {&Local::build, &Local::probe}) {
      uint64_t size = 0;
      for (const auto& from : locals_) {
        for (const Piece& piece : ((*from).*side).pieces) size += piece.offsets[last] - piece.offsets[first];
      }
      (local.*side).size = size;
    }
    if (local.build.size <= local.build.rows.joined && local.probe.size <= local.probe.rows.joined) continue;
    for (Side* side : local.sides()) side->rows.joined = side->size;
    room = false;
  }
  return room;
}

// Sends all pieces' partitions to their owners.
void LocalJoins::exchange() {
  struct Parcel {
    size_t owner;
    TupleLayout layout;
    TupleSpan target, source;
  };
  const size_t g = locals_.size();
  std::vector<std::vector<Parcel>> parcels(g);  // of each sender, by owner
  for (size_t owner = 0; owner < g; ++owner) {
    const uint32_t first = partition_begin(cut_, g, owner), last = partition_begin(cut_, g, owner + 1);
    for (Side Local::*side : {&Local::build, &Local::probe}) {
      Side& to = (*locals_[owner]).*side;
      const TupleLayout layout = to.rows.layout;
      uint64_t at = 0;
      for (size_t sender = 0; sender < g; ++sender) {
        for (const Piece& piece : ((*locals_[sender]).*side).pieces) {
          std::vector<uint64_t> offsets(&piece.offsets[first], &piece.offsets[last] + 1);
          const uint64_t begin = offsets.front(), rows = offsets.back() - begin;
          if (rows == 0) continue;
          for (uint64_t& offset : offsets) offset -= begin;
          const TupleSpan target = to.received.span.slice(layout, at, at + rows);
          parcels[sender].push_back({owner, layout, target, piece.out.slice(layout, begin, begin + rows)});
          to.add_fragment(target.view(), std::move(offsets));
          at += rows;
        }
      }
    }
  }
  const PhaseTimer timer(job_, "exchange", 2 * (build_.bytes() + probe_.bytes()));
  engine_.pool.parallel_for(g, [&](uint64_t sender) {
    Device& device = *locals_[sender]->device;
    Stream& stream = *locals_[sender]->stream;
    std::vector<Parcel>& own = parcels[sender];
    // Owner by owner in a different order for each, so that no two send to the same owner at first.
    std::rotate(own.begin(), std::find_if(own.begin(), own.end(), [&](const Parcel& parcel) { return parcel.owner >= sender; }),
                own.end());
    for (const Parcel& parcel : own) {
      Device& owner = *locals_[parcel.owner]->device;
      const TupleSpan &target = parcel.target, &source = parcel.source;
      device.copy_to_peer(target.keys, owner, source.keys, source.size * parcel.layout.key_bytes, stream);
      if (parcel.layout.value_bytes) {
        device.copy_to_peer(target.values, owner, source.values, source.size * parcel.layout.value_bytes, stream);
      }
    }
  });
  wait();
  for (const auto& local : locals_) {
    local->free_arrival();
    for (Side* side : local->sides()) side->chunk = OwnedTuples();
  }
}

void LocalJoins::match() {
  const PhaseTimer timer(job_, "match", build_.size() * build_.layout.key_bytes + probe_.size() * probe_.layout.key_bytes);
  for (const auto& local : locals_) start_match(*local);
  wait();
  for (bool going = true; going;) {
    going = false;
    for (const auto& local : locals_) {
      if (local->device->primitives().hash_match_goes_on(*local->match, job_, *local->stream)) going = true;
    }
    if (going) wait();
  }
}

void LocalJoins::start_match(Local& local) {
  for (Side* side : local.sides()) {
    if (side->joined.fragments.empty()) side->add_fragment({}, std::vector<uint64_t>(local.partitions + 1));
    for (const std::vector<uint64_t>& offsets : side->joined_offsets) side->joined.host_offsets.push_back(offsets.data());
  }
  Primitives& primitives = local.device->primitives();
  local.match_scratch =
      allocate(*local.device, primitives.hash_match_scratch_bytes(build_.layout, local.build.size, probe_.layout,
                                                                  local.probe.size, local.partitions, count_only_));
  const uint32_t common_bits = cut_.round_bits + (cut_.replicate ? 0 : cut_.partition_bits);
  local.match = primitives.hash_match(local.build.joined, local.probe.joined, local.partitions, common_bits, count_only_,
                                      local.match_scratch.data(), job_, *local.stream);
}

void LocalJoins::wait() {
  std::vector<Stream*> streams;
  for (const auto& local : locals_) streams.push_back(local->stream.get());
  synchronize_all(streams);
  job_.check();
}

uint64_t LocalJoins::rows_of(const Local& local, JoinEmit what) const {
  const JoinTally& tally = local.match->tally();
  switch (what) {
    case JoinEmit::pairs: return tally.pairs;
    case JoinEmit::build_matched: return tally.build_matched;
    case JoinEmit::build_unmatched: return local.build.size - tally.build_matched;
    case JoinEmit::probe_matched: return tally.probe_matched;
    case JoinEmit::probe_unmatched: return local.probe.size - tally.probe_matched;
  }
  return 0;
}

void LocalJoins::emit(JoinEmit what, JoinOutput host_out) {
  try {
    emit_columns(what, host_out);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    try {
      wait();
    } catch (...) {  // the first error counts
    }
    std::rethrow_exception(error);
  }
}

void LocalJoins::emit_columns(JoinEmit what, JoinOutput host_out) {
  std::vector<Column> columns{{&JoinOutput::keys, build_.layout.key_bytes},
                              {&JoinOutput::build_values, build_.layout.value_bytes},
                              {&JoinOutput::probe_values, probe_.layout.value_bytes}};
  std::erase_if(columns, [&](const Column& column) { return !(host_out.*column.data); });
  if (columns.empty()) return;
  uint64_t row_bytes = 0, rows = 0;
  for (const Column& column : columns) row_bytes += column.width;
  for (const auto& local : locals_) rows += rows_of(*local, what);
  const PhaseTimer timer(job_, "write", rows * row_bytes);
  std::vector<HostQueue> queues;
  for (const auto& local : locals_) {
    const uint64_t own = rows_of(*local, what);
    if (local->in_place()) {
      local->device->primitives().hash_emit(*local->match, what, 0, own, host_out, job_, *local->stream);
    } else if (own) {
      queues.push_back(way_home(*local, what, columns, host_out));
    }
    for (const Column& column : columns) host_out.*column.data = static_cast<char*>(host_out.*column.data) + own * column.width;
  }
  transfer(engine_, queues, job_);
  wait();
  for (const auto& local : locals_) {
    for (Buffer& part : local->staged) part = Buffer();
  }
}

// Through what is left of the device's memory.
HostQueue LocalJoins::way_home(Local& local, JoinEmit what, const std::vector<Column>& columns, JoinOutput host_out) {
  StackAllocator& memory = local.device->memory();
  const uint64_t all = rows_of(local, what);
  uint64_t row_bytes = 0;
  for (const Column& column : columns) row_bytes += column.width;
  const size_t room = std::min(kStagedBytes, memory.reserved_bytes() - memory.used_bytes()) / kStagedParts;
  const uint64_t part_rows = std::min<uint64_t>(all, (room - (columns.size() + 1) * StackAllocator::kAlignment) / row_bytes);
  std::array<JoinOutput, kStagedParts> staged;
  for (size_t s = 0; s < kStagedParts; ++s) {
    local.staged[s] = memory.allocate(part_rows * row_bytes + columns.size() * StackAllocator::kAlignment);
    char* at = local.staged[s].as<char>();
    for (const Column& column : columns) {
      staged[s].*column.data = at;
      at += StackAllocator::aligned(part_rows * column.width);
    }
  }
  HostQueue queue{local.device, HostQueue::Direction::to_host, {}, kStagedParts, {}};
  for (uint64_t first = 0; first < all; first += part_rows) {
    const size_t part = queue.copies.size() % kStagedParts;
    HostCopy& copy = queue.copies.emplace_back();
    copy.after = local.emitted[part].get();
    for (const Column& column : columns) {
      copy.stretches.push_back({static_cast<char*>(host_out.*column.data) + first * column.width, staged[part].*column.data,
                                std::min(part_rows, all - first) * column.width});
    }
  }
  const auto emit_part = [this, &local, what, all, part_rows, staged](size_t part) {
    const uint64_t first = part * part_rows;
    if (first >= all) return;
    local.device->primitives().hash_emit(*local.match, what, first, std::min(part_rows, all - first), staged[part % kStagedParts],
                                         job_, *local.stream);
    local.stream->record(*local.emitted[part % kStagedParts]);
  };
  for (size_t part = 0; part < kStagedParts; ++part) emit_part(part);
  queue.enqueued = [&local, emit_part](size_t part, std::span<Event* const> done) {
    for (Event* event : done) local.stream->wait(*event);
    emit_part(part + kStagedParts);
  };
  return queue;
}

}  // namespace warpjoin
