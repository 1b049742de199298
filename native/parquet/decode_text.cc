#include "parquet/decode_text.h"

#include <algorithm>
#include <cstring>

#include "columns/bits.h"

namespace warpjoin::parquet {
namespace {

using columns::bit_at;
using columns::load;

constexpr uint64_t kShort = 16;

/// Copies a text; up to kSlack bytes behind it are read and written.
inline void copy_text(uint8_t* to, const uint8_t* from, uint64_t size) {
  if (size <= kShort) {
    std::memcpy(to, from, kShort);
  } else {
    std::memcpy(to, from, size);
  }
}

bool is_ascii(const uint8_t* bytes, uint64_t size) {
  uint64_t any = 0, at = 0;
  constexpr uint64_t kStep = 64, kHigh = 0x8080808080808080;
  for (; at + kStep <= size; at += kStep) {
    uint64_t words[kStep / 8];
    std::memcpy(words, bytes + at, kStep);
    for (const uint64_t word : words) any |= word;
  }
  for (; at < size; ++at) any |= bytes[at];
  return (any & kHigh) == 0;
}

}  // namespace

/// RFC 3629: no surrogates, no more bytes than a character needs, none above U+10FFFF.
bool is_utf8(const uint8_t* bytes, uint64_t size) {
  const uint8_t* at = bytes;
  const uint8_t* const end = bytes + size;
  while (at < end) {
    if (end - at >= 8 && (load<uint64_t>(at) & 0x8080808080808080) == 0) {
      at += 8;
      continue;
    }
    const uint8_t lead = *at++;
    if (lead < 0x80) continue;
    int more;
    uint8_t least = 0x80, most = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) {
      more = 1;
    } else if (lead >= 0xe0 && lead <= 0xef) {
      more = 2;
      if (lead == 0xe0) least = 0xa0;
      if (lead == 0xed) most = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
      more = 3;
      if (lead == 0xf0) least = 0x90;
      if (lead == 0xf4) most = 0x8f;
    } else {
      return false;
    }
    if (end - at < more || *at < least || *at > most) return false;
    for (int i = 1; i < more; ++i) {
      if ((at[i] & 0xc0) != 0x80) return false;
    }
    at += more;
  }
  return true;
}

void check_utf8(const uint8_t* bytes, uint64_t size) {
  if (!is_ascii(bytes, size) && !is_utf8(bytes, size)) throw Damaged("a text is not UTF-8");
}

TextColumn::TextColumn(std::shared_ptr<HostMemory> memory, uint64_t rows, bool large, bool utf8, uint64_t most_chunk_bytes)
    : memory_(std::move(memory)), most_rows_(rows), large_(large), utf8_(utf8), most_chunk_bytes_(most_chunk_bytes) {
  offsets_ = memory_->allocate((rows + 1) * (large ? sizeof(int64_t) : sizeof(int32_t)), kColumnPurpose);
  with_offset([&](auto zero) { *next_offset<decltype(zero)>() = 0; });
}

template <class Call>
void TextColumn::with_offset(const Call& call) {
  if (large_) {
    call(int64_t{});
  } else {
    call(int32_t{});
  }
}

void TextColumn::reserve(uint64_t bytes) {
  const uint64_t wanted = bytes_ + bytes + kSlack;
  if (!values_) {
    values_ = memory_->allocate(wanted, kColumnPurpose);
  } else if (values_.size() < wanted) {
    values_.grow(std::max<uint64_t>(wanted, values_.size() + values_.size() / 2), kColumnPurpose);
  }
}

void TextColumn::start_chunk() {
  if (row_ == (ends_.empty() ? 0 : ends_.back().row)) return;
  ends_.push_back({row_, bytes_});
  chunk_begin_ = bytes_;
  const uint64_t width = large_ ? sizeof(int64_t) : sizeof(int32_t);
  const uint64_t wanted = (most_rows_ + 1 + ends_.size()) * width;
  if (offsets_.size() < wanted) offsets_.grow(wanted + width * 64, kColumnPurpose);
  with_offset([&](auto zero) { *next_offset<decltype(zero)>() = 0; });
}

/// Makes room for so many bytes, of one chunk where that can be.
void TextColumn::prepare(uint64_t bytes) {
  if (!fits(bytes)) start_chunk();
  reserve(bytes);
}

/// Appends texts one by one, so that each may begin a chunk. get() gives the next one: {bytes, size}.
template <class Get>
void TextColumn::append_each(uint64_t rows, const uint8_t* validity, const Get& get) {
  for (uint64_t i = 0; i < rows; ++i) {
    std::span<const uint8_t> text;
    if (!validity || bit_at(validity, row_)) text = get();
    prepare(text.size());
    if (!text.empty()) std::memcpy(end(), text.data(), text.size());
    if (utf8_) check_utf8(end(), text.size());
    bytes_ += text.size();
    with_offset([&](auto zero) {
      using Offset = decltype(zero);
      if (!large_ && bytes_ - chunk_begin_ > INT32_MAX) throw Damaged("a text has more than 2 GiB");
      next_offset<Offset>()[1] = static_cast<Offset>(bytes_ - chunk_begin_);
    });
    ++row_;
  }
}

