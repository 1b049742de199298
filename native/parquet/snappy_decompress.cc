#include "parquet/snappy_decompress.h"

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

/// Copies `length` <= 64 bytes that lie `offset` back.
inline void copy_back(uint8_t* to, uint64_t offset, uint64_t length) {
  if (offset >= 16) {
    const uint8_t* const from = to - offset;
    copy16(to, from);
    for (uint64_t done = 16; done < length; done += 16) copy16(to + done, from + done);
  } else if (offset >= 8) {
    const uint8_t* const from = to - offset;
    copy8(to, from);
    for (uint64_t done = 8; done < length; done += 8) copy8(to + done, from + done);
  } else {
    copy_pattern(to, offset, length);
  }
}

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
    uint64_t length, offset;
    if ((tag & 3) == 1) {
      length = 4 + ((tag >> 2) & 7);
      offset = (tag >> 5 << 8) | *at;
      at += 1;
    } else if ((tag & 3) == 2) {
      uint16_t word;
      std::memcpy(&word, at, sizeof word);
      length = (tag >> 2) + 1;
      offset = word;
      at += sizeof word;
    } else {
      uint32_t word;
      std::memcpy(&word, at, sizeof word);
      length = (tag >> 2) + 1;
      offset = word;
      at += sizeof word;
    }
    if (at > end || offset == 0 || offset > static_cast<uint64_t>(to - begin) || length > static_cast<uint64_t>(to_end - to)) {
      return false;
    }
    copy_back(to, offset, length);
    to += length;
  }
  return to == to_end;
}

}  // namespace warpjoin::parquet
