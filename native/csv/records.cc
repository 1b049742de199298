#include "csv/records.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace warpjoin::csv {

Tokenizer::End Tokenizer::quoted(Field& field) {
  const uint64_t begin = at_ + 1;
  bool doubled = false;
  uint64_t quote = begin;
  for (;;) {
    if (quote >= size_) return End::junk;
    load_around(quote);
    uint64_t found = quotes_ & ~below(quote - base_);
    while (!found) {
      if (base_ + 64 >= size_) return End::junk;
      load(base_ + 64);
      found = quotes_;
    }
    quote = base_ + static_cast<uint64_t>(std::countr_zero(found));
    if (text_[quote + 1] != '"') break;
    doubled = true;
    quote += 2;
  }
  field.begin = static_cast<uint32_t>(begin);
  field.size_bits = static_cast<uint32_t>(quote - begin) | (doubled ? Field::kDoubled : 0);
  uint64_t end = quote + 1;
  while (text_[end] != dialect_.delimiter && (text_[end] == ' ' || text_[end] == '\t')) ++end;
  if (dialect_.line_end == '\n' && text_[end] == '\r') ++end;
  if (end >= size_) return End::junk;
  const bool is_last = text_[end] == dialect_.line_end;
  if (!is_last && (text_[end] != dialect_.delimiter || text_[end - 1] == '\r')) return End::junk;
  at_ = end + 1;
  load_around(end);
  ends_ = all_ends_ & ~below(end - base_ + 1);
  return is_last ? End::record : End::delimiter;
}

std::optional<uint8_t> find_line_end(const uint8_t* text, uint64_t size, uint8_t delimiter, bool at_end) {
  constexpr uint64_t kFar = uint64_t{1} << 20;
  const uint64_t most = std::min(size, kFar);
  bool in_quotes = false, carriage_return = false, field_begins = true;
  for (uint64_t i = 0; i < most; ++i) {
    const uint8_t byte = text[i];
    if (in_quotes) {
      in_quotes = byte != '"';  // a doubled quote is seen as an end and a begin
      field_begins = true;
    } else if (byte == '"' && field_begins) {
      in_quotes = true;
    } else if (byte == '\n') {
      return '\n';
    } else {
      carriage_return = carriage_return || byte == '\r';
      field_begins = byte == delimiter || byte == '\r';
    }
  }
  if (!at_end && size < kFar) return std::nullopt;
  return carriage_return ? '\r' : '\n';
}

uint64_t find_bad_byte(const uint8_t* text, uint64_t size) {
  // The position of the first wrong byte of the character at `i`, or the next character's.
  const auto continues = [&](uint64_t i) { return i < size && (text[i] & 0xc0) == 0x80; };
  uint64_t i = 0;
  while (i < size) {
    if (text[i] < 0x80) {
      if (i + 64 <= size) {
        const Window window(text + i);
        const uint64_t special = window.where(0) | window.above_ascii();
        if (!special) {
          i += 64;
          continue;
        }
        i += static_cast<uint64_t>(std::countr_zero(special));
      }
      if (text[i] < 0x80) {
        if (text[i] == 0) return i;
        ++i;
        continue;
      }
    }
    const uint8_t lead = text[i];
    const unsigned length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || !continues(i + 1)) return i;
    const uint8_t second = text[i + 1];
    // Neither longer forms than needed, surrogates, nor numbers beyond 0x10ffff.
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
        (lead == 0xf4 && second > 0x8f)) {
      return i;
    }
    for (unsigned k = 2; k < length; ++k) {
      if (!continues(i + k)) return i;
    }
    i += length;
  }
  return size;
}

HostBuffer RecordSplitter::make_block(const void* bytes, uint64_t size) const {
  HostBuffer block = memory_->allocate(kHeadroom + size + kPadding, "a block of a CSV file");
  if (size) std::memcpy(block.as<uint8_t>() + kHeadroom, bytes, size);
  std::memset(block.as<uint8_t>() + kHeadroom + size, 0, kPadding);
  return block;
}

