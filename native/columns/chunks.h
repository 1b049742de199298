// Finding rows in chunked columns, one after the other or at random.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "columns/bits.h"
#include "core/column.h"
#include "core/job.h"
#include "engine/engine.h"

namespace warpjoin::columns {

/// Rows that one task works on. A multiple of 64, so that tasks share no word of an output bitmap.
inline constexpr uint64_t kBlockRows = uint64_t{1} << 16;

inline uint64_t block_count(uint64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

/// Runs body(block, begin, end) for each block of rows on all threads; checks the job before each.
template <class Body>
void for_row_blocks(ThreadPool& pool, uint64_t rows, const Job& job, Body&& body) {
  pool.parallel_for(block_count(rows), [&](uint64_t block) {
    job.check();
    body(block, block * kBlockRows, std::min(rows, (block + 1) * kBlockRows));
  });
}
template <class Body>
void for_row_blocks(Engine& engine, uint64_t rows, const Job& job, Body&& body) {
  for_row_blocks(engine.pool, rows, job, std::forward<Body>(body));
}

/// A row number of a whole column below 2^32 - 1 rows takes 4 bytes; the all-ones one means "no row".
inline uint8_t row_bytes_for(uint64_t rows) { return rows < 0xFFFFFFFFu ? 4 : 8; }

/// A position in a column.
struct Place {
  const ColumnChunk* chunk;
  uint64_t index;
};

/// A column without its empty chunks, and where each chunk starts. Borrows the column. Chunks claim no more bytes of text than
/// there are, nor than their offsets can tell apart.
class ChunkIndex {
 public:
  explicit ChunkIndex(const Column& column) : type_(column.type) {
    starts_.push_back(0);
    for (const ColumnChunk& chunk : column.chunks) {
      if (chunk.length == 0) continue;
      chunks_.push_back(chunk);
      if (!chunk.values) chunks_.back().values_bytes = 0;
      if (type_.kind == ColumnKind::utf8) chunks_.back().values_bytes = std::min<uint64_t>(chunk.values_bytes, INT32_MAX);
      starts_.push_back(starts_.back() + chunk.length);
      nullable_ |= chunk.validity != nullptr;
    }
    rows_ = starts_.back();
    if (chunks_.size() < 2) return;
    // A table with about four entries a chunk leaves at most a step or two of binary search.
    while ((rows_ >> shift_) > 4 * chunks_.size()) ++shift_;
    table_.resize((rows_ >> shift_) + 2);
    uint32_t chunk = 0;
    for (uint64_t i = 0; i < table_.size(); ++i) {
      while (chunk + 1 < chunks_.size() && starts_[chunk + 1] <= (i << shift_)) ++chunk;
      table_[i] = chunk;
    }
  }

  const ColumnType& type() const { return type_; }
  uint64_t rows() const { return rows_; }
  bool nullable() const { return nullable_; }  ///< some chunk has a validity bitmap
  const std::vector<ColumnChunk>& chunks() const { return chunks_; }
  bool single() const { return chunks_.size() == 1; }

  /// Where row `row` < rows() lies.
  [[gnu::always_inline]] Place at(uint64_t row) const {
    if (table_.empty()) return {chunks_.data(), row};
    uint32_t low = table_[row >> shift_], high = table_[(row >> shift_) + 1];
    while (low < high) {
      const uint32_t middle = (low + high + 1) / 2;
      if (starts_[middle] <= row) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return {&chunks_[low], row - starts_[low]};
  }

  /// Calls body(chunk, first, count, row) for the parts of rows [begin, end) in order: `count` rows from `first` of
  /// `chunk` are rows `row` and following.
  template <class Body>
  void for_pieces(uint64_t begin, uint64_t end, Body&& body) const {
    if (begin >= end) return;
    const Place place = at(begin);
    const ColumnChunk* chunk = place.chunk;
    for (uint64_t row = begin, first = place.index; row < end; ++chunk, first = 0) {
      const uint64_t count = std::min(chunk->length - first, end - row);
      body(*chunk, first, count, row);
      row += count;
    }
  }

 private:
  ColumnType type_;
  std::vector<ColumnChunk> chunks_;
  std::vector<uint64_t> starts_;
  std::vector<uint32_t> table_;
  uint64_t rows_ = 0;
  unsigned shift_ = 0;
  bool nullable_ = false;
};

inline bool valid_at(const ColumnChunk& chunk, uint64_t index) {
  return !chunk.validity || bit_at(chunk.validity, chunk.bit_offset + index);
}

/// Validity of rows [first, first + count) of a chunk, count <= 64.
inline uint64_t valid_bits(const ColumnChunk& chunk, uint64_t first, unsigned count) {
  return chunk.validity ? bits_at(chunk.validity, chunk.bit_offset + first, count) : low_bits(count);
}

/// Calls body(first, count, valid) for groups of at most 64 rows of a chunk's rows [first, first + count).
template <class Body>
void for_groups(const ColumnChunk& chunk, uint64_t first, uint64_t count, Body&& body) {
  for (uint64_t done = 0; done < count; done += 64) {
    const auto group = static_cast<unsigned>(std::min<uint64_t>(64, count - done));
    body(first + done, group, valid_bits(chunk, first + done, group));
  }
}

/// Calls body(index) for each set bit.
template <class Body>
void for_set_bits(uint64_t bits, Body&& body) {
  for (; bits; bits &= bits - 1) body(static_cast<unsigned>(std::countr_zero(bits)));
}

/// One value of a variable-width column.
struct Text {
  const uint8_t* data = nullptr;
  uint64_t size = 0;
  const uint8_t* end = nullptr;  ///< of the readable bytes behind it
};

/// Where a text lies among its chunk's bytes.
struct TextRange {
  uint64_t begin, end;
};

/// Apart from text_range(), which is to stay small.
[[gnu::noinline, gnu::cold]] inline TextRange clamped(TextRange range, uint64_t bytes) {
  const uint64_t end = std::min(range.end, bytes);
  return {std::min(range.begin, end), end};
}

/// Within the chunk's bytes whatever its offsets say: they may have changed since they were checked.
template <class Offset>
[[gnu::always_inline]] inline TextRange text_range(const ColumnChunk& chunk, uint64_t index) {
  const TextRange range{static_cast<uint64_t>(load_once<Offset>(chunk.offsets, index)),
                        static_cast<uint64_t>(load_once<Offset>(chunk.offsets, index + 1))};
  if ((range.begin > range.end) | (range.end > chunk.values_bytes)) [[unlikely]]
    return clamped(range, chunk.values_bytes);
  return range;
}

template <class Offset>
[[gnu::always_inline]] inline Text text_at(const ColumnChunk& chunk, uint64_t index) {
  const auto [begin, end] = text_range<Offset>(chunk, index);
  const auto* bytes = static_cast<const uint8_t*>(chunk.values);
  if (begin == end) return {bytes, 0, bytes};  // the bytes may be missing altogether
  return {bytes + begin, end - begin, bytes + chunk.values_bytes};
}

[[gnu::always_inline]] inline Text text_at(ColumnKind kind, const ColumnChunk& chunk, uint64_t index) {
  return kind == ColumnKind::utf8 ? text_at<int32_t>(chunk, index) : text_at<int64_t>(chunk, index);
}

inline void prefetch_offset(ColumnKind kind, Place place) {
  __builtin_prefetch(static_cast<const char*>(place.chunk->offsets) + place.index * (kind == ColumnKind::utf8 ? 4 : 8));
}

}  // namespace warpjoin::columns
