// Parquet's own numbers (parquet.thrift of the Apache Parquet format, version 2.11).
#pragma once

#include <cstdint>

namespace warpjoin::parquet {

/// How values are stored.
enum class PhysicalType : uint8_t {
  boolean = 0,
  int32 = 1,
  int64 = 2,
  int96 = 3,
  float32 = 4,
  float64 = 5,
  byte_array = 6,
  fixed_bytes = 7
};

enum class Repetition : uint8_t { required = 0, optional = 1, repeated = 2 };

/// The older logical types, which every reader knows.
enum class ConvertedType : uint8_t {
  utf8 = 0,
  map = 1,
  map_key_value = 2,
  list = 3,
  enumeration = 4,
  decimal = 5,
  date = 6,
  time_millis = 7,
  time_micros = 8,
  timestamp_millis = 9,
  timestamp_micros = 10,
  uint8 = 11,
  uint16 = 12,
  uint32 = 13,
  uint64 = 14,
  int8 = 15,
  int16 = 16,
  int32 = 17,
  int64 = 18,
  json = 19,
  bson = 20,
  interval = 21,
};

/// Fields of the union LogicalType.
enum class LogicalType : uint8_t {
  string = 1,
  map = 2,
  list = 3,
  enumeration = 4,
  decimal = 5,
  date = 6,
  time = 7,
  timestamp = 8,
  integer = 10,
  null = 11,
  json = 12,
  bson = 13,
  uuid = 14,
  float16 = 15,
};

/// Fields of the union TimeUnit.
enum class TimeUnit : uint8_t { millis = 1, micros = 2, nanos = 3 };

enum class Encoding : uint8_t {
  plain = 0,
  plain_dictionary = 2,  ///< as rle_dictionary in data pages, as plain in dictionary pages
  rle = 3,
  bit_packed = 4,
  delta_binary_packed = 5,
  delta_length_byte_array = 6,
  delta_byte_array = 7,
  rle_dictionary = 8,
  byte_stream_split = 9,
};

enum class Codec : uint8_t { none = 0, snappy = 1, gzip = 2, lzo = 3, brotli = 4, lz4 = 5, zstd = 6, lz4_raw = 7 };

enum class PageType : uint8_t { data = 0, index = 1, dictionary = 2, data_v2 = 3 };

inline constexpr char kMagic[4] = {'P', 'A', 'R', '1'};

}  // namespace warpjoin::parquet
