// The shape of a join's result, the same for all join algorithms.
#pragma once

#include "join/join.h"

namespace warpjoin {

/// What a join found among the tuples (rows that can match).
struct JoinCounts {
  uint64_t pairs = 0, left_matched = 0, right_matched = 0;
};

/// The parts of a result in their order: pairs, left rows alone, right rows alone. Left rows of a semi join are those
/// with a match; otherwise rows alone are those without.
struct JoinSections {
  uint64_t pairs = 0;
  uint64_t left = 0, left_excluded = 0;
  uint64_t right = 0, right_excluded = 0;

  uint64_t left_begin() const { return pairs; }
  uint64_t left_excluded_begin() const { return pairs + left; }
  uint64_t right_begin() const { return pairs + left + left_excluded; }
  uint64_t right_excluded_begin() const { return right_begin() + right; }
  uint64_t size() const { return right_excluded_begin() + right_excluded; }
};

constexpr bool left_rows_only(JoinKind kind) { return kind == JoinKind::semi || kind == JoinKind::anti; }
/// Whether left, or right, rows without a match are in the result.
constexpr bool keeps_left(JoinKind kind) { return kind == JoinKind::left || kind == JoinKind::full || kind == JoinKind::anti; }
constexpr bool keeps_right(JoinKind kind) { return kind == JoinKind::right || kind == JoinKind::full; }
constexpr bool wants_left(const JoinRequest& request) { return request.want_left && !request.count_only; }
constexpr bool wants_right(const JoinRequest& request) {
  return request.want_right && !request.count_only && !left_rows_only(request.kind);
}

/// A side's layout where values that the result does not want are left out.
constexpr TupleLayout wanted_layout(TupleLayout layout, bool wants_values) {
  return {layout.key_bytes, wants_values ? layout.value_bytes : uint8_t{0}};
}

/// Adds; throws Error(not_supported) past 2^64 - 1 rows.
uint64_t add_rows(uint64_t a, uint64_t b);
uint64_t multiply_rows(uint64_t a, uint64_t b);

/// Bytes of a result column; throws Error(memory_limit) where no memory could hold it.
size_t column_bytes(uint64_t rows, uint8_t width);

/// Throws Error(not_supported) for what no join does: keys of other than inner joins, values that tuples lack.
void check_request(const JoinKeys& keys, const JoinRequest& request);

/// The sections of a join of so many tuples, without excluded rows.
JoinSections tuple_sections(JoinKind kind, uint64_t left_tuples, uint64_t right_tuples, const JoinCounts& counts);
/// These and the rows that can't match, of the whole join.
JoinSections with_excluded(JoinSections sections, const JoinKeys& keys, JoinKind kind);
/// The sections of the whole join.
JoinSections join_sections(const JoinKeys& keys, JoinKind kind, const JoinCounts& counts);

/// Throws Error(output_rows), naming both numbers, if `rows` are more than the request allows.
void check_max_rows(uint64_t rows, uint64_t max_rows);

/// Makes room for so many rows in a column, or in all that were asked for; what is there stays.
void reserve_column(Engine& engine, HostBuffer& column, uint64_t rows, uint8_t width, const char* purpose);
void reserve_columns(Engine& engine, const JoinRequest& request, JoinRows& rows, uint64_t size);

/// Reserves the result (only its size with count_only), fills in missing and excluded rows, and leaves pairs and rows
/// alone to the algorithm. `rows`: columns that have some rows already.
JoinRows make_rows(Engine& engine, const JoinKeys& keys, const JoinRequest& request, const JoinSections& sections, const Job& job,
                   JoinRows rows = {});

void copy_bytes(Engine& engine, void* to, const void* from, uint64_t bytes, const Job& job);
/// Sets `rows` row numbers from `begin` on to all-ones.
void fill_missing(Engine& engine, const HostBuffer& column, uint8_t row_bytes, uint64_t begin, uint64_t rows, const Job& job);

}  // namespace warpjoin
