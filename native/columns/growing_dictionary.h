// A dictionary to which others add the values that it lacks, as an Arrow file has it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "columns/value_table.h"
#include "core/column.h"
#include "core/job.h"
#include "engine/engine.h"

namespace warpjoin {

/// Where the values of a dictionary are in the grown one.
struct PlacedValues {
  HostBuffer positions;              ///< 4 bytes each; empty: each is where it was
  std::optional<OwnedColumn> added;  ///< the values that were added; the dictionary refers to their buffers
};

/// Copies of the values of the first dictionary as they are, and behind them those that others add: of equal values of fixed
/// width, texts or views one, and one null; values of other kinds are all added. Dictionaries must have been validated.
class GrowingDictionary {
 public:
  /// Works with the engine's threads and host memory.
  explicit GrowingDictionary(Engine& engine) : engine_(engine), table_(*engine.memory, engine.text_hash) {}

  /// Whether values can be placed: they have no dictionaries within, and the type of those before.
  bool takes(const Column& values) const;
  /// Places the values of a dictionary. Throws Error(not_supported) for 2^32 - 1 values and more together; after an error nothing
  /// more can be placed. Memory: 8 bytes for each of these values, 16 for each of all, and what is added.
  PlacedValues place(const Column& values, const Job& job);
  uint64_t size() const { return all_.length; }
  /// All values, copied into one column.
  OwnedColumn joined(const Job& job);

 private:
  /// Numbers the values; gives the rows of those that are new.
  HostBuffer number(const Column& values, uint32_t* positions, uint64_t& added, const Job& job);

  Engine& engine_;
  Column all_;
  columns::ValueTable table_;
  bool is_first_ = true;
};

/// The indices of a column, of `Column::type.width` bytes, by the positions of what they are indices of; null rows get any.
/// Throws Error(invalid_table) for an index behind the last position.
HostBuffer placed_indices(const Column& indices, std::span<const uint32_t> positions, HostMemory& memory, const Job& job);

}  // namespace warpjoin
