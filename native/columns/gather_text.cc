#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "columns/gather_source.h"
#include "core/error.h"
#include "core/format.h"

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

template <class Offset>
OwnedColumn gather(const GatherSource& source, Engine& engine, const Job& job) {
  constexpr ColumnKind kKind = sizeof(Offset) == 4 ? ColumnKind::utf8 : ColumnKind::large_utf8;
  const uint64_t rows = source.size();
  OwnedColumn result;
  result.length = rows;
  GatheredValidity validity(source, engine);
  result.offsets = engine.memory->allocate((rows + 1) * sizeof(Offset), "a gathered column's offsets");
  auto* const offsets = result.offsets.as<Offset>();
  offsets[0] = 0;

  // Where the texts begin is kept, if that leaves as much for the texts: to look it up twice misses the caches twice.
  const size_t begins_bytes = rows * sizeof(Offset);
  HostBuffer kept;
  if (engine.memory->free_bytes() / 2 > begins_bytes) kept = engine.memory->allocate(begins_bytes, "where gathered texts begin");

  // First the sizes, each where its end will be.
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
        offsets[at + i + 1] = static_cast<Offset>(size);
        bytes += size;
      }
    }
    starts[block + 1] = bytes;
  });
  for (size_t block = 1; block < starts.size(); ++block) starts[block] += starts[block - 1];
  const uint64_t total = starts.back();
  if (total > static_cast<uint64_t>(std::numeric_limits<Offset>::max())) {
    throw Error(ErrorCode::not_supported, "A result of " + format_bytes(total) +
                                              " of text does not fit 32-bit offsets: use a large type or fewer rows at once");
  }

  if (engine.memory->free_bytes() < total) kept = HostBuffer();
  result.values = engine.memory->allocate(std::max<uint64_t>(1, total), "a gathered column");
  auto* const values = result.values.as<uint8_t>();
  for_row_blocks(engine, rows, job, [&, begins = kept.as<Offset>()](uint64_t block, uint64_t begin, uint64_t end) {
    Place places[kGatherBatch];
    const uint8_t* texts[kGatherBatch];
    uint64_t position = starts[block];
    const uint8_t* const block_end = values + starts[block + 1];
    for (uint64_t at = begin; at < end; at += kGatherBatch) {
      job.check();  // texts may be long
      const uint64_t count = std::min(kGatherBatch, end - at);
      source.locate(at, count, places);
      for (uint64_t i = 0; i < count; ++i) {
        if (!begins && offsets[at + i + 1]) prefetch_offset(kKind, places[i]);
      }
      const auto find_texts = [&](auto&& begin_of) {
        for (uint64_t i = 0; i < count; ++i) {
          const auto size = static_cast<uint64_t>(offsets[at + i + 1]);
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
        const auto size = static_cast<uint64_t>(offsets[at + i + 1]);
        if (size) {
          const ColumnChunk& chunk = *places[i].chunk;
          copy_text(texts[i], size, static_cast<const uint8_t*>(chunk.values) + chunk.values_bytes, values + position, block_end);
          position += size;
        }
        offsets[at + i + 1] = static_cast<Offset>(position);
      }
    }
  });
  validity.move_to(result);
  return result;
}

}  // namespace

OwnedColumn gather_text(const GatherSource& source, Engine& engine, const Job& job) {
  return source.type().kind == ColumnKind::utf8 ? gather<int32_t>(source, engine, job) : gather<int64_t>(source, engine, job);
}

}  // namespace warpjoin::columns
