#include "join/order_rows.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"
#include "join/join_rows.h"
#include "primitives/host/blocks.h"
#include "primitives/host/bucket_sort.h"
#include "primitives/host/sort_tuples.h"
#include "primitives/host/tuple_access.h"

namespace warpjoin {
namespace {

constexpr uint64_t kGrain = uint64_t{1} << 16;  // rows a task looks at
/// Rows of one row of the side that one thread sorts; all threads share those of a row with more.
constexpr uint64_t kLongRun = uint64_t{1} << 16;

/// The bits that order row numbers below `rows`, and those that are missing behind them.
uint64_t bits_of_rows(uint64_t rows) { return rows ? ~uint64_t{0} >> std::countl_zero(rows) : 0; }

/// `Other` is host::NoValue where the rows lack the other side.
template <class Row, class Other>
class Ordering {
 public:
  Ordering(Engine& engine, JoinRows& rows, bool by_left, uint64_t side_bits, uint64_t other_bits, Job& job)
      : engine_(engine),
        size_(rows.size),
        side_buffer_(by_left ? rows.left : rows.right),
        other_buffer_(by_left ? rows.right : rows.left),
        side_bits_(side_bits),
        other_bits_(other_bits),
        job_(job) {}

  void run() {
    job_.add_planned(2 * size_);
    if (in_order()) return job_.add_done(2 * size_);
    if (!ascends_) sort_by_side();
    job_.add_done(size_);
    if constexpr (kOther) order_ties();
    job_.add_done(size_);
  }

  static size_t bytes(Engine& engine, uint64_t size) {
    // A run of all rows is sorted in what the sort has left.
    return HostMemory::block_bytes(size * sizeof(Row)) + (kOther ? HostMemory::block_bytes(size * kOtherBytes) : 0) +
           HostMemory::block_bytes(host::sort_tuples_scratch_bytes(engine.pool, kLayout, size)) + runner_bytes(engine);
  }

 private:
  static constexpr bool kOther = host::has_values<Other>;
  static constexpr uint8_t kOtherBytes = kOther ? sizeof(Other) : 0;
  static constexpr TupleLayout kLayout{sizeof(Row), kOtherBytes};

  const Row* side() const { return side_buffer_.as<Row>(); }
  Other* other() const { return other_buffer_.as<Other>(); }

  /// A look at all rows, which ends soon after the first that are out of order. Notes whether those of the side ascend.
  bool in_order() {
    std::atomic<bool> ascends{true}, ordered{true};
    engine_.pool.parallel_for((size_ + kGrain - 1) / kGrain, [&](uint64_t task) {
      job_.check();
      if (!ascends.load(std::memory_order_relaxed)) return;
      // Tasks share a row, so that the step between them is checked.
      const uint64_t begin = task ? task * kGrain - 1 : 0, end = std::min(size_, (task + 1) * kGrain);
      if (!host::is_sorted(side() + begin, end - begin)) {
        ascends.store(false, std::memory_order_relaxed);
      } else if constexpr (kOther) {
        if (!ordered.load(std::memory_order_relaxed)) return;
        if (next_inversion(begin, end) < end) ordered.store(false, std::memory_order_relaxed);
      }
    });
    ascends_ = ascends;
    return ascends && ordered;
  }

  void sort_by_side() {
    const PhaseTimer timer(job_, "order by side", 2 * size_ * kLayout.tuple_bytes());
    HostBuffer rows = engine_.memory->allocate(size_ * sizeof(Row), "the ordered rows of a join"), others;
    if constexpr (kOther) others = engine_.memory->allocate(size_ * kOtherBytes, "the ordered rows of a join");
    const HostBuffer scratch =
        engine_.memory->allocate(host::sort_tuples_scratch_bytes(engine_.pool, kLayout, size_), "ordering the rows of a join");
    const TupleSpan from{side_buffer_.data(), kOther ? other_buffer_.data() : nullptr, size_};
    const TupleSpan to{rows.data(), kOther ? others.data() : nullptr, size_};
    host::sort_tuples(engine_.pool, kLayout, from.view(), from, to, side_bits_, scratch.data(), job_);
    side_buffer_ = std::move(rows);
    if constexpr (kOther) other_buffer_ = std::move(others);
  }

  static size_t runner_bytes(Engine& engine) {
    return kOther ? HostMemory::block_bytes(engine.pool.threads() * kLongRun * kOtherBytes) : 0;
  }

  struct Run {
    uint64_t begin, end;
  };

  bool is_tie(uint64_t i) const { return side()[i] == side()[i - 1]; }

  /// The first row after `begin` and below `end` that is equal to the row before it, with a lesser row of the other side; or
  /// `end`.
  uint64_t next_inversion(uint64_t begin, uint64_t end) const {
    constexpr uint64_t kStep = 64;  // looked at without a branch, so that the loop vectorizes
    const auto inverted = [&](uint64_t i) -> unsigned { return (side()[i] == side()[i - 1]) & (other()[i] < other()[i - 1]); };
    uint64_t i = begin + 1;
    for (; i + kStep <= end; i += kStep) {
      unsigned inversions = 0;
      for (uint64_t j = i; j < i + kStep; ++j) inversions |= inverted(j);
      if (inversions) break;
    }
    while (i < end && !inverted(i)) ++i;
    return std::min(i, end);
  }

  /// The first of the rows from `least` on that are equal to row `i` of the side, which ascends.
  uint64_t run_begin(uint64_t least, uint64_t i) const {
    return static_cast<uint64_t>(std::lower_bound(side() + least, side() + i, side()[i]) - side());
  }

