// A record batch in the making: Arrow buffers that parts of a file are parsed into, by several threads at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/column.h"
#include "core/host_memory.h"
#include "csv/records.h"
#include "csv/values.h"

namespace warpjoin::csv {

/// The fields of one column in some rows.
struct FieldColumn {
  const uint8_t* text = nullptr;
  const Field* fields = nullptr;  ///< of the first row
  uint64_t stride = 0;            ///< fields of a row
  uint64_t rows = 0;

  const Field& operator[](uint64_t row) const { return fields[row * stride]; }
  std::string_view at(const Field& field) const { return {reinterpret_cast<const char*>(text) + field.begin, field.size()}; }
};

/// Which fields mean null: empty ones, and some texts.
class Nulls {
 public:
  explicit Nulls(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  bool operator()(const FieldColumn& column, const Field& field) const {
    return field.size() == 0 || (!texts_.empty() && is_null_text(column, field));
  }

 private:
  bool is_null_text(const FieldColumn& column, const Field& field) const;
  std::vector<std::string> texts_;
};

/// A field's text; doubled quotes become one.
std::string unquoted(const FieldColumn& column, const Field& field);
/// Bytes that the values of a text column have.
uint64_t text_bytes(const FieldColumn& column, const Nulls& nulls);
/// The narrowest type that holds all values from `row` on, and those of `type`.
Type infer(const FieldColumn& column, uint64_t row, Type type, const Nulls& nulls);

struct BatchColumn {
  Type type = Type::empty;
  uint64_t nulls = 0;
  uint64_t bytes = 0;  ///< of texts
  HostBuffer validity, values, offsets;
};

/// Where values of a column go: from a row on, and a text's bytes within [byte, end_byte).
struct Place {
  uint64_t row = 0;
  uint64_t byte = 0, end_byte = 0;
};

class Batch {
 public:
  Batch(std::shared_ptr<HostMemory> memory, std::span<const Type> types);

  uint64_t rows() const { return rows_; }
  const BatchColumn& column(size_t index) const { return columns_[index]; }
  /// Makes room for so many more rows, and bytes of each column of text.
  void reserve(uint64_t rows, std::span<const uint64_t> text_bytes);
  /// Parses fields of a column into a place behind rows() that was reserved. Says the first row that does not fit the type: then
  /// nothing was counted. Several threads may parse other rows and columns.
  std::optional<uint64_t> parse(size_t column, const Place& place, const FieldColumn& fields, bool lenient, const Nulls& nulls);
  /// The rows that were parsed since the last call belong to the batch now, or are forgotten.
  void commit(uint64_t rows, std::span<const uint64_t> text_bytes);
  void forget();
  /// Whether a column becomes one of `type` without the texts that it was made of.
  bool converts(size_t column, Type type) const;
  void convert(size_t column, Type type);
  /// The columns, which the batch then has no more.
  std::vector<OwnedColumn> take();

 private:
  void clear_bits(HostBuffer& bits, uint64_t from_row) const;

  std::shared_ptr<HostMemory> memory_;
  std::vector<BatchColumn> columns_;
  std::vector<uint64_t> parsed_nulls_;  // since the last commit()
  uint64_t rows_ = 0, reserved_ = 0;
};

}  // namespace warpjoin::csv
