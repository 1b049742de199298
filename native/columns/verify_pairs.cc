#include <cstring>
#include <vector>

#include "columns/chunks.h"
#include "columns/encode.h"
#include "core/error.h"
#include "core/key_types.h"

namespace warpjoin {
namespace columns {
namespace {

/// Keeps the equal pairs of rows [0, size) at their front; returns their number. Offsets are prefetched two batches
/// ahead of the comparison and bytes one.
template <class Row>
uint64_t keep_equal(const ChunkIndex& left, const ChunkIndex& right, Row* left_rows, Row* right_rows, uint64_t size,
                    const Job& job) {
  constexpr uint64_t kBatch = 32;
  const ColumnKind left_kind = left.type().kind, right_kind = right.type().kind;
  struct Pair {
    Text left, right;
  };
  Pair batches[2][kBatch];
  const auto prefetch_offsets = [&](uint64_t begin) {
    for (uint64_t i = begin; i < std::min(size, begin + kBatch); ++i) {
      prefetch_offset(left_kind, left.at(left_rows[i]));
      prefetch_offset(right_kind, right.at(right_rows[i]));
    }
  };
  const auto find_texts = [&](uint64_t begin) {
    Pair* pair = batches[begin / kBatch % 2];
    for (uint64_t i = begin; i < std::min(size, begin + kBatch); ++i, ++pair) {
      const Place a = left.at(left_rows[i]), b = right.at(right_rows[i]);
      *pair = {text_at(left_kind, *a.chunk, a.index), text_at(right_kind, *b.chunk, b.index)};
      for (const Text* text : {&pair->left, &pair->right}) {
        if (text->size == 0) continue;
        __builtin_prefetch(text->data);
        __builtin_prefetch(text->data + text->size - 1);  // short texts are often on two lines
      }
    }
  };
  uint64_t kept = 0;
  prefetch_offsets(0);
  find_texts(0);
  prefetch_offsets(kBatch);
  for (uint64_t begin = 0; begin < size; begin += kBatch) {
    job.check();  // texts may be long
    find_texts(begin + kBatch);
    prefetch_offsets(begin + 2 * kBatch);
    const Pair* pair = batches[begin / kBatch % 2];
    for (uint64_t i = begin; i < std::min(size, begin + kBatch); ++i, ++pair) {
      const Text &a = pair->left, &b = pair->right;
      const bool equal = a.size == b.size && common_bytes(a.data, b.data, a.size) == a.size;
      left_rows[kept] = left_rows[i];
      right_rows[kept] = right_rows[i];
      kept += equal;
    }
  }
  return kept;
}

template <class Row>
uint64_t verify(const ChunkIndex& left, const ChunkIndex& right, Row* left_rows, Row* right_rows, uint64_t pairs, Engine& engine,
                const Job& job) {
  std::vector<uint64_t> kept(block_count(pairs));
  for_row_blocks(engine, pairs, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    kept[block] = keep_equal(left, right, left_rows + begin, right_rows + begin, end - begin, job);
  });
  // Closing the gaps is a serial pass, but hashes that collide are rare: nearly always there are none.
  uint64_t total = 0;
  for (uint64_t block = 0; block < kept.size(); ++block) {
    const uint64_t begin = block * kBlockRows;
    if (begin != total) {
      job.check();
      std::memmove(left_rows + total, left_rows + begin, kept[block] * sizeof(Row));
      std::memmove(right_rows + total, right_rows + begin, kept[block] * sizeof(Row));
    }
    total += kept[block];
  }
  return total;
}

}  // namespace
}  // namespace columns

uint64_t verify_pairs(const Column& left, const Column& right, void* left_rows, void* right_rows, uint8_t row_bytes,
                      uint64_t pairs, Engine& engine, const Job& job) {
  if (!is_text_key(left.type) || !is_text_key(right.type)) {
    throw Error(ErrorCode::internal,
                "Pairs need no verification: the keys of columns '" + left.name + "' and '" + right.name + "' are exact");
  }
  const columns::ChunkIndex left_chunks(left), right_chunks(right);
  if (row_bytes == 4) {
    return columns::verify(left_chunks, right_chunks, static_cast<uint32_t*>(left_rows), static_cast<uint32_t*>(right_rows),
                           pairs, engine, job);
  }
  return columns::verify(left_chunks, right_chunks, static_cast<uint64_t*>(left_rows), static_cast<uint64_t*>(right_rows), pairs,
                         engine, job);
}

}  // namespace warpjoin
