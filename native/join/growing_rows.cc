#include "join/growing_rows.h"

#include <algorithm>
#include <utility>

namespace warpjoin {

GrowingRows::GrowingRows(Engine& engine, const JoinKeys& keys, const JoinRequest& request, uint32_t joins)
    : engine_(engine), keys_(keys), request_(request), joins_left_(joins) {
  rows_.left_layout = keys.left.tuples.layout;
  rows_.right_layout = keys.right.tuples.layout;
}

void GrowingRows::write(LocalJoins& joins, const JoinSections& found) {
  const JoinSections before = sections_;
  sections_.pairs = add_rows(before.pairs, found.pairs);
  sections_.left += found.left;
  sections_.right += found.right;
  if (!request_.count_only && add_rows(sections_.pairs, sections_.left + sections_.right) <= request_.max_rows) {
    const uint8_t left_bytes = rows_.left_layout.value_bytes, right_bytes = rows_.right_layout.value_bytes;
    const bool left_only = left_rows_only(request_.kind);
    make_room(left_only ? sections_.left : sections_.pairs, left_only ? found.left : found.pairs);
    if (!left_only && found.left && wants_left(request_)) {
      reserve_column(engine_, left_alone_, sections_.left, left_bytes, "left rows without a match");
    }
    if (found.right && wants_right(request_)) {
      reserve_column(engine_, right_alone_, sections_.right, right_bytes, "right rows without a match");
    }
    write_rows(
        joins, request_, found,
        {place(rows_.keys, rows_.left_layout.key_bytes, before.pairs), place(rows_.left, left_bytes, before.pairs),
         place(rows_.right, right_bytes, before.pairs), place(left_only ? rows_.left : left_alone_, left_bytes, before.left),
         place(right_alone_, right_bytes, before.right)});
  }
  --joins_left_;
}

/// Makes room for `rows`, of which `found` are the next join's: for as many of each join to come, but for a 64th, so that memory
/// kept of a result of this size serves the next one. Only for these rows where more might take the room of something else.
void GrowingRows::make_room(uint64_t rows, uint64_t found) {
  if (rows <= room_) return;
  const auto bytes = [](bool wanted, uint64_t count, uint8_t width) { return wanted ? column_bytes(count, width) : 0; };
  const TupleLayout left = rows_.left_layout, right = rows_.right_layout;
  const bool wants_left_rows = wants_left(request_), wants_right_rows = wants_right(request_);
  uint64_t expected = rows;
  if (found >> 40 == 0) expected += (joins_left_ - 1) * found;  // more than fit any memory would wrap
  expected = std::max(rows, expected - expected / 64);
  const size_t more = bytes(request_.want_keys, expected - room_, left.key_bytes) +
                      bytes(wants_left_rows, expected - room_, left.value_bytes) +
                      bytes(wants_right_rows, expected - room_, right.value_bytes);
  const size_t alone = bytes(wants_left_rows && keeps_left(request_.kind), keys_.left.tuples.view.size, left.value_bytes) +
                       bytes(wants_right_rows && keeps_right(request_.kind), keys_.right.tuples.view.size, right.value_bytes);
  const size_t free = engine_.memory->free_bytes();
  room_ = alone <= free && more <= (free - alone) / 2 ? expected : rows;
  reserve_columns(engine_, request_, rows_, room_);
}

JoinRows GrowingRows::finish(const Job& job) {
  const JoinSections sections = with_excluded(sections_, keys_, request_.kind);
  JoinRows rows = make_rows(engine_, keys_, request_, sections, job, std::move(rows_));
  const RowPlaces places = places_in(rows, sections);
  copy_bytes(engine_, places.left_alone, left_alone_.data(), left_alone_.size(), job);
  copy_bytes(engine_, places.right_alone, right_alone_.data(), right_alone_.size(), job);
  left_alone_ = HostBuffer(), right_alone_ = HostBuffer();
  rows.keys.shrink(rows.size * rows.left_layout.key_bytes);
  rows.left.shrink(rows.size * rows.left_layout.value_bytes);
  rows.right.shrink(rows.size * rows.right_layout.value_bytes);
  return rows;
}

}  // namespace warpjoin
