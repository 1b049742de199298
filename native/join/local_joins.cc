#include "join/local_joins.h"

#include <algorithm>
#include <bit>
#include <exception>

#include "device/streams.h"
#include "join/join_rows.h"

namespace warpjoin {
namespace {

constexpr uint64_t kPartitionRows = 12 << 10;  // build rows: a table of less than half a megabyte
constexpr uint64_t kWholeRows = 128 << 10;     // build rows that are not partitioned: prefetching hides the third-level cache
constexpr uint32_t kMostBits = 12;             // of one partitioning pass

Digit partition_digit(HashCut cut) {
  return {static_cast<uint8_t>(64 - cut.round_bits - cut.partition_bits), static_cast<uint8_t>(cut.partition_bits), true};
}

constexpr size_t kStagedBytes = 64 << 20;  // for results on their way from devices that don't address host memory

uint64_t chunk_begin(uint64_t rows, size_t chunk, size_t chunks) {
  return rows / chunks * chunk + std::min<uint64_t>(chunk, rows % chunks);
}

size_t tuples_bytes(TupleLayout layout, uint64_t rows) {
  return StackAllocator::aligned(std::max<uint64_t>(rows * layout.key_bytes, 1)) +
         StackAllocator::aligned(std::max<uint64_t>(rows * layout.value_bytes, 1));
}

size_t scratch_bytes(size_t bytes) { return StackAllocator::aligned(std::max<size_t>(bytes, 1)); }

}  // namespace

uint32_t partition_bits_for(uint64_t build_rows) {
  if (build_rows <= kWholeRows) return 0;
  return std::min<uint32_t>(kMostBits, static_cast<uint32_t>(std::bit_width((build_rows - 1) / kPartitionRows)));
}

/// Tuples in device memory.
struct LocalJoins::Tuples {
  Buffer keys, values;
  TupleSpan span;

  void allocate(Device& device, TupleLayout layout, uint64_t rows) {
    keys = device.memory().allocate(rows * layout.key_bytes);
    values = device.memory().allocate(rows * layout.value_bytes);
    span = {keys.data(), layout.value_bytes ? values.data() : nullptr, rows};
  }

  /// The tuples of host memory as the device sees them: themselves, or a copy. Implied values stay implied.
  TupleView fetch(Device& device, TupleLayout layout, TupleView host, Stream& stream) {
    if (device.addresses_host_memory()) return host;
    keys = device.memory().allocate(host.size * layout.key_bytes);
    device.copy(keys.data(), host.keys, host.size * layout.key_bytes, stream);
    TupleView view{keys.data(), nullptr, host.first_value, host.size};
    if (host.values && layout.value_bytes) {
      values = device.memory().allocate(host.size * layout.value_bytes);
      device.copy(values.data(), host.values, host.size * layout.value_bytes, stream);
      view.values = values.data();
    }
    return view;
  }
};

/// One device's part of the join.
struct LocalJoins::Local {
  struct Relations {
    Relation chunk;                 ///< this device's rows of the relation in host memory
    Tuples fetched, parted, owned;  ///< in device memory: a copy of it, the chunk by partitions, and what was received
    std::vector<uint64_t> parted_offsets;
    PartitionedTuples joined;
    std::vector<std::vector<uint64_t>> joined_offsets;
    uint64_t rows = 0;  ///< tuples to join here
  };

