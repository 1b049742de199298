#include "columns/sort_order.h"

#include <bit>

#include "core/key_types.h"

namespace warpjoin::columns {
namespace {

constexpr unsigned bit_width(uint64_t value) { return static_cast<unsigned>(std::bit_width(value)); }

/// How many leading bytes of a long text go into a field of at most `room` bits, with the size that tells a text that
/// ends from one that goes on with zeros; no size is needed where no text ends before.
void fit_head(KeyColumn& column, unsigned room) {
  const uint64_t least = column.text.least_size - column.text.prefix;
  column.text_bytes = room / 8;
  if (least >= column.text_bytes) return;
  while (column.text_bytes && 8 * column.text_bytes + bit_width(column.text_bytes + 1) > room) --column.text_bytes;
  if (column.text_bytes) column.size_bits = bit_width(column.text_bytes + 1);
}

/// What values of a type may be.
FixedScan type_scan(const ColumnType& type) {
  FixedScan scan;
  scan.least = 0;
  scan.greatest = is_boolean_key(type) ? 1 : low_bits(8 * type.width);
  return scan;
}
TextScan any_text() {
  TextScan scan;
  scan.least_size = 0;
  scan.greatest_size = ~uint64_t{0};
  return scan;
}

}  // namespace

SortOrder::SortOrder(std::span<const SortColumn> by, Extents extents, Engine& engine, const Job& job) {
  scan(by, extents, engine, job);
  lay_out();
}

void SortOrder::scan(std::span<const SortColumn> by, Extents extents, Engine& engine, const Job& job) {
  const bool read = extents == Extents::values;
  for (const SortColumn& sort_column : by) require_key_type(*sort_column.column);
  columns_.reserve(by.size());
  for (const SortColumn& sort_column : by) {
    KeyColumn& column = columns_.emplace_back(KeyColumn{.chunks = ChunkIndex(*sort_column.column),
                                                        .descending = sort_column.descending,
                                                        .nulls_last = sort_column.nulls_last,
                                                        .fixed = {},
                                                        .text = {}});
    if (column.is_text()) {
      column.text = read ? scan_text(column.chunks, true, engine, job) : any_text();
    } else {
      column.fixed = read ? scan_fixed(column.chunks, engine, job) : type_scan(column.chunks.type());
      if (!column.fixed.empty()) {
        column.value_bits = bit_width(column.fixed.greatest - column.fixed.least);
        column.flip = column.descending ? ~uint64_t{0} : 0;
        column.base = column.descending ? ~column.fixed.greatest : column.fixed.least;
      }
    }
    column.has_null_flag = read ? column.nulls() != 0 && column.nulls() != column.chunks.rows() : column.chunks.nullable();
  }
}

void SortOrder::lay_out() {
  std::vector<Field> fields;
  unsigned used = 0;
  const auto add_field = [&](Field::Kind kind, size_t column, unsigned bits) {
    if (bits == 0) return;
    fields.push_back({kind, static_cast<uint32_t>(column), bits});
    used += bits;
  };
  for (size_t i = 0; i < columns_.size(); ++i) {
    KeyColumn& column = columns_[i];
    if (column.has_null_flag) add_field(Field::Kind::null_flag, i, 1);
    if (!column.is_text()) {
      add_field(Field::Kind::value, i, column.value_bits);
      continue;
    }
    if (column.text.empty()) continue;
    const uint64_t longest = column.text.greatest_size - column.text.prefix;
    const unsigned size_bits = bit_width(column.text.greatest_size - column.text.least_size);
    if (longest <= 8 && 8 * longest + size_bits <= 64) {
      column.whole_text = true;
      column.text_bytes = static_cast<unsigned>(longest);
      column.size_bits = size_bits;
      column.value_bits = 8 * column.text_bytes + size_bits;
      add_field(Field::Kind::text, i, column.value_bits);
      continue;
    }
    if (stages_.empty() && used < 64) {
      fit_head(column, 64 - used);
      column.value_bits = 8 * column.text_bytes + column.size_bits;
      add_field(Field::Kind::text, i, column.value_bits);
    }
    cut(fields);
    used = 0;
    stages_.push_back({true, static_cast<uint32_t>(i), column.text.prefix + column.text_bytes, {}});
  }
  cut(fields);
  if (stages_.empty()) stages_.emplace_back();  // no bits at all: every row ties, and that decides
}

/// Cuts a bit string into stages of one word. Only the first word of all is looked at by decode.
void SortOrder::cut(std::vector<Field>& fields) {
  unsigned total = 0;
  for (const Field& field : fields) total += field.bits;
  for (unsigned begin = 0; begin < total; begin += 64) {
    const unsigned end = std::min(begin + 64, total);
    const bool first = stages_.empty();
    Stage& stage = stages_.emplace_back();
    unsigned position = 0;
    for (const Field& field : fields) {
      const unsigned field_end = position + field.bits;
      if (position < end && field_end > begin) {
        const int shift = static_cast<int>(end) - static_cast<int>(field_end);
        stage.parts.push_back({field, shift});
        KeyColumn& column = columns_[field.column];
        if (first && shift >= 0) (field.kind == Field::Kind::null_flag ? column.null_shift : column.value_shift) = shift;
      }
      position = field_end;
    }
    if (first) first_word_bits_ = end;
  }
  fields.clear();
}

}  // namespace warpjoin::columns
