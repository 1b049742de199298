// What a Parquet file's footer says (parquet.thrift of the Apache Parquet format).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parquet/format.h"

namespace warpjoin::parquet {

/// A column of values: a leaf of the schema.
struct Leaf {
  std::vector<std::string> path;  ///< names from the top down
  PhysicalType physical = PhysicalType::boolean;
  uint32_t type_length = 0;  ///< fixed_bytes: bytes of a value
  Repetition repetition = Repetition::required;
  int most_definition = 0, most_repetition = 0;
  std::optional<int32_t> converted;  ///< a ConvertedType, or a number that is none
  std::optional<int> logical;        ///< a LogicalType, or a number that is none
  int32_t scale = 0, precision = 0;
  int unit = 0;  ///< of times and timestamps: a TimeUnit
  bool utc = false;
  int bit_width = 0;  ///< of integers
  bool is_signed = false;
  std::optional<int32_t> field_id;
};

/// A leaf's values in a row group.
struct ChunkPlace {
  uint64_t begin = 0, bytes = 0;  ///< in the file
  uint64_t uncompressed = 0;      ///< bytes of all pages, as the file states them
  uint64_t values = 0;
  int32_t codec = 0;
  uint64_t encodings = 0;  ///< a bit each; those from 63 on share one
  bool elsewhere = false;  ///< in another file, or encrypted
};

struct RowGroup {
  uint64_t rows = 0;
  std::vector<ChunkPlace> chunks;  ///< of each leaf
};

struct FileMetadata {
  uint64_t rows = 0;
  std::vector<Leaf> leaves;
  std::vector<RowGroup> groups;
  std::vector<std::pair<std::string, std::string>> key_values;
  std::string created_by;
};

/// More rows than any file has: products with the width of a value don't overflow.
inline constexpr uint64_t kMostRows = uint64_t{1} << 48;

/// Reads a footer's metadata. `file_bytes`: where the footer begins, before which all pages lie. Throws Damaged.
FileMetadata read_metadata(std::span<const uint8_t> footer, uint64_t file_bytes);

struct PageHeader {
  int32_t type = 0;           ///< a PageType, or a number that is none
  uint64_t header_bytes = 0;  ///< of the header itself
  uint64_t bytes = 0;         ///< behind the header
  uint64_t uncompressed = 0;  ///< bytes once decompressed
  uint64_t values = 0;        ///< nulls included
  int32_t encoding = 0;       ///< an Encoding, or a number that is none
  int32_t level_encoding = static_cast<int32_t>(Encoding::rle);
  // Of data pages of version 2:
  uint64_t repetition_bytes = 0, definition_bytes = 0;
  bool compressed = true;
};

/// Reads the header of a page. Throws Damaged, and CutOff where `bytes` end within it.
PageHeader read_page_header(std::span<const uint8_t> bytes);

}  // namespace warpjoin::parquet
