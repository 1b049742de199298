#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "columns/encoded_sort_keys.h"
#include "columns/host_sort.h"

namespace warpjoin::columns {
namespace {

constexpr uint64_t kInsertion = 16;             // rows of a tie that insertion sort is best for
constexpr uint64_t kLarge = uint64_t{1} << 15;  // rows of a tie that all threads work on together
constexpr uint64_t kBatch = 512;                // rows of short ties whose words are computed together

/// The end of the run of words equal to words[begin]. Galloping: long runs are not read through.
template <class Word>
uint64_t run_end(const Word* words, uint64_t begin, uint64_t size) {
  uint64_t step = 1, low = begin;
  while (low + step < size && words[low + step] == words[begin]) {
    low += step;
    step *= 2;
  }
  uint64_t high = std::min(size, low + step);  // words[low] is equal, words[high] is not
  while (low + 1 < high) {
    const uint64_t middle = low + (high - low) / 2;
    (words[middle] == words[begin] ? low : high) = middle;
  }
  return high;
}

/// Orders rows that tie at a state. `Row`: uint32_t or uint64_t. Ties are rows [begin, end) of `rows`, in the order of
/// their numbers.
template <class Row>
class Refiner {
 public:
  using State = SortOrder::State;
  struct Tie {
    uint64_t begin, end;
    State state;
  };

  Refiner(const SortOrder& order, Row* rows, Engine& engine, const Job& job)
      : order_(order), rows_(rows), engine_(engine), job_(job) {}

  /// Refines the runs of equal words of rows [begin, begin + size); `after` tells where the rows of a word stand.
  template <class Word, class After>
  void refine(const Word* words, uint64_t begin, uint64_t size, After&& after) {
    split(words, begin, size, after);
    while (!large_.empty()) {
      const Tie tie = large_.back();
      large_.pop_back();
      refine_large(tie);
    }
  }

 private:
  struct Pair {
    uint64_t word;
    Row row;
    bool operator<(const Pair& other) const { return word != other.word ? word < other.word : row < other.row; }
  };

  /// What one task works with.
  struct Worker {
    std::vector<Tie> batch, stack;
    uint64_t batch_rows = 0;
    Row batch_numbers[kBatch];
    uint64_t batch_words[kBatch];
    HostBuffer pairs, words;
  };

  template <class Word, class After>
  void split(const Word* words, uint64_t offset, uint64_t size, After&& after) {
    for_row_blocks(engine_, size, job_, [&](uint64_t, uint64_t begin, uint64_t end) {
      Worker worker;
      uint64_t row = begin;
      if (row > 0 && words[row] == words[row - 1]) row = run_end(words, row, size);
      while (row < end) {
        if (row + 1 == size || words[row] != words[row + 1]) {
          ++row;
          continue;
        }
        const uint64_t stop = run_end(words, row, size);
        add({offset + row, offset + stop, after(words[row])}, worker);
        row = stop;
      }
      flush(worker);
    });
  }

  void add(Tie tie, Worker& worker) {
    if (order_.decided(tie.state)) return;
    const uint64_t size = tie.end - tie.begin;
    if (size >= kLarge) {
      const std::lock_guard lock(mutex_);
      large_.push_back(tie);
    } else if (size > kInsertion) {
      refine_medium(tie, worker);
    } else {
      const bool same = worker.batch.empty() || (worker.batch.back().state.stage == tie.state.stage &&
                                                 worker.batch.back().state.depth == tie.state.depth);
      if (!same || worker.batch_rows + size > kBatch) flush(worker);
      std::copy(rows_ + tie.begin, rows_ + tie.end, worker.batch_numbers + worker.batch_rows);
      worker.batch_rows += size;
      worker.batch.push_back(tie);
    }
  }

