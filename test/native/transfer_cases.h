// Cases for transfers: the same on far devices and on GPUs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "transfer/host_transfer.h"

namespace warpjoin::testing {

using Bytes = std::vector<unsigned char>;
using Direction = HostQueue::Direction;

inline Bytes random_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, size - i));
  }
  return bytes;
}

inline void write_device(Device& device, void* target, const Bytes& bytes) {
  const auto stream = device.create_stream();
  device.copy(target, bytes.data(), bytes.size(), *stream);
  stream->synchronize();
}

inline Bytes read_device(Device& device, const void* source, size_t size) {
  Bytes bytes(size);
  const auto stream = device.create_stream();
  device.copy(bytes.data(), source, size, *stream);
  stream->synchronize();
  return bytes;
}

/// Host memory whose first `pinned` bytes are pinned.
class HostArray {
 public:
  HostArray(Engine& engine, Device& device, size_t bytes, size_t pinned)
      : buffer_(engine.memory->allocate(bytes, "a test")), device_(pinned ? &device : nullptr) {
    if (device_) device_->pin(buffer_.data(), pinned);
  }
  HostArray(HostArray&& other) noexcept : buffer_(std::move(other.buffer_)), device_(std::exchange(other.device_, nullptr)) {}
  ~HostArray() {
    if (device_) device_->unpin(buffer_.data());
  }
  unsigned char* data() const { return buffer_.as<unsigned char>(); }
  void write(const Bytes& bytes) const { std::memcpy(data(), bytes.data(), bytes.size()); }
  Bytes read(size_t size) const { return {data(), data() + size}; }

 private:
  HostBuffer buffer_;
  Device* device_;
};

enum class HostKind { ordinary, pinned, half, mixed };

/// Host memory of a kind; mixed is ordinary and pinned in turns.
class HostStripes {
 public:
  HostStripes(Engine& engine, Device& device, size_t bytes, HostKind kind) {
    if (kind == HostKind::ordinary || kind == HostKind::mixed) arrays_.emplace_back(engine, device, bytes, 0);
    if (kind == HostKind::pinned || kind == HostKind::mixed) arrays_.emplace_back(engine, device, bytes, bytes);
    if (kind == HostKind::half) arrays_.emplace_back(engine, device, bytes, bytes / 2);
  }
  void write(const Bytes& bytes) const {
    for (const HostArray& array : arrays_) array.write(bytes);
  }
  Bytes read(size_t size) const {
    Bytes bytes;
    for_stretches(0, size, [&](unsigned char* from, size_t, size_t here) { bytes.insert(bytes.end(), from, from + here); });
    return bytes;
  }
  /// Calls stretch(memory, position among the `bytes`, its bytes).
  template <class Stretch>
  void for_stretches(size_t begin, size_t bytes, Stretch&& stretch) const {
    constexpr size_t kStripe = 10'007;
    for (size_t at = begin, end = begin + bytes; at < end;) {
      const size_t stop = arrays_.size() == 1 ? end : std::min(end, (at / kStripe + 1) * kStripe);
      stretch(arrays_[at / kStripe % arrays_.size()].data() + at, at - begin, stop - at);
      at = stop;
    }
  }

 private:
  std::vector<HostArray> arrays_;
};

