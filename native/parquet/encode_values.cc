#include "parquet/encode_values.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "columns/nested.h"
#include "core/error.h"

namespace warpjoin::parquet {
namespace {

using columns::ChunkIndex;
using columns::load;
using columns::low_bits;

[[noreturn]] void no_such_type(const Column& column) {
  throw Error(ErrorCode::option, "Column '" + column.name + "' does not become values of its field's physical type");
}

/// Bytes of a physical type's value, as ValueSource::read() gives it.
uint32_t width_of(PhysicalType type, uint32_t fixed) {
  switch (type) {
    case PhysicalType::boolean: return 1;
    case PhysicalType::int32:
    case PhysicalType::float32: return 4;
    case PhysicalType::int64:
    case PhysicalType::float64: return 8;
    case PhysicalType::fixed_bytes: return fixed;
    default: return 0;
  }
}

Order order_of(const ColumnType& type, PhysicalType to) {
  switch (to) {
    case PhysicalType::byte_array: return Order::bytes;
    case PhysicalType::fixed_bytes: return type.order == KeyOrder::bytes ? Order::bytes : Order::none;
    case PhysicalType::float32:
    case PhysicalType::float64: return Order::floating;
    case PhysicalType::boolean: return Order::unsigned_integer;
    default: return type.order == KeyOrder::unsigned_integer ? Order::unsigned_integer : Order::signed_integer;
  }
}

uint64_t varying_bytes(const ColumnType& type, const ColumnChunk& chunk, uint64_t first, uint64_t count) {
  uint64_t begin = 0, end = 0;
  if (type.kind == ColumnKind::utf8) {
    begin = load<uint32_t>(chunk.offsets, first);
    end = load<uint32_t>(chunk.offsets, first + count);
  } else if (type.kind == ColumnKind::large_utf8) {
    begin = load<uint64_t>(chunk.offsets, first);
    end = load<uint64_t>(chunk.offsets, first + count);
  } else {
    for (uint64_t i = first; i < first + count; ++i) {
      const columns::View view = columns::view_at(chunk, i);
      if (columns::valid_at(chunk, i) && columns::is_within(view, chunk)) end += static_cast<uint64_t>(view.length());
    }
  }
  if (type.kind != ColumnKind::view) end = std::min(end, chunk.values_bytes);  // offsets may have changed
  return end > begin ? end - begin : 0;
}

template <class From>
void widen(const void* values, uint64_t first, uint64_t count, uint8_t* out) {
  for (uint64_t i = 0; i < count; ++i) {
    const auto value = int32_t{+load<From>(values, first + i)};
    std::memcpy(out + 4 * i, &value, 4);
  }
}

}  // namespace

ValueSource::ValueSource(const Column& column, PhysicalType type, uint32_t width)
    : column_(column), chunks_(column), type_(type), width_(width_of(type, width)) {
  if (column.dictionary) {
    if (column.dictionary->dictionary) no_such_type(column);
    dictionary_ = std::make_unique<const ValueSource>(*column.dictionary, type, width);
    order_ = dictionary_->order();
    if (dictionary_->all_null()) no_such_type(column);
    store_ = Store::copy;
    return;
  }
  store_ = store_of(column.type, type, width_);
  order_ = order_of(column.type, type);
}

ValueSource::Store ValueSource::store_of(const ColumnType& type, PhysicalType to, uint32_t width) const {
  const bool integers = type.order == KeyOrder::signed_integer || type.order == KeyOrder::unsigned_integer;
  switch (type.kind) {
    case ColumnKind::boolean:
      if (to == PhysicalType::boolean) return Store::bits;
      break;
    case ColumnKind::null:
      if (to == PhysicalType::int32) return Store::none;
      break;
    case ColumnKind::utf8:
      if (to == PhysicalType::byte_array) return Store::text;
      break;
    case ColumnKind::large_utf8:
      if (to == PhysicalType::byte_array) return Store::large_text;
      break;
    case ColumnKind::view:
      if (to == PhysicalType::byte_array) return Store::view;
      break;
    case ColumnKind::fixed:
      if (to == PhysicalType::float32 || to == PhysicalType::float64) {
        if (type.order == KeyOrder::floating && type.width == width) return Store::copy;
      } else if (to == PhysicalType::int32 || to == PhysicalType::int64) {
        if (!integers) break;
        if (type.width == width) return Store::copy;
        if (type.width > width && type.order == KeyOrder::signed_integer) return Store::cut;
        if (type.width < 4 && width == 4) return Store::widen;
      } else if (to == PhysicalType::fixed_bytes && width > 0) {
        if (type.order == KeyOrder::signed_integer && width <= type.width) return Store::reverse;
        if (!integers && width == type.width) return Store::copy;
      }
      break;
    default: break;
  }
  no_such_type(column_);
}

uint64_t ValueSource::number_at(const ColumnChunk& chunk, uint64_t index) const {
  uint64_t number = 0;
  switch (column_.type.width) {
    case 1: number = columns::load_once<uint8_t>(chunk.values, index); break;
    case 2: number = columns::load_once<uint16_t>(chunk.values, index); break;
    case 4: number = columns::load_once<uint32_t>(chunk.values, index); break;
    default: number = columns::load_once<uint64_t>(chunk.values, index);
  }
  if (number >= chunk.dictionary_size) throw InputChanged("Column '" + column_.name + "'");
  return chunk.dictionary_base + number;
}

uint64_t ValueSource::plain_bytes(uint64_t begin, uint64_t end) const {
  const uint64_t rows = end - begin;
  if (type_ != PhysicalType::byte_array) return type_ == PhysicalType::boolean ? rows / 8 : rows * width_;
  uint64_t bytes = 4 * rows;
  chunks_.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t) {
    if (!dictionary_) {
      bytes += varying_bytes(column_.type, chunk, first, count);
      return;
    }
    for (uint64_t i = first; i < first + count; ++i) {
      if (!columns::valid_at(chunk, i)) continue;
      const columns::Place place = dictionary_->chunks_.at(number_at(chunk, i));
      bytes += varying_bytes(dictionary_->column_.type, *place.chunk, place.index, 1);
    }
  });
  return bytes;
}

