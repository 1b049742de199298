#include "columns/gather_nested.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "columns/nested.h"
#include "core/error.h"

namespace warpjoin::columns {
namespace {

/// A buffer of these rows would be too large: fewer of them may do.
struct TooLarge {};

struct Gather {
  Engine& engine;
  const Job& job;
  bool single;  ///< there is one row, which has no part

  uint64_t max_bytes() const { return job.max_buffer_bytes(); }

  /// What a buffer of a chunk has, or a number of values that offsets of a width must tell apart.
  void require(uint64_t bytes) const {
    if (bytes > max_bytes() && !single) throw TooLarge();
  }
  /// `values` may be UINT64_MAX for more than 64 bits tell.
  void require_values(const Column& column, uint64_t values, uint64_t most) const {
    if (values <= most) return;
    if (!single) throw TooLarge();
    throw Error(ErrorCode::not_supported, "Column '" + column.name + "' has more than " + std::to_string(most) +
                                              " values or bytes within one row, which is not supported");
  }
  HostBuffer allocate(uint64_t bytes, const char* purpose = "a gathered column") const {
    return engine.memory->allocate(std::max<uint64_t>(1, bytes), purpose);
  }
};

/// UINT64_MAX where it is more.
uint64_t product(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

/// What no memory holds: far below where byte counts overflow.
constexpr uint64_t kMostValues = uint64_t{1} << 44;

OwnedChunk gather_chunk(const Column& column, const RowList& rows, const Gather& gather);

OwnedChunk empty_chunk(const Column& column, const RowList& rows) {
  OwnedChunk out;
  out.type = column.type;
  out.length = rows.size;
  return out;
}

/// Calls body(at, count, places) for batches of the rows of a block. Places are those of the rows, missing ones without a chunk.
template <class Body>
void for_batches(const GatherSource& source, uint64_t begin, uint64_t end, Body&& body) {
  Place places[kGatherBatch];
  for (uint64_t at = begin; at < end; at += kGatherBatch) {
    const uint64_t count = std::min(kGatherBatch, end - at);
    source.locate(at, count, places);
    body(at, count, places);
  }
}

/// Row numbers of a child's values, to be written.
class ChildRows {
 public:
  ChildRows(const Column& child, uint64_t size, bool may_be_missing, const Gather& gather)
      : row_bytes_(row_bytes_for(child.length)), may_be_missing_(may_be_missing), size_(size) {
    buffer_ = gather.allocate(size * row_bytes_, "row numbers of nested values");
  }

  /// `count` rows in sequence.
  void write(uint64_t at, uint64_t row, uint64_t count) {
    if (row_bytes_ == 4) {
      write_as(buffer_.as<uint32_t>() + at, row, count);
    } else {
      write_as(buffer_.as<uint64_t>() + at, row, count);
    }
  }
  void write_missing(uint64_t at, uint64_t count) { std::memset(buffer_.as<char>() + at * row_bytes_, 0xFF, count * row_bytes_); }

  RowList list() const { return {buffer_.data(), row_bytes_, may_be_missing_, size_}; }

 private:
  template <class Row>
  static void write_as(Row* out, uint64_t row, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) out[i] = static_cast<Row>(row + i);
  }

  HostBuffer buffer_;
  uint8_t row_bytes_;
  bool may_be_missing_;
  uint64_t size_;
};

/// Where the chunks of a child lie in it, by the chunks of its parent that have rows.
struct ChildPlaces {
  std::vector<uint64_t> starts, lengths;

