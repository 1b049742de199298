#include "join/rounds.h"

#include <algorithm>
#include <array>
#include <utility>

#include "flow/budget.h"
#include "flow/lanes.h"
#include "flow/steps.h"

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

/// What a device keeps for chunks of up to `rows` tuples: slots only where they arrive.
struct Cutting {
  std::vector<OwnedTuples> arrived, grouped;
  Buffer scratch;

  Cutting(StackAllocator& memory, Device& device, const std::array<TupleLayout, 2>& layouts, uint64_t rows, Digit digit) {
    for (size_t b = 0; b < kBuffers && !device.addresses_host_memory(); ++b) {
      arrived.emplace_back(memory, widest(layouts), rows);
      grouped.emplace_back(memory, widest(layouts), rows);
    }
    scratch = allocate(memory, scratch_bytes(device, layouts, rows, digit));
  }
};
using Cutter = flow::Lane<Cutting>;

HostQueue arrival(const Cutter& cutter, const Chunk& chunk, size_t step) {
  const TupleSpan& to = cutter.arrived[step % kBuffers].span;
  return {cutter.device, HostQueue::Direction::to_device, {host_copy(chunk.layout, to, chunk.piece->in, nullptr)}, 1, {}};
}

HostQueue way_home(const Cutter& cutter, const Chunk& chunk, size_t step) {
  const TupleView from = cutter.grouped[step % kBuffers].span.slice(chunk.layout, 0, chunk.piece->in.size).view();
  return {cutter.device, HostQueue::Direction::to_host, {host_copy(chunk.layout, chunk.piece->out, from, nullptr)}, 1, {}};
}

void group(const Cutter& cutter, const Chunk& chunk, size_t step, Digit digit, const Job& job) {
  TupleView in = chunk.piece->in;
  TupleSpan out = chunk.piece->out;
  if (!cutter.arrived.empty()) {
    in.keys = cutter.arrived[step % kBuffers].span.keys;
    if (in.values) in.values = cutter.arrived[step % kBuffers].span.values;
    out = cutter.grouped[step % kBuffers].span.slice(chunk.layout, 0, in.size);
  }
  std::vector<uint64_t>& offsets = chunk.piece->offsets;
  offsets.resize(digit.count() + 1);
  cutter.primitives().partition(chunk.layout, in, digit, out, offsets.data(), cutter.scratch.data(), job, cutter.stream());
}

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
  return flow::counted_bytes(
      [&](StackAllocator& memory) { flow::count<Cutting>(memory, device, layouts, chunk_rows, round_digit(round_bits)); });
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
  const Digit digit = round_digit(round_bits);
  flow::Lanes<Cutting> cutters(devices.first(g), 1, [&](Device& device, size_t) {
    const std::array layouts{sides[0].layout, sides[1].layout};
    device.memory().reserve(cut_rounds_device_bytes(device, layouts, largest, round_bits));
    return Cutting(device.memory(), device, layouts, largest, digit);
  });
  // Relation follows relation, as a direction of the links rests in the first and the last steps.
  const size_t steps = g ? (chunks.size() + g - 1) / g : 0;
  const auto stage = [&](const auto& take) {
    return [&](size_t step, std::vector<HostQueue>& queues) {
      for (size_t d = 0; d < g && step * g + d < chunks.size(); ++d) take(cutters[d], chunks[step * g + d], step, queues);
    };
  };
  const auto arrives = [&](const Cutter& cutter, const Chunk& chunk, size_t step, auto& queues) {
    if (!cutter.arrived.empty()) queues.push_back(arrival(cutter, chunk, step));
  };
  const auto is_grouped = [&](const Cutter& cutter, const Chunk& chunk, size_t step, auto&) {
    group(cutter, chunk, step, digit, job);
    job.add_done(chunk.piece->in.size);
  };
  const auto leaves = [&](const Cutter& cutter, const Chunk& chunk, size_t step, auto& queues) {
    if (!cutter.arrived.empty()) queues.push_back(way_home(cutter, chunk, step));
  };
  flow::run_steps(engine, steps, {stage(arrives), stage(is_grouped), stage(leaves)}, job, [&] { cutters.wait(job); });
  return sides;
}

}  // namespace warpjoin
