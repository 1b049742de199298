// One side of a join, made of a key for each row: rows that can't match leave it.
#pragma once

#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "columns/chunks.h"
#include "columns/encode.h"

namespace warpjoin::columns {

template <class Key, class Row, class Matchable>
JoinSide numbered_side(HostBuffer keys, uint64_t rows, Matchable&& matchable, Engine& engine, const Job& job) {
  std::vector<uint64_t> starts(block_count(rows) + 1, 0);
  const auto for_words = [](uint64_t begin, uint64_t end, auto&& body) {
    for (uint64_t row = begin; row < end; row += 64) body(row, static_cast<unsigned>(std::min<uint64_t>(64, end - row)));
  };
  for_row_blocks(engine, rows, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
    uint64_t found = 0;
    for_words(begin, end,
              [&](uint64_t row, unsigned count) { found += static_cast<unsigned>(std::popcount(matchable(row, count))); });
    starts[block + 1] = found;
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  JoinSide out;
  out.rows = rows;
  out.excluded_rows = rows - starts.back();
  EncodedTuples& tuples = out.tuples;
  tuples.layout = {sizeof(Key), sizeof(Row)};
  tuples.view.size = starts.back();
  if (out.excluded_rows == 0) {
    tuples.keys = std::move(keys);
  } else {
    tuples.keys = engine.memory->allocate(tuples.view.size * sizeof(Key), "join keys");
    tuples.values = engine.memory->allocate(tuples.view.size * sizeof(Row), "the rows of join keys");
    out.excluded = engine.memory->allocate(out.excluded_rows * sizeof(Row), "rows without a match");
    for_row_blocks(engine, rows, job, [&](uint64_t block, uint64_t begin, uint64_t end) {
      const Key* const from = keys.as<Key>();
      Key* to = tuples.keys.as<Key>() + starts[block];
      Row* numbers = tuples.values.as<Row>() + starts[block];
      Row* excluded = out.excluded.as<Row>() + (begin - starts[block]);
      for_words(begin, end, [&](uint64_t row, unsigned count) {
        const uint64_t wanted = matchable(row, count);
        for_set_bits(wanted, [&](unsigned bit) {
          *to++ = from[row + bit];
          *numbers++ = static_cast<Row>(row + bit);
        });
        for_set_bits(~wanted & low_bits(count), [&](unsigned bit) { *excluded++ = static_cast<Row>(row + bit); });
      });
    });
    tuples.view.values = tuples.values.data();
  }
  tuples.view.keys = tuples.keys.data();
  return out;
}

/// Makes a side of the keys of all rows. matchable(row, count) gives a bit for each of `count` <= 64 rows from `row` on, a
/// multiple of 64, that can match, and the same ones whenever it is asked. `keys` and what `matchable` reads are not the
/// caller's, who could write to them.
template <class Key, class Matchable>
JoinSide matchable_side(HostBuffer keys, uint64_t rows, Matchable&& matchable, Engine& engine, const Job& job) {
  return row_bytes_for(rows) == 4 ? numbered_side<Key, uint32_t>(std::move(keys), rows, matchable, engine, job)
                                  : numbered_side<Key, uint64_t>(std::move(keys), rows, matchable, engine, job);
}

}  // namespace warpjoin::columns