/// The `valid` texts from byte `begin` on were appended, their ends behind the last offset: `rows` rows have them.
template <class Offset>
void TextColumn::finish(uint64_t rows, uint64_t valid, const uint8_t* validity, uint64_t begin) {
  Offset* const offsets = next_offset<Offset>();
  if (utf8_ && !is_ascii(values_.as<uint8_t>() + begin, bytes_ - begin)) {
    const uint8_t* const texts = values_.as<uint8_t>();
    if (!is_utf8(texts + begin, bytes_ - begin)) throw Damaged("a text is not UTF-8");
    for (uint64_t i = 0; i < valid; ++i) {
      const uint64_t first = chunk_begin_ + static_cast<uint64_t>(offsets[i]);
      if (first < bytes_ && (texts[first] & 0xc0) == 0x80) throw Damaged("a text is not UTF-8");
    }
  }
  if (valid < rows) {
    uint64_t ended = valid;
    for (uint64_t i = rows; i-- > 0;) {
      offsets[i + 1] = offsets[ended];
      ended -= bit_at(validity, row_ + i);
    }
  }
  row_ += rows;
}

void TextColumn::append_plain(std::span<const uint8_t> bytes, uint64_t rows, uint64_t valid, const uint8_t* validity) {
  constexpr uint64_t kHead = sizeof(uint32_t);
  if (valid > bytes.size() / kHead) throw Damaged("a page has fewer bytes than its texts");
  prepare(bytes.size() - valid * kHead);
  reserve(bytes.size());  // a damaged text may have the bytes of the heads that follow
  const uint64_t begin = bytes_;
  with_offset([&](auto zero) {
    using Offset = decltype(zero);
    Offset* const ends = next_offset<Offset>() + 1;
    const uint8_t* at = bytes.data();
    uint64_t left = bytes.size();
    uint8_t* to = this->end();
    const uint8_t* const chunk = values_.as<uint8_t>() + chunk_begin_;
    for (uint64_t i = 0; i < valid; ++i) {
      if (left < kHead) throw Damaged("a page ends within a text");
      const uint64_t size = load<uint32_t>(at);
      if (size > left - kHead) throw Damaged("a page ends within a text");
      copy_text(to, at + kHead, size);
      at += kHead + size;
      left -= kHead + size;
      to += size;
      ends[i] = static_cast<Offset>(to - chunk);
    }
    bytes_ = static_cast<uint64_t>(to - values_.as<uint8_t>());
    finish<Offset>(rows, valid, validity, begin);
  });
}

void TextColumn::append_indexed(const TextDictionary& dictionary, const uint32_t* indices, uint64_t rows, uint64_t valid,
                                const uint8_t* validity) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < valid; ++i) total += dictionary[indices[i]].size();
  if (total > most_chunk_bytes_) {
    return append_each(rows, validity, [&] { return dictionary[*indices++]; });
  }
  prepare(total);
  with_offset([&](auto zero) {
    using Offset = decltype(zero);
    Offset* const ends = next_offset<Offset>() + 1;
    uint8_t* to = this->end();
    const uint8_t* const chunk = values_.as<uint8_t>() + chunk_begin_;
    for (uint64_t i = 0; i < valid; ++i) {
      const std::span<const uint8_t> text = dictionary[indices[i]];
      copy_text(to, text.data(), text.size());
      to += text.size();
      ends[i] = static_cast<Offset>(to - chunk);
    }
    bytes_ += total;
    // The dictionary's texts were checked.
    const bool checks = std::exchange(utf8_, false);
    finish<Offset>(rows, valid, validity, bytes_);
    utf8_ = checks;
  });
}

void TextColumn::append_lengths(std::span<const uint8_t> bytes, const uint32_t* lengths, uint64_t rows, uint64_t valid,
                                const uint8_t* validity) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < valid; ++i) total += lengths[i];
  if (total > bytes.size()) throw Damaged("a page has fewer bytes than its texts");
  prepare(total);
  if (total > 0) std::memcpy(end(), bytes.data(), total);
  const uint64_t begin = bytes_;
  bytes_ += total;
  with_offset([&](auto zero) {
    using Offset = decltype(zero);
    Offset* const ends = next_offset<Offset>() + 1;
    uint64_t ended = begin - chunk_begin_;
    for (uint64_t i = 0; i < valid; ++i) ends[i] = static_cast<Offset>(ended += lengths[i]);
    finish<Offset>(rows, valid, validity, begin);
  });
}

void TextColumn::append_prefixed(std::span<const uint8_t> bytes, const uint32_t* prefixes, const uint32_t* lengths, uint64_t rows,
                                 const uint8_t* validity) {
  std::vector<uint8_t> last;
  uint64_t at = 0, index = 0;
  append_each(rows, validity, [&]() -> std::span<const uint8_t> {
    const uint64_t prefix = prefixes[index], length = lengths[index];
    if (prefix > last.size()) throw Damaged("a text begins with more bytes than the one before it has");
    if (length > bytes.size() - at) throw Damaged("a page has fewer bytes than its texts");
    last.resize(prefix);
    last.insert(last.end(), bytes.data() + at, bytes.data() + at + length);
    at += length;
    ++index;
    return last;
  });
}

void TextColumn::take(OwnedColumn& column) {
  column.type = {.kind = large_ ? ColumnKind::large_utf8 : ColumnKind::utf8, .order = KeyOrder::bytes};
  column.length = row_;
  ends_.push_back({row_, bytes_});
  const uint64_t width = large_ ? sizeof(int64_t) : sizeof(int32_t);
  offsets_.shrink((row_ + ends_.size()) * width);
  if (!values_) reserve(0);
  values_.shrink(bytes_);
  column.offsets = std::move(offsets_);
  column.values = std::move(values_);
  column.chunk_ends = std::move(ends_);
}

}  // namespace warpjoin::parquet