  /// Sorts the short ties that have been put aside.
  void flush(Worker& worker) {
    if (worker.batch.empty()) return;
    job_.check();
    const State state = worker.batch.front().state;
    order_.words(state, worker.batch_numbers, worker.batch_rows, worker.batch_words);
    uint64_t at = 0;
    for (const Tie& tie : worker.batch) {
      const uint64_t size = tie.end - tie.begin;
      Row* const numbers = worker.batch_numbers + at;
      uint64_t* const words = worker.batch_words + at;
      for (uint64_t i = 1; i < size; ++i) {
        const Row number = numbers[i];
        const uint64_t word = words[i];
        uint64_t j = i;
        for (; j > 0; --j) {
          if (words[j - 1] < word) break;
          if (words[j - 1] == word && order_.compare(order_.after(state, word), numbers[j - 1], number) <= 0) break;
          numbers[j] = numbers[j - 1];
          words[j] = words[j - 1];
        }
        numbers[j] = number;
        words[j] = word;
      }
      std::copy(numbers, numbers + size, rows_ + tie.begin);
      at += size;
    }
    worker.batch.clear();
    worker.batch_rows = 0;
  }

  /// Computes the words at the first state from the tie's where they are not all equal, skipping what all rows share.
  /// False if the rows tie to the end.
  template <class Words, class Shared>
  bool find_difference(State& state, Words&& compute_words, Shared&& shared_bytes) {
    for (;;) {
      if (order_.decided(state)) return false;
      uint64_t word;
      if (compute_words(state, word)) return true;
      state = order_.after(state, word);
      if (order_.in_text(state)) state.depth += shared_bytes(state);
    }
  }

  void refine_medium(Tie tie, Worker& worker) {
    if (!worker.pairs) {
      worker.pairs = engine_.memory->allocate(kLarge * sizeof(Pair), "ordering ties");
      worker.words = engine_.memory->allocate(kLarge * sizeof(uint64_t), "ordering ties");
    }
    worker.stack.push_back(tie);
    while (!worker.stack.empty()) {
      Tie next = worker.stack.back();
      worker.stack.pop_back();
      job_.check();
      Row* const rows = rows_ + next.begin;
      const uint64_t size = next.end - next.begin;
      auto* const words = worker.words.template as<uint64_t>();
      const bool differ = find_difference(
          next.state,
          [&](State state, uint64_t& word) {
            order_.words(state, rows, size, words);
            word = words[0];
            return std::any_of(words, words + size, [&](uint64_t other) { return other != words[0]; });
          },
          [&](State state) {
            uint64_t shared = ~uint64_t{0};
            for (uint64_t i = 1; i < size && shared; ++i) shared = order_.shared_bytes(state, rows[0], rows[i], shared);
            return shared;
          });
      if (!differ) continue;
      auto* const pairs = worker.pairs.template as<Pair>();
      for (uint64_t i = 0; i < size; ++i) pairs[i] = {words[i], rows[i]};
      std::sort(pairs, pairs + size);
      for (uint64_t i = 0; i < size; ++i) rows[i] = pairs[i].row;
      for (uint64_t i = 0, stop; i < size; i = stop) {
        for (stop = i + 1; stop < size && pairs[stop].word == pairs[i].word;) ++stop;
        if (stop - i == 1) continue;
        const Tie part{next.begin + i, next.begin + stop, order_.after(next.state, pairs[i].word)};
        if (order_.decided(part.state)) continue;
        if (stop - i > kInsertion) {
          worker.stack.push_back(part);
        } else {
          add(part, worker);
        }
      }
    }
  }

