#include "parquet/decode_fixed.h"

#include <algorithm>
#include <cstring>

#include "columns/bits.h"
#include "parquet/damaged.h"

namespace warpjoin::parquet {
namespace {

using columns::bit_at;
using columns::load;

struct Wide {
  uint64_t low, high;
};

template <class T>
inline void store(uint8_t* to, uint64_t index, const T& value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof value);
}

template <class From, class To, class Make>
void each(const uint8_t* from, uint64_t count, uint8_t* to, const Make& make) {
  for (uint64_t i = 0; i < count; ++i) store<To>(to, i, make(load<From>(from, i)));
}

struct Int96 {
  uint64_t nanoseconds;
  uint32_t day;
} __attribute__((packed));

int64_t nanoseconds_of(const Int96& time) {
  constexpr uint64_t kJulianDayOfEpoch = 2440588, kNanosecondsPerDay = uint64_t{86'400} * 1'000'000'000;
  // Days that nanoseconds can't number wrap around.
  return static_cast<int64_t>((uint64_t{time.day} - kJulianDayOfEpoch) * kNanosecondsPerDay + time.nanoseconds);
}

template <class T>
Wide widened(T value) {
  return {static_cast<uint64_t>(int64_t{value}), value < 0 ? ~uint64_t{0} : 0};
}

/// Calls call(zero of a type of so many bytes), or otherwise().
template <class Call, class Otherwise>
void by_width(uint32_t width, const Call& call, const Otherwise& otherwise) {
  switch (width) {
    case 1: return call(uint8_t{});
    case 2: return call(uint16_t{});
    case 4: return call(uint32_t{});
    case 8: return call(uint64_t{});
    case 16: return call(Wide{});
    default: return otherwise();
  }
}

std::optional<Layout> layout_of_int32(const Leaf& leaf) {
  constexpr uint32_t kBytes = 4, kDecimalBytes = 16;
  int bits = 32;
  if (leaf.logical) {
    switch (static_cast<LogicalType>(*leaf.logical)) {
      case LogicalType::integer: bits = leaf.bit_width; break;
      case LogicalType::decimal: return Layout{Storage::widened, kBytes, kDecimalBytes};
      case LogicalType::date: break;
      case LogicalType::time:
        if (leaf.unit != static_cast<int>(TimeUnit::millis)) return std::nullopt;
        break;
      default: return std::nullopt;
    }
  } else if (leaf.converted) {
    switch (static_cast<ConvertedType>(*leaf.converted)) {
      case ConvertedType::int8:
      case ConvertedType::uint8: bits = 8; break;
      case ConvertedType::int16:
      case ConvertedType::uint16: bits = 16; break;
      case ConvertedType::int32:
      case ConvertedType::uint32:
      case ConvertedType::date:
      case ConvertedType::time_millis: break;
      case ConvertedType::decimal: return Layout{Storage::widened, kBytes, kDecimalBytes};
      default: return std::nullopt;
    }
  }
  switch (bits) {
    case 8:
    case 16: return Layout{Storage::narrowed, kBytes, static_cast<uint32_t>(bits) / 8};
    case 32: return Layout{Storage::same, kBytes, kBytes};
    default: return std::nullopt;
  }
}

std::optional<Layout> layout_of_int64(const Leaf& leaf) {
  constexpr uint32_t kBytes = 8, kDecimalBytes = 16;
  constexpr int kBits = 64;
  const Layout same{Storage::same, kBytes, kBytes}, decimal{Storage::widened, kBytes, kDecimalBytes};
  const bool has_unit = leaf.unit >= static_cast<int>(TimeUnit::millis) && leaf.unit <= static_cast<int>(TimeUnit::nanos);
  if (leaf.logical) {
    switch (static_cast<LogicalType>(*leaf.logical)) {
      case LogicalType::integer: return leaf.bit_width == kBits ? std::optional(same) : std::nullopt;
      case LogicalType::decimal: return decimal;
      case LogicalType::timestamp: return has_unit ? std::optional(same) : std::nullopt;
      case LogicalType::time:
        return has_unit && leaf.unit != static_cast<int>(TimeUnit::millis) ? std::optional(same) : std::nullopt;
      default: return std::nullopt;
    }
  }
  if (!leaf.converted) return same;
  switch (static_cast<ConvertedType>(*leaf.converted)) {
    case ConvertedType::int64:
    case ConvertedType::uint64:
    case ConvertedType::time_micros:
    case ConvertedType::timestamp_millis:
    case ConvertedType::timestamp_micros: return same;
    case ConvertedType::decimal: return decimal;
    default: return std::nullopt;
  }
}

std::optional<Layout> layout_of_bytes(const Leaf& leaf) {
  constexpr uint32_t kDecimalBytes = 16;
  constexpr int kMostDigits = 38;
  const auto decimal =
      leaf.precision <= kMostDigits ? std::optional(Layout{Storage::decimal_texts, 0, kDecimalBytes}) : std::nullopt;
  if (leaf.logical) {
    switch (static_cast<LogicalType>(*leaf.logical)) {
      case LogicalType::string:
      case LogicalType::json: return Layout{Storage::texts, 0, 0};
      case LogicalType::bson:
      case LogicalType::enumeration: return Layout{Storage::bytes, 0, 0};
      case LogicalType::decimal: return decimal;
      default: return std::nullopt;
    }
  }
  if (!leaf.converted) return Layout{Storage::bytes, 0, 0};
  switch (static_cast<ConvertedType>(*leaf.converted)) {
    case ConvertedType::utf8:
    case ConvertedType::json: return Layout{Storage::texts, 0, 0};
    case ConvertedType::bson:
    case ConvertedType::enumeration: return Layout{Storage::bytes, 0, 0};
    case ConvertedType::decimal: return decimal;
    default: return std::nullopt;
  }
}

std::optional<Layout> layout_of_fixed_bytes(const Leaf& leaf) {
  constexpr uint32_t kDecimalBytes = 16, kMostBytes = uint32_t{1} << 20;
  const uint32_t bytes = leaf.type_length;
  if (bytes == 0 || bytes > kMostBytes) return std::nullopt;
  const auto decimal = bytes <= kDecimalBytes ? std::optional(Layout{Storage::decimal, bytes, kDecimalBytes}) : std::nullopt;
  const Layout same{Storage::same, bytes, bytes};
  if (leaf.logical) {
    switch (static_cast<LogicalType>(*leaf.logical)) {
      case LogicalType::decimal: return decimal;
      case LogicalType::float16: return bytes == 2 ? std::optional(same) : std::nullopt;
      case LogicalType::uuid: return same;
      default: return std::nullopt;
    }
  }
  if (!leaf.converted) return same;
  return *leaf.converted == static_cast<int32_t>(ConvertedType::decimal) ? decimal : std::nullopt;
}

}  // namespace

std::optional<Layout> layout_of(const Leaf& leaf) {
  if (leaf.path.size() != 1 || leaf.most_repetition > 0) return std::nullopt;
  const bool has_type = leaf.logical || leaf.converted;
  const auto plain = [&](uint32_t width) { return has_type ? std::nullopt : std::optional(Layout{Storage::same, width, width}); };
  switch (leaf.physical) {
    case PhysicalType::boolean: return has_type ? std::nullopt : std::optional(Layout{Storage::boolean, 0, 0});
    case PhysicalType::int32: return layout_of_int32(leaf);
    case PhysicalType::int64: return layout_of_int64(leaf);
    case PhysicalType::int96: return has_type ? std::nullopt : std::optional(Layout{Storage::timestamp, sizeof(Int96), 8});
    case PhysicalType::float32: return plain(sizeof(float));
    case PhysicalType::float64: return plain(sizeof(double));
    case PhysicalType::byte_array: return layout_of_bytes(leaf);
    case PhysicalType::fixed_bytes: return layout_of_fixed_bytes(leaf);
  }
  return std::nullopt;
}

void widen_decimal(const uint8_t* from, uint64_t bytes, uint8_t* to) {
  constexpr uint64_t kMost = sizeof(Wide);
  if (bytes > kMost) throw Damaged("a decimal has " + std::to_string(bytes) + " bytes");
  const uint8_t sign = bytes > 0 && from[0] & 0x80 ? 0xff : 0;
  for (uint64_t i = 0; i < kMost; ++i) to[i] = i < bytes ? from[bytes - 1 - i] : sign;
}

void convert(const Layout& layout, const uint8_t* from, uint64_t count, uint8_t* to) {
  switch (layout.storage) {
    case Storage::narrowed:
      if (layout.width == 1) return each<uint32_t, uint8_t>(from, count, to, [](uint32_t v) { return static_cast<uint8_t>(v); });
      return each<uint32_t, uint16_t>(from, count, to, [](uint32_t v) { return static_cast<uint16_t>(v); });
    case Storage::widened:
      if (layout.from_width == 4) return each<int32_t, Wide>(from, count, to, widened<int32_t>);
      return each<int64_t, Wide>(from, count, to, widened<int64_t>);
    case Storage::timestamp: return each<Int96, int64_t>(from, count, to, nanoseconds_of);
    case Storage::decimal:
      for (uint64_t i = 0; i < count; ++i) widen_decimal(from + i * layout.from_width, layout.from_width, to + i * layout.width);
      return;
    default:
      if (count > 0) std::memcpy(to, from, count * layout.width);
  }
}

void join_streams(const uint8_t* from, uint64_t total, uint32_t width, uint64_t count, uint8_t* to) {
  constexpr uint64_t kBlock = 256;
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    const uint64_t end = std::min(begin + kBlock, count);
    for (uint32_t byte = 0; byte < width; ++byte) {
      for (uint64_t i = begin; i < end; ++i) to[i * width + byte] = from[byte * total + i];
    }
  }
}

