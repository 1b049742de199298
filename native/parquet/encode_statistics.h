// The least and greatest value of a column chunk (Statistics and ColumnOrder of parquet.thrift).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parquet/encode_values.h"

namespace warpjoin::parquet {

/// Values longer than this have no place in statistics.
inline constexpr uint64_t kMostStatisticBytes = 64;

/// NaN does not count. Where zero is the least value it is -0, where it is the greatest +0. There are none of chunks without
/// values, of types without an order, and where a bound is longer than kMostStatisticBytes.
class Statistics {
 public:
  struct Bounds {
    std::string least, greatest;  ///< in the encoding PLAIN, texts without their size
  };

  Statistics(PhysicalType type, uint32_t width, Order order) : type_(type), width_(width), order_(order) {}

  void add(const uint8_t* values, uint64_t count);
  void add(const Bytes* values, uint64_t count);
  std::optional<Bounds> bounds() const { return order_ == Order::none || !any_ ? std::nullopt : std::optional(bounds_); }

 private:
  template <class Value>
  void add_numbers(const uint8_t* values, uint64_t count);
  void add_bytes(Bytes value);

  PhysicalType type_;
  uint32_t width_;
  Order order_;
  bool any_ = false;
  Bounds bounds_;
};

}  // namespace warpjoin::parquet
