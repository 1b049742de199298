// Where the rows to gather lie.
#pragma once

#include <atomic>
#include <optional>

#include "columns/chunks.h"
#include "columns/gather.h"

namespace warpjoin::columns {

/// Rows located at a time: enough for their cache misses to overlap, few enough for the first-level cache.
inline constexpr uint64_t kGatherBatch = 256;

/// One or two columns with the rows to take of them; a row missing in the first is taken from the second.
class GatherSource {
 public:
  GatherSource(const Column& column, RowList rows) : first_(column), first_rows_(rows), second_(Column{}) {}
  GatherSource(const Column& first, RowList first_rows, const Column& second, RowList second_rows)
      : first_(first), first_rows_(first_rows), second_(second), second_rows_(second_rows), two_(true) {}

  const ColumnType& type() const { return first_.type(); }
  uint64_t size() const { return first_rows_.size; }
  bool may_give_nulls() const {
    return first_.nullable() || (first_rows_.may_be_missing && (!two_ || second_.nullable() || second_rows_.may_be_missing));
  }
  /// The one chunk that all rows are in, if there is no more to them than that.
  const ColumnChunk* plain_chunk() const {
    return !may_give_nulls() && !first_rows_.may_be_missing && first_.single() ? first_.chunks().data() : nullptr;
  }
  const RowList& rows() const { return first_rows_; }
  const ChunkIndex& chunks() const { return first_; }
  /// Which of the first column's chunks, of those that have rows, a place is in.
  size_t ordinal(const ColumnChunk* chunk) const { return static_cast<size_t>(chunk - first_.chunks().data()); }
  /// The same columns with some of the rows, in no groups.
  GatherSource part(uint64_t begin, uint64_t size) const {
    GatherSource part = *this;
    for (RowList* rows : {&part.first_rows_, &part.second_rows_}) {
      rows->rows = static_cast<const char*>(rows->rows) + begin * rows->row_bytes;
      rows->size = size;
      rows->group_ends = {};
    }
    return part;
  }

  /// Where output rows [begin, begin + count) come from, count <= kGatherBatch; `chunk` is null for missing rows.
  void locate(uint64_t begin, uint64_t count, Place* places) const {
    if (first_rows_.row_bytes == 4) {
      locate_in<uint32_t, false>(first_, first_rows_, begin, count, places);
    } else {
      locate_in<uint64_t, false>(first_, first_rows_, begin, count, places);
    }
    if (!two_ || !first_rows_.may_be_missing) return;
    if (second_rows_.row_bytes == 4) {
      locate_in<uint32_t, true>(second_, second_rows_, begin, count, places);
    } else {
      locate_in<uint64_t, true>(second_, second_rows_, begin, count, places);
    }
  }

 private:
  template <class Row, bool only_missing>
  static void locate_in(const ChunkIndex& chunks, const RowList& list, uint64_t begin, uint64_t count, Place* places) {
    const auto* rows = static_cast<const Row*>(list.rows) + begin;
    for (uint64_t i = 0; i < count; ++i) {
      if (only_missing && places[i].chunk) continue;
      const bool missing = list.may_be_missing && rows[i] == static_cast<Row>(~Row{0});
      places[i] = missing ? Place{nullptr, 0} : chunks.at(rows[i]);
    }
  }

  ChunkIndex first_;
  RowList first_rows_;
  ChunkIndex second_;
  RowList second_rows_;
  bool two_ = false;
};

/// The validity of a gathered column while it is written.
class GatheredValidity {
 public:
  GatheredValidity(const GatherSource& source, Engine& engine) : wanted_(source.may_give_nulls()) {
    if (wanted_) bitmap_ = engine.memory->allocate((source.size() + 63) / 64 * 8, "a gathered column's validity");
  }

  /// Writes the validity of rows [begin, begin + count), begin a multiple of 64, and makes null rows missing.
  void write(uint64_t begin, uint64_t count, Place* places) {
    if (!wanted_) return;
    for (uint64_t i = 0; i < count; ++i) {
      const Place& place = places[i];
      if (place.chunk && place.chunk->validity) {
        __builtin_prefetch(place.chunk->validity + (place.chunk->bit_offset + place.index) / 8);
      }
    }
    for (uint64_t done = 0; done < count; done += 64) {
      const auto rows = static_cast<unsigned>(std::min<uint64_t>(64, count - done));
      uint64_t valid = 0;
      for (unsigned i = 0; i < rows; ++i) {
        Place& place = places[done + i];
        const bool is_valid = place.chunk && valid_at(*place.chunk, place.index);
        if (!is_valid) place.chunk = nullptr;
        valid |= uint64_t{is_valid} << i;
      }
      bitmap_.as<uint64_t>()[(begin + done) / 64] = valid;
      if (valid != low_bits(rows)) {
        nulls_.fetch_add(rows - static_cast<unsigned>(std::popcount(valid)), std::memory_order_relaxed);
      }
    }
  }

  /// An OwnedColumn or OwnedChunk.
  template <class Owned>
  void move_to(Owned& column) {
    column.null_count = nulls_.load();
    if (column.null_count == 0) return;
    bitmap_.shrink((column.length + 7) / 8);
    column.validity = std::move(bitmap_);
  }

 private:
  bool wanted_;
  HostBuffer bitmap_;
  std::atomic<uint64_t> nulls_{0};
};

/// Gathers booleans and values of fixed width.
OwnedColumn gather_values(const GatherSource& source, Engine& engine, const Job& job);

/// Gathers variable-width values.
OwnedColumn gather_text(const GatherSource& source, Engine& engine, const Job& job);
/// The same in one chunk; nothing where neither bytes nor offsets would have at most `max_bytes`, or offsets not tell the bytes
/// apart.
std::optional<OwnedColumn> gather_one_text(const GatherSource& source, uint64_t max_bytes, Engine& engine, const Job& job);

}  // namespace warpjoin::columns
