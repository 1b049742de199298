// What the values of views and unions say, read once each: their owner may write to them meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "columns/bits.h"
#include "core/column.h"

namespace warpjoin::columns {

inline constexpr uint64_t kViewBytes = 16;
inline constexpr int32_t kMostInlineBytes = 12;

/// A text of up to 12 bytes, or its first 4 with where it lies.
struct View {
  uint64_t low = 0, high = 0;

  int32_t length() const { return static_cast<int32_t>(low); }
  bool is_inline() const { return length() <= kMostInlineBytes; }
  int32_t buffer() const { return static_cast<int32_t>(high); }
  int32_t offset() const { return static_cast<int32_t>(high >> 32); }
  void move_to(uint64_t buffer, uint64_t offset) { high = offset << 32 | buffer; }
};
static_assert(sizeof(View) == kViewBytes);

/// A view of a chunk. What is read is in registers: it is not read again.
inline View view_at(const ColumnChunk& chunk, uint64_t index) {
  View view;
  std::memcpy(&view, static_cast<const char*>(chunk.values) + index * kViewBytes, kViewBytes);
  asm volatile("" : "+r"(view.low), "+r"(view.high));
  return view;
}

/// Whether the text is in the view itself, or within one of the chunk's buffers.
inline bool is_within(const View& view, const ColumnChunk& chunk) {
  if (view.length() < 0) return false;
  if (view.is_inline()) return true;
  const auto buffer = static_cast<uint32_t>(view.buffer());
  if (buffer >= chunk.buffers.size() || view.offset() < 0) return false;
  return static_cast<uint64_t>(view.offset()) + static_cast<uint64_t>(view.length()) <= chunk.buffers[buffer].size;
}

/// Which child each row of a union is in.
class UnionChildren {
 public:
  explicit UnionChildren(const Column& column) {
    children_.fill(-1);
    for (size_t i = 0; i < column.type_ids.size(); ++i) {
      children_[static_cast<uint8_t>(column.type_ids[i])] = static_cast<int16_t>(i);
    }
  }

  /// -1 for a type id that no child has.
  int of(const ColumnChunk& chunk, uint64_t index) const { return children_[load_once<uint8_t>(chunk.values, index)]; }

 private:
  std::array<int16_t, 256> children_;
};

}  // namespace warpjoin::columns
