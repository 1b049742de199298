// Writes what hash joins found to the result in host memory.
#pragma once

#include "join/join_rows.h"
#include "primitives/primitives.h"

namespace warpjoin {

/// What hash joins found, by side.
inline JoinCounts counts_of(const JoinTally& tally, const JoinRequest& request) {
  return {tally.pairs, request.build_left ? tally.build_matched : tally.probe_matched,
          request.build_left ? tally.probe_matched : tally.build_matched};
}

/// Where a join's rows go; null: nowhere.
struct RowPlaces {
  void *keys, *left, *right;  ///< of the pairs
  void *left_alone, *right_alone;
};

inline void* place(const HostBuffer& column, uint8_t width, uint64_t row) {
  return column ? column.as<char>() + row * width : nullptr;
}

/// Where they go in the whole result.
inline RowPlaces places_in(const JoinRows& rows, const JoinSections& sections) {
  return {rows.keys.data(), rows.left.data(), rows.right.data(),
          place(rows.left, rows.left_layout.value_bytes, sections.left_begin()),
          place(rows.right, rows.right_layout.value_bytes, sections.right_begin())};
}

/// Calls emit(which rows, where to) for the sections that have rows and a place.
template <class Emit>
void write_rows(const JoinRequest& request, const JoinSections& sections, const RowPlaces& to, Emit&& emit) {
  const auto alone = [&](bool build, bool matched, void* values) {
    if (!values) return;
    if (build) {
      emit(matched ? JoinEmit::build_matched : JoinEmit::build_unmatched, JoinOutput{nullptr, values, nullptr});
    } else {
      emit(matched ? JoinEmit::probe_matched : JoinEmit::probe_unmatched, JoinOutput{nullptr, nullptr, values});
    }
  };
  if (sections.pairs && (to.keys || to.left || to.right)) {
    emit(JoinEmit::pairs, JoinOutput{to.keys, request.build_left ? to.left : to.right, request.build_left ? to.right : to.left});
  }
  if (sections.left) alone(request.build_left, request.kind == JoinKind::semi, to.left_alone);
  if (sections.right) alone(!request.build_left, false, to.right_alone);
}

}  // namespace warpjoin
