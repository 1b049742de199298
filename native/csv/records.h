// From bytes to records and fields: RFC 4180 quoting. A field is quoted if a quote is its first byte; quotes in other fields are
// text. Spaces and tabs between a closing quote and the next delimiter are dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/host_memory.h"
#include "csv/scan.h"

namespace warpjoin::csv {

struct Dialect {
  uint8_t delimiter = ',';
  /// What ends a record: '\n', with or without '\r' before it, or '\r'.
  uint8_t line_end = '\n';
};

/// What is wrong with a file, and in which line (1-based; 0: no line in particular).
struct Fault {
  std::string what;
  uint64_t line = 0;
};

/// Where a field's text is, without its quotes.
struct Field {
  static constexpr uint32_t kDoubled = uint32_t{1} << 31;
  uint32_t begin = 0;
  uint32_t size_bits = 0;

  uint32_t size() const { return size_bits & ~kDoubled; }
  /// Whether quotes within are doubled.
  bool doubled() const { return size_bits & kDoubled; }
};

/// Reads the fields of whole records, one after the other.
class Tokenizer {
 public:
  enum class End : uint8_t { delimiter, record, junk };

  /// `text` has fewer than 2^31 bytes, ends with a line end, and kPadding bytes are readable behind it.
  Tokenizer(const uint8_t* text, uint64_t size, const Dialect& dialect) : text_(text), size_(size), dialect_(dialect) { load(0); }

  uint64_t at() const { return at_; }
  bool done() const { return at_ >= size_; }

  /// What ends the field; junk: its closing quote is followed by something else, or is not there.
  End next(Field& field) {
    if (text_[at_] == '"') return quoted(field);
    while (!ends_) {
      load(base_ + 64);
      ends_ = all_ends_;
    }
    const uint64_t end = base_ + static_cast<uint64_t>(std::countr_zero(ends_));
    ends_ &= ends_ - 1;
    field.begin = static_cast<uint32_t>(at_);
    field.size_bits = static_cast<uint32_t>(end - at_);
    const bool is_last = text_[end] == dialect_.line_end;
    if (is_last && dialect_.line_end == '\n' && end > at_ && text_[end - 1] == '\r') --field.size_bits;
    at_ = end + 1;
    return is_last ? End::record : End::delimiter;
  }

 private:
  void load(uint64_t base) {
    const Window window(text_ + base);
    const uint64_t within = below(size_ - base);
    all_ends_ = (window.where(dialect_.delimiter) | window.where(dialect_.line_end)) & within;
    quotes_ = window.where('"') & within;
    base_ = base;
    ends_ = base == 0 ? all_ends_ : 0;
  }
  void load_around(uint64_t position) {
    if (const uint64_t base = position / 64 * 64; base != base_) load(base);
  }
  End quoted(Field& field);

  const uint8_t* text_;
  uint64_t size_;
  Dialect dialect_;
  uint64_t at_ = 0;
  uint64_t base_ = 0;                   // of the window
  uint64_t all_ends_ = 0, quotes_ = 0;  // in the window
  uint64_t ends_ = 0;                   // those that were not passed
};

/// The line ends of a text that is the beginning of a file; none: more of it must be known. `at_end`: there is no more.
std::optional<uint8_t> find_line_end(const uint8_t* text, uint64_t size, uint8_t delimiter, bool at_end);

/// Where the first byte is that no CSV text has: a zero byte, or one that is not UTF-8. `size` where there is none.
uint64_t find_bad_byte(const uint8_t* text, uint64_t size);

/// Cuts a stream of bytes at ends of records.
class RecordSplitter {
 public:
  /// Bytes that a block leaves free at its beginning, for what is left of the block before it.
  static constexpr uint64_t kHeadroom = 4096;

  explicit RecordSplitter(std::shared_ptr<HostMemory> memory) : memory_(std::move(memory)) {}

  /// A copy of bytes, for append().
  HostBuffer make_block(const void* bytes, uint64_t size) const;
  void append(HostBuffer block, uint64_t size);

  const uint8_t* text() const { return buffer_.as<uint8_t>() + begin_; }
  uint64_t size() const { return size_; }

  /// Ends of records in the text, ascending, about `distance` bytes apart; the last one is that of the last whole record.
  std::vector<uint64_t> cuts(const Dialect& dialect, uint64_t distance);
  /// Whether the text that cuts() saw ends within a quoted field.
  bool in_quotes() const { return in_quotes_; }
  /// Forgets the first bytes of the text, which end with a record.
  void drop(uint64_t bytes);

 private:
  struct State {
    uint64_t at = 0;
    bool in_quotes = false;
  };
  State scan(State from, uint64_t to, const Dialect& dialect) const;
  /// Behind the first (or last) line end in [from.at, to) that ends a record; 0: there is none.
  uint64_t record_end(State from, uint64_t to, const Dialect& dialect, bool last) const;

  std::shared_ptr<HostMemory> memory_;
  HostBuffer buffer_;
  uint64_t begin_ = 0, size_ = 0;
  uint64_t scanned_ = 0;
  bool in_quotes_ = false;
};

}  // namespace warpjoin::csv
