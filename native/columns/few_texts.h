// Distinct texts that are few enough for a core's own cache, numbered.
#pragma once

#include <cstdint>
#include <cstring>

#include "columns/chunks.h"
#include "columns/plain_keys.h"
#include "core/bytes_hash.h"
#include "core/host_memory.h"

namespace warpjoin::columns {

/// Texts with numbers from 0 on, in the order in which they were added. The table has copies of their bytes, so that what it has
/// found stays as it is while the columns that the texts came from are written to. Several threads may look texts up at once.
class FewTexts {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  /// Texts that a table has room for at most: with 24 bytes each a quarter of a megabyte.
  static constexpr uint64_t kMost = 4096;

  /// `most` <= kMost: texts that there is room for. The room for their bytes is limited, too.
  FewTexts(HostMemory& memory, const BytesHash& hash, uint64_t most);
  FewTexts clone() const;

  /// The number of a text, or kNone.
  uint32_t find(const Text& text) const {
    if (text.size > kShortBytes || text.end - text.data < static_cast<ptrdiff_t>(kShortBytes)) [[unlikely]]
      return find_with_care(text);
    Words words;
    std::memcpy(words.data, text.data, sizeof words);
    return find_short(words, text.size);
  }
  /// The same, and adds a text that is not there. kNone if there is no room for it.
  uint32_t insert(const Text& text) {
    const uint32_t found = find(text);
    return found != kNone ? found : add(text);
  }

  uint32_t size() const { return size_; }
  /// A text that is there; readable bytes as of the column that it came from.
  Text operator[](uint32_t id) const {
    const Entry& entry = entries_.as<Entry>()[id];
    const uint8_t* const data = bytes_.as<uint8_t>() + entry.offset;
    return {data, entry.size, bytes_.as<uint8_t>() + used_bytes_};
  }
  /// The texts as a column of utf8 or large_utf8 in the order of their numbers.
  PlainKey column(const ColumnType& type, Engine& engine) const;

 private:
  /// Texts up to this size are compared as so many bytes, zeros behind them: no branch depends on the size.
  static constexpr uint64_t kShortBytes = 32;
  static constexpr uint64_t kMostBytes = uint64_t{1} << 18;

  struct Entry {
    uint32_t offset, size;
  };
  struct Slot {
    uint32_t hash, size, offset, id;
  };
  struct Words {
    uint64_t data[kShortBytes / 8];
  };

  uint32_t find_short(Words words, uint64_t size) const {
    alignas(64) static constexpr struct {
      uint8_t ones[kShortBytes], zeros[kShortBytes];
    } kMask = {{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF},
               {}};
    Words mask;
    std::memcpy(mask.data, reinterpret_cast<const uint8_t*>(&kMask) + kShortBytes - size, sizeof mask);
    for (size_t i = 0; i < std::size(words.data); ++i) words.data[i] &= mask.data[i];
    return find_in(hash_.padded(words.data, size), size, [&](const uint8_t* own) {
      Words other;
      std::memcpy(other.data, own, sizeof other);
      uint64_t differ = 0;
      for (size_t i = 0; i < std::size(words.data); ++i) differ |= words.data[i] ^ other.data[i];
      return differ == 0;
    });
  }
  template <class Equal>
  uint32_t find_in(uint64_t hash, uint64_t size, Equal&& equal) const {
    const auto* const slots = slots_.as<Slot>();
    for (uint64_t at = hash >> shift_;; at = (at + 1) & slot_mask_) {
      const Slot& slot = slots[at];
      if (slot.id == kNone) return kNone;
      if (slot.hash == static_cast<uint32_t>(hash) && slot.size == size && equal(bytes_.as<uint8_t>() + slot.offset))
        return slot.id;
    }
  }
  uint64_t hash_of(const Text& text) const;
  uint32_t find_with_care(const Text& text) const;
  uint32_t add(const Text& text);

  HostMemory* memory_;
  BytesHash hash_;
  uint64_t most_, slot_mask_;
  unsigned shift_;  ///< of a hash: the bits that are left are its slot
  uint32_t size_ = 0;
  uint64_t used_bytes_ = 0;
  HostBuffer slots_, entries_, bytes_;
};

}  // namespace warpjoin::columns
