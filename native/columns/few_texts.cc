#include "columns/few_texts.h"

#include <algorithm>
#include <bit>

namespace warpjoin::columns {
namespace {

constexpr const char* kPurpose = "the distinct texts of a join key";

}  // namespace

FewTexts::FewTexts(HostMemory& memory, const BytesHash& hash, uint64_t most)
    : memory_(&memory), hash_(hash), most_(std::clamp<uint64_t>(most, 1, kMost)), slot_mask_(std::bit_ceil(2 * most_) - 1) {
  shift_ = 64 - static_cast<unsigned>(std::bit_width(slot_mask_));
  slots_ = memory.allocate((slot_mask_ + 1) * sizeof(Slot), kPurpose);
  entries_ = memory.allocate(most_ * sizeof(Entry), kPurpose);
  bytes_ = memory.allocate(std::min<uint64_t>(kMostBytes, most_ * kShortBytes), kPurpose);
  std::fill_n(slots_.as<Slot>(), slot_mask_ + 1, Slot{0, 0, 0, kNone});
}

FewTexts FewTexts::clone() const {
  FewTexts copy(*memory_, hash_, most_);
  if (copy.bytes_.size() < bytes_.size()) copy.bytes_.grow(bytes_.size(), kPurpose);
  std::copy_n(slots_.as<Slot>(), slot_mask_ + 1, copy.slots_.as<Slot>());
  std::copy_n(entries_.as<Entry>(), size_, copy.entries_.as<Entry>());
  std::copy_n(bytes_.as<uint8_t>(), used_bytes_, copy.bytes_.as<uint8_t>());
  copy.size_ = size_;
  copy.used_bytes_ = used_bytes_;
  return copy;
}

PlainKey FewTexts::column(const ColumnType& type, Engine& engine) const {
  PlainKey key;
  key.column.type = type;
  key.column.length = size_;
  if (size_ == 0) return key;
  const auto* const entries = entries_.as<Entry>();
  uint64_t bytes = 0;
  for (uint32_t id = 0; id < size_; ++id) bytes += entries[id].size;
  const uint64_t offset_bytes = type.kind == ColumnKind::utf8 ? sizeof(int32_t) : sizeof(int64_t);
  HostBuffer offsets = engine.memory->allocate((uint64_t{size_} + 1) * offset_bytes, kPurpose);
  HostBuffer values = engine.memory->allocate(bytes, kPurpose);
  const auto write = [&]<class Offset>(Offset* ends) {
    uint64_t end = 0;
    *ends++ = 0;
    for (uint32_t id = 0; id < size_; ++id) {
      std::memcpy(values.as<uint8_t>() + end, bytes_.as<uint8_t>() + entries[id].offset, entries[id].size);
      end += entries[id].size;
      *ends++ = static_cast<Offset>(end);
    }
  };
  offset_bytes == 4 ? write(offsets.as<int32_t>()) : write(offsets.as<int64_t>());
  ColumnChunk chunk;
  chunk.length = size_;
  chunk.offsets = offsets.data();
  chunk.offsets_bytes = offsets.size();
  chunk.values = values.data();
  chunk.values_bytes = bytes;
  key.column.chunks.push_back(chunk);
  key.owned.push_back(std::move(offsets));
  key.owned.push_back(std::move(values));
  return key;
}

uint32_t FewTexts::find_with_care(const Text& text) const {
  if (text.size > kShortBytes) {
    return find_in(hash_(text.data, text.size), text.size,
                   [&](const uint8_t* own) { return equal_bytes(text.data, own, text.size); });
  }
  Words words{};
  if (text.size) std::memcpy(words.data, text.data, text.size);
  return find_short(words, text.size);
}

uint64_t FewTexts::hash_of(const Text& text) const {
  if (text.size > kShortBytes) return hash_(text.data, text.size);
  Words words{};
  if (text.size) std::memcpy(words.data, text.data, text.size);
  return hash_.padded(words.data, text.size);
}

uint32_t FewTexts::add(const Text& text) {
  if (size_ == most_ || text.size > kMostBytes) return kNone;
  const uint64_t room = std::max(kShortBytes, (text.size + 7) / 8 * 8);
  if (room > kMostBytes - used_bytes_) return kNone;
  if (used_bytes_ + room > bytes_.size()) {
    bytes_.grow(std::min(kMostBytes, std::max(2 * bytes_.size(), used_bytes_ + room)), kPurpose);
  }
  // The copy is what is hashed and compared: the text may have changed since it was looked for.
  uint8_t* const data = bytes_.as<uint8_t>() + used_bytes_;
  std::memset(data, 0, room);
  if (text.size) std::memcpy(data, text.data, text.size);
  const Text own{data, text.size, data + room};
  if (const uint32_t found = find(own); found != kNone) return found;
  const uint64_t hash = hash_of(own);
  uint64_t at = hash >> shift_;
  while (slots_.as<Slot>()[at].id != kNone) at = (at + 1) & slot_mask_;
  const auto size = static_cast<uint32_t>(text.size), offset = static_cast<uint32_t>(used_bytes_);
  slots_.as<Slot>()[at] = {static_cast<uint32_t>(hash), size, offset, size_};
  entries_.as<Entry>()[size_] = {offset, size};
  used_bytes_ += room;
  return size_++;
}

}  // namespace warpjoin::columns
