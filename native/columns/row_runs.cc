#include "columns/row_runs.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "columns/value_bytes.h"

namespace warpjoin {
namespace {

using columns::bit_at;
using columns::ChunkIndex;
using columns::Place;

/// The values of a column, any two of which are compared.
class Values {
 public:
  explicit Values(const Column& column) : column_(column), index_(column) {
    if (column.dictionary) {
      dictionary_ = std::make_unique<Values>(*column.dictionary);
    } else if (!columns::has_bytes(column.type) && column.type.kind != ColumnKind::boolean) {
      throw Error(ErrorCode::not_supported, "Column '" + column.name + "' is nested: its values can't be compared");
    }
  }

  /// Sets the bit of each row whose value is not that of the row before.
  void mark(std::vector<uint64_t>& differ, const Job& job) const {
    Place before{};
    for (uint64_t begin = 0; begin < index_.rows(); begin += columns::kBlockRows) {
      job.check();
      const uint64_t end = std::min(index_.rows(), begin + columns::kBlockRows);
      index_.for_pieces(begin, end, [&](const ColumnChunk& chunk, uint64_t first, uint64_t count, uint64_t row) {
        for (uint64_t i = 0; i < count; ++i, ++row) {
          const Place place{&chunk, first + i};
          if (row > 0 && !equal(before, place)) differ[row / 64] |= uint64_t{1} << (row % 64);
          before = place;
        }
      });
    }
  }

 private:
  bool equal(Place one, Place other) const {
    const bool valid = valid_at(one);
    if (valid != valid_at(other)) return false;
    if (!valid) return true;
    if (dictionary_) {
      const uint64_t a = place_of(one), b = place_of(other);
      return a == b || dictionary_->equal(dictionary_->index_.at(a), dictionary_->index_.at(b));
    }
    if (column_.type.kind == ColumnKind::boolean) return bit(one) == bit(other);
    columns::View copy, other_copy;
    const columns::Bytes a = columns::bytes_at(column_, one, copy), b = columns::bytes_at(column_, other, other_copy);
    return a.size == b.size && columns::equal_bytes(a.data, b.data, a.size);
  }

  static bool valid_at(Place place) { return columns::valid_at(*place.chunk, place.index); }
  static bool bit(Place place) {
    return bit_at(static_cast<const uint8_t*>(place.chunk->values), place.chunk->bit_offset + place.index);
  }

  /// Where the value of a valid index lies among those of all dictionaries.
  uint64_t place_of(Place place) const {
    const ColumnChunk& chunk = *place.chunk;
    const uint64_t index = columns::with_index(
        column_.type.width, [&]<class Index>() { return uint64_t{columns::load_once<Index>(chunk.values, place.index)}; });
    if (index >= chunk.dictionary_size) throw InputChanged("Column '" + column_.name + "'");
    return chunk.dictionary_base + index;
  }

  const Column& column_;
  ChunkIndex index_;
  std::unique_ptr<const Values> dictionary_;
};

}  // namespace

std::vector<uint64_t> row_runs(std::span<const Column> columns, uint64_t rows, const Job& job) {
  std::vector<uint64_t> differ((rows + 63) / 64);
  for (const Column& column : columns) Values(column).mark(differ, job);
  std::vector<uint64_t> begins;
  if (rows > 0) begins.push_back(0);
  for (uint64_t word = 0; word < differ.size(); ++word) {
    for (uint64_t bits = differ[word]; bits; bits &= bits - 1) {
      begins.push_back(word * 64 + static_cast<uint64_t>(std::countr_zero(bits)));
    }
  }
  return begins;
}

}  // namespace warpjoin
