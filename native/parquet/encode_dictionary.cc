#include "parquet/encode_dictionary.h"

#include <algorithm>
#include <cstring>

#include "columns/bits.h"

namespace warpjoin::parquet {
namespace {

using columns::load;

constexpr uint64_t kLeastSlots = uint64_t{1} << 10;

/// The same for values of 1 to 8 bytes, apart from the word's size.
uint32_t hash_word(uint64_t word) {
  const auto product = static_cast<unsigned __int128>(word ^ 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
  return static_cast<uint32_t>(static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64));
}

}  // namespace

void Dictionary::clear(uint32_t width, DictionaryLimits limits) {
  width_ = width;
  limits_ = limits;
  limits_.bytes = std::min<uint64_t>(limits_.bytes, INT32_MAX);
  size_ = 0;
  mask_ = kLeastSlots - 1;
  slots_.assign(kLeastSlots, {});
  page_.clear();
  begins_.clear();
}

Bytes Dictionary::value(uint32_t number) const {
  if (width_) return {page_.data() + uint64_t{number} * width_, width_};
  const uint8_t* const at = page_.data() + begins_[number];
  return {at + 4, load<uint32_t>(at)};
}

bool Dictionary::is(uint32_t number, Bytes value) const {
  const Bytes known = this->value(number);
  return known.size == value.size && columns::equal_bytes(known.data, value.data, value.size);
}

void Dictionary::append(Bytes value) {
  if (!width_) {
    begins_.push_back(static_cast<uint32_t>(page_.size()));
    const auto size = static_cast<uint32_t>(value.size);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&size);
    page_.insert(page_.end(), bytes, bytes + 4);
  }
  page_.insert(page_.end(), value.data, value.data + value.size);
}

void Dictionary::grow() {
  const std::vector<Slot> old = std::move(slots_);
  mask_ = 2 * mask_ + 1;
  slots_.assign(mask_ + 1, {});
  for (const Slot& slot : old) {
    if (slot.number == 0) continue;
    uint64_t at = slot.hash & mask_;
    while (slots_[at].number) at = (at + 1) & mask_;
    slots_[at] = slot;
  }
}

/// UINT32_MAX where there are too many values.
uint32_t Dictionary::number_of(Bytes value, uint32_t hash) {
  for (uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
    const Slot slot = slots_[at];
    if (slot.number == 0) {
      const uint64_t bytes = value.size + (width_ ? 0 : 4);
      if (size_ >= limits_.values || value.size > kMostValueBytes || page_.size() + bytes > limits_.bytes) return UINT32_MAX;
      append(value);
      slots_[at] = {hash, static_cast<uint32_t>(++size_)};
      if (2 * size_ > mask_) grow();
      return static_cast<uint32_t>(size_ - 1);
    }
    if (slot.hash == hash && is(slot.number - 1, value)) return slot.number - 1;
  }
}

bool Dictionary::add_batch(const Bytes* values, uint64_t count, uint32_t* numbers) {
  uint32_t hashes[kBatch];
  for (uint64_t i = 0; i < count; ++i) {
    hashes[i] = static_cast<uint32_t>(hash_(values[i].data, values[i].size));
    __builtin_prefetch(&slots_[hashes[i] & mask_]);
  }
  if (!width_) {
    for (uint64_t i = 0; i < count; ++i) {
      const Slot slot = slots_[hashes[i] & mask_];
      if (slot.number && slot.hash == hashes[i]) __builtin_prefetch(page_.data() + begins_[slot.number - 1]);
    }
  }
  for (uint64_t i = 0; i < count; ++i) {
    numbers[i] = number_of(values[i], hashes[i]);
    if (numbers[i] == UINT32_MAX) return false;
  }
  return true;
}

bool Dictionary::add(const Bytes* values, uint64_t count, uint32_t* numbers) {
  for (uint64_t at = 0; at < count; at += kBatch) {
    if (!add_batch(values + at, std::min(kBatch, count - at), numbers + at)) return false;
  }
  return true;
}

template <class Word>
bool Dictionary::add_words(const uint8_t* values, uint64_t count, uint32_t* numbers) {
  for (uint64_t i = 0; i < count; ++i) {
    const auto word = load<Word>(values, i);
    const uint32_t hash = hash_word(word);
    for (uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
      const uint32_t number = slots_[at].number;
      if (number == 0) {
        numbers[i] = number_of({values + i * sizeof(Word), sizeof(Word)}, hash);
        if (numbers[i] == UINT32_MAX) return false;
        break;
      }
      if (load<Word>(page_.data(), number - 1) == word) {
        numbers[i] = number - 1;
        break;
      }
    }
  }
  return true;
}

bool Dictionary::add(const uint8_t* values, uint64_t count, uint32_t* numbers) {
  if (width_ == 4) return add_words<uint32_t>(values, count, numbers);
  if (width_ == 8) return add_words<uint64_t>(values, count, numbers);
  Bytes batch[kBatch];
  for (uint64_t at = 0; at < count; at += kBatch) {
    const uint64_t size = std::min(kBatch, count - at);
    for (uint64_t i = 0; i < size; ++i) batch[i] = {values + (at + i) * width_, width_};
    if (!add_batch(batch, size, numbers + at)) return false;
  }
  return true;
}

}  // namespace warpjoin::parquet
