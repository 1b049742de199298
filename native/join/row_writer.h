// Writes what hash joins found to the result in host memory.
#pragma once

#include "join/join_rows.h"
#include "join/local_joins.h"

namespace warpjoin {

/// What hash joins found, by side.
inline JoinCounts counts_of(const JoinTally& tally, const JoinRequest& request) {
  return {tally.pairs, request.build_left ? tally.build_matched : tally.probe_matched,
          request.build_left ? tally.probe_matched : tally.build_matched};
}

/// Where the next rows of each section go.
class RowWriter {
 public:
  RowWriter(const JoinRequest& request, const JoinRows& rows, const JoinSections& sections)
      : request_(request), rows_(rows), left_(sections.left_begin()), right_(sections.right_begin()) {}

  /// Writes one join's sections behind those of the joins before.
  void write(LocalJoins& joins, const JoinSections& sections) {
    void* const left = column(rows_.left, rows_.left_layout.value_bytes, pairs_);
    void* const right = column(rows_.right, rows_.right_layout.value_bytes, pairs_);
    void* const keys = column(rows_.keys, rows_.left_layout.key_bytes, pairs_);
    if (sections.pairs) {
      joins.emit(JoinEmit::pairs, {keys, request_.build_left ? left : right, request_.build_left ? right : left});
    }
    const bool semi = request_.kind == JoinKind::semi;
    if (sections.left) alone(joins, request_.build_left, semi, column(rows_.left, rows_.left_layout.value_bytes, left_));
    if (sections.right) alone(joins, !request_.build_left, false, column(rows_.right, rows_.right_layout.value_bytes, right_));
    pairs_ += sections.pairs;
    left_ += sections.left;
    right_ += sections.right;
  }

 private:
  static void* column(const HostBuffer& buffer, uint8_t width, uint64_t row) {
    return buffer ? buffer.as<char>() + row * width : nullptr;
  }
  static void alone(LocalJoins& joins, bool build, bool matched, void* values) {
    if (!values) return;
    if (build) {
      joins.emit(matched ? JoinEmit::build_matched : JoinEmit::build_unmatched, {nullptr, values, nullptr});
    } else {
      joins.emit(matched ? JoinEmit::probe_matched : JoinEmit::probe_unmatched, {nullptr, nullptr, values});
    }
  }

  const JoinRequest& request_;
  const JoinRows& rows_;
  uint64_t pairs_ = 0, left_, right_;
};

}  // namespace warpjoin
