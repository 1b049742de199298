// Random nested columns in buffers of exactly the size they need, and their values as text.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "columns/chunks.h"
#include "columns/nested.h"
#include "core/column.h"
#include "test_columns.h"

namespace warpjoin::test {

/// A type with those within it.
struct NestedType {
  ColumnType type;
  std::vector<NestedType> children = {};
  std::vector<int8_t> type_ids = {};
};

inline NestedType flat(ColumnType type) { return {type}; }
inline NestedType nested(ColumnKind kind, std::vector<NestedType> children, uint32_t width = 0) {
  NestedType type{{kind, KeyOrder::none, width}, std::move(children)};
  if (kind == ColumnKind::sparse_union || kind == ColumnKind::dense_union) {
    for (size_t i = 0; i < type.children.size(); ++i) type.type_ids.push_back(static_cast<int8_t>(7 * i % 11 + 3));
  }
  return type;
}

inline NestedType random_nested_type(std::mt19937_64& random, unsigned depth = 3) {
  switch (random() % (depth > 0 ? 14 : 6)) {
    case 0: return flat(boolean_type());
    case 1: return flat(opaque_type(1 + random() % 9));
    case 2: return flat(utf8_type());
    case 3: return flat(large_utf8_type());
    case 4: return nested(ColumnKind::view, {});
    case 5: return nested(ColumnKind::null, {});
    case 6:
    case 7: return nested(ColumnKind::list, {random_nested_type(random, depth - 1)});
    case 8: return nested(ColumnKind::large_list, {random_nested_type(random, depth - 1)});
    case 9: return nested(ColumnKind::fixed_list, {random_nested_type(random, depth - 1)}, random() % 4);
    default: break;
  }
  std::vector<NestedType> children;
  for (uint64_t i = random() % 4; i > 0; --i) children.push_back(random_nested_type(random, depth - 1));
  const ColumnKind kinds[] = {ColumnKind::structure, ColumnKind::sparse_union, ColumnKind::dense_union};
  const ColumnKind kind = kinds[random() % 3];
  if (kind != ColumnKind::structure && children.empty()) children.push_back(flat(utf8_type()));
  return nested(kind, std::move(children));
}

/// A column with the memory behind it. Children may have more values than their parents need, and offsets leave gaps.
class NestedColumn {
 public:
  Column column;

  NestedColumn(std::string name, const NestedType& type, const std::vector<uint64_t>& lengths, std::mt19937_64& random)
      : random_(random) {
    column = make(std::move(name), type, lengths);
  }
  NestedColumn(const NestedColumn&) = delete;
  NestedColumn& operator=(const NestedColumn&) = delete;

 private:
  uint8_t* keep(std::vector<uint8_t> bytes) {
    buffers_.push_back(std::unique_ptr<uint8_t[]>(new uint8_t[bytes.size()]));
    std::copy(bytes.begin(), bytes.end(), buffers_.back().get());
    return buffers_.back().get();
  }
  std::vector<uint8_t> noise(uint64_t size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_());
    return bytes;
  }
  template <class T>
  void set(const void*& data, uint64_t& size, const std::vector<T>& numbers) {
    size = numbers.size() * sizeof(T);
    std::vector<uint8_t> bytes(size);
    if (size) std::memcpy(bytes.data(), numbers.data(), size);
    data = keep(std::move(bytes));
  }
  std::string text() {
    const uint64_t sizes[] = {0, 1, 5, 12, 13, 40, 200};
    const std::vector<uint8_t> bytes = noise(sizes[random_() % 7]);
    return {bytes.begin(), bytes.end()};
  }

  template <class Offset>
  uint64_t set_offsets(ColumnChunk& chunk, uint64_t most) {
    std::vector<Offset> offsets{static_cast<Offset>(random_() % 3)};
    for (uint64_t i = 0; i < chunk.length; ++i) {
      offsets.push_back(static_cast<Offset>(offsets.back() + static_cast<Offset>(random_() % 3 ? random_() % most : 0)));
    }
    set(chunk.offsets, chunk.offsets_bytes, offsets);
    return static_cast<uint64_t>(offsets.back());
  }

