#include "parquet/snappy_decompress.h"

#include <array>
#include <cstring>

namespace warpjoin::parquet {
namespace {

struct Bytes16 {
  uint8_t bytes[16];
};

inline void copy16(uint8_t* to, const uint8_t* from) {
  Bytes16 piece;
  std::memcpy(&piece, from, sizeof piece);
  std::memcpy(to, &piece, sizeof piece);
}

inline void copy8(uint8_t* to, const uint8_t* from) {
  uint64_t piece;
  std::memcpy(&piece, from, sizeof piece);
  std::memcpy(to, &piece, sizeof piece);
}

/// Reads the number of bytes; null where there is none.
const uint8_t* read_size(const uint8_t* at, const uint8_t* end, uint64_t& size) {
  size = 0;
  constexpr unsigned kMostShift = 28;
  for (unsigned shift = 0; shift <= kMostShift && at < end; shift += 7) {
    const uint8_t byte = *at++;
    size |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return size <= UINT32_MAX ? at : nullptr;
  }
  return nullptr;
}

/// Repeats the `offset` < 8 bytes before `to`. Writes up to 15 bytes behind `length` of them.
inline void copy_pattern(uint8_t* to, uint64_t offset, uint64_t length) {
  const uint8_t* const from = to - offset;
  for (int i = 0; i < 8; ++i) to[i] = from[i];
  // A multiple of the offset that is no less than 8: so far back the same bytes are.
  constexpr uint8_t kBack[8] = {8, 8, 8, 9, 8, 10, 12, 14};
  const uint64_t back = kBack[offset];
  for (uint64_t done = 8; done < length; done += 8) copy8(to + done, to + done - back);
}

/// Copies `length` <= 64 bytes that lie `offset` back. Writes up to 15 bytes behind them.
inline void copy_back(uint8_t* to, uint64_t offset, uint64_t length) {
  if (offset < 8) return copy_pattern(to, offset, length);
  const uint8_t* const from = to - offset;
  copy8(to, from);
  copy8(to + 8, from + 8);
  for (uint64_t done = 16; done < length; done += 8) copy8(to + done, from + done);
}

/// What a tag says of a copy.
struct Copy {
  uint8_t length, bytes;  ///< bytes of the offset that follow
  uint16_t offset;        ///< what the tag has of it
};

constexpr std::array<Copy, 256> copies() {
  std::array<Copy, 256> made{};
  for (unsigned tag = 0; tag < made.size(); ++tag) {
    constexpr uint8_t kBytes[4] = {0, 1, 2, 4};
    const bool is_short = (tag & 3) == 1;
    made[tag] = {.length = static_cast<uint8_t>(is_short ? 4 + (tag >> 2 & 7) : (tag >> 2) + 1),
                 .bytes = kBytes[tag & 3],
                 .offset = static_cast<uint16_t>(is_short ? tag >> 5 << 8 : 0)};
  }
  return made;
}

constexpr std::array<Copy, 256> kCopies = copies();
constexpr uint32_t kOffsetMasks[4] = {0, 0xff, 0xffff, 0xffffffff};

}  // namespace

std::optional<uint64_t> snappy_size(std::span<const uint8_t> compressed) {
  uint64_t size;
  if (!read_size(compressed.data(), compressed.data() + compressed.size(), size)) return std::nullopt;
  return size;
}

bool snappy_decompress(std::span<const uint8_t> compressed, uint8_t* to, uint64_t size) {
  const uint8_t* const end = compressed.data() + compressed.size();
  uint64_t stated;
  const uint8_t* at = read_size(compressed.data(), end, stated);
  if (!at || stated != size) return false;
  uint8_t* const begin = to;
  uint8_t* const to_end = to + size;
  while (at < end) {
    const unsigned tag = *at++;
    if ((tag & 3) == 0) {
      uint64_t length = (tag >> 2) + 1;
      constexpr uint64_t kInTag = 60, kShort = 16;
      if (length <= kShort) {
        copy16(to, at);
        if (length > static_cast<uint64_t>(end - at) || length > static_cast<uint64_t>(to_end - to)) return false;
        at += length;
        to += length;
        continue;
      }
      if (length > kInTag) {
        const uint64_t bytes = length - kInTag;
        if (bytes > static_cast<uint64_t>(end - at)) return false;
        uint32_t word;
        std::memcpy(&word, at, sizeof word);
        length = (uint64_t{word} & (UINT32_MAX >> (32 - 8 * bytes))) + 1;
        at += bytes;
      }
      if (length > static_cast<uint64_t>(end - at) || length > static_cast<uint64_t>(to_end - to)) return false;
      std::memcpy(to, at, length);
      at += length;
      to += length;
      continue;
    }
    // A table in place of a branch for each kind of copy, which nothing predicts.
    const Copy copy = kCopies[tag];
    uint32_t word;
    std::memcpy(&word, at, sizeof word);
    const uint64_t offset = copy.offset + (word & kOffsetMasks[tag & 3]), length = copy.length;
    at += copy.bytes;
    if (at > end || offset == 0 || offset > static_cast<uint64_t>(to - begin) || length > static_cast<uint64_t>(to_end - to)) {
      return false;
    }
    copy_back(to, offset, length);
    to += length;
  }
  return to == to_end;
}

}  // namespace warpjoin::parquet
