#include "flow/spilled_tuples.h"

#include <algorithm>
#include <numeric>

namespace warpjoin {
namespace {

/// Beside what was expected, a block has room for such a part of what there is.
constexpr uint64_t kBlocksOfUnexpected = 4;

}  // namespace

SpilledTuples::SpilledTuples(HostMemory& memory, TupleLayout layout, uint64_t expected, const char* purpose)
    : memory_(memory), layout_(layout), purpose_(purpose) {
  if (expected) take_block(expected);
}

size_t SpilledTuples::host_bytes(TupleLayout layout, uint64_t expected) {
  size_t bytes = 0;
  for (const uint8_t width : {layout.key_bytes, layout.value_bytes}) {
    if (expected && width) bytes += HostMemory::block_bytes(expected * width);
  }
  return bytes;
}

void SpilledTuples::take_block(uint64_t tuples) {
  const auto allocate = [&](uint8_t width) { return width ? memory_.allocate(tuples * width, purpose_) : HostBuffer(); };
  blocks_.push_back({allocate(layout_.key_bytes), allocate(layout_.value_bytes), tuples, 0});
}

TupleSpan SpilledTuples::Block::span(TupleLayout layout, uint64_t begin, uint64_t end) const {
  return TupleSpan{keys.data(), values.data(), most}.slice(layout, begin, end);
}

SpilledTuples::Piece& SpilledTuples::add(uint64_t number, PartitionRange range, uint64_t size) {
  const std::lock_guard lock(mutex_);
  if (blocks_.empty() || blocks_.back().most - blocks_.back().size < size)
    take_block(std::max(size, size_ / kBlocksOfUnexpected));
  Block& block = blocks_.back();
  Piece& piece = pieces_[number];
  piece = {block.span(layout_, block.size, block.size + size), range, {}};
  block.size += size;
  size_ += size;
  begins_.clear();
  return piece;
}

TupleView SpilledTuples::expected_room() const {
  return blocks_.empty() ? TupleView() : blocks_.front().span(layout_, 0, blocks_.front().most).view();
}

std::pair<uint64_t, uint64_t> SpilledTuples::Piece::rows_of(PartitionRange wanted) const {
  const uint32_t begin = std::clamp(wanted.begin, range.begin, range.end);
  const uint32_t end = std::clamp(wanted.end, begin, range.end);
  return {offsets[begin - range.begin], offsets[end - range.begin]};
}

uint64_t SpilledTuples::size_of(PartitionRange range) const {
  if (begins_.empty()) {
    uint32_t partitions = 0;
    for (const auto& [number, piece] : pieces_) partitions = std::max(partitions, piece.range.end);
    begins_.resize(partitions + size_t{1});
    for (const auto& [number, piece] : pieces_) {
      for (uint32_t p = piece.range.begin; p < piece.range.end; ++p) {
        begins_[p + 1] += piece.offsets[p + 1 - piece.range.begin] - piece.offsets[p - piece.range.begin];
      }
    }
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  }
  const auto at = [&](uint32_t partition) { return begins_[std::min<size_t>(partition, begins_.size() - 1)]; };
  return at(range.end) - at(range.begin);
}

std::vector<TupleView> SpilledTuples::views_of(PartitionRange range) const {
  std::vector<TupleView> views;
  for (const auto& [number, piece] : pieces_) {
    const auto [begin, end] = piece.rows_of(range);
    if (begin < end) views.push_back(piece.tuples.slice(layout_, begin, end).view());
  }
  return views;
}

}  // namespace warpjoin
