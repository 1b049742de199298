// Gathers on any devices, checked against gathers on the host.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "columns/device_gather.h"
#include "primitives/primitives.h"
#include "test_columns.h"
#include "words.h"

namespace warpjoin::testing {

using Bytes = std::vector<unsigned char>;

inline Bytes draw_bytes(size_t size, std::mt19937_64& random) {
  Bytes bytes(size);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

inline bool bit_of(const Bytes& bitmap, uint64_t bit) { return (bitmap[bit / 8] >> (bit % 8)) & 1; }

/// Row numbers below `of`, in no order; where rows may be missing a third of them, or all where there are none.
struct RowsOf {
  std::vector<uint64_t> numbers;
  Bytes bytes;

  RowsOf(uint64_t of, uint64_t size, uint8_t row_bytes, bool may_be_missing, std::mt19937_64& random)
      : numbers(size), bytes(size * row_bytes) {
    for (size_t i = 0; i < size; ++i) {
      const bool missing = may_be_missing && (of == 0 || random() % 3 == 0);
      numbers[i] = missing ? UINT64_MAX : i == 0 ? of - 1 : random() % of;
      words::write(bytes.data(), row_bytes, i, numbers[i]);
    }
  }
};

/// Memory of a device with a guard behind it.
class GuardedBytes {
 public:
  GuardedBytes(Device& device, size_t bytes) : device_(device), bytes_(bytes), buffer_(device.memory().allocate(bytes + kGuard)) {
    const auto stream = device.create_stream();
    device.fill(buffer_.data(), kPoison, bytes + kGuard, *stream);
    stream->synchronize();
  }
  GuardedBytes(Device& device, const Bytes& content) : GuardedBytes(device, content.size()) {
    const auto stream = device.create_stream();
    device.copy(buffer_.data(), content.data(), content.size(), *stream);
    stream->synchronize();
  }
  void* data() const { return buffer_.data(); }
  /// What is in it; the guard must be as it was.
  Bytes read() const {
    Bytes all(bytes_ + kGuard);
    const auto stream = device_.create_stream();
    device_.copy(all.data(), buffer_.data(), all.size(), *stream);
    stream->synchronize();
    for (size_t i = bytes_; i < all.size(); ++i) EXPECT_EQ(all[i], kPoison) << i - bytes_ << " bytes behind the end";
    all.resize(bytes_);
    return all;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr unsigned char kPoison = 0xA5;
  Device& device_;
  size_t bytes_;
  Buffer buffer_;
};

/// Gathers `size` of `rows` values of `width` bytes, or bits where that is 0, that lie on all devices of the engine.
inline void check_gather_primitive(Engine& engine, uint64_t rows, uint64_t size, uint8_t width, uint8_t row_bytes, bool masked,
                                   uint64_t seed) {
  SCOPED_TRACE(std::to_string(engine.devices.size()) + " shards of " + std::to_string(rows) + " rows, " + std::to_string(size) +
               " of width " + std::to_string(width) + " by " + std::to_string(row_bytes) +
               (masked ? " bytes, masked" : " bytes"));
  for (const auto& device : engine.devices) device->memory().reserve((size_t{1} << 20) + 32 * (rows + size));
  std::mt19937_64 random(seed);
  const Sharding sharding = Sharding::of(rows, engine.devices.size());
  const auto bytes_of = [&](uint64_t count) { return width ? count * width : (count + 63) / 64 * 8; };
  const Bytes column = draw_bytes(bytes_of(rows), random), valid = draw_bytes((size + 63) / 64 * 8, random);
  const bool missing = width == 0;  // bits alone know missing rows
  const RowsOf list(rows, size, row_bytes, missing, random);

  ShardedColumn sharded{sharding, {}};
  std::vector<GuardedBytes> shards;
  uint64_t begin = 0;
  for (const auto& device : engine.devices) {
    const uint64_t end = std::min(rows, begin + sharding.shard_rows);
    const auto at = [&](uint64_t row) {
      return column.begin() + static_cast<ptrdiff_t>(row == rows ? column.size() : bytes_of(row));
    };
    shards.emplace_back(*device, Bytes(at(begin), at(end)));
    sharded.shards.push_back(begin < end ? shards.back().data() : nullptr);
    begin = end;
  }
  ASSERT_EQ(begin, rows);

  Device& device = *engine.devices.back();
  const GuardedBytes numbers(device, list.bytes), mask(device, valid), out(device, bytes_of(size));
  const auto stream = device.create_stream();
  const RowNumbers by{numbers.data(), row_bytes, size};
  const void* const validity = masked ? mask.data() : nullptr;
  const Job job;
  if (width) {
    device.primitives().gather(sharded, width, by, validity, out.data(), job, *stream);
  } else {
    device.primitives().gather_bits(sharded, by, validity, out.data(), job, *stream);
  }
  stream->synchronize();

  Bytes expected(bytes_of(size), 0);
  for (uint64_t i = 0; i < size; ++i) {
    if (masked && !bit_of(valid, i)) continue;
    const uint64_t row = list.numbers[i];
    if (row == UINT64_MAX) continue;
    if (width) {
      std::memcpy(expected.data() + i * width, column.data() + row * width, width);
    } else if (bit_of(column, row)) {
      expected[i / 8] = static_cast<unsigned char>(expected[i / 8] | 1 << (i % 8));
    }
  }
  EXPECT_TRUE(out.read() == expected);
}

inline void check_gather_primitives(Engine& engine, const std::vector<uint64_t>& rows, const std::vector<uint64_t>& sizes) {
  uint64_t seed = 1;
  for (const uint8_t width : {0, 1, 2, 4, 8, 16}) {
    for (const uint8_t row_bytes : {4, 8}) {
      for (const bool masked : {false, true}) {
        for (const uint64_t of : rows) {
          for (const uint64_t size : sizes) {
            check_gather_primitive(engine, of, size, width, row_bytes, masked, ++seed);
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

/// The first `bytes` of both; there may be one more, which is nobody's, where there are no values.
inline void expect_same(const HostBuffer& got, const HostBuffer& expected, size_t bytes) {
  EXPECT_EQ(static_cast<bool>(got), static_cast<bool>(expected));
  ASSERT_EQ(got.size(), expected.size());
  if (got) EXPECT_EQ(std::memcmp(got.data(), expected.data(), bytes), 0);
}

/// Columns of all types and chunkings that devices gather, by `size` rows: bit for bit what the host makes.
inline void check_device_gather(Engine& engine, uint64_t rows, uint64_t size, uint8_t row_bytes, bool may_be_missing,
                                uint64_t seed) {
  SCOPED_TRACE(std::to_string(engine.devices.size()) + " devices, " + std::to_string(size) + " of " + std::to_string(rows) +
               " rows by " + std::to_string(row_bytes) + (may_be_missing ? " bytes, some missing" : " bytes"));
  std::mt19937_64 random(seed);
  const RowsOf list(rows, size, row_bytes, may_be_missing, random);
  std::vector<test::TestColumn> made;
  for (const ColumnType& type : {test::signed_type(8), test::boolean_type(), test::unsigned_type(1), test::floating_type(2),
                                 test::signed_type(4), test::boolean_type(), test::opaque_type(16)}) {
    const double nulls = made.size() % 2 ? 0.3 : 0;
    made.emplace_back("c", type, test::draw_values(type, rows, {.nulls = nulls}, random), random);
  }
  std::vector<const Column*> columns;
  for (const test::TestColumn& column : made) columns.push_back(&column.column);
  std::vector<Device*> devices;
  for (const auto& device : engine.devices) {
    devices.push_back(device.get());
    device->memory().reset_peak();
  }
  const test::PoisonedMemory poisoned(engine, size);
  Job job;
  const RowList by{list.bytes.data(), row_bytes, may_be_missing, size};
  const std::vector<OwnedColumn> got = gather_on_devices(engine, devices, columns, by, job);
  ASSERT_EQ(got.size(), columns.size());
  EXPECT_EQ(job.done(), job.planned());
  for (size_t c = 0; c < columns.size(); ++c) {
    SCOPED_TRACE(test::type_name(columns[c]->type));
    const OwnedColumn expected = gather(*columns[c], by, engine, job);
    EXPECT_EQ(got[c].length, expected.length);
    EXPECT_EQ(got[c].null_count, expected.null_count);
    expect_same(got[c].values, expected.values, size ? expected.values.size() : 0);
    expect_same(got[c].validity, expected.validity, expected.validity.size());
    EXPECT_FALSE(got[c].offsets);
  }
  const size_t bytes = device_gather_bytes(columns, by, devices.size());
  for (Device* device : devices) {
    EXPECT_LE(device->memory().peak_bytes(), bytes);
    EXPECT_EQ(device->memory().used_bytes(), 0u);
  }
}

inline void check_device_gather_sizes(Engine& engine, const std::vector<uint64_t>& rows, const std::vector<uint64_t>& sizes) {
  uint64_t seed = 1;
  for (const uint64_t of : rows) {
    for (const uint64_t size : sizes) {
      for (const bool may_be_missing : {false, true}) {
        check_device_gather(engine, of, size, seed % 2 ? 4 : 8, may_be_missing, seed);
      }
      ++seed;
    }
  }
  check_device_gather(engine, 0, 100, 4, true, seed);
}

}  // namespace warpjoin::testing
