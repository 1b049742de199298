#include "parquet/decode_hybrid.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace warpjoin::parquet {
namespace {

constexpr unsigned kMostWidth = 32, kBlock = 32;

inline uint64_t load64(const uint8_t* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

constexpr uint64_t low_bits(unsigned width) { return width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1; }

template <unsigned width, size_t... index>
inline void unpack_block(const uint8_t* from, uint32_t* to, std::index_sequence<index...>) {
  ((to[index] = static_cast<uint32_t>((load64(from + index * width / 8) >> (index * width % 8)) & low_bits(width))), ...);
}

template <unsigned width>
void unpack_blocks(const uint8_t* from, uint64_t blocks, uint32_t* to) {
  for (uint64_t i = 0; i < blocks; ++i) {
    unpack_block<width>(from, to, std::make_index_sequence<kBlock>());
    from += kBlock * width / 8;
    to += kBlock;
  }
}

using Unpack = void (*)(const uint8_t*, uint64_t, uint32_t*);

template <size_t... width>
constexpr std::array<Unpack, sizeof...(width)> unpackers(std::index_sequence<width...>) {
  return {unpack_blocks<width>...};
}

constexpr auto kUnpackers = unpackers(std::make_index_sequence<kMostWidth + 1>());

}  // namespace

void unpack(const uint8_t* from, unsigned width, uint64_t count, uint32_t* to) {
  const uint64_t blocks = count / kBlock;
  kUnpackers[width](from, blocks, to);
  from += blocks * kBlock * width / 8;
  to += blocks * kBlock;
  for (uint64_t i = 0; i < count % kBlock; ++i) {
    to[i] = static_cast<uint32_t>((load64(from + i * width / 8) >> (i * width % 8)) & low_bits(width));
  }
}

void unpack(const uint8_t* from, unsigned width, uint64_t count, uint64_t* to) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bit = i * width;
    const unsigned shift = static_cast<unsigned>(bit % 8);
    uint64_t value = load64(from + bit / 8) >> shift;
    if (width + shift > 64) value |= uint64_t{from[bit / 8 + 8]} << (64 - shift);
    to[i] = value & low_bits(width);
  }
}

void HybridDecoder::start_run() {
  uint64_t head = 0;
  for (unsigned shift = 0;; shift += 7) {
    constexpr unsigned kMostShift = 35;
    if (at_ == end_ || shift > kMostShift) throw Damaged("runs end early");
    const uint8_t byte = *at_++;
    head |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  const auto left = static_cast<uint64_t>(end_ - at_);
  packed_ = head & 1;
  if (packed_) {
    left_ = (head >> 1) * 8;
    used_ = 0;
    values_ = at_;
    const uint64_t bytes = (head >> 1) * width_;
    // Some writers leave out what pads the last run: a run has the values that are whole.
    if (bytes > left) left_ = left * 8 / width_;
    if (bytes > 0 && left_ == 0) throw Damaged("a run ends early");
    at_ += std::min(bytes, left);
  } else {
    left_ = head >> 1;
    const unsigned bytes = (width_ + 7) / 8;
    if (bytes > left) throw Damaged("a run ends early");
    value_ = 0;
    std::memcpy(&value_, at_, bytes);
    if (value_ > low_bits(width_)) throw Damaged("a run's value has too many bits");
    at_ += bytes;
  }
}

HybridDecoder::Part HybridDecoder::next(uint64_t most) {
  while (left_ == 0) start_run();
  const uint64_t count = std::min(left_, most);
  left_ -= count;
  if (!packed_) return {.count = count, .value = value_};
  const uint8_t* const from = values_ + used_ * width_ / 8;
  used_ += count;
  return {.count = count, .packed = from};
}

void HybridDecoder::read(uint32_t* to, uint64_t count) {
  while (count > 0) {
    while (left_ == 0) start_run();
    uint64_t taken = std::min(left_, count);
    if (!packed_) {
      std::fill_n(to, taken, value_);
    } else if (used_ % 8) {
      taken = std::min(taken, 8 - used_ % 8);
      uint32_t eight[8];
      unpack(values_ + used_ / 8 * width_, width_, 8, eight);
      std::copy_n(eight + used_ % 8, taken, to);
    } else {
      unpack(values_ + used_ / 8 * width_, width_, taken, to);
    }
    used_ += taken;
    left_ -= taken;
    to += taken;
    count -= taken;
  }
}

}  // namespace warpjoin::parquet
