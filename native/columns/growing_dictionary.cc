#include "columns/growing_dictionary.h"

#include <algorithm>
#include <string>
#include <utility>

#include "columns/chunks.h"
#include "columns/dictionary.h"
#include "columns/gather.h"
#include "core/error.h"

namespace warpjoin {

using columns::bytes_at;
using columns::ChunkIndex;
using columns::has_bytes;
using columns::kBlockRows;
using columns::load_once;
using columns::ValueTable;
using columns::View;
using columns::with_index;

namespace {

/// The chunks of a column behind those of another one of the same type.
void append_chunks(Column& to, Column from) {
  to.length += from.length;
  to.chunks.insert(to.chunks.end(), from.chunks.begin(), from.chunks.end());
  for (auto& buffers : from.view_buffers) to.view_buffers.push_back(std::move(buffers));
  for (size_t i = 0; i < from.children.size(); ++i) append_chunks(to.children[i], std::move(from.children[i]));
}

bool has_dictionary(const Column& column) {
  return column.dictionary || std::any_of(column.children.begin(), column.children.end(), has_dictionary);
}

bool have_same_type(const Column& one, const Column& other) {
  return one.type == other.type && one.type_ids == other.type_ids &&
         std::equal(one.children.begin(), one.children.end(), other.children.begin(), other.children.end(), have_same_type);
}

template <class Index>
void place_chunk(const Column& column, const ColumnChunk& chunk, uint64_t first_row, std::span<const uint32_t> positions,
                 Index* out) {
  for (uint64_t i = 0; i < chunk.length; ++i) {
    const uint64_t index = load_once<Index>(chunk.values, i);
    if (index < positions.size()) {
      out[i] = static_cast<Index>(positions[index]);
    } else if (!columns::valid_at(chunk, i)) {
      out[i] = 0;
    } else {
      throw Error(ErrorCode::invalid_table, "Column '" + column.name + "' has an index in row " + std::to_string(first_row + i) +
                                                " that stands for none of the " + std::to_string(positions.size()) +
                                                " values of its dictionary");
    }
  }
}

}  // namespace

bool GrowingDictionary::takes(const Column& values) const {
  return !has_dictionary(values) && (is_first_ || have_same_type(values, all_));
}

HostBuffer GrowingDictionary::number(const Column& values, uint32_t* positions, uint64_t& added, const Job& job) {
  const ChunkIndex known(all_), index(values);
  const uint64_t base = all_.length;
  HostBuffer added_rows = engine_.memory->allocate(index.rows() * sizeof(uint32_t), "the new values of a dictionary");
  auto* const rows = added_rows.as<uint32_t>();
  const auto bytes_of = [&](uint32_t number, View& copy) {
    return number < base ? bytes_at(all_, known.at(number), copy) : bytes_at(values, index.at(rows[number - base]), copy);
  };
  if (has_bytes(values.type)) table_.reserve(base + index.rows(), bytes_of);
  for (uint64_t row = 0; row < index.rows(); ++row) {
    if (row % kBlockRows == 0) job.check();
    const auto next = static_cast<uint32_t>(base + added);
    rows[added] = static_cast<uint32_t>(row);  // where bytes_of() finds it, if it is new
    const uint32_t position = table_.number_of(values, index.at(row), next, bytes_of);
    // The first dictionary's values stay where they are, though some may be equal.
    if (position == next || is_first_) ++added;
    positions[row] = is_first_ ? next : position;
  }
  return added_rows;
}

PlacedValues GrowingDictionary::place(const Column& values, const Job& job) {
  if (values.length >= ValueTable::kNone - all_.length) {
    throw Error(ErrorCode::not_supported, "Column '" + values.name + "' has dictionaries of " +
                                              std::to_string(all_.length + values.length) +
                                              " values together, and at most 4294967294 are supported");
  }
  const uint64_t count = values.length;
  PlacedValues placed;
  placed.positions = engine_.memory->allocate(count * sizeof(uint32_t), "the positions of a dictionary's values");
  auto* const positions = placed.positions.as<uint32_t>();
  uint64_t added = 0;
  const HostBuffer rows = number(values, positions, added, job);
  OwnedColumn made = gather(values, {rows.data(), 4, false, added}, engine_, job);
  if (is_first_) {
    all_ = borrow(made, values);
  } else {
    append_chunks(all_, borrow(made, values));
  }
  is_first_ = false;
  if (added > 0) placed.added = std::move(made);
  uint64_t row = 0;
  while (row < count && positions[row] == row) ++row;
  if (row == count) placed.positions = {};
  return placed;
}

OwnedColumn GrowingDictionary::joined(const Job& job) {
  HostBuffer rows = engine_.memory->allocate(all_.length * sizeof(uint32_t), "the rows of a dictionary");
  for (uint64_t row = 0; row < all_.length; ++row) rows.as<uint32_t>()[row] = static_cast<uint32_t>(row);
  return gather(all_, {rows.data(), 4, false, all_.length}, engine_, job);
}

HostBuffer placed_indices(const Column& indices, std::span<const uint32_t> positions, HostMemory& memory, const Job& job) {
  const uint32_t width = indices.type.width;
  HostBuffer made = memory.allocate(indices.length * width, "indices of a dictionary");
  uint64_t row = 0;
  for (const ColumnChunk& chunk : indices.chunks) {
    job.check();
    with_index(width, [&]<class Index>() { place_chunk(indices, chunk, row, positions, made.as<Index>() + row); });
    row += chunk.length;
  }
  return made;
}

}  // namespace warpjoin
