#include <algorithm>
#include <cstring>
#include <span>

#include "primitives/host/hash_match.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin::host {
namespace {

constexpr uint64_t kBlockRows = 2048;      // rows gathered at a time: their row numbers stay in the first-level cache
constexpr uint64_t kWindowRows = 1 << 20;  // rows that a thread writes at a time

/// Rows of one output: `count` of them from output row `at` on, taken from `rows` of the pieces.
struct Selection {
  const uint32_t* rows;
  uint64_t count;
  bool dense;  ///< rows are consecutive
};

template <class Value>
void gather_piece(const Piece& piece, const void* source, uint64_t first_value, const Selection& from, Value* to) {
  const Value* values = static_cast<const Value*>(source);
  if (!values) {
    for (uint64_t i = 0; i < from.count; ++i) to[i] = static_cast<Value>(first_value + (from.rows[i] - piece.begin));
  } else if (from.dense) {
    std::memcpy(to, values + (from.rows[0] - piece.begin), from.count * sizeof(Value));
  } else {
    for (uint64_t i = 0; i < from.count; ++i) to[i] = values[from.rows[i] - piece.begin];
  }
}

/// Values of rows anywhere in a partition.
template <class Value>
void gather_pieces(std::span<const Piece> pieces, bool keys, const Selection& from, Value* to) {
  const auto source = [&](const Piece& piece) { return keys ? piece.tuples.keys : piece.tuples.values; };
  if (pieces.size() == 1) return gather_piece(pieces[0], source(pieces[0]), pieces[0].tuples.first_value, from, to);
  for (uint64_t i = 0; i < from.count; ++i) {
    const Piece* piece = pieces.data();
    while (from.rows[i] >= piece->end()) ++piece;
    gather_piece<Value>(*piece, source(*piece), piece->tuples.first_value, {from.rows + i, 1, false}, to + i);
  }
}

void gather(std::span<const Piece> pieces, bool keys, uint8_t width, const Selection& from, void* out, uint64_t at) {
  if (!out || width == 0 || from.count == 0) return;
  if (width == 4) {
    gather_pieces(pieces, keys, from, static_cast<uint32_t*>(out) + at);
  } else {
    gather_pieces(pieces, keys, from, static_cast<uint64_t*>(out) + at);
  }
}

}  // namespace

/// Rows of a probe unit's, or a build partition's, part of the output: `count` of them from its row `skip` on, to output
/// row `at` on.
struct Window {
  size_t source;  // unit or partition
  uint64_t skip, count, at;
};

namespace {

/// Writes a window's rows block by block: skips, counts and moves on.
class WindowWriter {
 public:
  explicit WindowWriter(const Window& window) : skip_(window.skip), left_(window.count), at_(window.at) {}

  uint64_t skip() const { return skip_; }
  uint64_t left() const { return left_; }
  /// The same as a block of `rows` rows to skip.
  void drop(uint64_t rows) { skip_ -= rows; }

  /// Calls write(from, count, at) for the rows of the block that are in the window: rows [from, from + count).
  template <class Write>
  void block(uint64_t rows, Write&& write) {
    const uint64_t from = std::min(skip_, rows), count = std::min(rows - from, left_);
    skip_ -= from;
    if (count) write(from, count, at_);
    left_ -= count;
    at_ += count;
  }

 private:
  uint64_t skip_, left_, at_;
};

/// A few rows of a piece by themselves: a piece may have more than 32 bits count.
Piece stretch_of(const Piece& piece, TupleLayout layout, uint64_t begin, uint64_t end) {
  return {piece.tuples.slice(layout, begin, end), 0};
}

bool consecutive(const uint32_t* ascending, uint64_t count) { return ascending[count - 1] - ascending[0] == count - 1; }

}  // namespace

void HostHashMatch::emit(JoinEmit what, uint64_t first, uint64_t rows, JoinOutput out, ThreadPool& pool, const Job& job) const {
  job.check();
  const bool of_build = what == JoinEmit::build_matched || what == JoinEmit::build_unmatched;
  const bool matched = what == JoinEmit::build_matched || what == JoinEmit::probe_matched;
  const auto rows_of = [&](size_t source) {
    if (what == JoinEmit::pairs) return units_[source].pairs;
    const uint64_t all = of_build ? build_size(static_cast<uint32_t>(source)) : units_[source].end - units_[source].begin;
    const uint64_t hits = of_build ? built_[source].matched : units_[source].matched;
    return matched ? hits : all - hits;
  };
  std::vector<Window> windows;
  uint64_t at = 0;  // of the match's rows
  for (size_t source = 0, sources = of_build ? partitions_ : units_.size(); source < sources; ++source) {
    const uint64_t all = rows_of(source), begin = std::clamp(first, at, at + all), end = std::clamp(first + rows, at, at + all);
    for (uint64_t row = begin; row < end; row += kWindowRows) {
      windows.push_back({source, row - at, std::min(kWindowRows, end - row), row - first});
    }
    at += all;
  }
  pool.parallel_for(windows.size(), [&](uint64_t task) {
    if (what == JoinEmit::pairs) {
      emit_pairs(windows[task], out, job);
    } else if (of_build) {
      emit_build(matched, windows[task], out, job);
    } else {
      emit_probe(matched, windows[task], out, job);
    }
  });
}

