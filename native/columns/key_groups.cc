#include "columns/key_groups.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "columns/chunks.h"

namespace warpjoin {
namespace {

/// A side whose tuples carry a payload has all rows as tuples, in order: their numbers are implied.
TupleView numbered(const JoinSide& side) {
  TupleView view = side.tuples.view;
  if (side.carries_payload) view.values = nullptr;
  return view;
}
TupleLayout numbered_layout(const JoinSide& side) {
  const TupleLayout layout = side.tuples.layout;
  return side.carries_payload ? TupleLayout{layout.key_bytes, columns::row_bytes_for(side.rows)} : layout;
}

/// The one of the excluded rows that is kept: they are nulls, and equal.
std::optional<uint64_t> kept_null(const JoinSide& side, KeepRow keep) {
  if (side.excluded_rows == 0 || (keep == KeepRow::none && side.excluded_rows > 1)) return std::nullopt;
  const uint64_t at = keep == KeepRow::last ? side.excluded_rows - 1 : 0;
  return side.tuples.layout.value_bytes == 4 ? side.excluded.as<uint32_t>()[at] : side.excluded.as<uint64_t>()[at];
}

template <class Row>
void write_rows(Engine& engine, const uint64_t* bits, uint64_t rows, UniqueRows& out, const Job& job) {
  std::vector<uint64_t> starts(columns::block_count(rows) + 1, 0);
  columns::for_row_blocks(engine, rows, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t kept = 0;
    for (uint64_t word = begin / 64; word * 64 < end; ++word) kept += static_cast<unsigned>(std::popcount(bits[word]));
    starts[block + 1] = kept;
  });
  for (size_t block = 1; block < starts.size(); ++block) starts[block] += starts[block - 1];
  out.size = starts.back();
  out.rows = engine.memory->allocate(out.size * sizeof(Row), "the rows that are kept");
  columns::for_row_blocks(engine, rows, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    Row* at = out.rows.as<Row>() + starts[block];
    for (uint64_t word = begin / 64; word * 64 < end; ++word) {
      columns::for_set_bits(bits[word], [&](unsigned bit) { *at++ = static_cast<Row>(word * 64 + bit); });
    }
  });
}

}  // namespace

UniqueRows unique_rows(Engine& engine, const JoinSide& side, KeepRow keep, Job& job) {
  job.add_planned(side.rows);
  UniqueRows out;
  out.row_bytes = columns::row_bytes_for(side.rows);
  const uint64_t words = (side.rows + 63) / 64;
  const HostBuffer bits = engine.memory->allocate(words * sizeof(uint64_t), "the rows that are kept");
  auto* const marked = bits.as<uint64_t>();
  std::memset(marked, 0, words * sizeof(uint64_t));
  {
    const PhaseTimer timer(job, "group", side.tuples.view.size * numbered_layout(side).tuple_bytes());
    naming_columns({&side.tuples}, [&] {
      host::mark_rows(engine.pool, *engine.memory, numbered_layout(side), numbered(side), keep, marked, job);
    });
  }
  if (const auto row = kept_null(side, keep)) marked[*row / 64] |= uint64_t{1} << (*row % 64);
  const PhaseTimer timer(job, "list");
  if (out.row_bytes == 4) {
    write_rows<uint32_t>(engine, marked, side.rows, out, job);
  } else {
    write_rows<uint64_t>(engine, marked, side.rows, out, job);
  }
  job.add_done(side.rows);
  return out;
}

size_t unique_rows_bytes(Engine& engine, const JoinSide& side) {
  constexpr uint64_t kRunner = uint64_t{1} << 20;  // tables and open lines of a thread, as far as keys spread evenly
  const TupleLayout layout = numbered_layout(side);
  const uint64_t size = side.tuples.view.size;
  return HostMemory::block_bytes((side.rows + 63) / 64 * 8) + HostMemory::block_bytes(size * layout.key_bytes) +
         HostMemory::block_bytes(size * layout.value_bytes) + engine.pool.threads() * kRunner;
}

std::optional<RepeatedKey> find_repeated_key(Engine& engine, const JoinSide& side, Job& job) {
  const PhaseTimer timer(job, "group", side.tuples.view.size * numbered_layout(side).tuple_bytes());
  job.add_planned(side.tuples.view.size);
  const auto found = naming_columns({&side.tuples}, [&] {
    return host::find_repeated(engine.pool, *engine.memory, numbered_layout(side), numbered(side), job);
  });
  job.add_done(side.tuples.view.size);
  return found;
}

}  // namespace warpjoin
