// Thrift's compact protocol (thrift-compact-protocol.md of Apache Thrift), read from bytes that are not trusted.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "parquet/damaged.h"
#include "parquet/thrift_type.h"

namespace warpjoin::parquet {

/// The bytes end within a value.
class CutOff : public Damaged {
 public:
  CutOff() : Damaged("metadata is cut off") {}
};

/// Reads values one after the other. Every element of a list takes a byte at least, so what is read takes time and memory in
/// proportion to the bytes. Throws CutOff or Damaged.
class ThriftReader {
 public:
  explicit ThriftReader(std::span<const uint8_t> bytes) : begin_(bytes.data()), at_(begin_), end_(begin_ + bytes.size()) {}

  /// Bytes that were read.
  uint64_t position() const { return static_cast<uint64_t>(at_ - begin_); }

  /// Calls visit(field id, type) for each field of a structure; a field for which it returns false it has not read.
  template <class Visit>
  void structure(const Visit& visit) {
    const Level level(*this);
    int64_t id = 0;
    for (;;) {
      const uint8_t head = byte();
      const auto type = static_cast<ThriftType>(head & 15);
      if (type == ThriftType::stop) return;
      const unsigned step = head >> 4;
      id = step ? id + step : zigzag();
      if (id < INT16_MIN || id > INT16_MAX) throw Damaged("metadata has an impossible field");
      if (!visit(static_cast<int>(id), type)) skip(type);
    }
  }
  /// The same for a structure that is a field's value.
  template <class Visit>
  void structure(ThriftType type, const Visit& visit) {
    expect(type, ThriftType::structure);
    structure(visit);
  }

  /// Calls visit(type) for each element of a list; `start(size)` before. `visit` must read the element.
  template <class Start, class Visit>
  void list(ThriftType type, const Start& start, const Visit& visit) {
    if (type != ThriftType::set) expect(type, ThriftType::list);
    const Level level(*this);
    const auto [element, size] = list_head();
    start(size);
    for (uint64_t i = 0; i < size; ++i) visit(element);
  }

  /// An integer of any width.
  int64_t integer(ThriftType type);
  int32_t integer32(ThriftType type);
  bool boolean(ThriftType type) const;
  std::string_view binary(ThriftType type);
  void skip(ThriftType type);

 private:
  struct ListHead {
    ThriftType element;
    uint64_t size;
  };
  static constexpr unsigned kMostLevels = 64;
  /// One more structure or list within another.
  class Level {
   public:
    explicit Level(ThriftReader& reader) : reader_(reader) {
      if (++reader_.levels_ > kMostLevels) throw Damaged("metadata is nested too deeply");
    }
    ~Level() { --reader_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ThriftReader& reader_;
  };

  static void expect(ThriftType type, ThriftType wanted) {
    if (type != wanted) throw Damaged("metadata has a field of another type");
  }
  uint64_t left() const { return static_cast<uint64_t>(end_ - at_); }
  uint8_t byte() {
    if (at_ == end_) throw CutOff();
    return *at_++;
  }
  uint64_t varint();
  int64_t zigzag() {
    const uint64_t value = varint();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }
  void skip_bytes(uint64_t count) {
    if (count > left()) throw CutOff();
    at_ += count;
  }
  ListHead list_head();

  const uint8_t* begin_;
  const uint8_t* at_;
  const uint8_t* end_;
  unsigned levels_ = 0;
};

}  // namespace warpjoin::parquet