void HostHashMatch::emit_pairs(const Window& window, JoinOutput out, const Job& job) const {
  const ProbeUnit& unit = units_[window.source];
  const BuiltPartition& built = built_[unit.partition];
  const uint32_t* const matches = this->matches(unit.partition);
  const uint32_t* const begin = group_begin(unit.partition);
  const uint32_t* const rows_by_group = this->rows_by_group(unit.partition);
  const std::vector<Piece> build = pieces(build_, unit.partition), probe = pieces(probe_, unit.partition);
  WindowWriter writer(window);
  uint32_t probe_rows[kBlockRows], build_rows[kBlockRows];
  const auto write = [&](const Piece& own, uint64_t rows) {
    writer.block(rows, [&](uint64_t from, uint64_t count, uint64_t at) {
      const bool dense = built.unique && consecutive(probe_rows + from, count);
      const Selection from_probe{probe_rows + from, count, dense}, from_build{build_rows + from, count, false};
      gather({&own, 1}, true, probe_.layout.key_bytes, from_probe, out.keys, at);
      gather({&own, 1}, false, probe_.layout.value_bytes, from_probe, out.probe_values, at);
      gather(build, false, build_.layout.value_bytes, from_build, out.build_values, at);
    });
  };
  for_rows(probe, unit.begin, unit.end, job, [&](const Piece& piece, uint64_t from, uint64_t to) {
    const Piece own = stretch_of(piece, probe_.layout, from, to);
    const uint32_t* const match = matches + piece.begin + from;
    const uint64_t rows_here = own.tuples.size;
    uint64_t count = 0;
    if (built.unique) {
      for (uint64_t row = 0; row < rows_here && writer.left();) {
        const uint64_t stop = std::min(rows_here, row + kBlockRows);
        for (count = 0; row < stop; ++row) {
          probe_rows[count] = static_cast<uint32_t>(row);
          build_rows[count] = match[row];
          count += match[row] != built.groups;
        }
        write(own, count);
      }
      return;
    }
    for (uint64_t row = 0; row < rows_here && writer.left(); ++row) {
      const uint32_t group = match[row];
      const uint32_t* builds = rows_by_group + begin[group];
      uint64_t size = begin[group + 1] - begin[group];
      if (count == 0 && writer.skip()) {  // past a hot key's group without writing its pairs out
        const uint64_t past = std::min(size, writer.skip());
        writer.drop(past);
        builds += past;
        size -= past;
      }
      while (size > 0 && writer.left()) {
        const uint64_t part = std::min(size, kBlockRows - count);
        for (uint64_t i = 0; i < part; ++i) {  // most groups are small: no call of memmove
          probe_rows[count + i] = static_cast<uint32_t>(row);
          build_rows[count + i] = builds[i];
        }
        builds += part;
        size -= part;
        count += part;
        if (count == kBlockRows) {
          write(own, count);
          count = 0;
        }
      }
    }
    write(own, count);
  });
}

void HostHashMatch::emit_probe(bool matched, const Window& window, JoinOutput out, const Job& job) const {
  const ProbeUnit& unit = units_[window.source];
  const uint32_t none = built_[unit.partition].groups;
  const std::vector<Piece> probe = pieces(probe_, unit.partition);
  WindowWriter writer(window);
  uint32_t rows[kBlockRows];
  for_rows(probe, unit.begin, unit.end, job, [&](const Piece& piece, uint64_t from, uint64_t to) {
    const Piece own = stretch_of(piece, probe_.layout, from, to);
    const uint32_t* const match = matches(unit.partition) + piece.begin + from;
    for (uint64_t row = 0; row < own.tuples.size && writer.left();) {
      const uint64_t stop = std::min(own.tuples.size, row + kBlockRows);
      uint64_t count = 0;
      for (; row < stop; ++row) {
        rows[count] = static_cast<uint32_t>(row);
        count += (match[row] != none) == matched;
      }
      writer.block(count, [&](uint64_t first, uint64_t size, uint64_t at) {
        const Selection selection{rows + first, size, consecutive(rows + first, size)};
        gather({&own, 1}, true, probe_.layout.key_bytes, selection, out.keys, at);
        gather({&own, 1}, false, probe_.layout.value_bytes, selection, out.probe_values, at);
      });
    }
  });
}

void HostHashMatch::emit_build(bool matched, const Window& window, JoinOutput out, const Job& job) const {
  const auto p = static_cast<uint32_t>(window.source);
  const BuiltPartition& built = built_[p];
  const uint8_t* const flags = group_matched(p);
  const uint32_t* const begin = group_begin(p);
  const uint32_t* const rows_by_group = this->rows_by_group(p);
  const std::vector<Piece> build = pieces(build_, p);
  WindowWriter writer(window);
  uint32_t rows[kBlockRows];
  uint64_t count = 0;
  const auto write = [&] {
    job.check();
    writer.block(count, [&](uint64_t from, uint64_t size, uint64_t at) {
      const Selection selection{rows + from, size, consecutive(rows + from, size) && built.unique};
      gather(build, true, build_.layout.key_bytes, selection, out.keys, at);
      gather(build, false, build_.layout.value_bytes, selection, out.build_values, at);
    });
    count = 0;
  };
  for (uint32_t g = 0; g < built.groups && writer.left(); ++g) {
    if ((flags[g] != 0) != matched) continue;
    const uint32_t first = built.unique ? g : begin[g], last = built.unique ? g + 1 : begin[g + 1];
    for (uint32_t i = first; i < last && writer.left(); ++i) {
      rows[count++] = built.unique ? i : rows_by_group[i];
      if (count == kBlockRows) write();
    }
  }
  write();
}

}  // namespace warpjoin::host
