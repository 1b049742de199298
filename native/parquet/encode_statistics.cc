#include "parquet/encode_statistics.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "columns/bits.h"

namespace warpjoin::parquet {
namespace {

using columns::load;

template <class Value>
std::string plain(Value value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// Whether bytes come before others, compared as unsigned numbers.
bool before(const uint8_t* a, uint64_t a_size, const uint8_t* b, uint64_t b_size) {
  const uint64_t common = std::min(a_size, b_size);
  const int order = common ? std::memcmp(a, b, common) : 0;
  return order ? order < 0 : a_size < b_size;
}

const uint8_t* data_of(const std::string& bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

}  // namespace

template <class Value>
void Statistics::add_numbers(const uint8_t* values, uint64_t count) {
  using Limits = std::numeric_limits<Value>;
  Value least = std::is_floating_point_v<Value> ? Limits::infinity() : Limits::max();
  Value greatest = std::is_floating_point_v<Value> ? -Limits::infinity() : Limits::min();
  for (uint64_t i = 0; i < count; ++i) {
    const auto value = load<Value>(values, i);
    least = value < least ? value : least;
    greatest = value > greatest ? value : greatest;
  }
  if (count == 0 || least > greatest) return;  // all are NaN
  if (any_) {
    least = std::min(least, load<Value>(bounds_.least.data()));
    greatest = std::max(greatest, load<Value>(bounds_.greatest.data()));
  }
  if constexpr (std::is_floating_point_v<Value>) {
    if (least == 0) least = -Value{0};
    if (greatest == 0) greatest = Value{0};
  }
  bounds_ = {plain(least), plain(greatest)};
  any_ = true;
}

void Statistics::add(const uint8_t* values, uint64_t count) {
  if (order_ == Order::none) return;
  const bool is_signed = order_ == Order::signed_integer;
  switch (type_) {
    case PhysicalType::boolean: return add_numbers<uint8_t>(values, count);
    case PhysicalType::int32: return is_signed ? add_numbers<int32_t>(values, count) : add_numbers<uint32_t>(values, count);
    case PhysicalType::int64: return is_signed ? add_numbers<int64_t>(values, count) : add_numbers<uint64_t>(values, count);
    case PhysicalType::float32: return add_numbers<float>(values, count);
    case PhysicalType::float64: return add_numbers<double>(values, count);
    default:
      for (uint64_t i = 0; i < count; ++i) add_bytes({values + i * width_, width_});
  }
}

void Statistics::add(const Bytes* values, uint64_t count) {
  for (uint64_t i = 0; i < count && order_ != Order::none; ++i) add_bytes(values[i]);
}

void Statistics::add_bytes(Bytes value) {
  const bool is_least = !any_ || before(value.data, value.size, data_of(bounds_.least), bounds_.least.size());
  const bool is_greatest = !any_ || before(data_of(bounds_.greatest), bounds_.greatest.size(), value.data, value.size);
  if (!is_least && !is_greatest) return;
  if (value.size > kMostStatisticBytes) {
    order_ = Order::none;
    return;
  }
  const std::string bytes(reinterpret_cast<const char*>(value.data), value.size);
  if (is_least) bounds_.least = bytes;
  if (is_greatest) bounds_.greatest = bytes;
  any_ = true;
}

}  // namespace warpjoin::parquet