  /// The end of the run of rows that are equal to row `i` of the side, which ascends.
  uint64_t run_end(uint64_t i) const {
    const Row row = side()[i];
    for (uint64_t end = i + 1, step = 1;; step *= 2) {
      if (end < size_ && side()[end] == row) {
        end += step;
        continue;
      }
      const uint64_t last = std::min(end, size_);
      return static_cast<uint64_t>(std::upper_bound(side() + i, side() + last, row) - side());
    }
  }

  /// Orders the rows of the other side among equal ones of this side. Host joins find nearly all of them in order.
  void order_ties() {
    const PhaseTimer timer(job_, "order ties", size_ * kLayout.tuple_bytes());
    const HostBuffer spare =
        engine_.memory->allocate(engine_.pool.threads() * kLongRun * kOtherBytes, "ordering the rows of a join");
    std::vector<Run> long_runs;
    std::mutex mutex;
    host::for_each_task(engine_.pool, (size_ + kGrain - 1) / kGrain, job_, [&](uint64_t task, uint64_t runner) {
      // A run belongs to the task that it begins in.
      uint64_t begin = task * kGrain, end = std::min(size_, begin + kGrain);
      if (begin > 0 && is_tie(begin)) begin = run_end(begin);
      if (begin < end && end < size_ && is_tie(end)) end = run_end(end);
      for (uint64_t i = begin; i < end && (i = next_inversion(i, end)) < end;) {
        const Run run{run_begin(begin, i), run_end(i)};
        if (run.end - run.begin > kLongRun) {
          const std::lock_guard lock(mutex);
          long_runs.push_back(run);
        } else {
          const host::Tuples<Other, host::NoValue> tuples(other() + run.begin, nullptr);
          const host::Tuples<Other, host::NoValue> own(spare.as<Other>() + runner * kLongRun, nullptr);
          host::BucketSort<Other, host::NoValue>(own).run(tuples.view(run.end - run.begin), tuples, other_bits_);
        }
        i = run.end;
      }
    });
    std::sort(long_runs.begin(), long_runs.end(), [](const Run& a, const Run& b) { return a.begin < b.begin; });
    for (const Run& run : long_runs) sort_long(run);
  }

  void sort_long(const Run& run) {
    constexpr TupleLayout kAlone{kOtherBytes, 0};
    const uint64_t size = run.end - run.begin;
    const HostBuffer sorted = engine_.memory->allocate(size * kOtherBytes, "ordering the rows of a join"),
                     scratch = engine_.memory->allocate(host::sort_tuples_scratch_bytes(engine_.pool, kAlone, size),
                                                        "ordering the rows of a join");
    const TupleSpan from{other() + run.begin, nullptr, size}, to{sorted.data(), nullptr, size};
    host::sort_tuples(engine_.pool, kAlone, from.view(), from, to, other_bits_, scratch.data(), job_);
    copy_bytes(engine_, from.keys, sorted.data(), size * kOtherBytes, job_);
  }

  Engine& engine_;
  const uint64_t size_;
  HostBuffer &side_buffer_, &other_buffer_;
  const uint64_t side_bits_, other_bits_;
  Job& job_;
  bool ascends_ = false;
};

/// Calls body(Row{}, Other{}) with the types of row numbers of these widths.
template <class Body>
decltype(auto) with_rows(uint8_t row_bytes, uint8_t other_bytes, Body&& body) {
  return host::with_layout({row_bytes, other_bytes}, body);
}

}  // namespace

void order_rows(Engine& engine, JoinRows& rows, bool by_left, uint64_t side_rows, uint64_t other_rows, Job& job) {
  rows.group_ends.clear();
  const HostBuffer &side = by_left ? rows.left : rows.right, &other = by_left ? rows.right : rows.left;
  if (!side) throw Error(ErrorCode::option, "The row numbers to order by have been taken, or were not asked for");
  if (rows.keys) throw Error(ErrorCode::option, "Rows that have keys can't be ordered");
  const TupleLayout &layout = by_left ? rows.left_layout : rows.right_layout,
                    &other_layout = by_left ? rows.right_layout : rows.left_layout;
  with_rows(layout.value_bytes, other ? other_layout.value_bytes : 0, [&]<class Row, class Other>(Row, Other) {
    Ordering<Row, Other>(engine, rows, by_left, bits_of_rows(side_rows), bits_of_rows(other_rows), job).run();
  });
}

size_t order_rows_bytes(Engine& engine, uint64_t size, uint8_t row_bytes, uint8_t other_bytes) {
  column_bytes(size, 16);  // throws where no memory could hold it
  return with_rows(row_bytes, other_bytes,
                   [&]<class Row, class Other>(Row, Other) { return Ordering<Row, Other>::bytes(engine, size); });
}

void slice_rows(Engine& engine, JoinRows& rows, uint64_t offset, uint64_t limit, const Job& job) {
  rows.group_ends.clear();
  offset = std::min(offset, rows.size);
  const uint64_t size = std::min(limit, rows.size - offset);
  const auto slice = [&](HostBuffer& column, uint8_t width) {
    if (!column || size == rows.size) return;
    if (offset >= size) {  // the places don't overlap
      copy_bytes(engine, column.data(), column.as<char>() + offset * width, size * width, job);
    } else {
      std::memmove(column.data(), column.as<char>() + offset * width, size * width);
    }
    column.shrink(std::max<uint64_t>(1, size * width));
  };
  slice(rows.keys, rows.left_layout.key_bytes);
  slice(rows.left, rows.left_layout.value_bytes);
  slice(rows.right, rows.right_layout.value_bytes);
  rows.size = size;
}

}  // namespace warpjoin
