// Columns that stay in the memory of devices between calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "columns/column_source.h"
#include "device/device.h"
#include "primitives/primitives.h"

namespace warpjoin {

/// A column in the memory of a ResidentTable's devices: stretch d is the values of rows[d] rows on devices[d].
struct ResidentColumn {
  std::string name;
  ColumnType type;
  bool nullable = false;  ///< stretches of rows have a validity bitmap
  std::vector<DeviceStretch> stretches;
  /// Once a call has read it: further keys made of the column need not. Calls on an engine run one after the other.
  mutable std::optional<ValueRange> range = {};
};

/// Columns of the same rows, each in one stretch a device; a bitmap's stretch begins at a word's first bit. Must go before the
/// engine's devices.
struct ResidentTable {
  std::vector<Device*> devices;
  std::vector<uint64_t> rows;  ///< of each stretch
  std::vector<ResidentColumn> columns;
  std::vector<Buffer> memory;  ///< what the stretches lie in
  double skew = 1;             ///< of the join that made it: largest over mean number of tuples a device joined
  uint64_t split_rows = 0;     ///< of that join: as in JoinRows

  uint64_t size() const;
};

/// Whether a table of these columns can stay on devices: booleans, and values of 1, 2, 4, 8 or 16 bytes.
bool stays_on_devices(const ColumnType& type);

/// Whether the table is spread as load_table() does it.
bool spread_evenly(const ResidentTable& table);

/// Device memory that load_table() takes on each of `devices`, at most.
size_t resident_table_bytes(const std::vector<const Column*>& columns, uint64_t rows, const std::vector<Device*>& devices);

/// Copies columns of `rows` rows each to the devices, spread as Sharding::of says. Throws Error(device_memory), naming the
/// device, where one has too little memory, and Error(not_supported) for other columns. Host memory: a bit a row of each bitmap.
ResidentTable load_table(Engine& engine, const std::vector<Device*>& devices, const std::vector<const Column*>& columns,
                         uint64_t rows, Job& job);

/// Copies columns of a table to host memory, in the order of `columns`. Host memory: the results, and twice a bit a row of each
/// bitmap.
std::vector<OwnedColumn> bring_home(Engine& engine, const ResidentTable& table, const std::vector<size_t>& columns, Job& job);

}  // namespace warpjoin
