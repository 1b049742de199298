// Tables that stay on any devices.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "columns/resident_table.h"
#include "test_columns.h"

namespace warpjoin::testing {

inline std::vector<Device*> all_devices(Engine& engine) {
  std::vector<Device*> devices;
  for (const auto& device : engine.devices) devices.push_back(device.get());
  return devices;
}

/// Columns of all types that stay on devices, in chunks, with nulls and without.
struct TableOf {
  std::vector<test::Values> values;
  std::vector<test::TestColumn> made;
  std::vector<const Column*> columns;

  TableOf(uint64_t rows, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const double nulls : {0.0, 0.3}) {
      for (const ColumnType& type : {test::signed_type(8), test::boolean_type(), test::unsigned_type(1), test::floating_type(2),
                                     test::signed_type(4), test::opaque_type(16)}) {
        values.push_back(test::draw_values(type, rows, {.nulls = nulls}, random));
        made.emplace_back("c", type, values.back(), random);
      }
    }
    for (const test::TestColumn& column : made) columns.push_back(&column.column);
  }
};

/// Loads a table and brings it home, all of it and two columns.
inline void check_resident_table(Engine& engine, uint64_t rows, uint64_t seed) {
  SCOPED_TRACE(std::to_string(rows) + " rows");
  const TableOf of(rows, seed);
  const std::vector<Device*> devices = all_devices(engine);
  Job job;
  {
    const ResidentTable table = load_table(engine, devices, of.columns, rows, job);
    EXPECT_EQ(job.done(), job.planned());
    EXPECT_EQ(table.size(), rows);
    const size_t bytes = resident_table_bytes(of.columns, rows, devices);
    for (Device* device : devices) {
      EXPECT_LE(device->memory().resident_bytes(), bytes);
      EXPECT_EQ(device->memory().used_bytes(), 0u);
    }
    std::vector<size_t> all(of.columns.size());
    for (size_t c = 0; c < all.size(); ++c) all[c] = c;
    const test::PoisonedMemory poisoned(engine, rows);
    const std::vector<OwnedColumn> home = bring_home(engine, table, all, job);
    ASSERT_EQ(home.size(), all.size());
    for (const size_t c : all) {
      SCOPED_TRACE(test::type_name(of.columns[c]->type));
      EXPECT_EQ(home[c].length, rows);
      EXPECT_EQ(test::values_of(home[c], of.columns[c]->type, true), of.values[c]);
    }
    const std::vector<OwnedColumn> two = bring_home(engine, table, {7, 0}, job);
    EXPECT_EQ(test::values_of(two[0], of.columns[7]->type, true), of.values[7]);
    EXPECT_EQ(test::values_of(two[1], of.columns[0]->type, true), of.values[0]);
    EXPECT_EQ(job.done(), job.planned());
  }
  for (Device* device : devices) EXPECT_EQ(device->memory().used_bytes() + device->memory().resident_bytes(), 0u);
}

}  // namespace warpjoin::testing
