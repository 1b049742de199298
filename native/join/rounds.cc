#include "join/rounds.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "device/streams.h"

namespace warpjoin {
namespace {

Digit round_digit(uint32_t round_bits) { return {static_cast<uint8_t>(64 - round_bits), static_cast<uint8_t>(round_bits), true}; }

/// One device's work. The stream comes last: it waits for its work before what that refers to goes.
struct Cutter {
  Device* device;
  bool in_place;
  OwnedTuples arrived, grouped;
  Buffer scratch;
  std::unique_ptr<Stream> stream;

  Cutter(Device& on, TupleLayout layout, uint64_t rows, uint32_t round_bits) : device(&on), in_place(on.addresses_host_memory()) {
    on.memory().reserve(cut_rounds_device_bytes(on, layout, rows, round_bits));
    if (!in_place) {
      arrived = OwnedTuples(on, layout, rows);
      grouped = OwnedTuples(on, layout, rows);
    }
    scratch = allocate(on, on.primitives().partition_scratch_bytes(layout, rows, round_digit(round_bits)));
    stream = on.create_stream();
  }

  HostQueue arrival(TupleLayout layout, const Piece& chunk) const {
    return {device, HostQueue::Direction::to_device, {host_copy(layout, arrived.span, chunk.in, nullptr)}, 1, {}};
  }
  HostQueue way_home(TupleLayout layout, const Piece& chunk) const {
    const TupleView from = grouped.span.slice(layout, 0, chunk.in.size).view();
    return {device, HostQueue::Direction::to_host, {host_copy(layout, chunk.out, from, nullptr)}, 1, {}};
  }
  void group(TupleLayout layout, Piece& chunk, Digit digit, const Job& job) const {
    TupleView in = chunk.in;
    TupleSpan out = chunk.out;
    if (!in_place) {
      in.keys = arrived.span.keys;
      if (in.values) in.values = arrived.span.values;
      out = grouped.span.slice(layout, 0, in.size);
    }
    chunk.offsets.resize(digit.count() + 1);
    device->primitives().partition(layout, in, digit, out, chunk.offsets.data(), scratch.data(), job, *stream);
  }
};

}  // namespace

Relation Rounds::part(uint32_t round) const {
  Relation part{layout, {}};
  for (const Piece& chunk : chunks) part.views.push_back(chunk.range(layout, round));
  return part;
}

uint64_t round_chunk_rows(const Device& device, uint64_t tuples, uint32_t rounds, size_t devices) {
  return device.addresses_host_memory() ? tuples : std::max(kLeastTuples, tuples / rounds / devices + 1);
}

size_t cut_rounds_device_bytes(Device& device, TupleLayout layout, uint64_t chunk_rows, uint32_t round_bits) {
  return (device.addresses_host_memory() ? 0 : 2 * OwnedTuples::bytes(layout, chunk_rows)) +
         StackAllocator::aligned(device.primitives().partition_scratch_bytes(layout, chunk_rows, round_digit(round_bits)));
}

Rounds cut_rounds(Engine& engine, std::span<Device* const> devices, const Relation& relation, uint32_t round_bits,
                  uint64_t chunk_rows, Job& job) {
  const TupleLayout layout = relation.layout;
  const TupleView& in = relation.views.at(0);
  Rounds rounds{layout,
                engine.memory->allocate(in.size * layout.key_bytes, "the rounds of a join"),
                engine.memory->allocate(in.size * layout.value_bytes, "the rounds of a join"),
                {}};
  const TupleSpan out{rounds.keys.data(), layout.value_bytes ? rounds.values.data() : nullptr, in.size};
  std::vector<Piece>& chunks = rounds.chunks;
  for (uint64_t at = 0; at < in.size; at += chunk_rows) {
    const uint64_t end = std::min(in.size, at + chunk_rows);
    chunks.push_back({in.slice(layout, at, end), out.slice(layout, at, end), {}});
  }
  const size_t g = std::min(devices.size(), chunks.size());
  std::vector<Cutter> cutters;
  std::vector<Stream*> streams;
  for (size_t d = 0; d < g; ++d) {
    cutters.emplace_back(*devices[d], layout, chunks[0].in.size, round_bits);
    streams.push_back(cutters[d].stream.get());
  }
  // Each step takes a chunk to each device and the one before home, both at the same time; the devices group them in between,
  // which takes a small part of that.
  for (size_t begin = 0; begin < chunks.size() + g; begin += g) {
    const size_t end = std::min(chunks.size(), begin + g);
    std::vector<HostQueue> queues;
    for (size_t d = 0; d < g && !cutters[d].in_place; ++d) {
      if (begin > 0 && begin - g + d < chunks.size()) queues.push_back(cutters[d].way_home(layout, chunks[begin - g + d]));
      if (begin + d < end) queues.push_back(cutters[d].arrival(layout, chunks[begin + d]));
    }
    transfer(engine, queues, job);
    for (size_t c = begin; c < end; ++c) {
      cutters[c - begin].group(layout, chunks[c], round_digit(round_bits), job);
      job.add_done(chunks[c].in.size);
    }
    synchronize_all(streams);
    job.check();
  }
  return rounds;
}

}  // namespace warpjoin
