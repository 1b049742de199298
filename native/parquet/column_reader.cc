#include "parquet/column_reader.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "columns/bits.h"
#include "parquet/decode_delta.h"
#include "parquet/decode_hybrid.h"
#include "parquet/snappy_decompress.h"
#include "parquet/thrift_reader.h"

namespace warpjoin::parquet {
namespace {

constexpr uint64_t kBitsOfWord = 64;

constexpr uint64_t bitmap_bytes(uint64_t rows) { return (rows + kBitsOfWord - 1) / kBitsOfWord * sizeof(uint64_t); }

constexpr uint64_t bit_of(Encoding encoding) { return uint64_t{1} << static_cast<unsigned>(encoding); }

bool is_dictionary(int32_t encoding) {
  return encoding == static_cast<int32_t>(Encoding::rle_dictionary) ||
         encoding == static_cast<int32_t>(Encoding::plain_dictionary);
}

[[noreturn]] void unknown_encoding(int32_t encoding) {
  throw Damaged("a page has encoding " + encoding_name(encoding) + ", which the footer does not name");
}

/// Sets bits [first, first + count) of a bitmap of zeros.
void set_bits(uint8_t* bitmap, uint64_t first, uint64_t count) {
  uint64_t at = first;
  const uint64_t end = first + count;
  for (; at < end && at % 8; ++at) bitmap[at / 8] = static_cast<uint8_t>(bitmap[at / 8] | 1U << at % 8);
  if (end - at >= 8) std::memset(bitmap + at / 8, 0xff, (end - at) / 8);
  for (at += (end - at) / 8 * 8; at < end; ++at) bitmap[at / 8] = static_cast<uint8_t>(bitmap[at / 8] | 1U << at % 8);
}

/// Calls put(bits, first, count) for words of up to 56 of the bits.
template <class Put>
void each_bits(const uint8_t* from, uint64_t count, const Put& put) {
  constexpr uint64_t kAtOnce = 56;
  for (uint64_t at = 0; at < count; at += kAtOnce) {
    const auto taken = static_cast<unsigned>(std::min(kAtOnce, count - at));
    put(columns::load<uint64_t>(from + at / 8) & columns::low_bits(taken), at, taken);
  }
}

/// Writes up to 56 bits into a bitmap of zeros, which has a word of bytes behind its last bit.
void or_bits(uint8_t* bitmap, uint64_t first, uint64_t bits) {
  uint64_t word = columns::load<uint64_t>(bitmap + first / 8);
  word |= bits << first % 8;
  std::memcpy(bitmap + first / 8, &word, sizeof word);
}

}  // namespace

uint64_t encodings_of(const Layout& layout) {
  // Levels have theirs, too: bit_packed alone is not read, and files name it where there are none.
  const uint64_t levels = bit_of(Encoding::rle) | bit_of(Encoding::bit_packed);
  const uint64_t common = levels | bit_of(Encoding::plain);
  if (layout.storage == Storage::boolean) return common;
  uint64_t known = common | bit_of(Encoding::plain_dictionary) | bit_of(Encoding::rle_dictionary);
  if (layout.is_variable()) return known | bit_of(Encoding::delta_length_byte_array) | bit_of(Encoding::delta_byte_array);
  if (layout.storage != Storage::timestamp) known |= bit_of(Encoding::byte_stream_split);
  const bool numbers = layout.from_width == 4 || layout.from_width == 8;
  if (numbers && layout.storage != Storage::decimal) known |= bit_of(Encoding::delta_binary_packed);
  return known;
}

bool knows_codec(int32_t codec) {
  return codec == static_cast<int32_t>(Codec::none) || codec == static_cast<int32_t>(Codec::snappy);
}

std::string encoding_name(int32_t encoding) {
  static constexpr const char* kNames[] = {"PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
                                           "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
                                           "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
  return encoding >= 0 && static_cast<size_t>(encoding) < std::size(kNames) ? kNames[encoding] : std::to_string(encoding);
}

std::string codec_name(int32_t codec) {
  static constexpr const char* kNames[] = {"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"};
  return codec >= 0 && static_cast<size_t>(codec) < std::size(kNames) ? kNames[codec] : std::to_string(codec);
}

uint8_t* Scratch::room(Use use, uint64_t bytes, bool keeps) {
  HostBuffer& buffer = buffers_[use];
  const uint64_t wanted = bytes + kSlack;
  if (buffer.size() < wanted) {
    if (buffer && keeps) {
      buffer.grow(std::max<uint64_t>(wanted, buffer.size() + buffer.size() / 2), "reading a Parquet file");
    } else {
      buffer = {};
      buffer = memory_->allocate(wanted, "reading a Parquet file");
    }
  }
  return buffer.as<uint8_t>();
}

std::span<const uint8_t> ChunkInput::peek(uint64_t bytes) {
  if (bytes <= there_) return {scratch_.room(Scratch::file, 0, true) + begin_, bytes};
  if (bytes > left()) throw Damaged("a page ends behind its column");
  constexpr uint64_t kAtOnce = uint64_t{1} << 18;
  const uint64_t wanted = std::min(std::max(bytes, kAtOnce), left());
  uint8_t* const buffer = scratch_.room(Scratch::file, std::max(wanted, there_ + begin_), true);
  std::memmove(buffer, buffer + begin_, there_);
  begin_ = 0;
  while (there_ < wanted) {
    const ssize_t got = pread(file_, buffer + there_, wanted - there_, static_cast<off_t>(next_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(ErrorCode::file, std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0) throw Damaged("the file has lost its end");
    there_ += static_cast<uint64_t>(got);
    next_ += static_cast<uint64_t>(got);
    unread_ -= static_cast<uint64_t>(got);
  }
  return {buffer, bytes};
}

void ChunkInput::skip(uint64_t bytes) {
  begin_ += bytes;
  there_ -= bytes;
}

void Validity::start() {
  const uint64_t bytes = bitmap_bytes(most_rows_ + kBitsOfWord);
  bits_ = memory_->allocate(bytes, kColumnPurpose);
  std::memset(bits_.data(), 0, bytes);
  set_bits(bits_.as<uint8_t>(), 0, row_);
}

void Validity::append(uint64_t rows, bool valid) {
  if (!valid && rows > 0) {
    if (!bits_) start();
    nulls_ += rows;
  } else if (bits_) {
    set_bits(bits_.as<uint8_t>(), row_, rows);
  }
  row_ += rows;
}

void Validity::append(const uint8_t* bits, uint64_t rows) {
  uint64_t valid = 0;
  each_bits(bits, rows, [&](uint64_t word, uint64_t, unsigned) { valid += static_cast<uint64_t>(std::popcount(word)); });
  if (valid == rows) return append(rows, true);
  if (!bits_) start();
  each_bits(bits, rows, [&](uint64_t word, uint64_t first, unsigned) { or_bits(bits_.as<uint8_t>(), row_ + first, word); });
  nulls_ += rows - valid;
  row_ += rows;
}

ColumnReader::ColumnReader(const Leaf& leaf, const Layout& layout, bool large, uint64_t rows, std::shared_ptr<HostMemory> memory,
                           uint64_t most_chunk_bytes)
    : leaf_(leaf), layout_(layout), memory_(std::move(memory)), rows_(rows), validity_(memory_, rows) {
  if (layout.has_texts()) {
    texts_.emplace(memory_, rows, large, layout.storage == Storage::texts, most_chunk_bytes);
  } else if (layout.storage == Storage::boolean) {
    const uint64_t bytes = bitmap_bytes(rows + kBitsOfWord);
    values_ = memory_->allocate(bytes, kColumnPurpose);
    std::memset(values_.data(), 0, bytes);
  } else {
    values_ = memory_->allocate(rows * layout.width + kSlack, kColumnPurpose);
  }
}

void ColumnReader::read(int file, const ChunkPlace& place, uint64_t group_rows, uint64_t rows, Scratch& scratch, const Job& job) {
  if (place.values != group_rows) {
    throw Damaged(std::to_string(group_rows) + " rows announced, " + std::to_string(place.values) + " found");
  }
  ChunkInput input(file, place, scratch);
  has_dictionary_ = false;
  if (texts_ && rows == group_rows) texts_->expect(std::min(place.uncompressed, most_snappy_bytes(place.bytes)) / 2);
  uint64_t seen = 0;  // rows of the group
  while (seen < rows) {
    job.check();
    Page page;
    for (uint64_t bytes = uint64_t{1} << 10;;) {
      bytes = std::max(std::min(bytes, input.left()), std::min(input.there(), uint64_t{1} << 16));
      try {
        page.header = read_page_header(input.peek(bytes));
        break;
      } catch (const CutOff&) {
        if (bytes == input.left())
          throw Damaged("the pages end after " + std::to_string(seen) + " of " + std::to_string(group_rows) + " rows");
        bytes *= 8;
      }
    }
    const PageHeader& header = page.header;
    input.skip(header.header_bytes);
    if (header.bytes > input.left()) throw Damaged("a page ends behind its column");
    const auto type = static_cast<PageType>(header.type);
    if (header.type == static_cast<int32_t>(PageType::dictionary)) {
      const auto bytes = input.peek(header.bytes);
      read_dictionary(decompressed(bytes, header.uncompressed, place.codec, scratch), header, scratch);
    } else if (header.type == static_cast<int32_t>(PageType::data) || header.type == static_cast<int32_t>(PageType::data_v2)) {
      if (header.values > group_rows - seen) throw Damaged("the pages have more rows than their group");
      page.rows = std::min(header.values, rows - seen);
      const auto bytes = input.peek(header.bytes);
      if (type == PageType::data) {
        const auto whole = decompressed(bytes, header.uncompressed, place.codec, scratch);
        uint64_t levels = 0;
        if (leaf_.most_definition > 0) {
          if (whole.size() < sizeof(uint32_t)) throw Damaged("a page ends within its levels");
          levels = columns::load<uint32_t>(whole.data());
          if (levels > whole.size() - sizeof(uint32_t)) throw Damaged("a page ends within its levels");
          if (header.level_encoding != static_cast<int32_t>(Encoding::rle)) unknown_encoding(header.level_encoding);
          read_levels(whole.subspan(sizeof(uint32_t), levels), page);
          levels += sizeof(uint32_t);
        } else {
          page.valid = page.rows;
          validity_.append(page.rows, true);
        }
        page.values = whole.subspan(levels);
      } else {
        const uint64_t levels = header.repetition_bytes + header.definition_bytes;
        if (levels > bytes.size() || levels > header.uncompressed) throw Damaged("a page ends within its levels");
        if (leaf_.most_definition > 0) {
          read_levels(bytes.subspan(header.repetition_bytes, header.definition_bytes), page);
        } else {
          page.valid = page.rows;
          validity_.append(page.rows, true);
        }
        page.values = decompressed(bytes.subspan(levels), header.uncompressed - levels,
                                   header.compressed ? place.codec : static_cast<int32_t>(Codec::none), scratch);
      }
      read_values(page, scratch, job);
      row_ += page.rows;
      seen += page.rows;
    }  // pages of other kinds say nothing that is needed
    input.skip(header.bytes);
  }
}

std::span<const uint8_t> ColumnReader::decompressed(std::span<const uint8_t> bytes, uint64_t size, int32_t codec,
                                                    Scratch& scratch) const {
  if (codec == static_cast<int32_t>(Codec::none)) {
    if (bytes.size() != size) throw Damaged("a page has " + std::to_string(bytes.size()) + " bytes, not " + std::to_string(size));
    return bytes;
  }
  if (!knows_codec(codec)) throw Damaged("a page is compressed with " + codec_name(codec));
  // A page of no values may have no bytes at all.
  if (size == 0 && bytes.empty()) return bytes;
  if (size > most_snappy_bytes(bytes.size())) throw Damaged("a page is said to have more bytes than its own can stand for");
  uint8_t* const page = scratch.room(Scratch::page, size);
  if (!snappy_decompress(bytes, page, size)) throw Damaged("a page can't be decompressed");
  return {page, size};
}

void ColumnReader::read_dictionary(std::span<const uint8_t> bytes, const PageHeader& header, Scratch& scratch) {
  if (has_dictionary_) throw Damaged("a column has two dictionaries");
  if (layout_.storage == Storage::boolean) throw Damaged("a column of booleans has a dictionary");
  if (header.encoding != static_cast<int32_t>(Encoding::plain) &&
      header.encoding != static_cast<int32_t>(Encoding::plain_dictionary)) {
    unknown_encoding(header.encoding);
  }
  const uint64_t count = header.values;
  if (!layout_.is_variable()) {
    if (count > bytes.size() / layout_.from_width) throw Damaged("a dictionary has fewer bytes than its values");
    uint8_t* const values = scratch.room(Scratch::dictionary, count * layout_.width);
    convert(layout_, bytes.data(), count, values);
    dictionary_ = values;
  } else {
    constexpr uint64_t kHead = sizeof(uint32_t);
    if (count > bytes.size() / kHead) throw Damaged("a dictionary has fewer bytes than its values");
    const bool decimals = layout_.storage == Storage::decimal_texts;
    uint8_t* const texts = scratch.room(Scratch::dictionary, decimals ? count * layout_.width : bytes.size());
    auto* const begins = reinterpret_cast<uint32_t*>(scratch.room(Scratch::dictionary_begins, (count + 1) * sizeof(uint32_t)));
    begins[0] = 0;
    uint64_t at = 0, end = 0;
    for (uint64_t i = 0; i < count; ++i) {
      if (bytes.size() - at < kHead) throw Damaged("a dictionary ends within a text");
      const uint64_t size = columns::load<uint32_t>(bytes.data() + at);
      at += kHead;
      if (size > bytes.size() - at) throw Damaged("a dictionary ends within a text");
      if (decimals) {
        widen_decimal(bytes.data() + at, size, texts + i * layout_.width);
      } else {
        std::memcpy(texts + end, bytes.data() + at, size);
        if (layout_.storage == Storage::texts) check_utf8(texts + end, size);
      }
      at += size;
      begins[i + 1] = static_cast<uint32_t>(end += size);
    }
    dictionary_ = texts;
    text_dictionary_ = {.bytes = texts, .begins = begins};
  }
  dictionary_size_ = count;
  has_dictionary_ = true;
}

void ColumnReader::read_levels(std::span<const uint8_t> levels, Page& page) {
  HybridDecoder decoder(levels, 1);
  const uint64_t nulls = validity_.nulls();
  for (uint64_t done = 0; done < page.rows;) {
    const HybridDecoder::Part part = decoder.next(page.rows - done);
    if (part.packed) {
      validity_.append(part.packed, part.count);
    } else {
      validity_.append(part.count, part.value != 0);
    }
    done += part.count;
  }
  page.valid = page.rows - (validity_.nulls() - nulls);
}

void ColumnReader::read_values(const Page& page, Scratch& scratch, const Job& job) {
  if (layout_.storage == Storage::boolean) return read_booleans(page, scratch);
  if (is_dictionary(page.header.encoding)) return read_indexed(page, job);
  if (texts_) return decode_texts(page, scratch, *texts_, page.rows, page.valid < page.rows ? validity_.bits() : nullptr);
  if (layout_.storage == Storage::decimal_texts) {
    read_decimal_texts(page, scratch);
  } else {
    read_fixed(page, scratch);
  }
  if (page.valid < page.rows) {
    spread(values_.as<uint8_t>() + row_ * layout_.width, layout_.width, validity_.bits(), row_, page.rows, page.valid);
  }
}

void ColumnReader::read_booleans(const Page& page, Scratch& scratch) {
  uint8_t* const bits = values_.as<uint8_t>();
  const auto encoding = static_cast<Encoding>(page.header.encoding);
  if (page.header.encoding != static_cast<int32_t>(Encoding::plain) &&
      page.header.encoding != static_cast<int32_t>(Encoding::rle)) {
    unknown_encoding(page.header.encoding);
  }
  if (page.valid == 0) return;
  // One bit a value: those of all rows where none is null.
  const bool direct = page.valid == page.rows;
  const uint64_t bytes = (page.valid + 7) / 8 + sizeof(uint64_t);
  uint8_t* const compact = direct ? nullptr : scratch.room(Scratch::values, bytes);
  if (compact) std::memset(compact, 0, bytes);
  uint8_t* const to = direct ? bits : compact;
  const uint64_t first = direct ? row_ : 0;
  if (encoding == Encoding::plain) {
    if (page.valid > page.values.size() * 8) throw Damaged("a page has fewer bytes than its values");
    each_bits(page.values.data(), page.valid, [&](uint64_t word, uint64_t at, unsigned) { or_bits(to, first + at, word); });
  } else {
    constexpr uint64_t kHead = sizeof(uint32_t);
    if (page.values.size() < kHead) throw Damaged("a page ends within its values");
    const uint64_t size = columns::load<uint32_t>(page.values.data());
    if (size > page.values.size() - kHead) throw Damaged("a page ends within its values");
    HybridDecoder decoder(page.values.subspan(kHead, size), 1);
    for (uint64_t done = 0; done < page.valid;) {
      const HybridDecoder::Part part = decoder.next(page.valid - done);
      if (part.packed) {
        each_bits(part.packed, part.count, [&](uint64_t word, uint64_t at, unsigned) { or_bits(to, first + done + at, word); });
      } else if (part.value) {
        set_bits(to, first + done, part.count);
      }
      done += part.count;
    }
  }
  if (direct) return;
  uint64_t index = 0;
  for (uint64_t row = row_; row < row_ + page.rows; ++row) {
    if (!columns::bit_at(validity_.bits(), row)) continue;
    if (columns::bit_at(compact, index++)) bits[row / 8] = static_cast<uint8_t>(bits[row / 8] | 1U << row % 8);
  }
}

void ColumnReader::read_fixed(const Page& page, Scratch& scratch) {
  uint8_t* const to = values_.as<uint8_t>() + row_ * layout_.width;
  const uint32_t width = layout_.from_width;
  const auto decoded = [&]() -> const uint8_t* {
    const auto room = [&] { return scratch.room(Scratch::values, page.valid * width); };
    const auto direct = [&] { return layout_.storage == Storage::same ? to : room(); };
    switch (static_cast<Encoding>(page.header.encoding)) {
      case Encoding::plain:
        if (page.valid > page.values.size() / width) throw Damaged("a page has fewer bytes than its values");
        return page.values.data();
      case Encoding::byte_stream_split: {
        if (layout_.storage == Storage::timestamp) break;
        // Streams have the values of rows that are not read, too.
        const uint64_t total = page.values.size() / width;
        if (page.values.size() % width || page.valid > total) throw Damaged("a page has fewer bytes than its values");
        uint8_t* const values = direct();
        join_streams(page.values.data(), total, width, page.valid, values);
        return values;
      }
      case Encoding::delta_binary_packed: {
        if ((width != 4 && width != 8) || leaf_.physical == PhysicalType::fixed_bytes) break;
        if (page.valid == 0) return page.values.data();
        DeltaDecoder decoder(page.values);
        uint8_t* const values = direct();
        if (width == 4) {
          decoder.read(reinterpret_cast<uint32_t*>(values), page.valid);
        } else {
          decoder.read(reinterpret_cast<uint64_t*>(values), page.valid);
        }
        return values;
      }
      case Encoding::delta_byte_array: {
        if (leaf_.physical != PhysicalType::fixed_bytes) break;
        TextColumn texts(memory_, page.valid, true, false, std::numeric_limits<int64_t>::max());
        decode_texts(page, scratch, texts, page.valid, nullptr);
        OwnedColumn made;
        texts.take(made);
        for (uint64_t i = 0; i <= page.valid; ++i) {
          if (made.offsets.as<int64_t>()[i] != static_cast<int64_t>(i * width))
            throw Damaged("a value has another width than its column");
        }
        uint8_t* const values = room();
        if (page.valid > 0) std::memcpy(values, made.values.data(), page.valid * width);
        return values;
      }
      default: break;
    }
    unknown_encoding(page.header.encoding);
  }();
  if (decoded != to) convert(layout_, decoded, page.valid, to);
}

void ColumnReader::read_decimal_texts(const Page& page, Scratch& scratch) {
  TextColumn texts(memory_, page.valid, true, false, std::numeric_limits<int64_t>::max());
  decode_texts(page, scratch, texts, page.valid, nullptr);
  OwnedColumn made;
  texts.take(made);
  const auto* const offsets = made.offsets.as<int64_t>();
  uint8_t* const to = values_.as<uint8_t>() + row_ * layout_.width;
  for (uint64_t i = 0; i < page.valid; ++i) {
    widen_decimal(made.values.as<uint8_t>() + offsets[i], static_cast<uint64_t>(offsets[i + 1] - offsets[i]),
                  to + i * layout_.width);
  }
}

void ColumnReader::decode_texts(const Page& page, Scratch& scratch, TextColumn& texts, uint64_t rows,
                                const uint8_t* validity) const {
  const auto lengths_of = [&](DeltaDecoder& decoder, Scratch::Use use) -> const uint32_t* {
    // All of them, for the texts are behind them.
    if (decoder.total() > page.header.values || decoder.total() < page.valid) {
      throw Damaged("a page has " + std::to_string(decoder.total()) + " lengths for " + std::to_string(page.header.values) +
                    " values");
    }
    auto* const lengths = reinterpret_cast<uint32_t*>(scratch.room(use, decoder.total() * sizeof(uint32_t)));
    decoder.read(lengths, decoder.total());
    return lengths;
  };
  const auto rest = [&](const DeltaDecoder& decoder, std::span<const uint8_t> of) {
    return of.subspan(static_cast<uint64_t>(decoder.rest() - of.data()));
  };
  switch (static_cast<Encoding>(page.header.encoding)) {
    case Encoding::plain: return texts.append_plain(page.values, rows, page.valid, validity);
    case Encoding::delta_length_byte_array: {
      if (page.valid == 0) return texts.append_lengths({}, nullptr, rows, 0, validity);
      DeltaDecoder decoder(page.values);
      const uint32_t* const lengths = lengths_of(decoder, Scratch::lengths);
      return texts.append_lengths(rest(decoder, page.values), lengths, rows, page.valid, validity);
    }
    case Encoding::delta_byte_array: {
      if (page.valid == 0) return texts.append_lengths({}, nullptr, rows, 0, validity);
      DeltaDecoder prefix_decoder(page.values);
      const uint32_t* const prefixes = lengths_of(prefix_decoder, Scratch::prefixes);
      const auto suffixes = rest(prefix_decoder, page.values);
      DeltaDecoder decoder(suffixes);
      const uint32_t* const lengths = lengths_of(decoder, Scratch::lengths);
      return texts.append_prefixed(rest(decoder, suffixes), prefixes, lengths, rows, validity);
    }
    default: unknown_encoding(page.header.encoding);
  }
}

void ColumnReader::read_indexed(const Page& page, const Job& job) {
  if (page.valid > 0 && !has_dictionary_) throw Damaged("a page needs a dictionary, and there is none before it");
  unsigned width = 0;
  if (!page.values.empty()) width = page.values[0];
  constexpr unsigned kMostWidth = 32;
  if (width > kMostWidth) throw Damaged("an index has " + std::to_string(width) + " bits");
  HybridDecoder decoder(page.values.empty() ? page.values : page.values.subspan(1), width);
  uint32_t indices[TextColumn::kBlockRows];
  const auto read_indices = [&](uint64_t count) {
    decoder.read(indices, count);
    uint32_t most = 0;
    for (uint64_t i = 0; i < count; ++i) most = std::max(most, indices[i]);
    if (count > 0 && most >= dictionary_size_) {
      throw Damaged("index " + std::to_string(most) + " is not in a dictionary of " + std::to_string(dictionary_size_) +
                    " values");
    }
  };
  const bool has_nulls = page.valid < page.rows;
  if (!texts_) {
    uint8_t* const to = values_.as<uint8_t>() + row_ * layout_.width;
    for (uint64_t done = 0; done < page.valid;) {
      const uint64_t taken = std::min(page.valid - done, TextColumn::kBlockRows);
      read_indices(taken);
      gather(dictionary_, layout_.width, indices, taken, to + done * layout_.width);
      done += taken;
    }
    if (has_nulls) spread(to, layout_.width, validity_.bits(), row_, page.rows, page.valid);
    return;
  }
  for (uint64_t done = 0; done < page.rows;) {
    const uint64_t taken = std::min(page.rows - done, TextColumn::kBlockRows);
    uint64_t valid = taken;
    if (has_nulls) {
      valid = 0;
      for (uint64_t at = 0; at < taken; at += kBitsOfWord) {
        const auto count = static_cast<unsigned>(std::min(kBitsOfWord, taken - at));
        valid += static_cast<uint64_t>(std::popcount(columns::bits_at(validity_.bits(), row_ + done + at, count)));
      }
    }
    read_indices(valid);
    texts_->append_indexed(text_dictionary_, indices, taken, valid, has_nulls ? validity_.bits() : nullptr);
    done += taken;
    if (done % (TextColumn::kBlockRows * 64) == 0) job.check();
  }
}

OwnedColumn ColumnReader::take() {
  OwnedColumn column;
  if (texts_) {
    texts_->take(column);
  } else {
    column.type = layout_.storage == Storage::boolean ? ColumnType{.kind = ColumnKind::boolean, .order = KeyOrder::boolean}
                                                      : ColumnType{.kind = ColumnKind::fixed, .width = layout_.width};
    column.length = row_;
    values_.shrink(layout_.storage == Storage::boolean ? bitmap_bytes(row_) : row_ * layout_.width);
    column.values = std::move(values_);
  }
  column.null_count = validity_.nulls();
  if (column.null_count) {
    column.validity = validity_.take();
    column.validity.shrink(bitmap_bytes(row_));
  }
  return column;
}

}  // namespace warpjoin::parquet
