// The result of a hash join whose parts are matched one after the other, in host memory that grows with it.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "join/row_writer.h"

namespace warpjoin {

/// The rows of joins one after the other. How many there will be is known after the last, so the result grows: to count first
/// would bring every tuple to the devices once more. Pairs grow where the result will be; rows alone of joins that have both
/// wait beside them.
class GrowingRows {
 public:
  GrowingRows(Engine& engine, const JoinKeys& keys, const JoinRequest& request);

  /// Makes room for what the next join found, sections of these sizes: where they go. `share` of the whole, in (0, 1], is joined
  /// by then: there is room afterwards for the rows that this lets expect. What is there may move, so nothing may be on its way
  /// to it. Counts the rows, and gives no places, where only their number is wanted, or there are more than the request allows.
  /// Throws Error(memory_limit) where the host memory doesn't hold them.
  RowPlaces add(const JoinSections& found, double share) { return *add(found, share, true); }
  /// The same where nothing moves that is there. Nothing, and these rows are not counted, where it would.
  std::optional<RowPlaces> add_here(const JoinSections& found, double share) { return add(found, share, false); }

  /// The whole result, once; throws Error(output_rows) where it has more rows than the request allows. Memory for what waited
  /// beside the pairs is needed twice.
  JoinRows finish(const Job& job);

 private:
  struct Column {
    HostBuffer* data;
    uint8_t width;
    const char* purpose;
  };
  /// Pairs, or left or right rows alone.
  struct Section {
    std::vector<Column> columns;
    uint64_t rows = 0, room = 0;
    uint64_t most = UINT64_MAX;  ///< rows that there can be
  };
  std::array<Section*, 3> sections() { return {&pairs_, &left_, &right_}; }
  static std::array<uint64_t, 3> rows_of(const JoinSections& found) { return {found.pairs, found.left, found.right}; }
  std::optional<RowPlaces> add(const JoinSections& found, double share, bool may_move);
  bool counts_only(const JoinSections& found) const;
  void reserve(Section& section, uint64_t rows);
  static bool reserve_here(Section& section, uint64_t rows);
  uint64_t expected(const Section& section, uint64_t rows, double share) const;
  RowPlaces take(const JoinSections& found);

  Engine& engine_;
  const JoinKeys& keys_;
  const JoinRequest& request_;
  JoinRows rows_;  // pairs, or the left rows of joins that have these alone
  HostBuffer left_alone_, right_alone_;
  Section pairs_, left_, right_;
};

}  // namespace warpjoin