  ChildPlaces(const Column& parent, const Column& child) {
    uint64_t start = 0;
    for (size_t i = 0; i < parent.chunks.size(); ++i) {
      const uint64_t length = child.chunks[i].length;
      if (parent.chunks[i].length) {
        starts.push_back(start);
        lengths.push_back(length);
      }
      start += length;
    }
  }
};

/// What the blocks of rows before each have together, and all.
uint64_t add_up(std::vector<uint64_t>& starts) {
  for (size_t block = 1; block < starts.size(); ++block) starts[block] += starts[block - 1];
  return starts.back();
}

// --- What has no children ---------------------------------------------------------------------------------------

OwnedChunk gather_flat(const Column& column, const RowList& rows, const Gather& gather) {
  const ColumnType& type = column.type;
  if (type.kind == ColumnKind::fixed) {
    gather.require(product(rows.size, type.width));
    gather.require_values(column, product(rows.size, type.width), kMostValues);
  }
  if (type.variable_width()) gather.require((rows.size + 1) * (type.kind == ColumnKind::utf8 ? 4 : 8));
  const GatherSource source(column, rows);
  OwnedColumn made;
  if (type.variable_width()) {
    auto text = gather_one_text(source, gather.single ? UINT64_MAX : gather.max_bytes(), gather.engine, gather.job);
    if (!text) gather.require_values(column, UINT64_MAX, INT32_MAX);  // throws
    made = std::move(*text);
  } else {
    made = gather_values(source, gather.engine, gather.job);
  }
  OwnedChunk out = empty_chunk(column, rows);
  out.null_count = made.null_count;
  out.validity = std::move(made.validity);
  out.values = std::move(made.values);
  out.offsets = std::move(made.offsets);
  return out;
}

/// Where the next long text goes: buffers have at most `most` bytes, but for texts that have more.
struct ViewBufferEnd {
  uint64_t buffer = 0, bytes = 0;

  /// Gives the place of a text; `full(bytes)` is called for each buffer that ends before it.
  template <class Full>
  ViewBufferEnd add(uint64_t size, uint64_t most, Full&& full) {
    if (bytes > 0 && bytes + size > most) {
      full(bytes);
      ++buffer;
      bytes = 0;
    }
    const ViewBufferEnd at = *this;
    bytes += size;
    return at;
  }
};

OwnedChunk gather_views(const GatherSource& source, const std::string& name, const Gather& gather) {
  const uint64_t rows = source.size();
  const uint64_t most = std::min<uint64_t>(gather.max_bytes(), INT32_MAX);
  gather.require(rows * kViewBytes);
  OwnedChunk out;
  out.type = source.type();
  out.length = rows;
  out.values = gather.allocate(rows * kViewBytes);
  auto* const views = out.values.as<View>();
  GatheredValidity validity(source, gather.engine);
  std::vector<uint64_t> starts(block_count(rows) + 1, 0);
  for_row_blocks(gather.engine, rows, gather.job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t bytes = 0;
    for_batches(source, begin, end, [&](uint64_t at, uint64_t count, Place* places) {
      for (uint64_t i = 0; i < count; ++i) {
        if (places[i].chunk) __builtin_prefetch(static_cast<const char*>(places[i].chunk->values) + places[i].index * kViewBytes);
      }
      validity.write(at, count, places);
      for (uint64_t i = 0; i < count; ++i) {
        View view;
        if (places[i].chunk) {
          view = view_at(*places[i].chunk, places[i].index);
          if (!is_within(view, *places[i].chunk)) throw InputChanged("Column '" + name + "'");
        }
        views[at + i] = view;
        if (!view.is_inline()) bytes += static_cast<uint64_t>(view.length());
      }
    });
    starts[block + 1] = bytes;
  });