  void refine_large(Tie tie) {
    Row* const rows = rows_ + tie.begin;
    const uint64_t size = tie.end - tie.begin;
    HostBuffer words = engine_.memory->allocate(size * 8, "ordering ties");
    std::atomic<uint64_t> varying;
    const bool differ = find_difference(
        tie.state,
        [&](State state, uint64_t& word) {
          order_.words(state, rows, 1, &word);
          varying = 0;
          for_row_blocks(engine_, size, job_, [&](uint64_t, uint64_t begin, uint64_t end) {
            auto* const part = words.as<uint64_t>() + begin;
            order_.words(state, rows + begin, end - begin, part);
            uint64_t differing = 0;
            for (uint64_t i = 0; i < end - begin; ++i) differing |= part[i] ^ word;
            varying.fetch_or(differing, std::memory_order_relaxed);
          });
          return varying != 0;
        },
        [&](State state) {
          std::atomic<uint64_t> least{~uint64_t{0}};
          for_row_blocks(engine_, size, job_, [&](uint64_t, uint64_t begin, uint64_t end) {
            uint64_t shared = least.load(std::memory_order_relaxed);
            for (uint64_t i = begin; i < end && shared; ++i) shared = order_.shared_bytes(state, rows[0], rows[i], shared);
            uint64_t known = least.load(std::memory_order_relaxed);
            while (shared < known && !least.compare_exchange_weak(known, shared, std::memory_order_relaxed)) {
            }
          });
          return least.load();
        });
    if (!differ) return;

    const TupleLayout layout{8, sizeof(Row)};
    HostBuffer other_words = engine_.memory->allocate(size * 8, "ordering ties");
    HostBuffer other_rows = engine_.memory->allocate(size * sizeof(Row), "ordering ties");
    const TupleSpan tuples{words.data(), rows, size};
    // Ties are ordered on the host whatever the engine's devices: the strings are there.
    const TupleSpan sorted =
        sort_on_host(layout, tuples.view(), tuples, {other_words.data(), other_rows.data(), size}, varying, engine_, job_);
    if (sorted.values != rows) {
      for_row_blocks(engine_, size, job_, [&](uint64_t, uint64_t begin, uint64_t end) {
        std::copy(other_rows.as<Row>() + begin, other_rows.as<Row>() + end, rows + begin);
      });
    }
    split(static_cast<const uint64_t*>(sorted.keys), tie.begin, size,
          [&](uint64_t word) { return order_.after(tie.state, word); });
  }

  const SortOrder& order_;
  Row* const rows_;
  Engine& engine_;
  const Job& job_;
  std::mutex mutex_;
  std::vector<Tie> large_;
};

template <class Row>
void refine(const SortOrder& order, TupleLayout layout, TupleSpan tuples, Engine& engine, const Job& job) {
  Refiner<Row> refiner(order, static_cast<Row*>(tuples.values), engine, job);
  const auto after = [&](uint64_t) { return order.after_first_word(); };
  if (layout.key_bytes == 4) {
    refiner.refine(static_cast<const uint32_t*>(tuples.keys), 0, tuples.size, after);
  } else {
    refiner.refine(static_cast<const uint64_t*>(tuples.keys), 0, tuples.size, after);
  }
}

}  // namespace

bool EncodedSortKeys::tie(const TupleSpan& sorted, uint64_t a, uint64_t b) const {
  const auto tie_in = [&]<class Key, class Row>(const Key* keys, const Row* rows) {
    return keys[a] == keys[b] && (complete() || order_.compare(order_.after_first_word(), rows[a], rows[b]) == 0);
  };
  const auto with_rows = [&]<class Key>(const Key* keys) {
    return tuples_.layout.value_bytes == 4 ? tie_in(keys, static_cast<const uint32_t*>(sorted.values))
                                           : tie_in(keys, static_cast<const uint64_t*>(sorted.values));
  };
  return tuples_.layout.key_bytes == 4 ? with_rows(static_cast<const uint32_t*>(sorted.keys))
                                       : with_rows(static_cast<const uint64_t*>(sorted.keys));
}

void EncodedSortKeys::refine_ties(TupleSpan tuples, Engine& engine, const Job& job) const {
  if (complete() || tuples.size < 2) return;
  if (tuples_.layout.value_bytes == 4) {
    refine<uint32_t>(order_, tuples_.layout, tuples, engine, job);
  } else {
    refine<uint64_t>(order_, tuples_.layout, tuples, engine, job);
  }
}

}  // namespace warpjoin::columns
