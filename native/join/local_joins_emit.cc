// The rows of a join on their way from the devices, or to other memory there.
#include <algorithm>
#include <exception>
#include <utility>

#include "join/join_rows.h"
#include "join/local_joins_parts.h"

namespace warpjoin {
namespace {

uint64_t rows_of(const LocalJoins::Found& found, JoinEmit what) {
  switch (what) {
    case JoinEmit::pairs: return found.tally.pairs;
    case JoinEmit::build_matched: return found.tally.build_matched;
    case JoinEmit::build_unmatched: return found.build_rows - found.tally.build_matched;
    case JoinEmit::probe_matched: return found.tally.probe_matched;
    case JoinEmit::probe_unmatched: return found.probe_rows - found.tally.probe_matched;
  }
  return 0;
}

}  // namespace

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
  const std::vector<RowColumn> columns = columns_in(host_out, build_.layout, probe_.layout);
  if (columns.empty()) return;
  const uint64_t row_bytes = row_bytes_of(columns);
  uint64_t rows = 0;
  for (size_t d = 0; d < locals_.size(); ++d) rows += rows_of(found(d), what);
  const PhaseTimer timer(job_, "write", rows * row_bytes);
  std::vector<HostQueue> queues;
  for (size_t d = 0; d < locals_.size(); ++d) {
    Local& local = *locals_[d];
    const uint64_t own = rows_of(found(d), what);
    if (local.in_place()) {
      emit_there(d, what, host_out);
    } else if (own) {
      queues.push_back(way_home(local, what, columns, host_out));
    }
    for (const RowColumn& column : columns)
      host_out.*column.data = static_cast<char*>(host_out.*column.data) + own * column.width;
  }
  transfer(engine_, queues, job_);
  wait();
  for (const auto& local : locals_) {
    for (Buffer& part : local->staged) part = Buffer();
  }
}

// Through what is left of the device's memory.
HostQueue LocalJoins::way_home(Local& local, JoinEmit what, const std::vector<RowColumn>& columns, JoinOutput host_out) {
  struct Stretch {
    size_t part;
    uint64_t first, rows, at;
  };
  StackAllocator& memory = local.device->memory();
  const uint64_t row_bytes = row_bytes_of(columns);
  uint64_t most = 0;
  for (size_t p = 0; p < parts_; ++p) most = std::max(most, rows_of(local.found(p), what));
  const size_t room = std::min(kMostStagedBytes, memory.room_bytes()) / kHomeParts;
  const uint64_t staged_rows = std::min<uint64_t>(most, (room - (columns.size() + 1) * StackAllocator::kAlignment) / row_bytes);
  std::array<JoinOutput, kHomeParts> staged;
  for (size_t s = 0; s < kHomeParts; ++s) {
    local.staged[s] = memory.allocate(staged_rows * row_bytes + columns.size() * StackAllocator::kAlignment);
    char* at = local.staged[s].as<char>();
    for (const RowColumn& column : columns) {
      staged[s].*column.data = at;
      at += StackAllocator::aligned(staged_rows * column.width);
    }
  }
  std::vector<Stretch> stretches;
  uint64_t at = 0;
  for (size_t p = 0; p < parts_; ++p) {
    const uint64_t all = rows_of(local.found(p), what);
    for (uint64_t first = 0; first < all; first += staged_rows) {
      stretches.push_back({p, first, std::min(staged_rows, all - first), at});
      at += stretches.back().rows;
    }
  }
  HostQueue queue{local.device, HostQueue::Direction::to_host, {}, kHomeParts, {}};
  for (const Stretch& stretch : stretches) {
    const size_t slot = queue.copies.size() % kHomeParts;
    HostCopy& copy = queue.copies.emplace_back();
    copy.after = local.emitted[slot].get();
    for (const RowColumn& column : columns) {
      copy.stretches.push_back({static_cast<char*>(host_out.*column.data) + stretch.at * column.width, staged[slot].*column.data,
                                stretch.rows * column.width});
    }
  }
  const auto emit_stretch = [this, &local, what, staged, stretches = std::move(stretches)](size_t s) {
    if (s >= stretches.size()) return;
    const Stretch& stretch = stretches[s];
    local.device->primitives().hash_emit(*local.matches[stretch.part].found, what, stretch.first, stretch.rows,
                                         staged[s % kHomeParts], job_, *local.stream);
    local.stream->record(*local.emitted[s % kHomeParts]);
  };
  for (size_t s = 0; s < kHomeParts; ++s) emit_stretch(s);
  queue.enqueued = [&local, emit_stretch](size_t s, std::span<Event* const> done) {
    for (Event* event : done) local.stream->wait(*event);
    emit_stretch(s + kHomeParts);
  };
  return queue;
}

void LocalJoins::emit_there(size_t device, JoinEmit what, JoinOutput out, uint64_t first) {
  Local& local = *locals_[device];
  const auto past = [](void* column, uint64_t rows, uint8_t width) {
    return column ? static_cast<char*>(column) + rows * width : nullptr;
  };
  for (const Local::Match& match : local.matches) {
    if (match.found->written()) first -= match.found->tally().pairs;
  }
  for (size_t p = 0; p < parts_; ++p) {
    const HashMatch& match = *local.matches[p].found;
    if (match.written()) continue;
    const uint64_t all = rows_of(local.found(p), what), skipped = std::min(first, all), rows = all - skipped;
    first -= skipped;
    local.device->primitives().hash_emit(match, what, skipped, rows, out, job_, *local.stream);
    out = {past(out.keys, rows, build_.layout.key_bytes), past(out.build_values, rows, build_.layout.value_bytes),
           past(out.probe_values, rows, probe_.layout.value_bytes)};
  }
}

void LocalJoins::fill_missing(size_t device, void* out, size_t bytes) {
  locals_[device]->device->fill(out, 0xFF, bytes, *locals_[device]->stream);
}

void LocalJoins::copy_there(size_t device, void* target, const void* source, size_t bytes) {
  locals_[device]->device->copy(target, source, bytes, *locals_[device]->stream);
}

}  // namespace warpjoin