/// Random stretches between host memory, ordinary and pinned, and one device; positions leave gaps on both sides.
class RandomQueue {
 public:
  RandomQueue(Engine& engine, Device& device, Direction direction, size_t block, size_t copies, uint64_t seed)
      : device_(device), direction_(direction) {
    std::mt19937_64 random(seed);
    const size_t sizes[] = {0, 1, 63, 64, block - 1, block, block + 1, 2 * block + 17, 5 * block / 2, 37 * block};
    struct Part {
      size_t copy, bytes, host, device;
      bool pinned;
    };
    std::vector<Part> parts;
    size_t host_size[2] = {}, device_size = 0;
    for (size_t c = 0; c < copies; ++c) {
      for (size_t s = random() % 5; s > 0; --s) {
        Part part{c, sizes[random() % std::size(sizes)], 0, device_size + random() % 3, random() % 3 == 0};
        part.host = host_size[part.pinned] + random() % 70;
        host_size[part.pinned] = part.host + part.bytes;
        device_size = part.device + part.bytes;
        parts.push_back(part);
      }
    }
    for (const bool pinned : {false, true}) {
      host_.emplace_back(engine, device, host_size[pinned] + 70, pinned ? host_size[pinned] + 70 : 0);
      host_bytes_.push_back(random_bytes(host_size[pinned] + 70, seed * 3 + pinned));
      host_.back().write(host_bytes_.back());
    }
    device_bytes_ = random_bytes(device_size + 3, seed * 3 + 2);
    memory_ = device.memory().allocate(device_bytes_.size());
    write_device(device, memory_.data(), device_bytes_);
    copies_.resize(copies);
    for (const Part& part : parts) {
      unsigned char* host = host_[part.pinned].data() + part.host;
      unsigned char* on_device = memory_.as<unsigned char>() + part.device;
      auto host_at = host_bytes_[part.pinned].begin() + static_cast<std::ptrdiff_t>(part.host);
      auto device_at = device_bytes_.begin() + static_cast<std::ptrdiff_t>(part.device);
      if (direction == Direction::to_device) {
        copies_[part.copy].stretches.push_back({on_device, host, part.bytes});
        std::copy_n(host_at, part.bytes, device_at);
      } else {
        copies_[part.copy].stretches.push_back({host, on_device, part.bytes});
        std::copy_n(device_at, part.bytes, host_at);
      }
    }
  }

  HostQueue queue(size_t depth) {
    called_ = 0;
    return {&device_, direction_, copies_, depth, [this](size_t copy, std::span<Event* const>) { EXPECT_EQ(copy, called_++); }};
  }
  /// The stretches hold what they must, the gaps what they did, and every copy has been called back for.
  void check() const {
    EXPECT_EQ(called_, copies_.size());
    for (const bool pinned : {false, true}) {
      EXPECT_TRUE(host_[pinned].read(host_bytes_[pinned].size()) == host_bytes_[pinned]) << "host, pinned: " << pinned;
    }
    EXPECT_TRUE(read_device(device_, memory_.data(), device_bytes_.size()) == device_bytes_) << "device";
  }

 private:
  Device& device_;
  const Direction direction_;
  std::vector<HostArray> host_;
  std::vector<Bytes> host_bytes_;  // what must be there once the transfer is done
  Bytes device_bytes_;
  Buffer memory_;
  std::deque<HostCopy> copies_;
  size_t called_ = 0;
};

/// Runs queues over the engine's devices in turn; in both directions at once where `directions` has both. The devices'
/// memory must be reserved.
inline void check_random_transfer(Engine& engine, size_t queues, const std::vector<Direction>& directions, size_t copies,
                                  size_t depth, uint64_t seed, const std::function<void()>& before_transfer = {}) {
  SCOPED_TRACE(std::to_string(queues) + " queues, " + std::to_string(copies) + " copies, depth " + std::to_string(depth));
  std::vector<std::unique_ptr<RandomQueue>> made;
  for (size_t q = 0; q < queues; ++q) {
    Device& device = *engine.devices[q / directions.size() % engine.devices.size()];
    const Direction direction = directions[q % directions.size()];
    made.push_back(std::make_unique<RandomQueue>(engine, device, direction, engine.pinned.most_buffer_bytes(), copies, seed + q));
  }
  std::vector<HostQueue> running;
  for (const auto& queue : made) running.push_back(queue->queue(depth));
  if (before_transfer) before_transfer();
  transfer(engine, running, Job());
  for (const auto& queue : made) queue->check();
}

using SlowDown = std::function<void(Device& device, Stream& stream)>;

