#include "columns/top_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "columns/encoded_sort_keys.h"
#include "columns/host_sort.h"

namespace warpjoin {
namespace columns {
namespace {

constexpr uint64_t kGroup = 16;       // rows whose words are compared together
constexpr uint64_t kSample = 4096;    // rows that the first bound is taken from
constexpr uint64_t kSlack = 1 << 16;  // candidates beside twice those that are kept, before the bound is lowered
constexpr uint64_t kFew = 1 << 15;    // rows that are sorted by one thread

/// A row that may be among the first.
struct Candidate {
  uint64_t word;  ///< word 0 of its key
  uint64_t row;
  uint64_t next;  ///< select(): the word that is looked at
};

uint64_t candidates_for(uint64_t rows, uint64_t kept) { return std::min(rows, 2 * kept + kSlack); }

/// No row behind this one in the order of the sort can be among the first: behind all with the word where `row` is not known.
struct Bound {
  uint64_t word = ~uint64_t{0};
  uint64_t row = 0;
  bool has_row = false;
};

class Selection {
 public:
  Selection(const SortOrder& order, uint64_t rows, uint64_t kept, Engine& engine, const Job& job)
      : order_(order), rows_(rows), kept_(kept), capacity_(candidates_for(rows, kept)), engine_(engine), job_(job) {
    memory_ = engine.memory->allocate(capacity_ * sizeof(Candidate), "candidates of the first rows");
  }

  /// The first `kept` candidates of all rows, in any order.
  std::span<Candidate> find(Bound first_bound) {
    bound_ = first_bound;
    size_ = 0;
    for_row_blocks(engine_, rows_, job_, [&](uint64_t, uint64_t begin, uint64_t end) { look_at(begin, end); });
    if (size_ > kept_) select();
    return {candidates(), size_};
  }

 private:
  Candidate* candidates() const { return memory_.as<Candidate>(); }

  Bound bound() {
    const std::lock_guard lock(mutex_);
    return bound_;
  }

  /// Whether a row is at the bound or before it. Where its word is the bound's, the columns decide, and then the row's number.
  bool may_be_kept(uint64_t word, uint64_t row, const Bound& bound) const {
    if (word != bound.word || !bound.has_row) return word <= bound.word;
    const int order = order_.compare(order_.after_first_word(), row, bound.row);
    return order != 0 ? order < 0 : row <= bound.row;
  }

  void look_at(uint64_t begin, uint64_t end) {
    uint64_t words[kWordsAtOnce];
    Candidate found[kWordsAtOnce];
    for (uint64_t at = begin; at < end; at += kWordsAtOnce) {
      job_.check();  // texts may be long
      const uint64_t size = std::min(kWordsAtOnce, end - at);
      order_.first_words(at, at + size, words);
      const Bound bound = this->bound();
      uint64_t count = 0;
      for (uint64_t group = 0; group < size; group += kGroup) {
        const uint64_t stop = std::min(size, group + kGroup);
        bool any = false;
        for (uint64_t i = group; i < stop; ++i) any |= words[i] <= bound.word;
        if (!any) continue;
        for (uint64_t i = group; i < stop; ++i) {
          if (words[i] > bound.word || !may_be_kept(words[i], at + i, bound)) continue;
          found[count++] = {words[i], at + i, 0};
        }
      }
      if (count) add({found, count});
    }
  }

  void add(std::span<const Candidate> found) {
    const std::lock_guard lock(mutex_);
    if (capacity_ - size_ < found.size()) select();
    // At most capacity_ - kept_ at a time, which is no less than kSlack, or there are no more rows.
    std::copy(found.begin(), found.end(), candidates() + size_);
    size_ += found.size();
  }