void RecordSplitter::append(HostBuffer block, uint64_t size) {
  if (size_ <= kHeadroom) {
    const uint64_t begin = kHeadroom - size_;
    if (size_) std::memcpy(block.as<uint8_t>() + begin, text(), size_);
    buffer_ = std::move(block);
    begin_ = begin;
  } else {
    if (begin_) std::memmove(buffer_.data(), text(), size_);
    begin_ = 0;
    if (const uint64_t needed = size_ + size + kPadding; buffer_.size() < needed) buffer_.grow(needed, "a record of a CSV file");
    std::memcpy(buffer_.as<uint8_t>() + size_, block.as<uint8_t>() + kHeadroom, size + kPadding);
  }
  size_ += size;
}

RecordSplitter::State RecordSplitter::scan(State state, uint64_t to, const Dialect& dialect) const {
  const uint8_t* const bytes = text();
  for (uint64_t base = state.at / 64 * 64; base < to; base += 64) {
    uint64_t quotes = Window(bytes + base).where('"') & below(to - base);
    if (base < state.at) quotes &= ~below(state.at - base);
    for (; quotes; quotes &= quotes - 1) {
      const uint64_t i = base + static_cast<uint64_t>(std::countr_zero(quotes));
      if (i < state.at) continue;  // the second of a pair
      if (!state.in_quotes) {
        state.in_quotes = i == 0 || bytes[i - 1] == dialect.delimiter || bytes[i - 1] == dialect.line_end;
        state.at = i + 1;
      } else if (i + 1 == size_) {
        state.at = i;  // what follows says whether it is one of two
        return state;
      } else {
        state.in_quotes = bytes[i + 1] == '"';
        state.at = i + (state.in_quotes ? 2 : 1);
      }
    }
  }
  state.at = std::max(state.at, to);
  return state;
}

uint64_t RecordSplitter::record_end(State state, uint64_t to, const Dialect& dialect, bool last) const {
  const uint8_t* const bytes = text();
  uint64_t end = 0;
  for (uint64_t i = state.at; i < to; ++i) {
    if (state.in_quotes) {
      const void* const quote = std::memchr(bytes + i, '"', to - i);
      if (!quote) return end;
      i = static_cast<uint64_t>(static_cast<const uint8_t*>(quote) - bytes);
      if (i + 1 == size_) return end;
      state.in_quotes = bytes[i + 1] == '"';
      if (state.in_quotes) ++i;
    } else if (bytes[i] == dialect.line_end) {
      end = i + 1;
      if (!last) return end;
    } else if (bytes[i] == '"') {
      state.in_quotes = i == 0 || bytes[i - 1] == dialect.delimiter || bytes[i - 1] == dialect.line_end;
    }
  }
  return end;
}

std::vector<uint64_t> RecordSplitter::cuts(const Dialect& dialect, uint64_t distance) {
  constexpr uint64_t kNearEnd = 4096;
  std::vector<State> states = {{scanned_, in_quotes_}};
  const uint64_t near_end = size_ - std::min(size_, kNearEnd);
  while (states.back().at < size_) {
    const State from = states.back();
    const uint64_t next = from.at + distance;
    const uint64_t to = next < near_end ? next : from.at < near_end ? near_end : size_;
    const State reached = scan(from, to, dialect);
    states.push_back(reached);
    if (reached.at < to) break;
  }
  scanned_ = states.back().at;
  in_quotes_ = states.back().in_quotes;
  uint64_t last = 0;
  for (size_t i = states.size() - 1; i-- > 0 && last == 0;) last = record_end(states[i], states[i + 1].at, dialect, true);
  std::vector<uint64_t> ends;
  if (last == 0) return ends;
  for (size_t i = 1; i + 1 < states.size(); ++i) {
    if (states[i].at >= last) break;
    if (!ends.empty() && states[i].at < ends.back() + distance / 2) continue;
    if (const uint64_t end = record_end(states[i], size_, dialect, false); end && end < last) ends.push_back(end);
  }
  ends.push_back(last);
  return ends;
}

void RecordSplitter::drop(uint64_t bytes) {
  begin_ += bytes;
  size_ -= bytes;
  scanned_ -= std::min(scanned_, bytes);
}

}  // namespace warpjoin::csv
