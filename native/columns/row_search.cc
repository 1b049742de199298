#include "columns/row_search.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "columns/encoded_sort_keys.h"
#include "core/error.h"

namespace warpjoin {
namespace columns {
namespace {

constexpr uint64_t kStride = 64;  // every so many rows one is in the index

/// Columns of two tables, one behind the other, as plain ones of one type.
class JointOrder {
 public:
  JointOrder(std::span<const SortColumn> by, std::span<const Column* const> values, Engine& engine, const Job& job) {
    columns_.reserve(by.size());
    for (size_t i = 0; i < by.size(); ++i) {
      const KeySource sources[] = {{by[i].column, {}}, {values[i], {}}};
      for (PlainKey& key : plain_keys(sources, engine, job, true)) keys_.push_back(std::move(key));
      const Column &first = keys_.end()[-2].column, &second = keys_.back().column;
      Column& joint = columns_.emplace_back(first);
      joint.length += second.length;
      joint.chunks.insert(joint.chunks.end(), second.chunks.begin(), second.chunks.end());
      by_.push_back({&joint, by[i].descending, by[i].nulls_last});
    }
  }
  std::span<const SortColumn> by() const { return by_; }

 private:
  std::vector<PlainKey> keys_;  // what the columns refer to
  std::vector<Column> columns_;
  std::vector<SortColumn> by_;
};

/// Word 0 of one row in kStride.
HostBuffer index_words(const SortOrder& order, uint64_t rows, Engine& engine, const Job& job) {
  const uint64_t size = (rows + kStride - 1) / kStride;
  HostBuffer words = engine.memory->allocate(size * 8, "an index of sorted rows");
  for_row_blocks(engine, size, job, [&](uint64_t, uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) order.first_words(i * kStride, i * kStride + 1, words.as<uint64_t>() + i);
  });
  return words;
}

template <class Row>
void search(const SortOrder& order, uint64_t rows, uint64_t values, bool behind_equal, std::span<const uint64_t> index, Row* out,
            Engine& engine, const Job& job) {
  // Whether table row `row` comes before the value.
  const auto before = [&](uint64_t row, uint64_t value, uint64_t value_word) {
    uint64_t word;
    order.first_words(row, row + 1, &word);
    if (word != value_word) return word < value_word;
    const int compared = order.compare(order.after_first_word(), row, value);
    return behind_equal ? compared <= 0 : compared < 0;
  };
  for_row_blocks(engine, values, job, [&](uint64_t, uint64_t begin, uint64_t end) {
    uint64_t words[kWordsAtOnce];
    for (uint64_t at = begin; at < end; at += kWordsAtOnce) {
      job.check();
      const uint64_t size = std::min(kWordsAtOnce, end - at);
      order.first_words(rows + at, rows + at + size, words);
      for (uint64_t i = 0; i < size; ++i) {
        const auto [first, last] = std::equal_range(index.begin(), index.end(), words[i]);
        // What is before `first` comes before the value, what is from `last` on does not.
        uint64_t low = first == index.begin() ? 0 : static_cast<uint64_t>(first - index.begin() - 1) * kStride + 1;
        uint64_t high = std::min(rows, static_cast<uint64_t>(last - index.begin()) * kStride);
        while (low < high) {
          const uint64_t middle = low + (high - low) / 2;
          if (before(middle, rows + at + i, words[i])) {
            low = middle + 1;
          } else {
            high = middle;
          }
        }
        out[at + i] = static_cast<Row>(low);
      }
    }
  });
}

}  // namespace
}  // namespace columns

