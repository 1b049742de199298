// Writes a Parquet file (parquet.thrift of the Apache Parquet format): row groups on all threads, then the footer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/column.h"
#include "core/host_memory.h"
#include "core/job.h"
#include "core/thread_pool.h"
#include "parquet/column_writer.h"
#include "parquet/encode_values.h"
#include "parquet/format.h"

namespace warpjoin::parquet {

class ThriftWriter;

/// What a field's values mean.
struct Annotation {
  LogicalType type;
  TimeUnit unit = TimeUnit::millis;  ///< of time and timestamp
  bool utc = false;                  ///< of time and timestamp: whether they count from a moment in UTC
  int8_t bits = 0;                   ///< of integer
  bool is_signed = false;            ///< of integer
};

/// A leaf of the schema; there are no others.
struct Field {
  std::string name;
  bool nullable = true;
  PhysicalType type = PhysicalType::int32;
  uint32_t width = 0;  ///< of fixed_bytes
  std::optional<ConvertedType> converted;
  std::optional<Annotation> annotation;
  int32_t precision = 0, scale = 0;  ///< of decimal
};

struct WriterOptions {
  std::vector<Field> fields;
  std::vector<std::pair<std::string, std::string>> metadata;
  uint64_t group_rows = uint64_t{1} << 20;     ///< the most of a row group
  uint64_t group_bytes = uint64_t{128} << 20;  ///< about the most of a row group's values
  uint64_t page_bytes = uint64_t{1} << 20;     ///< about the most of a page's values
};

/// Called by one thread at a time.
class FileWriter {
 public:
  /// Bytes that follow in the file.
  struct Part {
    HostBuffer bytes;
    uint64_t size = 0;
  };

  FileWriter(WriterOptions options, std::shared_ptr<HostMemory> memory, ThreadPool& pool);

  /// Rows to write behind those before, which have been written. A column for each field, borrowed until they are. Throws
  /// Error(invalid_table) for columns that validate_column() refuses, and Error(option) for those that don't fit the fields.
  void set_columns(std::vector<Column> columns, uint64_t rows, const Job& job);
  /// Rows that are not yet written.
  uint64_t rows_left() const { return rows_ - row_; }
  /// Encodes the next row groups: so many that all threads have work, within bounded memory.
  std::vector<Part> write(const Job& job);
  /// Writes the footer. Nothing else follows.
  Part finish();

 private:
  struct Group {
    uint64_t rows = 0;
    uint64_t offset = 0;                   ///< in the file
    std::vector<ColumnChunkBytes> chunks;  ///< without their bytes
  };

  uint64_t group_end(uint64_t begin, uint64_t& bytes) const;
  std::unique_ptr<ColumnWriter> take_writer();
  void give_back(std::unique_ptr<ColumnWriter> writer);
  Part to_part(std::string_view bytes) const;
  void add_part(std::vector<Part>& parts, std::string& small, ColumnChunkBytes& chunk);
  void write_schema(ThriftWriter& footer) const;
  void write_group(ThriftWriter& footer, const Group& group, size_t ordinal) const;
  void write_chunk(ThriftWriter& footer, const Field& field, const ColumnChunkBytes& chunk, uint64_t offset) const;

  const WriterOptions options_;
  std::shared_ptr<HostMemory> memory_;
  ThreadPool& pool_;
  std::vector<Column> columns_;
  std::vector<ValueSource> sources_;  // of columns_
  uint64_t rows_ = 0, row_ = 0;
  uint64_t offset_ = 0;  ///< bytes of the file so far
  std::vector<Group> groups_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ColumnWriter>> writers_;  // that no thread uses
};

}  // namespace warpjoin::parquet