/// Calls run(chunk, first, count) for runs of valid rows; returns how many they are.
template <class Run>
uint64_t ValueSource::for_valid_runs(uint64_t begin, uint64_t end, Levels& levels, Run&& run) const {
  uint64_t valid = 0;
  chunks_.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t) {
    if (!chunk.validity) {
      levels.append_valid(count);
      valid += count;
      run(chunk, first, count);
      return;
    }
    columns::for_groups(chunk, first, count, [&](uint64_t at, unsigned group, uint64_t bits) {
      levels.append(bits, group);
      valid += static_cast<uint64_t>(std::popcount(bits));
      while (bits) {
        const auto skipped = static_cast<unsigned>(std::countr_zero(bits));
        const auto length = static_cast<unsigned>(std::countr_one(bits >> skipped));
        run(chunk, at + skipped, length);
        bits &= ~(low_bits(length) << skipped);
      }
    });
  });
  return valid;
}

void ValueSource::convert(const ColumnChunk& chunk, uint64_t first, uint64_t count, uint8_t* out) const {
  const auto* const values = static_cast<const uint8_t*>(chunk.values);
  const uint64_t from = column_.type.width;
  switch (store_) {
    case Store::bits:
      for (uint64_t i = 0; i < count; ++i) out[i] = columns::bit_at(values, chunk.bit_offset + first + i);
      return;
    case Store::copy: std::memcpy(out, values + first * from, count * from); return;
    case Store::widen: {
      const bool is_signed = column_.type.order == KeyOrder::signed_integer;
      if (from == 1) return is_signed ? widen<int8_t>(values, first, count, out) : widen<uint8_t>(values, first, count, out);
      return is_signed ? widen<int16_t>(values, first, count, out) : widen<uint16_t>(values, first, count, out);
    }
    case Store::cut:
      for (uint64_t i = 0; i < count; ++i) std::memcpy(out + i * width_, values + (first + i) * from, width_);
      return;
    case Store::reverse:
      for (uint64_t i = 0; i < count; ++i) {
        const uint8_t* const value = values + (first + i) * from;
        std::reverse_copy(value, value + width_, out + i * width_);
      }
      return;
    default: return;
  }
}

Bytes ValueSource::bytes_at(const ColumnChunk& chunk, uint64_t index) const {
  if (store_ == Store::view) {
    const columns::View view = columns::view_at(chunk, index);
    if (!columns::is_within(view, chunk)) throw InputChanged("Column '" + column_.name + "'");
    const auto size = static_cast<uint64_t>(view.length());
    if (view.is_inline()) return {static_cast<const uint8_t*>(chunk.values) + index * columns::kViewBytes + 4, size};
    return {chunk.buffers[static_cast<uint32_t>(view.buffer())].data + view.offset(), size};
  }
  const columns::Text text =
      store_ == Store::text ? columns::text_at<int32_t>(chunk, index) : columns::text_at<int64_t>(chunk, index);
  return {text.data, text.size};
}

uint64_t ValueSource::read(uint64_t begin, uint64_t end, uint8_t* out, Levels& levels) const {
  if (store_ == Store::none) {
    for (uint64_t left = end - begin; left > 0; left -= std::min<uint64_t>(left, 64)) {
      levels.append(0, static_cast<unsigned>(std::min<uint64_t>(left, 64)));
    }
    return 0;
  }
  return for_valid_runs(begin, end, levels, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count) {
    convert(chunk, first, count, out);
    out += count * width_;
  });
}

uint64_t ValueSource::read(uint64_t begin, uint64_t end, Bytes* out, Levels& levels) const {
  return for_valid_runs(begin, end, levels, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count) {
    if (store_ == Store::text) {
      for (uint64_t i = 0; i < count; ++i) {
        const columns::Text text = columns::text_at<int32_t>(chunk, first + i);
        *out++ = {text.data, text.size};
      }
      return;
    }
    for (uint64_t i = 0; i < count; ++i) *out++ = bytes_at(chunk, first + i);
  });
}

uint64_t ValueSource::read_numbers(uint64_t begin, uint64_t end, uint64_t* out, Levels& levels) const {
  uint64_t found = 0;
  chunks_.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t) {
    columns::for_groups(chunk, first, count, [&](uint64_t at, unsigned group, uint64_t bits) {
      uint64_t valid = 0;
      columns::for_set_bits(bits, [&](unsigned i) {
        const uint64_t number = number_at(chunk, at + i);
        const columns::Place place = dictionary_->chunks_.at(number);
        if (!columns::valid_at(*place.chunk, place.index)) return;
        valid |= uint64_t{1} << i;
        out[found++] = number;
      });
      levels.append(valid, group);
    });
  });
  return found;
}

void ValueSource::look_up(const uint64_t* numbers, uint64_t count, uint8_t* out) const {
  for (uint64_t i = 0; i < count; ++i) {
    const columns::Place place = dictionary_->chunks_.at(numbers[i]);
    dictionary_->convert(*place.chunk, place.index, 1, out + i * width_);
  }
}

void ValueSource::look_up(const uint64_t* numbers, uint64_t count, Bytes* out) const {
  for (uint64_t i = 0; i < count; ++i) {
    const columns::Place place = dictionary_->chunks_.at(numbers[i]);
    out[i] = dictionary_->bytes_at(*place.chunk, place.index);
  }
}

}  // namespace warpjoin::parquet