  // Where the long texts of each block begin.
  std::vector<ViewBufferEnd> ends(starts.size());
  std::vector<uint64_t> sizes;
  const auto full = [&](uint64_t bytes) { sizes.push_back(bytes); };
  for (size_t block = 0; block + 1 < starts.size(); ++block) {
    ViewBufferEnd end = ends[block];
    if (end.bytes + starts[block + 1] <= most) {
      end.bytes += starts[block + 1];
    } else {
      for (uint64_t row = block * kBlockRows; row < std::min(rows, (block + 1) * kBlockRows); ++row) {
        if (!views[row].is_inline()) end.add(static_cast<uint64_t>(views[row].length()), most, full);
      }
    }
    ends[block + 1] = end;
  }
  if (ends.back().bytes > 0) sizes.push_back(ends.back().bytes);
  for (const uint64_t size : sizes) out.buffers.push_back(gather.allocate(size));
  if (!sizes.empty()) {
    for_row_blocks(gather.engine, rows, gather.job, [&](uint64_t block, uint64_t begin, uint64_t end) {
      ViewBufferEnd to = ends[block];
      for_batches(source, begin, end, [&](uint64_t at, uint64_t count, Place* places) {
        // The views that were checked are those in the result.
        const uint8_t* texts[kGatherBatch];
        for (uint64_t i = 0; i < count; ++i) {
          const View& view = views[at + i];
          if (view.is_inline()) continue;
          texts[i] = places[i].chunk->buffers[static_cast<size_t>(view.buffer())].data + view.offset();
          __builtin_prefetch(texts[i]);
        }
        for (uint64_t i = 0; i < count; ++i) {
          View& view = views[at + i];
          if (view.is_inline()) continue;
          const auto size = static_cast<uint64_t>(view.length());
          const ViewBufferEnd place = to.add(size, most, [](uint64_t) {});
          std::memcpy(out.buffers[place.buffer].as<uint8_t>() + place.bytes, texts[i], size);
          view.move_to(place.buffer, place.bytes);
        }
      });
    });
  }
  validity.move_to(out);
  return out;
}

OwnedChunk gather_nulls(const Column& column, const RowList& rows) {
  OwnedChunk out = empty_chunk(column, rows);
  out.null_count = rows.size;
  return out;
}

// --- What has -----------------------------------------------------------------------------------------------------

OwnedChunk gather_struct(const Column& column, const RowList& rows, const Gather& gather) {
  OwnedChunk out = empty_chunk(column, rows);
  const GatherSource source(column, rows);
  GatheredValidity validity(source, gather.engine);
  if (source.may_give_nulls()) {
    for_row_blocks(gather.engine, rows.size, gather.job, [&](uint64_t, uint64_t begin, uint64_t end) {
      for_batches(source, begin, end, [&](uint64_t at, uint64_t count, Place* places) { validity.write(at, count, places); });
    });
  }
  validity.move_to(out);
  for (const Column& child : column.children) out.children.push_back(gather_chunk(child, rows, gather));
  return out;
}

template <class Offset>
OwnedChunk gather_list(const Column& column, const RowList& rows, const Gather& gather) {
  gather.require((rows.size + 1) * sizeof(Offset));
  const Column& child = column.children[0];
  const ChildPlaces child_places(column, child);
  OwnedChunk out = empty_chunk(column, rows);
  const GatherSource source(column, rows);
  GatheredValidity validity(source, gather.engine);
  out.offsets = gather.allocate((rows.size + 1) * sizeof(Offset));
  auto* const sizes = out.offsets.as<Offset>() + 1;
  HostBuffer begins_buffer = gather.allocate(rows.size * sizeof(uint64_t), "where gathered lists begin");
  auto* const begins = begins_buffer.as<uint64_t>();
  std::vector<uint64_t> starts(block_count(rows.size) + 1, 0);
  for_row_blocks(gather.engine, rows.size, gather.job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t values = 0;
    for_batches(source, begin, end, [&](uint64_t at, uint64_t count, Place* places) {
      for (uint64_t i = 0; i < count; ++i) {
        if (places[i].chunk) __builtin_prefetch(static_cast<const Offset*>(places[i].chunk->offsets) + places[i].index);
      }
      validity.write(at, count, places);
      for (uint64_t i = 0; i < count; ++i) {
        begins[at + i] = 0;
        sizes[at + i] = 0;
        const ColumnChunk* const chunk = places[i].chunk;
        if (!chunk) continue;
        const size_t ordinal = source.ordinal(chunk);
        const uint64_t first = static_cast<uint64_t>(load_once<Offset>(chunk->offsets, places[i].index));
        const uint64_t last = static_cast<uint64_t>(load_once<Offset>(chunk->offsets, places[i].index + 1));
        const TextRange range = clamped({first, last}, child_places.lengths[ordinal]);
        begins[at + i] = child_places.starts[ordinal] + range.begin;
        sizes[at + i] = static_cast<Offset>(range.end - range.begin);
        values += range.end - range.begin;
      }
    });
    starts[block + 1] = values;
  });
  const uint64_t total = add_up(starts);
  gather.require_values(column, total, static_cast<uint64_t>(std::numeric_limits<Offset>::max()));
  out.offsets.as<Offset>()[0] = 0;
  ChildRows child_rows(child, total, false, gather);
  for_row_blocks(gather.engine, rows.size, gather.job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t at = starts[block];
    for (uint64_t row = begin; row < end; ++row) {
      const auto size = static_cast<uint64_t>(sizes[row]);
      child_rows.write(at, begins[row], size);
      at += size;
      sizes[row] = static_cast<Offset>(at);
    }
  });
  begins_buffer = HostBuffer();
  validity.move_to(out);
  out.children.push_back(gather_chunk(child, child_rows.list(), gather));
  return out;
}

