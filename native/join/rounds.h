// The rounds of a hash join: a relation in host memory grouped by the topmost bits of its mixed keys.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "core/job.h"
#include "engine/engine.h"
#include "join/local_joins.h"
#include "transfer/arrival.h"

namespace warpjoin {

/// A relation in chunks, each grouped by round.
struct Rounds {
  TupleLayout layout;
  HostBuffer keys, values;
  std::vector<Piece> chunks;

  Relation part(uint32_t round) const;
};

/// Tuples that a device groups at a time, of `tuples` on both sides: all of them where they are, or at most half as many as it
/// joins in a round, so that there is room for those that come and go.
uint64_t round_chunk_rows(const Device& device, uint64_t tuples, uint32_t rounds, size_t devices);

/// Groups both relations, of one stretch each, into 2^round_bits rounds, in chunks of `chunk_rows`. Device memory:
/// cut_rounds_device_bytes.
std::array<Rounds, 2> cut_rounds(Engine& engine, std::span<Device* const> devices,
                                 const std::array<const Relation*, 2>& relations, uint32_t round_bits, uint64_t chunk_rows,
                                 Job& job);
size_t cut_rounds_device_bytes(Device& device, const std::array<TupleLayout, 2>& layouts, uint64_t chunk_rows,
                               uint32_t round_bits);

}  // namespace warpjoin
