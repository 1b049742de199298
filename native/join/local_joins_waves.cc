// Matching the probe side while it arrives.
#include <algorithm>
#include <optional>
#include <utility>

#include "core/threads.h"
#include "device/streams.h"
#include "join/kept_rows.h"
#include "join/local_joins_parts.h"

namespace warpjoin {

LocalJoins::Waves::Waves(LocalJoins& joins) : joins_(joins), devices_(joins.waves_ + 1) {
  for (size_t d = 0; d < joins_.locals_.size(); ++d) {
    Local& local = *joins_.locals_[d];
    for (size_t step = 0; step < devices_.size(); ++step) local.here.push_back(local.device->create_event());
    local.matches.resize(joins_.waves_);
    local.probe.parts.resize(joins_.waves_);
    local.probe.parcels.resize(joins_.waves_);
    if (!joins_.cut_.replicate) local.sends->record(*local.here[0]);
    if (!joins_.cut_.replicate || local.build.pieces.empty()) ++devices_[0];
    for (size_t w = 0; w < joins_.waves_; ++w) devices_[w + 1] += local.probe.wave(w, joins_.waves_).empty();
  }
  thread_ = start_thread("the waves of a join", [this] {  // it only launches and waits, so it goes before the threads that copy
    try {
      run();
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

LocalJoins::Waves::~Waves() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void LocalJoins::Waves::piece_enqueued(size_t device, const Piece& piece) {
  Side& probe = joins_.locals_[device]->probe;
  for (size_t w = 0; w < joins_.waves_; ++w) {
    const std::span<Piece> wave = probe.wave(w, joins_.waves_);
    if (!wave.empty() && &piece == &wave.back()) enqueued(device, w + 1);
  }
}

void LocalJoins::Waves::enqueued(size_t device, size_t step) {
  Local& local = *joins_.locals_[device];
  local.arriving().record(*local.here[step]);
  {
    const std::lock_guard lock(mutex_);
    ++devices_[step];
  }
  changed_.notify_one();
}

bool LocalJoins::Waves::finish() {
  thread_.join();
  if (error_) std::rethrow_exception(error_);
  if (!gave_up_) {
    joins_.parts_ = joins_.waves_;
    return true;
  }
  joins_.wait();
  joins_.waves_ = 1;
  for (size_t d = 0; d < joins_.locals_.size(); ++d) {
    Local* const local = joins_.locals_[d].get();
    if (joins_.kept_) joins_.kept_->drop(d);
    local->matches.clear();
    local->built = {};
    if (joins_.cut_.replicate) continue;
    local->probe.parts.clear();
    local->probe.parcels.clear();
    local->probe.placed = 0;
  }
  return false;
}

void LocalJoins::Waves::run() {
  build();
  for (size_t w = 0; w < joins_.waves_ && !gave_up_; ++w) {
    await(w + 1);
    gave_up_ = !exchange(w);
    if (w > 0 && !gave_up_) write_pairs(w - 1);
    for (const auto& local : joins_.locals_) {
      if (gave_up_ || joins_.match_bytes(*local, w) > local->device->memory().room_bytes()) {
        gave_up_ = true;
        break;
      }
      if (joins_.cut_.replicate) {
        local->stream->wait(*local->here[w + 1]);
      } else {
        for (const auto& sender : joins_.locals_) local->stream->wait(*sender->sent[w]);
      }
      joins_.start_match(*local, w);
    }
  }
}

/// Waits until all devices have enqueued a step; throws where the join has ended before.
void LocalJoins::Waves::await(size_t step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || devices_[step] == joins_.locals_.size(); });
  if (stopping_) throw Error(ErrorCode::aborted, "The join has ended");
  joins_.job_.check();
}

/// Prepares the build side for all waves.
void LocalJoins::Waves::build() {
  await(0);
  for (const auto& local : joins_.locals_) {
    Primitives& primitives = local->device->primitives();
    if (joins_.cut_.replicate) {
      local->stream->wait(*local->here[0]);
    } else {
      for (const auto& sender : joins_.locals_) local->stream->wait(*sender->here[0]);
    }
    const PartitionedTuples& tuples = local->build.parts[0].ready(joins_.build_.layout, local->partitions);
    const HashBuildPlan plan = joins_.build_plan(*local);
    const size_t bytes = primitives.hash_build_scratch_bytes(plan);
    if (bytes > local->device->memory().room_bytes()) {
      gave_up_ = true;
      return;
    }
    local->built.scratch = allocate(local->device->memory(), bytes);
    local->built.table = primitives.hash_build(plan, local->built.scratch.data());
    local->built.table->add(tuples, joins_.job_, *local->stream);
    local->built.table->finish(joins_.job_, *local->stream);
  }
  for (const auto& local : joins_.locals_) local->stream->synchronize();
  for (const auto& local : joins_.locals_) {
    const size_t more = local->built.table->more_bytes();
    if (more > local->device->memory().room_bytes()) {
      gave_up_ = true;
      return;
    }
    local->built.more = allocate(local->device->memory(), more);
    local->built.table->go_on(local->built.more.data(), joins_.job_, *local->stream);
  }
}

/// Has the pairs of a wave written where they stay, while the next one is on its way.
void LocalJoins::Waves::write_pairs(size_t wave) {
  if (!joins_.kept_ || !joins_.kept_->takes_pairs()) return;
  for (const auto& local : joins_.locals_) local->stream->synchronize();
  uint64_t probed = 0;
  for (const auto& local : joins_.locals_) probed += local->probe.parts[wave].size;
  for (size_t d = 0; d < joins_.locals_.size(); ++d) {
    Local& local = *joins_.locals_[d];
    const HashMatch& match = *local.matches[wave].found;
    const uint64_t pairs = match.tally().pairs;
    if (wave == 0) {  // as the first wave is, the others will be
      const double whole = static_cast<double>(joins_.probe_.size()) / static_cast<double>(std::max<uint64_t>(probed, 1));
      joins_.kept_->expect_pairs(d, static_cast<uint64_t>(std::min(static_cast<double>(pairs) * whole, 0x1p63)));
    }
    const std::optional<JoinOutput> out = joins_.kept_->next_pairs(d, pairs);
    if (out) local.device->primitives().hash_emit(match, JoinEmit::pairs, 0, pairs, *out, joins_.job_, *local.stream);
  }
}

/// Sends a wave to its owners. False where it does not fit there, or tells that keys crowd on one device.
bool LocalJoins::Waves::exchange(size_t wave) {
  if (joins_.cut_.replicate) return true;
  const auto& locals = joins_.locals_;
  for (const auto& local : locals) local->here[wave + 1]->synchronize();
  joins_.job_.check();
  joins_.count_pieces(&Local::probe, wave, joins_.waves_);
  uint64_t all = 0;
  std::vector<uint64_t> rows;
  for (size_t d = 0; d < locals.size(); ++d) all += rows.emplace_back(joins_.rows_at(&Local::probe, d));
  for (size_t d = 0; d < locals.size(); ++d) {
    const Side &build = locals[d]->build, &probe = locals[d]->probe;
    if (probe.placed + rows[d] > probe.received.span.size) return false;
    if (rows[d] > most_in_a_wave(probe.rows.joined, joins_.waves_)) return false;
    if (wave > 0 || !joins_.cut_.splits_probe) continue;
    // As the first wave is, the others will be.
    const double expected = static_cast<double>(rows[d]) / static_cast<double>(std::max<uint64_t>(all, 1)) *
                            static_cast<double>(joins_.probe_.size());
    if (build.size + static_cast<uint64_t>(expected) > joins_.most_joined()) return false;
  }
  joins_.place_part(&Local::probe, wave, 0, 1, wave, joins_.waves_);
  joins_.send(&Local::probe, wave, wave + 1);
  for (const auto& local : locals) local->sends->record(*local->sent[wave]);
  return true;
}

}  // namespace warpjoin
