#include "join/resolve.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

namespace warpjoin {
namespace {

constexpr uint64_t kGrain = 1 << 16;  // rows a task looks at; a multiple of 64

HostBuffer widen(Engine& engine, const HostBuffer& narrow, uint64_t rows, const Job& job) {
  HostBuffer wide = engine.memory->allocate(rows * 8, "the candidate pairs of a join");
  engine.pool.for_blocks(rows, kGrain, job, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) wide.as<uint64_t>()[i] = narrow.as<uint32_t>()[i];
  });
  return wide;
}

/// Which rows of a side are in a pair.
class RowSet {
 public:
  template <class Row>
  RowSet(Engine& engine, const Row* members, uint64_t count, uint64_t rows, const Job& job)
      : engine_(engine),
        rows_(rows),
        words_(engine.memory->allocate((rows + 63) / 64 * 8, "the matched rows of a join")),
        ranks_((rows + kGrain - 1) / kGrain + 1) {
    const uint64_t blocks = ranks_.size() - 1;
    engine.pool.for_blocks(blocks, 16, job, [&](uint64_t begin, uint64_t end) {
      const uint64_t first = begin * kGrain / 64, last = std::min(end * kGrain, rows_ + 63) / 64;
      std::memset(words_.as<uint64_t>() + first, 0, (last - first) * 8);
    });
    for_tasks(count, job, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; ++i) {
        const std::atomic_ref<uint64_t> word(words_.as<uint64_t>()[members[i] / 64]);
        const uint64_t bit = uint64_t{1} << (members[i] % 64);
        if (!(word.load(std::memory_order_relaxed) & bit)) word.fetch_or(bit, std::memory_order_relaxed);
      }
    });
    for_tasks(rows, job, [&](uint64_t begin, uint64_t end) {
      uint64_t members_here = 0;
      for (uint64_t w = begin / 64; w < (end + 63) / 64; ++w) {
        members_here += static_cast<uint64_t>(std::popcount(words_.as<uint64_t>()[w]));
      }
      ranks_[begin / kGrain + 1] = members_here;
    });
    for (uint64_t b = 0; b < blocks; ++b) ranks_[b + 1] += ranks_[b];
  }

  uint64_t members() const { return ranks_.back(); }
  uint64_t others() const { return rows_ - members(); }

  /// Writes the members, or the other rows, in ascending order.
  template <class Row>
  void write(bool members, Row* out, const Job& job) const {
    for_tasks(rows_, job, [&](uint64_t begin, uint64_t end) {
      const uint64_t rank = ranks_[begin / kGrain];
      Row* to = out + (members ? rank : begin - rank);
      for (uint64_t w = begin / 64; w * 64 < end; ++w) {
        uint64_t bits = words_.as<uint64_t>()[w];
        if (!members) bits = ~bits;
        if (end - w * 64 < 64) bits &= (uint64_t{1} << (end - w * 64)) - 1;
        for (; bits; bits &= bits - 1) *to++ = static_cast<Row>(w * 64 + static_cast<uint64_t>(std::countr_zero(bits)));
      }
    });
  }

 private:
  template <class F>
  void for_tasks(uint64_t size, const Job& job, F&& body) const {
    engine_.pool.parallel_for((size + kGrain - 1) / kGrain, [&](uint64_t task) {
      job.check();
      body(task * kGrain, std::min(size, (task + 1) * kGrain));
    });
  }

  Engine& engine_;
  uint64_t rows_;
  HostBuffer words_;
  std::vector<uint64_t> ranks_;  // members before each block of kGrain rows
};

template <class Row>
JoinRows resolve(Engine& engine, const JoinKeys& keys, const JoinRequest& request, JoinRows found, uint64_t pairs,
                 const Job& job) {
  const bool semi = request.kind == JoinKind::semi;
  std::optional<RowSet> left, right;
  if (semi || keeps_left(request.kind)) left.emplace(engine, found.left.as<Row>(), pairs, keys.left.rows, job);
  if (keeps_right(request.kind)) right.emplace(engine, found.right.as<Row>(), pairs, keys.right.rows, job);

  JoinSections sections;
  if (!left_rows_only(request.kind)) sections.pairs = pairs;
  if (left) sections.left = semi ? left->members() : left->others();
  if (right) sections.right = right->others();

  JoinRows rows;
  rows.size = sections.size();
  rows.left_layout = found.left_layout;
  rows.right_layout = found.right_layout;
  rows.skew = found.skew;
  rows.split_rows = found.split_rows;
  rows.left_may_be_missing = sections.right > 0;
  rows.right_may_be_missing = !left_rows_only(request.kind) && sections.left > 0;
  check_max_rows(rows.size, request.max_rows);
  if (request.count_only) return rows;

  const auto column = [&](HostBuffer pair_rows, const char* purpose) {
    if (sections.size() == sections.pairs) {
      pair_rows.shrink(sections.pairs * sizeof(Row));
      return pair_rows;
    }
    HostBuffer whole = engine.memory->allocate(sections.size() * sizeof(Row), purpose);
    engine.pool.for_blocks(sections.pairs, kGrain, job, [&](uint64_t begin, uint64_t end) {
      std::memcpy(whole.as<Row>() + begin, pair_rows.as<Row>() + begin, (end - begin) * sizeof(Row));
    });
    return whole;
  };
  if (wants_left(request)) {
    rows.left = column(std::move(found.left), "the left rows of a join");
    if (left) left->write(semi, rows.left.as<Row>() + sections.left_begin(), job);
    fill_missing(engine, rows.left, sizeof(Row), sections.right_begin(), sections.right, job);
  }
  found.left = HostBuffer();
  if (wants_right(request)) {
    rows.right = column(std::move(found.right), "the right rows of a join");
    if (right) right->write(false, rows.right.as<Row>() + sections.right_begin(), job);
    fill_missing(engine, rows.right, sizeof(Row), sections.left_begin(), sections.left, job);
  }
  return rows;
}

}  // namespace

PairVerifier column_verifier(JoinColumns columns, Engine& engine, const Job& job) {
  return [columns, &engine, &job](void* left_rows, void* right_rows, uint8_t row_bytes, uint64_t pairs) {
    return verify_pairs(*columns.left, *columns.right, left_rows, right_rows, row_bytes, pairs, engine, job);
  };
}

JoinRequest candidate_request(const JoinRequest& request) { return {.kind = JoinKind::inner, .build_left = request.build_left}; }

JoinRows resolve_pairs(Engine& engine, const JoinKeys& keys, const JoinRequest& request, JoinRows candidates,
                       const PairVerifier& verify, Job& job) {
  const PhaseTimer timer(job, "verify");
  uint8_t &left_bytes = candidates.left_layout.value_bytes, &right_bytes = candidates.right_layout.value_bytes;
  if (left_bytes < right_bytes) candidates.left = widen(engine, candidates.left, candidates.size, job);
  if (right_bytes < left_bytes) candidates.right = widen(engine, candidates.right, candidates.size, job);
  left_bytes = right_bytes = std::max(left_bytes, right_bytes);
  const uint64_t pairs = verify(candidates.left.data(), candidates.right.data(), left_bytes, candidates.size);
  return left_bytes == 4 ? resolve<uint32_t>(engine, keys, request, std::move(candidates), pairs, job)
                         : resolve<uint64_t>(engine, keys, request, std::move(candidates), pairs, job);
}

}  // namespace warpjoin