  /// Keeps the first `kept_` of the candidates, and lowers the bound to the last of those. Words are compared as they were
  /// computed, once: columns that change meanwhile give any order, but an order.
  void select() {
    if (kept_ == 0 || size_ <= kept_) return;
    Candidate* begin = candidates();
    Candidate* end = begin + size_;
    uint64_t need = kept_;
    for (Candidate* one = begin; one < end; ++one) one->next = one->word;
    SortOrder::State state = order_.after_first_word();
    for (bool first = true;; first = false) {
      // The first `need` of [begin, end), which tie in all words before.
      std::nth_element(begin, begin + (need - 1), end, [](const Candidate& a, const Candidate& b) { return a.next < b.next; });
      const uint64_t word = begin[need - 1].next;
      begin = std::partition(begin, begin + need, [word](const Candidate& one) { return one.next < word; });
      end = std::partition(candidates() + kept_, end, [word](const Candidate& one) { return one.next == word; });
      need = static_cast<uint64_t>(candidates() + kept_ - begin);
      if (!first) state = order_.after(state, word);
      if (begin + need == end) break;
      if (order_.decided(state)) {
        std::nth_element(begin, begin + (need - 1), end, [](const Candidate& a, const Candidate& b) { return a.row < b.row; });
        break;
      }
      next_words(begin, end, state);
    }
    size_ = kept_;
    set_bound();
  }

  /// Of candidates that tie at a state the words there, and where all agree in them, further on.
  void next_words(Candidate* begin, Candidate* end, SortOrder::State& state) {
    constexpr size_t kBatch = 256;
    uint64_t rows[kBatch], words[kBatch];
    if (order_.in_text(state)) {
      uint64_t shared = ~uint64_t{0};
      for (Candidate* one = begin; one < end && shared; ++one) {
        shared = order_.shared_bytes(state, begin->row, one->row, shared);
      }
      if (shared != ~uint64_t{0}) state.depth += shared;
    }
    for (Candidate* at = begin; at < end; at += kBatch) {
      job_.check();
      const size_t count = std::min<size_t>(kBatch, static_cast<size_t>(end - at));
      for (size_t i = 0; i < count; ++i) rows[i] = at[i].row;
      order_.words(state, rows, count, words);
      for (size_t i = 0; i < count; ++i) at[i].next = words[i];
    }
  }

  /// Every candidate that is kept bounds, the last of them best; one with the greatest word is the last but for ties.
  void set_bound() {
    const Candidate* last = candidates();
    for (const Candidate* one = last + 1; one < candidates() + size_; ++one) {
      if (one->word != last->word) {
        if (one->word > last->word) last = one;
        continue;
      }
      const int order = order_.compare(order_.after_first_word(), one->row, last->row);
      if (order != 0 ? order > 0 : one->row > last->row) last = one;
    }
    bound_ = {last->word, last->row, true};
  }

  const SortOrder& order_;
  const uint64_t rows_, kept_, capacity_;
  Engine& engine_;
  const Job& job_;
  HostBuffer memory_;
  std::mutex mutex_;
  uint64_t size_ = 0;
  Bound bound_;
};

/// Word 0 of rows that are sampled, ascending.
std::vector<uint64_t> sample_words(const SortOrder& order, uint64_t rows) {
  std::vector<uint64_t> words(std::min(rows, kSample));
  for (uint64_t i = 0; i < words.size(); ++i) {
    const uint64_t row = sampled_row(rows, words.size(), i);
    order.first_words(row, row + 1, &words[i]);
  }
  std::sort(words.begin(), words.end());
  return words;
}

/// How many of the sampled rows lie before a bound that nearly always lets `kept` of all rows pass.
uint64_t sampled_before(uint64_t sampled, uint64_t rows, uint64_t kept) {
  const double expected = static_cast<double>(kept) * static_cast<double>(sampled) / static_cast<double>(rows);
  return static_cast<uint64_t>(expected + 4 * std::sqrt(expected) + 4);
}

/// The first candidates as sorted tuples: word 0, and row numbers.
template <class Row>
void sort_candidates(std::span<Candidate> candidates, const SortOrder& order, HostBuffer& words, HostBuffer& rows, Engine& engine,
                     const Job& job) {
  const uint64_t size = candidates.size();
  if (size <= kFew) {
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.word != b.word ? a.word < b.word : a.row < b.row; });
  }
  std::atomic<uint64_t> varying_words{0}, varying_rows{0};
  engine.pool.for_blocks(size, kBlockRows, job, [&](uint64_t begin, uint64_t end) {
    uint64_t words_here = 0, rows_here = 0;
    for (uint64_t i = begin; i < end; ++i) {
      words.as<uint64_t>()[i] = candidates[i].word;
      rows.as<Row>()[i] = static_cast<Row>(candidates[i].row);
      words_here |= candidates[i].word ^ candidates[0].word;
      rows_here |= candidates[i].row ^ candidates[0].row;
    }
    varying_words.fetch_or(words_here, std::memory_order_relaxed);
    varying_rows.fetch_or(rows_here, std::memory_order_relaxed);
  });
  if (size > kFew) {
    HostBuffer other_words = engine.memory->allocate(size * 8, "sorting the first rows");
    HostBuffer other_rows = engine.memory->allocate(size * sizeof(Row), "sorting the first rows");
    const auto sort = [&](TupleLayout layout, HostBuffer& keys, HostBuffer& values, HostBuffer& other_keys,
                          HostBuffer& other_values, uint64_t varying) {
      const TupleSpan here{keys.data(), values.data(), size}, there{other_keys.data(), other_values.data(), size};
      if (sort_on_host(layout, here.view(), here, there, varying, engine, job).keys == here.keys) return;
      std::swap(keys, other_keys);
      std::swap(values, other_values);
    };
    // First by row number, for candidates were found in any order: then the sort by words, which is stable, has ties in order.
    sort({sizeof(Row), 8}, rows, words, other_rows, other_words, varying_rows);
    sort({8, sizeof(Row)}, words, rows, other_words, other_rows, varying_words);
  }
  refine_ties(order, {8, sizeof(Row)}, {words.data(), rows.data(), size}, engine, job);
}

}  // namespace
}  // namespace columns

