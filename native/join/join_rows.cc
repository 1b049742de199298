#include "join/join_rows.h"

#include <cstring>

namespace warpjoin {
namespace {

constexpr uint64_t kCopyBytes = 1 << 20;

}  // namespace

uint64_t add_rows(uint64_t a, uint64_t b) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) throw Error(ErrorCode::not_supported, "The join gives more than 2^64 - 1 rows");
  return sum;
}

uint64_t multiply_rows(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) throw Error(ErrorCode::not_supported, "The join gives more than 2^64 - 1 rows");
  return product;
}

size_t column_bytes(uint64_t rows, uint8_t width) {
  if (rows > uint64_t{1} << 56) throw Error(ErrorCode::memory_limit, std::to_string(rows) + " rows fit no memory");
  return rows * width;
}

void check_request(const JoinKeys& keys, const JoinRequest& request) {
  if (request.want_keys && request.kind != JoinKind::inner) {
    throw Error(ErrorCode::not_supported, "Only inner joins give the keys");
  }
  const auto missing = [](bool wanted, const JoinSide& side) { return wanted && side.tuples.layout.value_bytes == 0; };
  if (missing(wants_left(request), keys.left) || missing(wants_right(request), keys.right)) {
    throw Error(ErrorCode::not_supported, "A join gives the values of tuples only where they have some");
  }
}

JoinSections tuple_sections(JoinKind kind, uint64_t left_tuples, uint64_t right_tuples, const JoinCounts& counts) {
  JoinSections sections;
  if (!left_rows_only(kind)) sections.pairs = counts.pairs;
  if (kind == JoinKind::semi) sections.left = counts.left_matched;
  if (keeps_left(kind)) sections.left = left_tuples - counts.left_matched;
  if (keeps_right(kind)) sections.right = right_tuples - counts.right_matched;
  return sections;
}

JoinSections with_excluded(JoinSections sections, const JoinKeys& keys, JoinKind kind) {
  if (keeps_left(kind)) sections.left_excluded = keys.left.excluded_rows;
  if (keeps_right(kind)) sections.right_excluded = keys.right.excluded_rows;
  add_rows(sections.pairs, add_rows(sections.left + sections.left_excluded, sections.right + sections.right_excluded));
  return sections;
}

JoinSections join_sections(const JoinKeys& keys, JoinKind kind, const JoinCounts& counts) {
  return with_excluded(tuple_sections(kind, keys.left.tuples.view.size, keys.right.tuples.view.size, counts), keys, kind);
}

void check_max_rows(uint64_t rows, uint64_t max_rows) {
  if (rows > max_rows) {
    throw Error(ErrorCode::output_rows,
                "The join gives " + std::to_string(rows) + " rows, more than the " + std::to_string(max_rows) + " allowed");
  }
}

void fill_missing(Engine& engine, const HostBuffer& column, uint8_t row_bytes, uint64_t begin, uint64_t rows, const Job& job) {
  char* const first = column.as<char>() + begin * row_bytes;
  engine.pool.for_blocks(rows * row_bytes, kCopyBytes, job,
                         [&](uint64_t from, uint64_t to) { std::memset(first + from, 0xFF, to - from); });
}

void copy_bytes(Engine& engine, void* to, const void* from, uint64_t bytes, const Job& job) {
  engine.pool.for_blocks(bytes, kCopyBytes, job, [&](uint64_t begin, uint64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, end - begin);
  });
}

void reserve_column(Engine& engine, HostBuffer& column, uint64_t rows, uint8_t width, const char* purpose) {
  const size_t bytes = column_bytes(rows, width);
  if (column) {
    column.grow(bytes, purpose);
  } else {
    column = engine.memory->allocate(bytes, purpose);
  }
}

void reserve_columns(Engine& engine, const JoinRequest& request, JoinRows& rows, uint64_t size) {
  if (request.want_keys) reserve_column(engine, rows.keys, size, rows.left_layout.key_bytes, "the keys of a join");
  if (wants_left(request)) reserve_column(engine, rows.left, size, rows.left_layout.value_bytes, "the left rows of a join");
  if (wants_right(request)) reserve_column(engine, rows.right, size, rows.right_layout.value_bytes, "the right rows of a join");
}

JoinRows make_rows(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const JoinSections& sections, const Job& job,
                   JoinRows rows) {
  rows.size = sections.size();
  rows.left_layout = keys.left.tuples.layout;
  rows.right_layout = keys.right.tuples.layout;
  check_max_rows(rows.size, request.max_rows);
  const uint64_t left_alone = sections.left + sections.left_excluded, right_alone = sections.right + sections.right_excluded;
  rows.left_may_be_missing = right_alone > 0;
  rows.right_may_be_missing = !left_rows_only(request.kind) && left_alone > 0;
  if (request.count_only) return rows;
  reserve_columns(engine, request, rows, rows.size);
  const uint8_t left_bytes = rows.left_layout.value_bytes, right_bytes = rows.right_layout.value_bytes;
  if (wants_left(request)) {
    copy_bytes(engine, rows.left.as<char>() + sections.left_excluded_begin() * left_bytes, keys.left.excluded.data(),
               sections.left_excluded * left_bytes, job);
    fill_missing(engine, rows.left, left_bytes, sections.right_begin(), right_alone, job);
  }
  if (wants_right(request)) {
    copy_bytes(engine, rows.right.as<char>() + sections.right_excluded_begin() * right_bytes, keys.right.excluded.data(),
               sections.right_excluded * right_bytes, job);
    fill_missing(engine, rows.right, right_bytes, sections.left_begin(), left_alone, job);
  }
  return rows;
}

}  // namespace warpjoin