/// Copies to `depth` buffers on each device, which a slow consumer copies on: none may be overwritten before.
inline void check_consumers(Engine& engine, size_t depth, size_t copies, size_t bytes, HostKind kind, const SlowDown& slow_down) {
  SCOPED_TRACE("depth " + std::to_string(depth) + ", " + std::to_string(copies) + " copies of " + std::to_string(bytes));
  struct Consumer {
    Buffer arriving, results;
    Bytes sent;
    std::vector<std::unique_ptr<Event>> consumed;
    std::unique_ptr<Stream> stream;
  };
  std::vector<Consumer> consumers(engine.devices.size());
  std::vector<HostStripes> host;
  std::vector<HostQueue> queues;
  for (size_t d = 0; d < consumers.size(); ++d) {
    Device& device = *engine.devices[d];
    Consumer& consumer = consumers[d];
    consumer.sent = random_bytes(copies * bytes, d + 1);
    host.emplace_back(engine, device, copies * bytes, kind);
    host.back().write(consumer.sent);
    device.memory().reserve(StackAllocator::aligned(depth * bytes) + StackAllocator::aligned(copies * bytes));
    consumer.arriving = device.memory().allocate(depth * bytes);
    consumer.results = device.memory().allocate(copies * bytes);
    consumer.stream = device.create_stream();
    for (size_t i = 0; i < depth; ++i) consumer.consumed.push_back(device.create_event());
    HostQueue& queue = queues.emplace_back();
    queue.device = &device;
    queue.depth = depth;
    const auto arriving = [bytes, depth, &consumer](size_t c) { return consumer.arriving.as<char>() + c % depth * bytes; };
    for (size_t c = 0; c < copies; ++c) {
      Event* after = c < depth ? nullptr : consumer.consumed[c % depth].get();
      HostCopy& copy = queue.copies.emplace_back(HostCopy{{}, after});
      host.back().for_stretches(c * bytes, bytes, [&](const unsigned char* from, size_t at, size_t here) {
        copy.stretches.push_back({arriving(c) + at, from, here});
      });
    }
    queue.enqueued = [&device, &consumer, &slow_down, arriving, bytes, depth](size_t c, std::span<Event* const> done) {
      for (Event* event : done) consumer.stream->wait(*event);
      slow_down(device, *consumer.stream);
      device.copy(consumer.results.as<char>() + c * bytes, arriving(c), bytes, *consumer.stream);
      consumer.stream->record(*consumer.consumed[c % depth]);
    };
  }
  transfer(engine, queues, Job());
  for (size_t d = 0; d < consumers.size(); ++d) {
    consumers[d].stream->synchronize();
    EXPECT_TRUE(read_device(*engine.devices[d], consumers[d].results.data(), copies * bytes) == consumers[d].sent) << d;
  }
}

/// Copies from `depth` buffers on each device, which a slow producer fills: none may be read before that, or filled again
/// before it has been read.
inline void check_producers(Engine& engine, size_t depth, size_t copies, size_t bytes, HostKind kind, const SlowDown& slow_down) {
  SCOPED_TRACE("depth " + std::to_string(depth) + ", " + std::to_string(copies) + " copies of " + std::to_string(bytes));
  struct Producer {
    Buffer leaving, products;
    Bytes made;
    std::vector<std::unique_ptr<Event>> produced;
    std::unique_ptr<Stream> stream;
    std::function<void(size_t)> produce;
  };
  std::vector<Producer> producers(engine.devices.size());
  std::vector<HostStripes> host;
  std::vector<HostQueue> queues;
  for (size_t d = 0; d < producers.size(); ++d) {
    Device& device = *engine.devices[d];
    Producer& producer = producers[d];
    producer.made = random_bytes(copies * bytes, d + 1);
    host.emplace_back(engine, device, copies * bytes, kind);
    host.back().write(Bytes(copies * bytes, 0xA5));
    device.memory().reserve(StackAllocator::aligned(depth * bytes) + StackAllocator::aligned(copies * bytes));
    producer.leaving = device.memory().allocate(depth * bytes);
    producer.products = device.memory().allocate(copies * bytes);
    write_device(device, producer.products.data(), producer.made);
    producer.stream = device.create_stream();
    for (size_t i = 0; i < depth; ++i) producer.produced.push_back(device.create_event());
    HostQueue& queue = queues.emplace_back();
    queue.device = &device;
    queue.direction = Direction::to_host;
    queue.depth = depth;
    const auto leaving = [bytes, depth, &producer](size_t c) { return producer.leaving.as<char>() + c % depth * bytes; };
    for (size_t c = 0; c < copies; ++c) {
      HostCopy& copy = queue.copies.emplace_back(HostCopy{{}, producer.produced[c % depth].get()});
      host.back().for_stretches(c * bytes, bytes, [&](unsigned char* to, size_t at, size_t here) {
        copy.stretches.push_back({to, leaving(c) + at, here});
      });
    }
    producer.produce = [&device, &producer, &slow_down, leaving, bytes, depth, copies](size_t c) {
      if (c >= copies) return;
      slow_down(device, *producer.stream);
      device.copy(leaving(c), producer.products.as<char>() + c * bytes, bytes, *producer.stream);
      producer.stream->record(*producer.produced[c % depth]);
    };
    for (size_t c = 0; c < depth; ++c) producer.produce(c);
    queue.enqueued = [&producer, depth](size_t c, std::span<Event* const> done) {
      for (Event* event : done) producer.stream->wait(*event);
      producer.produce(c + depth);
    };
  }
  transfer(engine, queues, Job());
  for (size_t d = 0; d < producers.size(); ++d) {
    EXPECT_TRUE(host[d].read(copies * bytes) == producers[d].made) << d;
  }
}

