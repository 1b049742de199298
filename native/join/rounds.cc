#include "join/rounds.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "device/streams.h"

namespace warpjoin {
namespace {

Digit round_digit(uint32_t round_bits) { return {static_cast<uint8_t>(64 - round_bits), static_cast<uint8_t>(round_bits), true}; }

// Of chunks before they are grouped, and as many behind: a chunk moves on while the next one comes.
constexpr size_t kBuffers = 2;

/// Tuples of either relation.
TupleLayout widest(const std::array<TupleLayout, 2>& layouts) {
  return {std::max(layouts[0].key_bytes, layouts[1].key_bytes), std::max(layouts[0].value_bytes, layouts[1].value_bytes)};
}
size_t scratch_bytes(Device& device, const std::array<TupleLayout, 2>& layouts, uint64_t rows, Digit digit) {
  return std::max(device.primitives().partition_scratch_bytes(layouts[0], rows, digit),
                  device.primitives().partition_scratch_bytes(layouts[1], rows, digit));
}

/// Tuples of a relation that are grouped together.
struct Chunk {
  TupleLayout layout;
  Piece* piece;
};

/// One device's work. The stream comes last: it waits for its work before what that refers to goes.
struct Cutter {
  Device* device;
  bool in_place;
  std::array<OwnedTuples, kBuffers> arrived, grouped;
  Buffer scratch;
  std::unique_ptr<Stream> stream;

  Cutter(Device& on, const std::array<TupleLayout, 2>& layouts, uint64_t rows, uint32_t round_bits)
      : device(&on), in_place(on.addresses_host_memory()) {
    on.memory().reserve(cut_rounds_device_bytes(on, layouts, rows, round_bits));
    if (!in_place) {
      for (OwnedTuples& buffer : arrived) buffer = OwnedTuples(on, widest(layouts), rows);
      for (OwnedTuples& buffer : grouped) buffer = OwnedTuples(on, widest(layouts), rows);
    }
    scratch = allocate(on, scratch_bytes(on, layouts, rows, round_digit(round_bits)));
    stream = on.create_stream();
  }

  HostQueue arrival(const Chunk& chunk, size_t step) const {
    const TupleSpan& to = arrived[step % kBuffers].span;
    return {device, HostQueue::Direction::to_device, {host_copy(chunk.layout, to, chunk.piece->in, nullptr)}, 1, {}};
  }
  HostQueue way_home(const Chunk& chunk, size_t step) const {
    const TupleView from = grouped[step % kBuffers].span.slice(chunk.layout, 0, chunk.piece->in.size).view();
    return {device, HostQueue::Direction::to_host, {host_copy(chunk.layout, chunk.piece->out, from, nullptr)}, 1, {}};
  }
  void group(const Chunk& chunk, size_t step, Digit digit, const Job& job) const {
    TupleView in = chunk.piece->in;
    TupleSpan out = chunk.piece->out;
    if (!in_place) {
      in.keys = arrived[step % kBuffers].span.keys;
      if (in.values) in.values = arrived[step % kBuffers].span.values;
      out = grouped[step % kBuffers].span.slice(chunk.layout, 0, in.size);
    }
    std::vector<uint64_t>& offsets = chunk.piece->offsets;
    offsets.resize(digit.count() + 1);
    device->primitives().partition(chunk.layout, in, digit, out, offsets.data(), scratch.data(), job, *stream);
  }
};

Rounds make_rounds(Engine& engine, const Relation& relation, uint64_t chunk_rows) {
  const TupleLayout layout = relation.layout;
  const TupleView& in = relation.views.at(0);
  Rounds rounds{layout,
                engine.memory->allocate(in.size * layout.key_bytes, "the rounds of a join"),
                engine.memory->allocate(in.size * layout.value_bytes, "the rounds of a join"),
                {}};
  const TupleSpan out{rounds.keys.data(), layout.value_bytes ? rounds.values.data() : nullptr, in.size};
  for (uint64_t at = 0; at < in.size; at += chunk_rows) {
    const uint64_t end = std::min(in.size, at + chunk_rows);
    rounds.chunks.push_back({in.slice(layout, at, end), out.slice(layout, at, end), {}});
  }
  return rounds;
}

}  // namespace

Relation Rounds::part(uint32_t round) const {
  Relation part{layout, {}};
  for (const Piece& chunk : chunks) part.views.push_back(chunk.range(layout, round));
  return part;
}

uint64_t round_chunk_rows(const Device& device, uint64_t tuples, uint32_t rounds, size_t devices) {
  if (device.addresses_host_memory()) return tuples;
  // So many that a round's part of a chunk is worth a copy, but few: nothing goes home while the first chunks arrive.
  const uint64_t most = std::max<uint64_t>(rounds, 4) << 21;
  return std::clamp(tuples / rounds / devices / kBuffers, kLeastTuples / kBuffers, most);
}

size_t cut_rounds_device_bytes(Device& device, const std::array<TupleLayout, 2>& layouts, uint64_t chunk_rows,
                               uint32_t round_bits) {
  return (device.addresses_host_memory() ? 0 : 2 * kBuffers * OwnedTuples::bytes(widest(layouts), chunk_rows)) +
         StackAllocator::aligned(scratch_bytes(device, layouts, chunk_rows, round_digit(round_bits)));
}

std::array<Rounds, 2> cut_rounds(Engine& engine, std::span<Device* const> devices,
                                 const std::array<const Relation*, 2>& relations, uint32_t round_bits, uint64_t chunk_rows,
                                 Job& job) {
  std::array<Rounds, 2> sides{make_rounds(engine, *relations[0], chunk_rows), make_rounds(engine, *relations[1], chunk_rows)};
  std::vector<Chunk> chunks;
  uint64_t largest = 0;
  for (Rounds& side : sides) {
    for (Piece& piece : side.chunks) {
      chunks.push_back({side.layout, &piece});
      largest = std::max(largest, piece.in.size);
    }
  }
  const size_t g = std::min(devices.size(), chunks.size());
  std::vector<Cutter> cutters;
  std::vector<Stream*> streams;
  for (size_t d = 0; d < g; ++d) {
    cutters.emplace_back(*devices[d], std::array{sides[0].layout, sides[1].layout}, largest, round_bits);
    streams.push_back(cutters[d].stream.get());
  }
  // In each step a chunk comes to each device, the one before it is grouped, and the one before that goes home. Relation follows
  // relation, as a direction of the links rests in the first and the last steps.
  const size_t steps = g ? (chunks.size() + g - 1) / g : 0;
  for (size_t step = 0; step < steps + 2; ++step) {
    std::vector<HostQueue> queues;
    for (size_t d = 0; d < g; ++d) {
      const Cutter& cutter = cutters[d];
      const auto chunk_of = [&](size_t which) {
        return which < steps && which * g + d < chunks.size() ? &chunks[which * g + d] : nullptr;
      };
      const Chunk* const arriving = chunk_of(step);
      const Chunk* const here = step > 0 ? chunk_of(step - 1) : nullptr;
      const Chunk* const leaving = step > 1 ? chunk_of(step - 2) : nullptr;
      if (here) {
        cutter.group(*here, step - 1, round_digit(round_bits), job);
        job.add_done(here->piece->in.size);
      }
      if (cutter.in_place) continue;
      if (leaving) queues.push_back(cutter.way_home(*leaving, step - 2));
      if (arriving) queues.push_back(cutter.arrival(*arriving, step));
    }
    transfer(engine, queues, job);
    synchronize_all(streams);
    job.check();
  }
  return sides;
}

}  // namespace warpjoin
