// Types of fields and elements in Thrift's compact protocol (thrift-compact-protocol.md of Apache Thrift).
#pragma once

#include <cstdint>

namespace warpjoin::parquet {

enum class ThriftType : uint8_t {
  stop = 0,
  boolean_true = 1,
  boolean_false = 2,
  int8 = 3,
  int16 = 4,
  int32 = 5,
  int64 = 6,
  float64 = 7,
  binary = 8,
  list = 9,
  set = 10,
  map = 11,
  structure = 12,
  uuid = 13,
};

}  // namespace warpjoin::parquet
