// The devices of one operator: what each of them keeps, and its streams.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/job.h"
#include "device/device.h"
#include "device/streams.h"

namespace warpjoin::flow {

template <class State>
class Lanes;

/// One device's part of an operator's work: a State, and streams, which wait for their work before what it refers to goes. An
/// enum of the operator names the streams.
template <class State>
class Lane : public State {
 public:
  Lane(Device& on, size_t streams, State state) : State(std::move(state)), device(&on) {
    for (size_t s = 0; s < streams; ++s) streams_.push_back(on.create_stream());
  }

  Device* device;

  Primitives& primitives() const { return device->primitives(); }
  StackAllocator& memory() const { return device->memory(); }
  Stream& stream(size_t which = 0) const { return *streams_[which]; }

 private:
  friend class Lanes<State>;
  Streams streams_;
};

/// A lane for each device. Lanes stay where they are, and the streams of all end before the State of any goes: devices read each
/// other's memory.
template <class State>
class Lanes {
 public:
  /// make(device, i) gives the i-th lane's State.
  template <class Make>
  Lanes(std::span<Device* const> devices, size_t streams, Make&& make) {
    lanes_.reserve(devices.size());
    for (size_t i = 0; i < devices.size(); ++i) lanes_.emplace_back(*devices[i], streams, make(*devices[i], i));
  }
  ~Lanes() {
    for (Lane<State>& lane : lanes_) lane.streams_.clear();
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  size_t size() const { return lanes_.size(); }
  Lane<State>& operator[](size_t i) { return lanes_[i]; }
  const Lane<State>& operator[](size_t i) const { return lanes_[i]; }
  auto begin() { return lanes_.begin(); }
  auto end() { return lanes_.end(); }
  auto begin() const { return lanes_.begin(); }
  auto end() const { return lanes_.end(); }

  /// Waits for all streams, then throws the first error.
  void wait(const Job& job) const {
    std::vector<Stream*> streams;
    for (const Lane<State>& lane : lanes_) {
      for (const auto& stream : lane.streams_) streams.push_back(stream.get());
    }
    synchronize_all(streams);
    job.check();
  }
  /// Waits for one stream of each lane.
  void wait(const Job& job, size_t which) const {
    std::vector<Stream*> streams;
    for (const Lane<State>& lane : lanes_) streams.push_back(&lane.stream(which));
    synchronize_all(streams);
    job.check();
  }

 private:
  std::vector<Lane<State>> lanes_;
};

}  // namespace warpjoin::flow
