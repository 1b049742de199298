#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "join/join_rows.h"

namespace warpjoin {
namespace {

constexpr uint64_t kGrain = 1 << 16;  // rows a task looks at; a multiple of 64

template <class F>
void for_tasks(Engine& engine, uint64_t size, const Job& job, F&& body) {
  engine.pool.parallel_for((size + kGrain - 1) / kGrain, [&](uint64_t task) {
    job.check();
    body(task * kGrain, std::min(size, (task + 1) * kGrain));
  });
}

/// A set of rows. Rows are added before it is counted, and counted before it is read.
class RowSet {
 public:
  RowSet(Engine& engine, uint64_t rows, const Job& job)
      : engine_(engine),
        rows_(rows),
        words_(engine.memory->allocate((rows + 63) / 64 * 8, "the matched rows of a join")),
        ranks_((rows + kGrain - 1) / kGrain + 1) {
    for_tasks(engine, rows, job, [&](uint64_t begin, uint64_t end) {
      std::memset(words_.as<uint64_t>() + begin / 64, 0, (end - begin + 63) / 64 * 8);
    });
  }

  /// Thread-safe.
  void add(uint64_t row) {
    const std::atomic_ref<uint64_t> word(words_.as<uint64_t>()[row / 64]);
    const uint64_t bit = uint64_t{1} << (row % 64);
    if (!(word.load(std::memory_order_relaxed) & bit)) word.fetch_or(bit, std::memory_order_relaxed);
  }

  /// Returns how many rows were added.
  uint64_t count(const Job& job) {
    for_tasks(engine_, rows_, job, [&](uint64_t begin, uint64_t end) {
      uint64_t members = 0;
      for (uint64_t w = begin / 64; w < (end + 63) / 64; ++w) {
        members += static_cast<uint64_t>(std::popcount(words_.as<uint64_t>()[w]));
      }
      ranks_[begin / kGrain + 1] = members;
    });
    for (size_t b = 1; b < ranks_.size(); ++b) ranks_[b] += ranks_[b - 1];
    return ranks_.back();
  }

  /// Calls body(i, row) for the rows that were added, or for the others: row i of them in ascending order.
  template <class Body>
  void for_rows(bool added, const Job& job, Body&& body) const {
    for_tasks(engine_, rows_, job, [&](uint64_t begin, uint64_t end) {
      const uint64_t rank = ranks_[begin / kGrain];
      uint64_t i = added ? rank : begin - rank;
      for (uint64_t w = begin / 64; w * 64 < end; ++w) {
        uint64_t bits = words_.as<uint64_t>()[w];
        if (!added) bits = ~bits;
        if (end - w * 64 < 64) bits &= (uint64_t{1} << (end - w * 64)) - 1;
        for (; bits; bits &= bits - 1) body(i++, w * 64 + static_cast<uint64_t>(std::countr_zero(bits)));
      }
    });
  }

 private:
  Engine& engine_;
  uint64_t rows_;
  HostBuffer words_;
  std::vector<uint64_t> ranks_;  // rows that were added before each block of kGrain rows
};

/// One side's values: of its tuples, or of its rows.
template <class Value>
class Values {
 public:
  explicit Values(const JoinSide& side)
      : values_(static_cast<const Value*>(side.tuples.view.values)), payload_(side.carries_payload) {}
  Value of_tuple(uint64_t i) const { return values_ ? values_[i] : static_cast<Value>(i); }
  /// A side that carries a payload has all its rows as tuples.
  Value of_row(uint64_t row) const { return payload_ ? values_[row] : static_cast<Value>(row); }

 private:
  const Value* values_;
  bool payload_;
};

/// `Table` and `Probe`: the values of the side that is looked up in, and of the other.
template <class Key, class Table, class Probe>
class LookupJoin {
 public:
  LookupJoin(Engine& engine, const JoinKeys& keys, const JoinRequest& request, Job& job)
      : engine_(engine),
        keys_(keys),
        request_(request),
        job_(job),
        table_is_left_(keys.left.keys_are_rows),
        table_(table_is_left_ ? keys.left : keys.right),
        probe_(table_is_left_ ? keys.right : keys.left),
        probe_keys_(static_cast<const Key*>(probe_.tuples.view.keys)) {}

