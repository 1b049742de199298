#include "join/spilled_tuples.h"

#include <algorithm>

#include "transfer/arrival.h"

namespace warpjoin {
namespace {

/// Beside what was expected, a block has room for such a part of what there is.
constexpr uint64_t kBlocksOfUnexpected = 4;

}  // namespace

SpilledTuples::SpilledTuples(HostMemory& memory, TupleLayout layout, uint64_t expected) : memory_(memory), layout_(layout) {
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
  const auto allocate = [&](uint8_t width) { return memory_.allocate(tuples * width, "the spilled tuples of a join"); };
  blocks_.push_back({allocate(layout_.key_bytes), allocate(layout_.value_bytes), tuples, 0});
}

HostCopy SpilledTuples::add(uint64_t number, PartitionRange range, const std::vector<uint64_t>& offsets, const TupleView& from) {
  if (blocks_.empty() || blocks_.back().most - blocks_.back().size < from.size) {
    take_block(std::max(from.size, size_ / kBlocksOfUnexpected));
  }
  Block& block = blocks_.back();
  const TupleSpan to = TupleSpan{block.keys.data(), block.values.data(), block.most}  //
                           .slice(layout_, block.size, block.size + from.size);
  block.size += from.size;
  size_ += from.size;
  const auto behind =
      std::upper_bound(pieces_.begin(), pieces_.end(), number, [](uint64_t of, const Piece& piece) { return of < piece.number; });
  Piece& piece = *pieces_.emplace(behind);
  piece.number = number;
  piece.tuples = to.view();
  if (!layout_.value_bytes) piece.tuples.values = nullptr;
  piece.range = range;
  for (uint32_t p = range.begin; p <= range.end; ++p) piece.offsets.push_back(offsets[p] - offsets[range.begin]);
  return host_copy(layout_, to, from, nullptr);
}

std::pair<uint64_t, uint64_t> SpilledTuples::Piece::rows_of(PartitionRange wanted) const {
  const uint32_t begin = std::clamp(wanted.begin, range.begin, range.end);
  const uint32_t end = std::clamp(wanted.end, begin, range.end);
  return {offsets[begin - range.begin], offsets[end - range.begin]};
}

uint64_t SpilledTuples::size_of(PartitionRange range) const {
  uint64_t size = 0;
  for (const Piece& piece : pieces_) {
    const auto [begin, end] = piece.rows_of(range);
    size += end - begin;
  }
  return size;
}

std::vector<TupleView> SpilledTuples::views_of(PartitionRange range) const {
  std::vector<TupleView> views;
  for (const Piece& piece : pieces_) {
    const auto [begin, end] = piece.rows_of(range);
    if (begin < end) views.push_back(piece.tuples.slice(layout_, begin, end));
  }
  return views;
}

}  // namespace warpjoin
