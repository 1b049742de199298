// The sides of a join.
#pragma once

#include <array>
#include <vector>

#include "core/tuples.h"
#include "join/join_rows.h"

namespace warpjoin {

enum SideIndex : size_t { kBuild, kProbe };
template <class T>
using OfSides = std::array<T, 2>;

/// Tuples in host memory, in one or more stretches, or resident: view d lies on device d of the join.
struct Relation {
  TupleLayout layout;
  std::vector<TupleView> views;
  bool resident = false;

  /// The same tuples, without values that are not wanted.
  Relation with_values_if(bool wanted) const {
    Relation relation = *this;
    relation.layout = wanted_layout(layout, wanted);
    for (TupleView& view : relation.views) view.values = wanted ? view.values : nullptr;
    return relation;
  }
  uint64_t size() const {
    uint64_t size = 0;
    for (const TupleView& view : views) size += view.size;
    return size;
  }
  uint64_t bytes() const { return size() * layout.tuple_bytes(); }
};

}  // namespace warpjoin
