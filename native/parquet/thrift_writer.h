// Writes Thrift's compact protocol (thrift-compact-protocol.md of Apache Thrift): what Parquet's metadata is in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parquet/thrift_type.h"

namespace warpjoin::parquet {

/// Fields of a structure are written in the order of their ids. The outermost structure has begun; end it with end_struct().
class ThriftWriter {
 public:
  void boolean(int16_t id, bool value) { field(id, value ? ThriftType::boolean_true : ThriftType::boolean_false); }
  void int8(int16_t id, int8_t value);
  void int16(int16_t id, int16_t value);
  void int32(int16_t id, int32_t value);
  void int64(int16_t id, int64_t value);
  void binary(int16_t id, std::string_view bytes);
  void begin_struct(int16_t id);
  void end_struct();
  /// So many elements of the type follow, by the functions below.
  void begin_list(int16_t id, ThriftType elements, size_t count);
  void element_int32(int32_t value) { zigzag(value); }
  void element_binary(std::string_view bytes);
  /// An element that is a structure; end_struct() ends it.
  void begin_element() { last_.push_back(0); }

  const std::string& bytes() const { return bytes_; }

 private:
  void field(int16_t id, ThriftType type);
  void varint(uint64_t value);
  void zigzag(int64_t value) { varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63)); }

  std::string bytes_;
  std::vector<int16_t> last_{0};  ///< the last field's id of each structure that has begun
};

}  // namespace warpjoin::parquet