bool rows_are_sorted(std::span<const SortColumn> by, Engine& engine, const Job& job) {
  using namespace columns;
  const PlainOrder plain(by, engine, job);
  const SortOrder order(plain.by(), Extents::types, engine, job);
  const uint64_t rows = plain.rows();
  std::atomic<bool> inverted{false};
  for_row_blocks(engine, rows, job, [&](uint64_t, uint64_t begin, uint64_t end) {
    uint64_t words[kWordsAtOnce + 1];  // one row more: the first of what follows
    for (uint64_t at = begin; at < end && !inverted.load(std::memory_order_relaxed); at += kWordsAtOnce) {
      job.check();
      const uint64_t size = std::min(kWordsAtOnce + 1, rows - at);
      order.first_words(at, at + size, words);
      bool here = false;
      for (uint64_t i = 0; i + 1 < size; ++i) here |= words[i] > words[i + 1];
      for (uint64_t i = 0; i + 1 < size && !here && !order.complete(); ++i) {
        here = words[i] == words[i + 1] && order.compare(order.after_first_word(), at + i, at + i + 1) > 0;
      }
      if (here) inverted.store(true, std::memory_order_relaxed);
    }
  });
  return !inverted.load();
}

OwnedColumn search_sorted(std::span<const SortColumn> by, std::span<const Column* const> values, bool behind_equal,
                          Engine& engine, const Job& job) {
  using namespace columns;
  if (by.empty() || by.size() != values.size())
    throw Error(ErrorCode::option, "A search needs at least one column, and as many of the values as of the table");
  const uint64_t rows = by[0].column->length, wanted = values[0]->length;
  for (size_t i = 0; i < by.size(); ++i) {
    if (by[i].column->length != rows || values[i]->length != wanted)
      throw Error(ErrorCode::invalid_table, "Columns '" + by[i].column->name + "' differ in length from others of their table");
  }
  const JointOrder joint(by, values, engine, job);
  const SortOrder order(joint.by(), Extents::values, engine, job);
  const HostBuffer index = index_words(order, rows, engine, job);
  const std::span<const uint64_t> words(index.as<uint64_t>(), (rows + kStride - 1) / kStride);
  if (!std::is_sorted(words.begin(), words.end())) {
    std::string names;
    for (const SortColumn& column : by) names += (names.empty() ? "'" : ", '") + column.column->name + "'";
    throw Error(ErrorCode::option, "The table is not sorted by " + names);
  }
  const uint8_t row_bytes = row_bytes_for(rows);
  OwnedColumn positions;
  positions.type = {ColumnKind::fixed, KeyOrder::unsigned_integer, row_bytes};
  positions.length = wanted;
  positions.values = engine.memory->allocate(wanted * row_bytes, "positions of rows");
  if (row_bytes == 4) {
    search(order, rows, wanted, behind_equal, words, positions.values.as<uint32_t>(), engine, job);
  } else {
    search(order, rows, wanted, behind_equal, words, positions.values.as<uint64_t>(), engine, job);
  }
  return positions;
}

MergeCut cut_merge(std::span<const SortColumn> by, std::span<const uint64_t> ends, std::span<const uint64_t> rows, Engine& engine,
                   const Job& job) {
  using namespace columns;
  const PlainOrder plain(by, engine, job);
  if (rows.empty() || !std::is_sorted(ends.begin(), ends.end()) || ends.empty() || ends.back() != plain.rows() ||
      std::ranges::max(rows) >= plain.rows())
    throw Error(ErrorCode::option, "A merge is cut at rows of its runs, which end with the table's rows");
  const SortOrder order(plain.by(), Extents::types, engine, job);
  const auto word = [&](uint64_t row) {
    uint64_t word;
    order.first_words(row, row + 1, &word);
    return word;
  };
  // Rows that are equal come as they lie.
  const auto before = [&](uint64_t row, uint64_t other) {
    const uint64_t a = word(row), b = word(other);
    if (a != b) return a < b;
    const int compared = order.compare(order.after_first_word(), row, other);
    return compared != 0 ? compared < 0 : row < other;
  };
  const uint64_t least = std::ranges::min(rows, before);
  MergeCut cut;
  cut.run = static_cast<size_t>(std::ranges::upper_bound(ends, least) - ends.begin());
  for (uint64_t begin = 0; const uint64_t end : ends) {
    job.check();
    uint64_t low = begin, high = end;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (before(middle, least)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    cut.rows.push_back(low - begin);
    begin = end;
  }
  return cut;
}

}  // namespace warpjoin