  Device* device;
  Relations build, probe;
  Buffer partition_scratch, match_scratch;
  std::unique_ptr<HashMatch> match;
  Buffer staged[2];  ///< rows on their way to host memory, one part for each stream
  std::unique_ptr<Event> sent;
  std::unique_ptr<Stream> stream, second_stream;
};

LocalJoins::LocalJoins(Engine& engine, std::span<Device* const> devices, Relation build, Relation probe, HashCut cut,
                       bool count_only, Job& job)
    : engine_(engine), build_(build), probe_(probe), cut_(cut), count_only_(count_only), job_(job) {
  for (size_t d = 0; d < devices.size(); ++d) {
    const auto chunk = [&](const Relation& relation) {
      return Relation{relation.layout, relation.view.slice(relation.layout, chunk_begin(relation.view.size, d, devices.size()),
                                                           chunk_begin(relation.view.size, d + 1, devices.size()))};
    };
    auto local = std::make_unique<Local>();
    local->device = devices[d];
    local->build.chunk = cut.replicate ? build : chunk(build);
    local->probe.chunk = chunk(probe);
    local->sent = devices[d]->create_event();
    local->stream = devices[d]->create_stream();
    locals_.push_back(std::move(local));
  }
}

LocalJoins::~LocalJoins() {
  for (const auto& local : locals_) {  // all work ends before any memory that it uses goes
    local->stream.reset();
    local->second_stream.reset();
  }
}

size_t LocalJoins::device_bytes(TupleLayout build, uint64_t build_rows, TupleLayout probe, uint64_t probe_rows, size_t devices,
                                HashCut cut, bool count_only, Device& device) {
  Primitives& primitives = device.primitives();
  const bool host = device.addresses_host_memory();
  const uint32_t partitions =
      cut.replicate ? 1 : std::max<uint32_t>(1, (1u << cut.partition_bits) / static_cast<uint32_t>(devices));
  const uint64_t b = cut.replicate ? build_rows : chunk_begin(build_rows, 1, devices);
  const uint64_t p = chunk_begin(probe_rows, 1, devices);
  const size_t fetched = host ? 0 : tuples_bytes(build, b) + tuples_bytes(probe, p);
  const size_t match = scratch_bytes(primitives.hash_match_scratch_bytes(build, b, probe, p, partitions, count_only));
  const size_t out = host || count_only ? 0 : kStagedBytes;
  if (cut.replicate) return fetched + match + out;
  const Digit digit = partition_digit(cut);
  const size_t parted = tuples_bytes(build, b) + tuples_bytes(probe, p) +
                        scratch_bytes(std::max(primitives.partition_scratch_bytes(build, b, digit),
                                               primitives.partition_scratch_bytes(probe, p, digit)));
  // An eighth and some more than the mean for the devices that get more than others.
  const size_t owned = devices == 1 ? 0 : tuples_bytes(build, b + b / 8 + 4096) + tuples_bytes(probe, p + p / 8 + 4096);
  return parted + std::max(fetched, owned + (devices == 1 ? match : match + match / 8) + out);
}

void LocalJoins::run() {
  if (cut_.replicate) {
    match_replicated();
  } else {
    match_partitioned();
  }
  {
    const PhaseTimer timer(job_, locals_.size() > 1 && !cut_.replicate ? "exchange and match" : "match",
                           build_.view.size * build_.layout.key_bytes + probe_.view.size * probe_.layout.key_bytes);
    synchronize();
    for (bool going = true; going;) {
      going = false;
      for (const auto& local : locals_) {
        if (local->device->primitives().hash_match_goes_on(*local->match, job_, *local->stream)) going = true;
      }
      if (going) synchronize();
    }
  }
  uint64_t most = 0, all = 0;
  for (const auto& local : locals_) {
    const JoinTally& tally = local->match->tally();
    tally_.pairs = add_rows(tally_.pairs, tally.pairs);
    tally_.build_matched += tally.build_matched;
    tally_.probe_matched += tally.probe_matched;
    most = std::max(most, local->build.rows + local->probe.rows);
    all += local->build.rows + local->probe.rows;
  }
  if (all) skew_ = static_cast<double>(most) * static_cast<double>(locals_.size()) / static_cast<double>(all);
  job_.add_done(build_.view.size + probe_.view.size);
}

void LocalJoins::match_replicated() {
  for (const auto& local : locals_) {
    const uint64_t b = local->build.chunk.view.size, p = local->probe.chunk.view.size;
    local->device->memory().reserve(device_bytes(build_.layout, b, probe_.layout, p, 1, cut_, count_only_, *local->device));
    for (Local::Relations* side : {&local->build, &local->probe}) {
      const TupleLayout layout = side->chunk.layout;
      side->joined = {layout, {side->fetched.fetch(*local->device, layout, side->chunk.view, *local->stream)}, {}};
      side->joined_offsets = {{0, side->chunk.view.size}};
      side->rows = side->chunk.view.size;
    }
    start_match(*local, 1);
  }
  job_.add_done(build_.view.size + probe_.view.size);
}

void LocalJoins::match_partitioned() {
  std::vector<size_t> need;
  for (const auto& local : locals_) {
    need.push_back(device_bytes(build_.layout, build_.view.size, probe_.layout, probe_.view.size, locals_.size(), cut_,
                                count_only_, *local->device));
  }
  for (bool again = true; again;) {
    const PhaseTimer timer(job_, "partition",
                           2 * (build_.view.size * build_.layout.tuple_bytes() + probe_.view.size * probe_.layout.tuple_bytes()));
    reserve(need);
    partition();
    again = false;
    // Keys that crowd on one device need more there than was planned; its memory can only grow while it is empty.
    const std::vector<size_t> exact = bytes_to_match();
    for (size_t d = 0; d < locals_.size(); ++d) {
      if (exact[d] <= locals_[d]->device->memory().reserved_bytes()) continue;
      need[d] = std::max(need[d], exact[d]);
      again = true;
    }
  }
  job_.add_done(build_.view.size + probe_.view.size);
  if (locals_.size() > 1) return exchange();
  Local& local = *locals_[0];
  for (Local::Relations* side : {&local.build, &local.probe}) {
    side->joined = {side->chunk.layout, {side->parted.span.view()}, {}};
    side->joined_offsets = {side->parted_offsets};
  }
  start_match(local, 1u << cut_.partition_bits);
}

void LocalJoins::reserve(std::span<const size_t> bytes) {
  for (const auto& local : locals_) {
    for (Local::Relations* side : {&local->build, &local->probe})
      for (Tuples* tuples : {&side->fetched, &side->parted, &side->owned}) *tuples = Tuples();
    local->partition_scratch = Buffer();
  }
  for (size_t d = 0; d < locals_.size(); ++d) locals_[d]->device->memory().reserve(bytes[d]);
}

void LocalJoins::partition() {
  const Digit digit = partition_digit(cut_);
  for (const auto& local : locals_) {
    Device& device = *local->device;
    size_t scratch = 0;
    for (Local::Relations* side : {&local->build, &local->probe}) {
      side->parted.allocate(device, side->chunk.layout, side->chunk.view.size);
      side->parted_offsets.assign(digit.count() + 1, 0);
      scratch = std::max(scratch, device.primitives().partition_scratch_bytes(side->chunk.layout, side->chunk.view.size, digit));
    }
    local->partition_scratch = device.memory().allocate(scratch);
    for (Local::Relations* side : {&local->build, &local->probe}) {
      const TupleView chunk = side->fetched.fetch(device, side->chunk.layout, side->chunk.view, *local->stream);
      device.primitives().partition(side->chunk.layout, chunk, digit, side->parted.span, side->parted_offsets.data(),
                                    local->partition_scratch.data(), job_, *local->stream);
    }
  }
  synchronize();
  for (const auto& local : locals_) {
    for (Local::Relations* side : {&local->build, &local->probe}) {
      side->fetched = Tuples();
      side->rows = 0;
    }
  }
  const size_t g = locals_.size();
  for (size_t owner = 0; owner < g; ++owner) {
    const uint64_t first = chunk_begin(digit.count(), owner, g), last = chunk_begin(digit.count(), owner + 1, g);
    for (const auto& from : locals_) {
      locals_[owner]->build.rows += from->build.parted_offsets[last] - from->build.parted_offsets[first];
      locals_[owner]->probe.rows += from->probe.parted_offsets[last] - from->probe.parted_offsets[first];
    }
  }
}

std::vector<size_t> LocalJoins::bytes_to_match() const {
  std::vector<size_t> bytes;
  const size_t g = locals_.size();
  for (size_t d = 0; d < g; ++d) {
    const Local& local = *locals_[d];
    const auto partitions =
        static_cast<uint32_t>(chunk_begin(1u << cut_.partition_bits, d + 1, g) - chunk_begin(1u << cut_.partition_bits, d, g));
    const size_t owned =
        g == 1 ? 0 : tuples_bytes(build_.layout, local.build.rows) + tuples_bytes(probe_.layout, local.probe.rows);
    const size_t out = local.device->addresses_host_memory() || count_only_ ? 0 : kStagedBytes;
    bytes.push_back(local.device->memory().used_bytes() + owned + out +
                    scratch_bytes(local.device->primitives().hash_match_scratch_bytes(
                        build_.layout, local.build.rows, probe_.layout, local.probe.rows, partitions, count_only_)));
  }
  return bytes;
}

void LocalJoins::exchange() {
  const size_t g = locals_.size();
  const uint32_t partitions = 1u << cut_.partition_bits;
  for (const auto& local : locals_) {
    local->build.owned.allocate(*local->device, build_.layout, local->build.rows);
    local->probe.owned.allocate(*local->device, probe_.layout, local->probe.rows);
  }
  // Sender by sender in a different order for each, so that no two send to the same owner at first.
  for (size_t sender = 0; sender < g; ++sender) {
    Local& from = *locals_[sender];
    for (size_t step = 0; step < g; ++step) {
      const size_t owner = (sender + step) % g;
      Local& to = *locals_[owner];
      const uint64_t first = chunk_begin(partitions, owner, g), last = chunk_begin(partitions, owner + 1, g);
      for (Local::Relations Local::*side : {&Local::build, &Local::probe}) {
        const TupleLayout layout = (from.*side).chunk.layout;
        uint64_t at = 0;
        for (size_t s = 0; s < sender; ++s) {
          const std::vector<uint64_t>& offsets = (locals_[s].get()->*side).parted_offsets;
          at += offsets[last] - offsets[first];
        }
        const std::vector<uint64_t>& offsets = (from.*side).parted_offsets;
        const uint64_t rows = offsets[last] - offsets[first];
        const TupleSpan target = (to.*side).owned.span.slice(layout, at, at + rows);
        const TupleSpan source = (from.*side).parted.span.slice(layout, offsets[first], offsets[last]);
        from.device->copy_to_peer(target.keys, *to.device, source.keys, rows * layout.key_bytes, *from.stream);
        if (layout.value_bytes) {
          from.device->copy_to_peer(target.values, *to.device, source.values, rows * layout.value_bytes, *from.stream);
        }
        (to.*side).joined.layout = layout;
        (to.*side).joined.fragments.push_back(target.view());
        std::vector<uint64_t>& rebased = (to.*side).joined_offsets.emplace_back(offsets.begin() + static_cast<int64_t>(first),
                                                                                offsets.begin() + static_cast<int64_t>(last) + 1);
        for (uint64_t& offset : rebased) offset -= offsets[first];
      }
    }
    from.stream->record(*from.sent);
  }
  for (size_t owner = 0; owner < g; ++owner) {
    for (const auto& sender : locals_) locals_[owner]->stream->wait(*sender->sent);
    start_match(*locals_[owner],
                static_cast<uint32_t>(chunk_begin(partitions, owner + 1, g) - chunk_begin(partitions, owner, g)));
  }
}

void LocalJoins::start_match(Local& local, uint32_t partitions) {
  for (Local::Relations* side : {&local.build, &local.probe}) {
    for (const std::vector<uint64_t>& offsets : side->joined_offsets) side->joined.host_offsets.push_back(offsets.data());
  }
  Primitives& primitives = local.device->primitives();
  local.match_scratch = local.device->memory().allocate(primitives.hash_match_scratch_bytes(
      build_.layout, local.build.rows, probe_.layout, local.probe.rows, partitions, count_only_));
  const uint32_t common_bits = cut_.round_bits + (cut_.replicate ? 0 : cut_.partition_bits);
  local.match = primitives.hash_match(local.build.joined, local.probe.joined, partitions, common_bits, count_only_,
                                      local.match_scratch.data(), job_, *local.stream);
}

void LocalJoins::synchronize() {
  std::vector<Stream*> streams;
  for (const auto& local : locals_) {
    for (Stream* stream : {local->stream.get(), local->second_stream.get()}) {
      if (stream) streams.push_back(stream);
    }
  }
  synchronize_all(streams);
}

uint64_t LocalJoins::rows_of(const Local& local, JoinEmit what) const {
  const JoinTally& tally = local.match->tally();
  switch (what) {
    case JoinEmit::pairs: return tally.pairs;
    case JoinEmit::build_matched: return tally.build_matched;
    case JoinEmit::build_unmatched: return local.build.rows - tally.build_matched;
    case JoinEmit::probe_matched: return tally.probe_matched;
    case JoinEmit::probe_unmatched: return local.probe.rows - tally.probe_matched;
  }
  return 0;
}

void LocalJoins::emit(JoinEmit what, JoinOutput host_out) {
  try {
    emit_columns(what, host_out);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    try {
      synchronize();
    } catch (...) {  // the first error counts
    }
    std::rethrow_exception(error);
  }
}

void LocalJoins::emit_columns(JoinEmit what, JoinOutput host_out) {
  struct Column {
    void* JoinOutput::*data;
    uint8_t width;
  };
  std::vector<Column> columns{{&JoinOutput::keys, build_.layout.key_bytes},
                              {&JoinOutput::build_values, build_.layout.value_bytes},
                              {&JoinOutput::probe_values, probe_.layout.value_bytes}};
  std::erase_if(columns, [&](const Column& column) { return !(host_out.*column.data); });
  if (columns.empty()) return;
  uint64_t row_bytes = 0, rows = 0;
  for (const Column& column : columns) row_bytes += column.width;
  std::vector<JoinOutput> outputs;
  for (const auto& local : locals_) {
    JoinOutput& out = outputs.emplace_back();
    for (const Column& column : columns) out.*column.data = static_cast<char*>(host_out.*column.data) + rows * column.width;
    rows += rows_of(*local, what);
  }
  const PhaseTimer timer(job_, "write", rows * row_bytes);
  for (size_t d = 0; d < locals_.size(); ++d) {
    Local& local = *locals_[d];
    const uint64_t all = rows_of(local, what);
    if (local.device->addresses_host_memory()) {
      local.device->primitives().hash_emit(*local.match, what, 0, all, outputs[d], job_, *local.stream);
      continue;
    }
    // Through what is left of the device's memory: while one part is copied, the other is written.
    const StackAllocator& memory = local.device->memory();
    const uint64_t room = (memory.reserved_bytes() - memory.used_bytes()) / 2 / StackAllocator::kAlignment;
    const uint64_t most = room > 4 ? (room - 4) * StackAllocator::kAlignment / row_bytes : 1;
    const uint64_t rows_a_part = std::min(most, all);
    if (!local.second_stream) local.second_stream = local.device->create_stream();
    for (Buffer& part : local.staged) {
      part = local.device->memory().allocate(rows_a_part * row_bytes + columns.size() * StackAllocator::kAlignment);
    }
    bool second = false;
    for (uint64_t first = 0; first < all; first += rows_a_part, second = !second) {
      const uint64_t part_rows = std::min(rows_a_part, all - first);
      Stream& stream = second ? *local.second_stream : *local.stream;
      char* at = local.staged[second].as<char>();
      JoinOutput out;
      for (const Column& column : columns) {
        out.*column.data = at;
        at += StackAllocator::aligned(rows_a_part * column.width);
      }
      local.device->primitives().hash_emit(*local.match, what, first, part_rows, out, job_, stream);
      for (const Column& column : columns) {
        local.device->copy(static_cast<char*>(outputs[d].*column.data) + first * column.width, out.*column.data,
                           part_rows * column.width, stream);
      }
    }
  }
  synchronize();
  for (const auto& local : locals_) {
    for (Buffer& part : local->staged) part = Buffer();
  }
}

}  // namespace warpjoin