OwnedChunk gather_fixed_list(const Column& column, const RowList& rows, const Gather& gather) {
  const uint64_t width = column.type.width;
  const Column& child = column.children[0];
  const ChildPlaces child_places(column, child);
  OwnedChunk out = empty_chunk(column, rows);
  const GatherSource source(column, rows);
  GatheredValidity validity(source, gather.engine);
  gather.require_values(column, product(rows.size, width), kMostValues);
  ChildRows child_rows(child, rows.size * width, rows.may_be_missing, gather);
  for_row_blocks(gather.engine, rows.size, gather.job, [&](uint64_t, uint64_t begin, uint64_t end) {
    for_batches(source, begin, end, [&](uint64_t at, uint64_t count, Place* places) {
      for (uint64_t i = 0; i < count; ++i) {
        const ColumnChunk* const chunk = places[i].chunk;
        if (chunk) {
          child_rows.write((at + i) * width, child_places.starts[source.ordinal(chunk)] + places[i].index * width, width);
        } else {
          child_rows.write_missing((at + i) * width, width);
        }
      }
      validity.write(at, count, places);
    });
  });
  validity.move_to(out);
  out.children.push_back(gather_chunk(child, child_rows.list(), gather));
  return out;
}

/// Where a union has no row its first child has a null.
OwnedChunk gather_sparse_union(const Column& column, const RowList& rows, const Gather& gather) {
  gather.require(rows.size);
  const UnionChildren children(column);
  OwnedChunk out = empty_chunk(column, rows);
  const GatherSource source(column, rows);
  out.values = gather.allocate(rows.size);
  auto* const ids = out.values.as<int8_t>();
  for_row_blocks(gather.engine, rows.size, gather.job, [&](uint64_t, uint64_t begin, uint64_t end) {
    for_batches(source, begin, end, [&](uint64_t at, uint64_t count, Place* places) {
      for (uint64_t i = 0; i < count; ++i) {
        const int child = places[i].chunk ? children.of(*places[i].chunk, places[i].index) : 0;
        if (child < 0) throw InputChanged("Column '" + column.name + "'");
        ids[at + i] = column.type_ids.empty() ? int8_t{0} : column.type_ids[static_cast<size_t>(child)];
      }
    });
  });
  for (const Column& child : column.children) out.children.push_back(gather_chunk(child, rows, gather));
  return out;
}

