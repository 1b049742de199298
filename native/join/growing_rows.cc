#include "join/growing_rows.h"

#include <algorithm>
#include <utility>

namespace warpjoin {

GrowingRows::GrowingRows(Engine& engine, const JoinKeys& keys, const JoinRequest& request)
    : engine_(engine), keys_(keys), request_(request) {
  const TupleLayout left = rows_.left_layout = keys.left.tuples.layout;
  const TupleLayout right = rows_.right_layout = keys.right.tuples.layout;
  const bool left_only = left_rows_only(request.kind);
  if (request.want_keys && !request.count_only) pairs_.columns.push_back({&rows_.keys, left.key_bytes, "the keys of a join"});
  if (wants_left(request)) {
    (left_only ? left_ : pairs_).columns.push_back({&rows_.left, left.value_bytes, "the left rows of a join"});
    if (!left_only) left_.columns.push_back({&left_alone_, left.value_bytes, "left rows without a match"});
  }
  if (wants_right(request)) {
    pairs_.columns.push_back({&rows_.right, right.value_bytes, "the right rows of a join"});
    right_.columns.push_back({&right_alone_, right.value_bytes, "right rows without a match"});
  }
  left_.most = keys.left.tuples.view.size;
  right_.most = keys.right.tuples.view.size;
}

std::optional<RowPlaces> GrowingRows::add(const JoinSections& found, double share, bool may_move) {
  const auto more = rows_of(found);
  for (size_t s = 0; s < more.size() && !counts_only(found); ++s) {
    Section& section = *sections()[s];
    const uint64_t rows = section.rows + more[s];
    if (rows <= section.room) continue;
    if (may_move || section.rows == 0) {
      reserve(section, expected(section, rows, share));
    } else if (!reserve_here(section, rows)) {
      return {};
    }
  }
  return take(found);
}

bool GrowingRows::counts_only(const JoinSections& found) const {
  const uint64_t pairs = add_rows(pairs_.rows, found.pairs);
  return request_.count_only || add_rows(pairs, left_.rows + found.left + right_.rows + found.right) > request_.max_rows;
}

void GrowingRows::reserve(Section& section, uint64_t rows) {
  for (const Column& column : section.columns) reserve_column(engine_, *column.data, rows, column.width, column.purpose);
  section.room = rows;
}

bool GrowingRows::reserve_here(Section& section, uint64_t rows) {
  for (const Column& column : section.columns) {
    if (!column.data->grow_here(column_bytes(rows, column.width))) return false;
  }
  section.room = rows;
  return true;
}

/// How much room to make for `rows`: as much as `share` lets expect, but for a 64th, so that memory kept of a result of this size
/// serves the next one. Only for these rows where more might take the room of something else.
uint64_t GrowingRows::expected(const Section& section, uint64_t rows, double share) const {
  const double whole = static_cast<double>(rows) / share;
  if (whole > 0x1p56) return rows;  // no memory holds them
  uint64_t expected = static_cast<uint64_t>(whole);
  expected = std::max(rows, std::min(expected - expected / 64, section.most));
  size_t bytes = 0, alone = 0;
  for (const Column& column : section.columns) bytes += column_bytes(expected - section.room, column.width);
  if (&section == &pairs_) {
    if (wants_left(request_) && keeps_left(request_.kind)) alone += column_bytes(left_.most, rows_.left_layout.value_bytes);
    if (wants_right(request_) && keeps_right(request_.kind)) alone += column_bytes(right_.most, rows_.right_layout.value_bytes);
  }
  const size_t free = engine_.memory->free_bytes();
  return alone <= free && bytes <= (free - alone) / 2 ? expected : rows;
}

/// Where the rows go that there is room for, and behind them the next.
RowPlaces GrowingRows::take(const JoinSections& found) {
  RowPlaces places{};
  if (!counts_only(found)) {
    const bool left_only = left_rows_only(request_.kind);
    const uint8_t left_bytes = rows_.left_layout.value_bytes, right_bytes = rows_.right_layout.value_bytes;
    places = {place(rows_.keys, rows_.left_layout.key_bytes, pairs_.rows), place(rows_.left, left_bytes, pairs_.rows),
              place(rows_.right, right_bytes, pairs_.rows), place(left_only ? rows_.left : left_alone_, left_bytes, left_.rows),
              place(right_alone_, right_bytes, right_.rows)};
  }
  const auto more = rows_of(found);
  for (size_t s = 0; s < more.size(); ++s) sections()[s]->rows += more[s];
  return places;
}

JoinRows GrowingRows::finish(const Job& job) {
  const JoinSections found{.pairs = pairs_.rows, .left = left_.rows, .right = right_.rows};
  const JoinSections sections = with_excluded(found, keys_, request_.kind);
  JoinRows rows = make_rows(engine_, keys_, request_, sections, job, std::move(rows_));
  const RowPlaces places = places_in(rows, sections);
  const auto copy_alone = [&](void* to, const HostBuffer& from, uint64_t count, uint8_t width) {
    if (to && from) copy_bytes(engine_, to, from.data(), count * width, job);
  };
  copy_alone(places.left_alone, left_alone_, sections.left, rows.left_layout.value_bytes);
  copy_alone(places.right_alone, right_alone_, sections.right, rows.right_layout.value_bytes);
  left_alone_ = HostBuffer(), right_alone_ = HostBuffer();
  rows.keys.shrink(rows.size * rows.left_layout.key_bytes);
  rows.left.shrink(rows.size * rows.left_layout.value_bytes);
  rows.right.shrink(rows.size * rows.right_layout.value_bytes);
  return rows;
}

}  // namespace warpjoin
