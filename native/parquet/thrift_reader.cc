#include "parquet/thrift_reader.h"

namespace warpjoin::parquet {

uint64_t ThriftReader::varint() {
  uint64_t value = 0;
  constexpr unsigned kBits = 7, kWord = 64;
  for (unsigned shift = 0; shift < kWord; shift += kBits) {
    const uint8_t next = byte();
    value |= static_cast<uint64_t>(next & 0x7f) << shift;
    if (next < 0x80) return value;
  }
  throw Damaged("metadata has an impossible number");
}

int64_t ThriftReader::integer(ThriftType type) {
  switch (type) {
    case ThriftType::int8: return static_cast<int8_t>(byte());
    case ThriftType::int16:
    case ThriftType::int32:
    case ThriftType::int64: return zigzag();
    default: throw Damaged("metadata has a field of another type");
  }
}

int32_t ThriftReader::integer32(ThriftType type) {
  const int64_t value = integer(type);
  if (value < INT32_MIN || value > INT32_MAX) throw Damaged("metadata has an impossible number");
  return static_cast<int32_t>(value);
}

bool ThriftReader::boolean(ThriftType type) const {
  if (type != ThriftType::boolean_true) expect(type, ThriftType::boolean_false);
  return type == ThriftType::boolean_true;
}

std::string_view ThriftReader::binary(ThriftType type) {
  expect(type, ThriftType::binary);
  const uint64_t size = varint();
  const auto* const text = reinterpret_cast<const char*>(at_);
  skip_bytes(size);
  return {text, size};
}

ThriftReader::ListHead ThriftReader::list_head() {
  const uint8_t head = byte();
  const unsigned size = head >> 4;
  constexpr unsigned kLong = 15;
  const ListHead found{static_cast<ThriftType>(head & kLong), size == kLong ? varint() : size};
  if (found.size > left()) throw CutOff();
  return found;
}

void ThriftReader::skip(ThriftType type) {
  constexpr uint64_t kDoubleBytes = 8, kUuidBytes = 16;
  // Booleans are in the field's head; those of lists and maps take a byte.
  const auto skip_element = [&](ThriftType element) {
    if (element == ThriftType::boolean_true || element == ThriftType::boolean_false) {
      skip_bytes(1);
    } else {
      skip(element);
    }
  };
  switch (type) {
    case ThriftType::boolean_true:
    case ThriftType::boolean_false: return;
    case ThriftType::int8: return skip_bytes(1);
    case ThriftType::int16:
    case ThriftType::int32:
    case ThriftType::int64: varint(); return;
    case ThriftType::float64: return skip_bytes(kDoubleBytes);
    case ThriftType::uuid: return skip_bytes(kUuidBytes);
    case ThriftType::binary: binary(type); return;
    case ThriftType::list:
    case ThriftType::set:
      return list(
          type, [](uint64_t) {}, skip_element);
    case ThriftType::structure: return structure([](int, ThriftType) { return false; });
    case ThriftType::map: {
      const Level level(*this);
      const uint64_t size = varint();
      if (size == 0) return;
      if (size > left()) throw CutOff();
      const uint8_t types = byte();
      for (uint64_t i = 0; i < size; ++i) {
        skip_element(static_cast<ThriftType>(types >> 4));
        skip_element(static_cast<ThriftType>(types & 15));
      }
      return;
    }
    default: throw Damaged("metadata has a field of an unknown type");
  }
}

}  // namespace warpjoin::parquet
