#include "csv/batch.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

namespace warpjoin::csv {
namespace {

constexpr uint64_t kBitsOfWord = 64;

uint64_t bitmap_bytes(uint64_t rows) { return (rows + kBitsOfWord - 1) / kBitsOfWord * sizeof(uint64_t); }

/// Appends bits to a bitmap of zeros from some row on. Other threads may write the bits before and behind these.
class BitWriter {
 public:
  BitWriter(void* bitmap, uint64_t row) : words_(static_cast<uint64_t*>(bitmap) + row / kBitsOfWord), bit_(row % kBitsOfWord) {}
  BitWriter(const BitWriter&) = delete;
  BitWriter& operator=(const BitWriter&) = delete;
  ~BitWriter() {
    if (bit_ > 0) share();
  }
  void put(bool bit) {
    word_ |= static_cast<uint64_t>(bit) << bit_;
    if (++bit_ == kBitsOfWord) flush();
  }

 private:
  void share() { std::atomic_ref(*words_).fetch_or(word_, std::memory_order_relaxed); }
  void flush() {
    if (first_) {
      share();
    } else {
      *words_ = word_;
    }
    first_ = false;
    ++words_;
    word_ = 0;
    bit_ = 0;
  }

  uint64_t* words_;
  uint64_t word_ = 0, bit_;
  bool first_ = true;
};

uint64_t width_of(Type type) {
  switch (type) {
    case Type::int64:
    case Type::float64:
    case Type::timestamp:
    case Type::timestamptz: return 8;
    case Type::date: return 4;
    default: return 0;
  }
}

/// put(row, text) stores a value, or says that it does not fit. Returns the first row that does not.
template <class Put>
std::optional<uint64_t> each_value(const FieldColumn& column, const Nulls& nulls, BitWriter& valid, uint64_t& null_count,
                                   const Put& put) {
  uint64_t missing = 0;
  for (uint64_t row = 0; row < column.rows; ++row) {
    const Field& field = column[row];
    const bool is_null = nulls(column, field);
    valid.put(!is_null);
    if (is_null) {
      ++missing;
      put(row, std::string_view());
    } else if (!put(row, column.at(field))) {
      return row;
    }
  }
  null_count = missing;
  return std::nullopt;
}

template <class T, class Parse>
std::optional<uint64_t> parse_fixed(T* values, const FieldColumn& column, const Nulls& nulls, BitWriter& valid,
                                    uint64_t& null_count, const Parse& parse) {
  return each_value(column, nulls, valid, null_count, [&](uint64_t row, std::string_view text) {
    values[row] = T{};
    return text.empty() || parse(text, values[row]);
  });
}

bool parse_in_column(std::string_view text, bool wants_zone, int64_t& value) {
  bool zoned = false;
  if (parse_timestamp(text, value, zoned)) return zoned == wants_zone;
  int32_t days = 0;
  if (wants_zone || !parse_date(text, days)) return false;
  value = days * kMicrosecondsPerDay;
  return true;
}

/// Copies a text without one of each pair of quotes; returns the end.
uint8_t* copy_unquoted(std::string_view text, uint8_t* to) {
  for (size_t i = 0; i < text.size(); ++i) {
    *to++ = static_cast<uint8_t>(text[i]);
    if (text[i] == '"') ++i;
  }
  return to;
}

void parse_texts(uint8_t* bytes, const Place& place, int32_t* offsets, const FieldColumn& column, const Nulls& nulls,
                 BitWriter& valid, uint64_t& null_count) {
  uint8_t* to = bytes + place.byte;
  const uint8_t* const end = bytes + place.end_byte;
  uint64_t missing = 0;
  for (uint64_t row = 0; row < column.rows; ++row) {
    const Field& field = column[row];
    const bool is_null = nulls(column, field);
    valid.put(!is_null);
    offsets[row] = static_cast<int32_t>(to - bytes);
    if (is_null) {
      ++missing;
      continue;
    }
    const std::string_view text = column.at(field);
    constexpr size_t kShort = 16;
    if (field.doubled()) {
      to = copy_unquoted(text, to);
    } else if (text.size() <= kShort && end - to >= static_cast<ptrdiff_t>(kShort)) {
      std::memcpy(to, text.data(), kShort);  // kPadding makes the bytes behind the text readable
      to += text.size();
    } else {
      std::memcpy(to, text.data(), text.size());
      to += text.size();
    }
  }
  null_count = missing;
}

}  // namespace

bool Nulls::is_null_text(const FieldColumn& column, const Field& field) const {
  if (field.doubled()) return std::find(texts_.begin(), texts_.end(), unquoted(column, field)) != texts_.end();
  return std::find(texts_.begin(), texts_.end(), column.at(field)) != texts_.end();
}

std::string unquoted(const FieldColumn& column, const Field& field) {
  const std::string_view text = column.at(field);
  if (!field.doubled()) return std::string(text);
  std::string single(text.size(), '\0');
  uint8_t* const begin = reinterpret_cast<uint8_t*>(single.data());
  single.resize(static_cast<size_t>(copy_unquoted(text, begin) - begin));
  return single;
}

uint64_t text_bytes(const FieldColumn& column, const Nulls& nulls) {
  uint64_t bytes = 0;
  for (uint64_t row = 0; row < column.rows; ++row) {
    const Field& field = column[row];
    if (nulls(column, field)) continue;
    bytes += field.size();
    if (field.doubled()) {
      const std::string_view text = column.at(field);
      bytes -= static_cast<uint64_t>(std::count(text.begin(), text.end(), '"')) / 2;
    }
  }
  return bytes;
}

Type infer(const FieldColumn& column, uint64_t row, Type type, const Nulls& nulls) {
  for (; row < column.rows && type != Type::utf8; ++row) {
    const Field& field = column[row];
    if (!nulls(column, field)) type = wider(type, type_of(column.at(field)));
  }
  return type;
}

Batch::Batch(std::shared_ptr<HostMemory> memory, std::span<const Type> types)
    : memory_(std::move(memory)), columns_(types.size()), parsed_nulls_(types.size()) {
  for (size_t c = 0; c < types.size(); ++c) columns_[c].type = types[c];
}

void Batch::clear_bits(HostBuffer& bits, uint64_t from_row) const {
  const uint64_t word = from_row / kBitsOfWord;
  auto* const words = bits.as<uint64_t>();
  const uint64_t kept = from_row % kBitsOfWord ? words[word] & ((uint64_t{1} << from_row % kBitsOfWord) - 1) : 0;
  const uint64_t begin = word * sizeof(uint64_t);
  if (begin < bits.size()) std::memset(words + word, 0, bits.size() - begin);
  if (kept) words[word] = kept;
}

void Batch::reserve(uint64_t rows, std::span<const uint64_t> text_bytes) {
  constexpr const char* kPurpose = "a column of a CSV file";
  const auto grow = [&](HostBuffer& buffer, uint64_t bytes) {
    if (!buffer) {
      buffer = memory_->allocate(bytes, kPurpose);
    } else if (buffer.size() < bytes) {
      buffer.grow(std::max(bytes, buffer.size() + buffer.size() / 2), kPurpose);
    }
  };
  const uint64_t wanted = rows_ + rows;
  // Bits of rows that were forgotten are there, too.
  const auto grow_bits = [&](HostBuffer& bits) {
    grow(bits, bitmap_bytes(wanted + kBitsOfWord));
    clear_bits(bits, rows_);
  };
  for (size_t c = 0; c < columns_.size(); ++c) {
    BatchColumn& column = columns_[c];
    if (column.type == Type::empty) continue;
    grow_bits(column.validity);
    if (column.type == Type::boolean) {
      grow_bits(column.values);
    } else if (column.type == Type::utf8) {
      grow(column.offsets, (wanted + 1) * sizeof(int32_t));
      grow(column.values, column.bytes + text_bytes[c]);
    } else {
      grow(column.values, wanted * width_of(column.type));
    }
  }
  reserved_ = wanted;
}

std::optional<uint64_t> Batch::parse(size_t index, const Place& place, const FieldColumn& fields, bool lenient,
                                     const Nulls& nulls) {
  BatchColumn& column = columns_[index];
  const uint64_t first = place.row;
  uint64_t null_count = 0;
  if (column.type == Type::empty) {
    for (uint64_t row = 0; row < fields.rows; ++row) {
      if (!nulls(fields, fields[row])) return row;
    }
    std::atomic_ref(parsed_nulls_[index]).fetch_add(fields.rows, std::memory_order_relaxed);
    return std::nullopt;
  }
  BitWriter valid(column.validity.data(), first);
  const auto parsed = [&]() -> std::optional<uint64_t> {
    switch (column.type) {
      case Type::boolean: {
        BitWriter bits(column.values.data(), first);
        return each_value(fields, nulls, valid, null_count, [&](uint64_t, std::string_view text) {
          bool value = false;
          const bool fits = text.empty() || parse_boolean(text, value);
          bits.put(value);
          return fits;
        });
      }
      case Type::int64:
        return parse_fixed(column.values.as<int64_t>() + first, fields, nulls, valid, null_count,
                           [&](std::string_view text, int64_t& value) { return parse_int64(text, lenient, value); });
      case Type::float64:
        return parse_fixed(column.values.as<double>() + first, fields, nulls, valid, null_count,
                           [&](std::string_view text, double& value) { return parse_float64(text, lenient, value); });
      case Type::date: return parse_fixed(column.values.as<int32_t>() + first, fields, nulls, valid, null_count, parse_date);
      case Type::timestamp:
      case Type::timestamptz:
        return parse_fixed(column.values.as<int64_t>() + first, fields, nulls, valid, null_count,
                           [zoned = column.type == Type::timestamptz](std::string_view text, int64_t& value) {
                             return parse_in_column(text, zoned, value);
                           });
      default: {
        auto* const bytes = column.values.as<uint8_t>();
        parse_texts(bytes, place, column.offsets.as<int32_t>() + first, fields, nulls, valid, null_count);
        return std::nullopt;
      }
    }
  }();
  if (!parsed) std::atomic_ref(parsed_nulls_[index]).fetch_add(null_count, std::memory_order_relaxed);
  return parsed;
}

void Batch::commit(uint64_t rows, std::span<const uint64_t> text_bytes) {
  rows_ += rows;
  for (size_t c = 0; c < columns_.size(); ++c) {
    columns_[c].nulls += std::exchange(parsed_nulls_[c], 0);
    if (columns_[c].type == Type::utf8) {
      columns_[c].bytes += text_bytes[c];
      columns_[c].offsets.as<int32_t>()[rows_] = static_cast<int32_t>(columns_[c].bytes);
    }
  }
}

void Batch::forget() { std::fill(parsed_nulls_.begin(), parsed_nulls_.end(), 0); }

bool Batch::converts(size_t index, Type type) const {
  const BatchColumn& column = columns_[index];
  return column.type == type || column.nulls == rows_ || csv::converts(column.type, type);
}

void Batch::convert(size_t index, Type type) {
  BatchColumn& column = columns_[index];
  if (column.type == type) return;
  constexpr const char* kPurpose = "a column of a CSV file";
  BatchColumn made;
  made.type = type;
  made.nulls = column.nulls;
  if (column.nulls == rows_) {
    const auto zeros = [&](uint64_t bytes) {
      HostBuffer buffer = memory_->allocate(bytes, kPurpose);
      std::memset(buffer.data(), 0, bytes);
      return buffer;
    };
    made.validity = zeros(bitmap_bytes(rows_));
    if (type == Type::utf8) made.offsets = zeros((rows_ + 1) * sizeof(int32_t));
    made.values = zeros(type == Type::boolean ? bitmap_bytes(rows_) : rows_ * width_of(type));
  } else {
    made.validity = std::move(column.validity);
    made.values = memory_->allocate(rows_ * width_of(type), kPurpose);
    if (type == Type::float64) {
      std::transform(column.values.as<int64_t>(), column.values.as<int64_t>() + rows_, made.values.as<double>(),
                     [](int64_t value) { return static_cast<double>(value); });
    } else {
      std::transform(column.values.as<int32_t>(), column.values.as<int32_t>() + rows_, made.values.as<int64_t>(),
                     [](int32_t days) { return days * kMicrosecondsPerDay; });
    }
  }
  column = std::move(made);
}

std::vector<OwnedColumn> Batch::take() {
  std::vector<OwnedColumn> owned(columns_.size());
  for (size_t c = 0; c < columns_.size(); ++c) {
    BatchColumn& column = columns_[c];
    OwnedColumn& made = owned[c];
    made.length = rows_;
    made.null_count = column.nulls;
    if (column.nulls) {
      column.validity.shrink(bitmap_bytes(rows_));
      made.validity = std::move(column.validity);
    }
    if (column.type == Type::utf8) {
      made.type = {.kind = ColumnKind::utf8, .order = KeyOrder::bytes};
      column.offsets.shrink((rows_ + 1) * sizeof(int32_t));
      column.values.shrink(column.bytes);
      made.offsets = std::move(column.offsets);
      made.chunk_ends = {{rows_, column.bytes}};
    } else if (column.type == Type::boolean) {
      made.type = {.kind = ColumnKind::boolean, .order = KeyOrder::boolean};
      column.values.shrink(bitmap_bytes(rows_));
    } else {
      made.type = {.kind = ColumnKind::fixed, .width = static_cast<uint32_t>(width_of(column.type))};
      column.values.shrink(rows_ * width_of(column.type));
    }
    made.values = std::move(column.values);
  }
  return owned;
}

}  // namespace warpjoin::csv