  JoinRows run() {
    const PhaseTimer timer(job_, "look up", probe_.tuples.view.size * sizeof(Key));
    job_.add_planned(probe_.tuples.view.size);
    const bool keeps_table = table_is_left_ ? keeps_left(request_.kind) : keeps_right(request_.kind);
    const bool semi = request_.kind == JoinKind::semi && table_is_left_;
    JoinCounts counts{.pairs = probe_.tuples.view.size};
    uint64_t& table_matched = table_is_left_ ? counts.left_matched : counts.right_matched;
    (table_is_left_ ? counts.right_matched : counts.left_matched) = counts.pairs;
    std::optional<RowSet> matched;
    if (keeps_table || semi) table_matched = find_matched(matched.emplace(engine_, table_.rows, job_), keeps_table);
    const JoinSections sections = join_sections(keys_, request_.kind, counts);
    JoinRows rows = make_rows(engine_, keys_, request_, sections, job_);
    if (!request_.count_only) {
      if (sections.pairs) write_pairs(rows);
      if (sections.left) write_left(rows, sections, matched);
      if (sections.right && rows.right) write_table(*matched, false, rows.right, sections.right_begin());
    }
    job_.add_done(probe_.tuples.view.size);
    return rows;
  }

 private:
  /// Returns how many rows of the table match. With `others_wanted` the set gets those that can't, too: it is asked for the
  /// others.
  uint64_t find_matched(RowSet& rows, bool others_wanted) {
    for_tasks(engine_, probe_.tuples.view.size, job_, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) rows.add(probe_keys_[i]);
    });
    if (others_wanted) {
      for_tasks(engine_, table_.excluded_rows, job_, [&](uint64_t begin, uint64_t end) {
        const bool narrow = table_.tuples.layout.value_bytes == 4;
        for (uint64_t i = begin; i < end; ++i)
          rows.add(narrow ? table_.excluded.as<uint32_t>()[i] : table_.excluded.as<uint64_t>()[i]);
      });
    }
    return rows.count(job_) - (others_wanted ? table_.excluded_rows : 0);
  }

  void write_pairs(JoinRows& rows) {
    Table* const table_out = (table_is_left_ ? rows.left : rows.right).template as<Table>();
    Probe* const probe_out = (table_is_left_ ? rows.right : rows.left).template as<Probe>();
    const Values<Table> table(table_);
    const Values<Probe> probe(probe_);
    for_tasks(engine_, probe_.tuples.view.size, job_, [&](uint64_t begin, uint64_t end) {
      if (table_out) {
        for (uint64_t i = begin; i < end; ++i) table_out[i] = table.of_row(probe_keys_[i]);
      }
      if (probe_out) {
        for (uint64_t i = begin; i < end; ++i) probe_out[i] = probe.of_tuple(i);
      }
    });
  }

  /// The left rows alone. Of a probe side all tuples match: they are those of a semi join.
  void write_left(JoinRows& rows, const JoinSections& sections, const std::optional<RowSet>& matched) {
    if (!rows.left) return;
    if (table_is_left_) {
      write_table(*matched, request_.kind == JoinKind::semi, rows.left, sections.left_begin());
      return;
    }
    Probe* const out = rows.left.as<Probe>() + sections.left_begin();
    const Values<Probe> probe(probe_);
    for_tasks(engine_, probe_.tuples.view.size, job_, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) out[i] = probe.of_tuple(i);
    });
  }

  void write_table(const RowSet& matched, bool added, const HostBuffer& column, uint64_t at) {
    Table* const out = column.as<Table>() + at;
    const Values<Table> table(table_);
    matched.for_rows(added, job_, [&](uint64_t i, uint64_t row) { out[i] = table.of_row(row); });
  }

  Engine& engine_;
  const JoinKeys& keys_;
  const JoinRequest& request_;
  Job& job_;
  const bool table_is_left_;
  const JoinSide &table_, &probe_;
  const Key* const probe_keys_;
};

/// Calls body(T{}) with the unsigned type of a width.
template <class Body>
JoinRows with_width(uint8_t bytes, Body&& body) {
  return bytes == 4 ? body(uint32_t{}) : body(uint64_t{});
}

}  // namespace

JoinRows lookup_join(Engine& engine, const JoinKeys& keys, const JoinRequest& request, Job& job) {
  check_request(keys, request);
  if (!keys.left.keys_are_rows && !keys.right.keys_are_rows) {
    throw Error(ErrorCode::not_supported, "A lookup join needs a side whose keys are its row numbers");
  }
  if (request.want_keys) throw Error(ErrorCode::not_supported, "A lookup join has no keys to give: they are row numbers");
  const TupleLayout left = keys.left.tuples.layout, right = keys.right.tuples.layout;
  const bool table_is_left = keys.left.keys_are_rows;
  return with_width(left.key_bytes, [&]<class Key>(Key) {
    return with_width((table_is_left ? left : right).value_bytes, [&]<class Table>(Table) {
      return with_width((table_is_left ? right : left).value_bytes,
                        [&]<class Probe>(Probe) { return LookupJoin<Key, Table, Probe>(engine, keys, request, job).run(); });
    });
  });
}

}  // namespace warpjoin