/// Copies that come to each device, are copied on there by a slow stream, and leave it again. All share `slots`; the next one is
/// pushed once the one before in its slot is on its way home.
inline void check_round_trips(Engine& engine, size_t slots, size_t copies, size_t bytes, HostKind kind,
                              const SlowDown& slow_down) {
  SCOPED_TRACE(std::to_string(slots) + " slots, " + std::to_string(copies) + " trips of " + std::to_string(bytes));
  struct Trips {
    Buffer arriving, leaving;
    Bytes sent;
    std::vector<std::unique_ptr<Event>> ready, left;
    std::unique_ptr<Stream> compute, leave;
    size_t there = 0, home = 0;
    std::function<void(size_t)> arrive;
  };
  std::deque<HostStripes> from, to;
  const Job job;
  FedTransfer transfer(engine, job);
  std::vector<Trips> trips(engine.devices.size());
  const auto direct = [&](Device& device, const HostStripes& host) {
    bool all = true;
    host.for_stretches(0, copies * bytes,
                       [&](const void* at, size_t, size_t here) { all &= device.copies_all_directly(at, here); });
    return all;
  };
  for (size_t d = 0; d < trips.size(); ++d) {
    Device& device = *engine.devices[d];
    Trips& own = trips[d];
    own.sent = random_bytes(copies * bytes, d + 1);
    from.emplace_back(engine, device, copies * bytes, kind).write(own.sent);
    to.emplace_back(engine, device, copies * bytes, kind).write(Bytes(copies * bytes, 0xA5));
    device.memory().reserve(2 * StackAllocator::aligned(slots * bytes));
    own.arriving = device.memory().allocate(slots * bytes);
    own.leaving = device.memory().allocate(slots * bytes);
    own.compute = device.create_stream();
    own.leave = device.create_stream();
    for (auto* events : {&own.ready, &own.left}) {
      for (size_t s = 0; s < slots; ++s) events->push_back(device.create_event());
    }
    own.there = transfer.open(device, Direction::to_device, slots, direct(device, from.back()));
    own.home = transfer.open(device, Direction::to_host, 2, direct(device, to.back()));
    own.arrive = [&, d](size_t c) {
      Trips& mine = trips[d];
      const size_t slot = c % slots;
      char* const in = mine.arriving.as<char>() + slot * bytes;
      char* const out = mine.leaving.as<char>() + slot * bytes;
      HostCopy there{{}, c < slots ? nullptr : mine.left[slot].get()}, home{{}, mine.ready[slot].get()};
      from[d].for_stretches(c * bytes, bytes, [&](const void* at, size_t begin, size_t here) {
        there.stretches.push_back({in + begin, at, here});
      });
      to[d].for_stretches(c * bytes, bytes, [&](void* at, size_t begin, size_t here) {
        home.stretches.push_back({at, out + begin, here});
      });
      transfer.push(mine.there, std::move(there), [&, d, c, slot, in, out, home](std::span<Event* const> done) {
        Trips& mine = trips[d];
        for (Event* event : done) mine.compute->wait(*event);
        slow_down(*engine.devices[d], *mine.compute);
        engine.devices[d]->copy(out, in, bytes, *mine.compute);
        mine.compute->record(*mine.ready[slot]);
        transfer.push(mine.home, home, [&, d, c, slot](std::span<Event* const> done) {
          Trips& mine = trips[d];
          for (Event* event : done) mine.leave->wait(*event);
          mine.leave->record(*mine.left[slot]);
          if (c + slots < copies) mine.arrive(c + slots);
        });
        if (c + 1 == copies) transfer.close(mine.there), transfer.close(mine.home);
      });
    };
    for (size_t c = 0; c < std::min(slots, copies); ++c) own.arrive(c);
  }
  transfer.run();
  for (size_t d = 0; d < trips.size(); ++d) EXPECT_TRUE(to[d].read(copies * bytes) == trips[d].sent) << d;
}

}  // namespace warpjoin::testing
