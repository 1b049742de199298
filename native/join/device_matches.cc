#include "join/device_matches.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "join/join_rows.h"
#include "join/kept_rows.h"

namespace warpjoin {
namespace {

uint64_t rows_of(const DeviceMatches::Found& found, JoinEmit what) {
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

DeviceMatches::DeviceMatches(Engine& engine, std::span<Device* const> devices, const Relation& build, const Relation& probe,
                             HashCut cut, bool count_only, Job& job, KeptRows* kept)
    : engine_(engine),
      job_(job),
      kept_(kept),
      exchange_(engine, devices, build, probe, cut, count_only, job),
      lanes_(devices, 1, [](Device& device, size_t) { return OnDevice{create_events(device, kHomeParts)}; }) {}

void DeviceMatches::run() {
  exchange_.bring();
  {
    const PhaseTimer timer(job_, "match", exchange_.key_bytes());
    // All devices at once, as a match is many launches.
    engine_.pool.parallel_for(lanes_.size(), [&](uint64_t d) { match_device(d); });
    complete();
  }
  uint64_t most = 0, all = 0;
  for (size_t d = 0; d < lanes_.size(); ++d) {
    const Found own = found(d);
    tally_.pairs = add_rows(tally_.pairs, own.tally.pairs);
    tally_.build_matched += own.tally.build_matched;
    tally_.probe_matched += own.tally.probe_matched;
    most = std::max(most, own.build_rows + own.probe_rows);
    all += own.build_rows + own.probe_rows;
  }
  if (all) skew_ = static_cast<double>(most) * static_cast<double>(lanes_.size()) / static_cast<double>(all);
  job_.add_done(exchange_.rows());
}

void DeviceMatches::match_device(size_t device) {
  Lane& lane = lanes_[device];
  std::vector<JoinPart>& parts = exchange_.parts(device);
  const auto& [build, probe] = exchange_.form().layouts;
  uint64_t probe_rows = 0;
  for (const JoinPart& part : parts) probe_rows += part.sides[kProbe].size;
  lane.at_once = kept_ && kept_->takes_pairs() && lane.primitives().hash_match_writes(build, probe) &&
                 kept_->expect_at_most(device, probe_rows);
  lane.matches.resize(parts.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    exchange_.await(p, lane.stream());
    Match& match = lane.matches[p];
    match.scratch = allocate(lane.memory(), parts[p].match_bytes(lane.primitives(), exchange_.form()));
    const std::optional<JoinOutput> out =
        lane.at_once ? kept_->next_pairs(device, parts[p].sides[kProbe].size) : std::optional<JoinOutput>();
    match.found = parts[p].match(lane.primitives(), exchange_.form(), out, match.scratch.data(), job_, lane.stream());
  }
}

/// Waits for all matches, and lets those go on that decide what comes next by what they found.
void DeviceMatches::complete() {
  exchange_.wait();
  wait();
  for (bool going = true; going;) {
    going = false;
    for (Lane& lane : lanes_) {
      for (Match& match : lane.matches) going |= lane.primitives().hash_match_goes_on(*match.found, job_, lane.stream());
    }
    if (going) wait();
  }
  for (size_t d = 0; d < lanes_.size(); ++d) {
    if (!lanes_[d].at_once) continue;
    for (size_t p = 0; p < lanes_[d].matches.size(); ++p) {
      const HashMatch& match = *lanes_[d].matches[p].found;
      kept_->found(d, p, match.written() ? match.tally().pairs : 0);
    }
  }
}

DeviceMatches::Found DeviceMatches::found(size_t device, size_t part) const {
  const OfSides<JoinPart::Side>& sides = exchange_.parts(device)[part].sides;
  return {sides[kBuild].size, sides[kProbe].size, lanes_[device].matches[part].found->tally()};
}

DeviceMatches::Found DeviceMatches::found(size_t device) const {
  Found sum;
  for (size_t p = 0; p < lanes_[device].matches.size(); ++p) {
    const Found part = found(device, p);
    sum.build_rows += part.build_rows;
    sum.probe_rows += part.probe_rows;
    sum.tally.pairs = add_rows(sum.tally.pairs, part.tally.pairs);
    sum.tally.build_matched += part.tally.build_matched;
    sum.tally.probe_matched += part.tally.probe_matched;
  }
  return sum;
}

void DeviceMatches::emit(JoinEmit what, const JoinOutput& host_out) {
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

void DeviceMatches::emit_columns(JoinEmit what, JoinOutput host_out) {
  const auto& [build, probe] = exchange_.form().layouts;
  const std::vector<RowColumn> columns = columns_in(host_out, build, probe);
  if (columns.empty()) return;
  const uint64_t row_bytes = row_bytes_of(columns);
  uint64_t rows = 0;
  for (size_t d = 0; d < lanes_.size(); ++d) rows += rows_of(found(d), what);
  const PhaseTimer timer(job_, "write", rows * row_bytes);
  std::vector<HostQueue> queues;
  for (size_t d = 0; d < lanes_.size(); ++d) {
    const uint64_t own = rows_of(found(d), what);
    if (lanes_[d].device->addresses_host_memory()) {
      emit_there(d, what, host_out);
    } else if (own) {
      queues.push_back(way_home(d, what, columns, host_out));
    }
    for (const RowColumn& column : columns)
      host_out.*column.data = static_cast<char*>(host_out.*column.data) + own * column.width;
  }
  transfer(engine_, queues, job_);
  wait();
  for (Lane& lane : lanes_) {
    for (Buffer& part : lane.staged) part = Buffer();
  }
}

// Through what is left of the device's memory.
HostQueue DeviceMatches::way_home(size_t device, JoinEmit what, const std::vector<RowColumn>& columns, JoinOutput host_out) {
  struct Stretch {
    size_t part;
    uint64_t first, rows, at;
  };
  Lane& lane = lanes_[device];
  const uint64_t row_bytes = row_bytes_of(columns);
  uint64_t most = 0;
  for (size_t p = 0; p < lane.matches.size(); ++p) most = std::max(most, rows_of(found(device, p), what));
  const size_t room = std::min(kMostStagedBytes, lane.memory().room_bytes()) / kHomeParts;
  const uint64_t staged_rows = std::min<uint64_t>(most, (room - (columns.size() + 1) * StackAllocator::kAlignment) / row_bytes);
  std::array<JoinOutput, kHomeParts> staged;
  for (size_t s = 0; s < kHomeParts; ++s) {
    lane.staged[s] = lane.memory().allocate(staged_rows * row_bytes + columns.size() * StackAllocator::kAlignment);
    char* at = lane.staged[s].as<char>();
    for (const RowColumn& column : columns) {
      staged[s].*column.data = at;
      at += StackAllocator::aligned(staged_rows * column.width);
    }
  }
  std::vector<Stretch> stretches;
  uint64_t at = 0;
  for (size_t p = 0; p < lane.matches.size(); ++p) {
    const uint64_t all = rows_of(found(device, p), what);
    for (uint64_t first = 0; first < all; first += staged_rows) {
      stretches.push_back({p, first, std::min(staged_rows, all - first), at});
      at += stretches.back().rows;
    }
  }
  HostQueue queue{lane.device, HostQueue::Direction::to_host, {}, kHomeParts, {}};
  for (const Stretch& stretch : stretches) {
    const size_t slot = queue.copies.size() % kHomeParts;
    HostCopy& copy = queue.copies.emplace_back();
    copy.after = lane.emitted[slot].get();
    for (const RowColumn& column : columns) {
      copy.stretches.push_back({static_cast<char*>(host_out.*column.data) + stretch.at * column.width, staged[slot].*column.data,
                                stretch.rows * column.width});
    }
  }
  const auto emit_stretch = [this, &lane, what, staged, stretches = std::move(stretches)](size_t s) {
    if (s >= stretches.size()) return;
    const Stretch& stretch = stretches[s];
    lane.primitives().hash_emit(*lane.matches[stretch.part].found, what, stretch.first, stretch.rows, staged[s % kHomeParts],
                                job_, lane.stream());
    lane.stream().record(*lane.emitted[s % kHomeParts]);
  };
  for (size_t s = 0; s < kHomeParts; ++s) emit_stretch(s);
  queue.enqueued = [&lane, emit_stretch](size_t s, std::span<Event* const> done) {
    for (Event* event : done) lane.stream().wait(*event);
    emit_stretch(s + kHomeParts);
  };
  return queue;
}

void DeviceMatches::emit_there(size_t device, JoinEmit what, JoinOutput out, uint64_t first) {
  Lane& lane = lanes_[device];
  const auto& [build, probe] = exchange_.form().layouts;
  const auto past = [](void* column, uint64_t rows, uint8_t width) {
    return column ? static_cast<char*>(column) + rows * width : nullptr;
  };
  for (const Match& match : lane.matches) {
    if (match.found->written()) first -= match.found->tally().pairs;
  }
  for (size_t p = 0; p < lane.matches.size(); ++p) {
    const HashMatch& match = *lane.matches[p].found;
    if (match.written()) continue;
    const uint64_t all = rows_of(found(device, p), what), skipped = std::min(first, all), rows = all - skipped;
    first -= skipped;
    lane.primitives().hash_emit(match, what, skipped, rows, out, job_, lane.stream());
    out = {past(out.keys, rows, build.key_bytes), past(out.build_values, rows, build.value_bytes),
           past(out.probe_values, rows, probe.value_bytes)};
  }
}

void DeviceMatches::fill_missing(size_t device, void* out, size_t bytes) {
  lanes_[device].device->fill(out, 0xFF, bytes, lanes_[device].stream());
}

void DeviceMatches::copy_there(size_t device, void* target, const void* source, size_t bytes) {
  lanes_[device].device->copy(target, source, bytes, lanes_[device].stream());
}

}  // namespace warpjoin
