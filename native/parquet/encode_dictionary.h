// Distinct values of a column chunk, numbered by their first occurrence, in the form of a dictionary page.
#pragma once

#include <cstdint>
#include <vector>

#include "core/bytes_hash.h"
#include "parquet/encode_values.h"

namespace warpjoin::parquet {

/// What a dictionary may grow to.
struct DictionaryLimits {
  uint64_t values = uint64_t{1} << 18;
  uint64_t bytes = uint64_t{4} << 20;  ///< of the page, below 2^31
};

/// Its memory is used again after clear().
class Dictionary {
 public:
  /// `width`: bytes of a value, 0 where it varies.
  void clear(uint32_t width, DictionaryLimits limits);

  uint64_t size() const { return size_; }
  /// The values in the encoding PLAIN.
  const std::vector<uint8_t>& page() const { return page_; }
  /// The value of a number, within the page.
  Bytes value(uint32_t number) const;

  /// Numbers values, those that are new too; false where they are too many: then the dictionary is of no more use.
  bool add(const uint8_t* values, uint64_t count, uint32_t* numbers);
  bool add(const Bytes* values, uint64_t count, uint32_t* numbers);

 private:
  struct Slot {
    uint32_t hash, number;  ///< the number plus one; 0: the slot is free
  };
  static constexpr uint64_t kBatch = 64;

  bool add_batch(const Bytes* values, uint64_t count, uint32_t* numbers);
  template <class Word>
  bool add_words(const uint8_t* values, uint64_t count, uint32_t* numbers);
  uint32_t number_of(Bytes value, uint32_t hash);
  bool is(uint32_t number, Bytes value) const;
  void append(Bytes value);
  void grow();

  BytesHash hash_ = BytesHash::seeded_at_random();
  uint32_t width_ = 0;
  DictionaryLimits limits_;
  uint64_t size_ = 0, mask_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint8_t> page_;
  std::vector<uint32_t> begins_;  ///< where the values lie in the page, of variable width alone
};

}  // namespace warpjoin::parquet
