#include "parquet/decode_delta.h"

#include <algorithm>

#include "parquet/decode_hybrid.h"

namespace warpjoin::parquet {

DeltaDecoder::DeltaDecoder(std::span<const uint8_t> bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {
  const uint64_t block = varint();
  miniblocks_ = varint();
  total_ = left_ = varint();
  const uint64_t first = varint();
  value_ = (first >> 1) ^ (uint64_t{0} - (first & 1));
  constexpr uint64_t kMostBlock = uint64_t{1} << 30, kUnit = 32;
  if (block == 0 || block > kMostBlock || miniblocks_ == 0 || miniblocks_ > block || block % miniblocks_ ||
      block / miniblocks_ % kUnit) {
    throw Damaged("a block of differences has an impossible size");
  }
  miniblock_values_ = block / miniblocks_;
  miniblock_ = miniblocks_;
}

uint64_t DeltaDecoder::varint() {
  uint64_t value = 0;
  constexpr unsigned kWord = 64;
  for (unsigned shift = 0; shift < kWord; shift += 7) {
    if (at_ == end_) break;
    const uint8_t byte = *at_++;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  throw Damaged("differences end early");
}

void DeltaDecoder::start_block() {
  const uint64_t least = varint();
  least_ = (least >> 1) ^ (uint64_t{0} - (least & 1));
  if (static_cast<uint64_t>(end_ - at_) < miniblocks_) throw Damaged("differences end early");
  widths_ = at_;
  at_ += miniblocks_;
  miniblock_ = 0;
}

void DeltaDecoder::start_miniblock() {
  if (miniblock_ == miniblocks_) start_block();
  width_ = widths_[miniblock_++];
  constexpr unsigned kMostWidth = 64;
  if (width_ > kMostWidth) throw Damaged("a difference has " + std::to_string(width_) + " bits");
  packed_ = at_;
  used_ = 0;
  in_miniblock_ = std::min(miniblock_values_, left_);
  const auto left = static_cast<uint64_t>(end_ - at_);
  // Some writers leave out what pads the last one.
  if ((in_miniblock_ * width_ + 7) / 8 > left) throw Damaged("differences end early");
  at_ += std::min(miniblock_values_ * width_ / 8, left);
}

template <class T>
void DeltaDecoder::read_values(T* to, uint64_t count) {
  if (count == 0) return;
  if (!started_) {
    if (total_ == 0) throw Damaged("there are fewer differences than values");
    started_ = true;
    --left_;
    *to++ = static_cast<T>(value_);
    --count;
  }
  if (count > left_) throw Damaged("there are fewer differences than values");
  while (count > 0) {
    if (used_ == in_miniblock_) start_miniblock();
    constexpr uint64_t kAtOnce = 64;
    const uint64_t taken = std::min({in_miniblock_ - used_, count, kAtOnce});
    uint64_t differences[kAtOnce + 8];
    // Aligned to bytes: what came before in the same eight is unpacked again.
    const uint64_t before = used_ % 8;
    unpack(packed_ + used_ / 8 * width_, width_, before + taken, differences);
    uint64_t value = value_;
    for (uint64_t i = 0; i < taken; ++i) {
      value += least_ + differences[before + i];
      to[i] = static_cast<T>(value);
    }
    value_ = value;
    used_ += taken;
    left_ -= taken;
    to += taken;
    count -= taken;
  }
}

template void DeltaDecoder::read_values(uint32_t*, uint64_t);
template void DeltaDecoder::read_values(uint64_t*, uint64_t);

}  // namespace warpjoin::parquet