OwnedChunk gather_dense_union(const Column& column, const RowList& rows, const Gather& gather) {
  gather.require(rows.size * sizeof(int32_t));
  gather.require_values(column, rows.size, INT32_MAX);
  const size_t count_of_children = column.children.size();
  const UnionChildren children(column);
  std::vector<ChildPlaces> child_places;
  for (const Column& child : column.children) child_places.emplace_back(column, child);
  OwnedChunk out = empty_chunk(column, rows);
  const GatherSource source(column, rows);
  out.values = gather.allocate(rows.size);
  out.offsets = gather.allocate(rows.size * sizeof(int32_t));
  auto* const ids = out.values.as<int8_t>();
  auto* const offsets = out.offsets.as<int32_t>();
  // The row of its child that each row is; all-ones where it is missing.
  HostBuffer found_buffer = gather.allocate(rows.size * sizeof(uint64_t), "row numbers of nested values");
  auto* const found = found_buffer.as<uint64_t>();
  if (count_of_children == 0 && rows.size > 0) {
    // There are no rows to be in none: those here are missing.
    std::fill_n(ids, rows.size, int8_t{0});
    std::fill_n(offsets, rows.size, 0);
    return out;
  }
  const uint64_t blocks = block_count(rows.size);
  std::vector<std::vector<uint64_t>> starts(count_of_children, std::vector<uint64_t>(blocks + 1, 0));
  for_row_blocks(gather.engine, rows.size, gather.job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    std::vector<uint64_t> counts(count_of_children, 0);
    for_batches(source, begin, end, [&](uint64_t at, uint64_t count, Place* places) {
      for (uint64_t i = 0; i < count; ++i) {
        const ColumnChunk* const chunk = places[i].chunk;
        size_t child = 0;
        found[at + i] = UINT64_MAX;
        if (chunk) {
          const int of = children.of(*chunk, places[i].index);
          const auto offset = static_cast<uint32_t>(load_once<int32_t>(chunk->offsets, places[i].index));
          const size_t ordinal = source.ordinal(chunk);
          if (of < 0 || offset >= child_places[static_cast<size_t>(of)].lengths[ordinal])
            throw InputChanged("Column '" + column.name + "'");
          child = static_cast<size_t>(of);
          found[at + i] = child_places[child].starts[ordinal] + offset;
        }
        ids[at + i] = column.type_ids[child];
        ++counts[child];
      }
    });
    for (size_t child = 0; child < count_of_children; ++child) starts[child][block + 1] = counts[child];
  });
  std::vector<ChildRows> child_rows;
  for (size_t child = 0; child < count_of_children; ++child) {
    child_rows.emplace_back(column.children[child], add_up(starts[child]), child == 0 && rows.may_be_missing, gather);
  }
  for_row_blocks(gather.engine, rows.size, gather.job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    std::vector<uint64_t> at(count_of_children);
    std::array<uint8_t, 128> child_of{};
    for (size_t child = 0; child < count_of_children; ++child) {
      at[child] = starts[child][block];
      child_of[static_cast<uint8_t>(column.type_ids[child])] = static_cast<uint8_t>(child);
    }
    for (uint64_t row = begin; row < end; ++row) {
      const size_t child = child_of[static_cast<uint8_t>(ids[row])];
      const uint64_t to = at[child]++;
      offsets[row] = static_cast<int32_t>(to);
      if (found[row] == UINT64_MAX) {
        child_rows[child].write_missing(to, 1);
      } else {
        child_rows[child].write(to, found[row], 1);
      }
    }
  });
  found_buffer = HostBuffer();
  for (size_t child = 0; child < count_of_children; ++child) {
    out.children.push_back(gather_chunk(column.children[child], child_rows[child].list(), gather));
  }
  return out;
}

