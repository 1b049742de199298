#include <algorithm>
#include <cstring>
#include <span>

#include "primitives/host/hash_match.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin::host {
namespace {

constexpr uint64_t kBlockRows = 2048;       // rows gathered at a time: their row numbers stay in the first-level cache
constexpr uint64_t kWindowPairs = 1 << 20;  // pairs a thread writes at a time where keys repeat

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

/// Part of a unit's pairs: those from the unit's pair `skip` on, `count` of them, to output row `at` on.
struct Window {
  const ProbeUnit* unit;
  uint64_t skip, count, at;
};

}  // namespace

void HostHashMatch::emit(JoinEmit what, JoinOutput out, ThreadPool& pool, const Job& job) {
  job.check();
  switch (what) {
    case JoinEmit::pairs: return emit_pairs(out, pool, job);
    case JoinEmit::probe_matched: return emit_probe(true, out, pool, job);
    case JoinEmit::probe_unmatched: return emit_probe(false, out, pool, job);
    case JoinEmit::build_matched: return emit_build(true, out, pool, job);
    case JoinEmit::build_unmatched: return emit_build(false, out, pool, job);
  }
}

void HostHashMatch::emit_pairs(JoinOutput out, ThreadPool& pool, const Job& job) {
  std::vector<Window> windows;
  uint64_t at = 0;
  for (const ProbeUnit& unit : units_) {
    for (uint64_t skip = 0; skip < unit.pairs; skip += kWindowPairs) {
      windows.push_back({&unit, skip, std::min(kWindowPairs, unit.pairs - skip), at + skip});
    }
    at += unit.pairs;
  }
  pool.parallel_for(windows.size(), [&](uint64_t task) {
    const Window& window = windows[task];
    const uint32_t p = window.unit->partition;
    const BuiltPartition& built = built_[p];
    const uint32_t* const matches = this->matches(p);
    const uint32_t* const begin = group_begin(p);
    const uint32_t* const rows_by_group = this->rows_by_group(p);
    const std::vector<Piece> build = pieces(build_, p), probe = pieces(probe_, p);
    uint64_t skip = window.skip, left = window.count, next = window.at;
    uint32_t probe_rows[kBlockRows], build_rows[kBlockRows];
    const auto write = [&](const Piece& piece, uint64_t count) {
      const bool dense = built.unique && count > 0 && probe_rows[count - 1] - probe_rows[0] == count - 1;
      const Selection from_probe{probe_rows, count, dense}, from_build{build_rows, count, false};
      gather({&piece, 1}, true, probe_.layout.key_bytes, from_probe, out.keys, next);
      gather({&piece, 1}, false, probe_.layout.value_bytes, from_probe, out.probe_values, next);
      gather(build, false, build_.layout.value_bytes, from_build, out.build_values, next);
      next += count;
      left -= count;
    };
    for_rows(probe, window.unit->begin, window.unit->end, job, [&](const Piece& piece, uint64_t from, uint64_t to) {
      uint64_t count = 0;
      if (built.unique) {  // then a window is the whole unit
        for (uint64_t row = piece.begin + from; row < piece.begin + to;) {
          const uint64_t stop = std::min(piece.begin + to, row + kBlockRows);
          for (count = 0; row < stop; ++row) {
            probe_rows[count] = static_cast<uint32_t>(row - piece.begin);
            build_rows[count] = matches[row];
            count += matches[row] != built.groups;
          }
          write(Piece{piece.tuples, 0}, count);
        }
        return;
      }
      for (uint64_t row = piece.begin + from; row < piece.begin + to && left > count; ++row) {
        const uint32_t group = matches[row];
        uint64_t size = begin[group + 1] - begin[group];
        if (size <= skip) {
          skip -= size;
          continue;
        }
        const uint32_t* builds = rows_by_group + begin[group] + skip;
        size = std::min(size - skip, left - count);
        skip = 0;
        while (size > 0) {
          const uint64_t part = std::min(size, kBlockRows - count);
          std::fill_n(probe_rows + count, part, static_cast<uint32_t>(row - piece.begin));
          std::copy_n(builds, part, build_rows + count);
          builds += part;
          size -= part;
          count += part;
          if (count == kBlockRows) {
            write(Piece{piece.tuples, 0}, count);
            count = 0;
            job.check();
          }
        }
      }
      write(Piece{piece.tuples, 0}, count);
    });
  });
}

void HostHashMatch::emit_probe(bool matched, JoinOutput out, ThreadPool& pool, const Job& job) {
  std::vector<uint64_t> at(units_.size() + 1);
  for (size_t u = 0; u < units_.size(); ++u) {
    at[u + 1] = at[u] + (matched ? units_[u].matched : units_[u].end - units_[u].begin - units_[u].matched);
  }
  pool.parallel_for(units_.size(), [&](uint64_t u) {
    const ProbeUnit& unit = units_[u];
    const uint32_t none = built_[unit.partition].groups;
    const uint32_t* const matches = this->matches(unit.partition);
    const std::vector<Piece> probe = pieces(probe_, unit.partition);
    uint64_t next = at[u];
    uint32_t rows[kBlockRows];
    for_rows(probe, unit.begin, unit.end, job, [&](const Piece& piece, uint64_t from, uint64_t to) {
      const Piece own{piece.tuples, 0};
      for (uint64_t row = from; row < to;) {
        const uint64_t stop = std::min(to, row + kBlockRows);
        uint64_t count = 0;
        for (; row < stop; ++row) {
          rows[count] = static_cast<uint32_t>(row);
          count += (matches[piece.begin + row] != none) == matched;
        }
        const Selection selection{rows, count, count > 0 && rows[count - 1] - rows[0] == count - 1};
        gather({&own, 1}, true, probe_.layout.key_bytes, selection, out.keys, next);
        gather({&own, 1}, false, probe_.layout.value_bytes, selection, out.probe_values, next);
        next += count;
      }
    });
  });
}

void HostHashMatch::emit_build(bool matched, JoinOutput out, ThreadPool& pool, const Job& job) {
  std::vector<uint64_t> at(partitions_ + 1);
  for (uint32_t p = 0; p < partitions_; ++p)
    at[p + 1] = at[p] + (matched ? built_[p].matched : build_size(p) - built_[p].matched);
  pool.parallel_for(partitions_, [&](uint64_t task) {
    const auto p = static_cast<uint32_t>(task);
    const BuiltPartition& built = built_[p];
    const uint8_t* const flags = group_matched(p);
    const uint32_t* const begin = group_begin(p);
    const uint32_t* const rows_by_group = this->rows_by_group(p);
    const std::vector<Piece> build = pieces(build_, p);
    uint64_t next = at[p];
    uint32_t rows[kBlockRows];
    uint64_t count = 0;
    const auto write = [&] {
      job.check();
      const Selection selection{rows, count, false};
      gather(build, true, build_.layout.key_bytes, selection, out.keys, next);
      gather(build, false, build_.layout.value_bytes, selection, out.build_values, next);
      next += count;
      count = 0;
    };
    for (uint32_t g = 0; g < built.groups; ++g) {
      if ((flags[g] != 0) != matched) continue;
      const uint32_t first = built.unique ? g : begin[g], last = built.unique ? g + 1 : begin[g + 1];
      for (uint32_t i = first; i < last; ++i) {
        rows[count++] = built.unique ? i : rows_by_group[i];
        if (count == kBlockRows) write();
      }
    }
    write();
  });
}

}  // namespace warpjoin::host
