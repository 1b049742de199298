// Encodes column chunks: the values of a column in one row group, as pages (README.md of the Apache Parquet format).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/host_memory.h"
#include "core/job.h"
#include "parquet/encode_bits.h"
#include "parquet/encode_dictionary.h"
#include "parquet/encode_statistics.h"
#include "parquet/encode_values.h"
#include "parquet/format.h"
#include "parquet/snappy_compress.h"

namespace warpjoin::parquet {

/// A column chunk in the file's bytes, and what the footer says of it. Offsets are from the chunk's begin.
struct ColumnChunkBytes {
  HostBuffer bytes;
  uint64_t size = 0;
  Codec codec = Codec::none;
  Encoding encoding = Encoding::plain;  ///< of the data pages
  uint64_t rows = 0, nulls = 0;
  uint64_t uncompressed = 0;           ///< bytes of all pages with their headers, not compressed
  std::optional<uint64_t> data_pages;  ///< where they begin, behind a dictionary page; nothing: there is no dictionary
  std::optional<Statistics::Bounds> bounds;
};

/// Encodes one chunk at a time. Its memory is used again.
class ColumnWriter {
 public:
  /// `page_bytes`: about how many a page has before it is compressed.
  ColumnWriter(std::shared_ptr<HostMemory> memory, uint64_t page_bytes) : memory_(std::move(memory)), page_bytes_(page_bytes) {}

  /// Rows [begin, end) of a column. `optional`: values may be null. Throws Error(invalid_table), which calls the column `name`,
  /// for a null where they may not, and Error(not_supported) for a value of more than kMostValueBytes.
  ColumnChunkBytes encode(const ValueSource& source, const std::string& name, bool optional, uint64_t begin, uint64_t end,
                          const Job& job);

 private:
  struct Page {
    PageType type;
    Encoding encoding;
    uint64_t values;
    uint64_t header, body, size;  ///< where they begin in the chunk, and bytes of the body
  };
  /// How a chunk is to be encoded.
  struct Plan {
    bool dictionary = false, delta = false;
    DictionaryLimits limits;
  };
  /// Bytes that are written one after the other.
  struct Output {
    HostBuffer buffer;
    uint64_t size = 0;

    uint8_t* at(uint64_t position) const { return buffer.as<uint8_t>() + position; }
  };

  Plan plan(const ValueSource& source, uint64_t begin, uint64_t end);
  double distinct_in_sample(const ValueSource& source, uint64_t begin, uint64_t end, double& value_bytes);
  double delta_bytes(const ValueSource& source, uint64_t begin, uint64_t end);

  bool number_values(const ValueSource& source, uint64_t begin, uint64_t end, const Job& job);
  bool number_indices(const ValueSource& source, uint64_t count, uint32_t* numbers);
  void write_dictionary(const ValueSource& source, uint64_t rows);
  void write_values(const ValueSource& source, bool delta, uint64_t begin, uint64_t end, const Job& job);
  uint64_t write_fixed_page(const ValueSource& source, bool delta, uint64_t begin, uint64_t end);
  uint64_t write_bytes_page(const ValueSource& source, uint64_t begin, uint64_t end);
  uint64_t read_fixed(const ValueSource& source, uint64_t begin, uint64_t end, uint8_t* out);
  uint64_t read_bytes(const ValueSource& source, uint64_t begin, uint64_t end);
  void add_nulls(const Levels& levels) { nulls_ += levels.rows() - levels.valid(); }

  void reserve(Output& output, uint64_t bytes);
  uint8_t* begin_page(uint64_t most_bytes);
  void end_page(PageType type, Encoding encoding, uint64_t values, const uint8_t* end);
  uint8_t* write_levels(uint64_t begin, uint64_t end, uint8_t* out) const;
  bool pays_to_compress();
  double compressed_share(const Page& page);
  void compress();

  std::shared_ptr<HostMemory> memory_;
  const uint64_t page_bytes_;
  bool optional_ = false;
  uint64_t nulls_ = 0;
  uint64_t header_bytes_ = 20;  ///< of the last page: the next one's are likely as many
  Output output_, compressed_;
  std::vector<Page> pages_;
  Levels levels_;
  Dictionary dictionary_;
  std::optional<Statistics> statistics_;
  std::vector<uint8_t> values_, sample_;
  std::vector<Bytes> bytes_;
  std::vector<uint64_t> positions_;
  std::vector<uint32_t> numbers_, known_;
  SnappyTable table_;
};

}  // namespace warpjoin::parquet