OwnedChunk gather_chunk(const Column& column, const RowList& rows, const Gather& gather) {
  gather.require((rows.size + 7) / 8);  // validity
  switch (column.type.kind) {
    case ColumnKind::boolean:
    case ColumnKind::fixed:
    case ColumnKind::utf8:
    case ColumnKind::large_utf8: return gather_flat(column, rows, gather);
    case ColumnKind::null: return gather_nulls(column, rows);
    case ColumnKind::view: return gather_views(GatherSource(column, rows), column.name, gather);
    case ColumnKind::list: return gather_list<int32_t>(column, rows, gather);
    case ColumnKind::large_list: return gather_list<int64_t>(column, rows, gather);
    case ColumnKind::fixed_list: return gather_fixed_list(column, rows, gather);
    case ColumnKind::structure: return gather_struct(column, rows, gather);
    case ColumnKind::sparse_union: return gather_sparse_union(column, rows, gather);
    case ColumnKind::dense_union: return gather_dense_union(column, rows, gather);
  }
  throw Error(ErrorCode::internal, "Column '" + column.name + "' has no kind");
}

/// Bytes a row of the largest buffer whose size the number of rows decides.
uint64_t widest(const Column& column) {
  const ColumnType& type = column.type;
  const auto of_children = [&] {
    uint64_t most = 0;
    for (const Column& child : column.children) most = std::max(most, widest(child));
    return most;
  };
  switch (type.kind) {
    case ColumnKind::boolean:
    case ColumnKind::null: return 1;
    case ColumnKind::fixed: return type.width;
    case ColumnKind::utf8:
    case ColumnKind::list:
    case ColumnKind::dense_union: return 4;
    case ColumnKind::large_utf8:
    case ColumnKind::large_list: return 8;
    case ColumnKind::view: return kViewBytes;
    case ColumnKind::fixed_list: return std::min(type.width * of_children(), uint64_t{1} << 40);
    case ColumnKind::structure: return of_children();
    case ColumnKind::sparse_union: return std::max<uint64_t>(1, of_children());
  }
  return 1;
}

RowList part_of(const RowList& rows, uint64_t begin, uint64_t size) {
  return {static_cast<const char*>(rows.rows) + begin * rows.row_bytes, rows.row_bytes, rows.may_be_missing, size};
}

/// The largest power of two of rows whose buffers the limit allows, as far as their number decides.
uint64_t most_rows(uint64_t width, const Job& job) {
  return std::bit_floor(std::max<uint64_t>(2, job.max_buffer_bytes() / std::max<uint64_t>(1, width)));
}

}  // namespace

OwnedColumn gather_nested(const Column& column, const RowList& rows, Engine& engine, const Job& job) {
  OwnedColumn result;
  result.type = column.type;
  result.length = rows.size;
  // What lists and texts take is only known once they are found: where that is too much, half of the rows are tried.
  uint64_t size = std::min(rows.size, most_rows(widest(column), job));
  auto group_end = rows.group_ends.begin();
  for (uint64_t begin = 0; begin < rows.size || result.nested.empty();) {
    while (group_end != rows.group_ends.end() && *group_end <= begin) ++group_end;
    size = std::min(size, (group_end == rows.group_ends.end() ? rows.size : std::min(rows.size, *group_end)) - begin);
    try {
      result.nested.push_back(gather_chunk(column, part_of(rows, begin, size), {engine, job, size <= 1}));
    } catch (const TooLarge&) {
      size = std::bit_ceil(size) / 2;
      continue;
    }
    result.null_count += result.nested.back().null_count;
    begin += size;
    size *= 2;
  }
  return result;
}

OwnedColumn gather_leaves(const GatherSource& source, const std::string& name, Engine& engine, const Job& job) {
  OwnedColumn result;
  result.type = source.type();
  result.length = source.size();
  const uint64_t size = most_rows(kViewBytes, job);
  for (uint64_t begin = 0; begin < source.size() || result.nested.empty(); begin += size) {
    const uint64_t count = std::min(size, source.size() - begin);
    OwnedChunk chunk;
    chunk.type = source.type();
    chunk.length = chunk.null_count = count;
    if (source.type().kind == ColumnKind::view) chunk = gather_views(source.part(begin, count), name, {engine, job, count <= 1});
    result.null_count += chunk.null_count;
    result.nested.push_back(std::move(chunk));
  }
  return result;
}

}  // namespace warpjoin::columns
