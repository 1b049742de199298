// The result of a hash join in rounds, in host memory that grows with it.
#pragma once

#include "join/row_writer.h"

namespace warpjoin {

/// The rows of joins one after the other. How many there will be is known after the last, so the result grows: to count first
/// would bring every tuple to the devices once more. Pairs grow where the result will be; rows alone of joins that have both
/// wait beside them.
class GrowingRows {
 public:
  GrowingRows(Engine& engine, const JoinKeys& keys, const JoinRequest& request, uint32_t joins);

  /// Writes what the next join found, sections of these sizes; counts them only, where there are more rows by now than the
  /// request allows. Throws Error(memory_limit) where the host memory doesn't hold them.
  void write(LocalJoins& joins, const JoinSections& found);
  /// The whole result, once; throws Error(memory_limit) where it has more rows than the request allows. Memory for what waited
  /// beside the pairs is needed twice.
  JoinRows finish(const Job& job);

 private:
  void make_room(uint64_t rows, uint64_t found);

  Engine& engine_;
  const JoinKeys& keys_;
  const JoinRequest& request_;
  uint32_t joins_left_;
  JoinSections sections_;  // so far
  JoinRows rows_;          // pairs, or the left rows of joins that have these alone
  uint64_t room_ = 0;      // rows
  HostBuffer left_alone_, right_alone_;
};

}  // namespace warpjoin
