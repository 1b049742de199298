// Values by their bytes: which are equal to one that was there before.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "columns/chunks.h"
#include "columns/value_bytes.h"
#include "core/bytes_hash.h"
#include "core/host_memory.h"

namespace warpjoin::columns {

/// The numbers of distinct values of one type: of equal ones of fixed width, texts or views one, and one null; values of other
/// kinds are all distinct. The first are in a hash table; their bytes lie elsewhere, and `bytes_of(number, View&)` gives them.
class ValueTable {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;

  ValueTable(HostMemory& memory, const BytesHash& hash) : memory_(memory), hash_(hash) {}

  /// Makes room for `values` in all, 8 to 16 bytes each.
  template <class BytesOf>
  void reserve(uint64_t values, const BytesOf& bytes_of) {
    const uint64_t slots = std::bit_ceil(2 * std::max<uint64_t>(values, 1));
    if (slots <= slots_) return;
    const HostBuffer old = std::move(numbers_);
    const uint64_t old_slots = slots_;
    numbers_ = memory_.allocate(slots * sizeof(uint32_t), "a table of the values of dictionaries");
    slots_ = slots;
    std::fill_n(numbers_.as<uint32_t>(), slots, kNone);
    for (uint64_t slot = 0; slot < old_slots; ++slot) {
      const uint32_t number = old.as<uint32_t>()[slot];
      View copy;
      if (number != kNone) find_or_add(bytes_of(number, copy), number, bytes_of);
    }
  }

  /// The number of a value: that of an equal one, or `next`, which it then has. There has to be room for it.
  template <class BytesOf>
  uint32_t number_of(const Column& values, Place place, uint32_t next, const BytesOf& bytes_of) {
    if (!has_bytes(values.type)) return next;
    if (!valid_at(*place.chunk, place.index)) return null_ == kNone ? null_ = next : null_;
    View copy;
    return find_or_add(bytes_at(values, place, copy), next, bytes_of);
  }

 private:
  template <class BytesOf>
  uint32_t find_or_add(Bytes bytes, uint32_t number, const BytesOf& bytes_of) {
    auto* const numbers = numbers_.as<uint32_t>();
    for (uint64_t slot = hash_(bytes.data, bytes.size);; ++slot) {
      uint32_t& found = numbers[slot & (slots_ - 1)];
      if (found == kNone) return found = number;
      View copy;
      const Bytes other = bytes_of(found, copy);
      if (other.size == bytes.size && equal_bytes(other.data, bytes.data, bytes.size)) return found;
    }
  }

  HostMemory& memory_;
  BytesHash hash_;
  HostBuffer numbers_;
  uint64_t slots_ = 0;
  uint32_t null_ = kNone;
};

}  // namespace warpjoin::columns
