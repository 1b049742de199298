#include "join/kept_rows.h"

#include <utility>

#include "join/join_rows.h"

namespace warpjoin {

namespace {

constexpr uint64_t kUnused = 32;  // room with more than one row unused of so many goes back

}  // namespace

KeptRows::KeptRows(std::span<Device* const> devices, const JoinRequest& request, ResidentRows& rows)
    : devices_(devices.begin(), devices.end()),
      request_(request),
      rows_(rows),
      columns_{{{&ResidentRows::Chunk::keys, request.want_keys ? rows.left_layout.key_bytes : uint8_t{0}},
                {&ResidentRows::Chunk::left, wants_left(request) ? rows.left_layout.value_bytes : uint8_t{0}},
                {&ResidentRows::Chunk::right, wants_right(request) ? rows.right_layout.value_bytes : uint8_t{0}}}},
      rooms_(devices.size()) {
  rows_.chunks.resize(devices_.size());
}

bool KeptRows::takes_pairs() const { return request_.kind == JoinKind::inner && !request_.count_only; }

bool KeptRows::expect_at_most(size_t device, uint64_t pairs) {
  const StackAllocator& memory = devices_[device]->memory();
  size_t bytes = 0;
  for (const Column& column : columns_) bytes += 2 * memory.resident_size(column_bytes(pairs, column.width));
  const bool fits =
      bytes <= memory.free_bytes() && memory.reserved_bytes() + memory.resident_bytes() + bytes <= memory.limit_bytes();
  return fits && takes_room(device, pairs);
}

std::optional<JoinOutput> KeptRows::next_pairs(size_t device, uint64_t most) {
  Room& room = rooms_[device];
  if (most > room.rows - room.taken) return {};  // all are more than there is room for: settle() tells
  room.stretches.push_back({room.taken, most});
  return pairs_from(device, std::exchange(room.taken, room.taken + most));
}

uint64_t KeptRows::settle(size_t device, uint64_t size, const Copy& copy) {
  Room& room = rooms_[device];
  ResidentRows::Chunk& chunk = rows_.chunks[device];
  uint64_t written = 0;
  bool gaps = false;
  for (const Stretch& stretch : room.stretches) {
    gaps |= stretch.pairs && stretch.begin != written;
    written += stretch.pairs;
  }
  if (gaps || size > room.rows || size < room.rows - room.rows / kUnused) {
    Room before = std::exchange(room, {});
    for (size_t c = 0; written && c < columns_.size(); ++c) before.former[c] = std::move(chunk.*columns_[c].data);
    take(device, size);
    room.former = std::move(before.former);
    for (size_t c = 0; c < columns_.size(); ++c) {
      const auto& [data, width] = columns_[c];
      char* target = (chunk.*data).as<char>();
      for (const Stretch& stretch : before.stretches) {
        if (!room.former[c] || !stretch.pairs) continue;
        copy(target, room.former[c].as<char>() + stretch.begin * width, stretch.pairs * width);
        target += stretch.pairs * width;
      }
    }
  }
  for (const Column& column : columns_) (chunk.*column.data).shrink(size * column.width);
  return written;
}

JoinOutput KeptRows::pairs_from(size_t device, uint64_t pair) const {
  const auto at = [&](const Column& column) {
    const Buffer& data = rows_.chunks[device].*column.data;
    return data ? data.as<char>() + pair * column.width : nullptr;
  };
  const auto& [keys, left, right] = columns_;
  return {at(keys), at(request_.build_left ? left : right), at(request_.build_left ? right : left)};
}

bool KeptRows::takes_room(size_t device, uint64_t rows) {
  try {
    take(device, rows);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::device_memory) throw;
    take(device, 0);
    return false;
  }
}

void KeptRows::take(size_t device, uint64_t rows) {
  ResidentRows::Chunk& chunk = rows_.chunks[device];
  rooms_[device] = {};
  for (const Column& column : columns_) chunk.*column.data = Buffer();
  for (const Column& column : columns_) {
    if (rows == 0 || column.width == 0) continue;
    chunk.*column.data = devices_[device]->memory().allocate_resident(column_bytes(rows, column.width));
  }
  rooms_[device].rows = rows;
}

}  // namespace warpjoin
