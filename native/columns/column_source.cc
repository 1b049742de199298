#include "columns/column_source.h"

#include <algorithm>
#include <atomic>
#include <bit>

namespace warpjoin {

using columns::for_groups;
using columns::for_row_blocks;

void ColumnSource::pack(Engine& engine, const Job& job) {
  if (boolean()) bits_.values = packed(engine, job, &ColumnChunk::values);
  if (nullable_) bits_.validity = packed(engine, job, &ColumnChunk::validity);
}

void ColumnSource::drop_validity_without_nulls(Engine& engine, const Job& job) {
  if (!nullable_ || count_set_bits(engine, bits_.validity, rows(), job) < rows()) return;
  nullable_ = false;
  bits_.validity = HostBuffer();
}

// All ones where a chunk has no such bitmap.
template <class Bitmap>
HostBuffer ColumnSource::packed(Engine& engine, const Job& job, Bitmap bitmap) const {
  HostBuffer made = engine.memory->allocate(bitmap_bytes(rows()), "a column's bits");
  auto* const words = made.as<uint64_t>();
  for_row_blocks(engine, rows(), job, [&](uint64_t, uint64_t begin, uint64_t end) {
    std::fill(words + begin / 64, words + (end + 63) / 64, uint64_t{0});
    chunks_.for_pieces(begin, end, [&](ColumnChunk chunk, uint64_t first, uint64_t count, uint64_t row) {
      chunk.validity = static_cast<const uint8_t*>(chunk.*bitmap);
      for_groups(chunk, first, count, [&](uint64_t at, unsigned, uint64_t bits) {
        const uint64_t to = row + at - first;
        words[to / 64] |= bits << (to % 64);
        if (to % 64 && bits >> (64 - to % 64)) words[to / 64 + 1] |= bits >> (64 - to % 64);
      });
    });
  });
  return made;
}

HostCopy ColumnSource::copy(uint64_t begin, uint64_t end, const DeviceStretch& to) const {
  HostCopy copy;
  const auto add_bits = [&](void* target, const HostBuffer& bits) {
    copy.stretches.push_back({target, bits.as<char>() + begin / 8, bitmap_bytes(end - begin)});
  };
  if (nullable_) add_bits(to.validity, bits_.validity);
  if (boolean()) {
    add_bits(to.values, bits_.values);
    return copy;
  }
  const size_t width = type().width;
  chunks_.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
    copy.stretches.push_back({static_cast<char*>(to.values) + (row - begin) * width,
                              static_cast<const char*>(chunk.values) + first * width, count * width});
  });
  return copy;
}

uint64_t count_set_bits(Engine& engine, const HostBuffer& bitmap, uint64_t rows, const Job& job) {
  const auto* const words = bitmap.as<uint64_t>();
  std::atomic<uint64_t> set{0};
  for_row_blocks(engine, rows, job, [&](uint64_t, uint64_t begin, uint64_t end) {
    uint64_t count = 0;
    for (uint64_t word = begin / 64; word < (end + 63) / 64; ++word) count += static_cast<unsigned>(std::popcount(words[word]));
    set.fetch_add(count, std::memory_order_relaxed);
  });
  return set.load();
}

void set_validity(Engine& engine, OwnedColumn& column, HostBuffer bitmap, const Job& job) {
  column.null_count = column.length - count_set_bits(engine, bitmap, column.length, job);
  if (column.null_count == 0) return;
  column.validity = std::move(bitmap);
  column.validity.shrink((column.length + 7) / 8);
}

}  // namespace warpjoin