  Column make(std::string name, const NestedType& type, const std::vector<uint64_t>& lengths) {
    Column made;
    made.name = name;
    made.type = type.type;
    made.type_ids = type.type_ids;
    std::vector<std::vector<uint64_t>> child_lengths(type.children.size());
    for (const uint64_t length : lengths) {
      made.length += length;
      made.chunks.push_back(make_chunk(made, type, length, child_lengths));
    }
    for (size_t i = 0; i < type.children.size(); ++i) {
      made.children.push_back(make(name + "." + std::to_string(i), type.children[i], child_lengths[i]));
    }
    return made;
  }

  ColumnChunk make_chunk(Column& made, const NestedType& type, uint64_t length,
                         std::vector<std::vector<uint64_t>>& child_lengths) {
    ColumnChunk chunk;
    chunk.length = length;
    const ColumnKind kind = type.type.kind;
    const bool is_union = kind == ColumnKind::sparse_union || kind == ColumnKind::dense_union;
    chunk.bit_offset = random_() % 20;
    if (!is_union && kind != ColumnKind::null && random_() % 2) {
      chunk.validity_bytes = (chunk.bit_offset + length + 7) / 8;
      std::vector<uint8_t> bits = noise(chunk.validity_bytes);
      for (uint8_t& byte : bits) byte |= static_cast<uint8_t>(random_());
      chunk.validity = keep(std::move(bits));
    }
    const auto values = [&](uint64_t bytes) {
      chunk.values_bytes = bytes;
      chunk.values = keep(noise(bytes));
    };
    const auto children = [&](uint64_t count) {
      for (auto& lengths : child_lengths) lengths.push_back(count + random_() % 3);
    };
    switch (kind) {
      case ColumnKind::boolean: values((chunk.bit_offset + length + 7) / 8); break;
      case ColumnKind::fixed: values(length * type.type.width); break;
      case ColumnKind::utf8: values(set_offsets<int32_t>(chunk, 30)); break;
      case ColumnKind::large_utf8: values(set_offsets<int64_t>(chunk, 30)); break;
      case ColumnKind::null: break;
      case ColumnKind::view: make_views(made, chunk); break;
      case ColumnKind::list: children(set_offsets<int32_t>(chunk, 5)); break;
      case ColumnKind::large_list: children(set_offsets<int64_t>(chunk, 5)); break;
      case ColumnKind::fixed_list: children(length * type.type.width); break;
      case ColumnKind::structure: children(length); break;
      case ColumnKind::sparse_union:
      case ColumnKind::dense_union: {
        std::vector<int8_t> ids(length);
        std::vector<int32_t> offsets(length);
        const uint64_t most = 1 + random_() % (length + 1);
        for (uint64_t i = 0; i < length; ++i) {
          ids[i] = type.type_ids[random_() % type.type_ids.size()];
          offsets[i] = static_cast<int32_t>(random_() % most);
        }
        set(chunk.values, chunk.values_bytes, ids);
        if (kind == ColumnKind::dense_union) set(chunk.offsets, chunk.offsets_bytes, offsets);
        children(kind == ColumnKind::dense_union ? most : length);
        break;
      }
    }
    return chunk;
  }

  void make_views(Column& made, ColumnChunk& chunk) {
    std::vector<std::vector<uint8_t>> bytes(1 + random_() % 3);
    std::vector<columns::View> views(chunk.length);
    for (columns::View& view : views) {
      const std::string value = text();
      view.low = value.size();
      std::memcpy(reinterpret_cast<char*>(&view) + 4, value.data(), std::min<size_t>(12, value.size()));
      if (value.size() <= 12) continue;
      const size_t buffer = random_() % bytes.size();
      view.move_to(buffer, bytes[buffer].size());
      bytes[buffer].insert(bytes[buffer].end(), value.begin(), value.end());
    }
    set(chunk.values, chunk.values_bytes, views);
    auto buffers = std::make_shared<std::vector<ViewBuffer>>();
    for (const auto& buffer : bytes) buffers->push_back({keep(buffer), buffer.size()});
    chunk.buffers = *buffers;
    made.view_buffers.push_back(std::move(buffers));
  }