TopRows top_rows(std::span<const SortColumn> by, uint64_t skip, uint64_t count, Engine& engine, const Job& job) {
  using namespace columns;
  const PlainOrder plain(by, engine, job);
  const uint64_t rows = plain.rows();
  const uint64_t kept = skip < rows ? skip + std::min(count, rows - skip) : 0;
  TopRows top;
  top.row_bytes = row_bytes_for(rows);
  if (kept <= skip) {
    top.rows = engine.memory->allocate(0, "row numbers");
    return top;
  }
  // What the types say will do, mostly. But where texts begin alike, say, word 0 must be of what follows.
  auto order = std::make_unique<SortOrder>(plain.by(), Extents::types, engine, job);
  std::vector<uint64_t> sample = sample_words(*order, rows);
  const uint64_t before = sampled_before(sample.size(), rows, kept);
  const auto bound_of = [&]() -> Bound { return before < sample.size() ? Bound{sample[before], 0, false} : Bound{}; };
  const auto passing = [&] {
    return static_cast<uint64_t>(std::upper_bound(sample.begin(), sample.end(), bound_of().word) - sample.begin());
  };
  if (!order->complete() && passing() > 2 * before + sample.size() / 16) {
    order = std::make_unique<SortOrder>(plain.by(), Extents::values, engine, job);
    sample = sample_words(*order, rows);
  }
  HostBuffer words, numbers;
  {
    Selection selection(*order, rows, kept, engine, job);
    std::span<Candidate> candidates = selection.find(bound_of());
    // The sample misled; or the input changed.
    if (candidates.size() < kept) candidates = selection.find({});
    if (candidates.size() < kept) throw InputChanged();
    words = engine.memory->allocate(kept * 8, "sorting the first rows");
    numbers = engine.memory->allocate(kept * top.row_bytes, "row numbers");
    if (top.row_bytes == 4) {
      sort_candidates<uint32_t>(candidates, *order, words, numbers, engine, job);
    } else {
      sort_candidates<uint64_t>(candidates, *order, words, numbers, engine, job);
    }
  }
  top.size = kept - skip;
  if (skip) std::memmove(numbers.data(), numbers.as<char>() + skip * top.row_bytes, top.size * top.row_bytes);
  numbers.shrink(top.size * top.row_bytes);
  top.rows = std::move(numbers);
  return top;
}

size_t top_rows_bytes(uint64_t rows, uint64_t kept, const Engine& engine) {
  using namespace columns;
  kept = std::min(kept, rows);
  const size_t row_bytes = row_bytes_for(rows);
  const auto block = [](size_t bytes) { return HostMemory::block_bytes(bytes); };
  const size_t sorted = block(kept * 8) + block(kept * row_bytes);
  // Large numbers of rows are sorted with as much again, and the primitive's scratch, which is small.
  const size_t scratch = kept > kFew ? sorted + block(size_t{engine.pool.threads()} << 20) : 0;
  return block(candidates_for(rows, kept) * sizeof(Candidate)) + sorted + scratch;
}

}  // namespace warpjoin
