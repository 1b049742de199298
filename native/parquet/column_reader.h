// The pages of a column: read, decompressed and decoded into the column's Arrow buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/column.h"
#include "core/host_memory.h"
#include "core/job.h"
#include "parquet/decode_fixed.h"
#include "parquet/decode_text.h"
#include "parquet/metadata.h"

namespace warpjoin::parquet {

/// Memory that one thread works in, used again and again.
class Scratch {
 public:
  explicit Scratch(std::shared_ptr<HostMemory> memory) : memory_(std::move(memory)) {}

  enum Use : uint8_t { file, page, dictionary, dictionary_begins, values, lengths, prefixes, kUses };
  /// At least `bytes` and kSlack more. What was there is lost, unless `keeps`.
  uint8_t* room(Use use, uint64_t bytes, bool keeps = false);

 private:
  std::shared_ptr<HostMemory> memory_;
  HostBuffer buffers_[kUses];
};

/// Bytes of a chunk, read as they are needed.
class ChunkInput {
 public:
  ChunkInput(int file, const ChunkPlace& place, Scratch& scratch)
      : file_(file), next_(place.begin), unread_(place.bytes), scratch_(scratch) {}

  /// What is left of the chunk.
  uint64_t left() const { return there_ + unread_; }
  /// The next `bytes` <= left() bytes, there until the next call; kSlack bytes behind them may be read. Throws Damaged where the
  /// file has lost its end, and Error(file) where it can't be read.
  std::span<const uint8_t> peek(uint64_t bytes);
  void skip(uint64_t bytes);
  /// Bytes that can be had without a read.
  uint64_t there() const { return there_; }

 private:
  int file_;
  uint64_t next_, unread_;  // in the file
  Scratch& scratch_;
  uint64_t begin_ = 0, there_ = 0;  // in the buffer
};

/// Which rows are valid. There is no bitmap until there is a null.
class Validity {
 public:
  Validity(std::shared_ptr<HostMemory> memory, uint64_t rows) : memory_(std::move(memory)), most_rows_(rows) {}

  void append(uint64_t rows, bool valid);
  /// Bits as they are packed; kSlack bytes behind them may be read.
  void append(const uint8_t* bits, uint64_t rows);
  uint64_t nulls() const { return nulls_; }
  /// Null: all rows are valid.
  const uint8_t* bits() const { return bits_.as<uint8_t>(); }
  HostBuffer take() { return std::move(bits_); }

 private:
  void start();

  std::shared_ptr<HostMemory> memory_;
  uint64_t most_rows_, row_ = 0, nulls_ = 0;
  HostBuffer bits_;
};

/// A column of a batch in the making: of one row group, or of several one after the other.
class ColumnReader {
 public:
  /// `rows`: of the batch, at most kMostRows.
  ColumnReader(const Leaf& leaf, const Layout& layout, bool large, uint64_t rows, std::shared_ptr<HostMemory> memory,
               uint64_t most_chunk_bytes);

  /// Appends the first `rows` rows of a row group of `group_rows`. Throws Damaged, or Error.
  void read(int file, const ChunkPlace& place, uint64_t group_rows, uint64_t rows, Scratch& scratch, const Job& job);
  OwnedColumn take();

 private:
  struct Page {
    PageHeader header;
    std::span<const uint8_t> values;  ///< behind the levels
    uint64_t rows = 0, valid = 0;     ///< rows that are read
  };

  std::span<const uint8_t> decompressed(std::span<const uint8_t> bytes, uint64_t size, int32_t codec, Scratch& scratch) const;
  void read_dictionary(std::span<const uint8_t> bytes, const PageHeader& header, Scratch& scratch);
  void read_levels(std::span<const uint8_t> levels, Page& page);
  void read_values(const Page& page, Scratch& scratch, const Job& job);
  void read_booleans(const Page& page, Scratch& scratch);
  void read_fixed(const Page& page, Scratch& scratch);
  void read_decimal_texts(const Page& page, Scratch& scratch);
  void read_indexed(const Page& page, const Job& job);
  /// Values of bytes of varying width, of a page, into `texts`.
  void decode_texts(const Page& page, Scratch& scratch, TextColumn& texts, uint64_t rows, const uint8_t* validity) const;

  const Leaf& leaf_;
  Layout layout_;
  std::shared_ptr<HostMemory> memory_;
  uint64_t rows_, row_ = 0;
  Validity validity_;
  HostBuffer values_;
  std::optional<TextColumn> texts_;
  bool has_dictionary_ = false;
  uint64_t dictionary_size_ = 0;
  const uint8_t* dictionary_ = nullptr;  // of fixed width, as Arrow has them
  TextDictionary text_dictionary_;
};

/// The encodings that a column of this layout is read from, as bits.
uint64_t encodings_of(const Layout& layout);
/// Whether chunks of this codec are read.
bool knows_codec(int32_t codec);
/// Names as the format has them; a number where there is none.
std::string encoding_name(int32_t encoding);
std::string codec_name(int32_t codec);

}  // namespace warpjoin::parquet
