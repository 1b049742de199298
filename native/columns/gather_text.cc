#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "columns/chunk_ends.h"
#include "columns/gather_source.h"

namespace warpjoin::columns {
namespace {

/// Short texts are copied whole words at a time: what is written too much lies before `out_end` and is overwritten by the
/// texts that follow.
inline void copy_text(const uint8_t* text, uint64_t size, const uint8_t* readable_end, uint8_t* out, const uint8_t* out_end) {
  if (size <= 32 && readable_end - text >= 32 && out_end - out >= 32) {
    std::memcpy(out, text, 16);
    if (size > 16) std::memcpy(out + 16, text + 16, 16);
  } else if (size) {
    std::memcpy(out, text, size);
  }
}

/// Rows of one block and one chunk of the result.
struct Piece {
  uint64_t begin, end;
  uint64_t byte;  ///< where the text of the first one goes
  uint64_t chunk, chunk_byte;
};

std::vector<Piece> pieces_of(uint64_t rows, const std::vector<uint64_t>& block_starts, const std::vector<ChunkEnd>& ends) {
  std::vector<Piece> pieces;
  pieces.reserve(block_starts.size() + ends.size());
  ChunkEnd at;
  uint64_t chunk = 0, chunk_byte = 0;
  for (uint64_t block = 0; block + 1 < block_starts.size(); ++block) {
    const ChunkEnd block_end{std::min(rows, (block + 1) * kBlockRows), block_starts[block + 1]};
    while (at.row < block_end.row) {
      const ChunkEnd end = ends[chunk].row <= block_end.row ? ends[chunk] : block_end;
      pieces.push_back({at.row, end.row, at.byte, chunk, chunk_byte});
      at = end;
      if (at.row == ends[chunk].row) {
        ++chunk;
        chunk_byte = at.byte;
      }
    }
  }
  return pieces;
}

/// Nothing where there would be several chunks, or one above the limit, with `one_chunk`.
template <class Offset>
std::optional<OwnedColumn> gather(const GatherSource& source, uint64_t most_bytes, bool one_chunk, Engine& engine,
                                  const Job& job) {
  constexpr ColumnKind kKind = sizeof(Offset) == 4 ? ColumnKind::utf8 : ColumnKind::large_utf8;
  const uint64_t rows = source.size();
  OwnedColumn result;
  result.type = source.type();
  result.length = rows;
  GatheredValidity validity(source, engine);
  result.offsets = engine.memory->allocate((rows + 1) * sizeof(Offset), "a gathered column's offsets");
  auto* const sizes = result.offsets.as<Offset>() + 1;

  // Where the texts begin is kept, if that leaves as much for the texts: to look it up twice misses the caches twice.
  const size_t begins_bytes = rows * sizeof(Offset);
  HostBuffer kept;
  if (engine.memory->free_bytes() / 2 > begins_bytes) kept = engine.memory->allocate(begins_bytes, "where gathered texts begin");

  // First the sizes, each where its end will be if there is one chunk.
  std::vector<uint64_t> starts(block_count(rows) + 1, 0);
  for_row_blocks(engine, rows, job, [&, begins = kept.as<Offset>()](uint64_t block, uint64_t begin, uint64_t end) {
    Place places[kGatherBatch];
    uint64_t bytes = 0;
    for (uint64_t at = begin; at < end; at += kGatherBatch) {
      const uint64_t count = std::min(kGatherBatch, end - at);
      source.locate(at, count, places);
      for (uint64_t i = 0; i < count; ++i) {
        if (places[i].chunk) prefetch_offset(kKind, places[i]);
      }
      validity.write(at, count, places);
      for (uint64_t i = 0; i < count; ++i) {
        const ColumnChunk* const chunk = places[i].chunk;
        const TextRange text = chunk ? text_range<Offset>(*chunk, places[i].index) : TextRange{0, 0};
        const uint64_t size = text.end - text.begin;
        if (begins) begins[at + i] = static_cast<Offset>(text.begin);
        sizes[at + i] = static_cast<Offset>(size);
        bytes += size;
      }
    }
    starts[block + 1] = bytes;
  });
  for (size_t block = 1; block < starts.size(); ++block) starts[block] += starts[block - 1];
  const uint64_t total = starts.back();
  const uint64_t max_bytes = std::min<uint64_t>(most_bytes, std::numeric_limits<Offset>::max());
  result.chunk_ends = text_chunk_ends<Offset>({sizes, rows}, starts, max_bytes, source.rows().group_ends);

  const uint64_t chunks = result.chunk_ends.size();
  if (one_chunk && (chunks > 1 || total > max_bytes)) return std::nullopt;
  const size_t offsets_bytes = (rows + chunks) * sizeof(Offset);
  const size_t needed = HostMemory::block_bytes(total) + (chunks > 1 ? HostMemory::block_bytes(offsets_bytes) : 0);
  if (engine.memory->free_bytes() < needed) kept = HostBuffer();
  HostBuffer moved_sizes;
  if (chunks > 1) {
    moved_sizes = std::move(result.offsets);
    result.offsets = engine.memory->allocate(offsets_bytes, "a gathered column's offsets");
  }
  result.values = engine.memory->allocate(std::max<uint64_t>(1, total), "a gathered column");
  auto* const offsets = result.offsets.as<Offset>();
  auto* const values = result.values.as<uint8_t>();
  for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
    offsets[chunk ? result.chunk_ends[chunk - 1].row + chunk : 0] = 0;
  }
  const std::vector<Piece> pieces = pieces_of(rows, starts, result.chunk_ends);
  engine.pool.parallel_for(pieces.size(), [&, begins = kept.as<Offset>()](uint64_t index) {
    const Piece& piece = pieces[index];
    Place places[kGatherBatch];
    const uint8_t* texts[kGatherBatch];
    uint64_t position = piece.byte;
    const uint8_t* const piece_end = values + (index + 1 < pieces.size() ? pieces[index + 1].byte : total);
    Offset* const ends = offsets + piece.chunk + 1;
    for (uint64_t at = piece.begin; at < piece.end; at += kGatherBatch) {
      job.check();  // texts may be long
      const uint64_t count = std::min(kGatherBatch, piece.end - at);
      source.locate(at, count, places);
      for (uint64_t i = 0; i < count; ++i) {
        if (!begins && sizes[at + i]) prefetch_offset(kKind, places[i]);
      }
      const auto find_texts = [&](auto&& begin_of) {
        for (uint64_t i = 0; i < count; ++i) {
          const auto size = static_cast<uint64_t>(sizes[at + i]);
          if (size == 0) continue;
          const ColumnChunk& chunk = *places[i].chunk;
          texts[i] = static_cast<const uint8_t*>(chunk.values) + begin_of(i, chunk, size);
          __builtin_prefetch(texts[i]);
          __builtin_prefetch(texts[i] + size - 1);  // short texts are often on two lines
        }
      };
      if (begins) {
        find_texts([&](uint64_t i, const ColumnChunk&, uint64_t) { return static_cast<uint64_t>(begins[at + i]); });
      } else {  // what is read again may have changed since the size was taken
        find_texts([&](uint64_t i, const ColumnChunk& chunk, uint64_t size) {
          return std::min(static_cast<uint64_t>(load_once<Offset>(chunk.offsets, places[i].index)), chunk.values_bytes - size);
        });
      }
      for (uint64_t i = 0; i < count; ++i) {
        const auto size = static_cast<uint64_t>(sizes[at + i]);
        if (size) {
          const ColumnChunk& chunk = *places[i].chunk;
          copy_text(texts[i], size, static_cast<const uint8_t*>(chunk.values) + chunk.values_bytes, values + position, piece_end);
          position += size;
        }
        ends[at + i] = static_cast<Offset>(position - piece.chunk_byte);
      }
    }
  });
  validity.move_to(result);
  return result;
}

}  // namespace

OwnedColumn gather_text(const GatherSource& source, Engine& engine, const Job& job) {
  const uint64_t most = job.max_buffer_bytes();
  const bool large = source.type().kind == ColumnKind::large_utf8;
  return *(large ? gather<int64_t>(source, most, false, engine, job) : gather<int32_t>(source, most, false, engine, job));
}

std::optional<OwnedColumn> gather_one_text(const GatherSource& source, uint64_t max_bytes, Engine& engine, const Job& job) {
  const bool large = source.type().kind == ColumnKind::large_utf8;
  return large ? gather<int64_t>(source, max_bytes, true, engine, job) : gather<int32_t>(source, max_bytes, true, engine, job);
}

}  // namespace warpjoin::columns
