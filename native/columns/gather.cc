#include "columns/gather.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "columns/gather_nested.h"
#include "columns/gather_source.h"
#include "core/error.h"
#include "core/sharding.h"

namespace warpjoin {
namespace columns {
namespace {

/// Values of one chunk without nulls: the processor overlaps the cache misses of such a short loop by itself.
template <size_t width, class Row>
void gather_plain(const void* values, const Row* rows, uint64_t count, char* out) {
  const auto* in = static_cast<const char*>(values);
  for (uint64_t i = 0; i < count; ++i) std::memcpy(out + i * width, in + uint64_t{rows[i]} * width, width);
}

void gather_plain_wide(const void* values, uint32_t width, const RowList& list, uint64_t begin, uint64_t count, char* out) {
  const auto* in = static_cast<const char*>(values);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t row = list.row_bytes == 4 ? load<uint32_t>(list.rows, begin + i) : load<uint64_t>(list.rows, begin + i);
    std::memcpy(out + i * width, in + row * width, width);
  }
}

/// `width` is a constant, or 0: `any_width`.
template <size_t width>
void gather_places(const Place* places, uint64_t count, uint32_t any_width, char* out) {
  const size_t bytes = width ? width : any_width;
  for (uint64_t i = 0; i < count; ++i) {
    if (places[i].chunk) __builtin_prefetch(static_cast<const char*>(places[i].chunk->values) + places[i].index * bytes);
  }
  for (uint64_t i = 0; i < count; ++i, out += bytes) {
    if (places[i].chunk) {
      std::memcpy(out, static_cast<const char*>(places[i].chunk->values) + places[i].index * bytes, bytes);
    } else {
      std::memset(out, 0, bytes);
    }
  }
}

/// Chunks are worth a loop over all groups from so many rows on, on average.
constexpr uint64_t kLeastChunkRows = 1024;

bool by_groups(const GatherSource& source) {
  return !source.rows().group_ends.empty() && !source.rows().may_be_missing && !source.may_give_nulls() &&
         source.chunks().rows() >= kLeastChunkRows * source.chunks().chunks().size();
}

/// Rows of groups, block by block of the column: each group takes its rows of a block while that is in the cache.
template <size_t width, class Row>
void gather_groups(const GatherSource& source, char* out, Engine& engine, const Job& job) {
  constexpr uint64_t kTasksAThread = 4;
  const ChunkIndex& chunks = source.chunks();
  const std::span<const uint64_t> ends = source.rows().group_ends;
  const auto* const rows = static_cast<const Row*>(source.rows().rows);
  const uint64_t blocks = block_count(chunks.rows()), tasks = std::min<uint64_t>(blocks, kTasksAThread * engine.pool.threads());
  engine.pool.parallel_for(tasks, [&](uint64_t task) {
    const uint64_t first = kBlockRows * share_begin(blocks, tasks, task);
    const uint64_t last = std::min(chunks.rows(), kBlockRows * share_begin(blocks, tasks, task + 1));
    std::vector<uint64_t> next;  // row of each group
    for (const uint64_t end : ends) {
      const uint64_t begin = next.empty() ? 0 : ends[next.size() - 1];
      next.push_back(static_cast<uint64_t>(std::lower_bound(rows + begin, rows + end, first) - rows));
    }
    for (uint64_t begin = first; begin < last; begin += kBlockRows) {
      job.check();
      chunks.for_pieces(begin, std::min(last, begin + kBlockRows),
                        [&](const ColumnChunk& chunk, uint64_t from, uint64_t count, uint64_t row) {
                          const auto* const values = static_cast<const char*>(chunk.values) + from * width;
                          for (size_t group = 0; group < ends.size(); ++group) {
                            uint64_t at = next[group];
                            for (; at < ends[group] && rows[at] < row + count; ++at) {
                              std::memcpy(out + at * width, values + (rows[at] - row) * width, width);
                            }
                            next[group] = at;
                          }
                        });
    }
  });
}

/// Calls body.operator()<width>() for the widths that are worth a loop of their own, with 0 for the others.
template <class Body>
void with_width(uint32_t width, Body&& body) {
  switch (width) {
    case 1: return body.template operator()<1>();
    case 2: return body.template operator()<2>();
    case 4: return body.template operator()<4>();
    case 8: return body.template operator()<8>();
    case 16: return body.template operator()<16>();
    case 32: return body.template operator()<32>();
    default: return body.template operator()<0>();
  }
}

/// Calls body(at, count, places) for batches of rows [begin, end), null rows marked as missing.
template <class Body>
void for_batches(const GatherSource& source, GatheredValidity& validity, uint64_t begin, uint64_t end, Body&& body) {
  Place places[kGatherBatch];
  for (uint64_t at = begin; at < end; at += kGatherBatch) {
    const uint64_t count = std::min(kGatherBatch, end - at);
    source.locate(at, count, places);
    validity.write(at, count, places);
    body(at, count, static_cast<const Place*>(places));
  }
}

void gather_fixed(const GatherSource& source, GatheredValidity& validity, OwnedColumn& result, Engine& engine, const Job& job) {
  const uint32_t width = source.type().width;
  char* const out = result.values.as<char>();
  const ColumnChunk* plain = source.plain_chunk();
  if (width == 0) {  // binary of no bytes
    if (plain) return;
    for_row_blocks(engine, source.size(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
      for_batches(source, validity, begin, end, [](uint64_t, uint64_t, const Place*) {});
    });
    return;
  }
  with_width(width, [&]<size_t fixed_width>() {
    if constexpr (fixed_width != 0) {
      if (by_groups(source)) {
        return source.rows().row_bytes == 4 ? gather_groups<fixed_width, uint32_t>(source, out, engine, job)
                                            : gather_groups<fixed_width, uint64_t>(source, out, engine, job);
      }
    }
    for_row_blocks(engine, source.size(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
      if (!plain) {
        for_batches(source, validity, begin, end, [&](uint64_t at, uint64_t count, const Place* places) {
          gather_places<fixed_width>(places, count, width, out + at * width);
        });
        return;
      }
      char* const block_out = out + begin * width;
      if constexpr (fixed_width == 0) {
        gather_plain_wide(plain->values, width, source.rows(), begin, end - begin, block_out);
      } else if (source.rows().row_bytes == 4) {
        gather_plain<fixed_width>(plain->values, static_cast<const uint32_t*>(source.rows().rows) + begin, end - begin,
                                  block_out);
      } else {
        gather_plain<fixed_width>(plain->values, static_cast<const uint64_t*>(source.rows().rows) + begin, end - begin,
                                  block_out);
      }
    });
  });
}

void gather_bits(const GatherSource& source, GatheredValidity& validity, OwnedColumn& result, Engine& engine, const Job& job) {
  for_row_blocks(engine, source.size(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    for_batches(source, validity, begin, end, [&](uint64_t at, uint64_t count, const Place* places) {
      for (uint64_t i = 0; i < count; ++i) {
        const ColumnChunk* chunk = places[i].chunk;
        if (chunk) __builtin_prefetch(static_cast<const char*>(chunk->values) + (chunk->bit_offset + places[i].index) / 8);
      }
      for (uint64_t done = 0; done < count; done += 64) {
        uint64_t bits = 0;
        for (uint64_t i = done; i < std::min(count, done + 64); ++i) {
          const ColumnChunk* chunk = places[i].chunk;
          if (chunk) bits |= uint64_t{bit_at(chunk->values, chunk->bit_offset + places[i].index)} << (i - done);
        }
        result.values.as<uint64_t>()[(at + done) / 64] = bits;
      }
    });
  });
}

}  // namespace

OwnedColumn gather_values(const GatherSource& source, Engine& engine, const Job& job) {
  OwnedColumn result;
  result.type = source.type();
  result.length = source.size();
  GatheredValidity validity(source, engine);
  if (source.type().kind == ColumnKind::boolean) {
    result.values = engine.memory->allocate(std::max<uint64_t>(1, (source.size() + 63) / 64 * 8), "a gathered column");
    gather_bits(source, validity, result, engine, job);
    result.values.shrink(std::max<uint64_t>(1, (source.size() + 7) / 8));
  } else {
    result.values = engine.memory->allocate(std::max<uint64_t>(1, source.size() * source.type().width), "a gathered column");
    gather_fixed(source, validity, result, engine, job);
  }
  validity.move_to(result);
  return result;
}

namespace {

OwnedColumn gather_from(const GatherSource& source, Engine& engine, const Job& job) {
  return source.type().variable_width() ? gather_text(source, engine, job) : gather_values(source, engine, job);
}

}  // namespace
}  // namespace columns

OwnedColumn gather(const Column& column, RowList rows, Engine& engine, const Job& job) {
  if (column.type.nested()) return columns::gather_nested(column, rows, engine, job);
  return columns::gather_from(columns::GatherSource(column, rows), engine, job);
}

OwnedColumn gather_coalesced(const Column& first, RowList first_rows, const Column& second, RowList second_rows, Engine& engine,
                             const Job& job) {
  if (first.type.kind != second.type.kind || first.type.width != second.type.width) {
    throw Error(ErrorCode::key_type,
                "Columns '" + first.name + "' and '" + second.name + "' can't become one: their types differ");
  }
  if (first_rows.size != second_rows.size) {
    throw Error(ErrorCode::internal, "Columns '" + first.name + "' and '" + second.name + "' are gathered by rows of two sizes");
  }
  const columns::GatherSource source(first, first_rows, second, second_rows);
  if (!first.type.nested()) return columns::gather_from(source, engine, job);
  if (!first.children.empty()) throw Error(ErrorCode::key_type, "Column '" + first.name + "' is nested and can't be a key");
  return columns::gather_leaves(source, first.name, engine, job);
}

}  // namespace warpjoin
