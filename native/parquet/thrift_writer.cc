#include "parquet/thrift_writer.h"

namespace warpjoin::parquet {

void ThriftWriter::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
  bytes_.push_back(static_cast<char>(value));
}

void ThriftWriter::field(int16_t id, ThriftType type) {
  const int step = id - last_.back();
  last_.back() = id;
  if (step > 0 && step <= 15) {
    bytes_.push_back(static_cast<char>(step << 4 | static_cast<int>(type)));
    return;
  }
  bytes_.push_back(static_cast<char>(type));
  zigzag(id);
}

void ThriftWriter::int8(int16_t id, int8_t value) {
  field(id, ThriftType::int8);
  bytes_.push_back(static_cast<char>(value));
}

void ThriftWriter::int16(int16_t id, int16_t value) {
  field(id, ThriftType::int16);
  zigzag(value);
}

void ThriftWriter::int32(int16_t id, int32_t value) {
  field(id, ThriftType::int32);
  zigzag(value);
}

void ThriftWriter::int64(int16_t id, int64_t value) {
  field(id, ThriftType::int64);
  zigzag(value);
}

void ThriftWriter::binary(int16_t id, std::string_view bytes) {
  field(id, ThriftType::binary);
  element_binary(bytes);
}

void ThriftWriter::element_binary(std::string_view bytes) {
  varint(bytes.size());
  bytes_.append(bytes);
}

void ThriftWriter::begin_struct(int16_t id) {
  field(id, ThriftType::structure);
  begin_element();
}

void ThriftWriter::end_struct() {
  bytes_.push_back(0);
  last_.pop_back();
}

void ThriftWriter::begin_list(int16_t id, ThriftType elements, size_t count) {
  field(id, ThriftType::list);
  if (count < 15) {
    bytes_.push_back(static_cast<char>(count << 4 | static_cast<size_t>(elements)));
    return;
  }
  bytes_.push_back(static_cast<char>(0xF0 | static_cast<int>(elements)));
  varint(count);
}

}  // namespace warpjoin::parquet