  std::mt19937_64& random_;
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
};

/// A value of a chunk as text, with all that is within it.
inline std::string shown(const Column& column, size_t chunk_index, uint64_t index) {
  const ColumnChunk& chunk = column.chunks[chunk_index];
  const ColumnType& type = column.type;
  if (chunk.validity && !columns::bit_at(chunk.validity, chunk.bit_offset + index)) return "null";
  const auto* values = static_cast<const char*>(chunk.values);
  const auto range = [&](uint64_t begin, uint64_t end) {
    std::string text = "[";
    for (uint64_t i = begin; i < end; ++i) text += shown(column.children[0], chunk_index, i) + ",";
    return text + "]";
  };
  switch (type.kind) {
    case ColumnKind::boolean: return columns::bit_at(chunk.values, chunk.bit_offset + index) ? "true" : "false";
    case ColumnKind::fixed: return "'" + std::string(values + index * type.width, type.width) + "'";
    case ColumnKind::utf8:
    case ColumnKind::large_utf8: {
      const columns::Text text = columns::text_at(type.kind, chunk, index);
      return "'" + std::string(reinterpret_cast<const char*>(text.data), text.size) + "'";
    }
    case ColumnKind::null: return "null";
    case ColumnKind::view: {
      const columns::View view = columns::view_at(chunk, index);
      const auto size = static_cast<size_t>(view.length());
      if (size <= 12) return "'" + std::string(values + index * 16 + 4, size) + "'";
      const char* const data = reinterpret_cast<const char*>(chunk.buffers[static_cast<size_t>(view.buffer())].data);
      const std::string text(data + view.offset(), size);
      EXPECT_EQ(text.substr(0, 4), std::string(values + index * 16 + 4, 4));
      return "'" + text + "'";
    }
    case ColumnKind::list: {
      const auto* offsets = static_cast<const int32_t*>(chunk.offsets);
      return range(static_cast<uint64_t>(offsets[index]), static_cast<uint64_t>(offsets[index + 1]));
    }
    case ColumnKind::large_list: {
      const auto* offsets = static_cast<const int64_t*>(chunk.offsets);
      return range(static_cast<uint64_t>(offsets[index]), static_cast<uint64_t>(offsets[index + 1]));
    }
    case ColumnKind::fixed_list: return range(index * type.width, (index + 1) * type.width);
    case ColumnKind::structure: {
      std::string text = "{";
      for (const Column& child : column.children) text += shown(child, chunk_index, index) + ",";
      return text + "}";
    }
    case ColumnKind::sparse_union:
    case ColumnKind::dense_union: {
      const auto id = static_cast<int8_t>(values[index]);
      const auto child = std::find(column.type_ids.begin(), column.type_ids.end(), id) - column.type_ids.begin();
      const bool dense = type.kind == ColumnKind::dense_union;
      const uint64_t at = dense ? static_cast<uint64_t>(static_cast<const int32_t*>(chunk.offsets)[index]) : index;
      return std::to_string(id) + ":" + shown(column.children[static_cast<size_t>(child)], chunk_index, at);
    }
  }
  return "?";
}

/// All values of a column.
inline std::vector<std::string> shown(const Column& column) {
  std::vector<std::string> values;
  for (size_t chunk = 0; chunk < column.chunks.size(); ++chunk) {
    for (uint64_t i = 0; i < column.chunks[chunk].length; ++i) values.push_back(shown(column, chunk, i));
  }
  return values;
}

/// What a missing row shows.
inline std::string shown_missing(const Column& column) {
  return column.type_ids.empty() ? "null" : std::to_string(column.type_ids[0]) + ":" + shown_missing(column.children[0]);
}

}  // namespace warpjoin::test