void gather(const uint8_t* dictionary, uint32_t width, const uint32_t* indices, uint64_t count, uint8_t* to) {
  by_width(
      width,
      [&](auto zero) {
        using T = decltype(zero);
        for (uint64_t i = 0; i < count; ++i) store<T>(to, i, load<T>(dictionary, indices[i]));
      },
      [&] {
        for (uint64_t i = 0; i < count; ++i) std::memcpy(to + i * width, dictionary + uint64_t{indices[i]} * width, width);
      });
}

void spread(uint8_t* values, uint32_t width, const uint8_t* validity, uint64_t row, uint64_t rows, uint64_t valid) {
  by_width(
      width,
      [&](auto zero) {
        using T = decltype(zero);
        for (uint64_t i = rows; i-- > 0;) {
          const bool is_valid = bit_at(validity, row + i);
          valid -= is_valid;
          // The value is read even of a null, where there may be none left: the first is.
          const T value = load<T>(values, valid);
          store<T>(values, i, is_valid ? value : T{});
        }
      },
      [&] {
        for (uint64_t i = rows; i-- > 0;) {
          uint8_t* const to = values + i * width;
          if (bit_at(validity, row + i)) {
            std::memmove(to, values + --valid * width, width);
          } else {
            std::memset(to, 0, width);
          }
        }
      });
}

}  // namespace warpjoin::parquet
