// Materialization on devices: columns by row number, from the joint memory of devices that read each other's.
#pragma once

#include <vector>

#include "columns/gather.h"
#include "device/device.h"

namespace warpjoin {

/// Whether gather_on_devices() takes columns of this type: booleans, and values of 1, 2, 4, 8 or 16 bytes.
bool gathers_on_devices(const ColumnType& type);

/// Bytes of device memory that gather_on_devices() takes on each of `devices` devices, at most. Looks at the list, not at the row
/// numbers.
size_t device_gather_bytes(const std::vector<const Column*>& columns, RowList rows, size_t devices);

/// Gathers `rows.size` values of each column, all by the same rows, into the columns that gather() makes. The devices keep the
/// row numbers, a share each, and spread column after column over their memory: while one is gathered and goes home the next
/// arrives. Devices must address each other's memory, as many as Primitives::kMostShards; at least one. Throws
/// Error(not_supported) for other devices or columns, and Error(device_memory), naming the device, where one has too little
/// memory. Host memory: the results, and a quarter of a byte a row of columns that have nulls or are of booleans; of all columns
/// where rows may be missing.
std::vector<OwnedColumn> gather_on_devices(Engine& engine, const std::vector<Device*>& devices,
                                           const std::vector<const Column*>& columns, RowList rows, Job& job);

}  // namespace warpjoin
