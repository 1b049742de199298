#include "join/streamed_coordinator.h"

#include <algorithm>

#include "join/streamed_part.h"

namespace warpjoin::streaming {

void Turns::begin(size_t part, uint64_t waves) {
  parts_.resize(std::max(parts_.size(), part + 1));
  parts_[part] = {0, waves};
}

bool Turns::has(size_t part) const {
  const uint64_t placed = parts_[part].placed;
  for (size_t other = 0; other < parts_.size(); ++other) {
    const Count& of = parts_[other];
    const bool before = of.placed < placed || (of.placed == placed && other < part);
    if (before && of.placed < of.waves) return false;
  }
  return true;
}

Coordinator::~Coordinator() = default;

void Coordinator::swap_sides() {
  shape.swap_sides();
  request.build_left = !request.build_left;
  std::swap(spilled[kBuild], spilled[kProbe]);
}

HostCopy Coordinator::spill(bool of_build, uint64_t number, const Room::Cut& cut) {
  const TupleLayout layout = shape.side(of_build).layout;
  const PartitionRange left = shape.spilled();
  const TupleView tuples = cut.of(layout, left);
  SpilledTuples::Piece& piece = spilled[of_build ? kBuild : kProbe]->add(number, left, tuples.size);
  for (uint32_t p = left.begin; p <= left.end; ++p) piece.offsets.push_back(cut.offsets[p] - cut.offsets[left.begin]);
  return host_copy(layout, piece.tuples, tuples, nullptr);
}

void Coordinator::wait_for_rows() {
  for (const auto& part : parts) transfer->wait(part->home());
}

double Coordinator::share() const {
  if (joined_rows_ == 0) return 1;  // and has found nothing
  // Those that are joined in blocks count for each.
  return std::min(1.0, static_cast<double>(joined_rows_) / static_cast<double>(shape.probe().rows));
}

void Coordinator::begin_phase(const char* name) {
  if (phase_name_ == name) return;
  end_phase();
  phase_.emplace(job, phase_name_ = name);
}

void Coordinator::end_phase() {
  if (!phase_) return;
  const uint64_t before = std::exchange(moved_before_, moved());
  phase_->add(2 * (moved_before_ - before));
  phase_.reset();
}

uint64_t Coordinator::moved() const {
  uint64_t bytes = 0;
  for (const auto& part : parts) bytes += part->device().traffic().to_device + part->device().traffic().to_host;
  return bytes;
}

void Coordinator::count_up(uint64_t& count) {
  {
    const std::lock_guard lock(mutex_);
    ++count;
  }
  changed_.notify_all();
}

bool Coordinator::reached(const uint64_t& count, uint64_t wanted) {
  const std::lock_guard lock(mutex_);
  return count >= wanted;
}

void Coordinator::await(const uint64_t& count, uint64_t wanted) {
  wait_until([&] { return count >= wanted; });
}

void Coordinator::end_turn(size_t part) {
  {
    const std::lock_guard lock(mutex_);
    turns_.next(part);
  }
  changed_.notify_all();
}

void Coordinator::end_turns(size_t part) noexcept {
  {
    const std::lock_guard lock(mutex_);
    turns_.end(part);
  }
  changed_.notify_all();
}

void Coordinator::stop(std::exception_ptr error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_) error_ = std::move(error);
    stopped_ = true;
  }
  changed_.notify_all();
}

void Coordinator::start_again() {
  stopped_ = false;
  ready = 0;
}

}  // namespace warpjoin::streaming
