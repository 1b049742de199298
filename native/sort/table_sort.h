// Sorts of tables that lie on devices.
#pragma once

#include <vector>

#include "columns/table_sort_keys.h"
#include "sort/row_window.h"

namespace warpjoin {

/// Sorts into a table on the same devices, stable, whose stretches are about equally long: column i is `columns[i]` of the table.
/// Where a payload is carried along, they are the key and the payload; others are gathered by row number. Several devices must be
/// linked directly, and tables to gather from be spread as load_table() does it. Throws Error(device_memory) where a device has
/// too little memory, sort_table_device_bytes(), and Error(not_supported) for keys of more than kMostKeyBits.
///
/// A result of fewer rows than the table, those of `window`, is spread as load_table() does it. Few of the first rows are found
/// without a sort of all, but where a sample of the keys misleads: one call in 10^9, or of tables made for it. That sort may take
/// more memory than is planned.
ResidentTable sort_table(Engine& engine, const TableSortKeys& keys, const std::vector<size_t>& columns, Job& job,
                         const RowWindow& window = {});

/// Device memory of the sort and its result on each device, beside the table, at most.
size_t sort_table_device_bytes(const TableSortKeys& keys, const std::vector<size_t>& columns, const RowWindow& window = {});

}  // namespace warpjoin
